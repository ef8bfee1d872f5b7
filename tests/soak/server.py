"""A `memcon serve` as a soak sees it: a process to start, to update and to stop, and below it the ones to kill."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import psutil

from memcon.errors import MemconError
from memcon_policy_server import wire
from memcon_policy_server.client.transport import authorization, reply_of
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.journal.snapshot import read_snapshot
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.secret import load_token
from memcon_policy_server.serving.free_ports import free_ports
from memcon_policy_server.sharding import journal_path, snapshot_path
from soak.schedule import GATEWAY, OWNER
from support.processes import processes_below
from support.waiting import wait_until

__all__ = ["NUM_SHARDS", "TABLE", "WATCH_TABLE", "MemconServe"]

NUM_SHARDS = 2
TABLE = "default"
# For the decides that only ask who answers.
WATCH_TABLE = "watch"
_NAME = "soak"
# A snapshot every 10,000 events: twice what a shard remembers stays below that. What a client may repeat is never as
# much as it remembers.
_CONFIG = f"""\
name: {_NAME}
directory: policy
shards: {NUM_SHARDS}
gateways: 2
snapshot_every: 10000
closed_kept: 4500
tables:
  {TABLE}: ucb
  {WATCH_TABLE}: ucb
"""
_START_S, _STOP_S = 150.0, 90.0
_REPLACED = "all processes replaced"


class MemconServe:
    """The server of one soak, in `folder`; `start` returns when it answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "policy"
        self.url = ""
        self._http = httpx2.Client(trust_env=False, timeout=10.0)

    def start(self) -> None:
        config = self.folder / "soak.yaml"
        config.write_text(_CONFIG, encoding="utf-8")
        self._said = self.folder / "serve.log"
        memcon = Path(sys.executable).with_name("memcon")
        with self._said.open("wb") as log:
            self._process = subprocess.Popen(
                [str(memcon), "serve", str(config), f"port={free_ports(1)[0]}", "--json"],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _START_S)[0]:
            self.abandon()
            raise AssertionError(f"memcon serve did not answer within {_START_S} s: {self.said()}")
        line = self._process.stdout.readline()
        assert line, f"memcon serve ended with code {self._process.wait()}: {self.said()}"
        self.url = str(json.loads(line)["url"])
        self.token = load_token(self.directory)
        self._http.headers.update(authorization(self.token))

    def said(self) -> str:
        """What the command wrote for people so far."""
        return self._said.read_text(encoding="utf-8")

    def update(self) -> None:
        """Have all processes replaced, one after the other; does not wait."""
        self._process.send_signal(signal.SIGHUP)

    def updates(self) -> int:
        """How many updates have ended well."""
        return self.said().count(_REPLACED)

    def stop(self) -> int:
        """As Ctrl-C; the exit code."""
        self._http.close()
        self._process.send_signal(signal.SIGINT)
        return self._ended()

    def abandon(self) -> None:
        """End it, if it still runs, whatever state it is in."""
        self._http.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._ended()
            except subprocess.TimeoutExpired:
                below = psutil.Process(self._process.pid).children(recursive=True)
                self._process.kill()
                for process in below:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                self._ended()

    # --- its processes -----------------------------------------------------------------------------------------------

    def processes(self, kind: str, shard: int = 0) -> list[psutil.Process]:
        """Those of one kind that live now, oldest first; `shard` tells owners apart."""
        title = {OWNER: f":shard-{shard}", GATEWAY: ":gateway"}.get(kind)
        found = []
        for process in processes_below(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                command = " ".join(process.cmdline()).strip()
                wanted = process.name() == "haproxy" if title is None else _replica(command).endswith(title)
                if wanted:
                    found.append((process.create_time(), process.pid, process))
        return [process for _, _, process in sorted(found)]

    # --- its files ---------------------------------------------------------------------------------------------------

    def epoch(self, shard: int) -> int:
        """The shard's epoch as its journal says."""
        with contextlib.closing(self._journal(shard)) as journal:
            return journal.current_epoch()

    def after_snapshot(self, shard: int) -> int:
        """Events that an owner which starts now would have to fold."""
        snapshot = read_snapshot(snapshot_path(self.directory, shard))
        with contextlib.closing(self._journal(shard)) as journal:
            return journal.end() - (0 if snapshot is None else snapshot.seq)

    def claim(self, shard: int) -> int:
        """Claim a shard as another process would; the new epoch."""
        journal = SqliteJournal(journal_path(self.directory, shard), shard=shard, num_shards=NUM_SHARDS)
        with contextlib.closing(journal):
            return journal.claim()

    def differences(self) -> list[str]:
        """Where the served tables are not what their journals fold to, from zero and from the snapshot; bit for bit.

        For a server to which nobody talks.
        """
        found = []
        for shard, served in enumerate(self._served_tables()):
            for from_snapshot in (False, True):
                core, _ = folded(self.directory, shard, NUM_SHARDS, from_snapshot=from_snapshot)
                if json.loads(json.dumps(core.dump(TABLE))) != served:
                    found.append(f"shard {shard}: the served table is not the fold (from_snapshot={from_snapshot})")
        return found

    def _served_tables(self) -> list[object]:
        path = f"{wire.TABLES}?table={TABLE}"
        urls = [shard["url"] for shard in self._ask(self.url + wire.SHARD_MAP)["shards"]]
        return [self._ask(url + path)["tables"][TABLE] for url in urls]

    def _ask(self, url: str) -> dict[str, Any]:
        def answer() -> dict[str, Any] | None:
            try:
                return dict(reply_of(self._http.get(url)))
            except (httpx2.HTTPError, MemconError):
                return None

        return wait_until(answer, within_s=30, what=f"an answer of {url}")

    def _journal(self, shard: int) -> SqliteJournal:
        path = journal_path(self.directory, shard)
        return SqliteJournal(path, shard=shard, num_shards=NUM_SHARDS, read_only=True)

    def _ended(self) -> int:
        code = self._process.wait(_STOP_S)
        if self._process.stdout is not None:
            # Nobody reads on after the first line: were more written, the pipe would be full one day.
            rest = self._process.stdout.read()
            self._process.stdout.close()
            assert not rest, f"memcon serve wrote more than its line of JSON: {rest[:200]}"
        return code


def kill(process: psutil.Process | subprocess.Popen[str], *, within_s: float = 30.0) -> tuple[float, float]:
    """`kill -9`; the monotonic times before the kill and when the process was seen to have ended."""
    handle = os.pidfd_open(process.pid)
    try:
        killed = time.monotonic()
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        assert select.select([handle], [], [], within_s)[0], f"process {process.pid} does not end"
    finally:
        os.close(handle)
    return killed, time.monotonic()


def _replica(command: str) -> str:
    """The deployment that a process of Serve's is of: its title names the method that runs behind a dot."""
    app = f"ray::ServeReplica:memcon-serve-{_NAME}"
    return command.partition(".")[0] if command.startswith(app) else ""

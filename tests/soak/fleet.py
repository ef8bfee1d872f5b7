"""The clients of a soak: processes that play, are killed, start again over the same spool, and end in order at last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from memcon import codec
from memcon_policy_server.sharding import token_path
from soak.agent import MODES, AgentSpec
from soak.log import Began, Ended, LogReader, Record
from soak.server import NUM_SHARDS, TABLE, MemconServe, kill
from support.waiting import wait_until

__all__ = ["Client", "Fleet"]

_TESTS = Path(__file__).resolve().parents[1]
_START_S, _END_S = 60.0, 120.0


@dataclass(slots=True, kw_only=True)
class Client:
    """One client over all its lives."""

    spec: AgentSpec
    process: subprocess.Popen[str]
    reader: LogReader
    records: list[Record]

    def look(self) -> list[Record]:
        """Read on in the log; what is new."""
        new = self.reader.new()
        self.records += new
        return new

    def ended(self) -> Ended | None:
        """How it ended, once it has."""
        return next((record for record in self.records if isinstance(record, Ended)), None)

    def lives(self) -> int:
        """How many of its lives have begun to play."""
        return sum(isinstance(record, Began) for record in self.records)


class Fleet:
    """One client of each mode, `name` in front of their names; they play until `drain`."""

    def __init__(
        self, server: MemconServe, folder: Path, name: str, *, seed: int, streams: int, keys: int, pause_s: float
    ) -> None:
        folder.mkdir(parents=True)
        self.clients = []
        for mode in MODES:
            spec = AgentSpec(
                name=f"{name}-{mode}",
                life=0,
                mode=mode,
                url=server.url,
                token_path=str(token_path(server.directory)),
                table=TABLE,
                num_shards=NUM_SHARDS,
                seed=seed,
                streams=streams,
                keys=keys,
                pause_s=pause_s,
                log_path=str(folder / f"{mode}.log"),
                spool_path=str(folder / f"{mode}.spool"),
            )
            client = Client(spec=spec, process=_start(spec), reader=LogReader(Path(spec.log_path)), records=[])
            self.clients.append(client)

    def look(self) -> list[tuple[Client, Record]]:
        """What is new in the logs."""
        return [(client, record) for client in self.clients for record in client.look()]

    def kill(self, client: Client) -> float:
        """`kill -9`, and start its next life at once; when it was killed."""
        killed, _ = kill(client.process)
        client.process.wait()
        client.spec = replace(client.spec, life=client.spec.life + 1)
        client.process = _start(client.spec)
        return killed

    def drain(self) -> None:
        """Have all stop playing and deliver what they hold; returns when they have ended."""
        for client in self.clients:
            wait_until(partial(_began, client), within_s=_START_S, what=f"the start of {client.spec.name}")
            client.process.send_signal(signal.SIGTERM)
        for client in self.clients:
            client.process.wait(_END_S)
            client.look()

    def abandon(self) -> None:
        """End what still runs."""
        for client in self.clients:
            if client.process.poll() is None:
                client.process.kill()
                client.process.wait()


def _began(client: Client) -> bool:
    client.look()
    lives = [record.life for record in client.records if isinstance(record, Began)]
    return bool(lives) and lives[-1] == client.spec.life


def _start(spec: AgentSpec) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}  # noqa: TID251 - a process needs the rest of it
    with Path(spec.log_path + ".err").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "soak.agent", codec.encode_json(spec)], env=environment, stderr=errors, text=True
        )

"""One life of `memcon serve`: the folder is held, the server started, its tables opened, and all of it ended in order.

What runs is `memcon_policy_server.serving.server`; here are signals, the lock and the words for people.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from memcon import codec
from memcon.errors import MemconError, UnavailableError
from memcon_platform.config.serving import ServingPlan
from memcon_platform.sweep.interrupts import Interrupted, Interrupts, interrupts
from memcon_platform.sweep.ray_cluster import to_its_end
from memcon_platform.sweep.run_folder import holding
from memcon_policy_server import wire
from memcon_policy_server.client.transport import authorization, checked, reply_of
from memcon_policy_server.secret import load_token
from memcon_policy_server.serving.server import Serving, ServingOptions
from memcon_policy_server.sharding import token_path

__all__ = ["Interrupted", "Served", "server_options", "serving"]

_LOCK_FILE = "serve.lock"
# Between two looks at the server's health.
_WATCH_S = 5.0
_ASK_TIMEOUT_S = 20.0


class Served:
    """The running server as the command sees it."""

    def __init__(self, plan: ServingPlan, server: Serving, say: Callable[[str], None]) -> None:
        self._plan, self._server, self._say = plan, server, say
        self._stop, self._roll = asyncio.Event(), asyncio.Event()
        self._http = httpx2.AsyncClient(
            base_url=server.url,
            trust_env=False,
            timeout=_ASK_TIMEOUT_S,
            headers=dict(authorization(load_token(plan.directory))),
        )
        self.tables: tuple[str, ...] = ()

    def place(self) -> dict[str, Any]:
        """Where the server is; the token is only named."""
        return {
            "url": self._server.url,
            "token_path": str(token_path(self._plan.directory)),
            "directory": str(self._plan.directory),
            "tables": list(self.tables),
            "shards": self._plan.shards,
            "pid": os.getpid(),
        }

    async def open_tables(self) -> None:
        """Open the tables of the config, and learn which others there are.

        Raises:
            UnavailableError: the gateway does not answer.
            ConflictError: a table is there with other settings.
        """
        try:
            for name, settings in self._plan.tables.items():
                body = codec.encode_json({"table": name, "settings": settings})
                reply_of(await self._http.post(wire.OPEN_TABLE, content=body))
            self.tables = tuple(checked(wire.TABLES, reply_of(await self._http.get(wire.TABLES)))["tables"])
        except httpx2.HTTPError as error:
            raise UnavailableError(
                f"the gateway at {self._server.url} does not answer ({type(error).__name__}: {error}); is another "
                "Serve's HTTP ingress there?"
            ) from error

    async def until_stopped(self) -> None:
        """Return when SIGINT or SIGTERM came; tell of each change of health, and roll at SIGHUP."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._roll.set)
        well = True
        try:
            while not self._stop.is_set():
                await self._wait()
                if self._roll.is_set():
                    self._roll.clear()
                    await self._replace_processes()
                well = await self._told(well)
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def stop(self) -> None:
        """End `until_stopped`."""
        self._stop.set()

    async def close(self) -> None:
        """Free the connection."""
        await self._http.aclose()

    async def _wait(self) -> None:
        """Until the next look, a stop or a roll."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stop, self._roll)]
        await asyncio.wait(waits, timeout=_WATCH_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _replace_processes(self) -> None:
        self._say("replacing all processes")
        try:
            await to_its_end(self._server.roll)
        except MemconError as error:
            self._say(f"replacing failed: {error}")
        else:
            self._say("all processes replaced")

    async def _told(self, well: bool) -> bool:
        """Look at the health; tell when it is another one than at the last look."""
        found = await self._health()
        now = found == "ok"
        if now != well:
            self._say(f"health: {found}")
        return now

    async def _health(self) -> str:
        try:
            return str(checked(wire.HEALTH, reply_of(await self._http.get(wire.HEALTH)))["status"])
        except (httpx2.HTTPError, MemconError) as error:
            return f"no answer ({error})"


@asynccontextmanager
async def serving(plan: ServingPlan, say: Callable[[str], None]) -> AsyncIterator[Served]:
    """The server of `plan` while the block runs; its first SIGINT or SIGTERM ends `Served.until_stopped`.

    Raises:
        Interrupted: a signal came before it answered.
        LockedError: another `memcon serve` has the folder, or some process the port.
        MemconError: as `Serving.start` and `Served.open_tables`.
    """
    held = f"the policy folder {plan.directory} is served"
    with holding(plan.directory / _LOCK_FILE, held, "set directory="), interrupts() as phase:
        server = Serving(server_options(plan))
        try:
            say(f"starting {plan.shards} owners and {plan.gateways} gateways on {_ray(plan)}")
            await to_its_end(server.start_ray)
            _take_signals_back()
            await to_its_end(server.start)
            served = Served(plan, server, say)
            try:
                await served.open_tables()
                phase.to(served.stop)
                yield served
            finally:
                await served.close()
        finally:
            _deaf(phase)
            say("stopping")
            await to_its_end(server.stop)


def _take_signals_back() -> None:
    """Ray's own handler of SIGTERM, below Python's, prints a stack and aborts the process after three seconds.

    It is there as soon as Ray is; owners and gateways take ten seconds more to start.
    """
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.getsignal(name))


def _deaf(phase: Interrupts) -> None:
    """A second Ctrl-C would leave Ray half stopped."""
    phase.to(lambda: None)


def _ray(plan: ServingPlan) -> str:
    return "a Ray of its own" if plan.ray_address is None else f"the Ray at {plan.ray_address}"


def server_options(plan: ServingPlan) -> ServingOptions:
    """What the server of `plan` is started with."""
    return ServingOptions(
        name=plan.name,
        directory=plan.directory,
        shards=plan.shards,
        gateways=plan.gateways,
        host=plan.host,
        port=plan.port,
        ray_address=plan.ray_address,
        owner=plan.options,
    )

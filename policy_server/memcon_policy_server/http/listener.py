"""The server that carries an application inside a running event loop: uvicorn on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import cast

import uvicorn

from memcon.errors import ConfigError, UnavailableError
from memcon_policy_server.http.app import HttpApp
from memcon_policy_server.http.protocol import QuickProtocol

__all__ = ["Listener"]

# Longer than any pause between two decisions of a client, so that kept connections stay.
KEEP_ALIVE_S = 300
DRAIN_S = 5
BACKLOG = 1024
# uvicorn's beat: it renews the header `date` every tenth time.
_TICK_S = 0.1
# Between two looks at what is still open while it drains.
_LOOK_S = 0.005


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers, and one that ends as soon as it may: the process belongs to the shell.

    uvicorn's own looks ten times a second, and twice at least: 0.15 s a listener in every stop and every update.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """Begin to drain."""
        self.should_exit = True
        self._leaving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def main_loop(self) -> None:
        """Until `leave`."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nobody more, have what began answered, at most `DRAIN_S`, and close all connections.

        Until that is answered the idle ones stay, so that who asks on one is refused in words.
        """
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        loop, state = asyncio.get_running_loop(), self.server_state
        deadline = loop.time() + DRAIN_S
        is_open = True
        while is_open and loop.time() < deadline:
            self._close(idle=not state.tasks)
            # At least once: a connection that was accepted before may have its protocol only then.
            await asyncio.sleep(_LOOK_S)  # noqa: TID251 - uvicorn has sets to look at, and no event
            is_open = bool(state.connections or state.tasks)
        self._close(idle=True)
        for task in state.tasks:
            task.cancel()

    def _close(self, *, idle: bool) -> None:
        """Close each connection when it is answered; those that wait for nothing now, or not at all."""
        for connection in cast("list[QuickProtocol]", list(self.server_state.connections)):
            if idle or not (connection.cycle is None or connection.cycle.response_complete):
                connection.shutdown()


class Listener:
    """One application on a port of `host`, a free one by default, in the running event loop.

    Raises:
        ConfigError: the port cannot be had.
    """

    def __init__(self, app: HttpApp, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._app = app
        # Bound and listening at once: a client that connects before uvicorn accepts waits in the backlog.
        # The protocol is named since asyncio switches Nagle's delay (40 ms a reply) off on such sockets only.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # A fixed port is to be had again at once after a restart.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; take another host or port") from error
        self.base_url = f"http://{host}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            http=QuickProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._server = _EmbeddedServer(config)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> str:
        """Serve until `stop`; returns the base URL."""
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[self._socket]))
        return self.base_url

    def check(self) -> None:
        """Nothing, while it answers or is being stopped.

        Raises:
            UnavailableError: the server ended by itself, with what it ended.
        """
        if self._task is not None and self._task.done() and not self._app.draining:
            reason = None if self._task.cancelled() else self._task.exception()
            raise UnavailableError(f"the listener at {self.base_url} ended: {reason!r}; its process must be replaced")

    async def stop(self) -> None:
        """Refuse what comes, let open requests finish (at most 5 s), close all connections and free the port."""
        self._app.draining = True
        self._server.leave()
        if self._task is not None:
            await self._task
        self._socket.close()

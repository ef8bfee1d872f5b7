"""The afternoon's work: FastAPI before Redis, with the paper's rule as a Lua script. A process of its own.

Made as fast as its kind is without more thought than an afternoon: one uvicorn worker on uvloop and httptools, no
access log, models that pydantic serialises, hiredis, scripts called by their digest, Redis over a Unix socket. It does
less than ours: no decision ids (an outcome told twice counts twice), no token, no propensities, no limits.

`python -m memcon_platform.bench.peers.fastapi_redis SOCKET` prints its port and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import click

from memcon.errors import ConfigError, MissingExtraError, UnavailableError
from memcon.learning import actions

__all__ = ["fastapi_redis"]

_ARMS = actions.action_set("default").action_ids
_C, _ALPHA = 1.4, 0.15
_START_WITHIN_S = 20
_END_WITHIN_S = 10
# As uvicorn would.
_BACKLOG = 2048

# KEYS[1] = hash of one context with the fields n0, q0, n1, q1, ...; ARGV = number of arms, c. Unvisited arms go first,
# in order; of equal ones the first wins. Gives the arm's index and counts it.
CHOOSE = """
local arms, c = tonumber(ARGV[1]), tonumber(ARGV[2])
local fields = {}
for arm = 0, arms - 1 do
  fields[2 * arm + 1] = 'n' .. arm
  fields[2 * arm + 2] = 'q' .. arm
end
local held = redis.call('HMGET', KEYS[1], unpack(fields))
local total, best, chosen = 0, nil, 0
for arm = 0, arms - 1 do
  total = total + tonumber(held[2 * arm + 1] or 0)
end
local spread = c * c * math.log(total)
for arm = 0, arms - 1 do
  local n = tonumber(held[2 * arm + 1] or 0)
  if n == 0 then
    chosen = arm
    break
  end
  local score = tonumber(held[2 * arm + 2] or 0) + math.sqrt(spread / n)
  if best == nil or score > best then
    best, chosen = score, arm
  end
end
redis.call('HINCRBY', KEYS[1], 'n' .. chosen, 1)
return chosen
"""

# KEYS[1] as above; ARGV = index of the arm, reward, alpha. Eq. 7 of the paper, one step long.
LEARN = """
local field = 'q' .. ARGV[1]
local q = tonumber(redis.call('HGET', KEYS[1], field) or 0)
redis.call('HSET', KEYS[1], field, string.format('%.17g', q + tonumber(ARGV[3]) * (tonumber(ARGV[2]) - q)))
return 1
"""


@contextlib.contextmanager
def fastapi_redis(*, appendfsync: str) -> Iterator[str]:
    """Start both in a temporary folder, give the URL, and end both. `appendfsync` is Redis's: "everysec" or "always".

    Raises:
        MissingExtraError: fastapi or redis is not installed.
        ConfigError: redis-server is not installed; says how to install it.
        UnavailableError: one of the two does not start.
    """
    for library in ("fastapi", "redis", "hiredis"):
        if find_spec(library) is None:
            raise MissingExtraError(library, "bench")
    server = shutil.which("redis-server")
    if server is None:
        raise ConfigError("redis-server is not installed; run: apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="memcon-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        unix = folder / "redis.socket"
        stack.enter_context(_process(_redis_command(server, folder, unix, appendfsync), folder / "redis.log"))
        command = [sys.executable, "-m", __spec__.name, str(unix)]
        peer = stack.enter_context(_process(command, folder / "fastapi.log", stdout=subprocess.PIPE))
        yield f"http://127.0.0.1:{_port_of(peer, folder / 'fastapi.log')}"


def _redis_command(server: str, folder: Path, unix: Path, appendfsync: str) -> list[str]:
    # A Unix socket: no port that another program may take meanwhile, and quicker than one.
    settings = {
        "port": "0",
        "unixsocket": str(unix),
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": appendfsync,
    }
    return [server, *(word for key, value in settings.items() for word in (f"--{key}", value)), "--save", ""]


@contextlib.contextmanager
def _process(command: list[str], log: Path, *, stdout: int | None = None) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        out: int | IO[str] = errors if stdout is None else stdout
        process = subprocess.Popen(command, stdout=out, stderr=errors, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _port_of(process: subprocess.Popen[str], log: Path) -> int:
    """The port that the peer prints once Redis has answered it."""
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line.strip().isdigit():
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise UnavailableError(f"the peer FastAPI + Redis did not start: {last or 'it ended without a word'}")
    return int(line)


# --- the peer's own process ------------------------------------------------------------------------------------------


def build_app(unix: str) -> Any:
    """The application: POST /decide {context} and POST /outcome {context, arm, reward}."""
    from fastapi import FastAPI
    from pydantic import BaseModel
    from redis.asyncio import Redis

    store = Redis(unix_socket_path=unix)
    choose, learn = store.register_script(CHOOSE), store.register_script(LEARN)
    index = {arm: number for number, arm in enumerate(_ARMS)}

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await store.aclose()

    app = FastAPI(lifespan=lifespan)

    class Decide(BaseModel):
        context: str

    class Decided(BaseModel):
        arm: str

    class Outcome(BaseModel):
        context: str
        arm: str
        reward: float

    class Learned(BaseModel):
        learned: bool

    async def decide(request: Decide) -> Decided:
        chosen = await choose(keys=[f"context:{request.context}"], args=[len(_ARMS), _C])
        return Decided(arm=_ARMS[chosen])

    async def outcome(request: Outcome) -> Learned:
        await learn(keys=[f"context:{request.context}"], args=[index[request.arm], request.reward, _ALPHA])
        return Learned(learned=True)

    # The annotations name classes of this function, which FastAPI could not find by their text.
    decide.__annotations__ = {"request": Decide, "return": Decided}
    outcome.__annotations__ = {"request": Outcome, "return": Learned}
    app.post("/decide")(decide)
    app.post("/outcome")(outcome)
    return app


async def _serve(unix: str) -> None:
    import uvicorn
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import ConstantBackoff
    from redis.exceptions import ConnectionError as NoRedisError

    # Redis has been started a moment ago.
    retry = Retry(ConstantBackoff(0.05), int(_START_WITHIN_S / 0.05), supported_errors=(NoRedisError,))
    first = Redis(unix_socket_path=unix, retry=retry)
    await first.ping()
    await first.aclose()
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    # Before its port is told: who connects before uvicorn accepts waits in the backlog.
    listening.listen(_BACKLOG)
    config = uvicorn.Config(build_app(unix), loop="uvloop", http="httptools", access_log=False, log_level="warning")
    click.echo(listening.getsockname()[1])
    await uvicorn.Server(config).serve(sockets=[listening])


def main() -> None:
    """Serve until ended by a signal."""
    import uvloop

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1]))


if __name__ == "__main__":
    main()

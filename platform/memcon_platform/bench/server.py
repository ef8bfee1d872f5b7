"""The server under load: ours, started as `memcon serve` starts it, or one that runs already."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from memcon import codec
from memcon.errors import UnavailableError
from memcon.policy_types import LearningSettings
from memcon_platform.bench.contestants import context_keys
from memcon_platform.bench.dialects import MemconDialect, address_of
from memcon_platform.bench.load import Target
from memcon_platform.config.serving import load_serving
from memcon_policy_server import wire
from memcon_policy_server.client.transport import authorization, reply_of
from memcon_policy_server.sharding import shard_of_keys

__all__ = ["CONTEXTS", "TABLE", "Server", "running", "started"]

# State keys of the benches: as many as the policy of the paper meets in a sweep.
CONTEXTS = 300
TABLE = "bench"
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server whose table `TABLE` is open."""

    gateway: str
    # Base URLs of the listeners, in order of shard.
    shards: tuple[str, ...]
    token: str | None
    num_gateways: int = 1

    def at_shards(self) -> tuple[Target, ...]:
        """Each shard's listener with the keys that it owns, asked as our client asks."""
        count = len(self.shards)
        keys: list[list[str]] = [[] for _ in self.shards]
        for key in context_keys(CONTEXTS):
            keys[shard_of_keys(TABLE, (key,), count)].append(key)
        return tuple(
            self._target(url, own, mark=wire.shard_mark(shard, count))
            for shard, (url, own) in enumerate(zip(self.shards, keys, strict=True))
            if own
        )

    def at_gateway(self, prefix: str = "") -> tuple[Target, ...]:
        """The gateway with all keys, asked as curl asks; `prefix` stands before every path."""
        return (self._target(self.gateway + prefix, context_keys(CONTEXTS)),)

    def _target(self, url: str, keys: Sequence[str], mark: str | None = None) -> Target:
        host, port = address_of(url)
        dialect = MemconDialect(url, table=TABLE, keys=keys, token=self.token, mark=mark)
        return Target(host=host, port=port, dialect=dialect)


@contextlib.contextmanager
def started(overrides: Sequence[str] = ()) -> Iterator[Server]:
    """Start Ray, shards and gateway as `memcon serve` does, in a temporary folder and on a free port; end all at exit.

    `overrides` are keys of a serving config, such as "shards=2".

    Raises:
        MemconError: an override is wrong, or the server does not start.
    """
    from memcon_platform.serving import server_options
    from memcon_policy_server.secret import load_token
    from memcon_policy_server.serving.free_ports import free_ports
    from memcon_policy_server.serving.server import Serving

    # Ray prints to stdout when its actors end, where the figures' JSON belongs.
    quiet = contextlib.redirect_stdout(sys.stderr)
    with quiet, tempfile.TemporaryDirectory(prefix="memcon-bench-") as name:
        config = Path(name) / "bench.yaml"
        # HAProxy takes no port 0.
        (port,) = free_ports(1)
        settings = {"directory": f"{name}/policy", "port": port, "tables": {TABLE: "ucb"}}
        config.write_text(json.dumps(settings), encoding="utf-8")
        plan = load_serving(config, overrides)
        serving = Serving(server_options(plan))
        try:
            serving.start_ray()
            serving.start()
            token = load_token(plan.directory)
            _open_table(serving.url, token, plan.tables[TABLE])
            yield Server(
                gateway=serving.url, shards=_shards(serving.url, token), token=token, num_gateways=plan.gateways
            )
        finally:
            serving.stop()


def running(url: str, token: str | None, settings: LearningSettings) -> Server:
    """The server at the gateway `url`; its table `TABLE` is made if it is not there.

    Raises:
        ConfigError: `url` is no address.
        UnavailableError: nothing that is ours answers there.
        MemconError: what it refused, such as the token.
    """
    url = url.rstrip("/")
    address_of(url)
    _open_table(url, token, settings)
    return Server(gateway=url, shards=_shards(url, token), token=token)


def _open_table(url: str, token: str | None, settings: LearningSettings) -> None:
    _ask("POST", url + wire.OPEN_TABLE, token, {"table": TABLE, "settings": codec.encode(settings)})


def _shards(url: str, token: str | None) -> tuple[str, ...]:
    return tuple(str(shard["url"]) for shard in _ask("GET", url + wire.SHARD_MAP, token)["shards"])


def _ask(method: str, url: str, token: str | None, message: Mapping[str, Any] | None = None) -> Any:
    headers = dict(authorization(token))
    try:
        return reply_of(httpx2.request(method, url, json=message, headers=headers, timeout=_TIMEOUT_S, trust_env=False))
    except (httpx2.HTTPError, httpx2.InvalidURL, UnavailableError) as error:
        raise UnavailableError(f"{method} {url}: {error}; is it the gateway of a memcon server?") from error

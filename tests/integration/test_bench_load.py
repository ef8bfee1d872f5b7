"""The load generator against a small real server: what it counts, what it waits for, and what it does not hide."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from memcon.errors import ConfigError, UnavailableError
from memcon_platform.bench import generator, load_single
from memcon_platform.bench.contestants import context_keys
from memcon_platform.bench.dialects import MemconDialect, PeerDialect, address_of
from memcon_platform.bench.generator import run_load
from memcon_platform.bench.load import Load, LoadReport, Target
from support.counted_time import count_time

KEYS = context_keys(20)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is not about time: no window goes by while this machine has no time for us."""
    count_time(monkeypatch)


@dataclass(slots=True)
class Server:
    """Answers as told, and keeps what it was asked: (path, body)."""

    answer: Callable[[str, bytes], bytes | None]
    asked: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    delay_s: float = 0.0
    # Nothing is answered before.
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(int(line[15:]) for line in head.splitlines() if line.startswith("content-length:"))
                body = await reader.readexactly(length)
                path = head.split()[1]
                self.asked.append((path, json.loads(body)))
                await self.may_answer.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)  # noqa: TID251 - a server that takes its time
                reply = self.answer(path, body)
                if reply is None:
                    break
                writer.write(reply)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def running(answer: Callable[[str, bytes], bytes | None], delay_s: float = 0.0) -> AsyncIterator[Server]:
    server = Server(answer, delay_s=delay_s)
    server.may_answer.set()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server
    server.may_answer.set()
    listening.close()
    # The generator is gone, so that all of them end.
    await asyncio.gather(*server.serving)


def reply(body: bytes, status: int = 200) -> bytes:
    # Spelled as some proxies do.
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def decided(_path: str, body: bytes) -> bytes:
    number = json.loads(body)["decision_id"]
    return reply(f'{{"decision_id":"{number}","token":"t-{number}","action_id":"noop"}}'.encode())


async def put(server: Server, kind: str = "decide", connections: int = 3, **settings: float) -> LoadReport:
    host, port = address_of(server.url)
    dialect = MemconDialect(server.url, table="bench", keys=KEYS, token="secret")
    load = Load(
        targets=(Target(host=host, port=port, dialect=dialect),), kind=kind, connections=connections,
        seconds=settings.pop("seconds", 0.2), warmup_s=0.05, **settings,  # type: ignore[arg-type] # all numbers
    )  # fmt: skip
    return await asyncio.to_thread(run_load, load)


@pytest.mark.usefixtures("counted")
async def test_a_closed_loop_asks_each_decision_once_and_counts_what_was_answered() -> None:
    async with running(decided) as server:
        report = await put(server)
    ids = Counter(message["decision_id"] for _, message in server.asked)
    assert set(ids.values()) == {1}
    # All that was asked was answered; the warm-up is not counted.
    assert 0 < report.jobs < len(server.asked)
    assert report.jobs_per_s == report.decisions_per_s == pytest.approx(report.jobs / 0.2)
    assert report.errors == {}
    assert 0 < report.latency_ms[50.0] <= report.latency_ms[99.9]
    assert report.late_ms is None
    used = {str(message["keys"]) for _, message in server.asked}
    assert used == {str([key]) for key in KEYS}


@pytest.mark.usefixtures("counted")
async def test_a_pair_tells_the_outcome_with_the_token_of_its_own_decide() -> None:
    async with running(lambda path, body: decided(path, body) if path == "/v1/decide" else reply(b"{}")) as server:
        report = await put(server, "pair", connections=1)
    told = [message for path, message in server.asked if path == "/v1/outcome"]
    assert report.jobs > 0
    assert [path for path, _ in server.asked[:4]] == ["/v1/decide", "/v1/outcome"] * 2
    assert all(message["token"] == f"t-{message['decision_id']}" for message in told)
    assert all(-0.5 <= message["reward"] <= 1.3 for message in told)  # type: ignore[operator] # JSON


def each(body: bytes) -> list[str]:
    """The answer to each decide of a batch."""
    return [f'{{"decision_id":"{asked["decision_id"]}","token":"t"}}' for asked in json.loads(body)["decides"]]


def replies(items: list[str]) -> bytes:
    return reply(f'{{"replies":[{",".join(items)}]}}'.encode())


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("connections", [1, 3])
async def test_a_batch_is_one_job_of_many_decisions_and_each_is_asked_once(connections: int) -> None:
    async with running(lambda _path, body: replies(each(body))) as server:
        report = await put(server, "batch", connections, batch_size=5)
    batches = [message["decides"] for _, message in server.asked]
    assert all(isinstance(decides, list) and len(decides) == 5 for decides in batches)
    ids = Counter(decide["decision_id"] for decides in batches for decide in decides)  # type: ignore[attr-defined]
    assert set(ids.values()) == {1}
    assert report.errors == {}
    assert report.jobs > 0
    assert report.decisions_per_s == pytest.approx(5 * report.jobs_per_s)


@pytest.mark.usefixtures("counted")
async def test_batches_that_were_not_built_before_are_built_when_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_PREPARED_BYTES", 5000)
    async with running(lambda _path, body: replies(each(body))) as server:
        report = await put(server, "batch", batch_size=5)
    numbers = sorted(int(message["decides"][0]["decision_id"], 16) for _, message in server.asked)  # type: ignore[index]
    assert len(numbers) > 10
    assert numbers == list(range(0, 5 * len(numbers), 5))
    assert report.errors == {}


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda items: [],
        lambda items: items[1:],
        lambda items: [items[0], *items[:-1]],
        lambda items: [*items[:-1], '{"error":"moved"}'],
    ],
    ids=["nothing", "one is missing", "one twice", "one refused"],
)
async def test_a_batch_in_which_one_decision_is_not_answered_is_an_error(
    spoil: Callable[[list[str]], list[str]],
) -> None:
    async with running(lambda _path, body: replies(spoil(each(body)))) as server:
        report = await put(server, "batch", batch_size=5)
    assert report.jobs == 0
    assert set(report.errors) == {"refused item"}


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("connections", [1, 2])
async def test_errors_are_counted_by_their_kind_and_a_closed_connection_is_opened_again(connections: int) -> None:
    answers = [reply(b"{}"), reply(b"{}", 503), None]
    async with running(lambda _path, body: answers[int(json.loads(body)["decision_id"], 16) % 3]) as server:
        report = await put(server, connections=connections)
    assert report.jobs > 0
    assert report.errors["status 503"] > 1
    assert report.errors["closed"] > 1
    assert set(report.errors) <= {"status 503", "closed"}


async def test_an_answer_without_a_length_is_an_error_not_a_hang() -> None:
    async with running(
        lambda _path, _body: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ) as server:
        report = await put(server, connections=1)
    assert report.jobs == 0
    assert set(report.errors) == {"no content-length"}


async def test_an_open_loop_counts_from_when_a_job_was_meant_to_begin() -> None:
    # One connection, 20 ms a reply, 200 jobs a second: the queue grows by 150 jobs a second.
    async with running(decided, delay_s=0.02) as server:
        closed = await put(server, connections=1)
        stalled = await put(server, connections=1, seconds=0.4, rate=200.0)
    assert closed.latency_ms[50.0] < 100
    # The last of 80 jobs waits for 60 others, 20 ms each; a generator that waits for replies would see 20 ms.
    assert stalled.latency_ms[99.0] > 500
    assert stalled.errors == {}
    assert stalled.jobs > 40


async def test_an_open_loop_asks_at_its_rate_whatever_the_server_does() -> None:
    async with running(decided) as server:
        report = await put(server, connections=8, seconds=1.0, rate=300.0)
    # A Poisson process: five standard deviations.
    assert abs(report.jobs - 300) < 5 * 300**0.5
    assert report.late_ms is not None


async def test_one_connection_whose_answer_never_comes_is_told_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_single, "GRACE_S", 1.0)
    async with running(decided) as server:
        server.may_answer.clear()
        report = await put(server, connections=1)
    assert report.jobs == 0
    assert report.errors == {"unanswered": 1}


@pytest.mark.usefixtures("counted")
async def test_a_server_that_goes_away_for_good_ends_one_connection() -> None:
    answered = reply(b"{}")

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answered)
        await writer.drain()
        listening.close()
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    report = await put(Server(decided, url=url), connections=1, seconds=0.5)
    assert report.errors == {"closed": 1, "refused": 1}


async def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    async with running(decided) as server:
        url = server.url
    gone = Server(decided, url=url)
    for connections in (1, 3):
        with pytest.raises(UnavailableError, match=r"no connection to http://127\.0\.0\.1"):
            await put(gone, connections=connections)


def test_an_address_that_is_none_is_refused() -> None:
    for url in ("127.0.0.1:80", "https://127.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:port"):
        with pytest.raises(ConfigError, match="such as http://127"):
            address_of(url)


def test_the_peer_is_told_the_arm_that_it_gave() -> None:
    dialect = PeerDialect("http://127.0.0.1:1", contexts=20)
    for number in range(100):
        asked = json.loads(dialect.decide(number).partition(b"\r\n\r\n")[2])
        told = json.loads(dialect.outcome(number, b'{"arm":"forget"}').partition(b"\r\n\r\n")[2])
        assert told["arm"] == "forget"
        assert told["context"] == asked["context"]
    with pytest.raises(ConfigError, match="takes none"):
        dialect.batch(0, 64)
    assert not dialect.is_whole(b"{}", 0, 64)

"""The fast path beyond single scenarios: any cut, every byte, slow clients, the server's end, load, what is left."""

import asyncio
import gc
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.proxy.direct_exchange import DirectExchange
from gaugeway.runtime.serving import Listener, _config, _Server
from gaugeway.runtime.tasks import spawn
from tests.gateway.proxy.test_fast_path import (
    ANSWER,
    BODY,
    CHUNKS,
    LAST,
    LOOPS,
    MODES,
    OK,
    RESPONSES,
    SOON_S,
    STREAM,
    Case,
    Upstream,
    benched,
    compare,
    headed,
    post,
    read_answers,
    run,
    sending,
)

pytestmark = pytest.mark.full

MIB = 1024 * 1024
WHOLE = {name: b"".join(steps) for name, steps in RESPONSES.items() if all(isinstance(step, bytes) for step in steps)}


def cut(data, positions):
    """Cut bytes at these positions (taken modulo their length)."""
    marks = sorted({position % (len(data) + 1) for position in positions})
    pieces = [data[start:end] for start, end in zip([0, *marks], [*marks, len(data)], strict=True)]
    return [piece for piece in pieces if piece]


# --- any cut ---


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(name for name, wire in WHOLE.items() if len(wire) < 10_000)),
    st.lists(st.integers(0, 2000), max_size=6),
    st.lists(st.integers(0, 2000), max_size=3),
    st.sampled_from([None, None, "close", "reset"]),
    st.integers(0, 2000),
)
def test_however_bytes_are_cut_both_ways_show_the_same(name, positions, asked_positions, end, length):
    wire = WHOLE[name]
    steps = cut(wire if end is None else wire[: length % len(wire)], positions)
    if end == "reset":
        steps = [*steps, 0.02]  # what came before a reset may get lost with it
    case = Case([[*steps, *([end] if end else [])]], sending(*cut(post(), asked_positions)))
    compare("uvloop", case)


async def with_every_byte(mode, where):
    """What the upstream was asked and the client was told, for each byte in that place."""
    met = []
    async with benched(mode, read_timeout_s=1) as bench:
        for byte in range(256):
            odd = bytes([byte])
            asked = post().replace(b"completions ", b"completions?a%bb " % odd, 1) if where == "query" else post()
            answer = headed({"query": b"X-A: a", "value": b"X-A: a%bb" % odd, "name": b"X%bA: a" % odd}[where])
            bench.upstream.scripts[:] = [[answer]]
            wire = await bench.connect()
            await wire.send(asked)
            await wire.answers()
            wire.hang_up()
            answers = [answer._replace(headers=answer.headers[:1]) for answer in read_answers(wire.raw)]
            met.append((byte, answers, [bytes(raw[:40]) for raw in bench.upstream.raw if raw]))
            for raw in bench.upstream.raw:
                raw.clear()
            if not bench.idle:
                await bench.warm()
                bench.upstream.raw[-1].clear()
        assert mode == "asgi" or len(bench.recordings) - bench.asgi_calls > 80
    return met


@pytest.mark.parametrize("where", ["query", "value", "name"])
def test_every_byte_there_is_is_met_the_same(where):
    by_asgi, short = (run("uvloop", lambda mode=mode: with_every_byte(mode, where)) for mode in MODES)
    assert short == by_asgi


# --- a slow client ---


class Flood(Upstream):
    """Answers with 20 MiB as fast as they are taken; `written` tells how far it is."""

    size = 20 * MIB
    written = 0

    async def answer(self, body, reader, writer):
        if body == BODY:  # the warm-up's
            await super().answer(body, reader, writer)
            return
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % self.size)
        for _ in range(self.size // 65536):
            writer.write(b"x" * 65536)
            await writer.drain()
            self.written += 65536


async def read_slowly(mode):
    flood = Flood()
    async with benched(mode, upstream=flood, content_bytes=MIB, read_timeout_s=0.3) as bench:
        wire = await bench.connect(limit=65536)
        await wire.send(post(b"{}"))
        head = await wire.reader.readuntil(b"\r\n\r\n")
        await wire.reader.readexactly(MIB)
        wire.writer.transport.pause_reading()
        await asyncio.sleep(0.8)  # longer than the upstream may be quiet
        held = max(connection.transport.get_write_buffer_size() for connection in bench.state.connections)
        paused_at = flood.written
        wire.writer.transport.resume_reading()
        left = flood.size - MIB
        while left:
            left -= len(await wire.reader.readexactly(min(left, 65536)))
        await bench.until(lambda: len(bench.recordings) == 2)
        assert held < 2 * MIB, held
        assert paused_at < flood.size, "the upstream was never paused"
        wire.hang_up()
        return bench.recordings[1], head.split(b"\r\n")[0]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_reads_slowly_pauses_the_upstream_and_gets_everything(loop):
    by_asgi, short = (run(loop, lambda mode=mode: read_slowly(mode)) for mode in MODES)
    assert short == by_asgi


# --- a request that goes out twice, and the server's end ---


def test_what_is_sent_again_is_the_same_to_the_byte_and_belongs_to_the_same_trace():
    async def scenario(mode):
        async with benched(mode, [["close"]], spans=True) as bench:
            bench.upstream.raw[0].clear()
            wire = await bench.connect()
            await wire.send(post(BODY, "Idempotency-Key: k"))
            await wire.answers()
            first, second = bench.upstream.raw
            assert b"traceparent" in first
            assert first == second
            wire.hang_up()

    for mode in MODES:
        run("uvloop", lambda mode=mode: scenario(mode))


def connecting_takes(seconds, bench):
    connect = bench.pool.connect

    async def slowly(origin):
        await asyncio.sleep(seconds)
        return await connect(origin)

    bench.pool.connect = slowly


def test_a_client_that_leaves_before_its_request_is_sent_again_ends_it():
    async def scenario(mode):
        gc.collect()  # of other tests
        async with benched(mode, [["close"]]) as bench:
            connecting_takes(0.1, bench)
            wire = await bench.connect()
            await wire.send(post(BODY, "Idempotency-Key: k"))
            await bench.upstream.ended[0].wait()
            await asyncio.sleep(0.05)
            wire.hang_up()
            await asyncio.sleep(0.15)
            assert len(bench.upstream.raw) == 1
            assert not bench.pool._open
            assert alive(DirectExchange) == []  # nor does it wait for the collector
            return bench.recordings[1:]

    by_asgi, short = (run("uvloop", lambda mode=mode: scenario(mode)) for mode in MODES)
    assert short == by_asgi
    assert short[0]["end"] == ("client_cancelled", None)


def test_connecting_anew_does_not_count_as_the_upstreams_silence():
    async def scenario(mode):
        async with benched(mode, [["close"]], read_timeout_s=0.1) as bench:
            connecting_takes(0.25, bench)
            wire = await bench.connect()
            await wire.send(post(BODY, "Idempotency-Key: k"))
            await wire.answers()
            wire.hang_up()
            assert read_answers(wire.raw)[0].status == b"HTTP/1.1 200 OK"

    for mode in MODES:
        run("uvloop", lambda mode=mode: scenario(mode))


@pytest.mark.parametrize("script", [["hang"], [STREAM, CHUNKS[0], "hang"]], ids=["before the head", "in the stream"])
def test_a_client_that_leaves_with_a_second_request_waiting_ends_the_first(script):
    """The ASGI path notices only when it writes."""

    async def scenario():
        async with benched("fast", [script]) as bench:
            wire = await bench.connect()
            await wire.send(post() + post())
            await bench.upstream.asked.wait()
            await asyncio.sleep(0.03)
            wire.hang_up()
            async with asyncio.timeout(SOON_S):
                await bench.upstream.ended[0].wait()
            assert [recording["end"] for recording in bench.recordings[1:]] == [("client_cancelled", None)]
            assert bytes(bench.upstream.raw[0]).count(b"POST") == 2  # the first was the warm-up's

    run("uvloop", scenario)


async def drained(mode, script, part):
    """Stop the server itself, with a client that is still owed something."""
    async with benched(mode, [script]) as bench:
        server = _Server(_config(Listener(bench.app, "127.0.0.1", 0, protocol=bench.gateway.protocol), drain_s=1))
        serving = spawn(server.serve(), name="server under test")
        await bench.until(lambda: server.started)
        bench.port = server.servers[0].sockets[0].getsockname()[1]
        wire = await bench.connect()
        calls = bench.asgi_calls
        await wire.send(post()[:part])
        await (asyncio.sleep(0.05) if part else bench.upstream.asked.wait())
        server.stop()
        await wire.answers()
        await serving
        await bench.gateway.handoff.aclose()
        assert bench.asgi_calls == calls + (mode == "asgi")
        wire.hang_up()
        (answer,) = read_answers(wire.raw)
        return answer.status, answer.body, answer.ended, bench.recordings[1:], bench.counters()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("script", "part"),
    [
        ([0.2, ANSWER], None),
        ([0.2, STREAM, *CHUNKS, 0.2, LAST], None),
        (["hang"], None),
        ([STREAM, CHUNKS[0], "hang"], None),
        ([ANSWER], -5),
    ],
    ids=["answered in time", "streamed in time", "no answer", "a stream without an end", "a body without an end"],
)
def test_the_server_ends_with_every_request_finished_or_counted(loop, script, part):
    by_asgi, short = (run(loop, lambda mode=mode: drained(mode, script, part)) for mode in MODES)
    assert short == by_asgi
    assert len(short[3]) == 1


# --- load ---


class Echo(Upstream):
    """Answers with the request's nonce: whole, in chunks, after a while, or not at all but by closing."""

    chance = random.Random(7)

    async def answer(self, body, reader, writer):
        if body == BODY:  # the warm-up's
            await super().answer(body, reader, writer)
            return
        nonce, kind = body[10:26], self.chance.random()
        if kind < 0.02:
            writer.close()  # stale, as far as the gateway can tell
        elif kind < 0.5:
            writer.write(headed(body=nonce * 3))
        else:
            writer.write(STREAM)
            for _ in range(4):
                await asyncio.sleep(self.chance.random() * 0.004)
                writer.write(b"10\r\n%b\r\n" % nonce)
                await writer.drain()
            writer.write(LAST if kind < 0.97 else b"")
            if kind > 0.97:
                writer.close()
        await writer.drain()


class Visitor:
    """A client that asks, and sometimes leaves at any moment."""

    def __init__(self, bench, chance):
        self.bench, self.chance = bench, chance
        self.asked = self.left = 0
        self.foreign = []

    async def visit(self, requests):
        wire = await self.bench.connect()
        for _ in range(requests):
            nonce = b"%016x" % self.chance.getrandbits(64)
            pad = b"p" * self.chance.randrange(3000)
            request = post(b'{"nonce":"%b","pad":"%b"}' % (nonce, pad))
            self.asked += 1
            if self.chance.random() < 0.25:
                await self._leave(wire, request)
                wire = await self.bench.connect()
                continue
            wire.raw = b""
            await wire.send(request)
            await wire.answers()
            self._check(wire.raw, nonce)
            if wire.closed:
                wire.hang_up()
                wire = await self.bench.connect()
        wire.hang_up()

    async def _leave(self, wire, request):
        self.left += 1
        head = request.index(b"\r\n\r\n") + 4
        await wire.send(request[: self.chance.choice([head, head + 10, len(request), len(request), len(request)])])
        await asyncio.sleep(self.chance.random() * 0.012)
        wire.hang_up()

    def _check(self, raw, nonce):
        for answer in read_answers(raw):
            if answer.status.endswith(b"200 OK") and answer.body.replace(nonce, b""):
                self.foreign.append((nonce, answer))


def alive(kind):
    return [one for one in gc.get_objects() if isinstance(one, kind)]


@pytest.mark.parametrize("loop", LOOPS)
def test_under_load_with_clients_that_leave_nothing_is_mixed_up_lost_or_left_over(loop):
    async def scenario():
        gc.collect()  # of other tests
        echo = Echo()
        async with benched("fast", upstream=echo) as bench:
            chance, tasks = random.Random(11), asyncio.all_tasks()
            visitors = [Visitor(bench, chance) for _ in range(20)]
            await asyncio.gather(*(visitor.visit(100) for visitor in visitors))
            asked = sum(visitor.asked for visitor in visitors)
            assert asked == 2000
            assert sum(visitor.left for visitor in visitors) > 300
            await bench.until(lambda: bench.counted() >= asked + 1)
            await asyncio.sleep(0.1)
            assert [visitor.foreign for visitor in visitors if visitor.foreign] == []
            assert bench.counted() == len(bench.recordings) == asked + 1
            assert bench.asgi_calls == 0
            assert len(bench.pool._open) == bench.idle == sum(not ended.is_set() for ended in echo.ended)
            assert (len(bench.state.tasks), len(bench.state.connections)) == (0, 0)
            gc.collect()  # tracebacks of failed attempts, which are kept until then
            assert alive(DirectExchange) == []
            await bench.until(bench.all_have_an_outcome)
            await bench.until(lambda: not asyncio.all_tasks() - tasks - echo.tasks)

    run(loop, scenario)


def test_a_request_leaves_no_garbage_and_an_idle_connection_keeps_nothing_of_it():
    async def scenario():
        async with benched("fast", content_bytes=10) as bench:
            wire = await bench.connect()
            size = 0
            gc.collect()
            gc.disable()
            try:
                for _ in range(1000):
                    wire.writer.write(post())
                    if not size:
                        await wire.answers()
                        size = len(wire.raw)
                    else:
                        await wire.reader.readexactly(size)
                await asyncio.sleep(0.2)
                assert bench.asgi_calls == 0
                assert alive(DirectExchange) == []  # though the client's connection is open, and nothing was collected
                assert gc.collect() < 100
            finally:
                gc.enable()
            wire.hang_up()

    run("uvloop", scenario)

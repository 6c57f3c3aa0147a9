"""Requests sent ahead on one connection, and malformed bytes behind them: answered in turn, the same on both paths."""

import asyncio
import contextlib
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config import Limits
from gaugeway.runtime.http_bounds import MAX_HEAD_BYTES
from gaugeway.runtime.http_protocol import ServerProtocol
from tests.gateway.proxy.test_fast_path import (
    ANSWER,
    CHUNKS,
    EVENTS,
    IN_CHUNKS,
    LAST,
    LOOPS,
    MODES,
    STREAM,
    Access,
    Case,
    benched,
    compare,
    hanging_up,
    post,
    read_answers,
    run,
    sending,
)
from tests.gateway.proxy.test_fast_path_access import PRICES, USAGE
from tests.gateway.proxy.test_fast_path_properties import cut

pytestmark = pytest.mark.full

JUNK = b"junk\r\n\r\n"
REFUSAL = (
    b'{"error":{"message":"This is not a valid HTTP request: the connection is closed.","type":"invalid_request_error",'
    b'"param":null,"code":"invalid_request"}}'
)
SLOW = [0.05, ANSWER]
PAUSED = [STREAM, CHUNKS[0], 0.05, *CHUNKS[1:], LAST]
BAD_CHUNK = IN_CHUNKS[: IN_CHUNKS.index(b"\r\n\r\n") + 4] + b"zz\r\nabc"
HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)

# What the upstream does, what the client sends, and the statuses of the answers.
MALFORMED = {
    "behind a request": ([SLOW], [post() + JUNK], [200, 400]),
    "behind a request, later": ([SLOW], [post(), JUNK], [200, 400]),
    "behind a request, and more of it": ([SLOW], [post() + JUNK, post(), JUNK * 9], [200, 400]),
    "behind a stream": ([PAUSED], [post() + JUNK], [200, 400]),
    "behind two requests": ([SLOW, PAUSED], [post() + post() + JUNK], [200, 200, 400]),
    "behind a refused request": ([], [post(b"") + JUNK], [400, 400]),
    "a TLS hello behind a request": ([SLOW], [post() + b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], [200, 400]),
    "two lengths behind a request": ([SLOW], [post() + post(b"{}", "Content-Length: 9")], [200, 400]),
    "the body of the second": ([SLOW], [post() + BAD_CHUNK], [200, 400]),
    "the body of the third": ([SLOW, SLOW], [post() + post() + BAD_CHUNK], [200, 200, 400]),
    "a handshake behind a request": ([SLOW], [post() + HANDSHAKE], [200, 400]),
    "a handshake behind a stream": ([PAUSED], [post() + HANDSHAKE], [200, 400]),
    "alone": ([], [JUNK], [400]),
    "the body of the only one": ([], [BAD_CHUNK], [400]),
    "behind an answered request": ([[ANSWER]], [post(), 0.1, JUNK], [200, 400]),
}


def statuses(answers):
    return [int(answer.status[9:12]) for answer in answers]


def invalid(bench, reason):
    return bench.gateway.registry.get_sample_value("gaugeway_invalid_requests_total", {"reason": reason})


async def send(wire, pieces):
    for piece in pieces:
        await (asyncio.sleep(piece) if isinstance(piece, float) else wire.send(piece))


@pytest.mark.parametrize("warm", [0, 1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_bytes_are_refused_after_the_answers_to_what_came_before(case, mode, warm):
    scripts, pieces, expected = MALFORMED[case]

    async def main():
        async with benched(mode, scripts, warm=warm) as bench:
            wire = await bench.connect()
            await send(wire, pieces)
            await wire.receive(lambda raw: False)
            assert wire.closed
            wire.hang_up()
            answers = read_answers(wire.raw)
            assert statuses(answers) == expected
            assert all(answer.ended for answer in answers)
            assert answers[-1].body == REFUSAL
            assert answers[-1].headers == (
                b"content-type: application/json",
                b"connection: close",
                b"content-length: %d" % len(REFUSAL),
            )
            assert invalid(bench, "malformed") == 1
            await bench.until(lambda: not bench.state.connections and not bench.state.tasks)
            ends = [recording["end"][0] for recording in bench.recordings[warm:]]
            assert ends.count("complete") == expected.count(200)

    run("uvloop", main)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "pieces",
    [[post() * 2], [post(), 0.05, post()], [post() * 4], [post(), 0.05, post() * 9], [post() + JUNK]],
    ids=["two", "later", "four", "nine later", "junk"],
)
@pytest.mark.parametrize("script", [["hang"], [STREAM, *CHUNKS, "hang"]], ids=["before the answer", "in the stream"])
@pytest.mark.parametrize("path", [("asgi", 1), ("fast", 0), ("fast", 1)], ids=["asgi", "by fall-back", "fast"])
def test_a_client_that_sends_ahead_and_leaves_is_counted_as_such(path, script, pieces, loop, caplog):
    mode, warm = path

    async def main():
        async with benched(mode, [script], warm=warm) as bench:
            wire = await bench.connect()
            await send(wire, pieces)
            await bench.upstream.asked.wait()
            if script != ["hang"]:
                await wire.receive(lambda raw: EVENTS[-1] in raw)
            await asyncio.sleep(0.03)
            wire.hang_up()
            async with asyncio.timeout(60):
                await bench.upstream.ended[0].wait()
            await bench.until(lambda: not bench.state.connections and not bench.state.tasks)
            assert [recording["end"] for recording in bench.recordings[warm:]] == [("client_cancelled", None)]
            assert not bench.pool._open

    run(loop, main)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


# What is behind the first request, the settings, and the status of the refusal that is its answer.
UNFINISHED = {
    "a head that does not go on": (b"POST /v1", {}, 408),
    "a head without an end": (b"POST / HTTP/1.1\r\nx-a: " + b"1" * MAX_HEAD_BYTES, {}, 431),
    "a body that does not go on": (post()[:-9], {"client_timeout_s": 0.1}, 408),
    "a third body that does not go on": (post() + post()[:-9], {"client_timeout_s": 0.1}, 408),
}


@pytest.mark.parametrize("warm", [0, 1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", UNFINISHED)
def test_a_request_that_does_not_come_whole_spoils_no_answer_before_it(case, mode, warm, monkeypatch):
    monkeypatch.setattr(ServerProtocol, "head_s", 0.1)
    behind, settings, status = UNFINISHED[case]
    before = 1 + behind.count(b"messages") - bool(settings)

    async def main():
        script = [STREAM, CHUNKS[0], 0.4, *CHUNKS[1:], LAST]
        async with benched(mode, [script] * before, warm=warm, **settings) as bench:
            wire = await bench.connect()
            await wire.send(post() + behind)
            await wire.receive(lambda raw: False)
            wire.hang_up()
            answers = read_answers(wire.raw)
            assert statuses(answers) == [200] * before + [status]
            assert all(answer.ended for answer in answers)
            await bench.until(lambda: not bench.state.connections and not bench.state.tasks)
            assert [recording["end"] for recording in bench.recordings[warm:]] == [("complete", None)] * before

    run("uvloop", main)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 3),
    st.binary(max_size=60),
    st.lists(st.integers(0, 1000), max_size=5),
    st.sampled_from([[ANSWER], SLOW, PAUSED]),
)
def test_however_the_bytes_are_cut_every_valid_request_is_answered_first(count, junk, positions, script):
    pieces = cut(post() * count + b"\0" + junk, positions)

    async def scenario(mode):
        async with benched(mode, [script] * count) as bench:
            wire = await bench.connect()
            with contextlib.suppress(ConnectionError):  # it is closed for the junk that came before
                await wire.send(*pieces)
            await wire.receive(lambda raw: False)
            wire.hang_up()
            await bench.until(lambda: not bench.state.connections and not bench.state.tasks)
            assert invalid(bench, "malformed") == 1
            return statuses(read_answers(wire.raw)), [recording["end"] for recording in bench.recordings[1:]]

    for mode in MODES:
        answers, ends = run("uvloop", lambda mode=mode: scenario(mode))
        assert answers[:count] == [200] * count
        assert answers[count:] in ([400], [])  # the bytes behind the refusal may reset the connection under it
        assert ends == [("complete", None)] * count


LIMITED = Access({"limits": Limits(tokens_per_min=900), "prices": PRICES}, headers=("x-gaugeway-app: warm",))
ALIKE = {
    "junk behind": Case([[0.05, USAGE]], sending(post() + JUNK, answers=2), settings={"access": LIMITED}),
    "junk behind, by ASGI": Case(
        [[0.05, USAGE]], sending(post() + JUNK, answers=2), settings={"access": LIMITED, "warm": 0}
    ),
    "junk behind a stream": Case([PAUSED], sending(post() + JUNK, answers=2), settings={"access": LIMITED}),
    "leaves with another behind, by ASGI": Case([["hang"]], hanging_up(post() + post()), settings={"warm": 0}),
    "leaves with junk behind": Case([["hang"]], hanging_up(post() + JUNK + post())),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", ALIKE)
def test_both_paths_answer_record_and_charge_the_same(case, loop):
    compare(loop, ALIKE[case])


@pytest.mark.parametrize("mode", MODES)
def test_what_was_sent_before_malformed_bytes_is_charged(mode):
    async def main():
        async with benched(mode, [[0.05, USAGE]], access=LIMITED) as bench:
            wire = await bench.connect()
            await wire.send(post() + JUNK)
            await wire.receive(lambda raw: False)
            wire.hang_up()
            await bench.until(lambda: bench.counted() == 2)
            after = await bench.connect()
            await after.send(post())
            await after.answers()
            assert statuses(read_answers(after.raw)) == [429]  # USAGE has 1000 tokens
            after.hang_up()

    run("uvloop", main)

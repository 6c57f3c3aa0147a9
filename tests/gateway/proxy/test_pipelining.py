"""Requests sent ahead on one connection, and malformed bytes behind them: answered in turn, the same on both paths."""

import asyncio
import logging

import pytest

from gateway.config import Limits
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
                b"content-length: %d" % len(REFUSAL),
                b"connection: close",
            )
            assert invalid(bench, "malformed") == 1
            await bench.until(lambda: not bench.state.connections and not bench.state.tasks)
            ends = [recording["end"][0] for recording in bench.recordings[warm:]]
            assert ends.count("complete") == expected.count(200)

    run("uvloop", main)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("pieces", [[post() + post()], [post(), post()], [post() + JUNK]], ids=["two", "later", "junk"])
@pytest.mark.parametrize("script", [["hang"], [STREAM, *CHUNKS, "hang"]], ids=["before the answer", "in the stream"])
@pytest.mark.parametrize("path", [("asgi", 1), ("fast", 0), ("fast", 1)], ids=["asgi", "by fall-back", "fast"])
def test_a_client_that_sends_ahead_and_leaves_is_counted_as_such(path, script, pieces, loop, caplog):
    mode, warm = path

    async def main():
        async with benched(mode, [script], warm=warm) as bench:
            wire = await bench.connect()
            await wire.send(*pieces)
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


LIMITED = Access({"limits": Limits(tokens_per_min=900), "prices": PRICES}, headers=("x-gaugeway-app: warm",))
ALIKE = {
    "junk behind": Case([[0.05, USAGE]], sending(post() + JUNK, answers=2), settings={"access": LIMITED}),
    "junk behind, by ASGI": Case(
        [[0.05, USAGE]], sending(post() + JUNK, answers=2), short=0, settings={"access": LIMITED, "warm": 0}
    ),
    "junk behind a stream": Case([PAUSED], sending(post() + JUNK, answers=2), settings={"access": LIMITED}),
    "leaves with another behind, by ASGI": Case([["hang"]], hanging_up(post() + post()), short=0, settings={"warm": 0}),
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

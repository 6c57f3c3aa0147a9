"""The router on real sockets: raw upstreams behind our own client, with clock, chance and sleep in the test's hand."""

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from pathlib import Path

import pytest

from gateway import config
from gateway.config import Routing
from gateway.config import Upstream as Settings
from gateway.http.errors import Rejection, body_of
from gateway.upstreams import UpstreamError
from gateway.upstreams import router as upstreams
from gateway.upstreams.httpx import HttpxUpstream
from gateway.upstreams.policy import Route, choose
from gateway.upstreams.pool import NativeUpstream
from gateway.upstreams.router import HELD_BYTES, ClientSettings, Outgoing, RoutedError, Router
from gaugeway.runtime.tasks import spawn
from gaugeway.settings import ConfigError
from tests.support.running import header_lines, read_request, tcp_server, toml

BODY = b'{ "model":  "gpt-4o", "messages": [{"role": "user", "content": "\xc3\xa9 \\"model\\": 1.50"}] }'


def reply(status="200 OK", body=b"{}", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


OK = reply()
BUSY = reply("503 Service Unavailable", b"busy")
LIMITED = reply("429 Too Many Requests", b"slow down")


class Scripted:
    """An upstream of raw bytes: answers with the next reply, and with the last one from then on."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self.connections = 0
        self.closed = 0

    async def __call__(self, reader, writer):
        self.connections += 1
        try:
            while True:
                self.requests.append(await read_request(reader))
                step = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                if callable(step):
                    await step(reader, writer)
                else:
                    writer.write(step)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed += 1
            writer.close()

    @property
    def asked(self):
        return len(self.requests)


class Hand:
    """The test's hand on time and chance, and what the observer heard."""

    def __init__(self, seed=1):
        self.now = 0.0
        self.waits = []
        self.states = []
        self.errors = []
        self.chance = random.Random(seed).random
        self.during = None
        """What the next wait is instead, once."""

    async def sleep(self, seconds):
        if self.during is not None:
            during, self.during = self.during, None
            await during()
            return
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def state(self, upstream, value):
        self.states.append((upstream, value))

    def error(self, upstream, kind):
        self.errors.append((upstream, kind))


def refused():
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run(scenario, *upstreams_and_settings, hand=None, adapter=None, **routing):
    """Run `scenario(router, hand, *upstreams)`; each upstream is (Scripted or a port, settings)."""
    hand = hand or Hand()

    async def main():
        async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
            tables, servers = [], []
            for server, settings in upstreams_and_settings:
                port = server if isinstance(server, int) else await stack.enter_async_context(tcp_server(server))
                tables.append(Settings(base_url=f"http://127.0.0.1:{port}/v1", **settings))
                servers.append(server)
            router = Router(
                tables,
                Routing(**routing),
                client=lambda _: (adapter or NativeUpstream)(read_timeout_s=5.0),
                observer=hand,
                clock=lambda: hand.now,
                wall=lambda: hand.now,
                chance=hand.chance,
                sleep=hand.sleep,
            )
            try:
                await scenario(router, hand, *servers)
            finally:
                await router.aclose()

    asyncio.run(main())


def outgoing(body=BODY, **options):
    headers = [(b"host", b"gw"), (b"content-length", b"%d" % len(body)), (b"authorization", b"Bearer client")]
    headers += options.pop("headers", [])
    settings = {"method": "POST", "raw_path": b"/v1/chat/completions", "query": b"", "model": "gpt-4o", **options}
    return Outgoing(headers=headers, body=body, **settings)


async def send(router, **options):
    """Send and read to the end: (what was routed, the body)."""
    routed = await router.send(outgoing(**options))
    body, more = b"", True
    while more:
        chunk, more = await routed.response.read()
        body += chunk
    await routed.response.aclose()
    return routed, body


async def until(condition):
    while not condition():  # noqa: ASYNC110 - a socket at the other end has no event
        await asyncio.sleep(0.002)


A, B, C = {"name": "a"}, {"name": "b", "priority": 1}, {"name": "c", "priority": 2}
PEER = {"name": "b"}


# one upstream, nothing asked for


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "429 Too Many Requests", "503 Service Unavailable"])
def test_a_single_upstreams_answer_passes_whatever_it_is(status):
    async def scenario(router, hand, upstream):
        for _ in range(20):
            routed, body = await send(router)
            assert (routed.response.status, body) == (int(status[:3]), b"as it is")
            assert (routed.upstream, routed.attempts, routed.model, routed.tags) == ("default", 1, None, {})
        assert upstream.asked == 20
        assert (hand.waits, hand.errors, hand.states) == ([], [], [("default", 1.0)])
        assert not router.reads_model
        assert not router.reads_header

    run(scenario, (Scripted(reply(status, b"as it is", "Retry-After: 1")), {}))


def test_a_single_upstream_that_is_not_there_is_an_error_with_its_name():
    async def scenario(router, hand, _):
        with pytest.raises(UpstreamError) as caught:
            await send(router)
        assert (caught.value.kind, caught.value.upstream) == ("connect", "default")

    run(scenario, (refused(), {}))


def test_the_request_is_the_clients_with_the_upstreams_host_and_key():
    async def scenario(router, hand, one, two):
        await send(router, query=b"a=%2F", headers=[(b"x-custom", b"1"), (b"x-gaugeway-upstream", b"b")])
        head, body = one.requests[0]
        assert head.startswith(b"POST /v1/chat/completions?a=%2F HTTP/1.1\r\n")
        assert body == BODY
        lines = header_lines(head)
        assert lines.pop("host").startswith("127.0.0.1:")
        assert lines == {"content-length": str(len(BODY)), "authorization": "Bearer own", "x-custom": "1"}
        assert header_lines(two.requests[0][0])["authorization"] == "Bearer client"

    run(scenario, (Scripted(BUSY), {**A, "api_key": "own"}), (Scripted(OK), B))


# retries


def test_a_failed_request_is_sent_again_on_the_same_connection_after_a_back_off():
    async def scenario(router, hand, upstream):
        routed, body = await send(router)
        assert (routed.response.status, routed.attempts, body) == (200, 4, b"{}")
        assert [sent for _, sent in upstream.requests] == [BODY] * 4
        assert upstream.connections == 1
        assert hand.waits == [0.125, 0.25, 0.5]
        assert hand.errors == [("a", "status_5xx"), ("a", "status_4xx"), ("a", "status_5xx")]

    hand = Hand()
    hand.chance = lambda: 0.5
    run(scenario, (Scripted(BUSY, LIMITED, BUSY, OK), {**A, "max_retries": 5}), hand=hand)


@pytest.mark.parametrize(
    ("header", "wait"), [("Retry-After: 7", 7.0), ("retry-after-ms: 1500", 1.5), ("Retry-After: 30", 30.0)]
)
def test_the_time_that_the_upstream_names_is_waited_for(header, wait):
    async def scenario(router, hand, upstream):
        assert (await send(router))[0].response.status == 200
        assert hand.waits == [wait]

    run(scenario, (Scripted(reply("429 Slow", b"", header), OK), {"max_retries": 2}))


def test_a_time_longer_than_allowed_is_the_clients_to_wait():
    async def scenario(router, hand, upstream):
        routed, body = await send(router)
        assert (routed.response.status, body, upstream.asked, hand.waits) == (429, b"later", 1, [])
        assert (b"Retry-After", b"31") in routed.response.headers

    run(scenario, (Scripted(reply("429 Slow", b"later", "Retry-After: 31")), {"max_retries": 3}))


def test_when_all_is_tried_the_last_response_passes_as_it_is():
    async def scenario(router, hand, upstream):
        routed, body = await send(router)
        assert (routed.response.status, routed.attempts, body) == (503, 3, b"third")
        assert (b"X-Number", b"3") in routed.response.headers
        assert hand.errors == [("default", "status_5xx"), ("default", "status_4xx")]

    replies = reply("500 No", b"first"), reply("429 No", b"second"), reply("503 No", b"third", "X-Number: 3")
    run(scenario, (Scripted(*replies), {"max_retries": 2}))


@pytest.mark.parametrize("adapter", [NativeUpstream, HttpxUpstream])
@pytest.mark.parametrize("size", [0, 10, HELD_BYTES + 500_000])
def test_the_last_response_passes_even_if_nothing_came_after_it_but_errors(size, adapter):
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    async def scenario(router, hand, one, two):
        routed, body = await send(router)
        assert (routed.response.status, routed.upstream, routed.tags) == (503, "a", {"upstream": "a"})
        assert body == content
        assert (b"X-Id", b"7") in routed.response.headers
        assert (routed.attempts, hand.errors) == (2, [("b", "connect")])

    run(scenario, (Scripted(reply("503 No", content, "X-Id: 7")), A), (refused(), B), adapter=adapter)


def test_a_response_that_is_too_large_to_hold_is_closed_when_another_comes():
    async def scenario(router, hand, one, two):
        _, body = await send(router)
        assert body == b"{}"
        await until(lambda: one.closed)

    run(scenario, (Scripted(reply("503 No", b"x" * 5_000_000)), A), (Scripted(OK), B))


def test_a_failed_response_that_never_ends_does_not_hold_up_the_next_attempt(monkeypatch):
    monkeypatch.setattr(upstreams, "HELD_S", 0.05)

    async def stall(reader, writer):
        writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 100\r\n\r\nbegin")
        await reader.read()

    async def scenario(router, hand, one, two):
        async with asyncio.timeout(60):  # the upstream would never end its response
            routed, _ = await send(router)
        assert (routed.upstream, hand.errors) == ("b", [("a", "status_5xx")])
        await until(lambda: one.closed)

    run(scenario, (Scripted(stall), A), (Scripted(OK), B))


def test_statuses_that_are_not_listed_are_not_tried_again():
    async def scenario(router, hand, one, two):
        assert (await send(router))[0].response.status == 400
        assert (await send(router))[0].response.status == 501
        assert two.asked == 0

    run(scenario, (Scripted(reply("400 Bad Request"), reply("501 No")), {**A, "max_retries": 3}), (Scripted(OK), B))


def test_a_streamed_body_is_never_sent_twice():
    async def chunks():
        yield BODY

    async def scenario(router, hand, one, two):
        for _ in range(2):
            routed = await router.send(
                Outgoing(
                    method="POST",
                    raw_path=b"/v1/chat/completions",
                    query=b"",
                    headers=[(b"transfer-encoding", b"chunked")],
                    body=chunks(),
                    model="gpt-4o",
                )
            )
            assert (routed.response.status, routed.attempts) == (503, 1)
            await routed.response.aclose()
        assert (one.asked, two.asked, hand.waits) == (2, 0, [])

    run(scenario, (Scripted(BUSY), {**A, "max_retries": 3}), (Scripted(OK), B))


def test_nothing_is_tried_again_once_a_response_has_begun():
    async def die(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")
        await writer.drain()
        raise ConnectionError

    async def scenario(router, hand, one, two):
        routed = await router.send(outgoing())
        assert await routed.response.read() == (b"begin", True)
        with pytest.raises(UpstreamError):
            await routed.response.read()
        assert (one.asked, two.asked) == (1, 0)

    run(scenario, (Scripted(die), {**A, "max_retries": 3}), (Scripted(OK), B))


def test_giving_up_during_the_back_off_lets_go_of_the_response_and_of_the_probe():
    async def scenario(router, hand, one, two):
        started = asyncio.Event()

        async def forever():
            started.set()
            await asyncio.Event().wait()

        hand.during = forever
        task = spawn(router.send(outgoing()), name="client")
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: one.closed)
        assert hand.errors == [("a", "status_5xx")]
        asked = one.asked
        assert (await send(router))[0].upstream == "b"
        assert one.asked > asked

    big = Scripted(reply("503 No", b"x" * 5_000_000))
    run(scenario, (big, {**A, "max_retries": 3}), (Scripted(OK), B))


# fallback


def test_a_503_falls_back_to_the_next_priority_at_once():
    async def scenario(router, hand, one, two, three):
        routed, _ = await send(router)
        assert (routed.upstream, routed.attempts, routed.tags) == ("b", 2, {"upstream": "b"})
        assert (one.asked, two.asked, three.asked) == (1, 1, 0)
        assert (hand.waits, hand.errors) == ([], [("a", "status_5xx")])

    run(scenario, (Scripted(BUSY), A), (Scripted(OK), B), (Scripted(OK), C))


def test_a_refused_connection_falls_back():
    async def scenario(router, hand, _, two):
        routed, _ = await send(router)
        assert (routed.upstream, routed.attempts, hand.errors) == ("b", 2, [("a", "connect")])

    run(scenario, (refused(), A), (Scripted(OK), B))


def test_an_upstream_is_retried_before_the_next_one_is_asked():
    async def scenario(router, hand, one, two):
        assert (await send(router))[0].upstream == "b"
        assert (one.asked, len(hand.waits)) == (3, 2)

    run(scenario, (Scripted(BUSY), {**A, "max_retries": 2}), (Scripted(OK), B))


def test_one_that_asks_for_too_much_patience_is_left_for_the_next():
    async def scenario(router, hand, one, two):
        assert (await send(router))[0].upstream == "b"
        assert (one.asked, hand.waits) == (1, [])

    run(scenario, (Scripted(reply("429 Slow", b"", "Retry-After: 600")), {**A, "max_retries": 2}), (Scripted(OK), B))


def test_nobody_there_is_an_error_with_the_last_name():
    async def scenario(router, hand, *_):
        with pytest.raises(RoutedError) as caught:
            await send(router)
        assert (caught.value.upstream, caught.value.attempts, caught.value.kind) == ("b", 3, "connect")
        assert hand.errors == [("a", "connect")] * 2

    run(scenario, (refused(), {**A, "max_retries": 1}), (refused(), B))


def test_a_request_without_a_model_goes_to_the_first_and_stays_there():
    async def scenario(router, hand, one, two):
        for _ in range(30):
            routed, _ = await send(router, model=None, body=b"", method="GET", raw_path=b"/v1/files/f1")
            assert (routed.upstream, routed.response.status) == ("a", 503)
        assert two.asked == 0

    run(scenario, (Scripted(BUSY), A), (Scripted(OK), {"name": "b", "weight": 50}), eject_after=100)


@pytest.mark.parametrize("session", [None, "s1"])
def test_a_request_without_a_model_does_not_move_while_its_upstream_is_ejected(session):
    async def scenario(router, hand, *_):
        asked = {"model": None, "session": session, "body": b"", "method": "GET", "raw_path": b"/v1/files/f1"}
        before = (await send(router, **asked))[0].upstream
        for _ in range(40):  # by chance some go to each
            await send(router)
        assert (before, 0) in hand.states
        routed, _ = await send(router, **asked)
        assert (routed.upstream, routed.response.status) == (before, 503)
        assert (await send(router))[0].upstream != before, "a model is served elsewhere meanwhile"

    only_a = (Scripted(BUSY), A), (Scripted(OK), {**A, "name": "b"})
    run(scenario, *(only_a if session is None else sessioned(session)), eject_after=2)


def sessioned(session):
    """Two equal upstreams, of which the one of this session fails."""
    names = ("a", "b")
    chosen = choose([Route(name=name) for name in names], session=session, chance=lambda: 0.0).name
    return [(Scripted(BUSY if name == chosen else OK), {**A, "name": name}) for name in names]


# choice


def test_upstreams_are_chosen_by_the_model():
    async def scenario(router, hand, *_):
        assert router.reads_model
        assert (await send(router, model="gpt-4o"))[0].upstream == "a"
        assert (await send(router, model="llama-3"))[0].upstream == "b"
        with pytest.raises(Rejection) as caught:
            await send(router, model="claude" * 1000)
        error = json.loads(body_of(caught.value))["error"]
        assert caught.value.status == 404
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "model", "model_not_found")
        assert len(error["message"]) < 200

    run(
        scenario,
        (Scripted(OK), {**A, "models": ("gpt-*",)}),
        (Scripted(OK), {**PEER, "models": ("llama-*", "mistral-*")}),
    )


def test_a_canary_gets_its_share_and_a_session_stays():
    async def scenario(router, hand, *_):
        count = 400
        by_chance = Counter([(await send(router))[0].upstream for _ in range(count)])
        by_session = Counter([(await send(router, session=f"s{number}"))[0].upstream for number in range(count)])
        for found in (by_chance, by_session):
            assert abs(found["b"] / count - 0.2) < 4 * (0.2 * 0.8 / count) ** 0.5
        for number in range(20):
            assert len({(await send(router, session=f"s{number}"))[0].upstream for _ in range(5)}) == 1

    run(scenario, (Scripted(OK), {**A, "weight": 4}), (Scripted(OK), {**PEER, "weight": 1}))


def test_the_header_names_an_upstream_if_that_is_allowed():
    async def scenario(router, hand, one, two):
        assert router.reads_header
        assert (await send(router))[0].upstream == "a"
        routed, _ = await send(router, canary="b")
        assert (routed.upstream, routed.response.status, routed.attempts) == ("b", 503, 1)
        with pytest.raises(Rejection) as caught:
            await send(router, canary="nobody")
        assert (caught.value.status, caught.value.param) == (400, "x-gaugeway-upstream")
        with pytest.raises(Rejection) as caught:
            await send(router, canary="b", model="other")
        assert caught.value.status == 404

    canary = {"name": "b", "weight": 0, "models": ("gpt-*",)}
    run(scenario, (Scripted(OK), A), (Scripted(BUSY), canary), header=True)


def test_the_header_means_nothing_where_it_is_not_allowed():
    async def scenario(router, hand, *_):
        assert (await send(router, canary="b"))[0].upstream == "a"

    run(scenario, (Scripted(OK), A), (Scripted(OK), B))


# aliases


def test_an_alias_changes_the_models_bytes_and_the_length_and_nothing_else():
    async def scenario(router, hand, one, two):
        routed, _ = await send(router)
        assert (routed.upstream, routed.model) == ("b", None)
        head, body = one.requests[0]
        assert body == BODY.replace(b'"gpt-4o"', b'"my-own-model"')
        assert header_lines(head)["content-length"] == str(len(body))
        assert two.requests[0][1] == BODY
        routed, _ = await send(router)
        assert (routed.upstream, routed.model) == ("a", "my-own-model")

    one = {**A, "models": (), "aliases": {"gpt-4o": "my-own-model"}}
    run(scenario, (Scripted(BUSY, OK), one), (Scripted(OK), B))


def test_a_body_that_cannot_be_read_is_sent_as_it_is():
    async def scenario(router, hand, upstream):
        routed, _ = await send(router, body=b'{"model": "gpt-4o"')
        assert routed.model is None
        assert upstream.requests[0][1] == b'{"model": "gpt-4o"'

    run(scenario, (Scripted(OK), {"aliases": {"gpt-4o": "mine"}}))


# ejection


def test_an_upstream_that_fails_is_left_out_probed_by_one_and_taken_back():
    gate = asyncio.Event()

    async def slow(reader, writer):
        await gate.wait()
        writer.write(OK)

    async def scenario(router, hand, one, two):
        for _ in range(8):
            assert (await send(router))[0].upstream == "b"
        assert one.asked == 3
        assert hand.states == [("a", 1.0), ("b", 1.0), ("a", 0.0)]
        hand.now = 10.0
        probe = spawn(router.send(outgoing()), name="probe")
        await until(lambda: one.asked == 4)
        assert [(await send(router))[0].upstream for _ in range(5)] == ["b"] * 5
        assert hand.states[-1] == ("a", 0.5)
        gate.set()
        assert (await probe).upstream == "a"
        assert hand.states[-1] == ("a", 1.0)
        assert (await send(router))[0].upstream == "a"

    run(scenario, (Scripted(BUSY, BUSY, BUSY, slow, OK), A), (Scripted(OK), B), eject_after=3, eject_s=10)


def test_a_failed_probe_costs_the_client_nothing_and_doubles_the_time():
    async def scenario(router, hand, one, two):
        for _ in range(2):
            await send(router)
        for now, asked in ((9.9, 2), (10.0, 3), (29.9, 3), (30.0, 4), (69.9, 4), (70.0, 5)):
            hand.now = now
            routed, _ = await send(router)
            assert (routed.upstream, routed.response.status, one.asked) == ("b", 200, asked)

    run(scenario, (Scripted(BUSY), A), (Scripted(OK), B), eject_after=2, eject_s=10)


def test_a_4xx_never_ejects():
    async def scenario(router, hand, one, two):
        for _ in range(30):
            assert (await send(router))[0].upstream == "b"
        assert one.asked == 30
        assert hand.states == [("a", 1.0), ("b", 1.0)]

    statuses = ["401 No", "404 No", "408 No", "409 No", "429 No"]
    run(
        scenario,
        (Scripted(*[reply(status) for status in statuses * 8]), A),
        (Scripted(OK), B),
        retry_on=(401, 404, 408, 409, 429),
        eject_after=1,
    )


def test_the_last_upstream_is_never_left_out():
    async def scenario(router, hand, one, two):
        for _ in range(30):
            routed, body = await send(router)
            assert (routed.response.status, body) == (503, b"busy")
        assert one.asked == 1
        assert two.asked == 30
        assert hand.states[2:] == [("a", 0.0)]

    run(scenario, (Scripted(BUSY), A), (Scripted(BUSY), B), eject_after=1)


def test_one_that_nobody_can_stand_in_for_is_not_left_out_though_others_are_healthy():
    async def scenario(router, hand, one, two):
        for _ in range(10):
            assert (await send(router))[0].upstream == "a"
        assert hand.states == [("a", 1.0), ("b", 1.0)]

    run(scenario, (Scripted(BUSY), A), (Scripted(OK), {**B, "models": ("llama-*",)}), eject_after=1)


def test_one_left_out_for_one_model_still_serves_the_model_that_nobody_else_has():
    async def scenario(router, hand, one, two):
        assert (await send(router))[0].upstream == "b"
        assert hand.states[-1] == ("a", 0.0)
        assert (await send(router, model="own"))[0].upstream == "a"
        assert hand.states[-1] == ("a", 1.0)

    run(scenario, (Scripted(BUSY, OK), A), (Scripted(OK), {**B, "models": ("gpt-*",)}), eject_after=1)


def test_an_upstream_that_is_ejected_between_its_retries_is_not_asked_again():
    async def scenario(router, hand, one, two):
        assert (await send(router))[0].upstream == "b"
        assert (one.asked, len(hand.waits)) == (2, 1)

    run(scenario, (Scripted(BUSY), {**A, "max_retries": 9}), (Scripted(OK), B), eject_after=2)


def test_one_that_is_ejected_by_others_during_the_wait_is_not_asked_again():
    async def scenario(router, hand, one, two):
        async def meanwhile():
            await send(router)

        hand.during = meanwhile
        assert (await send(router))[0].upstream == "b"
        assert one.asked == 2

    run(scenario, (Scripted(BUSY), {**A, "max_retries": 1}), (Scripted(OK), B), eject_after=2)


def test_a_client_that_goes_away_says_nothing_about_the_upstream():
    async def hang(reader, writer):
        await reader.read()

    async def scenario(router, hand, one, two):
        for number in range(1, 4):
            task = spawn(router.send(outgoing()), name="client")
            await until(lambda: one.asked == number)  # noqa: B023 - awaited before number changes
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert hand.states == [("a", 1.0), ("b", 1.0)]

    run(scenario, (Scripted(hang), A), (Scripted(OK), B), eject_after=1)


# configuration


def test_upstreams_share_a_client_unless_they_are_reached_in_another_way():
    made = []

    class Client:
        async def aclose(self):
            made.append("closed")

    def client(way):
        made.append(way)
        return Client()

    tables = [
        Settings(base_url="http://h/v1", name=name, ca_file=ca_file, proxy=proxy)
        for name, ca_file, proxy in (
            ("a", None, None),
            ("b", "/ca.pem", None),
            ("c", None, None),
            ("d", "/ca.pem", None),
            ("e", None, "http://proxy:3128"),
        )
    ]
    asyncio.run(Router(tables, Routing(), client=client).aclose())
    ways = [
        ClientSettings(None, None),
        ClientSettings(Path("/ca.pem"), None),
        ClientSettings(None, "http://proxy:3128"),
    ]
    assert made == [*ways, *["closed"] * 3]


def test_everything_can_be_set_in_the_file(tmp_path):
    path = toml(
        tmp_path / "c.toml",
        """
[[upstreams]]
name = "main"
base_url = "https://api.openai.com/v1"
models = ["gpt-*"]
weight = 9
[[upstreams]]
name = "own"
base_url = "http://10.0.0.7:8000/v1"
aliases = {"gpt-4o" = "llama-3"}
priority = 1
max_retries = 2
[routing]
retry_on = [429, 503]
header = true
""",
    )
    loaded = config.load(path)
    assert [(one.name, one.weight, one.priority) for one in loaded.upstreams] == [("main", 9.0, 0), ("own", 1.0, 1)]
    assert loaded.upstreams[1].aliases == {"gpt-4o": "llama-3"}
    assert (loaded.routing.retry_on, loaded.routing.header) == ((429, 503), True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at least one upstream is needed"),
        ('[[upstreams]]\nbase_url = "http://a"\n' * 2, "upstreams[1].name: 'default' is taken"),
        ('[[upstreams]]\nbase_url = "http://a"\nweight = 0', "the weight of at least one must be above 0"),
        ('[[upstreams]]\nbase_url = "http://a"\nweight = -1', "upstreams[0].weight"),
        ('[[upstreams]]\nbase_url = "http://a"\nca_file = "/no/such.pem"', "upstreams[0].ca_file: there is no file"),
        ('[[upstreams]]\nbase_url = "http://a"\nproxy = "socks://p"', "upstreams[0].proxy: expected a URL such as"),
        ('[[upstreams]]\nbase_url = "http://a"\n[routing]\nretry_on = [200]', "routing.retry_on"),
        ('[[upstreams]]\nbase_url = "http://a"\n[routing]\neject = 1', "did you mean 'eject_s'"),
    ],
)
def test_mistakes_are_named(tmp_path, text, problem):
    with pytest.raises(ConfigError) as caught:
        config.load(toml(tmp_path / "c.toml", text))
    assert problem in str(caught.value)

"""Budgets and token limits hold whatever a key's holder sends, when it leaves, and how much it asks at once."""

import asyncio
import contextlib
import gzip
import json
import sqlite3
import time

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.access.account import OverLimit, Quote
from gateway.access.gate import Gate, Holder
from gateway.access.keys import Keyring
from gateway.access.prices import Prices
from gateway.config import Cache, Capture, Config, Keys, Limits, Price, Upstream
from gaugeway.storage.keys import Quota, VirtualKey, digest, open_keys
from tests.gateway.proxy.test_passthrough import CHAT, exchange, post, reply, request
from tests.support.running import read_request, running_gateway, tcp_server

pytestmark = pytest.mark.full

ROUTE = "/v1/chat/completions"
USD_EACH = 1.0
PRICES = {"m": Price(input=1, output=1)}


def paid(**more):
    usage = {"prompt_tokens": 400_000, "completion_tokens": 600_000}
    message = {"message": {"content": "A."}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "model": "m", "choices": [message], "usage": usage} | more).encode()


def answering(raw, wait_s=0.0):
    async def handler(reader, writer):
        try:
            while True:
                await read_request(reader)
                await asyncio.sleep(wait_s)
                writer.write(raw)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    return handler


def run(scenario, tmp_path, handler, *, quota, prices=PRICES, **tables):
    async def main():
        store = open_keys(None, tmp_path)
        secret = (await store.create(app="a", now=time.time(), quota=quota)).secret
        await store.aclose()
        async with tcp_server(handler) as port:
            upstreams = (Upstream(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-provider"),)
            config = Config(keys=Keys(enabled=True), prices=prices, upstreams=upstreams, **tables)
            async with running_gateway("", config=config, keys_file=tmp_path / "keys.db") as gateway:
                async with asyncio.timeout(60):
                    await scenario(gateway, secret)

    asyncio.run(main())


def statuses(times, path=ROUTE, body=CHAT, *headers, at_once=False):
    """Make requests with the key; the scenario keeps the statuses in `.seen`."""

    async def scenario(gateway, secret):
        async def ask():
            raw = post(body, path, f"Authorization: Bearer {secret}", *headers)
            return int((await exchange(gateway.port, raw))[0].split()[1])

        if at_once:
            scenario.seen = await asyncio.gather(*[ask() for _ in range(times)])
        else:
            scenario.seen = [await ask() for _ in range(times)]
        scenario.estimated = gateway.total("gaugeway_charges_estimated_total")
        await gateway.until(lambda: gateway.total("gaugeway_requests_total") == times)
        assert gateway.total("gaugeway_requests_total", app="a") == times  # refused ones too

    return scenario


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (ROUTE, CHAT, ()),
        (ROUTE, CHAT[:-1] + b',"x":NaN}', ()),
        (ROUTE, CHAT[:-1] + b',"x":"\\ud800"}', ()),
        (ROUTE, b"\xef\xbb\xbf" + CHAT, ()),
        (ROUTE, CHAT, ("Content-Encoding: x-odd",)),
        (ROUTE, gzip.compress(CHAT), ("Content-Encoding: gzip",)),
        (ROUTE, CHAT, ("x-gaugeway-capture: off",)),
        (ROUTE, CHAT[:-1] + b" " * 5_000_000 + b"}", ()),
        (ROUTE, CHAT.replace(b'"m"', b'"M"'), ()),
        (ROUTE, CHAT.replace(b'"m"', b'"free"'), ()),
        (ROUTE, CHAT[:-1] + b',"Model":"free"}', ()),
        (ROUTE, CHAT.replace(b'"m"', b'"free","model":"m"'), ()),
        ("/v1/embeddings", CHAT, ()),
        ("/v1/embeddings", CHAT, ("Content-Encoding: gzip",)),
        ("/v1/completions", CHAT, ()),
        ("/openai/deployments/m/chat/completions", b'{"messages":[]}', ()),
    ],
)
def test_no_request_escapes_its_charge(tmp_path, path, body, headers):
    scenario = statuses(6, path, body, *headers)
    run(scenario, tmp_path, answering(reply(paid())), quota=Quota(usd_per_day=1.5))
    assert scenario.seen == [200, 200, 429, 429, 429, 429]


ECHO = {"tools": [{"parameters": {"examples": [{"usage": {"input_tokens": 1e9, "output_tokens": 1e9}}]}}]}


def echoing(*, stream):
    """Answer as the Responses API does, which repeats the tools of a request in its first events and in its last."""
    done = {"id": "r", "model": "m", **ECHO, "status": "completed", "output": [], "usage": {"input_tokens": 300_000}}
    kinds = {"created": {**done, "status": "in_progress", "usage": None}, "completed": done}
    if not stream:
        return reply(json.dumps(done).encode())
    events = [
        f"event: response.{kind}\ndata: {json.dumps({'type': f'response.{kind}', 'response': one})}\n\n"
        for kind, one in kinds.items()
    ]
    return reply("".join(events).encode()).replace(b"application/json", b"text/event-stream")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("quota", [Quota(tokens_per_min=800_000), Quota(usd_per_day=0.8)])
def test_an_echoed_schema_spends_no_budget(tmp_path, stream, quota):
    body = json.dumps({"model": "m", "input": "Q?", "stream": stream, **ECHO}).encode()
    scenario = statuses(5, "/v1/responses", body)
    run(scenario, tmp_path, answering(echoing(stream=stream)), quota=quota)
    assert scenario.seen == [200, 200, 200, 429, 429]  # 300,000 tokens each
    assert scenario.estimated == 0


@pytest.mark.parametrize(
    "capture", [Capture(rate=0.0), Capture(buffer_exchanges=1, buffer_bytes=1), Capture(max_content_bytes=1)]
)
def test_charging_does_not_depend_on_capture(tmp_path, capture):
    scenario = statuses(4)
    run(scenario, tmp_path, answering(reply(paid())), quota=Quota(usd_per_day=1.5), capture=capture)
    assert scenario.seen == [200, 200, 429, 429]
    assert scenario.estimated == 0


@pytest.mark.parametrize(
    "path", ["/v1//chat/completions", "/v1/Chat/completions", "/v1/engines/m/completions", "/v1/audio/speech"]
)
def test_what_nobody_can_meter_is_refused_to_a_budget_or_has_a_price(tmp_path, path):
    scenario = statuses(3, path)
    run(scenario, tmp_path, answering(reply(b"{}")), quota=Quota(usd_per_day=1.5))
    assert scenario.seen == [403, 403, 403]
    (other := tmp_path / "other").mkdir()
    scenario = statuses(4, path)
    limits = Limits(unmetered_usd=1.0)
    run(scenario, other, answering(reply(b"{}")), quota=Quota(usd_per_day=1.5), limits=limits)
    assert scenario.seen == [200, 200, 429, 429]


@pytest.mark.parametrize("path", ["/v1//chat/completions", "/v1/embeddings", "/v1/other"])
def test_tokens_a_minute_count_on_every_path(tmp_path, path):
    scenario = statuses(4, path)
    run(scenario, tmp_path, answering(reply(paid())), quota=Quota(tokens_per_min=1_100_000), prices={})
    assert scenario.seen == [200, 200, 429, 429]


def test_without_usage_in_the_answer_an_estimate_is_charged_and_counted(tmp_path):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 8000}]}).encode()
    answer = json.dumps({"choices": [{"message": {"content": "word " * 8000}}]}).encode()
    scenario = statuses(4, ROUTE, body)
    # 10,000 tokens each way, at USD 50 a million: one USD a request.
    prices = {"m": Price(input=50, output=50)}
    run(scenario, tmp_path, answering(reply(answer)), quota=Quota(usd_per_day=1.5), prices=prices)
    assert scenario.seen == [200, 200, 429, 429]
    assert scenario.estimated == 2


def test_errors_and_requests_that_never_went_out_cost_nothing(tmp_path):
    scenario = statuses(4)
    run(scenario, tmp_path, answering(reply(paid(), "500 Oops")), quota=Quota(usd_per_day=0.5))
    assert scenario.seen == [500] * 4
    assert scenario.estimated == 0


def test_looking_at_what_was_paid_before_costs_nothing(tmp_path):
    async def scenario(gateway, secret):
        for path in ["/v1/responses/resp_1", "/v1/batches/b", "/v1/models"] * 2:
            raw = f"GET {path} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {secret}\r\n\r\n".encode()
            assert (await exchange(gateway.port, raw))[0].split()[1] == b"200"

    run(scenario, tmp_path, answering(reply(paid())), quota=Quota(usd_per_day=1.5))


def test_an_answer_from_the_cache_costs_nothing(tmp_path):
    scenario = statuses(4)
    run(scenario, tmp_path, answering(reply(paid())), quota=Quota(usd_per_day=1.5), cache=Cache(apps=("*",)))
    assert scenario.seen == [200] * 4


@pytest.mark.parametrize("streamed", [True, False])
def test_hanging_up_early_does_not_escape_the_charge(tmp_path, streamed):
    text = b'data: {"choices":[{"delta":{"content":"' + b"word " * 2000 + b'"}}]}\n\n'

    arrived = asyncio.Semaphore(0)

    async def endless(reader, writer):
        await read_request(reader)
        arrived.release()
        if streamed:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + text)
        with contextlib.suppress(OSError):
            await reader.read()  # until it hangs up
        writer.close()

    async def scenario(gateway, secret):
        body = CHAT[:-1] + (b',"stream":true}' if streamed else b',"max_tokens":2500}')
        raw = post(body, ROUTE, f"Authorization: Bearer {secret}")
        for number in range(2):
            reader, writer = await request(gateway.port, raw)
            if streamed:
                await reader.readexactly(10_000)
            else:
                await arrived.acquire()  # the upstream has the request, and works
            writer.close()
            await gateway.until(lambda so_far=number: gateway.total("gaugeway_charges_estimated_total") == so_far + 1)
        assert (await exchange(gateway.port, raw))[0].split()[1] == b"429"

    # 10,000 bytes of text, or a maximum of 2,500 tokens: 2,500 tokens each at the least, at USD 400 a million.
    prices = {"m": Price(input=0, output=400)}
    run(scenario, tmp_path, endless, quota=Quota(usd_per_day=1.5), prices=prices)


def delta(kind, **more):
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | more)}\n\n".encode()


@pytest.mark.parametrize(
    ("path", "begun", "more"),
    [
        (ROUTE, b"", '"max_tokens":2500'),
        (ROUTE, b'data: {"choices":[{"delta":{"content":"A."}}],"usage":null}\n\n', '"max_completion_tokens":2500'),
        (
            "/v1/responses",
            delta("response.created", response={"status": "in_progress", "tools": [{"usage": {"output_tokens": 1}}]})
            + delta("response.output_text.done", text="A."),
            '"max_output_tokens":2500',
        ),
        (
            "/v1/messages",
            delta("message_start", message={"usage": {"input_tokens": 1, "output_tokens": 1}}),
            '"max_tokens":2500',
        ),
    ],
)
def test_hanging_up_before_the_usage_is_charged_what_was_reserved(tmp_path, path, begun, more):
    asked = []

    async def endless(reader, writer):
        await read_request(reader)
        asked.append(1)
        if begun:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + begun)
        with contextlib.suppress(OSError):
            await reader.read()  # until it hangs up
        writer.close()

    async def scenario(gateway, secret):
        raw = post(CHAT[:-1] + f',"stream":true,{more}}}'.encode(), path, f"Authorization: Bearer {secret}")
        for number in (1, 2):
            reader, writer = await request(gateway.port, raw)
            await gateway.until(lambda so_far=number: len(asked) == so_far)
            if begun:
                await reader.readuntil(begun[-20:])
            writer.close()
            await gateway.until(lambda so_far=number: gateway.total("gaugeway_charges_estimated_total") == so_far)
        assert (await exchange(gateway.port, raw))[0].split()[1] == b"429"

    # A maximum of 2,500 tokens at USD 400 a million: one USD each.
    run(scenario, tmp_path, endless, quota=Quota(usd_per_day=1.5), prices={"m": Price(input=0, output=400)})


def test_hanging_up_after_the_last_event_is_charged_as_reported(tmp_path):
    last = delta("message_delta", usage={"input_tokens": 1, "output_tokens": 10})

    async def lingering(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + last)
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    async def scenario(gateway, secret):
        raw = post(CHAT[:-1] + b',"stream":true,"max_tokens":2500}', "/v1/messages", f"Authorization: Bearer {secret}")
        for _ in range(4):
            reader, writer = await request(gateway.port, raw)
            await reader.readuntil(last[-20:])
            writer.close()
        await gateway.until(lambda: gateway.total("gaugeway_requests_total") == 4)
        assert gateway.total("gaugeway_charges_estimated_total") == 0

    run(scenario, tmp_path, lingering, quota=Quota(usd_per_day=5), prices={"m": Price(input=0, output=400)})


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ({"background": True}, {"status": "queued", "usage": None}),
        ({"background": True}, {"usage": None}),
        ({}, {"status": "in_progress", "usage": None, "tools": [{"parameters": {"usage": {"output_tokens": 1}}}]}),
        ({"background": True}, {"status": "queued", "usage": None, "instructions": "x" * 200_000}),
    ],
)
def test_an_answer_written_in_the_background_is_charged_what_was_reserved(tmp_path, more, answer):
    body = json.dumps({"model": "m", "input": "Q", "max_output_tokens": 2500} | more).encode()
    scenario = statuses(4, "/v1/responses", body)
    handler = answering(reply(json.dumps({"id": "resp_1", "model": "m"} | answer).encode()))
    run(scenario, tmp_path, handler, quota=Quota(usd_per_day=1.5), prices={"m": Price(input=0, output=400)})
    assert scenario.seen[0] == 200
    assert scenario.seen[2:] == [429, 429]
    assert scenario.estimated == scenario.seen.count(200)


def test_a_hundred_requests_at_once_do_not_overrun_a_budget(tmp_path):
    usage = {"prompt_tokens": 10, "completion_tokens": 990}
    scenario = statuses(100, at_once=True)
    # Each costs one USD, and that is what an answer of unknown length is expected to cost.
    prices = {"m": Price(input=1000, output=1000)}
    handler = answering(reply(paid(usage=usage)), wait_s=1.0)
    run(scenario, tmp_path, handler, quota=Quota(usd_per_day=3), prices=prices)
    assert 1 <= scenario.seen.count(200) <= 4
    assert set(scenario.seen) == {200, 429}


def gate_with(quota):
    key = VirtualKey(id="k", digest=digest(b"gw-k"), app="a", created_at=0.0, quota=quota)
    gate = Gate(Limits(), needs_key=True, clock=lambda: 1000.0, wall=lambda: 1000.0)
    gate.use_keys(Keyring([key]))
    return lambda quote: gate.admit([(b"api-key", b"gw-k")], "m", None, quote=quote), gate


@pytest.mark.parametrize(
    ("quota", "quote"), [(Quota(usd_per_day=1), Quote(usd=0.6)), (Quota(tokens_per_min=1000), Quote(tokens=600))]
)
def test_what_is_reserved_is_free_again_once_the_request_is_over(quota, quote):
    async def main():
        ask, _ = gate_with(quota)
        permits = [await ask(quote) for _ in range(2)]
        with pytest.raises(OverLimit) as caught:
            await ask(quote)
        assert caught.value.wait_s == 1.0
        assert "under way" in caught.value.message
        assert (b"x-should-retry", b"false") not in caught.value.headers
        for permit in permits:
            permit.release()
            permit.release()
        for _ in range(10):
            (await ask(quote)).release()

    asyncio.run(main())


def test_a_budget_that_is_spent_says_so_until_midnight():
    async def main():
        ask, gate = gate_with(Quota(usd_per_day=1))
        permit = await ask(Quote(usd=0.5))
        gate.charge(permit, 1, 1, 1.0)
        with pytest.raises(OverLimit) as caught:
            await ask(Quote())
        assert (b"x-should-retry", b"false") in caught.value.headers
        gate.charge(Holder("k", "a"), 10**30, None, None)  # beyond all counting: it must not break the next one
        with pytest.raises(OverLimit):
            await ask(Quote())

    asyncio.run(main())


def test_a_name_without_a_price_is_charged_like_the_most_expensive_one():
    cheap, dear = Price(input=1, output=2), Price(input=5, output=1)
    prices = Prices({"cheap*": cheap, "cheap-pro": dear, "free": Price(input=0)})
    assert prices.charged("cheap-1") == (cheap, True)
    assert prices.charged("CHEAP-1 ") == (cheap, True)
    assert prices.charged("cheap-PRO") == (dear, True)
    assert prices.charged("FREE")[0].input == 0
    for unknown in ("other", None, ""):
        assert prices.charged(unknown) == (Price(input=5, output=2), False)
    assert Prices({}).charged("m") == (None, False)


def realtime(scenario, handler, *, quota, tmp_path):
    async def main():
        store = open_keys(None, tmp_path)
        created = await store.create(app="a", now=time.time(), quota=quota)
        async with serve(handler, "127.0.0.1", 0) as upstream:
            port = upstream.sockets[0].getsockname()[1]
            upstreams = (Upstream(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-provider"),)
            config = Config(keys=Keys(enabled=True), prices=PRICES, upstreams=upstreams)
            async with running_gateway("", config=config, keys_file=tmp_path / "keys.db") as gateway:
                headers = {"authorization": f"Bearer {created.secret}"}
                url = f"ws://127.0.0.1:{gateway.port}/v1/realtime?model=m"
                async with asyncio.timeout(60):
                    await scenario(lambda path="": connect(url + path, additional_headers=headers), store, created.key)
        await store.aclose()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.app.REFRESH_S", 0.1)
        patch.setattr("gateway.access.admission.REFRESH_S", 0.1)
        asyncio.run(main())


async def _all_of(client):
    while True:
        await client.recv()


async def closed_with(client):
    with pytest.raises(ConnectionClosed) as caught:
        await _all_of(client)
    return caught.value.rcvd.code, caught.value.rcvd.reason


def test_a_realtime_connection_is_charged_and_closed_when_the_budget_is_spent(tmp_path):
    async def respond(socket):
        async for _ in socket:
            usage = {"input_tokens": 400_000, "output_tokens": 600_000}
            await socket.send(json.dumps({"type": "response.done", "response": {"usage": usage}}))

    async def scenario(opened, store, key):
        async with opened() as client:
            for _ in range(2):
                await client.send('{"type":"response.create"}')
            code, reason = await closed_with(client)
        assert code == 1008
        assert "budget" in reason
        with pytest.raises(InvalidStatus) as caught:
            await opened()
        assert caught.value.response.status_code == 429

    realtime(scenario, respond, quota=Quota(usd_per_day=1.5), tmp_path=tmp_path)


def test_a_realtime_connection_that_reports_nothing_is_charged_by_estimate(tmp_path):
    async def talk(socket):
        async for _ in socket:
            await socket.send(json.dumps({"type": "response.text.delta", "delta": "word " * 100_000}))

    async def scenario(opened, store, key):
        async with opened() as client:
            await client.send('{"type":"response.create"}')
            await client.recv()
        async with asyncio.timeout(60):
            while not await store.spend({}, int(time.time() // 86400)):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.05)
        spent = await store.spend({}, int(time.time() // 86400))
        assert min(spent.values()) == pytest.approx(0.125, rel=0.05)  # 125,000 tokens at USD 1 a million

    realtime(scenario, talk, quota=Quota(usd_per_day=1.5), tmp_path=tmp_path)


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_the_connection_of_a_key_that_has_ended_is_closed_with_1008(tmp_path, end):
    async def echo(socket):
        async for message in socket:
            await socket.send(message)

    async def scenario(opened, store, key):
        async with opened() as client:
            await client.send("x")
            assert await client.recv() == "x"
            if end == "revoked":
                await store.revoke(key.id, time.time())
            else:
                with contextlib.closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None)) as database:
                    database.execute("UPDATE keys SET expires_at = 1")
            code, reason = await closed_with(client)
        assert code == 1008
        assert end in reason

    realtime(scenario, echo, quota=Quota(), tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("reported", "per_min", "waits_s", "reason"),
    [
        ({"input_tokens": 10**30, "output_tokens": 1}, 1_000_000, 540, "implausible"),
        ({"input_tokens": 10**30, "output_tokens": 10**30}, 10_000, 3600, "debt"),
        ({"input_tokens": 50, "output_tokens": 400_000}, 100_000, 180, None),  # reasoning
        ({"input_tokens": 2_000_000, "output_tokens": 50}, 200_000, 540, None),  # a stored conversation
    ],
)
def test_a_report_is_charged_whole_where_it_can_be_real(tmp_path, reported, per_min, waits_s, reason):
    answer = json.dumps({"id": "r", "status": "completed", "usage": reported}).encode()
    body = json.dumps({"model": "m", "input": "Q?", "previous_response_id": "r0"}).encode()

    async def scenario(gateway, secret):
        raw = post(body, "/v1/responses", f"Authorization: Bearer {secret}")
        assert (await exchange(gateway.port, raw))[0].split()[1] == b"200"
        head, *_ = await exchange(gateway.port, raw)
        assert head.split()[1] == b"429"
        waits = next(int(line.split()[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"retry-after:"))
        assert waits_s - 60 < waits <= waits_s + 1
        counted = {
            one: gateway.total("gaugeway_charges_estimated_total", reason=one) for one in ("implausible", "debt")
        }
        assert counted["implausible"] == (reported["input_tokens"] == 10**30)
        assert counted["debt"] == (reason == "debt")

    run(scenario, tmp_path, answering(reply(answer)), quota=Quota(tokens_per_min=per_min), prices={})


def test_an_implausible_report_costs_no_more_than_the_largest_answer(tmp_path):
    answer = json.dumps({"id": "r", "usage": {"prompt_tokens": 10**30, "completion_tokens": 0}}).encode()
    scenario = statuses(3)
    prices = {"m": Price(input=1, output=1)}  # at most USD 10.01 an answer
    run(scenario, tmp_path, answering(reply(answer)), quota=Quota(usd_per_day=15), prices=prices)
    assert scenario.seen == [200, 200, 429]

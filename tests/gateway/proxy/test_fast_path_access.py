"""The fast path and the ASGI path, side by side, with keys, limits, budgets, prices and several upstreams."""

import asyncio
import time

import pytest

from gateway.config import AppLimits, Cache, Capture, Keys, Limits, Price, Routing
from gaugeway.storage.keys import open_keys
from tests.gateway.proxy.test_fast_path import (
    ANSWER,
    BODY,
    CHUNKS,
    LAST,
    OK,
    STREAM,
    Access,
    Case,
    Wire,
    compare,
    hanging_up,
    headed,
    post,
)

pytestmark = pytest.mark.full

USED = b'{"model": "m", "choices": [], "usage": {"prompt_tokens": 600, "completion_tokens": 400}}'
USAGE = headed(b"Content-Type: application/json", body=USED)
USAGE_EVENT = b'data: {"model": "m", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\n'
PRICES = {"m": Price(input=1.0, output=2.0)}
BUSY = headed(b"Retry-After-Ms: 5", status=b"503 Busy", body=b"{}")
STREAMED = b'{"model": "m", "stream": true, "messages": []}'
RETRY = Routing()
PAIR = ({"name": "first"}, {"name": "second", "priority": 1})


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A file of keys, and the secrets by name."""
    file = tmp_path_factory.mktemp("keys") / "keys.db"

    async def create():
        store = open_keys(None, file.parent)
        _, shop = await store.create(app="shop", now=time.time())
        _, narrow = await store.create(app="narrow", now=time.time(), models=("m",))
        await store.aclose()
        return {"shop": shop, "narrow": narrow}

    return file, asyncio.run(create())


def bearer(secret):
    return f"Authorization: Bearer {secret}"


def several(*requests):
    """A client that sends requests one after the other on one connection."""

    async def client(wire, bench):
        for number, request in enumerate(requests, 1):
            await wire.send(request)
            await wire.answers(number)
            await bench.until(lambda number=number: len(bench.recordings) > number)

    return client


def at_once(*bodies):
    """A client that sends each request on a connection of its own, before the ones before are answered."""

    async def client(wire, bench):
        others = [await bench.connect() for _ in bodies[1:]]
        for one, body in zip((wire, *others), bodies, strict=True):
            bench.upstream.asked.clear()
            await one.send(post(body))
            await asyncio.sleep(0.03)
        for one in (wire, *others):
            await one.answers()
        for one in others:
            wire.raw += one.raw
            one.hang_up()

    return client


def keyed(scripts, pieces, *, secret, tables=None, **case):
    def build(keys):
        file, secrets = keys
        headers = () if secret is None else (bearer(secrets.get(secret, secret)),)
        client = pieces(headers)
        access = Access(
            {"keys": Keys(enabled=True), "prices": PRICES, **(tables or {})}, file, (bearer(secrets["shop"]),)
        )
        return Case(scripts, client, settings={"access": access}, **case)

    return build


def posting(*more, body=BODY, path="/v1/chat/completions", times=1):
    return lambda headers: several(*[post(body, *headers, *more, path=path)] * times)


KEYED = {
    "a key": keyed([[USAGE]], posting(), secret="shop"),
    "a stream": keyed([[STREAM, *CHUNKS, LAST]], posting(body=STREAMED), secret="shop"),
    "an app of the client's own": keyed([[USAGE]], posting("x-gaugeway-app: pretender"), secret="shop"),
    "our member": keyed([[USAGE]], posting(body=BODY[:-1] + b', "gaugeway": {"app": "x"}}'), secret="shop"),
    "a key for this model": keyed([[USAGE]], posting(), secret="narrow"),
    "a key for another model": keyed([], posting(body=b'{"model": "x"}'), secret="narrow"),
    "a key for one of two models": keyed([], posting(body=b'{"model": "m", "model": "x"}'), secret="narrow"),
    "no key": keyed([], posting(), secret=None),
    "an unknown key": keyed([], posting(), secret="gw-" + "A" * 43),
    "a provider's key": keyed([], posting(), secret="sk-x"),
    "an answer that is cut": keyed([[STREAM, CHUNKS[0], "close"]], posting(body=STREAMED), secret="shop"),
    "no answer": keyed([["close"]], posting(), secret="shop"),
    "an error": keyed([[BUSY]], posting(), secret="shop"),
    "a key in a stale connection": keyed([["close"], [USAGE]], posting("Idempotency-Key: k"), secret="shop"),
    "leaves before the answer": keyed([["hang"]], lambda headers: hanging_up(post(BODY, *headers)), secret="shop"),
    "resets in the stream": keyed(
        [[STREAM, *CHUNKS, "hang"]],
        lambda headers: hanging_up(post(BODY, *headers), until=CHUNKS[-1], how=Wire.reset),
        secret="shop",
    ),
    "the third is over the rate": keyed(
        [[USAGE], [USAGE]],
        posting(times=3),
        secret="shop",
        tables={"limits": Limits(apps={"shop": AppLimits(requests_per_min=3)})},
        requests=3,
    ),
    "the budget is spent by the first": keyed(
        [[USAGE]],
        posting(times=2),
        secret="shop",
        tables={"limits": Limits(usd_per_day=0.0014)},
        requests=2,
    ),
}
LIMITED = {
    "a rate": (Limits(requests_per_min=2), [[USAGE], [USAGE]], several(*[post()] * 3), 3),
    "tokens": (Limits(tokens_per_min=900), [[USAGE]], several(*[post(b'{"max_tokens": 1}')] * 2), 2),
    "tokens of an answer without usage": (Limits(tokens_per_min=9000), [[ANSWER]] * 3, several(*[post()] * 3), 3),
    "a budget": (Limits(usd_per_day=0.001), [[USAGE]], several(*[post()] * 2), 2),
    "a budget that errors do not use": (Limits(usd_per_day=0.01), [[BUSY]] * 3, several(*[post()] * 3), 3),
    "a budget and no answer": (Limits(usd_per_day=0.002), [["close"], [USAGE]], several(post(), post()), 2),
    "room for one, another waits": (
        Limits(max_concurrency=1, queue_s=5.0),
        [[0.2, USAGE], [USAGE]],
        at_once(BODY, BODY),
        2,
    ),
    "room for one, another is refused": (Limits(max_concurrency=1), [[0.2, USAGE]], at_once(BODY, BODY), 2),
    "room for one, one after the other": (Limits(max_concurrency=1), [[USAGE]] * 3, several(*[post()] * 3), 3),
    "an app of the client's": (
        Limits(apps={"shop": AppLimits(requests_per_min=1)}),
        [[USAGE]],
        several(*[post(BODY, "x-gaugeway-app: shop")] * 2),
        2,
    ),
}
ROUTED = {
    "two upstreams": (PAIR, RETRY, [[USAGE]], several(post())),
    "the first fails": (PAIR, RETRY, [[BUSY], [USAGE]], several(post())),
    "the first fails, then a stream": (PAIR, RETRY, [[BUSY], [STREAM, *CHUNKS, LAST]], several(post(STREAMED))),
    "both fail": (PAIR, RETRY, [[BUSY], [BUSY]], several(post())),
    "the first closes": (PAIR, RETRY, [["close"], [USAGE]], several(post())),
    "the first breaks HTTP": (PAIR, RETRY, [[b"SSH-2.0-x\r\n"], [USAGE]], several(post())),
    "the first is cut in its head": (PAIR, RETRY, [[OK, "close"], [USAGE]], several(post())),
    "the first is cut in its stream": (PAIR, RETRY, [[STREAM, CHUNKS[0], "close"]], several(post())),
    "leaves while the second works": (PAIR, RETRY, [[BUSY], ["hang"]], hanging_up(post())),
    "an error that is not repeated": (PAIR, RETRY, [[headed(status=b"404 Not Found")]], several(post())),
    "a retry": (({"max_retries": 1},), RETRY, [[BUSY], [USAGE]], several(post())),
    "a retry that fails too": (({"max_retries": 1},), RETRY, [[BUSY], [BUSY]], several(post())),
    "an alias": (({"aliases": {"m": "other"}},), RETRY, [[USAGE]], several(post())),
    "an alias at the second": (
        ({"name": "first"}, {"name": "second", "priority": 1, "aliases": {"m": "other"}}),
        RETRY,
        [[BUSY], [USAGE]],
        several(post()),
    ),
    "a model that nobody serves": (({"models": ("m", "m-*")},), RETRY, [], several(post(b'{"model": "n"}'))),
    "an upstream by name": (
        PAIR,
        Routing(header=True),
        [[USAGE]],
        several(post(BODY, "x-gaugeway-upstream: second")),
    ),
    "an unknown upstream by name": (
        PAIR,
        Routing(header=True),
        [],
        several(post(BODY, "x-gaugeway-upstream: third")),
    ),
}


@pytest.mark.parametrize("case", KEYED)
def test_requests_with_keys_are_served_and_charged_the_same(case, keys):
    compare("uvloop", KEYED[case](keys))


@pytest.mark.parametrize("case", LIMITED)
def test_limits_and_budgets_are_enforced_the_same(case):
    limits, scripts, client, requests = LIMITED[case]
    access = Access({"limits": limits, "prices": PRICES}, headers=("x-gaugeway-app: warm",))
    compare("uvloop", Case(scripts, client, requests, settings={"access": access, "warm": 1}))


@pytest.mark.parametrize("case", ROUTED)
def test_upstreams_are_chosen_and_retried_the_same(case):
    upstreams, routing, scripts, client = ROUTED[case]
    access = Access({"routing": routing, "prices": PRICES}, upstreams=upstreams)
    compare("uvloop", Case(scripts, client, settings={"access": access}))


@pytest.mark.parametrize("timeout", ["read_timeout_s", "first_byte_timeout_s", "total_timeout_s"])
def test_time_limits_hold_over_several_attempts(timeout):
    access = Access({"routing": RETRY}, upstreams=PAIR)
    case = Case([["hang"], ["hang"]], several(post()), settings={"access": access, timeout: 0.15})
    answer = compare("uvloop", case).client[0]
    assert answer.status == b"HTTP/1.1 504 Gateway Timeout"


def test_an_upstream_that_fails_on_the_fast_path_is_ejected():
    access = Access({"routing": Routing(eject_after=2)}, upstreams=PAIR)
    scripts = [[BUSY], [USAGE], [BUSY], [USAGE], [USAGE]]
    case = Case(scripts, several(post(), post(), post()), 3, settings={"access": access})
    outcome = compare("uvloop", case)
    assert outcome.counters["gaugeway_upstream_state", ("upstream", "first")] == 0
    assert [recording["upstream"][0] for recording in outcome.recordings] == ["second"] * 3


def test_a_charge_is_made_once_when_another_upstream_answers():
    tables = {"routing": RETRY, "limits": Limits(requests_per_min=3), "prices": PRICES}
    access = Access(tables, headers=("x-gaugeway-app: warm",), upstreams=PAIR)
    case = Case([[BUSY], [USAGE], [USAGE]], several(post(), post(), post(), post()), 4, settings={"access": access})
    outcome = compare("uvloop", case)
    assert [answer.status[9:12] for answer in outcome.client] == [b"200", b"200", b"200", b"429"]


@pytest.mark.parametrize("usage", [True, False])
def test_usage_that_the_client_did_not_request_is_hidden_the_same(usage):
    access = Access({"capture": Capture(include_usage=usage)})
    event = b"%x\r\n%b\r\n" % (len(USAGE_EVENT), USAGE_EVENT)
    case = Case([[STREAM, *CHUNKS, event[:20], event[20:], LAST]], several(post(STREAMED)), settings={"access": access})
    assert (b"usage" in compare("uvloop", case).client[0].body) is not usage


def test_only_apps_with_a_cache_leave_the_fast_path():
    access = Access({"cache": Cache(apps=("cached",))})
    cached = post(BODY, "x-gaugeway-app: cached")
    case = Case([[USAGE], [USAGE]], several(post(), cached, cached), 3, settings={"access": access})
    compare("uvloop", case)

"""Who may read the monitors' admin port."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from litestar import Litestar, get
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from gaugeway.runtime.auth import (
    ATTEMPTS,
    CHECK_S,
    MAX_CHECK_WAIT_S,
    Attempts,
    TokenCheck,
    TooManyGuessesError,
    behind,
    guess_guard,
    token_guard,
)
from gaugeway.settings.loading import admin_problems
from gaugeway.settings.shared import Monitors, Shared
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.quality import Quality
from monitors.api.app import admin_app
from tests.support.running import serving


class Insight:
    """As much of the plane as these tests ask for."""

    store = None

    async def status(self):
        return {"version": "0"}

    def quality(self):
        return [Quality(app=app, metric="m", n=1, n_eff=1.0, coverage_ratio=1.0) for app in ("a", "b")]

    def captured(self):
        counts = {"answers": 40, "captured": 30, "without_question": 4, "without_passages": 8}
        return [Captured(app="a", window_s=3600.0, **counts, ratio=0.75, ci_low=0.6, ci_high=0.86)]

    def states(self):
        return {("a", "m"): "firing"}

    def alerts(self):
        return []


def ask(path, *, host="127.0.0.1", token=None, headers=None):
    app = admin_app(Insight(), CollectorRegistry(), host=host, token=token)
    with TestClient(app) as client:
        return client.get(path, headers=headers or {})


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST:9465", "127.0.0.1:9465", "[::1]:9465", "[::1]", "10.0.0.7:9465", "127.0.0.1:"]
)
def test_without_a_token_a_request_to_this_machine_is_answered(name):
    for path in ("/api/status", "/metrics"):
        assert ask(path, host="10.0.0.7", headers={"host": name}).status_code == 200


def test_the_address_it_is_bound_to_is_a_name_of_it():
    assert ask("/api/status", host="fe80::1", headers={"host": "[fe80::1]:9465"}).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["evil.example", "evil.example:9465", "localhost.evil.example", "127.0.0.1.evil.example:80", "localhost:x", ""],
)
def test_a_name_that_somebody_else_made_point_here_is_refused(name):
    for path in ("/api/status", "/api/exchanges", "/api/exchanges/x", "/metrics"):
        answer = ask(path, headers={"host": name})
        assert answer.status_code == 403
        assert "localhost" in answer.text
    assert ask("/healthz", headers={"host": name}).status_code == 200


def test_with_a_token_the_token_decides_and_the_name_does_not():
    headers = {"host": "gaugeway.internal:9465"}
    assert ask("/api/status", token="t", headers=headers).status_code == 401
    assert ask("/api/status", token="t", headers=headers | {"authorization": "Bearer t"}).status_code == 200


def test_the_state_of_what_no_rule_watches_is_said():
    answer = ask("/api/metrics", headers={"host": "localhost"}).json()
    assert [(one["app"], one["state"]) for one in answer] == [("a", "firing"), ("b", "unwatched")]


def test_what_was_found_in_answers_is_said_by_app():
    (one,) = ask("/api/capture", headers={"host": "localhost"}).json()
    assert (one["app"], one["window_s"], one["answers"], one["captured"]) == ("a", 3600.0, 40, 30)
    assert (one["without_question"], one["without_passages"], one["ratio"]) == (4, 8, 0.75)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


LONG = "correct horse battery staple"
RIGHT, WRONG = bearer(LONG), bearer("x")


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer x", "bearert", "Basic t", "Bearer  t ,", "Bearer T", "Bearer tt", "\u00e9"],
)
def test_what_is_not_the_token_opens_nothing(given):
    headers = {"host": "localhost", "authorization": given.encode("latin-1")}
    for path in ("/api/status", "/api/exchanges", "/metrics"):
        answer = ask(path, token="t", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


class Port:
    """A guarded handler with its own clock; waiting for a check moves it."""

    def __init__(self, token=LONG):
        @get("/", sync_to_thread=False)
        def handler() -> str:
            return "in"

        async def sleep(seconds):
            self.now += seconds

        self.now = 1000.0
        self.right = bearer(token)
        check = TokenCheck(token, lambda: self.now, sleep)
        self.client = TestClient(Litestar([handler], guards=[guess_guard(token, check), token_guard(token)]))

    def ask(self, headers=None):
        return self.client.get("/", headers=headers or {})

    def guess(self, times=ATTEMPTS):
        return [self.ask(WRONG).status_code for _ in range(times)]


def test_wrong_tokens_do_not_lock_out_the_right_one():
    port = Port()
    assert port.guess(50) == [401] * ATTEMPTS + [429] * (50 - ATTEMPTS)
    assert port.ask(port.right).status_code == 200
    assert port.ask(WRONG).headers["retry-after"] == "300"
    assert port.ask().status_code == 401, "a request without a token is no guess"
    port.now += 300.0
    assert port.guess(6) == [401] * ATTEMPTS + [429]


def test_a_short_token_is_checked_at_a_bounded_rate_and_passes_within_it():
    port = Port("hunter2")
    assert port.guess() == [401] * ATTEMPTS
    began = port.now
    assert set(port.guess(100)) == {429}
    assert port.ask(port.right).status_code == 200
    assert port.now - began == pytest.approx(100 * CHECK_S), "each check had to wait for the one before"


async def test_requests_beyond_the_waiting_ones_are_refused_unchecked():
    now = 1000.0
    waiting = asyncio.Event()

    async def sleep(_):
        await waiting.wait()

    check = TokenCheck("hunter2", lambda: now, sleep)
    for _ in range(ATTEMPTS):
        assert not await check.passes("wrong", GUESSER)
    held = [asyncio.ensure_future(check.passes("hunter2", GUESSER)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyGuessesError) as refused:
        await check.passes("hunter2", GUESSER)
    assert refused.value.retry_after_s > MAX_CHECK_WAIT_S
    assert await check.passes("hunter2", OWNER), "another address is not slowed down"
    waiting.set()
    assert await asyncio.gather(*held) == [True] * 3


async def test_the_requests_of_all_addresses_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr("gaugeway.runtime.auth.MAX_HELD", 2)

    waiting = asyncio.Event()

    async def sleep(_):
        await waiting.wait()

    check = TokenCheck("hunter2", lambda: 1000.0, sleep)
    addresses = [f"192.0.2.{number}" for number in range(5)]
    for address in addresses:
        for _ in range(ATTEMPTS):
            await check.passes("wrong", address)
        await check.passes("hunter2", address)  # takes the check that needs no waiting
    held = [asyncio.ensure_future(check.passes("hunter2", address)) for address in addresses]
    done, pending = await asyncio.wait(held, timeout=0.05)
    assert (len(done), len(pending)) == (3, 2)
    assert all(isinstance(one.exception(), TooManyGuessesError) for one in done)
    waiting.set()
    assert await asyncio.gather(*pending) == [True, True]


def test_what_is_remembered_of_addresses_is_bounded(monkeypatch):
    monkeypatch.setattr("gaugeway.runtime.auth.MAX_ADDRESSES", 10)
    attempts = Attempts(paced=True)
    for number in range(50):
        for _ in range(ATTEMPTS):
            attempts.failed(f"192.0.2.{number}", 0.0)
        attempts.reserve(f"192.0.2.{number}", 0.0)
    remembered = [number for number in range(50) if attempts.reserve(f"192.0.2.{number}", 0.0) > 0.0]
    assert remembered == list(range(40, 50))
    for _ in range(ATTEMPTS):
        attempts.failed("192.0.2.0", 0.0)
    assert attempts.reserve("192.0.2.0", 0.0) == 0.0  # nor is its turn remembered


def test_the_addresses_of_an_ipv6_network_are_counted_together():
    attempts = Attempts(paced=False)
    for number in range(ATTEMPTS):
        attempts.failed(f"2001:db8::{number}", float(number))
    with pytest.raises(TooManyGuessesError) as refused:
        attempts.failed("2001:db8::ffff", 10.0)
    assert refused.value.retry_after_s == 290.0
    attempts.failed("2001:db8:0:1::1", 10.0)
    attempts.failed("192.0.2.1", 10.0)


@pytest.mark.parametrize(("token", "told"), [("hunter2", True), ("a" * 40, True), (LONG, False), (None, False)])
def test_a_short_token_is_named_in_the_log(caplog, token, told):
    admin_app(Insight(), CollectorRegistry(), host="127.0.0.1", token=token)
    lines = [record.getMessage() for record in caplog.records if "is short" in record.getMessage()]
    assert bool(lines) is told
    assert not [line for line in lines if "hunter2" in line or "aaaa" in line]


def statuses(proxies, visits):
    """What visitors get, each given as (X-Forwarded-For, token), through something on this machine."""

    async def main():
        app = behind(proxies, admin_app(Insight(), CollectorRegistry(), host="127.0.0.1", token=LONG))
        async with (
            serving(app) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        ):
            found = []
            for claimed, token in visits:
                headers = {"x-forwarded-for": claimed} | token
                found.append((await client.get("/api/status", headers=headers)).status_code)
            return found

    return asyncio.run(main())


GUESSER, OWNER = "203.0.113.9", "192.0.2.7"


def test_behind_a_trusted_proxy_each_visitor_has_guesses_of_its_own():
    visits = [(GUESSER, WRONG)] * (ATTEMPTS + 1) + [(GUESSER, RIGHT), (OWNER, RIGHT)]
    assert statuses(["127.0.0.0/8"], visits) == [401] * ATTEMPTS + [429, 200, 200]


def test_a_visitor_behind_a_proxy_cannot_choose_its_address():
    visits = [(f"198.51.100.{number}, {GUESSER}", WRONG) for number in range(ATTEMPTS + 1)]
    assert statuses(["127.0.0.1"], visits) == [401] * ATTEMPTS + [429]


@pytest.mark.parametrize("proxies", [(), ("10.0.0.0/8",)])
def test_who_is_no_trusted_proxy_cannot_choose_its_address(proxies):
    visits = [(f"198.51.100.{number}", WRONG) for number in range(ATTEMPTS + 1)]
    assert statuses(proxies, visits) == [401] * ATTEMPTS + [429]


@pytest.mark.parametrize("proxy", ["*", "proxy.example", "10.0.0.1/8", ""])
def test_a_proxy_that_is_no_address_is_told_when_the_configuration_is_read(proxy):
    (problem,) = admin_problems(Shared(monitors=Monitors(trusted_proxies=("10.0.0.1", proxy))))
    assert problem.startswith("monitors.trusted_proxies[1]: ")

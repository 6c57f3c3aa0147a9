"""Traffic by app, from the counters of real gateways' instruments behind a real server."""

from __future__ import annotations

import asyncio
import re

import pytest
from litestar import Litestar
from prometheus_client import CollectorRegistry

from dashboards.web import gateways as gateway_traffic
from dashboards.web.gateways import Totals, TrafficReader, quantile, traffic_over
from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import Recording
from gaugeway.runtime.auth import metrics_handler
from tests.support.pages import world
from tests.support.running import serving


def request(instruments, app, *, status=200, ending="complete", seconds=0.3, count=1):
    recording = Recording(
        id="x",
        started_at=0.0,
        method="POST",
        path="/v1/chat/completions",
        route="chat_completions",
        request_headers=[],
        upstream="u",
        status=status,
        ending=ending,
        duration_s=seconds,
    )
    for _ in range(count):
        instruments.request(recording, app=app, model="m", stream=False)


def read_twice(between):
    """The traffic of a gateway between two readings a minute apart, with what it counted before the first."""

    async def main():
        instruments, now = Instruments(CollectorRegistry(), version="0"), [1000.0]
        app = Litestar([metrics_handler(instruments.registry)], openapi_config=None, logging_config=None)
        async with serving(app) as port:
            url = f"http://127.0.0.1:{port}"
            reader = TrafficReader([url], None, stopping=asyncio.Event(), clock=lambda: now[0])
            request(instruments, "shop", count=10)
            await reader.read()
            first = traffic_over(reader._snapshots, 1)  # noqa: SLF001 - without its task
            between(instruments)
            now[0] += 60.0
            await reader.read()
            return first, traffic_over(reader._snapshots, 1)  # noqa: SLF001

    return asyncio.run(main())


def test_rates_are_of_what_was_counted_between_two_readings():
    def between(instruments):
        request(instruments, "shop", count=27)
        request(instruments, "shop", status=500, seconds=5.0)
        request(instruments, "shop", ending="timeout", seconds=5.0)
        request(instruments, "shop", ending="client_cancelled", seconds=0.3)
        instruments.cost("shop", "m", {"input": 0.5, "output": 0.06})

    first, second = read_twice(between)
    assert first.window_s is None
    assert first.apps == {}, "one reading says nothing about a window"
    assert first.gateways == 1
    shop = second.apps["shop"]
    assert second.window_s == 60.0
    assert shop.requests_per_min == 30.0
    assert shop.error_ratio == pytest.approx(2 / 30)
    assert shop.usd_per_answer == pytest.approx(0.56 / 28)  # 27 whole answers, and one the client did not wait for
    assert 2.56 < shop.p95_s <= 5.12


@pytest.mark.parametrize("again", [[6.0], [6.0, 200.0]], ids=["fewer-than-before", "more-than-before"])
def test_what_a_gateway_counted_before_and_after_a_restart_is_added(again):
    counts = [(100.0, 0.0), (130.0, 30.0), *((requests, 3.0) for requests in again)]
    snapshots = [
        (60.0 * place, {"u": {"a": Totals(requests=requests, errors=errors)}})
        for place, (requests, errors) in enumerate(counts)
    ]
    found = traffic_over(snapshots, 1)
    assert found.apps["a"].requests_per_min == (30.0 + again[-1]) / (len(counts) - 1)
    assert found.apps["a"].error_ratio == 33.0 / (30.0 + again[-1])


def test_an_app_that_a_restarted_gateway_has_not_seen_again_keeps_its_traffic():
    before, after = {"a": Totals(requests=10.0), "b": Totals(requests=1.0)}, {"b": Totals(requests=5.0)}
    found = traffic_over([(0.0, {"u": {}}), (60.0, {"u": before}), (120.0, {"u": after})], 1)
    assert {app: one.requests_per_min for app, one in found.apps.items()} == {"a": 5.0, "b": 3.0}


def test_a_gateway_counts_from_its_second_answer_on_over_the_time_since_its_first():
    old, new = {"a": Totals(requests=0.0)}, {"a": Totals(requests=1000.0)}
    snapshots = [
        (0.0, {"old": old}),
        (60.0, {"old": {"a": Totals(requests=10.0)}, "new": new}),
        (120.0, {"old": {"a": Totals(requests=20.0)}, "new": {"a": Totals(requests=1030.0, errors=10.0)}}),
    ]
    before, after = traffic_over(snapshots[:2], 2), traffic_over(snapshots, 2)
    assert (before.gateways, before.configured, before.window_s) == (1, 2, 60.0)
    assert before.apps["a"].requests_per_min == 10.0
    assert (after.gateways, after.window_s) == (2, 120.0)
    assert after.apps["a"].requests_per_min == 10.0 + 30.0
    assert after.apps["a"].error_ratio == 10.0 / 50.0, "a share of the counted requests"


def test_a_gateway_that_answers_no_more_is_not_in_the_traffic():
    first, last = {"a": Totals(requests=0.0)}, {"a": Totals(requests=60.0)}
    gone = traffic_over(
        [(0.0, {"u": first, "gone": first}), (60.0, {"u": last, "gone": last}), (120.0, {"u": last})], 2
    )
    assert (gone.gateways, gone.apps["a"].requests_per_min) == (1, 30.0)
    assert traffic_over([(0.0, {"u": first}), (60.0, {"u": last}), (120.0, {})], 1).gateways == 0


def test_a_quantile_in_the_last_bucket_is_its_lower_bound():
    assert quantile(0.95, {}) is None
    assert quantile(0.95, {0.5: 0.0, 1.0: 0.0, float("inf"): 0.0}) is None
    assert quantile(0.95, {0.5: 1.0, 1.0: 1.0, float("inf"): 100.0}) == 1.0


async def test_the_overview_shows_the_traffic_of_an_app_and_names_a_gateway_that_is_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(gateway_traffic, "EVERY_S", 2.0)

    instruments = Instruments(CollectorRegistry(), version="0")
    request(instruments, "shop", count=3)
    request(instruments, "shop", status=503)
    app = Litestar([metrics_handler(instruments.registry)], openapi_config=None, logging_config=None)
    async with serving(app) as port:
        (tmp_path / "one").mkdir()
        (tmp_path / "none").mkdir()
        async with world(tmp_path / "one", gateways=[f"http://127.0.0.1:{port}", "http://127.0.0.1:1"]) as w:
            await w.add(0.9)
            await w.plane.estimate()
            for _ in range(50):
                seen = await w.page("/")
                if "after two readings" in seen.words:
                    break
                await asyncio.sleep(0.1)
            request(instruments, "shop", count=3)
            request(instruments, "shop", status=503)
            for _ in range(100):
                later = await w.page("/")
                if "after two readings" not in later.words:
                    break
                await asyncio.sleep(0.1)
        async with world(tmp_path / "none", gateways=["http://127.0.0.1:1"]) as w:
            await w.add(0.9)
            await w.plane.estimate()
            silent = await w.page("/")
    assert "25.0 %" not in seen.words, "beside no requests per minute, a share of errors is of another window"
    assert "shop" in seen.words
    assert "traffic: shown after two readings, 15 s apart" in seen.words
    assert re.search(r"\d\.\d 25\.0 % ", later.words), "requests per minute stand beside the share of errors"
    assert "no gateway answered" in silent.words
    assert "at 1 of 2 gateways, the others were not read" in later.words


async def test_a_gateway_that_stops_answering_leaves_its_last_known_traffic_with_its_age():
    instruments, now = Instruments(CollectorRegistry(), version="0"), [1000.0]
    app = Litestar([metrics_handler(instruments.registry)], openapi_config=None, logging_config=None)
    async with serving(app) as port:
        reader = TrafficReader([f"http://127.0.0.1:{port}"], None, stopping=asyncio.Event(), clock=lambda: now[0])
        await reader.read()
        request(instruments, "shop", count=30)
        now[0] += 60.0
        await reader.read()
        current = await reader.latest()
    now[0] += 900.0  # longer than the window: only snapshots without an answer are left
    await reader.read()
    await reader.read()
    silent = await reader.latest()
    assert (current.age_s, current.silent, current.apps["shop"].requests_per_min) == (None, False, 30.0)
    assert (silent.age_s, silent.silent, silent.apps) == (900.0, True, current.apps)

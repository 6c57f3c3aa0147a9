"""Where every exchange went: counts of real gateways and of the plane, and what is said when one does not answer."""

from __future__ import annotations

import asyncio
import ssl
import time

import pytest
import trustme
from prometheus_client import CollectorRegistry

from dashboards.web.addresses import traffic_url, without_secrets
from dashboards.web.gateways import ask_all, gateway_urls, series_of
from dashboards.web.views.pipeline import (
    NOT_CAPTURED,
    evaluations_of,
    funnel_of,
    open_circuits,
    retiring_of,
    successor_of,
)
from gaugeway.demo.servers import free_ports
from gaugeway.records import Failed, Skipped
from gaugeway.settings.shared import Config, Judge, Monitors, Notifier, Store
from gaugeway.storage.stores import OutcomeCount
from monitors.analysis.gateway_counts import GatewayCounts
from monitors.exporters.instruments import Instruments
from monitors.judges.anchors import AnchorComparison
from tests.support.pages import EVIL, world
from tests.support.running import running_gateway, serving, tcp_server

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


async def upstream(reader, writer):
    await reader.read(65536)
    writer.write(ANSWER)
    await writer.drain()
    writer.close()


async def test_a_real_gateways_exchanges_are_counted_kept_and_add_up_after_a_restart(tmp_path):
    async with tcp_server(upstream) as port:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}
        pages = []
        for _ in range(2):  # both planes end and begin again, their counters at 0
            async with (
                running_gateway(f"http://127.0.0.1:{port}/v1") as gateway,
                serving(gateway.gateway.admin) as admin,
                world(tmp_path, gateways=[f"http://127.0.0.1:{admin}"]) as w,
            ):
                w.site.counts = GatewayCounts(w.store, 30.0)
                await w.site.count_gateways()
                for _ in range(3):
                    await w.client.post(f"http://127.0.0.1:{gateway.port}/v1/chat/completions", json=body)
                await gateway.until(lambda gateway=gateway: gateway.total("gaugeway_exchanges_total") == 3)
                await w.site.count_gateways()
                pages.append(await w.page("/pipeline"))
        first, second = pages
    assert "Captured selected, and put into the queue 3 100.0 %" in first.words
    assert "Captured selected, and put into the queue 6 100.0 %" in second.words


async def test_a_gateway_that_is_away_or_asleep_is_named_and_does_not_hold_the_page(tmp_path):
    async def asleep(reader, writer):
        await reader.read()  # until the other side has enough
        writer.close()

    async def refusing(reader, writer):
        await reader.read(65536)
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    (away,) = free_ports(1)
    async with tcp_server(asleep) as sleeping, tcp_server(refusing) as wary:
        urls = [f"http://127.0.0.1:{port}" for port in (away, sleeping, wary)] + ["http://[bad"]
        async with world(tmp_path, gateways=urls) as w:
            loop = asyncio.get_running_loop()
            begin = loop.time()
            page, took_s = await w.page("/pipeline"), loop.time() - begin
    assert took_s < 60.0  # the gateway that is asleep never answers
    assert page.words.count("cannot be reached") == 4
    assert "no answer within 5 s" in page.words
    assert "HTTP 401" in page.words


async def test_the_gateways_token_goes_along(tmp_path):
    seen = []

    async def listening(reader, writer):
        seen.append(await reader.read(65536))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with tcp_server(listening) as port:
        await ask_all([f"http://127.0.0.1:{port}"], "secret")
    assert b"authorization: Bearer secret" in seen[0].replace(b"Authorization", b"authorization")


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
async def test_a_gateway_whose_certificate_nobody_vouches_for_gets_no_token(scheme):
    context, seen = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def listening(reader, writer):
        seen.append(await reader.read(65536))
        writer.close()

    async with await asyncio.start_server(listening, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        (answer,) = await ask_all([f"{scheme}://127.0.0.1:{port}"], "secret")
        assert "CERTIFICATE_VERIFY_FAILED" in answer.error
    assert seen == []


async def test_what_became_of_samples_is_said_by_metric_and_reason(tmp_path):
    async with world(tmp_path) as w:
        w.instruments.late_scores.inc(4)
        for _ in range(7):
            await w.add(0.5)
        await w.add(Skipped("no_contexts"))
        await w.add(Skipped("no_contexts"))
        await w.add(Failed("judge_timeout"))
        await w.add(0.5, at=time.time() - 2 * 86_400.0)
        page, week = await w.page("/pipeline"), await w.page("/pipeline?since=7d")
    assert "7 of 10 answers have a score. 1 evaluation failed: judge timeout." in page.words
    assert "faithfulness 10 7 2 1 no contexts 2, judge timeout 1 failed" in page.words
    assert "faithfulness 11 8 2 1" in week.words
    assert "Requests that may be answered: chat completions, completions, responses, messages 10 100.0 %" in page.words
    assert "Scored at least one metric has a score 7 70.0 %" in page.words
    assert "Late scores 4" in page.words
    assert "No judge is configured" in page.words


async def test_the_judges_cost_budget_and_savings_are_added_up(tmp_path):
    judge = Judge(base_url="http://127.0.0.1:1/v1", model="judge-1", budget_usd_per_day=1.5)
    async with world(tmp_path, config=Config(judge=judge)) as w:
        w.instruments.judged("j", 1.0, 100, 10, 0.5)
        w.instruments.judged("k", 1.0, 100, 10, 0.25)
        w.instruments.failed("j", "timeout")
        w.instruments.looked_up("j", "hit", 0.1)
        w.instruments.looked_up("j", "miss", 0.0)
        w.instruments.judge_budget_spent.set(0.75)
        w.instruments.judge_budget_factor.set(0.4)
        page = await w.page("/pipeline")
    assert "Responses 2judge-1 Cost 0.75 USDat the configured prices" in page.words
    assert "Saved by the cache 0.10 USD50 % of lookups hit" in page.words
    assert "Spent today 0.75 USDof 1.50 USD" in page.words
    assert "Sampling factor 0.40" in page.words
    assert "j timeout 1" in page.words
    (bar,) = [drawing for drawing in page.all("svg") if "budget" in drawing.get("aria-label", "")]
    assert bar["aria-label"] == "50 % of the day's budget"


def test_an_open_circuit_names_whose_it_is():
    instruments = Instruments(CollectorRegistry(), version="0")
    roles = {"judge-1": "judge", "nli-1": "verifier", "s": "small"}
    for labels in roles.items():
        instruments.judge_blind.labels(*labels).set(0)

    def found():
        return open_circuits(series_of(instruments.registry.collect()))

    assert found() == []
    instruments.judge_blind.labels("nli-1", "verifier").set(1)
    assert found() == [("verifier", "nli-1")]
    instruments.judge_blind.labels("s", "small").set(1)
    instruments.judge_blind.labels("judge-1", "judge").set(1)
    assert found() == [("judge", "judge-1"), ("small", "s"), ("verifier", "nli-1")]


async def test_the_page_names_a_verifier_whose_circuit_is_open_and_freezes_no_judged_metric(tmp_path):
    async with world(tmp_path) as w:
        w.instruments.judge_blind.labels("nli-1", "verifier").set(1)
        words = (await w.page("/pipeline")).words
    assert "The verifier nli-1 is failing; its circuit is open. No answer gets a score of grounding" in words
    assert "fires or resolves" not in words


def counted(outcome, n, reason="", metric="", app="shop"):
    return OutcomeCount(app=app, metric=metric, outcome=outcome, reason=reason, n=n)


def test_each_stage_is_the_one_before_without_its_losses():
    gateway = {"captured": 12, "overflow": 1, "sampled_out": 4, "rejected": 2, "novel": 1}
    stored = [
        counted("score", 4),
        counted("failed", 1, "judge_timeout"),
        counted("skipped", 2, "no_contexts"),
        counted("skipped", 1, "error_response"),
        counted("none", 1),
        counted("score", 40, metric="faithfulness"),
    ]
    found = funnel_of(gateway, stored)
    assert [(one.name, one.count) for one in found.stages] == [
        ("Requests", 20),
        ("Captured", 12),
        ("Stored", 9),
        ("Answered", 8),
        ("Selected", 7),
        ("Evaluated", 5),
        ("Scored", 4),
    ]
    before = found.total
    for stage in found.stages:
        assert stage.count == before - sum(one.count for one in stage.losses)
        before = stage.count
    assert [(one.name, one.count) for one in found.stages[1].losses] == [
        ("sampled_out", 4),
        ("rejected", 2),
        ("overflow", 1),
        ("novel", 1),
    ]
    assert {one.name for stage in found.stages for one in stage.losses if one.bad} == {
        "overflow",
        "not stored",
        "judge_timeout",
    }
    assert "captured" not in NOT_CAPTURED


def test_what_no_reading_counted_is_still_captured():
    found = funnel_of({"captured": 3, "rejected": 1}, [counted("score", 5)])
    assert [one.count for one in found.stages] == [6, 5, 5, 5, 5, 5, 5]
    assert found.uncounted == 2
    assert funnel_of({}, []).total == 0


def test_evaluations_of_nothing_are_none():
    assert evaluations_of([]) == []


@pytest.mark.parametrize(
    ("configured", "gateway", "urls"),
    [
        (None, {}, ("http://127.0.0.1:9464",)),
        (None, {"admin_host": "0.0.0.0", "admin_port": 1}, ("http://127.0.0.1:1",)),
        ((), {"admin_port": 1}, ()),
        (("http://a:1/", "http://b:2"), {"admin_port": 1}, ("http://a:1", "http://b:2")),
    ],
)
def test_the_gateways_are_those_configured_or_that_of_the_file(configured, gateway, urls):
    assert gateway_urls(configured, gateway) == urls


async def test_names_in_counts_are_text(tmp_path):
    async with world(tmp_path) as w:
        await w.add(Skipped(EVIL), metric=EVIL)
        w.instruments.worker_errors.labels(EVIL).inc()
        page = await w.page("/pipeline")
    assert all("src" in one for one in page.all("script"))
    assert not page.all("img")
    assert EVIL in page.text


async def test_settings_show_what_is_configured_and_no_secret(tmp_path):
    config = Config(
        monitors=Monitors(token="secret-1"),
        judge=Judge(base_url="https://u:secret-2@judge.example/v1?key=secret-3", model="judge-1", api_key="secret-4"),
        store=Store(url="postgresql://me:secret-5@db/quality"),
        notifiers=(Notifier(kind="slack", name="team", options={"url": "https://hooks.example/secret-6"}),),
        upstreams=({"name": "main", "base_url": "https://secret-7@llm.example/v1", "api_key": "secret-8"},),
        gateway={"port": 8181, "admin_token": "secret-9"},
    )

    async with world(tmp_path, config=config, token="secret-1", gateways=["http://127.0.0.1:9464"]) as w:
        bearer = {"authorization": "Bearer secret-1"}
        page = await w.page("/settings", **bearer)
    assert "secret-" not in page.text
    for shown in ("judge-1", "https://judge.example/v1", "postgresql://db/quality", "team", "https://llm.example/v1"):
        assert shown in page.text
    assert 'base_url="http://127.0.0.1:8181/v1"' in page.text
    assert '- targets: ["127.0.0.1:9464", "127.0.0.1:' in page.text
    assert "credentials_file" in page.text


def test_where_clients_go_is_where_the_gateway_listens():
    assert traffic_url({}, "h") == "http://127.0.0.1:8080/v1"
    assert traffic_url({"host": "0.0.0.0", "port": 1}, "box.example") == "http://box.example:1/v1"
    assert traffic_url({"host": "::", "port": 1}, "::1") == "http://[::1]:1/v1"


def test_a_url_that_is_none_is_not_shown():
    assert without_secrets("http://[secret") == "(not a URL)"


def test_a_judge_that_goes_away_is_named_with_how_its_successor_agrees():
    common = {"metric": "faithfulness", "shift": -0.02}
    found = AnchorComparison(n=30, failed=0, disagreement=0.1, low=0.03, high=0.26, **common)

    instruments = Instruments(CollectorRegistry(), version="0")
    instruments.judge_shutdown.labels("old-1").set(2_000_000_000.0)
    instruments.judge_shutdown.labels("later").set(3_000_000_000.0)
    instruments.agreed_with_next("new-2", "faithfulness", found)
    series = series_of(instruments.registry.collect())
    assert [(one.model, one.near) for one in retiring_of(series, 2_000_000_000.0 - 86_400.0)] == [
        ("old-1", True),
        ("later", False),
    ]
    days = [[one.days for one in retiring_of(series, now)] for now in (2_000_000_000.0 - 86_400.0, 2_000_100_000.0)]
    assert [one[0] for one in days] == [1, -1], "calendar days, as in the log"
    (row,) = successor_of(series)
    assert (row.model, row.metric, row.ratio, row.low, row.high) == ("new-2", "faithfulness", 0.9, 0.74, 0.97)
    assert (row.anchors, row.shift) == (30.0, -0.02)
    all_failed = AnchorComparison(n=0, failed=30, disagreement=0.0, low=0.0, high=1.0, **common)
    instruments.agreed_with_next("new-2", "faithfulness", all_failed)
    assert successor_of(series_of(instruments.registry.collect())) == ()


async def test_the_funnel_and_the_table_of_metrics_use_different_words_for_different_counts(tmp_path):
    """An exchange without an answer is an evaluation of its metric, and no answer that a metric was selected for."""

    async with world(tmp_path) as w:
        for n in range(5):
            await w.add(0.9, id=f"a{n}", at=time.time() - 1000.0)
        for n in range(3):
            await w.add(Skipped("error_response"), id=f"s{n}", at=time.time() - 1000.0)
        page = await w.page("/pipeline")
    assert "All answers have a score. Queue" in page.words
    assert "Selected answers that at least one metric was selected for 5" in page.words
    assert "Metric Evaluations Scored Skipped" in page.words
    assert "faithfulness 8 5 3" in page.words
    assert "Sampled" not in page.words

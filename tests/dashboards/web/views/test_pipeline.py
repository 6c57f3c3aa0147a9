"""Where every exchange went: counts of real gateways and of the plane, and what is said when one does not answer."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from dashboards.web.gateway_scrape import Series, ask_all, gateway_urls, series_of
from dashboards.web.views.pipeline import OUTCOMES, evaluations_of, judging_of, parts_of, retiring_of, successor_of
from dashboards.web.views.setup import traffic_url, without_secrets
from gateway.demo.servers import free_ports
from monitors.config import Config, Judge, Monitors, Notifier, Store
from monitors.exporters.instruments import Instruments
from monitors.judges.anchors import Agreement
from monitors.records import Failed, Skipped
from tests.support.pages import EVIL, world
from tests.support.running import running_gateway, serving, tcp_server

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def run(path, scenario, **options):
    async def main():
        async with world(path, **options) as made:
            return await scenario(made)

    return asyncio.run(main())


async def upstream(reader, writer):
    await reader.read(65536)
    writer.write(ANSWER)
    await writer.drain()
    writer.close()


def test_a_real_gateways_exchanges_are_shown_and_add_up(tmp_path):
    async def main():
        async with (
            tcp_server(upstream) as port,
            running_gateway(f"http://127.0.0.1:{port}/v1") as gateway,
            serving(gateway.gateway.admin) as admin,
            world(tmp_path, gateways=[f"http://127.0.0.1:{admin}"]) as w,
        ):
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}
            for _ in range(3):
                await w.client.post(f"http://127.0.0.1:{gateway.port}/v1/chat/completions", json=body)
            await gateway.until(lambda: gateway.total("gaugeway_exchanges_total") == 3)
            return await w.page("/pipeline")

    page = asyncio.run(main())
    assert "3 exchanges, each with exactly one outcome" in page.words
    assert "captured: queued for evaluation 3 100.0 %" in page.words


def test_a_gateway_that_is_away_or_asleep_is_named_and_does_not_hold_the_page(tmp_path):
    async def asleep(reader, writer):
        await reader.read()  # until the other side has enough
        writer.close()

    async def refusing(reader, writer):
        await reader.read(65536)
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main():
        (away,) = free_ports(1)
        async with tcp_server(asleep) as sleeping, tcp_server(refusing) as wary:
            urls = [f"http://127.0.0.1:{port}" for port in (away, sleeping, wary)] + ["http://[bad"]
            async with world(tmp_path, gateways=urls) as w:
                loop = asyncio.get_running_loop()
                begin = loop.time()
                return await w.page("/pipeline"), loop.time() - begin

    page, took_s = asyncio.run(main())
    assert took_s < 60.0  # the gateway that is asleep never answers
    assert page.words.count("cannot be reached") == 4
    assert "no answer within 1 s" in page.words
    assert "HTTP 401" in page.words


def test_the_gateways_token_goes_along(tmp_path):
    seen = []

    async def listening(reader, writer):
        seen.append(await reader.read(65536))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main():
        async with tcp_server(listening) as port:
            await ask_all([f"http://127.0.0.1:{port}"], "secret")

    asyncio.run(main())
    assert b"authorization: Bearer secret" in seen[0].replace(b"Authorization", b"authorization")


def test_what_became_of_samples_is_said_by_metric_and_reason(tmp_path):
    async def scenario(w):
        count = w.instruments.evaluations
        count.labels("faithfulness", "score", "").inc(7)
        count.labels("faithfulness", "skipped", "no_contexts").inc(2)
        count.labels("faithfulness", "failed", "judge_timeout").inc(1)
        w.instruments.late_scores.inc(4)
        await w.add(Skipped("no_contexts"))
        await w.add(Failed("judge_timeout"))
        return await w.page("/pipeline")

    page = run(tmp_path, scenario)
    assert "faithfulness 7 2 1 no contexts 2, judge timeout 1 failed" in page.words
    assert "Late scores 4" in page.words
    assert "No judge is configured" in page.words


def test_the_judges_cost_budget_and_savings_are_added_up():
    instruments = Instruments(CollectorRegistry(), version="0")
    instruments.judged("j", 1.0, 100, 10, 0.5)
    instruments.judged("k", 1.0, 100, 10, 0.25)
    instruments.failed("j", "timeout")
    instruments.looked_up("j", "hit", 0.1)
    instruments.looked_up("j", "miss", 0.0)
    instruments.judge_budget_spent.set(0.75)
    instruments.judge_budget_factor.set(0.4)
    found = judging_of(series_of(instruments.registry.collect()), 1.5)
    assert (found.requests, found.cost_usd, found.saved_usd, found.hit_ratio) == (2.0, 0.75, 0.1, 0.5)
    assert (found.spent_today_usd, found.factor, found.errors) == (0.75, 0.4, (("j timeout", 1.0),))
    assert "50 % of the day" in (found.spent_bar or "")
    assert judging_of(Series(), None).spent_bar is None


def test_an_open_circuit_names_whose_it_is():
    instruments = Instruments(CollectorRegistry(), version="0")
    roles = {"judge-1": "judge", "nli-1": "verifier", "s": "small"}
    for labels in roles.items():
        instruments.judge_blind.labels(*labels).set(0)

    def found():
        judging = judging_of(series_of(instruments.registry.collect()), None)
        return judging.blind, judging.others_blind

    assert found() == (False, ())
    instruments.judge_blind.labels("nli-1", "verifier").set(1)
    assert found() == (False, (("verifier", "nli-1"),))
    instruments.judge_blind.labels("s", "small").set(1)
    instruments.judge_blind.labels("judge-1", "judge").set(1)
    assert found() == (True, (("small judge", "s"), ("verifier", "nli-1")))


def test_the_page_names_a_verifier_whose_circuit_is_open_and_freezes_no_judged_metric(tmp_path):
    async def scenario(w):
        w.instruments.judge_blind.labels("nli-1", "verifier").set(1)
        return await w.page("/pipeline")

    words = run(tmp_path, scenario).words
    assert "The verifier nli-1 is failing; its circuit is open. No answer gets a score of grounding" in words
    assert "fires or resolves" not in words


def test_every_outcome_has_a_row_a_new_one_too_and_shares_add_up():
    parts = parts_of({"captured": 1, "overflow": 1, "novel": 1}, OUTCOMES, ("overflow",))
    assert [one.name for one in parts] == [*OUTCOMES, "novel"]
    assert abs(sum(one.percent for one in parts) - 100.0) < 1e-9
    assert [one.name for one in parts if one.bad] == ["overflow"]


def test_evaluations_of_nothing_are_none():
    assert evaluations_of(Series()) == []


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


def test_names_in_counts_are_text(tmp_path):
    async def scenario(w):
        w.instruments.evaluations.labels(EVIL, "skipped", EVIL).inc()
        w.instruments.worker_errors.labels(EVIL).inc()
        return await w.page("/pipeline")

    page = run(tmp_path, scenario)
    assert all("src" in one for one in page.all("script"))
    assert not page.all("img")
    assert EVIL in page.text


def test_setup_shows_what_is_configured_and_no_secret(tmp_path):
    config = Config(
        monitors=Monitors(token="secret-1"),
        judge=Judge(base_url="https://u:secret-2@judge.example/v1?key=secret-3", model="judge-1", api_key="secret-4"),
        store=Store(url="postgresql://me:secret-5@db/quality"),
        notifiers=(Notifier(kind="slack", name="team", url="https://hooks.example/secret-6"),),
        upstreams=({"name": "main", "base_url": "https://secret-7@llm.example/v1", "api_key": "secret-8"},),
        gateway={"port": 8181, "admin_token": "secret-9"},
    )

    async def scenario(w):
        bearer = {"authorization": "Bearer secret-1"}
        return await w.page("/setup", **bearer)

    page = run(tmp_path, scenario, config=config, token="secret-1", gateways=["http://127.0.0.1:9464"])
    assert "secret-" not in page.text
    for shown in ("judge-1", "https://judge.example/v1", "postgresql://db/quality", "team", "https://llm.example/v1"):
        assert shown in page.text
    assert 'base_url="http://127.0.0.1:8181/v1"' in page.text
    assert '- targets: ["127.0.0.1:9464", "127.0.0.1:' in page.text
    assert "credentials_file" in page.text
    assert "one for every enabled metric, against a baseline learned for each app" in page.words


def test_where_clients_go_is_where_the_gateway_listens():
    assert traffic_url({}, "h") == "http://127.0.0.1:8080/v1"
    assert traffic_url({"host": "0.0.0.0", "port": 1}, "box.example") == "http://box.example:1/v1"
    assert traffic_url({"host": "::", "port": 1}, "::1") == "http://[::1]:1/v1"


def test_a_url_that_is_none_is_not_shown():
    assert without_secrets("http://[secret") == "(not a URL)"


def test_what_the_gateway_refused_has_its_words_even_if_there_was_none():
    (refused,) = [one for one in parts_of({"captured": 1.0}, OUTCOMES) if one.name == "rejected"]
    assert (refused.count, refused.words.startswith("refused by the gateway")) == (0.0, True)


def test_a_judge_that_goes_away_is_named_with_how_its_successor_agrees():
    found = Agreement(metric="faithfulness", n=30, failed=0, ratio=0.9, low=0.74, high=0.97, shift=-0.02)

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
    nobody = Agreement(metric="faithfulness", n=0, failed=30, ratio=0.0, low=0.0, high=1.0, shift=0.0)
    instruments.agreed_with_next("new-2", "faithfulness", nobody)
    assert successor_of(series_of(instruments.registry.collect())) == ()

"""What the context costs, in the running product: the demo's app, priced by usage, judged by claims."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gaugeway.demo.rag import APP, Index, RagApp, handbook, questions
from tests.support.product import product
from tests.support.scripted_model import Model, serve

CONFIG = """
[[upstreams]]
base_url = "{url}"

[judge]
base_url = "{url}"
model = "judge-1"
api_key = "any"

[metrics.faithfulness]
rate = 1.0

[prices."handbook-*"]
input = 2.0
output = 8.0
"""
ASKED = 24


def ask(running):
    """Ask the demo's app as many questions; every other answer is streamed."""

    async def each():
        app = RagApp(Index(handbook()), running.base_url)
        for asked in questions()[:ASKED]:
            await app.ask(asked.question)
        await app.aclose()

    asyncio.run(each())


def test_the_passages_of_an_app_have_tokens_a_price_and_answers_that_rest_on_them(tmp_path):
    with serve(Model()) as url, product(tmp_path, CONFIG.format(url=url)) as running:
        ask(running)
        running.until(
            lambda: len(running.get("/api/exchanges?metric=faithfulness&limit=1000")) >= ASKED,
            60,
            what="all are judged",
        )
        costs = running.get(f"/api/context-costs?app={APP}")
        page = httpx.get(f"{running.monitors}/sources?app={APP}", timeout=60).text
    assert (costs["answers"], costs["usual_k"], costs["most_k"]) == (ASKED, 3, 3)
    assert (costs["measured"], costs["estimated"]) == (ASKED // 2, ASKED // 2)  # streams report no usage unless asked
    assert costs["basis"] == "claims"
    assert costs["judged"] >= ASKED // 2
    first, second, third = costs["positions"]
    assert first["rests_on"]["value"] > 0.5 > third["rests_on"]["value"]
    assert first["tokens"]["value"] > 5
    keep_two, keep_one = (advice["saved"] for advice in costs["advice"])
    assert 0.0 < keep_two["prompt_share"]["value"] < keep_one["prompt_share"]["value"] < 1.0
    tokens = sum(position["answers"] * position["tokens"]["value"] for position in (second, third)) / ASKED
    assert keep_one["tokens"]["value"] == pytest.approx(tokens)
    assert keep_one["usd_per_1000"]["value"] == pytest.approx(1000 * tokens * 2.0 / 1_000_000)
    assert keep_two["rests_on"]["value"] <= keep_one["rests_on"]["value"] < 0.5
    assert "Start a trial" in page
    assert "estimated from characters" in page
    assert "What the context costs" in page
    assert f"/trials/new?app={APP}&amp;max_contexts=1" in page

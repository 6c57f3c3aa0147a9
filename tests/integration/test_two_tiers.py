"""Decisions on every answer and an LLM on a sample in the running product: one estimate narrower than the LLM's own."""

from __future__ import annotations

import zlib

import httpx
import pytest

from tests.support.decision_server import DecisionServer, llm_verbatim, verbatim
from tests.support.llm_server import LLMServer, Reply, Request
from tests.support.product import product

pytestmark = pytest.mark.full

TRUE, FALSE = "The mill was built in 1907 by two brothers.", "It was sold to the city in 1931."
COUNT = 320
CONFIG = """
[[upstreams]]
base_url = "{upstream}"

[judge]
kind = "decisions"
base_url = "{decisions}"
model = "gpt-6-luna"
price_in = 0.10
repeat = 0.0

[judge.anchor]
base_url = "{anchor}"
model = "gpt-5"

[judge.prices."gpt-5"]
input = 2.0
output = 8.0

[metrics.faithfulness]
rate = 0.5

[queue]
target_age_s = 3600  # a busy machine must not lower the rates
"""


def answering(request: Request) -> Reply:
    number = int(request.body["messages"][-1]["content"].split()[-1].rstrip("?"))
    return Reply(content=f"{TRUE} {FALSE}" if number % 2 else TRUE)


def unsure(name, options, texts):
    """Decide as `verbatim`, with probabilities that vary from answer to answer."""
    found = verbatim(name, options, texts)
    if name[0] != "s":
        return found
    doubt = 0.1 + zlib.crc32(texts["question"][0].encode()) % 20 / 100
    supported = abs(found["supported"] - doubt)
    return {"supported": supported, "contradicted": 0.0, "not_mentioned": 1.0 - supported}


def test_the_llms_mean_is_estimated_with_the_decisions_of_all_traffic(tmp_path):
    with LLMServer(answering) as upstream, DecisionServer(unsure) as decisions, LLMServer(llm_verbatim) as anchor:
        config = CONFIG.format(upstream=upstream.url, decisions=decisions.url, anchor=anchor.url)
        with product(tmp_path, config) as running, httpx.Client() as client:
            for number in range(COUNT):
                asked = f"Who built mill {number}?"
                given = {"question": asked, "contexts": [f"{TRUE} It is mill {number}."]}
                body = {"model": "m", "messages": [{"role": "user", "content": asked}], "gaugeway": given}
                reply = client.post(f"{running.base_url}/chat/completions", json=body, timeout=60)
                assert reply.status_code == 200

            def shown():
                return {row["metric"]: row for row in running.get("/api/metrics") if not row["slice"]}

            def complete():
                rows = shown()
                found = [rows.get(name, {"n": 0}) for name in ("faithfulness", "faithfulness~anchor")]
                return found[0]["n"] == COUNT and found[1].get("method") == "powered"

            running.until(complete, 90, what="both tiers have scored and the anchor's mean has its covariate")
            rows = shown()
    by_decisions, by_anchor = rows["faithfulness"], rows["faithfulness~anchor"]
    assert by_anchor["covariate"] == "faithfulness"
    assert by_anchor["correlation"] > 0.9
    assert by_anchor["saving"] > 1.5
    assert by_anchor["mean"] == pytest.approx(0.75, abs=0.03)
    assert by_decisions["mean"] == pytest.approx(0.65, abs=0.05), "another judge has another mean"
    assert 0 < by_anchor["n"] < 0.65 * COUNT
    assert rows["faithfulness~disagreement"]["n"] == by_anchor["n"]
    assert len(decisions.requests) == COUNT
    assert by_decisions["usd"] >= 0.0
    alone = by_anchor["alone_high"] - by_anchor["alone_low"]
    assert alone > 1.2 * (by_anchor["ci_high"] - by_anchor["ci_low"]), "the LLM alone has the wider interval"
    tier = [row["usd_per_1000"] for name, row in rows.items() if f"{name}~anchor" in rows]
    assert sum(tier) == pytest.approx(1000 * 2600 * 0.1e-6, rel=0.01), (
        "one request an answer, divided among its metrics"
    )
    in_window = sum(row["usd_window"] or 0.0 for row in rows.values())
    assert in_window == pytest.approx(sum(row["usd"] for row in rows.values()), rel=0.01), "from the store, as counted"
    assert sum(row["usd"] for row in rows.values()) == pytest.approx(
        COUNT * 2600 * 0.1e-6 + len(anchor.requests) * (10 * 2.0 + 5 * 8.0) * 1e-6, rel=0.01
    )

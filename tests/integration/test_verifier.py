"""The verifier in the running product: every answer has a score, and an outage costs nothing but scores."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.support.hostile_judge import scripted
from tests.support.llm_server import LLMServer, Reply, Request
from tests.support.product import product
from tests.support.verifier_server import VerifierServer, refused

pytestmark = pytest.mark.full

TRUE, FALSE = "The mill was built in 1907 by two brothers.", "It was sold to the city in 1931."
PASSAGE = f"{TRUE} It stands at the river."
CONFIG = """
[[upstreams]]
base_url = "{upstream}"

[judge]
base_url = "{judge}"
model = "judge-1"
next_model = "judge-2"
anchors = "{anchors}"
blind_after = 2

[judge.grounding]
kind = "classify"
base_url = "{verifier}"
model = "nli-1"
timeout_s = 2
max_retries = 0

[metrics.faithfulness]
rate = 1.0
"""


def answering(request: Request) -> Reply:
    """The app's model: right and wrong for every second question."""
    number = int(request.body["messages"][-1]["content"].split()[-1].rstrip("?"))
    return Reply(content=f"{TRUE} {FALSE}" if number % 2 else TRUE)


class JudgeServer(LLMServer):
    """A judge whose list of models announces its end in ten days."""

    def __init__(self) -> None:
        super().__init__(self._answer, lists_models=True)
        self.end = (datetime.now(UTC) + timedelta(days=10)).date().isoformat()

    def _answer(self, request: Request) -> Reply:
        if request.path == "/v1/models":
            models = [{"id": "judge-1", "shutdown_date": self.end}, {"id": "judge-2", "shutdown_date": None}]
            return Reply(body=json.dumps({"object": "list", "data": models}).encode())
        return Reply(content=scripted(request))


class FailingVerifier(VerifierServer):
    """A verifier that fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.down = threading.Event()

    def answer(self, request: Request) -> Reply:
        return refused(503, "down") if self.down.is_set() else super().answer(request)


def ask(running, numbers):
    """Send questions with their passage through the gateway; the ids of the exchanges."""
    ids = []
    with httpx.Client() as client:
        for number in numbers:
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": f"Who built mill {number}?"}],
                "gaugeway": {"question": f"Who built mill {number}?", "contexts": [f"{PASSAGE} It is mill {number}."]},
            }
            reply = client.post(f"{running.base_url}/chat/completions", json=body, timeout=60)
            assert reply.status_code == 200
            ids.append(reply.headers["x-gaugeway-exchange-id"])
    return ids


def evaluations(running, ids):
    """The outcome of `grounding` by exchange, once all are scored."""
    found = {}

    def complete():
        nonlocal found
        for one in ids:
            reply = httpx.get(f"{running.monitors}/api/exchanges/{one}")
            if reply.status_code == 200:
                rows = [row for row in reply.json()["evaluations"] if row["metric"] == "grounding"]
                found |= dict(zip([one], rows, strict=False))
        return len(found) == len(ids)

    running.until(complete, 60, what="all answers are verified")
    return [found[one] for one in ids]


def value(running, line):
    text = httpx.get(f"{running.monitors}/metrics").text
    return next((float(one.split()[-1]) for one in text.splitlines() if one.startswith(line)), None)


def test_every_answer_is_verified_and_an_outage_costs_only_scores(tmp_path):
    anchors = tmp_path / "anchors.jsonl"
    rows = [
        {"id": str(one), "response": TRUE, "retrieved_contexts": [PASSAGE], "expected": {"faithfulness": 1.0}}
        for one in range(5)
    ]
    anchors.write_text("\n".join(map(json.dumps, rows)))
    with LLMServer(answering) as upstream, JudgeServer() as judge, FailingVerifier() as verifier:
        config = CONFIG.format(upstream=upstream.url, judge=judge.url, verifier=verifier.url, anchors=anchors)
        with product(tmp_path, config) as running:
            ids = ask(running, range(10))
            scores = evaluations(running, ids)
            assert [one["outcome"]["value"] for one in scores] == pytest.approx([0.97, 0.505] * 5)
            assert {one["judge"] for one in scores} == {"nli-1"}
            bad = httpx.get(f"{running.monitors}/exchanges/{ids[1]}?claims=grounding").text
            assert f'<mark class="claim not_mentioned" id="said-2" data-claims="2">{FALSE}</mark>' in bad

            verifier.down.set()
            begin = time.monotonic()
            late = ask(running, range(20, 40))
            assert time.monotonic() - begin < 10.0
            failed = evaluations(running, late)
            assert {one["outcome"]["error"] for one in failed} <= {"server_error", "blind"}
            assert value(running, 'gaugeway_judge_blind{judge_model="nli-1",role="verifier"}') == 1.0
            judged = httpx.get(f"{running.monitors}/api/exchanges/{late[-1]}").json()["evaluations"]
            assert next(one for one in judged if one["metric"] == "faithfulness")["outcome"]["kind"] == "score"

            line = 'gaugeway_judge_shutdown_timestamp_seconds{judge_model="judge-1"}'
            assert value(running, line) == pytest.approx(time.time() + 10 * 86_400, abs=2 * 86_400)
            ratio = 'gaugeway_judge_next_agreement_ratio{judge_model="judge-2",metric="faithfulness"}'
            running.until(lambda: value(running, ratio) is not None, 60, what="the successor judged the anchors")
            assert value(running, ratio) == 1.0
            page = httpx.get(f"{running.monitors}/pipeline").text
            assert "shuts down <strong>judge-1</strong>" in page
            assert "Agreement of the next judge" in page
            assert "its endpoint shuts down judge-1" in running.log.read_text()

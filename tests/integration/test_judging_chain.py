"""Everything around the judge at once, through the product: tiers, cache, budget, audits, anchors, an outage."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time

import httpx
import pytest

from tests.support.hostile_judge import scripted
from tests.support.llm_server import LLMServer, Reply, error
from tests.support.product import Webhook, product
from tests.support.scripted_model import Model, serve

BUDGET = 6_000.0
CONFIG = """
[[upstreams]]
base_url = "{upstream}"

[judge]
base_url = "{large}"
model = "judge-large"
mode = "separate"
timeout_s = 10
concurrency = 8
max_retries = 0
blind_after = 5
blind_s = 1
budget_usd_per_day = {budget}
cache = "file"
anchors = "{anchors}"

[judge.prices."judge-small"]
input = 1.0
output = 4.0

[judge.prices."judge-large"]
input = 10.0
output = 40.0

[judge.small]
base_url = "{small}"
model = "judge-small"
verbatim = true
audit_rate = 1.0

[metrics.faithfulness]
rate = 1.0

[metrics.hallucination]
enabled = false

[metrics.context_relevancy]
enabled = false

[metrics.answer_relevancy]
enabled = false

[alerts]
bucket_s = 1
watermark_s = 1

[[alerts.rules]]
metric = "faithfulness"
slo = 0.6

[[notifiers]]
kind = "webhook"
url = "{hook}"
"""
TOKENS = (400, 60)
USD = {"judge-small": (400 * 1.0 + 60 * 4.0) / 1e6, "judge-large": (400 * 10.0 + 60 * 40.0) / 1e6}
KINDS = ("verbatim", "verbatim", "worded", "worded", "worded", "unsure", "unsure", "mistaken")
DISTINCT, TIMES = 60, 4


def exchange(number, kind):
    """What the app asks, finds and is answered: the answer is a context's sentence, or says the same in other words.

    Of rings the small judge has no idea, and moons it gets wrong.
    """
    thing = {"unsure": "Ring", "mistaken": "Moon"}.get(kind, "Crater")
    wide = 40 + number
    context = f"{thing} {number} is {wide} kilometres wide. It was mapped in {1900 + number}."
    said = wide + 500 if kind == "wrong" else wide
    answer = f"{thing} {number} is {'' if kind == 'verbatim' else 'about '}{said} kilometres wide."
    return {
        "model": "m",
        "messages": [{"role": "user", "content": f"Repeat after me: {answer}"}],
        "gaugeway": {"app": "atlas", "question": f"How wide is {thing} {number}?", "contexts": [context]},
    }


class Judges:
    """The two models: a small one that is not always right, and a large one that can fail."""

    def __init__(self):
        self.failing = False
        self.small = LLMServer(self._small)
        self.large = LLMServer(self._large)

    def _small(self, request):
        if "Ring" in request.text:
            return Reply(content="I would rather not say.", tokens=TOKENS)
        found = scripted(request)
        if "Moon" in request.text and "verdicts" in found:
            found = {"verdicts": [one | {"verdict": "not_mentioned", "contexts": []} for one in found["verdicts"]]}
        return Reply(content=found, tokens=TOKENS)

    def _large(self, request):
        return error(500, "broken") if self.failing else Reply(content=scripted(request), tokens=TOKENS)

    def __enter__(self):
        self.small.__enter__()
        self.large.__enter__()
        return self

    def __exit__(self, *_):
        self.small.__exit__()
        self.large.__exit__()


class Traffic:
    """Exchanges of some kinds at a steady pace until it is left."""

    def __init__(self, base_url, kinds, *, per_s=8):
        self._url, self._kinds, self._pause = f"{base_url}/chat/completions", kinds, 1 / per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.statuses = []

    def _run(self):
        with httpx.Client(timeout=60) as client:
            number = 1000
            while not self._stop.wait(self._pause):
                number += 1
                body = exchange(number, self._kinds[number % len(self._kinds)])
                self.statuses.append(client.post(self._url, json=body).status_code)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


class MonitorsState:
    """What the monitors' /metrics and store say."""

    def __init__(self, running):
        self._running = running

    def __call__(self, name, **labels):
        return self._running.value(self._running.monitors, f"gaugeway_{name}", **labels)

    @property
    def spent(self):
        return self("judge_budget_spent_usd")

    @property
    def cost(self):
        return self("judge_cost_usd_total")

    def evaluated(self, metric="lexical_groundedness"):
        return self("evaluations_total", metric=metric)

    def rows(self, query):
        with contextlib.closing(sqlite3.connect(self._running.data / "store.db")) as connection:
            return connection.execute(query).fetchall()

    def idle(self):
        return self("queue_depth") == 0


def anchors(path):
    """Three whose score everybody knows, and one that expects what no judge will say."""
    lines = []
    for number, expected in ((1, 1.0), (2, 1.0), (3, 1.0), (4, 0.0)):
        body = exchange(number, "worded")
        about = body["gaugeway"]
        lines.append(
            {
                "id": f"a{number}",
                "user_input": about["question"],
                "response": body["messages"][0]["content"].removeprefix("Repeat after me: "),
                "retrieved_contexts": about["contexts"],
                "expected": {"faithfulness": expected},
            }
        )
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return path


def test_the_whole_chain_of_judging_through_the_product(tmp_path):
    if (left_s := 86_400.0 - time.time() % 86_400.0) < 60.0:  # what is spent is counted by UTC day
        time.sleep(left_s)
    with serve(Model()) as upstream, Judges() as judges, contextlib.closing(Webhook()) as hook:
        config = CONFIG.format(
            upstream=upstream,
            large=judges.large.url,
            small=judges.small.url,
            hook=hook.url,
            budget=BUDGET,
            anchors=anchors(tmp_path / "anchors.jsonl"),
        )
        with product(tmp_path, config) as running:
            plane = MonitorsState(running)
            of_anchors = anchored(running, plane)
            send_all(running, plane)
            told(plane, judges)
            within_the_budget(plane)
            spent = restarted(running, plane, judges)
            assert spent >= of_anchors
            assert hook.bodies == []
            outage(running, plane, judges, hook)


def anchored(running, plane):
    """The anchors are judged at the start, by the judges as they are now."""
    running.until(lambda: plane("judge_drift_ratio", metric="faithfulness") > 0, 60, what="the anchors are judged")
    assert plane("judge_drift_ratio", metric="faithfulness") == 0.25
    assert plane("judge_drift_shift", metric="faithfulness") == 0.25
    assert plane("judge_cache_lookups_total") == 0, "what is asked is how the judge is now"
    return plane.cost


def send_all(running, plane):
    """240 exchanges, each four times."""
    with httpx.Client(timeout=60) as client:
        for _ in range(TIMES):
            for number in range(DISTINCT):
                body = exchange(number, KINDS[number % len(KINDS)])
                assert client.post(f"{running.base_url}/chat/completions", json=body).status_code == 200
    count = DISTINCT * TIMES
    running.until(lambda: plane.evaluated() == count, 60, what="all are evaluated")
    running.until(plane.idle, 60, what="nothing is under way")


def told(plane, judges):
    """Tiers, audits, cache and bills say what the judges' own logs say."""
    tier = {(t, o): plane("judge_tier_total", tier=t, outcome=o) for t in TIERS for o in ("sure", "unsure", "failed")}
    assert tier["verbatim", "sure"] > 0
    assert tier["verbatim", "unsure"] > 0
    assert tier["small", "sure"] > 0
    assert tier["small", "failed"] > 0, "of rings it says nothing that can be read"
    assert tier["large", "sure"] > 0
    for model, server in (("judge-small", judges.small), ("judge-large", judges.large)):
        assert plane("judge_requests_total", judge_model=model) == len(server.requests)
        assert plane("judge_cost_usd_total", judge_model=model) == pytest.approx(len(server.requests) * USD[model])
    compared = plane("judge_agreement_count", tier="small", sure="true")
    agreed = plane("judge_agreement_sum", tier="small", sure="true") / compared
    assert compared == tier["small", "sure"], "every answer that was believed is audited"
    assert 0.5 < agreed < 1.0, "all but the moons"
    assert plane("judge_agreement_count", tier="verbatim") == plane("judge_agreement_sum", tier="verbatim") > 0
    hits = plane("judge_cache_lookups_total", result="hit")
    saved = plane("judge_cache_saved_usd_total")
    assert hits > 0
    assert hits * USD["judge-small"] < saved < hits * 4 * USD["judge-large"]
    assert plane("evaluation_cost_usd_total") == pytest.approx(plane.cost), "every call is on a bill"
    assert 0.0 < plane("evaluation_cost_usd_total", app="atlas", metric="faithfulness") < plane.cost


TIERS = ("verbatim", "small", "large")


def within_the_budget(plane):
    """The rates are lowered, for judged metrics only, and every evaluation says by how much."""
    rates = dict(plane.rows("SELECT metric, min(rate) FROM evaluations GROUP BY metric"))
    assert 0.0 < rates["faithfulness"] < 1.0
    assert rates["lexical_groundedness"] == 1.0
    judged, of = plane.evaluated("faithfulness"), plane.evaluated()
    assert 20 < judged < of
    ((weight,),) = plane.rows("SELECT sum(1 / rate) FROM evaluations WHERE metric = 'faithfulness'")
    assert weight == pytest.approx(of, rel=0.5), "the weights of those that were judged stand for all"
    assert 0.0 < plane("judge_budget_factor") <= 1.0  # once all is judged, it rises again
    assert plane.spent == pytest.approx(plane.cost)
    assert plane.spent < BUDGET
    ((rate, value),) = plane.rows(
        "SELECT avg(rate), sum(value / rate) / sum(1 / rate) FROM evaluations WHERE metric = 'faithfulness'"
    )
    assert rate < 1.0
    assert value > 0.75


def restarted(running, plane, judges):
    """What was spent and what was answered is still known."""
    before, asked = plane.spent, len(judges.large.requests)
    running.stop()
    running.start()
    running.until(lambda: plane.spent >= before, 60, what="the spending of before is known")
    running.until(lambda: plane("judge_drift_ratio", metric="faithfulness") > 0, 60, what="the anchors are judged")
    assert plane.spent == pytest.approx(before + plane.cost)
    assert len(judges.large.requests) > asked
    with httpx.Client(timeout=60) as client:
        running.until(lambda: again(client, running, plane), 60, what="an answer comes from the file")
    assert plane("judge_cache_saved_usd_total") > 0
    return plane.spent


def again(client, running, plane):
    """Send the first ones once more."""
    for number in range(8):
        client.post(f"{running.base_url}/chat/completions", json=exchange(number, KINDS[number])).raise_for_status()
    return plane("judge_cache_lookups_total", result="hit") > 0


def outage(running, plane, judges, hook):
    """The large judge fails while answers get worse: it is the judge that people are told of, until it sees again."""
    judges.failing = True
    with Traffic(running.base_url, ("wrong", "wrong", "unsure")) as traffic:
        running.until(lambda: hook.bodies, 60, what="the blindness is told")
        assert names(hook) == [("GaugewayJudgeBlind", "firing")]
        assert plane("judge_blind", judge_model="judge-large") == 1
        zeros = "SELECT count(*) FROM evaluations WHERE metric = 'faithfulness' AND value = 0"
        begin = plane.rows(zeros)[0][0]
        running.until(lambda: plane.rows(zeros)[0][0] >= begin + 10, 60, what="the small judge sees wrong answers")
        running.until(lambda: plane("judge_errors_total", error="blind") > 0, 60, what="the large one is not asked")
        assert names(hook) == [("GaugewayJudgeBlind", "firing")], "few scores of a judge that fails say nothing"
        judges.failing = False
        running.until(lambda: ("GaugewayJudgeBlind", "resolved") in names(hook), 60, what="its end is told")
        assert plane("judge_blind", judge_model="judge-large") == 0
        running.until(
            lambda: ("GaugewayQualityDrop", "firing") in names(hook),
            120,
            what="now that it answers, the drop is notified",
        )
    assert names(hook).count(("GaugewayJudgeBlind", "firing")) == 1
    assert set(traffic.statuses) == {200}


def names(hook):
    """Which alerts were told, in order."""
    return [(one["labels"]["alertname"], one["status"]) for body in list(hook.bodies) for one in body["alerts"]]

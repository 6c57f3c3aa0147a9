"""Real traffic through the whole product: a judge that changes, a judge that is out, and a night without a change."""

import time

import pytest

from tests.integration.test_alert_causes import BEFORE, causes, last, rounds
from tests.support.scenario import BUCKET_S, WATERMARK_S, anchors, lab


@pytest.mark.parametrize("count", [40, 240], ids=["judged-before", "first-round-still-going-on"])
def test_a_judge_that_becomes_stricter_under_its_old_name_is_the_judge(tmp_path, count):
    (tmp_path / "anchors.jsonl").write_text(anchors(count), "utf-8")
    with lab(tmp_path, rules=[(["shop"], 0.9)], judge=f'anchors = "{tmp_path / "anchors.jsonl"}"') as one:
        one.script.delay_s = 0.03  # the anchors take longer than the alert is in coming
        one.ask(rounds("shop", BEFORE)(), per_s=60)
        one.settle()
        changed_at = time.time()
        one.script.strict = 0.15
        one.ask_until(rounds("shop"), lambda: "judge" in causes(one, "shop"))
        one.took("shop", changed_at)
        assert set(causes(one, "shop")) <= {"judge", "unknown"}, "it looks like a broken retrieval"
        assert f"of {count} anchors" in last(one, "shop")["cause_detail"]


NIGHT_H = 2.0
QUIET = """
[queue]
target_age_s = inf

[metrics.context_relevancy]
enabled = false

[metrics.answer_relevancy]
enabled = false

[metrics.hallucination]
enabled = false
"""
NAIVE = """
[[alerts.rules]]
name = "naive"
metric = "faithfulness"
apps = ["shop"]
slo = 0.85
severity = "compared"
detector = "threshold"
options = {n = 20}
"""


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A product that judges faithfulness alone; the naive rule beside it takes half of the budget and pages nobody."""
    judge = "max_retries = 0\nblind_s = 1"
    with lab(tmp_path_factory.mktemp("calm"), rules=[(["shop"], 0.9)], judge=judge, metrics=QUIET, more=NAIVE) as one:
        yield one


def test_a_quiet_night_pages_nobody(calm):
    """Two hours at exactly the promised mean: with the default budget that is 2/720 = .003 false alarms at most.

    So that it says something that nobody is paged, a mean of the last 20 scores is held against .05 less beside it.
    """
    night_s = NIGHT_H * 3600 * BUCKET_S / 60
    calm.ask(rounds("shop", int(night_s * 86))(), per_s=86)
    calm.settle()
    assert calm.scored("shop") > 900  # of 1,032; on a busy machine a call to the judge may time out
    assert abs(calm.mean("shop") - 0.9) < 0.015
    time.sleep(2 * WATERMARK_S)
    rules = [one["rule"] for one in calm.running.get("/api/alerts") if one["state"] != "pending"]
    assert set(rules) == {"naive"}
    print(f"{calm.scored('shop'):.0f} scores, mean {calm.mean('shop'):.3f}; the naive rule fired {len(rules)} times")  # noqa: T201
    assert calm.hook.bodies == []
    assert calm.alertmanager.alerts() == []


def test_a_judge_that_is_out_is_told_as_such_until_it_answers_again(calm):
    calm.ask(rounds("shop", 100)())
    calm.settle()
    calm.script.failing = 500
    calm.ask_until(rounds("shop"), lambda: calm.told("*"))
    assert calm.told("*")[0]["labels"]["alertname"] == "GaugewayJudgeBlind"
    calm.script.failing = 0
    calm.ask_until(rounds("shop"), lambda: calm.told("*", "resolved"))
    calm.running.until(lambda: not calm.alertmanager.alerts(), 60, what="nothing is active at Alertmanager")
    names = {alert["labels"]["alertname"] for body in calm.hook.bodies for alert in body["alerts"]}
    assert names == {"GaugewayJudgeBlind"}

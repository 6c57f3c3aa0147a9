"""Between an alarm and the anchors' answer: what they said before the drop is no evidence about the time since."""

import asyncio
import math

import pytest
from prometheus_client import CollectorRegistry

from monitors.alerting.causes import JudgeEvidence, Observation, explain
from monitors.alerting.description import JudgeSignals
from monitors.alerting.engine import AlertEngine
from monitors.config import Judge
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges.anchors import Drift
from tests.support.alerting import TRIO, World

ASKED = JudgeEvidence(drifted=False, detail="2% of 40 anchors", pending=True)
FINE = JudgeEvidence(drifted=False, detail="2% of 40 anchors")
STRICTER = JudgeEvidence(drifted=True, detail="60% of 40 anchors")


def seen(metric, mean, n=150, judge="j"):
    return [
        Observation(
            sample_id=f"{mean} {i}",
            metric=metric,
            started_at=float(i),
            rate=1.0,
            outcome="score",
            value=mean + 0.05 * math.cos(i),
            reason="",
            version="1",
            judge=judge,
            strata={},
        )
        for i in range(n)
    ]


BEFORE = [*seen("faithfulness", 0.9), *seen("context_relevancy", 0.8)]
BOTH_FELL = [*seen("faithfulness", 0.7), *seen("context_relevancy", 0.6)]
ANSWERS_FELL = [*seen("faithfulness", 0.7), *seen("context_relevancy", 0.8)]


@pytest.mark.parametrize(
    ("since", "judge", "cause"),
    [
        (BOTH_FELL, ASKED, "unknown"),
        (BOTH_FELL, FINE, "retrieval"),
        (BOTH_FELL, STRICTER, "judge"),
        (ANSWERS_FELL, ASKED, "generation"),
    ],
)
def test_what_looks_like_a_stricter_judge_is_left_open_while_the_anchors_are_judged(since, judge, cause):
    found = explain("faithfulness", BEFORE, since, judge=judge)
    assert found.cause == cause
    assert ("anchors are being judged" in found.detail) == (cause == "unknown")


def test_a_fall_of_the_retrieval_that_no_judge_scored_is_not_left_open():
    before = [*seen("faithfulness", 0.9), *seen("mrr", 0.8, judge=None)]
    since = [*seen("faithfulness", 0.7), *seen("mrr", 0.6, judge=None)]
    assert explain("faithfulness", before, since, judge=ASKED).cause == "retrieval"


def test_the_anchors_word_is_pending_from_the_suspicion_until_they_were_judged_again():
    judging = open_judge(Judge(base_url="http://h/v1", model="m"), Instruments(CollectorRegistry(), version="0"))
    drift = {"metric": "faithfulness", "n": 40, "failed": 0, "low": 0.0, "high": 0.1}
    judging.recheck_anchors()
    judging.drifts["faithfulness"] = Drift(**drift, disagreement=0.0, shift=0.0)
    assert not judging.evidence("faithfulness").pending, "nobody judges any anchors"
    woken = []
    judging.wake_anchors.append(lambda: woken.append("anchors"))
    judging.recheck_anchors()
    assert judging.evidence("faithfulness").pending
    judging.drifts["faithfulness"] = Drift(**drift, disagreement=0.0, shift=0.0)
    assert not judging.evidence("faithfulness").pending
    assert woken == ["anchors"]


class Suspicious(World):
    """A world with anchors: `said` is what they say."""

    said = FINE

    def restart(self):
        async def oldest():
            return self.oldest

        def ask():
            self.said = ASKED

        self.engine = AlertEngine(
            self.rules,
            self.config,
            self.store,
            self.store,
            queue_oldest=oldest,
            notifiers=self.notifiers,
            clock=lambda: self.now,
            lower_is_better=lambda _: False,
            judge=JudgeSignals(metrics=TRIO, evidence=lambda _: self.said, on_alarm=ask),
        )
        return self.engine


def test_a_firing_alert_is_explained_again_once_when_the_anchors_were_judged(tmp_path):
    async def scenario():
        world = Suspicious(tmp_path / "store.db")
        try:
            await world.minutes([0.95] * 30, metrics=TRIO)
            await world.minutes([0.5] * 20, metrics=TRIO)
            asked = world.alert
            world.said = STRICTER
            await world.tick()
            answered = world.alert
            await world.tick()
            assert world.alert is answered, "nothing new was said"
            return asked.likely_cause, answered.likely_cause, answered.finding.n - asked.finding.n
        finally:
            await world.engine.aclose()
            await world.store.aclose()

    assert asyncio.run(scenario()) == ("unknown", "judge", 0)

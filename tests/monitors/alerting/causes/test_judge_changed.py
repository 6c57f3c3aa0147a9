"""Between an alarm and the anchors' answer: what they said before the drop is no evidence about the time since."""

import asyncio
import contextlib
import json
import math

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from gaugeway.runtime.tasks import spawn
from gaugeway.settings.shared import Judge
from monitors.alerting.causes import JudgeEvidence, Observation, explain
from monitors.alerting.description import JudgeSignals
from monitors.alerting.engine import AlertEngine
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges.anchors import AnchorWatch
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


class Rounds:
    """Anchors that a judge scores as `score` says, one round at a time."""

    def __init__(self, path, anchored=("faithfulness",)):
        line = {"user_input": "q", "response": "r", "retrieved_contexts": ["c"]}
        path.write_text(json.dumps({**line, "expected": dict.fromkeys(anchored, 1.0)}), "utf-8")
        settings = Judge(base_url="http://h/v1", model="m", anchors=str(path))
        self.judging = open_judge(settings, Instruments(CollectorRegistry(), version="0"))
        self.begun, self.go_on, self.over = asyncio.Queue(), asyncio.Queue(), asyncio.Queue()
        self.watch = AnchorWatch(self.judging.anchors, self._score, on_drift=self._note)
        self.judging.anchor_watches.append(self.watch)

    async def _score(self, sample, metric):
        self.begun.put_nowait(sample.id)
        return await self.go_on.get()

    def _note(self, drift):
        self.judging.show_drift(drift)
        self.over.put_nowait(drift)

    async def end(self, score=1.0):
        """Let the present round end."""
        await self.begun.get()
        self.go_on.put_nowait(score)
        await self.over.get()

    def pending(self, metric="faithfulness"):
        return (evidence := self.judging.evidence(metric)) and evidence.pending


@contextlib.asynccontextmanager
async def rounds_at(path):
    rounds = Rounds(path)
    task = spawn(rounds.watch.run(), name="anchors")
    try:
        async with asyncio.timeout(60):
            yield rounds
    finally:
        task.cancel()


async def test_results_of_the_anchors_are_pending_from_the_request_until_the_next_round_is_over(tmp_path):
    async with rounds_at(tmp_path / "anchors.jsonl") as rounds:
        assert rounds.pending(), "the first round is not over"
        assert rounds.judging.evidence("context_relevancy") is None, "no anchor has a score of it"
        await rounds.end()
        assert not rounds.pending()
        rounds.judging.recheck_anchors()
        assert rounds.pending()
        await rounds.end(score=0.0)
        assert not rounds.pending()
        assert rounds.judging.evidence("faithfulness").detail.startswith("100% of 1 anchors")


async def test_a_round_that_was_going_on_at_the_request_does_not_answer_it(tmp_path):
    async with rounds_at(tmp_path / "anchors.jsonl") as rounds:
        await asyncio.sleep(0)
        rounds.begun.put_nowait(await rounds.begun.get())  # the first round has begun
        rounds.judging.recheck_anchors()
        await rounds.end()
        assert rounds.pending()
        await rounds.end()
        assert not rounds.pending()


def test_nothing_is_pending_where_no_anchors_are_judged(tmp_path):
    judging = Rounds(tmp_path / "anchors.jsonl").judging
    judging.anchor_watches.clear()
    judging.recheck_anchors()
    assert judging.evidence("faithfulness") is None


class Suspicious(World):
    """A world with anchors: `said` is what they say, `requested` what they say once an alarm requested a round."""

    said, requested = FINE, ASKED

    def restart(self):
        async def oldest():
            return self.oldest

        def ask():
            self.said = self.requested

        self.engine = AlertEngine(
            self.rules,
            self.config,
            self.store,
            self.store,
            notify_within_s=300.0,  # a busy machine describes an alert in its own time
            queue_oldest=oldest,
            notifiers=self.notifiers,
            clock=lambda: self.now,
            lower_is_better=lambda _: False,
            judge=JudgeSignals(metrics=TRIO, evidence=lambda _: self.said, on_alarm=ask),
        )
        return self.engine


async def test_a_firing_alert_is_explained_again_once_when_the_anchors_were_judged(tmp_path):
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
        assert (asked.likely_cause, answered.likely_cause, answered.finding.n - asked.finding.n) == (
            "unknown",
            "judge",
            0,
        )
    finally:
        await world.engine.aclose()
        await world.store.aclose()


async def test_an_alert_that_resolved_during_a_round_is_explained_by_that_round_only(tmp_path):
    world = Suspicious(tmp_path / "store.db")
    try:
        for value, minutes in ((0.95, 30), (0.5, 20), (0.95, 60)):
            await world.minutes([value] * minutes, metrics=TRIO)
        asked = world.alert
        world.said = STRICTER
        await world.tick()
        answered = world.alert
        world.said = FINE
        await world.tick()
        assert world.alert is answered, "a later round is not about the drop"
    finally:
        await world.engine.aclose()
        await world.store.aclose()
    assert (asked.state, asked.likely_cause, answered.likely_cause) == ("resolved", "unknown", "judge")
    assert "anchors are being judged" in asked.cause_detail
    assert (answered.state, answered.ended_at, answered.mean_since) == ("resolved", asked.ended_at, asked.mean_since)


@pytest.mark.full
@pytest.mark.parametrize("later", [None, ASKED, FINE], ids=["no-result", "in-progress", "back-to-normal"])
async def test_a_judge_that_was_found_stricter_stays_the_cause_of_the_alert(tmp_path, later):
    world = Suspicious(tmp_path / "store.db")
    try:
        await world.minutes([0.95] * 30, metrics=TRIO)
        await world.minutes([0.5] * 20, metrics=TRIO)
        world.said = STRICTER
        await world.tick()
        found = world.alert
        await world.engine.aclose()
        world.restart()
        world.said = later
        await world.minutes([0.5] * 5, metrics=TRIO)
        before, after = found, world.alert
    finally:
        await world.engine.aclose()
        await world.store.aclose()
    assert before.likely_cause == after.likely_cause == "judge"
    assert after.finding.n > before.finding.n
    assert (after.cause_detail, after.cause_evidence) == (before.cause_detail, ("anchors that moved",))


async def test_anchors_that_moved_before_the_alarm_only_do_not_settle_the_cause(tmp_path):
    world = Suspicious(tmp_path / "store.db")
    try:
        world.requested = replace(STRICTER, pending=True)
        await world.minutes([0.95] * 30, metrics=TRIO)
        await world.minutes([0.5] * 20, metrics=TRIO)
        suspected = world.alert
        world.said = FINE
        await world.tick()
        known = world.alert
    finally:
        await world.engine.aclose()
        await world.store.aclose()
    assert (suspected.likely_cause, suspected.cause_evidence) == ("judge", ("anchors that moved before the alarm",))
    assert known.likely_cause == "retrieval"

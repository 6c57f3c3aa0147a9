"""Anchors: known scores, judged again on a schedule, tell when the judge has changed."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from gaugeway.records import Context, Score
from gaugeway.runtime.tasks import spawn
from monitors.judges import SPEND, Spend
from monitors.judges.anchors import AnchorWatch, compare, read
from monitors.judges.middleware.cache import CachedJudge
from monitors.judges.scripted import Scripted
from monitors.metrics.faithfulness import Faithfulness
from monitors.metrics.judged.claims import Fused

LINE = {
    "id": "a",
    "user_input": "How many moons has Mars?",
    "response": "Two.",
    "retrieved_contexts": ["Mars has two moons."],
    "expected": {"faithfulness": 1.0},
}


def lines(count=1, **changes):
    return [json.dumps({**LINE, "id": f"a{number}", **changes}) for number in range(count)]


def test_anchors_are_read_in_the_words_of_a_data_set():
    (anchor,) = read([*lines(tolerance=0.2), "", "  "])
    assert (anchor.sample.question, anchor.sample.contexts[0].text) == (LINE["user_input"], "Mars has two moons.")
    assert (anchor.expected, anchor.tolerance) == ({"faithfulness": 1.0}, 0.2)
    passage = {"text": "Mars has two moons.", "id": "7", "score": 0.5, "source": "mars.md"}
    (anchor,) = read(lines(retrieved_contexts=[passage, "Two."]))
    assert anchor.sample.contexts == (Context(**passage), Context(text="Two."))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "line 2: "),
        (json.dumps({**LINE, "expected": {"faithfulness": 1.5}}), r"line 2: .*<= 1.0"),
        (json.dumps({**LINE, "expected": {}}), "line 2: "),
        (json.dumps({**LINE, "expcted": {}}), "line 2: .*expcted"),
        (lines()[0], "same id"),
    ],
)
def test_a_wrong_line_is_named(line, what):
    with pytest.raises(ValueError, match=what):
        read([*lines(), line])


def test_scores_beyond_tolerance_disagree_and_the_interval_says_how_surely():
    anchors = read(lines(20))
    right = compare("faithfulness", [(one, 0.9) for one in anchors])
    assert (right.disagreement, right.n, right.failed, right.shift) == (0.0, 20, 0, pytest.approx(-0.1))
    assert not right.drifted
    some = compare("faithfulness", [(one, 0.5 if number < 6 else 1.0) for number, one in enumerate(anchors)])
    assert some.disagreement == 0.3
    assert (some.low, some.high) == (pytest.approx(0.1455, abs=1e-4), pytest.approx(0.5190, abs=1e-4))
    assert some.drifted
    lost = compare("faithfulness", [(one, None) for one in anchors])
    assert (lost.n, lost.failed, lost.low, lost.high, lost.drifted) == (0, 20, 0.0, 1.0, False)


async def test_anchors_are_judged_afresh_on_schedule_and_a_judge_that_changed_is_found_out(caplog):
    caplog.set_level(logging.WARNING)
    verdicts = iter(["supported"] * 20 + ["not_mentioned"] * 20)

    def says(_):
        claim = {"claim": "Two.", "verdict": next(verdicts), "relevance": "relevant", "contexts": [0]}
        claim["quote"] = "two moons"
        return {"noncommittal": False, "claims": [claim]}

    judge = CachedJudge(Scripted(says))
    metric = Faithfulness(Fused(judge))
    drifts, naps = [], []

    async def score(sample, name):
        assert name == "faithfulness"
        if sample.id.endswith("a7"):
            raise RuntimeError("no luck")
        token = SPEND.set(Spend())
        outcome = await metric.score(sample)
        SPEND.reset(token)
        return outcome.value if isinstance(outcome, Score) else None

    async def wait(call, seconds):
        naps.append(seconds)
        call.close()
        if len(naps) == 2:
            raise asyncio.CancelledError
        raise TimeoutError

    watch = AnchorWatch(read(lines(20)), score, every_s=60.0, on_drift=drifts.append, wait=wait)
    with pytest.raises(asyncio.CancelledError):
        await watch.run()
    (before, after) = drifts
    assert (before.disagreement, before.failed, before.drifted) == (0.0, 1, False)
    assert after.disagreement > 0.9
    assert after.drifted
    assert after.shift < -0.9
    assert naps == [60.0, 60.0]
    assert "no luck" in caplog.text


async def test_somebody_who_suspects_the_judge_need_not_wait_for_the_schedule():
    drifts, first, second = [], asyncio.Event(), asyncio.Event()

    async def score(sample, metric):
        return 1.0

    def told(drift):
        drifts.append(drift)
        (second if first.is_set() else first).set()

    watch = AnchorWatch(read(lines(3)), score, every_s=3600.0, on_drift=told)
    task = spawn(watch.run(), name="anchors")
    await asyncio.wait_for(first.wait(), 60)
    await asyncio.sleep(0.05)
    assert len(drifts) == 1
    watch.wake()
    await asyncio.wait_for(second.wait(), 60)
    task.cancel()

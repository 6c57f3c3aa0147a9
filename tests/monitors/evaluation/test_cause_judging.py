"""Extra judging for the cause of an alert: what it finds, what it costs, and that nothing else notices it."""

from __future__ import annotations

import asyncio
import random

import pytest
from prometheus_client import CollectorRegistry

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.sampling import MetricSampler
from gaugeway.settings.shared import Alerts, Config, Judge, Metric, Rule, Sampled
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from monitors.alerting.description import JudgeSignals
from monitors.alerting.engine import AlertEngine
from monitors.app import _engine
from monitors.evaluation.cause_judging import LOOKS_PERIOD_S, MAX_LOOK_S, MAX_LOOKS, CauseJudging
from monitors.evaluation.evaluator import Evaluator, judge_of
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.metrics.registry import build
from tests.support.alerting import People

T0 = 1_760_000_040.0
FOUND = Context(text="The parcel leaves the depot in Leipzig on Monday. The courier is Jens Meyer.")
LOST = Context(text="A loaf weighs one kilogram. The oven is at 230 degrees.")
BEFORE, MOST = 400, 1_200


class Play:
    """The default metrics, a scripted judge and a rule; at some moment the retrieval finds nothing that fits."""

    def __init__(self, path, rule, metrics=None, *, seed=1, samples=40, retrieval=True, **options):
        self.rng = random.Random(seed)
        self.judge = Scripted({"claims_verdicts": self.claims, "context_statements": self.statements})
        self.metrics = build(metrics or {}, self.judge, None).enabled
        self.store, self.now, self.people, self.retrieval = SQLiteStore(path), T0, People(), retrieval
        self.failing, self.seed = False, seed
        judged = [one.metric for one in self.metrics if judge_of(one.metric) is not None]
        self.more = CauseJudging(self.store, judged, samples=samples, **options)

        async def oldest():
            return None

        self.engine = AlertEngine(
            (rule,),
            Alerts(watermark_s=0.0, group_wait_s=0.0),
            self.store,
            self.store,
            notify_within_s=300.0,  # a busy machine describes an alert in its own time
            queue_oldest=oldest,
            notifiers={"people": self.people},
            clock=lambda: self.now,
            lower_is_better=lambda metric: metric == "hallucination",
            judge=JudgeSignals(
                metrics=[one.name for one in judged],
                score_more=self.complete if samples else None,
            ),
        )

    async def complete(self, *sides):
        return await self.more.complete(*sides)

    def claims(self, prompt):
        if self.failing:
            return JudgeError("server_error")
        share = 0.15 if "Hamburg" in prompt.user else 0.9
        verdicts = ["supported" if self.rng.random() < share else "not_mentioned" for _ in range(3)]
        place = "It is in Hamburg" if "Hamburg" in prompt.user else "The parcel leaves Leipzig"
        quote = "oven is at 230" if "loaf" in prompt.user else "depot in Leipzig"
        evidence = {"contexts": [0], "quote": quote, "relevance": "relevant"}
        claims = [{"claim": f"{place}, {i}.", "verdict": v, **evidence} for i, v in enumerate(verdicts)]
        return {"noncommittal": False, "claims": claims}

    def statements(self, prompt):
        if self.failing:
            return JudgeError("server_error")
        share = 0.05 if "loaf" in prompt.user else 0.8
        text = "The oven is at 230 degrees" if "loaf" in prompt.user else "The courier is Jens Meyer"
        some = [{"statement": f"{text}, {i}.", "relevant": self.rng.random() < share} for i in range(3)]
        return {"contexts": [{"index": 0, "statements": some}]}

    async def run(self, broken=True):
        """Return the first alert that fires, with the evaluations that are stored by then."""
        evaluator = Evaluator(self.metrics, MetricSampler(str(self.seed)))
        try:
            for number in range(BEFORE + (MOST if broken else 100)):
                bad = broken and number >= BEFORE
                sample = Sample(
                    id=f"{self.seed}-{number}",
                    started_at=self.now,
                    app="shop",
                    question=f"Where is parcel {number}?",
                    contexts=(LOST if bad and self.retrieval else FOUND,),
                    response="It is in Hamburg, says Tom." if bad else "The parcel leaves Leipzig on Monday.",
                )
                await self.store.add(sample, await evaluator.evaluate(sample))
                self.now += 1.0
                if number % 20 == 19:
                    self.asked = len(self.judge.asked)
                    await self.engine.tick()
                    await self.engine.aclose()
                    if self.people.alerts:
                        return self.people.alerts[0], await self.store.series(Query(since=T0, until=self.now))
            return None, await self.store.series(Query(since=T0, until=self.now))
        finally:
            await self.store.aclose()


FREQUENT = {"faithfulness": Metric(rate=1.0)}
FAITHFUL, LEXICAL = Rule(metric="faithfulness", slo=0.8), Rule(metric="lexical_groundedness", slo=0.7)


@pytest.mark.full
@pytest.mark.parametrize(("rule", "metrics"), [(FAITHFUL, FREQUENT), (LEXICAL, {}), (FAITHFUL, {})])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_total_break_of_the_retrieval_is_named_in_the_first_notification(tmp_path, rule, metrics, seed):
    alert, _ = asyncio.run(Play(tmp_path / "store.db", rule, metrics, seed=seed).run())
    assert alert.likely_cause == "retrieval"
    assert "context_relevancy fell" in alert.cause_detail


def test_answers_that_leave_good_passages_are_named_generation(tmp_path):
    alert, _ = asyncio.run(Play(tmp_path / "store.db", FAITHFUL, FREQUENT, retrieval=False).run())
    assert alert.likely_cause == "generation"


@pytest.mark.full
@pytest.mark.parametrize("broken", [True, False])
def test_the_extra_scores_are_stored_nowhere_so_that_estimates_and_detectors_stay_as_they_are(tmp_path, broken):
    plays = [Play(tmp_path / f"{samples}.db", FAITHFUL, FREQUENT, samples=samples) for samples in (40, 0)]
    (with_more, stored), (without, stored_without) = (asyncio.run(play.run(broken)) for play in plays)
    assert stored == stored_without
    if broken:
        assert (with_more.finding, with_more.since) == (without.finding, without.since)
        assert (with_more.mean_before, with_more.mean_since) == (without.mean_before, without.mean_since)
        assert (with_more.likely_cause, without.likely_cause) == ("retrieval", "unknown")
        extra = len(plays[0].judge.asked) - plays[0].asked
        assert 0 < extra <= 2 * 40, "one call an exchange, on each side"
    else:
        assert with_more is without is None
        assert len(plays[0].judge.asked) == len(plays[1].judge.asked), "without an alarm nothing is judged"


@pytest.mark.full
@pytest.mark.parametrize("why", ["not allowed", "the judge fails"])
async def test_without_a_judge_that_answers_the_alert_goes_out_with_an_unknown_cause(tmp_path, why):
    play = Play(tmp_path / "store.db", LEXICAL, allowed=lambda: why != "not allowed")

    complete = play.more.complete

    async def failing(*sides):
        play.failing = True
        return await complete(*sides)

    play.more.complete = failing
    alert, _ = await play.run()
    assert alert.likely_cause == "unknown"
    assert (len(play.judge.asked) == play.asked) is (why == "not allowed")


class Counting:
    """A metric of the retrieval that counts how often it is asked, and may take long."""

    name, version, judge = "context_relevancy", "1", "j"

    def __init__(self, clock=None, seconds=0.0):
        self.asked, self.clock, self.seconds = [], clock, seconds

    async def score(self, sample):
        self.asked.append(sample.id)
        if self.clock:
            self.clock[0] += self.seconds
        return Score(0.5)


def with_store(path, scenario, n=30, scored=5):
    async def main():
        store = SQLiteStore(path)
        for number in range(n):
            sample = Sample(id=f"x{number}", started_at=T0 + number, question="q", response="r")
            metrics = ["lexical_groundedness", *(["context_relevancy"] if number < scored else [])]
            made = [
                Evaluation(
                    sample_id=sample.id,
                    metric=one,
                    version="1",
                    outcome=Score(0.9),
                    rate=0.1 if one == "context_relevancy" else 1.0,
                )
                for one in metrics
            ]
            await store.add(sample, made)
        try:
            return await scenario(store, await store.series(Query(since=T0, until=T0 + n)))
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_exchanges_already_scored_are_not_judged_again_and_all_of_them_weigh_the_same(tmp_path):
    metric = Counting()

    async def scenario(store, points):
        return await CauseJudging(store, [metric], samples=20).complete("lexical_groundedness", [], points)

    before, since = with_store(tmp_path / "store.db", scenario)
    found = [point for point in since if point.metric == "context_relevancy"]
    assert before == []
    assert len(found) == len({point.sample_id for point in found}) == 20
    assert {f"x{number}" for number in range(5)} <= {point.sample_id for point in found}
    assert len(metric.asked) == 15
    assert {point.rate for point in found} == {1.0}


def test_how_often_and_how_long_it_judges_is_bounded(tmp_path):
    async def often(store, points):
        now, metric = [0.0], Counting()
        more = CauseJudging(store, [metric], samples=20, clock=lambda: now[0])
        done = [await more.complete("lexical_groundedness", [], points) is not None for _ in range(2 * MAX_LOOKS)]
        now[0] += LOOKS_PERIOD_S
        return done, await more.complete("lexical_groundedness", [], points) is not None

    async def long(store, points):
        now = [0.0]
        more = CauseJudging(store, [Counting(now, MAX_LOOK_S)], samples=20, clock=lambda: now[0])
        return [await more.complete("lexical_groundedness", [], points) is not None for _ in range(3)]

    done, later = with_store(tmp_path / "often.db", often)
    assert done == [True] * MAX_LOOKS + [False] * MAX_LOOKS
    assert later
    assert with_store(tmp_path / "long.db", long) == [True, False, False]


def test_a_judge_that_hangs_holds_nothing_up_for_longer_than_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.evaluation.cause_judging.MAX_LOOK_S", 0.1)

    class Hanging(Counting):
        async def score(self, sample):
            await asyncio.Event().wait()

    async def scenario(store, points):
        return await CauseJudging(store, [Hanging()], samples=20).complete("lexical_groundedness", [], points)

    assert with_store(tmp_path / "store.db", scenario) is None


@pytest.mark.parametrize(("content", "samples", "there"), [(True, 40, True), (False, 40, False), (True, 0, False)])
async def test_it_needs_stored_texts_and_can_be_switched_off(tmp_path, content, samples, there):
    instruments = Instruments(CollectorRegistry(), version="0")
    alerts, capture = Alerts(cause_samples=samples), Sampled(content=content)
    config = Config(judge=Judge(base_url="http://127.0.0.1:9/v1", model="m"), alerts=alerts, capture=capture)
    judging = open_judge(config.judge, instruments)
    store = SQLiteStore(tmp_path / "store.db")
    catalogue = build({}, judging.judge, None)
    engine = _engine(config, MemoryQueue(), store, catalogue, instruments, judging=judging)
    judges = engine._judge  # noqa: SLF001 - that a minute of alarms asks nobody would show too late
    assert (judges.score_more is not None) is there

    await judging.judge.aclose()
    await store.aclose()

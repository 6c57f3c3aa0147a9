"""A judge slower than the traffic: judged less, at a known rate, and the queue stays young."""

import asyncio
import heapq
import random
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from statistics import mean, stdev

import pytest

from gaugeway.records import Sample, Score, Skipped
from gaugeway.sampling import MetricSampler
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.evaluation.backpressure import FLOOR, MOST_UNJUDGED, TARGET_S, JudgePace
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.metrics.registry import Enabled
from monitors.statistics.weighted_mean import hajek

PLACES, PLAIN_S, LOOK_S = 8, 0.01, 2.0


@dataclass
class Simulated:
    """Workers on one queue in simulated time; `seconds(t)` is what judging takes, `per_s(t)` what arrives."""

    seconds: object
    per_s: object
    workers: int = 1
    backlog: int = 0
    rate: float = 1.0
    factors: list = field(default_factory=list)
    ages: list = field(default_factory=list)
    taken: list = field(default_factory=list)

    def run(self, until_s, seed=1):
        self.random = random.Random(seed)
        self.paces = [JudgePace(PLACES) for _ in range(self.workers)]
        self.free = [PLACES] * self.workers
        self.waiting, self.events, self.numbers = deque([0.0] * self.backlog), [], count()
        self._at(0.0, self._arrive)
        self._at(0.0, self._look)
        while self.events and self.events[0][0] <= until_s:
            now, _, act = heapq.heappop(self.events)
            act(now)
            self._lease(now)
        return self

    def between(self, begin, end, values):
        return [value for at, value in values if begin <= at < end]

    def _at(self, when, act):
        heapq.heappush(self.events, (when, next(self.numbers), act))

    def _arrive(self, now):
        self.waiting.append(now)
        self._at(now + self.random.expovariate(self.per_s(now)), self._arrive)

    def _look(self, now):
        held = [PLACES - free for free in self.free]
        for pace, own in zip(self.paces, held, strict=True):
            pace.observe_queue(ready=len(self.waiting), leased=sum(held), held=own, now=now)
        self.factors.append((now, self.paces[0].factor))
        self.ages.append((now, now - self.waiting[0] if self.waiting else 0.0))
        self._at(now + LOOK_S, self._look)

    def _lease(self, now):
        for number in self.random.sample(range(self.workers), self.workers):
            while self.free[number] and self.waiting:
                self._begin(number, self.waiting.popleft(), now)

    def _begin(self, number, came, now):
        pace = self.paces[number]
        pace.leased(1)
        self.free[number] -= 1
        factor = pace.factor
        judged = self.random.random() < self.rate * factor
        took = PLAIN_S + (self.random.expovariate(1 / self.seconds(now)) if judged else 0.0)
        self.taken.append((came, (factor, judged)))

        def end(then):
            self.free[number] += 1
            pace.finished(took - PLAIN_S, factor, judged=judged, now=then)

        self._at(now + took, end)


@pytest.mark.full
@pytest.mark.parametrize(("workers", "rate"), [(1, 1.0), (3, 1.0), (1, 0.1)])
def test_a_judge_for_a_fifth_of_the_traffic_judges_a_fifth_and_everything_when_it_is_fast_again(workers, rate):
    def seconds(now):
        return 4.0 if now < 600.0 else 0.05

    there = Simulated(seconds, lambda _: 10.0 * workers / rate, workers=workers, rate=rate).run(900.0)
    settled = there.between(200.0, 600.0, there.factors)
    assert mean(settled) == pytest.approx(0.2, rel=0.2)
    assert stdev(settled) < 0.04
    assert max(age for _, age in there.ages) < TARGET_S
    assert min(there.between(720.0, 900.0, there.factors)) == 1.0


def test_one_that_falls_to_a_twentieth_from_one_moment_to_the_next_is_no_reason_for_an_age_beyond_twice_the_target():
    there = Simulated(lambda now: 0.05 if now < 300.0 else 16.0, lambda _: 10.0).run(1200.0)
    assert max(age for _, age in there.ages) < 2 * TARGET_S
    assert max(there.between(800.0, 1200.0, there.ages)) < TARGET_S


def test_a_judge_that_keeps_up_is_left_in_peace():
    there = Simulated(lambda _: 0.4, lambda _: 10.0).run(600.0)
    assert mean(factor for _, factor in there.factors) > 0.99


def test_what_a_fast_judge_finds_waiting_after_a_pause_is_judged_whole():
    there = Simulated(lambda _: 0.05, lambda _: 10.0, backlog=1200).run(120.0)
    assert min(factor for _, factor in there.factors) == 1.0
    assert max(there.between(60.0, 120.0, there.ages)) < 1.0


def test_hours_of_backlog_before_a_slow_judge_are_worked_off_at_the_floor_and_do_not_starve_what_is_new():
    there = Simulated(lambda _: 4.0, lambda _: 10.0, backlog=36_000).run(1500.0)
    assert min(factor for _, factor in there.factors) == FLOOR
    assert max(there.between(900.0, 1500.0, there.ages)) < TARGET_S


def test_a_judge_that_hangs_ends_at_the_floor_and_never_at_nothing():
    pace = JudgePace(PLACES)
    for second in range(200):
        if second % 20 == 0:
            pace.finished(600.0, pace.factor, judged=True, now=float(second))
        assert pace.observe_queue(ready=10 * second, leased=PLACES, held=PLACES, now=float(second)) >= FLOOR
    assert pace.factor == FLOOR


@pytest.mark.full
def test_the_weighted_mean_is_true_although_bursts_bring_other_answers():
    def per_s(now):
        return 40.0 if now % 200.0 < 40.0 else 6.0

    missed = plain = 0
    for seed in range(20):
        there = Simulated(lambda _: 2.0, per_s).run(1000.0, seed)
        quality = random.Random(seed + 1000)
        scores = [
            (float(quality.random() < (0.5 if came % 200.0 < 40.0 else 0.9)), factor, judged)
            for came, (factor, judged) in there.taken
        ]
        truth = mean(score for score, _, _ in scores)
        judged = [(score, factor) for score, factor, is_judged in scores if is_judged]
        found = hajek([score for score, _ in judged], [factor for _, factor in judged])
        missed += abs(found.mean - truth) > 1.96 * found.sd / found.n_eff**0.5
        plain += mean(score for score, _ in judged) > truth + 1.96 * found.sd / found.n_eff**0.5
    assert missed <= 4  # one in twenty is expected
    assert plain >= 15  # without weights it would be wrong: bursts are judged less


@pytest.mark.parametrize("wrong", [{"places": 0}, {"target_s": 0.0}, {"floor": 0.0}])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="positive"):
        JudgePace(**{"places": 1, **wrong})


class Slow:
    name, version = "slow", "1"
    judge = "judge"

    async def score(self, sample):
        await asyncio.sleep(0.1)
        return Score(0.5)


class Free:
    name, version = "free", "1"

    async def score(self, sample):
        return Score(1.0)


def sample(number, **fields):
    return Sample(id=f"s{number}", started_at=time.time(), response="Yes.", **fields)


def evaluated(path, samples, *, judge_pace, look_s=0.05, on_expired=lambda: None, **options):
    """Bring samples through a real worker; its evaluations by sample and metric."""

    async def main():
        queue, store = SQLiteQueue(path / "queue.db"), SQLiteStore(path / "store.db")
        observer = WorkerObserver()
        observer.failed, observer.expired = pytest.fail, on_expired
        metrics = [Enabled(metric=one, rate=1.0, threshold=0.5, objective=0.9) for one in (Slow(), Free())]
        evaluator = Evaluator(metrics, MetricSampler("s"), judge_pace=judge_pace, observer=observer, **options)
        settings = WorkerSettings(concurrency=4, poll_s=0.01)
        worker = Worker(queue, store, evaluator, settings=settings, observer=observer)
        await queue.put(samples)
        running = asyncio.ensure_future(worker.run())
        async with asyncio.timeout(60):
            while (depth := await queue.depth()).ready + depth.leased:
                judge_pace.observe_queue(ready=depth.ready, leased=depth.leased, held=worker.held, now=time.monotonic())
                await asyncio.sleep(look_s)
        worker.stop()
        await running
        found = {one.id: {each.metric: each for each in (await store.sample(one.id))[1]} for one in samples}
        await queue.aclose()
        await store.aclose()
        return found

    return asyncio.run(main())


def test_a_worker_under_pressure_judges_some_computes_the_rest_for_all_and_records_the_rate(tmp_path):
    found = evaluated(tmp_path, [sample(number) for number in range(300)], judge_pace=JudgePace(4, target_s=1.0))
    assert all(one["free"].outcome == Score(1.0) and one["free"].rate == 1.0 for one in found.values())
    judged = [one["slow"] for one in found.values() if "slow" in one]
    assert 5 <= len(judged) < 150
    assert min(one.rate for one in judged) < 0.5
    # Whoever has the lower place in the order of sampling was judged: the rate says which share of them that was.
    assert all(MetricSampler("s").keeps(Sample(id=one.sample_id, started_at=0.0), one.rate) for one in judged)


def test_places_for_judging_are_kept_full_whatever_share_is_judged():
    pace = JudgePace(8)
    assert pace.room(0, 8, 0.0) == 8, "all may be judged until it is known"
    assert pace.room(8, 8, 0.0) == 0
    for _ in range(99):
        pace.finished(0.0, 1.0, judged=False, now=0.0)
    assert pace.room(0, 8, 0.0) == MOST_UNJUDGED
    pace.judging = 7
    assert pace.room(7 + MOST_UNJUDGED - 2, 8, 0.0) == 2
    pace.judging = 8
    assert pace.room(8, 8, 0.0) == 0, "the next could be judged"
    pace.judging = 0
    assert pace.room(0, 100, 0.0) == 100, "who asks for more gets it"


async def test_what_needs_no_judge_is_scored_while_all_places_for_judging_are_taken(tmp_path):
    queue, store = SQLiteQueue(tmp_path / "queue.db"), SQLiteStore(tmp_path / "store.db")
    metrics = [
        Enabled(metric=one, rate=rate, threshold=0.5, objective=0.9) for one, rate in ((Slow(), 0.1), (Free(), 1.0))
    ]
    worker = Worker(queue, store, Evaluator(metrics, MetricSampler("s")), settings=WorkerSettings(concurrency=2))
    await queue.put([sample(number) for number in range(200)])
    running = asyncio.ensure_future(worker.run())
    most = 0
    for _ in range(1000):
        most = max(most, worker.held)
        depth = await queue.depth()
        if not depth.ready + depth.leased:
            break
        await asyncio.sleep(0.01)
    worker.stop()
    await running
    await queue.aclose()
    await store.aclose()
    assert 8 < most <= 2 + MOST_UNJUDGED


def test_what_waited_for_too_long_is_not_judged_but_seen_and_counted(tmp_path):
    expired = []
    old = [Sample(id=f"old{number}", started_at=time.time() - 100.0, response="Yes.") for number in range(3)]
    found = evaluated(
        tmp_path,
        [*old, sample(1)],
        judge_pace=JudgePace(4),
        max_age_s=50.0,
        on_expired=lambda: expired.append(1),
    )
    assert [found[one.id]["slow"].outcome for one in old] == [Skipped("expired")] * 3
    assert all(one["free"].outcome == Score(1.0) for one in found.values())
    assert found["s1"]["slow"].outcome == Score(0.5)
    assert len(expired) == 3


def test_a_worker_that_goes_is_no_arrival():
    pace = JudgePace(8)
    for second in range(60):
        pace.observe_queue(ready=1000, leased=16 if second < 30 else 8, held=8, now=float(second))
    assert pace.arrivals_per_s(60.0) == 0.0

"""Places that adapt, retries, the circuit breaker and a sample's deadline: on a clock that only tests move."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import time

import pytest

from gaugeway.records import Context, Failed, Sample
from monitors.evaluation.evaluator import evaluate
from monitors.judges import SPEND, Judge, JudgeError, Observer, Prompt, Spend
from monitors.judges.cost import Billing
from monitors.judges.middleware.limits import DEADLINE, AdaptiveConcurrency, Deadline, DeadlineJudge, Retrying
from monitors.judges.middleware.stack import CircuitBreaker, StackSettings, build_stack
from monitors.judges.openai import OpenAIJudge
from monitors.judges.scripted import Scripted
from monitors.metrics.faithfulness import Faithfulness
from monitors.metrics.judged.claims import Fused
from tests.support.clock import Clock
from tests.support.llm_server import LLMServer, Reply, error

PROMPT = Prompt(task="t", version="1", system="s", user="u")
GOOD = {"ok": True}


class Slow(Judge):
    """A judge whose answers come when a test says so."""

    model = "slow"

    def __init__(self):
        self.asked = []

    async def ask(self, prompt, answer_type):
        answer = asyncio.get_running_loop().create_future()
        self.asked.append(answer)
        return await answer

    async def settle(self, *outcomes):
        """Give the oldest questions these outcomes, and let everybody react."""
        self.asked = [one for one in self.asked if not one.done()]
        for outcome in outcomes:
            waiting = self.asked.pop(0)
            if isinstance(outcome, Exception):
                waiting.set_exception(outcome)
            else:
                waiting.set_result(outcome)
        for _ in range(6):
            await asyncio.sleep(0)


class Told(Observer):
    def __init__(self):
        self.failures, self.calls = [], []

    def judged(self, *call):
        self.calls.append(call)

    def failed(self, model, kind):
        self.failures.append(kind)


def asking(judge, times):
    return [asyncio.ensure_future(judge.ask(PROMPT, dict)) for _ in range(times)]


async def end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_places_are_halved_by_a_429_once_and_come_back_one_a_round():
    clock, inner = Clock(1000.0), Slow()
    judge = AdaptiveConcurrency(inner, most=8, clock=clock, sleep=clock.sleep)
    tasks = asking(judge, 20)
    await asyncio.sleep(0)
    assert (judge.limit, judge.running, len(inner.asked)) == (8, 8, 8)
    clock.now += 1
    await inner.settle(JudgeError("rate_limited"), JudgeError("rate_limited"), JudgeError("timeout"))
    assert judge.limit == 4, "all three were asked before the cut"
    assert judge.running == 5, "those under way are left to finish"
    clock.now += 1
    await inner.settle(*[GOOD] * 5)
    assert judge.limit == 5
    assert judge.running == 5
    await inner.settle(JudgeError("rate_limited"))
    assert judge.limit == 2
    await end(tasks)
    for _ in range(60):
        (task,) = asking(judge, 1)
        await asyncio.sleep(0)
        await inner.settle(GOOD)
        await task
    assert judge.limit == 8


async def test_failures_that_do_not_tell_of_load_cut_nothing():
    inner = Slow()
    judge = AdaptiveConcurrency(inner, most=4)
    tasks = asking(judge, 3)
    await asyncio.sleep(0)
    await inner.settle(JudgeError("unreadable"), JudgeError("server_error"), JudgeError("refused"))
    assert judge.limit == 4
    await end(tasks)


async def test_after_retry_after_nobody_is_asked_until_then():
    clock = Clock(1000.0)
    answers = iter([JudgeError("rate_limited", retry_after_s=7.0), GOOD, JudgeError("rate_limited", retry_after_s=1e9)])
    judge = AdaptiveConcurrency(Scripted(lambda _: next(answers, GOOD)), most=4, clock=clock, sleep=clock.sleep)
    with pytest.raises(JudgeError):
        await judge.ask(PROMPT, dict)
    assert await judge.ask(PROMPT, dict) == GOOD
    assert clock.now == 1007.0
    with pytest.raises(JudgeError) as caught:
        await judge.ask(PROMPT, dict)
    assert caught.value.retry_after_s == math.inf
    await judge.ask(PROMPT, dict)
    assert clock.now == 1007.0, "a pause of more than a minute is not waited for"


async def test_questions_are_asked_in_the_order_they_came_and_one_who_gives_up_loses_no_place():
    order, inner = [], Slow()
    judge = AdaptiveConcurrency(inner, most=1)

    async def one(name):
        await judge.ask(PROMPT, dict)
        order.append(name)

    tasks = [asyncio.ensure_future(one(name)) for name in "abcd"]
    await asyncio.sleep(0)
    inner.asked[0].set_result(GOOD)
    await asyncio.sleep(0)  # a's answer is in, and b about to be woken
    tasks[1].cancel()
    for _ in range(4):
        await inner.settle(*[GOOD] * sum(not one.done() for one in inner.asked))
    assert "".join(order) == "acd"
    assert judge.running == 0
    await end(tasks)


def test_what_passes_is_asked_again_after_the_pause_the_server_wants():
    async def run(*answers, times=3):
        clock, script = Clock(1000.0), iter(answers)
        inner = Scripted(lambda _: next(script))
        judge = Retrying(inner, times=times, sleep=clock.sleep, draw=lambda: 0.0)
        try:
            return await judge.ask(PROMPT, dict), clock.slept
        except JudgeError as failure:
            return failure.kind, clock.slept

    busy, broken = JudgeError("rate_limited", retry_after_s=3.0), JudgeError("server_error")
    assert asyncio.run(run(busy, GOOD)) == (GOOD, [3.0])
    assert asyncio.run(run(broken, broken, broken, GOOD)) == (GOOD, [0.25, 0.5, 1.0])
    assert asyncio.run(run(broken, broken, broken, broken)) == ("server_error", [0.25, 0.5, 1.0])
    assert asyncio.run(run(broken, times=0)) == ("server_error", [])
    for kind in ("unreadable", "refused", "bad_request", "context_overflow", "deadline"):
        assert asyncio.run(run(JudgeError(kind), GOOD)) == (kind, [])


def test_the_pause_a_server_asks_for_is_read_from_its_answer():
    async def run(url):
        judge = OpenAIJudge(url, None, "m", max_retries=0)
        try:
            await judge.ask(PROMPT, dict)
        except JudgeError as failure:
            return failure.kind, failure.retry_after_s
        finally:
            await judge.aclose()

    for headers, seconds in (({"retry-after": "12"}, 12.0), ({"retry-after": "soon"}, None), ({}, None)):
        with LLMServer(error(429, "no", headers=headers)) as server:
            assert asyncio.run(run(server.url)) == ("rate_limited", seconds)


class Faulty(Judge):
    """A judge whose next outcomes a test writes down."""

    model = "faulty"

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.asked = 0

    async def ask(self, prompt, answer_type):
        self.asked += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def kinds(judge, times):
    async def run():
        results = []
        for _ in range(times):
            try:
                await judge.ask(PROMPT, dict)
            except JudgeError as failure:
                results.append(failure.kind)
            else:
                results.append("fine")
        return results

    return asyncio.run(run())


def test_a_judge_that_fails_on_and_on_is_blind_and_not_asked():
    clock, changes, told = Clock(1000.0), [], Told()
    down = JudgeError("connection", "refused by the host")
    inner = Faulty(*[down] * 3, down, GOOD, GOOD)
    judge = CircuitBreaker(inner, failures=3, blind_s=30.0, clock=clock, observer=told, on_change=changes.append)
    assert kinds(judge, 2) == ["connection"] * 2
    assert not judge.is_open
    clock.now += 5
    assert kinds(judge, 3) == ["connection", "blind", "blind"]
    assert (judge.state.open, judge.state.since, judge.state.kind) == (True, 1000.0, "connection")
    assert told.failures == ["blind", "blind"]
    clock.now += 30
    assert kinds(judge, 2) == ["connection", "blind"], "one probe, which fails"
    clock.now += 59
    assert kinds(judge, 1) == ["blind"], "the next may pass after twice the time"
    clock.now += 1
    assert kinds(judge, 2) == ["fine", "fine"]
    assert not judge.is_open
    assert inner.asked == 6
    assert [one.open for one in changes] == [True, False]


def test_an_outage_of_before_a_restart_goes_on_until_the_first_answer():
    clock, changes = Clock(1000.0), []
    judge = CircuitBreaker(
        Faulty(JudgeError("connection"), GOOD), failures=3, blind_s=30.0, clock=clock, on_change=changes.append
    )
    judge.resume(900.0)
    assert (judge.state.open, judge.state.since) == (True, 900.0)
    assert kinds(judge, 2) == ["connection", "blind"], "the first call probes"
    assert judge.state.since == 900.0
    clock.now += 60
    assert kinds(judge, 1) == ["fine"]
    judge.resume(900.0)
    assert not judge.is_open, "it answered since then"
    assert [one.open for one in changes] == [True, False]


def test_only_failures_in_a_row_count_and_a_refused_sample_is_an_answer():
    down, refused, late = JudgeError("timeout"), JudgeError("refused"), JudgeError("deadline")
    judge = CircuitBreaker(Faulty(down, GOOD, down, refused, down, late, GOOD), failures=2)
    kinds(judge, 6)
    assert not judge.is_open
    assert judge.state.failures == 1, "a sample out of time says nothing about the judge"


async def test_one_probe_at_a_time_and_one_that_is_given_up_lets_the_next_pass():
    clock, inner = Clock(1000.0), Slow()
    judge = CircuitBreaker(inner, failures=1, blind_s=1.0, clock=clock)
    (task,) = asking(judge, 1)
    await asyncio.sleep(0)
    await inner.settle(JudgeError("timeout"))
    clock.now += 2
    first, second = asking(judge, 2)
    await asyncio.sleep(0)
    assert (await asyncio.gather(second, return_exceptions=True))[0].kind == "blind"
    first.cancel()
    await asyncio.gather(first, task, return_exceptions=True)
    inner.asked.clear()
    (third,) = asking(judge, 1)
    await asyncio.sleep(0)
    await inner.settle(GOOD)
    assert await third == GOOD
    assert not judge.is_open


def test_a_samples_patience_is_used_up_once_by_calls_side_by_side():
    clock = Clock(1000.0)
    patience = Deadline(10.0, clock)
    with patience.spending(), patience.spending():
        clock.now += 4
    clock.now += 100
    assert patience.left == 6.0
    with patience.spending() as left:
        clock.now += 20
        assert (left, patience.left) == (6.0, 0.0)


def test_a_sample_whose_time_is_up_fails_and_the_next_one_does_not():
    told = Told()
    stalling = [Reply(delay_s=5.0), Reply(content={"noncommittal": False, "claims": []})]

    async def run(url):
        inner = OpenAIJudge(url, None, "m", timeout_s=10.0, max_retries=0)
        judge = AdaptiveConcurrency(DeadlineJudge(inner, observer=told), most=2)
        metric = Faithfulness(Fused(judge))
        sample = Sample(id="a", started_at=0.0, question="q", response="r", contexts=(Context(text="c"),))
        outcomes = []
        for _ in range(2):
            DEADLINE.set(Deadline(0.3))
            done = await evaluate(metric, sample, rate=1.0, clock=time.perf_counter)
            outcomes.append(done.outcome)
        await judge.aclose()
        return outcomes

    with LLMServer(*stalling) as server:
        failed, skipped = asyncio.run(run(server.url))
    assert isinstance(failed, Failed)
    assert failed.error == "deadline"
    assert skipped.reason == "no_claims"
    assert told.failures == ["deadline"]


def test_waiting_for_ones_turn_takes_no_patience():
    async def run(url):
        inner = OpenAIJudge(url, None, "m", max_retries=0, concurrency=1)
        judge = AdaptiveConcurrency(DeadlineJudge(inner), most=1)

        async def one():
            DEADLINE.set(Deadline(0.6))
            return await judge.ask(PROMPT, dict)

        answers = await asyncio.gather(*(asyncio.ensure_future(one()) for _ in range(5)))
        await judge.aclose()
        return answers

    with LLMServer(Reply(content=GOOD, delay_s=0.2)) as server:
        assert asyncio.run(run(server.url)) == [GOOD] * 5


async def test_the_whole_guard_passes_everything_through_and_says_who_it_guards():
    inner = Scripted({"t": GOOD})
    built = build_stack(inner, StackSettings(concurrency=2))
    assert (built.judge.model, built.judge.identity) == ("scripted", "scripted")
    assert await built.judge.ask(PROMPT, dict) == GOOD
    assert await built.judge.ask_sure(PROMPT, dict) == (GOOD, None)
    assert await built.judge.ask_scored(PROMPT, ["1"]) is None
    await built.judge.aclose()


def test_every_call_is_on_the_bill_of_the_app_and_metric_that_asked():
    told, bills = Told(), []
    billing = Billing(told, bills.append)
    billing.judged("m", 0.1, 10, 5, 0.25)
    token = SPEND.set(Spend(app="shop", metric="faithfulness"))
    billing.judged("m", 0.1, 20, 6, 0.5)
    SPEND.reset(token)
    billing.failed("m", "timeout")
    assert [(bill.app, bill.metric, bill.input_tokens, bill.usd) for bill in bills] == [
        ("", "", 10, 0.25),
        ("shop", "faithfulness", 20, 0.5),
    ]
    assert (len(told.calls), told.failures) == (2, ["timeout"])


def counting(judge, clock, **settings):
    settings = StackSettings(
        **{"concurrency": 2, "max_retries": 2, "blind_after": 3, "count_requests": True, **settings}
    )
    return build_stack(judge, settings, clock=clock, wall=clock, sleep=clock.sleep, draw=lambda: 1.0)


@pytest.mark.parametrize(("kind", "asked", "opened"), [("timeout", 3, True), ("rate_limited", 3, False)])
async def test_requests_that_fail_count_each_but_a_busy_server_only_after_its_retries(kind, asked, opened):
    clock, judge = Clock(1000.0), Failing(kind)

    stack = counting(judge, clock)
    with pytest.raises(JudgeError):
        await stack.judge.ask(PROMPT, dict)
    state = stack.breaker.state
    assert (judge.asked, state.open) == (asked, opened)
    assert state.failures == (3 if opened else 1)


def test_a_server_that_is_always_busy_opens_the_circuit_and_a_busy_probe_doubles_its_pause():
    clock, judge = Clock(1000.0), Failing("rate_limited")

    async def main():
        stack = counting(judge, clock, max_retries=0, blind_s=10.0)
        kinds = []
        for pause_s in (0.0, 0.0, 0.0, 5.0, 6.0, 11.0, 10.0):
            clock.now += pause_s
            with pytest.raises(JudgeError) as caught:
                await stack.judge.ask(PROMPT, dict)
            kinds.append(caught.value.kind)
        return kinds

    assert asyncio.run(main()) == [*["rate_limited"] * 3, "blind", "rate_limited", "blind", "rate_limited"]


async def test_in_an_outage_places_are_kept_and_once_it_answers_a_timeout_cuts_them():
    judge, clock = Failing("timeout"), Clock(1000.0)
    places = AdaptiveConcurrency(judge, most=8, cut_in_outage=False, clock=clock)
    limits = []
    for fails in (True, True, False, True, True):
        judge.kind = "timeout" if fails else None
        clock.now += 1.0
        with contextlib.suppress(JudgeError):
            await places.ask(PROMPT, dict)
        limits.append(places.limit)
    assert limits == [8, 8, 8, 4, 4]


@pytest.mark.parametrize("verifies", [True, False])
@pytest.mark.parametrize("retry_after_s", [5.0, 86_400.0])
def test_a_server_that_only_asks_for_pauses_holds_no_call_longer_than_the_bound(verifies, retry_after_s):
    """Pauses without an answer between them add up to at most the bound; the circuit then opens."""
    clock, judge = Clock(1000.0), Failing("rate_limited", retry_after_s=retry_after_s)

    async def main():
        stack = counting(judge, clock, count_requests=verifies, longest_pause_s=12.0, max_retries=20)
        kinds = []
        for _ in range(6):
            with pytest.raises(JudgeError) as caught:
                await stack.judge.ask(PROMPT, dict)
            kinds.append(caught.value.kind)
        return kinds, stack.breaker.is_open

    kinds, is_open = asyncio.run(main())
    assert is_open
    assert kinds == [*["rate_limited"] * 3, *["blind"] * 3]
    assert clock.now - 1000.0 <= 12.0


async def test_pauses_with_answers_between_them_are_waited_for():
    clock = Clock(1000.0)
    busy = JudgeError("rate_limited", retry_after_s=10.0)
    judge = Faulty(*[copy.copy(one) for one in [busy, GOOD] * 4])

    stack = counting(judge, clock, longest_pause_s=12.0)
    assert [await stack.judge.ask(PROMPT, dict) for _ in range(4)] == [GOOD] * 4
    assert clock.now == 1040.0


class Failing(Judge):
    """Fails every question with an error of `kind`; answers while it is None."""

    model = "failing"

    def __init__(self, kind, *, retry_after_s=None):
        self.kind, self.asked, self.retry_after_s = kind, 0, retry_after_s

    async def ask(self, prompt, answer_type):
        self.asked += 1
        if self.kind is not None:
            raise JudgeError(self.kind, retry_after_s=self.retry_after_s)
        return {}

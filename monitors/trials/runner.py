"""Runs trials: sends what the gateways kept to the candidates, judges the answers, and ends each trial in time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gaugeway.exchange import Response
from gaugeway.prompts.changed_request import NotExactError
from gaugeway.records import Evaluation, Sample, changed
from gaugeway.runtime.retry import Backoff
from gaugeway.runtime.tasks import spawn
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import PriceTable
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import Store
from gaugeway.storage.trials import WAITS_S, Answer, Arm, Kept, StoredTrial, Trial, Trials, sealer
from gaugeway.text.topics import TopicModel, fit_topics
from monitors.analysis.trial_result import TrialResult
from monitors.metrics.registry import Catalogue
from monitors.trials import judging
from monitors.trials.candidate import BusyError, CallError, Prepared, ask, prepared, why_no_answer
from monitors.trials.preference import Preference

if TYPE_CHECKING:
    import httpx

_LOOK_EVERY, _GROWTH = 10, 25
"""Answers between two looks at the result, and the divisor of their growth: a look reads all answers."""
_STORED_WITHIN_S, _JUDGED_WITHIN_S = 900.0, 60.0
"""How long an exchange may take to be stored, and its live answer to be judged by the worker."""
_FAILURES = 25
"""Failed calls in a row that end a trial."""
_TOPICS_FROM = 100
"""Answers whose questions the topics are learned from. Those that follow belong to one."""
_ORPHANED_S = 1800.0
"""Beyond the call's timeout: after so long a claim of a process that ended counts as lost."""
_RECOVER_EVERY_S, _RETRY_S = 60.0, 5.0
_BACKOFF_S = (1.0, 300.0)
_log = logging.getLogger("gaugeway")


class Work(NamedTuple):
    """One kept request with what is stored of its exchange."""

    exchange: str
    kept: Kept
    body: str
    sample: Sample
    evaluations: Sequence[Evaluation]


@dataclass(slots=True)
class _Running:
    """What this process knows of a trial that runs: its calls, and when the next one may begin."""

    trial: Trial
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    next_at: float = 0.0
    paused_until: float = 0.0
    failures: int = 0
    answers: int = 0
    not_before: dict[str, float] = field(default_factory=dict)
    recovered_at: float = 0.0
    next_look: int = 0
    topics: TopicModel | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(*_BACKOFF_S))
    why: str = ""


class Gates(NamedTuple):
    """What a runner takes from the rest.

    Why it must wait ("" if it need not), keys, how to redact, `[prices]`, and who shows the state of all trials.
    """

    hold: Callable[[], Awaitable[str]]
    key: Callable[[str], str | None]
    redact: Callable[[Sample], Sample]
    prices: PriceTable
    show: Callable[[Sequence[StoredTrial]], None] = lambda _: None


class TrialRunner:
    """Sends, judges and counts; `tick` is for one process at a time, the leader."""

    every_s = 1.0

    def __init__(
        self,
        trials: Trials,
        store: Store,
        catalogue: Catalogue,
        gates: Gates,
        *,
        preference: Preference | None,
        judged_timeout_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trials = trials
        self._store = store
        self._catalogue = catalogue
        self._gates = gates
        self._preference = preference
        self._timeout_s = judged_timeout_s
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._waiting: Mapping[tuple[str, str], tuple[float, Kept]] = {}
        self._revisions: tuple[bytes | None, bytes | None] = (None, None)
        self._left_out: dict[str, Counter[str]] = {}
        self._client: httpx.AsyncClient | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.wanted: Callable[[], Awaitable[object]] | None = None
        """Starts the trials of the configuration; called once, by the first tick."""

    async def tick(self) -> None:
        """Begin the calls that are due, and end the trials that are over. Raises what the documents raise."""
        now = self._clock()
        if self.wanted is not None:
            await self._start_wanted(self.wanted)
        try:
            revision, found = await self._trials.changed(self._revisions[0])
        except Unsupported:  # the store keeps no trials
            return
        if found is not None:
            self._take(found)
        self._revisions = (revision, self._revisions[1])
        if not self._running:
            return
        for running in list(self._running.values()):
            await self._keep_up(running, now)
        await self._trials.leave_out(self._left_out)
        if await self._gates.hold():
            return
        current, waiting = await self._trials.waiting(self._revisions[1])
        if waiting is not None:
            self._waiting = waiting
        self._revisions = (revision, current)
        for (name, exchange), (since, kept) in sorted(self._waiting.items(), key=lambda item: item[1][0]):
            if (running_ := self._running.get(name)) is not None:
                await self._begin(running_, exchange, since, kept, now)

    async def _start_wanted(self, wanted: Callable[[], Awaitable[object]]) -> None:
        try:
            await wanted()
        except Unsupported:
            pass
        except (ConfigError, ValueError) as error:
            _log.error("trials: %s", "; ".join(error.problems) if isinstance(error, ConfigError) else error)
        self.wanted = None

    async def aclose(self) -> None:
        """Stop the calls; their claims are counted as lost."""
        tasks = [task for running in self._running.values() for task in running.tasks.values()] + [*self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()
        await self._trials.aclose()

    def _take(self, found: Sequence[StoredTrial]) -> None:
        self._gates.show(found)
        now = {stored.trial.name: stored.trial for stored in found if stored.state == "running"}
        for name in [name for name in self._running if name not in now]:
            self._ending |= {*self._running.pop(name).tasks.values()}  # what was sent is paid for, and still counts
        self._ending = {task for task in self._ending if not task.done()}
        if now:
            self._opened()  # when a trial starts, not at its first call
        for name, trial in now.items():
            if name not in self._running or self._running[name].trial != trial:
                self._running[name] = _Running(trial)

    def _opened(self) -> httpx.AsyncClient:
        """The client of all calls. To open it takes a quarter of a second of processor time."""
        import httpx  # noqa: PLC0415 - most monitors run no trial

        self._client = self._client or httpx.AsyncClient(follow_redirects=False)
        return self._client

    async def _keep_up(self, running: _Running, now: float) -> None:
        """End a trial that is over; settle claims that nobody works on any more; look at the result."""
        trial = running.trial
        why = running.why or ("time" if now >= trial.until else "")
        if not why and now >= running.recovered_at:
            running.recovered_at = now + _RECOVER_EVERY_S
            for answer in await self._trials.answers(trial.name):
                if answer.state == "sending" and now - answer.at > trial.timeout_s + _ORPHANED_S:
                    # what was reserved for the answer counts as spent
                    lost = msgspec.structs.replace(answer, state="lost", at=now, judge_usd=0.0)
                    await self._trials.settle(trial.name, lost)
        if not why and running.answers >= running.next_look:
            answers = await self._trials.answers(trial.name)
            running.answers, running.next_look = 0, max(_LOOK_EVERY, len(answers) // _GROWTH)
            if running.topics is None:
                running.topics = await self._topics(answers)
            results = await asyncio.to_thread(results_of, trial, answers, self._catalogue)
            if "not yet" not in (said := {result.verdict for result in results.values()}):
                why = ("worse" if "do not ship" in said else "not_worse") if trial.watch else "decided"
        if why:
            _log.info("trial %s ends: %s", trial.name, why)
            await self._trials.end(trial.name, why, now)

    async def _topics(self, answers: Sequence[Answer]) -> TopicModel | None:
        """Learn the topics of a trial's first questions, once there are enough of them, and without any score."""
        learned = dict.fromkeys(answer.exchange for answer in answers if answer.state != "sending")
        if len(learned) < _TOPICS_FROM:
            return None
        samples = await self._store.samples([*learned][:_TOPICS_FROM])
        questions = {name: sample.question for name, sample in samples.items() if sample.question}
        return await asyncio.to_thread(fit_topics, questions)

    async def _begin(self, running: _Running, exchange: str, since: float, kept: Kept, now: float) -> None:
        """Begin an exchange whose turn has come."""
        trial = running.trial
        busy = len(running.tasks) >= trial.parallel or running.next_at >= now + self.every_s or running.why
        if busy or exchange in running.tasks or now < running.not_before.get(exchange, 0.0):
            return
        if (stored := await self._store.sample(exchange)) is None:
            running.not_before[exchange] = now + _RETRY_S
            if now - since > _STORED_WITHIN_S:
                await self._give_up(trial, exchange, "never_stored")
            return
        judged = {evaluation.metric for evaluation in stored[1]}
        if trial.primary in self._catalogue.by_name and trial.primary not in judged and now - since < _JUDGED_WITHIN_S:
            running.not_before[exchange] = now + _RETRY_S
            return
        if now - since > WAITS_S:
            await self._give_up(trial, exchange, "too_late")
            return
        body = kept.body
        if kept.sealed:
            seal: Any = sealer()
            try:
                body = seal.decrypt(body.encode()).decode()
            except Exception:  # noqa: BLE001 - no key here, or another than the gateways': an extra's error types
                await self._give_up(trial, exchange, "no_key")
                return
        wait_s = max(0.0, running.next_at - now)
        running.next_at = now + wait_s + 1.0 / trial.per_second
        task = spawn(self._send(running, Work(exchange, kept, body, *stored), wait_s), name=f"trial {trial.name}")
        running.tasks[exchange] = task
        task.add_done_callback(lambda _: running.tasks.pop(exchange, None))

    async def _send(self, running: _Running, work: Work, wait_s: float) -> None:
        """Try one exchange with every arm, after a wait."""
        trial = running.trial
        await asyncio.sleep(wait_s)
        for arm in trial.arms:
            try:
                ready = prepared(trial, arm, work.kept, text=work.body, sample=work.sample, prices=self._gates.prices)
            except NotExactError as error:
                self._count(trial, str(error))
                continue
            try:
                if not await self._try(running, arm, work, ready):
                    running.not_before[work.exchange] = self._clock() + _RETRY_S
                    return
            except BusyError as error:
                await self._trials.release(trial.name, arm.name, work.exchange)
                self._pause(running, error)
                return
        await self._trials.drop([(trial.name, work.exchange)])

    def _pause(self, running: _Running, error: BusyError) -> None:
        """Send nothing for a while; the calls at once that meet the same refusal are one failure."""
        if (now := self._clock()) < running.paused_until:
            return
        pause = max(running.backoff.failed(), min(error.after_s or 0.0, WAITS_S))
        running.paused_until = running.next_at = now + pause
        self._fail(running)
        _log.info("trial %s: %s; pausing for %.0f s", running.trial.name, error, pause)

    async def _try(self, running: _Running, arm: Arm, work: Work, ready: Prepared) -> bool:
        """Try one exchange with one arm; False where it has to wait. Raises BusyError: nothing was sent."""
        trial = running.trial
        claim = await self._trials.claim(trial, arm.name, work.exchange, ready.usd, self._clock())
        if claim in ("spent", "judge_spent", "full"):
            running.why = claim
        if claim != "claimed":
            return claim == "taken"
        key = self._gates.key(arm.api_key)
        began = time.perf_counter()
        answer = Answer(arm=arm.name, exchange=work.exchange, state="lost", at=0.0, usd=0.0, judge_usd=0.0, facts={})
        usd = ready.usd
        try:
            response, usd = await ask(self._opened(), arm, work.kept, ready, key=key or "", timeout_s=trial.timeout_s)
            running.failures = 0
            running.backoff.reset()
            await self._judge(running, answer, work, (ready, response, usd, time.perf_counter() - began))
        except BusyError:
            raise
        except CallError as error:
            self._fail(running)
            facts = judging.facts_of(work.sample, work.sample, ready.body, error.reason, running.topics)
            facts |= {"numbers": {}} | ({"scores": {}} if error.unread else {})
            usd = ready.usd if error.charged else 0.0
            await self._settle(running, answer, state=f"failed:{error.reason}", usd=usd, facts=facts)
        except BaseException:  # a stop too: the claim is settled as lost, which is counted, with what was paid
            await self._settle(running, answer, state="lost", usd=usd, facts={})
            raise
        return True

    async def _judge(
        self, running: _Running, answer: Answer, work: Work, came: tuple[Prepared, Response, float, float]
    ) -> None:
        """Judge a candidate's answer, and keep what was found."""
        trial, (ready, response, usd, seconds) = running.trial, came
        arm = next(arm for arm in trial.arms if arm.name == answer.arm)
        live, why_not = work.sample, why_no_answer(response)
        candidate = self._gates.redact(
            changed(
                live,
                response=response.text,
                contexts=ready.contexts,
                model=arm.model or live.model,
                usage=response.usage,
                duration_s=seconds,
                cost_usd=usd,
            )
        )
        facts = judging.facts_of(live, candidate, ready.body, why_not, running.topics)
        judge_usd = 0.0
        if why_not is None:
            metrics = judging.metrics_of(trial, self._catalogue)
            judges, stored = (metrics, self._preference), (live, work.evaluations)
            found = await judging.judge(trial, judges, stored, candidate, timeout_s=self._timeout_s)
            judge_usd = found.usd
            facts["scores"] |= found.scores
            facts["unscored"] = found.unscored
            said = {"trial": trial.name, "arm": arm.name, "answer": candidate.response}
            await self._store.add(
                live, [judging.labelled(one, trial, arm.name, live, said) for one in found.evaluations]
            )
        state = "answered" if why_not is None else f"no_answer:{why_not}"
        await self._settle(running, answer, state=state, usd=usd, judge_usd=judge_usd, facts=facts)

    async def _settle(self, running: _Running, answer: Answer, **what: Any) -> None:
        done = {"arm": answer.arm, "exchange": answer.exchange, "at": self._clock(), "judge_usd": 0.0, **what}
        await self._trials.settle(running.trial.name, Answer(**done))
        running.answers += 1

    async def _give_up(self, trial: Trial, exchange: str, reason: str) -> None:
        self._count(trial, reason)
        await self._trials.drop([(trial.name, exchange)])

    def _count(self, trial: Trial, reason: str) -> None:
        self._left_out.setdefault(trial.name, Counter())[reason] += 1

    def _fail(self, running: _Running) -> None:
        running.failures += 1
        if running.failures >= _FAILURES:
            running.why = "candidate_fails"


def results_of(trial: Trial, answers: Sequence[Answer], catalogue: Catalogue) -> dict[str, TrialResult]:
    """Return the results by arm from the answers that are known."""
    falls = judging.falls_of(catalogue)
    return {
        arm.name: judging.result_of(
            trial, [(answer.exchange, answer.at, answer.facts) for answer in answers if answer.arm == arm.name], falls
        )
        for arm in trial.arms
    }

"""Judges some answers a second time, to estimate how far two judgements of the same answer differ."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import msgspec

from gaugeway.records import Evaluation, Failed, Sample, Score
from gaugeway.sampling import keep
from gaugeway.storage.stores import StateStore
from monitors.evaluation.evaluator import DEADLINE_S, evaluate, is_judged, judge_of
from monitors.judges.middleware.cache import bypass_cache
from monitors.judges.middleware.limits import DEADLINE, Deadline
from monitors.metrics import lower_is_better
from monitors.metrics.registry import Enabled
from monitors.statistics.agreement import Repeatability, repeatability

PREFIX = "judge/repeats/"
DAY_S = 86_400.0
KEPT_S = 30 * DAY_S
MAX_PAIRS = 500
"""Pairs of a metric, version and judge that a process keeps, the latest."""
MAX_WAITING = 100
"""Answers of a process that wait for their second judgement."""
_SALT = "judge_repeat"
_log = logging.getLogger("gaugeway.judge")

Instrument: TypeAlias = tuple[str, str, str]
"""What gives a score: metric, version and judge."""
OnOutcome: TypeAlias = Callable[[str, str, str], None]
"""Gets metric, outcome ("score", "skipped", "failed" or "dropped") and reason of a second judgement."""


class Pair(msgspec.Struct, frozen=True, array_like=True):
    """Two scores of one answer; `at` is when the second was given, Unix seconds."""

    at: float
    first: float
    second: float


class _Saved(msgspec.Struct, frozen=True):
    """The pairs of one process."""

    pairs: list[tuple[Instrument, list[Pair]]]


def is_repeated(sample: Sample, rate: float) -> bool:
    """Whether a sample is among the share `rate` that is judged twice: by a hash of its id, the same in each process.

    The hash has a salt of its own, so that this does not depend on which samples and metrics were chosen before.
    """
    return keep(sample.id, rate, _SALT)


async def judge_again(enabled: Iterable[Enabled], sample: Sample, *, timeout_s: float) -> Sequence[Evaluation]:
    """Evaluate a sample by judged metrics, neither reading nor writing what is known of its first judgement."""
    again = replace(sample, id=f"repeat-{sample.id}")  # metrics share the judge's answers about a sample by its id
    with bypass_cache():
        return await asyncio.gather(
            *(evaluate(one.metric, again, rate=1.0, clock=time.perf_counter, timeout_s=timeout_s) for one in enabled)
        )


def repeatabilities(
    pairs: Mapping[Instrument, Sequence[tuple[float, float]]], metrics: Iterable[Enabled]
) -> list[Repeatability]:
    """Return how each judge repeats itself, by metric and version; of metrics without a threshold without flips."""
    known = {enabled.metric.name: enabled for enabled in metrics}
    found = []
    for (metric, version, judge), scores in sorted(pairs.items()):
        enabled = known.get(metric)
        found.append(
            repeatability(
                scores,
                metric=metric,
                version=version,
                judge=judge,
                threshold=None if enabled is None else enabled.threshold,
                lower_is_better=enabled is not None and lower_is_better(enabled.metric),
            )
        )
    return found


class JudgeRepeats:
    """Judges a share `rate` of the judged samples again, one at a time, after their first scores are stored.

    The second scores are kept as pairs with the first ones, in the state store under the name of this `replica`, and
    nowhere else: two judgements of one answer are no two answers. `refusal` says why the judge may not be asked now,
    "" if it may; a sample that comes then, or while too many wait, is dropped and counted. `clock` gives Unix time.
    """

    def __init__(
        self,
        metrics: Sequence[Enabled],
        rate: float,
        *,
        state_store: StateStore | None = None,
        replica: str = "",
        timeout_s: float,
        refusal: Callable[[], str] = lambda: "",
        on_outcome: OnOutcome = lambda *_: None,
        on_found: Callable[[Sequence[Repeatability]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._judged = {enabled.metric.name: enabled for enabled in metrics if is_judged(enabled.metric)}
        self._rate = rate if self._judged else 0.0
        self._state_store = state_store
        self._key = PREFIX + replica
        self._timeout_s = timeout_s
        self._refusal = refusal
        self._on_outcome = on_outcome
        self._on_found = on_found
        self._clock = clock
        self._own: dict[Instrument, deque[Pair]] = {}
        self._others: Sequence[_Saved] = ()
        self._waiting: asyncio.Queue[tuple[Sample, Mapping[str, float]]] = asyncio.Queue(MAX_WAITING)
        self._found: Sequence[Repeatability] | None = None
        self._resumed = False

    def offer(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Take note of a sample's new evaluations, which are stored; those to repeat wait for `run`."""
        if not self._rate or not is_repeated(sample, self._rate):
            return
        first = {
            evaluation.metric: evaluation.outcome.value
            for evaluation in evaluations
            if evaluation.metric in self._judged and isinstance(evaluation.outcome, Score)
        }
        if first and self._waiting.full():
            self._drop(first, "queue_full")
        elif first:
            self._waiting.put_nowait((sample, first))

    async def run(self) -> None:
        """Judge again what is offered, until cancelled."""
        while True:
            sample, first = await self._waiting.get()
            if reason := self._refusal():
                self._drop(first, reason)
                continue
            DEADLINE.set(Deadline(DEADLINE_S))
            some = [self._judged[name] for name in first]
            for evaluation in await judge_again(some, sample, timeout_s=self._timeout_s):
                self._take(evaluation, first[evaluation.metric])

    async def tick(self) -> None:
        """Load the pairs of other processes, then save. Errors of the state store propagate; the last pairs stay."""
        if self._rate and self._state_store is not None:
            states, before = await self._state_store.load(), self._clock() - KEPT_S
            saved = {key: pairs for key, state in states.items() if (pairs := self._read(key, state)) is not None}
            own = dict(saved.pop(self._key, _Saved([])).pairs)
            for instrument, earlier in () if self._resumed else own.items():
                self._own[instrument] = deque([*earlier, *self._own.get(instrument, ())], MAX_PAIRS)
            self._resumed = True
            # replica names change with every deployment
            changes = {key: b"" for key, other in saved.items() if not _since(before, other.pairs)}
            self._others = [other for key, other in saved.items() if key not in changes]
            if (kept := _since(before, self._own.items())) and kept != own:
                changes[self._key] = msgspec.json.encode(_Saved(list(kept.items())))
            if changes:
                await self._state_store.save(changes)
        self._found = None
        self._on_found(self.found())

    def found(self) -> Sequence[Repeatability]:
        """Return what the pairs of the last 30 days show, of all processes as known to this one."""
        if not self._rate:
            return ()
        if self._found is None:
            scores: dict[Instrument, list[tuple[float, float]]] = {}
            for series in (self._own.items(), *(other.pairs for other in self._others)):
                for instrument, pairs in _since(self._clock() - KEPT_S, series).items():
                    scores.setdefault(instrument, []).extend((pair.first, pair.second) for pair in pairs)
            self._found = repeatabilities(scores, self._judged.values())
        return self._found

    def _take(self, evaluation: Evaluation, first: float) -> None:
        """Keep a second score beside the first one, and count it."""
        metric, outcome = evaluation.metric, evaluation.outcome
        if isinstance(outcome, Score):
            judge = judge_of(self._judged[metric].metric) or ""
            pairs = self._own.setdefault((metric, evaluation.version, judge), deque(maxlen=MAX_PAIRS))
            pairs.append(Pair(self._clock(), first, outcome.value))
            self._found = None
            self._on_outcome(metric, "score", "")
        elif isinstance(outcome, Failed):
            self._on_outcome(metric, "failed", outcome.error)
        else:
            self._on_outcome(metric, "skipped", outcome.reason)

    def _drop(self, first: Iterable[str], reason: str) -> None:
        for metric in first:
            self._on_outcome(metric, "dropped", reason)

    def _read(self, key: str, state: bytes) -> _Saved | None:
        if not key.startswith(PREFIX) or not state:
            return None
        try:
            return msgspec.json.decode(state, type=_Saved)
        except msgspec.DecodeError:
            _log.warning("state store: ignoring unreadable %s", key)
            return None


def _since(before: float, series: Iterable[tuple[Instrument, Iterable[Pair]]]) -> dict[Instrument, list[Pair]]:
    """Return the pairs after a time; instruments without any are left out."""
    kept = {instrument: [pair for pair in pairs if pair.at > before] for instrument, pairs in series}
    return {instrument: pairs for instrument, pairs in kept.items() if pairs}

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
from monitors.evaluation.evaluator import evaluate, is_judged, judge_of
from monitors.exporters import Exporter
from monitors.exporters.instruments import Instruments
from monitors.judges.middleware.cache import bypass_cache
from monitors.metrics import Metric
from monitors.metrics.registry import Enabled
from monitors.statistics.agreement import Instrument, Repeatability, repeatability

PREFIX = "judge/repeats/"
KEPT_S = 30 * 86_400.0
MAX_PAIRS = 500
"""Pairs of a metric, version and judge that a process keeps, the latest."""
MAX_WAITING = 100
"""Answers of a process that wait for their second judgement."""
Pair: TypeAlias = tuple[float, float, float]
"""When the second of two scores of one answer was given, Unix seconds; the first and the second score."""
Saved: TypeAlias = Sequence[tuple[Instrument, Sequence[Pair]]]
"""The pairs of one process."""
_log = logging.getLogger("gaugeway.judge")


def is_repeated(sample: Sample, rate: float) -> bool:
    """Whether a sample is among the share `rate` that is judged twice: by a hash of its id, the same in each process.

    The hash has a salt of its own, so that this does not depend on which samples and metrics were chosen before.
    """
    return keep(sample.id, rate, "judge_repeat")


async def judge_again(metrics: Iterable[Metric], sample: Sample, *, timeout_s: float) -> Sequence[Evaluation]:
    """Evaluate a sample by judged metrics, neither reading nor writing what is known of its first judgement."""
    again = replace(sample, id=f"repeat-{sample.id}")  # metrics share the judge's answers about a sample by its id
    with bypass_cache():
        runs = (evaluate(one, again, rate=1.0, clock=time.perf_counter, timeout_s=timeout_s) for one in metrics)
        return [replace(evaluation, sample_id=sample.id) for evaluation in await asyncio.gather(*runs)]


class JudgeRepeats(Exporter):
    """Judges a share `rate` of the judged samples again, one at a time, after their first scores are stored.

    The second scores are kept as pairs with the first ones, in the state store under the name of this `replica`, and
    nowhere else: two judgements of one answer are no two answers. `refusal` says why the judge may not be asked now,
    "" if it may; a sample that comes then, or while too many wait, is dropped and counted.
    """

    def __init__(
        self,
        metrics: Sequence[Enabled],
        rate: float,
        *,
        state_store: StateStore | None,
        replica: str,
        instruments: Instruments,
        timeout_s: float = 3600.0,
        refusal: Callable[[], str] = lambda: "",
    ) -> None:
        self._judged = {enabled.metric.name: enabled for enabled in metrics if is_judged(enabled.metric)}
        self._rate = rate if self._judged else 0.0
        self._state_store = state_store
        self._key = PREFIX + replica
        self._instruments = instruments
        self._timeout_s = timeout_s
        self._refusal = refusal
        self._own: dict[Instrument, deque[Pair]] = {}
        self._others: Sequence[Saved] = ()
        self._waiting: asyncio.Queue[tuple[Sample, Mapping[str, float]]] = asyncio.Queue(MAX_WAITING)
        self._found: Sequence[Repeatability] | None = None
        self._resumed = False

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        if not self._rate or not is_repeated(sample, self._rate):
            return
        scores = [(one.metric, one.outcome.value) for one in evaluations if isinstance(one.outcome, Score)]
        first = {metric: score for metric, score in scores if metric in self._judged}
        if first and self._waiting.full():
            self._instruments.repeated(first, "dropped", "queue_full")
        elif first:
            self._waiting.put_nowait((sample, first))

    async def run(self) -> None:
        """Judge again what is offered, until cancelled."""
        while True:
            sample, first = await self._waiting.get()
            if reason := self._refusal():
                self._instruments.repeated(first, "dropped", reason)
                continue
            metrics = [self._judged[name].metric for name in first]
            for evaluation in await judge_again(metrics, sample, timeout_s=self._timeout_s):
                metric, outcome = evaluation.metric, evaluation.outcome
                if isinstance(outcome, Score):
                    instrument = metric, evaluation.version, judge_of(self._judged[metric].metric) or ""
                    pairs = self._own.setdefault(instrument, deque(maxlen=MAX_PAIRS))
                    pairs.append((time.time(), first[metric], outcome.value))
                    self._found = None
                    self._instruments.repeated([metric], "score", "")
                elif isinstance(outcome, Failed):
                    self._instruments.repeated([metric], "failed", outcome.error)
                else:
                    self._instruments.repeated([metric], "skipped", outcome.reason)

    async def tick(self) -> None:
        """Load the pairs of other processes, then save. Errors of the state store propagate; the last pairs stay."""
        if self._rate and self._state_store is not None:
            states, before = await self._state_store.load(), time.time() - KEPT_S
            saved = {key: pairs for key, state in states.items() if (pairs := _read(key, state)) is not None}
            own = dict(saved.pop(self._key, ()))
            for instrument, earlier in () if self._resumed else own.items():
                self._own[instrument] = deque([*earlier, *self._own.get(instrument, ())], MAX_PAIRS)
            self._resumed, self._others = True, list(saved.values())
            # replica names change with every deployment
            changes = {key: b"" for key, other in saved.items() if not _since(before, other)}
            if (kept := _since(before, self._own.items())) and kept != own:
                changes[self._key] = msgspec.json.encode(list(kept.items()))
            if changes:
                await self._state_store.save(changes)
        self._found = None
        self._instruments.show_repeats(self.found())

    def found(self) -> Sequence[Repeatability]:
        """Return what the pairs of the last 30 days show, of all processes as known to this one."""
        if self._found is None:
            scores: dict[Instrument, list[tuple[float, float]]] = {}
            for series in (self._own.items(), *self._others):
                for instrument, pairs in _since(time.time() - KEPT_S, series).items():
                    scores.setdefault(instrument, []).extend(pair[1:] for pair in pairs)
            known = {name: enabled.passes for name, enabled in self._judged.items()}
            self._found = [repeatability(one, pairs, known.get(one[0])) for one, pairs in sorted(scores.items())]
        return self._found


def _read(key: str, state: bytes) -> Saved | None:
    try:
        return msgspec.json.decode(state, type=Saved) if state and key.startswith(PREFIX) else None
    except msgspec.DecodeError:
        _log.warning("state store: ignoring unreadable %s", key)
        return None


def _since(before: float, series: Iterable[tuple[Instrument, Iterable[Pair]]]) -> dict[Instrument, list[Pair]]:
    """Return the pairs after a time; instruments without any are left out."""
    kept = {instrument: [pair for pair in pairs if pair[0] > before] for instrument, pairs in series}
    return {instrument: pairs for instrument, pairs in kept.items() if pairs}

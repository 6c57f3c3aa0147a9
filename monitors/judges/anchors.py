"""Anchors: samples with known scores, judged regularly to detect a change of the judge."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, TypeAlias

import msgspec

from gaugeway.records import Context, Sample
from monitors.judges.middleware.cache import bypass_cache
from monitors.statistics.agreement import wilson

_log = logging.getLogger("gaugeway.judge")
Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
TOLERATED = 0.1
"""The share of anchors that may disagree before the judge counts as changed."""
Scorer: TypeAlias = Callable[[Sample, str], Awaitable[float | None]]
"""Scores a sample by the metric of this name; None when the metric gives no score."""
_Results: TypeAlias = "dict[str, list[tuple[Anchor, float | None]]]"


class _Passage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    id: str | None = None
    score: float | None = None
    source: str | None = None


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the anchors file; its keys are those of the data sets for `gaugeway evaluate`."""

    response: str
    expected: Annotated[dict[str, Rate], msgspec.Meta(min_length=1)]
    user_input: str | None = None
    retrieved_contexts: list[str | _Passage] = msgspec.field(default_factory=list)
    reference: str | None = None
    id: str | None = None
    tolerance: Rate = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A sample, and the score that each metric is expected to give it, within `tolerance`."""

    sample: Sample
    expected: Mapping[str, float]
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorComparison:
    """How the scores of one metric on anchors compare with the expected ones, or with those of another judge.

    `disagreement` is the share of the `n` compared scores that differ by more than the tolerance, `low` to `high` its
    95 % Wilson interval, `shift` the mean of score - expected. `failed` more anchors have no score to compare.
    """

    metric: str
    n: int
    failed: int
    disagreement: float
    low: float
    high: float
    shift: float

    @property
    def drifted(self) -> bool:
        """Whether significantly more than a tenth disagree: the interval lies above it."""
        return self.low > TOLERATED


def read(lines: Iterable[str]) -> tuple[Anchor, ...]:
    """Parse anchors from JSON lines. Raises ValueError that names the line, and for no anchors at all."""
    anchors = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise ValueError(f"line {number}: {error}") from error
        sample = Sample(
            id=row.id or f"line-{number}",
            started_at=0.0,
            question=row.user_input,
            response=row.response,
            contexts=tuple(map(_context, row.retrieved_contexts)),
            reference=row.reference,
        )
        anchors.append(Anchor(sample=sample, expected=row.expected, tolerance=row.tolerance))
    if not anchors:
        raise ValueError("the file has no anchors")
    if len({anchor.sample.id for anchor in anchors}) < len(anchors):
        raise ValueError("two anchors have the same id")
    return tuple(anchors)


def _context(given: str | _Passage) -> Context:
    if isinstance(given, str):
        return Context(text=given)
    return Context(text=given.text, id=given.id, score=given.score, source=given.source)


def compare(metric: str, results: Sequence[tuple[Anchor, float | None]]) -> AnchorComparison:
    """Compare the scores of one metric with the expected ones."""
    gaps = [(score - anchor.expected[metric], anchor.tolerance) for anchor, score in results if score is not None]
    n = len(gaps)
    off = sum(abs(gap) > tolerance + 1e-9 for gap, tolerance in gaps)
    low, high = wilson(off, n) if n else (0.0, 1.0)
    return AnchorComparison(
        metric=metric,
        n=n,
        failed=len(results) - n,
        disagreement=off / n if n else 0.0,
        low=low,
        high=high,
        shift=math.fsum(gap for gap, _ in gaps) / n if n else 0.0,
    )


def compare_judges(metric: str, results: Sequence[tuple[Anchor, float | None, float | None]]) -> AnchorComparison:
    """Compare the scores of another judge with those of the present one: (anchor, present score, other score)."""
    pairs = [(replace(anchor, expected={metric: now}), other) for anchor, now, other in results if now is not None]
    found = compare(metric, pairs)
    return replace(found, failed=len(results) - found.n)


@dataclass(eq=False)
class AnchorWatch:
    """Scores every anchor every `every_s`, one at a time so that traffic comes first, and passes results to `on_drift`.

    Caches are bypassed, and every round has new sample ids, so that no answer of an earlier round is shared. With
    `score_next` every scheduled round is repeated with another judge, and its agreement passed to `on_agreement`:
    with `score_alone`, the present judge's model without the tiers before it, if it has any, else with `score`.
    """

    anchors: Sequence[Anchor]
    score: Scorer
    _: KW_ONLY
    every_s: float = 86_400.0
    on_drift: Callable[[AnchorComparison], None]
    score_next: Scorer | None = None
    score_alone: Scorer | None = None
    on_agreement: Callable[[AnchorComparison], None] = lambda _: None
    wait: Callable[[Coroutine[Any, Any, Any], float], Awaitable[object]] = asyncio.wait_for
    _round: int = field(default=0, init=False)
    _called: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Judge the anchors now, then every `every_s` or when woken, until cancelled."""
        scheduled = True
        while True:
            self._called.clear()
            results = await self._results(self.score)
            for metric, some in results.items():
                self.on_drift(compare(metric, some))
            if scheduled and self.score_next is not None:
                await self._compare_next(results, self.score_next)
            scheduled = False
            try:
                await self.wait(self._called.wait(), self.every_s)
            except TimeoutError:
                scheduled = True

    def wake(self) -> None:
        """Start the next round now, or when the present one is over, with the present judge alone."""
        self._called.set()

    def is_requested(self) -> bool:
        """Whether a round was requested that has not begun."""
        return self._called.is_set()

    async def once(self) -> list[AnchorComparison]:
        """Judge every anchor once; return the comparison for each metric that they name."""
        return [compare(metric, some) for metric, some in (await self._results(self.score)).items()]

    async def _compare_next(self, results: _Results, score: Scorer) -> None:
        if self.score_alone is not None:
            results = await self._results(self.score_alone)
        others = await self._results(score)
        for metric, some in results.items():
            pairs = zip(some, others[metric], strict=True)
            self.on_agreement(compare_judges(metric, [(anchor, now, other) for (anchor, now), (_, other) in pairs]))

    async def _results(self, score: Scorer) -> _Results:
        """Return the anchors of each metric with their scores, sorted by metric."""
        self._round += 1
        results: _Results = {}
        with bypass_cache():
            for anchor in self.anchors:
                sample = replace(anchor.sample, id=f"anchor-{self._round}-{anchor.sample.id}")
                for metric in anchor.expected:
                    results.setdefault(metric, []).append((anchor, await _try(score, sample, metric)))
        return dict(sorted(results.items()))


async def _try(score: Scorer, sample: Sample, metric: str) -> float | None:
    try:
        return await score(sample, metric)
    except Exception as error:  # noqa: BLE001 - one anchor without a score must not end the watch
        _log.warning("%s has no %s: %s: %s", sample.id, metric, type(error).__name__, error)
        return None

"""Which step of an agent retrieves worse: relevance of the passages by hop and tool, before and since an onset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from monitors.alerting.causes.observations import ALPHA, Explanation
from monitors.statistics.decomposition import fall
from monitors.statistics.weighted_mean import Estimate, hajek

MAX_STEPS = 20
"""Steps that are compared; the most frequent ones since the onset."""
_ALONE = 0.8
"""Strength of "retrieval" where nothing else says so: questions that need more of this step would look the same."""
_APART = 0.5
"""A step is named if the fall of every other one is below this part of its own."""


class Step(NamedTuple):
    """A place where passages come from: the hop of the turn, and the tool that was called in it."""

    hop: int | None
    tool: str | None

    def __str__(self) -> str:
        parts = [f"hop {self.hop}"] if self.hop is not None else []
        return ", ".join([*parts, f"tool {self.tool}"] if self.tool else parts)


class Retrieved(Struct, frozen=True, kw_only=True):
    """One exchange: the mean relevance, in [0, 1], of the passages of each step, and its sampling rate."""

    relevance: Mapping[Step, float]
    rate: float


class FallenStep(Struct, frozen=True, kw_only=True):
    """A step whose passages became less relevant, unlike those of the others; means with their numbers of exchanges."""

    step: Step
    before: float
    since: float
    n_before: int
    n_since: int
    alone: bool = True
    """Whether no other step clearly fell; else they fell by less than half as much."""

    def explain(self, why: Explanation) -> Explanation:
        """Return an explanation with the step. One that fell alone rules out a stricter judge, which all would show."""
        if why.cause != "unknown":
            return replace(why, detail=f"{why.detail} {self.sentence()}")
        return replace(
            why,
            cause="retrieval",
            detail=self.sentence(),
            strength=_ALONE,
            evidence=(f"relevance of {self.step} fell {'alone' if self.alone else 'most'}",),
        )

    def sentence(self) -> str:
        """Return what alerts say of it."""
        others = "did not" if self.alone else "did too, by less than half as much"
        return (
            f"The passages of {self.step} became less relevant, {self.before:.2f} to {self.since:.2f} "
            f"(n {self.n_before} before, {self.n_since} since); those of other hops {others}."
        )


def fallen_step(before: Sequence[Retrieved], since: Sequence[Retrieved]) -> FallenStep | None:
    """Return the step that fell while all others did not, or None.

    Needs two steps on both sides, each with 10 effective exchanges. The step's fall must be clear at level 5 % over the
    number of steps, its interval must lie above that of every other step, and no other may have fallen half as much.
    """
    steps = _most_frequent(since)
    found = {}
    for step in steps:
        old, new = _mean(before, step), _mean(since, step)
        if old is not None and new is not None and (dropped := fall(old, new)) is not None:
            found[step] = old, new, dropped
    if len(found) < 2:  # noqa: PLR2004 - one step is all of the retrieval
        return None
    alpha = ALPHA / len(found)
    step, (old, new, worst) = max(found.items(), key=lambda item: item[1][2].value)
    others = [dropped for other, (_, _, dropped) in found.items() if other != step]
    if not worst.clear(alpha) or any(
        contrast.value >= _APART * worst.value or contrast.interval(ALPHA)[1] >= worst.value for contrast in others
    ):
        return None
    alone = not any(contrast.clear(ALPHA) for contrast in others)
    return FallenStep(step=step, before=old.mean, since=new.mean, n_before=old.n, n_since=new.n, alone=alone)


def _most_frequent(some: Sequence[Retrieved]) -> list[Step]:
    counts = Counter(step for exchange in some for step in exchange.relevance)
    return [step for step, _ in counts.most_common(MAX_STEPS)]


def _mean(some: Sequence[Retrieved], step: Step) -> Estimate | None:
    there = [exchange for exchange in some if step in exchange.relevance]
    if not there:
        return None
    return hajek([exchange.relevance[step] for exchange in there], [exchange.rate for exchange in there])

"""Evaluations on both sides of an onset, their comparison, and the formatting of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from gaugeway.records import Cause
from monitors.statistics.decomposition import Contrast, fall
from monitors.statistics.weighted_mean import Estimate, hajek

ALPHA = 0.05
"""The error probability of one explanation over all its comparisons (Bonferroni)."""
HEAVIEST = 10.0
"""Bound of the weights, as a multiple of the smallest, where a comparison fails without one."""
STRONG, MODERATE = 0.95, 0.8
"""Probabilities from which on a cause is called strong, or moderate; below it is weak."""
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


class Observation(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # tens of thousands at once
    """One evaluation of one exchange. `value` is on the "higher is better" scale, None unless it is a score.

    `rate` is its inclusion probability, `reason` that of a skip or failure; `version` and `judge` produced the outcome.
    `strata` are the exchange's values of "model", "prompt", "tag:NAME" and "topic"; `question` is the same for equal
    questions, "" if unknown.
    """

    sample_id: str
    metric: str
    started_at: float
    rate: float
    outcome: Literal["score", "skipped", "failed"]
    value: float | None
    reason: str
    version: str
    judge: str | None
    strata: Mapping[str, str]
    question: str = ""

    @property
    def maker(self) -> tuple[str, str]:
        """The metric's version and the judge that made the outcome; other makers' scores are not comparable."""
        return self.version, self.judge or ""


class JudgeEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the judge's anchors drifted, with numbers in `detail`; `pending` while they are being judged again."""

    drifted: bool
    detail: str = ""
    pending: bool = False


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A cause with its numbers, and the slice ("model=gpt-x") it is confined to, if any.

    `strength`, in [0, 1], is the probability of the cause under stated priors, None for "unknown"; `evidence` names
    what it rests on. `source` names the source of passages that is to blame, if one is. `place` is the part of the
    traffic that fell while the rest did not, or hardly.
    """

    cause: Cause
    detail: str
    slice: str = ""
    strength: float | None = None
    evidence: tuple[str, ...] = ()
    source: str | None = None
    place: Split | None = None


class Fall(msgspec.Struct, frozen=True, kw_only=True):
    """One metric on both sides; `contrast` is None if there are too few scores to compare."""

    metric: str
    before: Sequence[Observation]
    since: Sequence[Observation]
    old: Estimate | None
    new: Estimate | None
    contrast: Contrast | None

    @property
    def judged(self) -> bool:
        """Whether a judge made the scores."""
        return any(observation.judge is not None for observation in self.since)

    def clear(self, alpha: float) -> bool:
        """Return whether the mean fell significantly."""
        return self.contrast is not None and self.contrast.clear(alpha)

    def at_most(self, alpha: float) -> float:
        """Return the upper bound of the fall; infinite if there are too few scores to compare."""
        return math.inf if self.contrast is None else self.contrast.interval(alpha)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of the traffic beside the rest: the falls of both, and the part's `share` of the traffic since."""

    share: float
    inside: Fall
    rest: Fall

    @property
    def apart(self) -> Contrast | None:
        """By how much more the part fell than the rest; None where either has too few scores."""
        ours, theirs = self.inside.contrast, self.rest.contrast
        if ours is None or theirs is None:
            return None
        return Contrast(value=ours.value - theirs.value, se=math.hypot(ours.se, theirs.se))

    @property
    def only(self) -> bool:
        """Whether the rest did not clearly fall."""
        return not self.rest.clear(ALPHA)

    def changes(self, words: Words) -> str:
        """Return the means of both, before and since."""
        return f"{words.change(self.inside)}, the rest {words.change(self.rest)}"


def divided(
    side: Sequence[Observation], has: Callable[[Observation], bool]
) -> tuple[list[Observation], list[Observation]]:
    """Return the scores that belong to a part of the traffic, and the others."""
    parts: dict[bool, list[Observation]] = {True: [], False: []}
    for observation in side:
        parts[has(observation)].append(observation)
    return parts[True], parts[False]


class Words:
    """Formats results on the metric's own scale, where a metric whose best is 0 rises as it gets worse."""

    def __init__(self, lower_is_better: Callable[[str], bool]) -> None:
        self._flipped = lower_is_better

    def mean(self, metric: str, estimate: Estimate | None) -> str:
        """Format a mean on the metric's own scale."""
        if estimate is None:
            return "none"
        return f"{1.0 - estimate.mean if self._flipped(metric) else estimate.mean:.2f}"

    def fell(self, metric: str) -> str:
        """Return the verb for getting worse."""
        return "rose" if self._flipped(metric) else "fell"

    def change(self, fall: Fall) -> str:
        """Format both means and the number of scores of the later one."""
        n = fall.new.n if fall.new is not None else 0
        return f"{self.mean(fall.metric, fall.old)} to {self.mean(fall.metric, fall.new)} (n {n})"

    def whole(self, drop: Fall) -> str:
        """Return a clause about a metric that got worse."""
        return f"{drop.metric} {self.fell(drop.metric)}, {self.change(drop)}"

    def beside(self, other: Fall, note: str = "") -> str:
        """Return a clause about a metric that got worse by less than half as much as another one, if at all."""
        change = self.change(other)
        if other.clear(ALPHA):
            return f"{other.metric}{note} {self.fell(other.metric)} too, by less than half as much, {change}"
        return f"{other.metric}{note} did not, {change}"


def usable(observation: Observation) -> bool:
    """Return whether it is a valid score."""
    return (
        observation.outcome == "score"
        and observation.value is not None
        and 0.0 <= observation.value <= 1.0
        and 0.0 < observation.rate <= 1.0
    )


def scores_of(metric: str, observations: Iterable[Observation]) -> list[Observation]:
    """Return the scores of one metric, the first one per exchange."""
    found: dict[str, Observation] = {}
    for observation in observations:
        if observation.metric == metric and usable(observation):
            found.setdefault(observation.sample_id, observation)
    return list(found.values())


def values_of(scores: Iterable[Observation]) -> list[float]:
    """Return the values of scores."""
    return [observation.value or 0.0 for observation in scores]


def estimate(scores: Sequence[Observation], *, heaviest: float = math.inf) -> Estimate | None:
    """Return the mean over all traffic; None without scores. No weight exceeds `heaviest` times the smallest."""
    if not scores:
        return None
    least_rate = max(observation.rate for observation in scores) / heaviest
    return hajek(values_of(scores), [max(observation.rate, least_rate) for observation in scores])


def compare(metric: str, before: Sequence[Observation], since: Sequence[Observation]) -> Fall:
    """Compare the scores of one metric since the onset with those before.

    If a few heavily weighted scores leave fewer than 10 effective ones on a side, the weights of both sides are bounded
    at `HEAVIEST` times the smallest: a small bias, the same on both sides, instead of no comparison.
    """
    old, new = estimate(before), estimate(since)
    contrast = fall(old, new)
    if contrast is None and old is not None and new is not None:
        bounded = estimate(before, heaviest=HEAVIEST), estimate(since, heaviest=HEAVIEST)
        if (contrast := fall(*bounded)) is not None:
            old, new = bounded
    return Fall(metric=metric, before=before, since=since, old=old, new=new, contrast=contrast)


def share(flags: Iterable[tuple[bool, float]]) -> Estimate | None:
    """Return the share of true flags over all traffic, from (flag, rate) pairs; None without pairs."""
    known = [(float(flag), rate) for flag, rate in flags if 0.0 < rate <= 1.0]
    return hajek([flag for flag, _ in known], [rate for _, rate in known]) if known else None


def strength_word(probability: float) -> str:
    """Return what a strength is called, as it is shown: with two decimals.

    >>> [strength_word(share) for share in (0.97, 0.9, 0.7999, 0.7)]
    ['strong', 'moderate', 'moderate', 'weak']
    """
    shown = round(probability, 2)
    return "strong" if shown >= STRONG else "moderate" if shown >= MODERATE else "weak"


def from_p_value(p: float) -> float:
    """Return an upper bound of the posterior of an effect at even prior odds, from the p-value of its absence.

    T. Sellke, M. J. Bayarri & J. O. Berger (2001), Calibration of p values, Am. Stat. 55: B >= -e p ln p.

    >>> round(from_p_value(0.05), 2), round(from_p_value(0.0001), 3), from_p_value(0.5)
    (0.71, 0.997, 0.5)
    """
    if p >= 1.0 / math.e:
        return 0.5
    if p <= 0.0:
        return 1.0
    return 1.0 / (1.0 - math.e * p * math.log(p))


def percent(part: float) -> str:
    """Format a share.

    >>> percent(0.314), percent(0.004)
    ('31 %', '0.4 %')
    """
    return f"{100.0 * part:.0f} %" if part >= 0.01 or part == 0.0 else f"{100.0 * part:.1f} %"  # noqa: PLR2004 - below a percent "0 %" would be wrong


def duration(seconds: float) -> str:
    """Format a time span.

    >>> duration(40.0), duration(840.0), duration(9000.0)
    ('40 s', '14 min', '2.5 h')
    """
    for unit, name in ((_DAY, "d"), (_HOUR, "h")):
        if seconds >= 2.0 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds / _MINUTE:.0f} min" if seconds >= _MINUTE else f"{seconds:.0f} s"

"""What a trial says: live exchanges are sent again to a candidate, and both answers are scored by the same metrics.

The verdict is "ship", "do not ship" or "not yet". It is read from confidence sequences of the differences
candidate - live, which stay valid however often they are looked at. How, and with which error rates:
docs/explanation/trials.md. Pure: no clock, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from gaugeway.signals import UNDIRECTED
from monitors.alerting.stream import on_scale
from monitors.analysis.ab_binned import with_effect
from monitors.analysis.ab_compare import FEWEST_NAMES, NAMED_SHARE, conversation_of, look_sizes
from monitors.statistics.clusters import groups_of
from monitors.statistics.dependence import block_sums, design_effects
from monitors.statistics.eprocess import Array
from monitors.statistics.multiple_testing import affected
from monitors.statistics.sequential_ab import (
    MIN_SCORES,
    SequentialTest,
    interval,
    log_evidence,
    paired_difference,
    threshold,
    times_needed,
)
from monitors.statistics.weighted_mean import Estimate, hajek

TrialVerdict: TypeAlias = Literal["ship", "do not ship", "not yet"]
MetricDecision: TypeAlias = Literal["worse", "not worse", "not yet"]
_Names: TypeAlias = tuple[str | None, ...]
Role: TypeAlias = Literal["primary", "secondary", "reported"]

MOST_SLICES = 20  # internal bound: a list for people
"""Slices that are reported: of more, those with the strongest evidence."""
MOST_SLICES_TESTED = 200  # internal bound: each slice that is tested costs the others evidence
"""Slices that are tested: of more, those with the most pairs."""
RATIO_FROM, RATIO_SCALE = 30.0, 0.05
"""Effective number of conversations from which the interval of a ratio is given, and the ln of a ratio at which its
sequence is tightest."""
_BLOCK = 10


class Pair(NamedTuple):
    """The scores of one exchange's live answer and of the candidate's.

    `at` is the Unix time at which the pair became complete, `rate` the probability in (0, 1] with which the exchange
    was chosen, `cluster` the names of its conversation as in `Sample.cluster`, `facets` its topic, language, source and
    tags.
    """

    exchange: str
    at: float
    live: float
    candidate: float
    rate: float = 1.0
    cluster: str | None = None
    facets: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRules:
    """How a trial is decided.

    `margin` is the loss of the primary metric that is accepted, `alpha` the error rate of the verdicts of all `arms`
    (candidates that are tried against the same live version) together. `ratios` are the metrics without a scale from 0
    to 1 (latency, tokens, cost).
    """

    primary: str
    margin: float = 0.02
    alpha: float = 0.05
    arms: int = 1
    lower_is_better: frozenset[str] = frozenset()
    ratios: frozenset[str] = frozenset()

    def role(self, metric: str) -> Role:
        """What a metric is to the verdict."""
        if metric == self.primary:
            return "primary"
        return "reported" if metric in self.ratios or metric in UNDIRECTED else "secondary"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """One metric on its own scale, from `n` pairs of `clusters` conversations.

    `low` to `high` is the interval of `difference`, candidate - live, or of `ratio`, candidate/live, where there is
    one; None with too few pairs. Each end is ever wrong with a probability of at most `end_alpha`. `more` estimates how
    many more pairs the decision needs at the difference seen, `more_if_equal` how many if the candidate is equal from
    now on; None after the decision, `more` also while the difference is within its error of the margin. `saved` is
    1 - var(difference)/(var(live) + var(candidate)), the share of the variance that pairing removes, below 0 where it
    adds some; `design_effect` by how much conversations raise the variance of the difference.
    """

    metric: str
    role: Role
    n: int
    clusters: int = 0
    live: float | None = None
    candidate: float | None = None
    difference: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    end_alpha: float
    decision: MetricDecision = "not yet"
    superior: bool = False
    equal: bool = False
    more: int | None = None
    more_if_equal: int | None = None
    saved: float | None = None
    design_effect: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """A part of the exchanges in which the candidate's primary metric is worse, on the metric's own scale."""

    facet: str
    value: str
    n: int
    live: float
    candidate: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What a trial says so far; a verdict, once reached, stays.

    `decided_by` is the metric that decided, `decided_at` the time of the last pair that it needed. `superior` and
    `equal` (within the margin, in both directions) are about the primary metric. `slices` were found among
    `slices_tested`, the strongest evidence first.
    """

    verdict: TrialVerdict
    metrics: tuple[MetricResult, ...]
    decided_by: str | None = None
    decided_at: float | None = None
    superior: bool = False
    equal: bool = False
    more: int | None = None
    slices: tuple[SliceResult, ...] = ()
    slices_tested: int = 0

    def __str__(self) -> str:
        if self.verdict != "not yet" or self.more is None:
            return self.verdict
        return f"{self.verdict}: about {self.more:,} more needed"


def trial_result(metrics: Mapping[str, Sequence[Pair]], rules: TrialRules) -> TrialResult:
    """Return the result of one candidate from its pairs by metric, each in the order in which they became complete.

    Name every metric from the start, also without pairs: the error rate is divided among them. The looks are replayed
    after fixed numbers of pairs, each from the pairs before it alone, so pairs that come later change no verdict.

    Raises ValueError for a primary metric that is not there or cannot decide, for a margin or an alpha out of range,
    and for a score outside [0, 1].
    """
    if rules.primary not in metrics or rules.primary in rules.ratios or rules.primary in UNDIRECTED:
        raise ValueError(f"the primary metric must have scores in [0, 1] and a better direction, got {rules.primary!r}")
    if not (0.0 < rules.alpha < 1.0 and rules.arms >= 1):
        raise ValueError(f"alpha must be in (0, 1) and there is an arm, got {rules.alpha!r} and {rules.arms!r}")
    secondaries = sum(rules.role(metric) == "secondary" for metric in metrics)
    grouped: dict[_Names, Sequence[int]] = {}  # the metrics of an exchange come together: most have the same pairs
    results, decisions = [], []
    for metric, pairs in metrics.items():
        role = rules.role(metric)
        # one half of alpha is that of the primary metric, the other is shared by all others that can stop a ship
        end_alpha = rules.alpha / 2.0 / rules.arms / (secondaries if role == "secondary" else 1)
        if metric in rules.ratios:
            results.append(_ratio(metric, pairs, end_alpha))
            continue
        scores = _Scores(pairs, grouped, flipped=metric in rules.lower_is_better)
        test = SequentialTest(rules.margin, end_alpha)
        decided_at = _replayed(scores, test)
        verdict = test.verdict()
        results.append(_result(metric, scores, rules, end_alpha, test))
        if decided_at is not None and (verdict.decision == "roll back" or role == "primary") and role != "reported":
            decisions.append((decided_at, verdict.decision != "roll back", metric))
    primary = next(result for result in results if result.role == "primary")
    flipped = rules.primary in rules.lower_is_better
    slices, tested = _worse_slices(metrics[rules.primary], rules, flipped=flipped)
    # at the same time "do not ship" comes first
    at, ships, by = min(decisions, default=(None, False, None))
    return TrialResult(
        verdict="not yet" if by is None else "ship" if ships else "do not ship",
        metrics=tuple(results),
        decided_by=by,
        decided_at=at,
        superior=primary.superior,
        equal=primary.equal,
        more=(primary.more_if_equal if primary.more is None else primary.more) if by is None else None,
        slices=slices,
        slices_tested=tested,
    )


class _Scores:
    """The pairs of one metric on the scale where 1 is best; `grouped` keeps the groups that other metrics found."""

    def __init__(self, pairs: Sequence[Pair], grouped: dict[_Names, Sequence[int]], *, flipped: bool) -> None:
        self._names, self._grouped = tuple(pair.cluster for pair in pairs), grouped
        self.pairs, self.sign = pairs, -1.0 if flipped else 1.0
        self.live, self.candidate, self.rates = (
            np.array([on_scale(pair.live, flipped=flipped) for pair in pairs]),
            np.array([on_scale(pair.candidate, flipped=flipped) for pair in pairs]),
            np.array([pair.rate for pair in pairs]),
        )
        both = np.concatenate([self.live, self.candidate])
        if not ((both >= 0.0) & (both <= 1.0)).all():  # NaN, too
            raise ValueError("scores lie in [0, 1]; name other metrics as ratios")
        self.halves = (self.candidate - self.live + 1.0) / 2.0
        names = [conversation_of(pair.cluster) for pair in pairs]
        first = {name: index for index, name in reversed(list(enumerate(names))) if name}
        # in the first so many pairs: the share with a conversation's name, and the number of conversations
        self._named = np.cumsum([name is not None for name in names]) / np.arange(1, len(names) + 1)
        self._conversations = np.cumsum(np.isin(np.arange(len(names)), list(first.values())))
        self._effects = design_effects(block_sums(self.halves, 1.0 / self.rates, _BLOCK))

    def estimates(self, end: int, *values: Array) -> list[Estimate]:
        """Estimate the means of some values over all traffic from the first `end` pairs, and those alone.

        Pairs without a conversation's name that come close to each other may be of the same one, so then the order
        counts, too.
        """
        names = self._names[:end]
        if (groups := self._grouped.get(names)) is None:
            groups = self._grouped[names] = groups_of(names)
        effect = 1.0 if self._named[end - 1] >= NAMED_SHARE else float(self._effects[end // _BLOCK])
        return [with_effect(hajek(value[:end], self.rates[:end], groups), effect) for value in values]

    def enough(self, end: int) -> bool:
        """Whether the first `end` pairs are of enough conversations, where these are known."""
        return bool(self._named[end - 1] < NAMED_SHARE or self._conversations[end - 1] >= FEWEST_NAMES)


def _replayed(scores: _Scores, test: SequentialTest) -> float | None:
    """Look at all whole looks; return when the verdict was reached."""
    decided_at = None
    for end in filter(scores.enough, _whole_looks(len(scores.pairs))):
        (halves,) = scores.estimates(end, scores.halves)
        if test.look_at_pairs(halves) != "not enough data" and decided_at is None:
            decided_at = max(pair.at for pair in scores.pairs[:end])
    return decided_at


def _whole_looks(count: int) -> Iterator[int]:
    """Yield the numbers of pairs at which a test looks: every tenth, then every 4 % more.

    >>> list(_whole_looks(39)), list(_whole_looks(40))
    ([10, 20, 30], [10, 20, 30, 40])
    """
    # the last one of `look_sizes` may be cut short, and would be another one when more pairs are there
    return (end for end in look_sizes(2 * count + _BLOCK) if end <= count)


def _result(metric: str, scores: _Scores, rules: TrialRules, end_alpha: float, test: SequentialTest) -> MetricResult:
    verdict = test.verdict()
    role, n = rules.role(metric), len(scores.pairs)
    if not n:
        return MetricResult(metric=metric, role=role, n=0, end_alpha=end_alpha)
    halves, live, candidate = scores.estimates(n, scores.halves, scores.live, scores.candidate)
    flipped = scores.sign < 0.0
    apart = live.sd**2 / live.n_eff + candidate.sd**2 / candidate.n_eff
    together = 4.0 * halves.sd**2 / halves.n_eff
    needed = threshold(end_alpha)
    difference, variance, _ = paired_difference(halves, needed)
    low = high = more = more_if_equal = None
    if (ends := test.interval(halves)) is not None and scores.enough(n):
        distance = difference + rules.margin
        low, high = _on_own_scale(scores, ends, 2.0 * halves.mean - 1.0)
        if verdict.decision == "not enough data":
            if rules.margin:
                more_if_equal = _more(times_needed(rules.margin, variance, rules.margin, needed, seen=distance), n)
            clear = distance**2 > variance
            more = _more(times_needed(abs(distance), variance, rules.margin, needed), n) if clear else None
    decided = {"roll back": "worse", "not enough data": "not yet"}.get(verdict.decision, "not worse")
    if role == "reported":  # neither more nor less is better
        decided, more, more_if_equal = "not yet", None, None
    return MetricResult(
        metric=metric,
        role=role,
        n=n,
        clusters=n if halves.clusters is None else halves.clusters,
        live=on_scale(live.mean, flipped=flipped),
        candidate=on_scale(candidate.mean, flipped=flipped),
        difference=scores.sign * (2.0 * halves.mean - 1.0),
        low=low,
        high=high,
        end_alpha=end_alpha,
        decision=decided,  # type: ignore[arg-type]  # mypy widens the dict's values to str
        superior=verdict.better and role != "reported",
        equal=verdict.decision == "within the margin",
        more=more,
        more_if_equal=more_if_equal,
        saved=1.0 - together / apart if apart > 0.0 else None,
        design_effect=halves.design_effect,
    )


def _more(times: float, n: int) -> int:
    return max(1, math.ceil((times - 1.0) * n))


def _on_own_scale(scores: _Scores, ends: tuple[float, float], seen: float) -> tuple[float, float]:
    """Return an interval on the metric's own scale, within [-1, 1] and around the difference that was seen."""
    low, high = max(-1.0, min(seen, ends[0])), min(1.0, max(seen, ends[1]))
    return (low, high) if scores.sign > 0.0 else (-high, -low)


def _ratio(metric: str, pairs: Sequence[Pair], end_alpha: float) -> MetricResult:
    """Compare means of any scale above 0 by their ratio; its logarithm has the variance of the relative difference."""
    nothing = MetricResult(metric=metric, role="reported", n=len(pairs), end_alpha=end_alpha)
    if not pairs:
        return nothing
    groups, rates = groups_of([pair.cluster for pair in pairs]), [pair.rate for pair in pairs]
    values = np.array([[pair.live, pair.candidate] for pair in pairs]).T
    live, candidate = (hajek(side, rates, groups) for side in values)
    if not (live.mean > 0.0 and candidate.mean > 0.0):
        return nothing
    relative = hajek(values[1] / candidate.mean - values[0] / live.mean, rates, groups)
    variance = relative.sd**2 / relative.n_eff
    apart = sum((side.sd / side.mean) ** 2 / side.n_eff for side in (live, candidate))
    ratio, low, high = candidate.mean / live.mean, None, None
    if relative.n_eff >= RATIO_FROM and variance > 0.0:
        ends = interval(math.log(ratio), variance, RATIO_SCALE, threshold(end_alpha))
        low, high = map(math.exp, ends)
    return MetricResult(
        metric=metric,
        role="reported",
        n=len(pairs),
        clusters=len(pairs) if relative.clusters is None else relative.clusters,
        live=live.mean,
        candidate=candidate.mean,
        difference=candidate.mean - live.mean,
        ratio=ratio,
        low=low,
        high=high,
        end_alpha=end_alpha,
        saved=1.0 - variance / apart if apart > 0.0 else None,
        design_effect=relative.design_effect,
    )


def _worse_slices(pairs: Sequence[Pair], rules: TrialRules, *, flipped: bool) -> tuple[tuple[SliceResult, ...], int]:
    """Return the slices in which the candidate is worse, and how many were tested: e-BH at `alpha`/`arms`.

    Which slices are tested depends on the facets alone, never on a score.
    """
    members: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        for facet in pair.facets.items():
            members.setdefault(facet, []).append(pair)
    parts = {facet: part for facet, part in members.items() if MIN_SCORES <= len(part) < len(pairs)}
    tested = sorted(parts, key=lambda facet: (-len(parts[facet]), facet))[:MOST_SLICES_TESTED]
    slices = {" ".join(facet): (facet, _Scores(parts[facet], {}, flipped=flipped)) for facet in tested}
    estimates = {
        name: scores.estimates(len(scores.pairs), scores.halves, scores.live, scores.candidate)
        for name, (_, scores) in slices.items()
    }
    evidence, alpha = {}, rules.alpha / rules.arms
    needed = threshold(alpha, max(1, len(tested)))
    for name, (halves, _, _) in estimates.items():
        difference, variance, conversations = paired_difference(halves, needed)
        evidence[name] = (
            log_evidence(-difference, variance, rules.margin)
            if conversations >= MIN_SCORES and slices[name][1].enough(halves.n)
            else 0.0
        )
    worse = list(affected(evidence, alpha))[:MOST_SLICES]
    # a shorter list must fulfil the condition of e-BH for its own length
    while worse and evidence[worse[-1]] < threshold(alpha * len(worse) / len(tested)):
        worse.pop()
    results = []
    for name in worse:
        (name_of_facet, value), scores = slices[name]
        halves, live, candidate = estimates[name]
        difference, variance, _ = paired_difference(halves, needed)
        ends = interval(difference, variance, rules.margin, threshold(alpha * len(worse) / len(tested)))
        low, high = _on_own_scale(scores, ends, 2.0 * halves.mean - 1.0)
        results.append(
            SliceResult(
                facet=name_of_facet,
                value=value,
                n=len(scores.pairs),
                live=on_scale(live.mean, flipped=flipped),
                candidate=on_scale(candidate.mean, flipped=flipped),
                difference=scores.sign * (2.0 * halves.mean - 1.0),
                low=low,
                high=high,
            )
        )
    return tuple(results), len(tested)

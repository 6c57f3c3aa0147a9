"""Sequential A/B test of a new version, valid when looked at after every score.

Two hypotheses about the challenger B, the champion A and a margin, at least one of which is false unless both hold with
equality::

    H0 "good enough":  mean_B >= mean_A - margin      rejected: roll back
    H0 "too bad":      mean_B <= mean_A - margin      rejected: ship

Each is rejected when its evidence, an e-process, reaches tests/alpha. By Ville's inequality the probability that a true
one is ever rejected, for any number of looks, is at most alpha/tests. With `tests` comparisons (challengers, metrics)
the probability that any of them ever decides wrongly is at most alpha, under any dependence (e-Bonferroni: a version is
shipped or not on each comparison alone, so the family-wise error is what counts, not the false discovery rate).

References: Ramdas, Grunwald, Vovk & Shafer, arXiv 2210.01948 (e-processes); Waudby-Smith & Ramdas, arXiv 2010.09686
(the bets); docs/explanation/estimates.md#the-difference-of-two-versions (the infimum over the unknown mean of a
product of e-processes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from gaugeway.storage.sums import WeightedSums
from monitors.statistics import eprocess
from monitors.statistics.eprocess import Array, checked
from monitors.statistics.weighted_mean import Estimate, hajek_from_sums

Arm: TypeAlias = Literal["champion", "challenger"]
Decision: TypeAlias = Literal["ship", "roll back", "not enough data"]

CELLS = 60
_AT_ONCE = 64
_TINY = 1e-9
MIN_SCORES = 20
"""Scores of each version before `more` is estimated."""
_COST, _PAIRED_COST = 3.5, 2.1
"""The cost of the mixture of bets against the best bet, in log evidence: measured, and ln 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The current result. A decision, once reached, is final.

    `difference` is the challenger's mean minus the champion's, None before both have a score. `n` counts scores (pairs
    in a paired comparison). `for_roll_back` and `for_ship` are log10 of the strongest evidence so far over the
    threshold: the decision falls at 0. `more` estimates the number of further scores needed at the current split and
    difference; None after the decision or while the difference is within its error.
    """

    decision: Decision
    difference: float | None
    n: int
    for_roll_back: float
    for_ship: float
    more: int | None = None

    def __str__(self) -> str:
        if self.decision != "not enough data" or self.more is None:
            return self.decision
        return f"not enough data: needs about {self.more:,} more"


class Comparison:
    """The unpaired test: each exchange is answered by the champion or the challenger, with any split of the traffic.

    For each of 60 cells [m, m'] of the unknown mean of B, pairs (k, l) of bets, and u either end of the cell::

        F_kl(u) = prod_A ( 1 + g_k w (x - u - margin)/(m' + margin) )  prod_B ( 1 + g_l w (u - x)/(1 - m) )
        E = min over cells of mean_kl min( F_kl(m), F_kl(m') )

    E is the evidence against "good enough". If the mean of B is u, then under H0 that of A is <= u + margin, and F(u)
    is a supermartingale. Its logarithm is concave in u, so that within a cell it is nowhere below the smaller of the
    two ends, and E is below the mixture of F(u). "Too bad" is the same test of 1 - x with -margin.

    Weights are w = pi_min/pi as in the detectors. Scores of the two versions must be independent; if both answer the
    same questions use `PairedComparison`.

    >>> comparison, rng = Comparison(margin=0.02, alpha=0.01), np.random.default_rng(1)
    >>> for _ in range(40):
    ...     comparison.update("champion", rng.beta(6.7, 1.2, 10))
    ...     comparison.update("challenger", rng.beta(5.9, 2.0, 10))
    >>> str(comparison.verdict())
    'roll back'
    """

    def __init__(self, margin: float = 0.02, alpha: float = 0.01, tests: int = 1) -> None:
        _check(margin, alpha, tests)
        self._margin = margin
        self._threshold = math.log(tests / alpha)
        # against "good enough", and against "too bad" by the mirror image
        self._sides = (_Side(margin), _Side(-margin))
        self._arms: dict[Arm, WeightedSums] = {"champion": WeightedSums(), "challenger": WeightedSums()}
        self._progress = _Progress()

    def update(self, arm: Arm, scores: Sequence[float] | Array, weights: Sequence[float] | Array | None = None) -> None:
        """Add scores of one version. Raises ValueError, without a change, for scores or weights out of range."""
        x, w = checked(list(scores), [1.0] * len(scores) if weights is None else list(weights))
        if arm not in self._arms:
            raise ValueError(f"expected champion or challenger, got {arm!r}")
        self._arms[arm] += WeightedSums.of(x, w)
        for side, values in zip(self._sides, (x, 1.0 - x), strict=True):
            side.add(arm, values, w)
        self._progress.see(self._sides[0].log_evidence(), self._sides[1].log_evidence(), self._threshold)

    def verdict(self) -> Verdict:
        """Return the current result."""
        a, b = (hajek_from_sums(self._arms[arm]) for arm in ("champion", "challenger"))
        n = sum(arm.n for arm in self._arms.values())
        if a is None or b is None:
            return self._progress.verdict(None, n, self._threshold, None)
        difference = b.mean - a.mean
        more = None
        if min(a.n, b.n) >= MIN_SCORES:
            worth = a.n_eff + b.n_eff
            spread = (_variance(a) / a.n_eff + _variance(b) / b.n_eff) * worth
            distance = difference + self._margin
            more = _more(distance, spread, self._progress.missing(distance, self._threshold, _COST), worth, n)
        return self._progress.verdict(difference, n, self._threshold, more)


class PairedComparison:
    """The paired test: both versions answered the same questions, which needs far fewer scores.

    With d = (x_B - x_A + 1)/2 in [0, 1] the hypotheses are "mean d >= (1 - margin)/2" and "<=", and the evidence is the
    mixture over the bets of prod(1 + g w (m0 - d)/(1 - m0)) and of prod(1 + g w (d - m0)/m0).

    >>> comparison, rng = PairedComparison(margin=0.02, alpha=0.01), np.random.default_rng(1)
    >>> easy = rng.random(300) < 0.8
    >>> comparison.update(easy * 1.0, np.where(rng.random(300) < 0.15, 0.0, easy))
    >>> str(comparison.verdict()), comparison.verdict().n
    ('roll back', 300)
    """

    def __init__(self, margin: float = 0.02, alpha: float = 0.01, tests: int = 1) -> None:
        _check(margin, alpha, tests)
        self._threshold = math.log(tests / alpha)
        self._m0 = (1.0 - margin) / 2.0
        self._bets = eprocess.bets()
        self._capital = np.zeros((2, len(self._bets)))
        self._pairs = WeightedSums()
        self._progress = _Progress()

    def update(
        self,
        champion: Sequence[float] | Array,
        challenger: Sequence[float] | Array,
        weights: Sequence[float] | Array | None = None,
    ) -> None:
        """Add pairs of scores. Raises ValueError, without a change, for scores or weights outside their ranges."""
        a, w = checked(list(champion), [1.0] * len(champion) if weights is None else list(weights))
        b, _ = checked(list(challenger), w.tolist())
        d = (b - a + 1.0) / 2.0
        self._pairs += WeightedSums.of(d, w)
        both = eprocess.drop_payoffs(d, w, self._m0), eprocess.rise_payoffs(d, w, self._m0)
        self._capital += np.stack([eprocess.log_factors(side, self._bets).sum(axis=0) for side in both])
        down, up = (float(value) for value in eprocess.log_mean(self._capital))
        self._progress.see(down, up, self._threshold)

    def verdict(self) -> Verdict:
        """Return the current result."""
        d = hajek_from_sums(self._pairs)
        if d is None:
            return self._progress.verdict(None, 0, self._threshold, None)
        more = None
        if d.n >= MIN_SCORES:
            missing = self._progress.missing(d.mean - self._m0, self._threshold, _PAIRED_COST)
            more = _more(d.mean - self._m0, _variance(d), missing, d.n_eff, d.n)
        return self._progress.verdict(2.0 * d.mean - 1.0, d.n, self._threshold, more)


@lru_cache(maxsize=16)  # every app and metric of a comparison uses the same cells
def cells(margin: float) -> tuple[Array, Array, Array]:
    """Return the ends of the cells (2 x 60) and the bets per unit of score on A and on B (60 x 8 each).

    Cells in which "mean_A <= u + margin" cannot hold for any u, as u + margin < 0, are left out.

    >>> ends, on_a, on_b = cells(0.02)
    >>> ends.shape, on_a.shape, float(on_a[-1, -1].round(3)), float(on_b[0, -1].round(3))
    ((2, 60), (60, 8), 0.784, 0.8)
    """
    grid = np.arange(CELLS + 1) / CELLS
    ends = np.stack([grid[:-1], grid[1:]])
    ends = ends[:, ends[1] + margin > -_TINY]
    found = (
        ends,
        eprocess.bets() / np.maximum(ends[1] + margin, _TINY)[:, None],
        eprocess.bets() / (1.0 - ends[0])[:, None],
    )
    for capital in found:
        capital.setflags(write=False)
    return found


def payoffs(scores: Array, weights: Array, points: Array) -> Array:
    """Return w (x - u) for each point u, on two new last axes."""
    return weights[..., None, None] * (scores[..., None, None] - points)


def log_evidence(on_a: Array, on_b: Array) -> Array:
    """Return ln E from the log capitals (..., 2 ends, cells, bets) on A and on B; leading axes are parallel streams."""
    both = (on_a[..., :, None] + on_b[..., None, :]).min(axis=-4)
    pairs = both.reshape(*both.shape[:-2], -1)
    most = pairs.max(axis=-1)
    # log-sum-exp relative to the largest term: faster than pairwise logaddexp
    mixture: Array = most + np.log(np.exp(pairs - most[..., None]).mean(axis=-1))
    lowest: Array = mixture.min(axis=-1)
    return lowest


class _Side:
    """The log capitals of one of the two hypotheses."""

    def __init__(self, margin: float) -> None:
        self.margin = margin
        self._ends, self._on_a, self._on_b = cells(margin)
        self.shape = (*self._ends.shape, self._on_a.shape[-1])
        self.size = math.prod(self.shape)
        self._capital = np.zeros((2, *self.shape))

    def add(self, arm: Arm, scores: Array, weights: Array) -> None:
        # Equal scores have equal gains. In chunks: a large batch at once would take 100 MB.
        unlike, counts = np.unique(np.stack([scores, weights]), axis=1, return_counts=True)
        for start in range(0, counts.size, _AT_ONCE):
            (x, w), n = unlike[:, start : start + _AT_ONCE], counts[start : start + _AT_ONCE]
            if arm == "champion":
                gains = payoffs(x, w, self._ends + self.margin)[..., None] * self._on_a
            else:
                gains = payoffs(x, w, self._ends)[..., None] * -self._on_b
            self._capital[0 if arm == "champion" else 1] += np.einsum("i,i...->...", n.astype(float), np.log1p(gains))

    def log_evidence(self) -> float:
        return float(log_evidence(self._capital[0], self._capital[1]))

    def gains(self, arm: Arm, scores: Array, weight: float) -> Array:
        """Return what each score of this weight adds to the log capitals: (scores, ends, cells, bets)."""
        weights = np.full(scores.shape, weight)
        if arm == "champion":
            return np.log1p(payoffs(scores, weights, self._ends + self.margin)[..., None] * self._on_a)
        return np.log1p(payoffs(scores, weights, self._ends)[..., None] * -self._on_b)

    def grow(self, on_a: Array, on_b: Array) -> Array:
        """Add the gains between looks (first axis); return the evidence at each look."""
        both = self._capital[:, None] + np.cumsum(np.stack([on_a, on_b]), axis=1)
        self._capital = both[:, -1].copy()
        return log_evidence(both[0], both[1])


def side_of(margin: float) -> _Side:
    """Return one of the two tests in its initial state."""
    return _Side(margin)


@dataclass(slots=True)
class _Progress:
    """The current and the strongest evidence for (roll back, ship), and the decision, if any."""

    now: tuple[float, float] = (0.0, 0.0)
    best: tuple[float, float] = (0.0, 0.0)
    decision: Decision = "not enough data"

    def see(self, down: float, up: float, threshold: float) -> None:
        self.now, self.best = (down, up), (max(down, self.best[0]), max(up, self.best[1]))
        if self.decision == "not enough data" and max(self.best) >= threshold:
            self.decision = "roll back" if self.best[0] >= self.best[1] else "ship"

    def missing(self, distance: float, threshold: float, cost: float) -> tuple[float, float]:
        """Return the evidence needed from all scores together, and the minimum from future ones."""
        return threshold + cost, threshold - self.now[distance > 0.0]

    def verdict(self, difference: float | None, n: int, threshold: float, more: int | None) -> Verdict:
        down, up = ((value - threshold) / math.log(10.0) for value in self.best)
        open_ = self.decision == "not enough data"
        return Verdict(
            decision=self.decision,
            difference=difference,
            n=n,
            for_roll_back=down,
            for_ship=up,
            more=more if open_ else None,
        )


def _check(margin: float, alpha: float, tests: int) -> None:
    if not 0.0 <= margin < 1.0:
        raise ValueError(f"the margin must be in [0, 1), got {margin!r}")
    if not (0.0 < alpha < 1.0 and tests >= 1):
        raise ValueError(f"alpha must be in (0, 1) and tests at least 1, got {alpha!r} and {tests!r}")


def _variance(estimate: Estimate) -> float:
    """Return the variance of the scores, shrunk towards 1/4 by one score."""
    return (0.25 + estimate.n_eff * estimate.sd**2) / (estimate.n_eff + 1.0)


def _more(distance: float, spread: float, missing: tuple[float, float], worth: float, n: int) -> int | None:
    """Return the number of further scores needed; None if the distance is within its own error.

    The best bets around the least favourable mean multiply the evidence by exp(distance^2/(2 spread)) per score, with
    spread = variance_A/share_A + variance_B/share_B. `worth` is the effective number of the n scores so far.
    """
    if distance * distance <= spread / worth:
        return None
    a_score = distance * distance / (2.0 * spread)
    in_all, to_come = missing
    return max(1, math.ceil(max(in_all / a_score - worth, to_come / a_score) * n / worth))


STEPS = 100
"""Steps of the score grid between 0 and 1."""
_GRID = np.linspace(0.0, 1.0, STEPS + 1)
_FEW_WEIGHTS = 6
_WEIGHTS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
"""The weight grid, used if there are more distinct weights than `_FEW_WEIGHTS`."""


class ScoreBins(NamedTuple):
    """Binned scores of one version, as columns of one length.

    A row holds the `n` scores in [k, k + 1)/100 (the last bin is closed) of weight `weight` that arrived before look
    number `look`; `x` is their sum, `x2` the sum of their squares.
    """

    look: Array
    k: Array
    n: Array
    x: Array
    x2: Array
    weight: Array

    @classmethod
    def of(cls, rows: Iterable[Sequence[float] | Array]) -> ScoreBins:
        """Build from rows of the six values, or from arrays of such rows."""
        return cls(*np.array([*rows], dtype=np.float64).reshape(-1, len(cls._fields)).T)


class CountedComparison(Comparison):
    """The unpaired test on binned scores, with many looks in one call.

    >>> good, bad = [(0, 90, 300, 271.5, 245.8, 1.0)], [(0, 70, 300, 211.5, 149.2, 1.0)]
    >>> str(CountedComparison(margin=0.02, alpha=0.01).judge(1, ScoreBins.of(good), ScoreBins.of(bad)))
    'roll back'
    """

    def judge(self, looks: int, champion: ScoreBins, challenger: ScoreBins) -> Verdict:
        """Evaluate `looks` looks in order, up to the decision."""
        arms: dict[Arm, ScoreBins] = {"champion": champion, "challenger": challenger}
        for arm, bins in arms.items():
            self._arms[arm] += WeightedSums.of_groups(n=bins.n, x=bins.x, x2=bins.x2, w=bins.weight)
        shared = {arm: _shared(looks, bins) for arm, bins in arms.items()}
        seen = []
        for side, mirrored in zip(self._sides, (False, True), strict=True):
            on = {arm: _gained(side.margin, arm, *shared[arm], mirrored=mirrored) for arm in arms}
            seen.append(side.grow(on["champion"], on["challenger"]))
        for down, up in zip(*seen, strict=True):
            self._progress.see(float(down), float(up), self._threshold)
            if self._progress.decision != "not enough data":
                break
        return self.verdict()


def _shared(looks: int, given: ScoreBins) -> tuple[Array, Array]:
    """Return the weights, and the split score counts by (look, weight, grid point)."""
    weights = np.unique(given.weight)
    if len(weights) > _FEW_WEIGHTS:
        weights = np.array(_WEIGHTS)
    counts = np.zeros((looks, len(weights), STEPS + 1))
    look, k = given.look.astype(int), given.k.astype(int)
    upper = np.clip(given.x * STEPS - given.k * given.n, 0.0, given.n)
    at = np.searchsorted(weights, given.weight)
    under = np.maximum(at - 1, 0)
    gap = np.where(at > under, weights[at] - weights[under], 1.0) if len(weights) else np.ones(0)
    below = (weights[at] - given.weight) / gap if len(weights) else np.ones(0)
    for place, share in ((at, 1.0 - below), (under, below)):
        np.add.at(counts, (look, place, k), share * (given.n - upper))
        np.add.at(counts, (look, place, k + 1), share * upper)
    return weights, counts


def _gained(margin: float, arm: Arm, weights: Array, counts: Array, *, mirrored: bool) -> Array:
    """Return what the scores between looks add to the log capitals."""
    side = side_of(margin)
    total = np.zeros((counts.shape[0], side.size))
    for place, weight in enumerate(weights):
        some = counts[:, place, ::-1] if mirrored else counts[:, place]
        total += some @ _gains(margin, arm, float(weight))
    return total.reshape(-1, *side.shape)


@lru_cache(maxsize=24)  # 0.8 MB each; the same for every app and metric of a page
def _gains(margin: float, arm: Arm, weight: float) -> Array:
    side = side_of(margin)
    return np.ascontiguousarray(side.gains(arm, _GRID, weight)).reshape(len(_GRID), side.size)

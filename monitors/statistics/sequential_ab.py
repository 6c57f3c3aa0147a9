"""Sequential A/B test of a new version, valid when looked at after every score.

B is the challenger, A the champion. With the difference B - A and a margin three statements are tested::

    roll back          B - A < -margin           B is worse by more than the margin
    ship               B - A > -margin           B is not worse by more than the margin
    within the margin  -margin < B - A < margin  and neither is it better by more than the margin

Each is made when the one-sided confidence sequence of the difference at the level alpha/tests lies on its side of the
margin. Whatever the difference is, the probability that a wrong one is ever made, for any number of looks, is at most
alpha/tests: the wrong ones all need the same one-sided sequence to miss. With `tests` comparisons (challengers,
metrics) the probability that any is wrong is at most alpha, under any dependence between them (Bonferroni: a version is
shipped or not on each comparison alone, so the family-wise error is what counts, not the false discovery rate).

The sequence is asymptotic: it treats the means as normal with the estimated variance, which the strong approximation
justifies in the limit of many scores (Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, arXiv 2103.06476).
`benchmarks/statistics/stopping.py` measures what is left of the error at few scores and rare failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeAlias

from monitors.statistics.confidence_sequence import with_pseudo_scores
from monitors.statistics.weighted_mean import Estimate

Decision: TypeAlias = Literal["ship", "roll back", "within the margin", "not enough data"]

MIN_SCORES = 10
"""Minimum effective number of scores of each version (pairs) before a decision."""
PSEUDO_SCORES = 4.0
"""Scores of 0, and as many of 1, added to each version: at the level .01 two, as in intervals of .05, are too few where
one version has ten times the scores of the other."""
EVIDENCE_PER_PSEUDO_PAIR = 3.0
"""By how much the ln of the evidence that is needed exceeds the number of pseudo-pairs; see `paired_difference`."""
POINTS, SPREAD, SPREAD_WEIGHT = ((1.0, 0.25), (1.7, 0.5)), 6.0, 0.25
"""The mixture: distances in margins with their weights, and the standard deviation and weight of a half-normal law of
all others. What is to be decided is mostly of the size of the margin: equal versions are one margin away from -margin,
and at a margin of .02 a loss of .05 is one and a half."""
LEAST_SCALE = 0.01
"""A smaller margin is taken for this one in the mixture."""
POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The current result. A decision, once reached, stays, but that "ship" can become "within the margin".

    `for_roll_back` and `for_ship` are log10 of the strongest evidence so far over the threshold: the decision falls at
    0. `more` estimates the number of further scores needed at the current split and difference; None after the decision
    or while the difference is within its error.
    """

    decision: Decision
    for_roll_back: float
    for_ship: float
    more: int | None = None
    better: bool = False


class _Seen(NamedTuple):
    """The difference B - A at a look, its variance, and the effective number of scores of the smaller side."""

    difference: float
    variance: float
    smaller: float


class SequentialTest:
    """The test of one comparison: takes the estimates from all scores so far at each look.

    >>> test = SequentialTest(margin=0.02, alpha=0.01)
    >>> test.look(Estimate(mean=0.85, sd=0.3, n=900, n_eff=900.0), Estimate(mean=0.75, sd=0.3, n=900, n_eff=900.0))
    'roll back'
    """

    def __init__(self, margin: float = 0.02, alpha: float = 0.01, tests: int = 1) -> None:
        if not 0.0 <= margin < 1.0:
            raise ValueError(f"the margin must be in [0, 1), got {margin!r}")
        self._margin, self._threshold = margin, threshold(alpha, tests)
        # the strongest evidence for B - A < -margin, > -margin, < margin, > 0
        self._down = self._up = self._below = self._above = -math.inf
        self._decision: Decision = "not enough data"
        self._more: int | None = None
        self._decided: list[_Seen] = []  # the looks at which a statement was proved

    def look(self, champion: Estimate, challenger: Estimate) -> Decision:
        """Look at the scores of both versions, which answered different requests; return the decision so far."""
        return self._see(self._seen(champion, challenger), champion.n + challenger.n)

    def look_at_pairs(self, halves: Estimate) -> Decision:
        """Look at pairs of scores of the same question, by the estimate of (B - A + 1)/2."""
        return self._see(self._seen(halves), halves.n)

    def interval(self, *estimates: Estimate) -> tuple[float, float] | None:
        """Return the interval of B - A that decides, from what `look` or `look_at_pairs` takes.

        A verdict falls when it lies on one side of the margin, and it stays there. None with too few scores.
        """
        seen = self._seen(*estimates)
        if seen.smaller < MIN_SCORES:
            return None
        low, high = interval(seen.difference, seen.variance, self._margin, self._threshold)
        for earlier in self._decided:
            ends = interval(earlier.difference, earlier.variance, self._margin, self._threshold)
            low, high = max(low, min(ends[0], high)), min(high, max(ends[1], low))
        return max(-1.0, low), min(1.0, high)

    def verdict(self) -> Verdict:
        """Return the current result."""
        down, up = (max(0.0, best) - self._threshold for best in (self._down, self._up))
        return Verdict(
            decision=self._decision,
            for_roll_back=down / math.log(10.0),
            for_ship=up / math.log(10.0),
            more=self._more if self._decision == "not enough data" else None,
            better=self._above >= self._threshold,
        )

    def _seen(self, *estimates: Estimate) -> _Seen:
        if len(estimates) == 1:
            return _Seen(*paired_difference(estimates[0], self._threshold))
        (t_a, mean_a, v_a), (t_b, mean_b, v_b) = (with_pseudo_scores(side, PSEUDO_SCORES) for side in estimates)
        return _Seen(mean_b - mean_a, v_a / t_a + v_b / t_b, min(side.n_eff for side in estimates))

    def _see(self, seen: _Seen, n: int) -> Decision:
        if seen.smaller < MIN_SCORES:
            return self._decision
        (difference, variance, _), before = seen, (self._decision, self._below >= self._threshold)
        distance = difference + self._margin
        self._down = max(self._down, log_evidence(-distance, variance, self._margin))
        self._up = max(self._up, log_evidence(distance, variance, self._margin))
        self._below = max(self._below, log_evidence(self._margin - difference, variance, self._margin))
        self._above = max(self._above, log_evidence(difference, variance, self._margin))
        if self._decision == "not enough data" and max(self._down, self._up) >= self._threshold:
            self._decision = "roll back" if self._down >= self._up else "ship"
        if self._decision == "ship" and self._below >= self._threshold:
            self._decision = "within the margin"
        if (self._decision, self._below >= self._threshold) != before:
            self._decided.append(seen)
        self._more = None
        if distance * distance > variance:
            times = times_needed(abs(distance), variance, self._margin, self._threshold)
            self._more = max(1, math.ceil((times - 1.0) * n))
        return self._decision


def paired_difference(halves: Estimate, needed: float) -> tuple[float, float, float]:
    """Return the mean of B - A from the estimate of (B - A + 1)/2 of pairs, its variance, and the number of
    conversations behind them, with k pseudo-conversations in which A alone is right, and k in which B alone is.

    The unit is the conversation: of m effective ones with a variance V of the mean, a pseudo-conversation is as large
    as the average of the others. So a few long conversations without any difference are no proof that there is none,
    and pairs that hardly differ are not drowned in pseudo-scores. k rises with the evidence `needed`, a `threshold`: if
    B fails in a share `margin` of the conversations, m have no failure with the probability exp(-margin m), and the
    evidence of m without a difference is about (margin m)^2/(4 k). When that is the L needed, the probability is at
    most exp(-L) for k >= L/4; k = L/3 also covers the first few failures (`benchmarks/trials/paired.py`).

    >>> [round(x, 4) for x in paired_difference(Estimate(mean=0.49, sd=0.1, n=400, n_eff=400.0), threshold(0.025))]
    [-0.0199, 0.0001, 400.0]
    """
    conversations = min(halves.n_eff, math.inf if halves.degrees is None else halves.degrees + 1.0)
    sd = halves.sd * math.sqrt(conversations / halves.n_eff)  # so that sd^2/n_eff stays the variance of the mean
    pseudo = needed / EVIDENCE_PER_PSEUDO_PAIR
    t, mean, variance = with_pseudo_scores(replace(halves, sd=sd, n_eff=conversations), pseudo)
    return 2.0 * mean - 1.0, 4.0 * variance / t, conversations


def interval(difference: float, variance: float, margin: float, needed: float) -> tuple[float, float]:
    """Return the confidence sequence whose ends decide as the test does: all means that the evidence `needed`, a
    `threshold`, refutes in neither direction.

    >>> [round(end, 4) for end in interval(0.01, 0.0065**2, 0.02, threshold(0.01))]
    [-0.0118, 0.0318]
    """
    error = math.sqrt(variance)
    half = error * _least(lambda times: log_evidence(times * error, variance, margin) >= needed)
    return difference - half, difference + half


def threshold(alpha: float, tests: int = 1) -> float:
    """Return the ln of the evidence at which one of `tests` comparisons is decided. Raises ValueError out of range."""
    if not (0.0 < alpha < 1.0 and tests >= 1):
        raise ValueError(f"alpha must be in (0, 1) and tests at least 1, got {alpha!r} and {tests!r}")
    return math.log(tests) - math.log(alpha)  # the quotient overflows


def log_evidence(distance: float, variance: float, margin: float) -> float:
    """Return the ln of the evidence that a mean is above 0, from its estimate `distance` of that variance.

    With the information I = 1/variance, in which the estimate is a Brownian motion S = I distance, it is a mixture of
    likelihood ratios, each a martingale if the mean is 0 and a supermartingale if it is less; Ville's inequality gives
    the sequence (Robbins 1970; the one-sided normal mixture: Howard, Ramdas, McAuliffe & Sekhon, arXiv 1810.08240)::

        .25 L(margin) + .5 L(1.7 margin) + .25 * 2 Phi(z sqrt(r)) exp(z^2 r/2)/sqrt(1 + k)
        L(d) = exp(d S - d^2 I/2)    k = I (6 margin)^2    r = k/(1 + k)    z = S/sqrt(I)

    >>> round(log_evidence(0.03, 0.0065**2, 0.02), 2), round(log_evidence(-0.03, 0.0065**2, 0.02), 1)
    (9.99, -6.1)
    """
    scale, information = max(margin, LEAST_SCALE), 1.0 / variance
    terms = [math.log(weight) + at * scale * information * (distance - at * scale / 2.0) for at, weight in POINTS]
    k, z = information * (SPREAD * scale) ** 2, distance * math.sqrt(information)
    r = k / (1.0 + k)
    tail = math.erfc(-z * math.sqrt(r / 2.0))  # 2 Phi
    if tail > 0.0:
        terms.append(math.log(SPREAD_WEIGHT) + math.log(tail) + z * z * r / 2.0 - math.log1p(k) / 2.0)
    high = max(terms)
    return high + math.log(sum(math.exp(term - high) for term in terms))


def scores_needed(
    sd: float,
    *,
    margin: float,
    distance: float | None = None,
    alpha: float = 0.01,
    tests: int = 1,
    design_effect: float = 1.0,
) -> int:
    """Return the number of scores of each version with which a true difference is decided in 80 % of the runs.

    The difference is `distance` away from -margin, by default one margin: versions that are equal (ship), or a loss of
    twice the margin (roll back). Both have half the traffic and scores of standard deviation `sd`. Looks before the
    last one add a few per cent of the runs.

    >>> scores_needed(0.25, margin=0.02, distance=0.03), scores_needed(0.25, margin=0.02)
    (2446, 6057)
    """
    away = max(margin, LEAST_SCALE) if distance is None else distance
    if not (sd >= 0.0 and away > 0.0 and design_effect >= 1.0):
        raise ValueError("expected a standard deviation, a distance above 0 and a design effect of at least 1")
    variance, quantile, needed = 2.0 * max(sd, LEAST_SCALE) ** 2, NormalDist().inv_cdf(POWER), threshold(alpha, tests)

    def enough(scores: float) -> bool:
        n = scores / design_effect
        total = n + 2.0 * PSEUDO_SCORES  # which draw the difference to 0, and the mean of the scores to 1/2
        seen = (margin + away) * n / total - margin - quantile * math.sqrt(variance / n)
        return n >= MIN_SCORES and log_evidence(seen, (n * variance + 2.0 * PSEUDO_SCORES) / total**2, margin) >= needed

    return math.ceil(_least(enough))


def times_needed(distance: float, variance: float, margin: float, needed: float, *, seen: float | None = None) -> float:
    """Return how many times the information is expected to bring the evidence `needed` for a mean above 0.

    `distance` is the mean from now on, `seen` the one so far with its `variance`; the same by default.
    """
    rest = 0.0 if seen is None else seen - distance
    return _least(lambda times: log_evidence(distance + rest / times, variance / times, margin) >= needed)


def _least(enough: Callable[[float], bool]) -> float:
    """Return the smallest number that is enough, to a ten thousandth; at least a half."""
    high = 1.0
    while not enough(high):
        high *= 2.0
    low = high / 2.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high

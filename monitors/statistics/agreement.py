"""Agreement of a judge with human labels and with itself, and the judge's mean corrected by labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from gaugeway.records import Evaluation
from gaugeway.storage.stores import Point
from monitors.statistics.confidence_sequence import ALPHA, closed_window, student
from monitors.statistics.eprocess import Array
from monitors.statistics.weighted_mean import hajek

MIN_LABELS = 10
ENOUGH_LABELS = 100
"""The minimum of every plan: with fewer, an interval rests on a handful of the judge's errors."""
UNSEEN_ERRORS = 3.0
_ROUNDING = 1e-9
"""Variances of scores below this are rounding errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its confidence limits from `n` labels (pairs, items)."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """The judge's mean before and after correction, to be shown side by side.

    `correlation` is between the judge's scores and the labels. `saving` is the factor by which the number of labels
    would grow for the same interval without the judge.
    """

    raw: float
    corrected: Interval
    correlation: float
    saving: float


ENOUGH_PAIRS = 30
"""Pairs from which on the error of a single score is shown."""


Instrument: TypeAlias = tuple[str, str, str]
"""What gives a score: metric, version and judge."""


@dataclass(frozen=True, slots=True)
class Repeatability:
    """How far a judge's scores of the same answer differ, from `sd.n` answers that it judged twice.

    `sd` is the standard deviation of one score of an answer, in [0, 0.71]; `flipped` the share of the pairs of which
    only one score passes the metric's threshold, None for a metric without one. Both with their 95 % intervals.
    `half_width` is 1.96 `sd`, the error of a single score; None with fewer than 30 pairs.
    """

    metric: str
    version: str
    judge: str
    sd: Interval
    flipped: Interval | None
    half_width: float | None

    def __str__(self) -> str:
        """Say it in a line.

        >>> print(repeatability(("m", "1", "j"), [(0.5, 0.7), (0.6, 0.6)] * 60))
        same answer, judged twice: ± 0.20 (sd 0.100, 0.082 to 0.170); n = 120 pairs
        """
        error = "" if self.half_width is None else f"± {self.half_width:.2f} "
        text = f"{error}(sd {self.sd.value:.3f}, {self.sd.low:.3f} to {self.sd.high:.3f}); "
        if (flips := self.flipped) is not None:
            share, low, high = (f"{100.0 * part:.0f}" for part in (flips.value, flips.low, flips.high))
            text += f"{share} % flip across the threshold ({low} to {high} %); "
        return f"same answer, judged twice: {text}n = {self.sd.n:,} pair{'' if self.sd.n == 1 else 's'}"


def half_width_of(scored: Point | Evaluation, found: Iterable[Repeatability]) -> float | None:
    """Return the error of a single score, as known for its metric, version and judge."""
    instrument = scored.metric, scored.version, scored.judge
    return next((one.half_width for one in found if (one.metric, one.version, one.judge) == instrument), None)


def repeatability(
    instrument: Instrument, pairs: Sequence[tuple[float, float]], passes: Callable[[float], bool] | None = None
) -> Repeatability:
    """Return how far the two scores in [0, 1] of each pair differ.

    With the differences d of pairs whose errors are independent, the variance of one score is mean(d^2)/2. Reference:
    J. M. Bland, D. G. Altman (1996), Measurement error, BMJ 313. Its interval is `closed_window` of the d^2, the share
    of flips has Wilson's. Raises ValueError without pairs.

    >>> found = repeatability(("m", "1", "j"), [(0.8, 0.6), (0.8, 0.8)], lambda score: score >= 0.7)
    >>> round(found.sd.value, 3), found.flipped.value
    (0.1, 0.5)
    """
    n = len(pairs)
    squares = hajek([(first - second) ** 2 for first, second in pairs], [1.0] * n)
    sd, low, high = (math.sqrt(square / 2.0) for square in (squares.mean, *closed_window(squares)))
    flips = [passes(first) != passes(second) for first, second in pairs] if passes is not None else None
    flipped = None if flips is None else _share(sum(flips), n, ALPHA)
    half_width = _z() * sd if n >= ENOUGH_PAIRS else None
    return Repeatability(*instrument, Interval(value=sd, low=low, high=high, n=n), flipped, half_width)


def wilson(successes: float, n: float, alpha: float = 0.05) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion, accurate for few trials and near 0 and 1.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n). Reference: E. B. Wilson (1927), J. Am. Stat. Assoc. 22.
    `n` may be an effective number. Raises ValueError unless 0 <= successes <= n and n > 0.

    >>> low, high = wilson(45, 50)
    >>> round(low, 4), round(high, 4)
    (0.7864, 0.9565)
    """
    return _score_interval(successes, n, _z(alpha))


def share_at_any_time(successes: float, n: int, alpha: float = ALPHA) -> Interval:
    """Return a share, or the mean of `n` values in [0, 1] with this sum, with an interval valid at every look.

    m is refuted when the beta mixture over q of (q/m)^k ((1 - q)/(1 - m))^(n - k), with k successes and the uniform
    law of q, reaches 1/alpha (Robbins 1970, Ann. Math. Stat. 41). Between 0 and 1 each factor is below its chord, so
    it has a mean <= 1 for values in [0, 1] too. Raises ValueError unless 0 <= successes <= n and n > 0.

    >>> found = share_at_any_time(45, 50)
    >>> round(found.low, 3), found.value, round(found.high, 3)
    (0.712, 0.9, 0.984)
    """
    if not (n > 0 and 0.0 <= successes <= n):
        raise ValueError(f"successes lie between 0 and n > 0, got {successes!r} of {n!r}")
    failures, mean = n - successes, successes / n
    mixture = math.lgamma(successes + 1.0) + math.lgamma(failures + 1.0) - math.lgamma(n + 2.0) + math.log(alpha)

    def kept(m: float) -> bool:
        parts = ((successes, m), (failures, 1.0 - m))
        return math.fsum(-math.inf if p <= 0.0 else k * math.log(p) for k, p in parts if k > 0.0) > mixture

    low = least(lambda m: kept(m * mean)) * mean
    high = 1.0 - least(lambda m: kept(1.0 - m * (1.0 - mean))) * (1.0 - mean)
    return Interval(value=mean, low=low, high=high, n=n)


def least(holds: Callable[[float], bool]) -> float:
    """Return the least number in [0, 1] for which a condition holds that holds above it; 1 where it never does."""
    low, high = 0.0, 1.0
    if holds(low):
        return low
    for _ in range(24):
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def kappa(table: Sequence[Sequence[int]] | Array) -> Interval:
    """Return Cohen's kappa: the agreement of two raters beyond chance, 1 for full agreement, 0 for chance.

    `table[i][j]` counts the items rated i by the first rater and j by the second. The interval is the
    large-sample one, kappa -+ z se, cut to [-1, 1]. References: J. Cohen (1960), Educ. Psychol. Meas. 20; Fleiss, Cohen
    & Everitt (1969), Psychol. Bull. 72 (the se). Raises ValueError for a table that is not square, has a negative count
    or no item, or where a rater puts every item in one class: then chance agrees as often, and the interval would be 0
    wide.

    >>> found = kappa([[40, 10], [5, 45]])
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.7, 0.561, 0.839)
    """
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not (counts >= 0.0).all() or not counts.sum() > 0.0:  # noqa: PLR2004 - rows and columns
        raise ValueError("the table must be square, with at least one item and no negative count")
    n = float(counts.sum())
    p = counts / n
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    agreed, chance = float(np.trace(p)), float(rows @ columns)
    if max(counts.sum(axis=0).max(), counts.sum(axis=1).max()) >= n:
        raise ValueError("kappa is undefined: a rater put every item in one class")
    value = (agreed - chance) / (1.0 - chance)
    both = rows[None, :] + columns[:, None]
    on = float((np.diag(p) * (1.0 - (rows + columns) * (1.0 - value)) ** 2).sum())
    off = float(((p - np.diag(np.diag(p))) * both**2).sum()) * (1.0 - value) ** 2
    rest = (value - chance * (1.0 - value)) ** 2
    half = _z() * math.sqrt(max(0.0, on + off - rest) / n) / (1.0 - chance)
    return Interval(value=value, low=max(-1.0, value - half), high=min(1.0, value + half), n=round(n))


def rates(labels: Sequence[bool], verdicts: Sequence[bool], alpha: float = 0.05) -> tuple[Interval, Interval]:
    """Return the judge's sensitivity and specificity, each with Wilson's interval.

    Sensitivity is the share of passing labels that the judge passes, specificity the share of failing labels that it
    fails. Raises ValueError for lengths that differ, or unless there are labels of both kinds.

    >>> sensitivity, specificity = rates([True] * 20 + [False] * 10, [True] * 19 + [False] * 10 + [True])
    >>> sensitivity.value, specificity.value, round(specificity.low, 3)
    (0.95, 0.9, 0.596)
    """
    truth, said = np.asarray(labels, dtype=bool), np.asarray(verdicts, dtype=bool)
    if truth.shape != said.shape or truth.all() or not truth.any():
        raise ValueError("labels and verdicts must have one length, with labels of both kinds")
    return _share((truth & said).sum(), truth.sum(), alpha), _share((~truth & ~said).sum(), (~truth).sum(), alpha)


def corrected_mean(
    labels: Sequence[float] | Array, judged: Sequence[float] | Array, n_all: int, *, x: float, alpha: float = 0.05
) -> Corrected:
    """Correct the judge's mean over `n_all` answers by people's labels of a random sample of them.

    `judged` are the judge's scores f of the n labelled answers, `x` is the sum of all its scores. The estimate is
    PPI++ for a mean (Angelopoulos, Duchi & Zrnic, arXiv 2311.01453), that is, the regression estimator with the slope
    fitted to the labels; unbiased up to 1/n for any errors of the judge. With the residuals r of the regression::

        mean = mean(y) + slope (x/n_all - mean f)
        V    = sum r^2/(n - 2)/n (1 + n (x/n_all - mean f)^2/sum (f - mean f)^2) + (what the slope explains)/n_all

    The interval is Wilson's for the effective number of labels mean (1 - mean)/V, with Student's t of n - 2 degrees of
    freedom in place of z (Korn & Graubard 1998, Surv. Methodol. 24). n^2 V includes `_unseen`, because a good judge
    errs so rarely that few labels may show none of its errors. Raises ValueError for lengths that differ, scores
    outside [0, 1] or fewer than 10 labels.

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.random(5000) < 0.8
    >>> judge = np.where(rng.random(5000) < 0.1, ~truth, truth) * 1.0
    >>> found = corrected_mean(truth[:200], judge[:200], 5000, x=float(judge.sum()))
    >>> round(found.raw, 2), round(found.corrected.value, 2), found.corrected.high - found.corrected.low < 0.09
    (0.74, 0.8, True)
    """
    y, f = (np.asarray(values, dtype=np.float64) for values in (labels, judged))
    n = y.size
    if y.shape != f.shape or not MIN_LABELS <= n <= n_all:
        raise ValueError(f"need as many judged scores as labels, at least {MIN_LABELS} and at most `n_all`")
    if not all(((values >= 0.0) & (values <= 1.0)).all() for values in (y, f)):
        raise ValueError("labels and scores lie in [0, 1]")
    dy, df, gap = y - y.mean(), f - f.mean(), x / n_all - float(f.mean())
    varied = float(df @ df) > _ROUNDING * n
    slope, leverage = (float(df @ dy / (df @ df)), n * gap * gap / float(df @ df)) if varied else (0.0, 0.0)
    residuals = dy - slope * df
    mean, alone = _cut(float(y.mean()) + slope * gap), float(dy @ dy) / (n - 1) / n
    left = float(residuals @ residuals) / (n - 2) / n * (1.0 + leverage)
    variance = left + max(0.0, alone - left) * n / n_all
    # at 0 or 1 no number of labels has this variance: they count as they are
    guarded = variance + _unseen(dy, residuals) / (n * n)
    # no mean of scores in [0, 1] varies more than pass or fail does
    effective = max(n / (1.0 + leverage), mean * (1.0 - mean) / guarded) if 0.0 < mean < 1.0 else float(n)
    low, high = _score_interval(mean * effective, effective, student(alpha, n - 2))
    return Corrected(
        raw=x / n_all,
        corrected=Interval(value=mean, low=low, high=high, n=n),
        correlation=float(np.corrcoef(y, f)[0, 1]) if varied and alone > _ROUNDING else 0.0,
        saving=max(1.0, alone / variance) if variance > _ROUNDING else 1.0,
    )


def _unseen(labels: Array, residuals: Array) -> float:
    """Return what is added to n^2 V for errors of the judge that no label has shown yet.

    It is three residuals of half the labels' range R, as pseudo-observations (Agresti & Coull 1998, American
    Statistician 52), and less the more labels c carry the observed variance::

        3 (R/2)^2/(1 + c)^1.5        c = (sum r^2)^2/sum r^4, 0 if all r are 0: n/kurtosis, about n/3 if r is normal

    Labels that are (nearly) equal do not show their range either: R^2 moves to 1 by 1/(1 + c)^2 with their own c.
    """
    spread = float(np.ptp(labels)) ** 2
    spread += (1.0 - spread) / (1.0 + _carriers(labels)) ** 2
    return UNSEEN_ERRORS / 4.0 * spread / math.pow(1.0 + _carriers(residuals), 1.5)


def _carriers(deviations: Array) -> float:
    """Return how many values carry the sum of squares: as many equal ones would have the same ratio of moments."""
    squares = deviations * deviations
    fourth = float(squares @ squares)
    return float(squares.sum()) ** 2 / fourth if fourth > _ROUNDING**2 else 0.0


def labels_needed(half_width: float, *, sd: float, correlation: float = 0.0, n_all: int | None = None) -> int:
    """Return the number of labels `corrected_mean` needs for an interval of ± `half_width`; at least 100.

    n = k (1 - rho^2)/(1 - k rho^2/N) with k = (z sd/half_width)^2, from V = sd^2 (1 - (1 - n/N) rho^2)/n. `sd` is that
    of the labels (0.36 for 85 % passes), `correlation` that of judge and labels, `n_all` the number of answers,
    None for very many. Raises ValueError for values out of range, or if a label for every answer would not be enough.

    >>> labels_needed(0.05, sd=0.36), labels_needed(0.05, sd=0.36, correlation=0.7), labels_needed(0.02, sd=0.36)
    (200, 102, 1245)
    """
    if not (half_width > 0.0 and 0.0 < sd <= 0.5 and -1.0 <= correlation <= 1.0):  # noqa: PLR2004 - of values in [0, 1]
        raise ValueError("a half-width is positive, an sd of scores lies in (0, 1/2], a correlation in [-1, 1]")
    plain = (_z() * sd / half_width) ** 2
    if n_all is not None and plain > n_all:
        raise ValueError(f"{n_all} answers are too few for an interval of ± {half_width:g}, even if all are labelled")
    rho2 = correlation**2
    needed = plain * (1.0 - rho2) / (1.0 - (plain * rho2 / n_all if n_all else 0.0)) if rho2 < 1.0 else 0.0
    return max(ENOUGH_LABELS, math.ceil(needed - 1e-9))


def _score_interval(successes: float, n: float, z: float) -> tuple[float, float]:
    if not (n > 0.0 and 0.0 <= successes <= n):
        raise ValueError(f"successes lie between 0 and n > 0, got {successes!r} of {n!r}")
    p, scale = successes / n, 1.0 + z * z / n
    centre = (p + z * z / (2.0 * n)) / scale
    half = z * math.sqrt(p * (1.0 - p) / n + z * z / (4.0 * n * n)) / scale
    return _cut(centre - half), _cut(centre + half)


def _share(successes: float, n: float, alpha: float) -> Interval:
    low, high = wilson(float(successes), float(n), alpha)
    return Interval(value=float(successes) / float(n), low=low, high=high, n=int(n))


def _z(alpha: float = 0.05) -> float:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha lies in (0, 1), got {alpha!r}")
    return NormalDist().inv_cdf(1.0 - alpha / 2.0)


def _cut(value: float) -> float:
    return min(1.0, max(0.0, value))

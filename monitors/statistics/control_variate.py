"""The mean of an expensive score, estimated with a cheap covariate that is known for all traffic.

f is the cheap score of every exchange, Y the judge's score of those sampled, each with a known probability pi
(docs/explanation/estimates.md#the-covariate). With g = a + lam f, fixed before Y is known::

    Z = g + (judged / pi) (Y - g)         mean = mean(Z)         V = var(Z) / N

is unbiased for any a, lam and f (augmented inverse probability weighting). The optimal lam is::

    lam = sum (1/pi^2 - 1/pi) (f - mean f)(Y - mean Y) / sum (1/pi^2 - 1/pi) (f - mean f)^2

over the judged, which with one rate pi = p is Cov(Y, f)/Var(f) and gives V = V(lam = 0) (1 - (1 - p) rho^2). For an
uncorrelated f, lam is near 0 and the estimate is the mean of the judged scores alone.

References: Robins, Rotnitzky & Zhao (1994), J. Am. Stat. Assoc. 89; Angelopoulos, Duchi & Zrnic, "PPI++", arXiv
2311.01453; Fisch et al., "Stratified prediction-powered inference", arXiv 2406.04291.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from gaugeway.storage.sums import Sums
from monitors.statistics.eprocess import Array
from monitors.statistics.weighted_mean import Estimate

MIN_JUDGED = 10
"""Strata with fewer judged scores are pooled."""
_ENOUGH_JUDGED = 100
"""Judged scores from which the covariate is used: its coefficient is estimated from them."""
_FITTED, _GIVEN = 2, 1


class Fit(Struct, frozen=True, kw_only=True):
    """The control g = intercept + slope f."""

    intercept: float = 0.5
    slope: float = 0.0


class Powered(Struct, frozen=True, kw_only=True):
    """An estimated mean. `n` counts judged scores, `n_all` exchanges, `sd` is that of the judge's score.

    `n_eff` = sd^2/variance is the number of randomly sampled scores with the same precision. `correlation` is that of
    covariate and judged score. `saving` is the factor by which judge calls would grow for the same interval without the
    covariate, from the two variances; it accounts for the tuning of lam, and is at least 1 since lam = 0 is possible.
    Over strata it excludes the gain of the stratification itself.
    """

    mean: float
    variance: float
    sd: float
    n: int
    n_all: int
    n_eff: float
    correlation: float
    saving: float

    @property
    def enough(self) -> bool:
        """Whether there are enough judged scores for the asymptotic intervals."""
        return min(self.n, self.n_eff) >= _ENOUGH_JUDGED

    def estimate(self) -> Estimate:
        """Convert to the input of `closed_window` and `confidence_sequence`."""
        return Estimate(mean=self.mean, sd=self.sd, n=self.n, n_eff=self.n_eff)


def sums(cheap: Sequence[float] | Array, scores: Sequence[float] | Array, rates: Sequence[float] | Array) -> Sums:
    """Compute the moments of one stratum from arrays over all its exchanges; unjudged scores are NaN.

    `rates` are the probabilities of being judged. Raises ValueError for lengths that differ, a cheap score that is not
    finite, a score outside [0, 1], or a rate outside (0, 1].

    >>> sums([0.1, 0.9, 0.5, 0.8], [float("nan"), 1.0, float("nan"), 0.5], [0.5] * 4).uy
    3.0
    """
    f, y, pi = (np.asarray(values, dtype=np.float64) for values in (cheap, scores, rates))
    if not (f.ndim == 1 and f.shape == y.shape == pi.shape):
        raise ValueError("cheap scores, scores and rates must have one length")
    judged = ~np.isnan(y)
    if not (np.isfinite(f).all() and ((y >= 0.0) & (y <= 1.0))[judged].all() and ((pi > 0.0) & (pi <= 1.0)).all()):
        raise ValueError("cheap scores must be finite, scores in [0, 1] and rates in (0, 1]")
    u, yj, fj = 1.0 / pi[judged], y[judged], f[judged]
    terms = {"": np.ones_like(yj), "y": yj, "f": fj, "yy": yj * yj, "yf": yj * fj, "ff": fj * fj}
    weighted = {
        f"{name}{key}": float((w * term).sum()) for name, w in (("u", u), ("u2", u * u)) for key, term in terms.items()
    }
    return Sums(n_all=f.size, f=float(f.sum()), ff=float((f * f).sum()), n=yj.size, **weighted)


def fitted(past: Sums) -> Fit:
    """Fit the optimal control to past data; slope 0 if there is too little.

    >>> f = np.linspace(0.0, 1.0, 100)
    >>> fit = fitted(sums(f, np.where(np.arange(100) % 4 == 0, 0.2 + 0.5 * f, np.nan), np.full(100, 0.25)))
    >>> round(fit.intercept, 9), round(fit.slope, 9)
    (0.2, 0.5)
    """
    if not past.n:
        return Fit()
    mean_y, mean_f = past.uy / past.u, past.uf / past.u
    w, y, f = past.u2 - past.u, past.u2y - past.uy, past.u2f - past.uf
    covariance = _centred(past.u2yf - past.uyf, (y, f), w, (mean_y, mean_f))
    variance = _centred(past.u2ff - past.uff, (f, f), w, (mean_f, mean_f))
    # below this the variance is rounding error of the sums: f is constant, or everything was judged
    known = past.n >= MIN_JUDGED and variance > 1e-9 * (past.u2ff + past.u2 * mean_f**2)
    slope = covariance / variance if known else 0.0
    return Fit(intercept=mean_y - slope * mean_f, slope=slope)


def powered(strata: Iterable[Sums], fits: Iterable[Fit] | None = None) -> Powered:
    """Estimate the mean over all traffic of `strata`, each with its own lam and its share N_h/N of the traffic.

    `fits`, one per stratum from past data (`fitted`), give an exactly unbiased estimate. Without them lam is fitted to
    the closed window itself: the bias is of order 1/n, and the variance allows for the two fitted parameters. Strata
    with fewer than 10 judged scores are pooled. Raises ValueError without 2 judged scores.

    >>> rng = np.random.default_rng(1)
    >>> y = rng.random(4000)
    >>> cheap, judged = y + rng.normal(0.0, 0.1, 4000), rng.random(4000) < 0.1
    >>> found = powered([sums(cheap, np.where(judged, y, np.nan), np.full(4000, 0.1))])
    >>> found.n, round(found.mean, 2), round(found.correlation, 2), round(found.saving, 1)
    (400, 0.49, 0.95, 5.0)
    """
    pairs = _pooled(list(strata), None if fits is None else list(fits))
    parts = [_part(stratum, fit) for stratum, fit in pairs]
    return _together([stratum for stratum, _ in pairs], parts)


class _Part(Struct, frozen=True, kw_only=True):
    """The estimate of one stratum; `plain` is its variance without the covariate."""

    mean: float
    variance: float
    plain: float


def _together(strata: Sequence[Sums], parts: Sequence[_Part]) -> Powered:
    """Combine strata weighted by their share of the traffic."""
    total = _total(strata)
    shares = [stratum.n_all / total.n_all for stratum in strata]
    return _summary(
        total,
        mean=sum(share * part.mean for share, part in zip(shares, parts, strict=True)),
        variance=sum(share**2 * part.variance for share, part in zip(shares, parts, strict=True)),
        plain=sum(share**2 * part.plain for share, part in zip(shares, parts, strict=True)),
    )


def _summary(total: Sums, *, mean: float, variance: float, plain: float) -> Powered:
    sd, correlation = _spread(total)
    varied = variance > 0.0
    return Powered(
        mean=mean,
        variance=variance,
        sd=sd,
        n=total.n,
        n_all=total.n_all,
        n_eff=sd**2 / variance if varied and sd > 0.0 else total.u**2 / total.u2,
        correlation=correlation,
        saving=max(1.0, plain / variance) if varied else 1.0,
    )


def _part(stratum: Sums, fit: Fit | None) -> _Part:
    if stratum.n < 2 or not (stratum.u > 0.0 and math.isfinite(stratum.u2) and stratum.n_all >= stratum.n):  # noqa: PLR2004 - a variance
        raise ValueError("an estimate needs at least two judged scores, and all exchanges counted")
    plain = _variance(stratum, Fit(intercept=stratum.uy / stratum.u), _GIVEN)[1]
    mean, variance = _variance(stratum, fit or fitted(stratum), _GIVEN if fit else _FITTED)
    return _Part(mean=mean, variance=variance, plain=plain)


def _variance(stratum: Sums, fit: Fit, parameters: int) -> tuple[float, float]:
    """mean(Z) and var(Z)/N, the latter scaled up by n/(n - parameters)."""
    z, zz = _moments(stratum, fit)
    mean = z / stratum.n_all
    freedom = stratum.n / max(1, stratum.n - parameters)
    return mean, max(0.0, zz / stratum.n_all - mean * mean) / stratum.n_all * freedom


def _moments(stratum: Sums, fit: Fit) -> tuple[float, float]:
    """Sum Z and sum Z^2, with Z = g + u r and r = Y - g: sum g^2 over all, 2 u g r and u^2 r^2 over the judged."""
    a, b = fit.intercept, fit.slope
    ur = stratum.uy - a * stratum.u - b * stratum.uf
    ufr = stratum.uyf - a * stratum.uf - b * stratum.uff
    u2rr = (stratum.u2yy + a * a * stratum.u2 + b * b * stratum.u2ff) - 2.0 * (
        a * stratum.u2y + b * stratum.u2yf - a * b * stratum.u2f
    )
    gg = a * a * stratum.n_all + 2.0 * a * b * stratum.f + b * b * stratum.ff
    return a * stratum.n_all + b * stratum.f + ur, gg + 2.0 * (a * ur + b * ufr) + u2rr


def _centred(xy: float, xs: tuple[float, float], w: float, means: tuple[float, float]) -> float:
    """Sum w (x - mean x)(y - mean y) from the sums of w x y, (w x, w y) and w, and the means of (x, y)."""
    return xy - means[1] * xs[0] - means[0] * xs[1] + means[0] * means[1] * w


def _spread(stratum: Sums) -> tuple[float, float]:
    """Return the standard deviation of Y and its correlation with f, over all traffic."""
    mean_y, mean_f = stratum.uy / stratum.u, stratum.uf / stratum.u
    var_y = max(0.0, _centred(stratum.uyy, (stratum.uy, stratum.uy), stratum.u, (mean_y, mean_y)) / stratum.u)
    var_f = max(0.0, _centred(stratum.uff, (stratum.uf, stratum.uf), stratum.u, (mean_f, mean_f)) / stratum.u)
    covariance = _centred(stratum.uyf, (stratum.uy, stratum.uf), stratum.u, (mean_y, mean_f)) / stratum.u
    scale = math.sqrt(var_y * var_f)
    return math.sqrt(var_y), max(-1.0, min(1.0, covariance / scale)) if scale > 1e-12 else 0.0  # noqa: PLR2004 - 0/0


def _total(parts: Iterable[Sums]) -> Sums:
    total = Sums()
    for stratum in parts:
        total += stratum
    return total


def _pooled(strata: list[Sums], fits: list[Fit] | None) -> list[tuple[Sums, Fit | None]]:
    """Pair strata with their fits; too small strata are pooled, with traffic-weighted fits if fits were given."""
    if fits is not None and len(fits) != len(strata):
        raise ValueError(f"{len(strata)} strata with {len(fits)} fits")
    pairs = [(stratum, None if fits is None else fits[i]) for i, stratum in enumerate(strata) if stratum.n_all]
    small = [pair for pair in pairs if pair[0].n < MIN_JUDGED]
    large = [pair for pair in pairs if pair[0].n >= MIN_JUDGED]
    if sum(stratum.n for stratum, _ in small) < 2 and large:  # noqa: PLR2004 - no variance: the smallest of the others joins
        large.sort(key=lambda pair: -pair[0].n)
        small = [*small, large.pop()] if small else small
    if not small:
        if not large:
            raise ValueError("an estimate needs at least two judged scores, and all exchanges counted")
        return list(large)
    together = _total(stratum for stratum, _ in small)
    if fits is None:
        return [*large, (together, None)]
    mean = sum(stratum.n_all * fit.intercept for stratum, fit in small if fit) / together.n_all
    slope = sum(stratum.n_all * fit.slope for stratum, fit in small if fit) / together.n_all
    return [*large, (together, Fit(intercept=mean, slope=slope))]

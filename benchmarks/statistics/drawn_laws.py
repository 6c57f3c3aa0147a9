"""Laws of scores that are drawn by seed, so that a method is decided on laws it was not developed with.

`draw(seed)` draws a family (beta, spikes at 0 and 1 with a middle, binary, five grades) and its parameters. `sessions`
draws scores that depend on each other within a session, `judge_of` a judge whose scores have a stated correlation with
the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

Array = np.ndarray
FAMILIES = ("beta", "spikes", "binary", "grades")
_GRID = 40_001
_CALIBRATION = 50_000
_Z = np.linspace(-6.0, 6.0, 12_001)
_PHI = np.array([NormalDist().cdf(z) for z in _Z])


@dataclass(frozen=True, kw_only=True)
class Law:
    """A law of scores in [0, 1] by its quantiles on an even grid of probabilities."""

    family: str
    about: str
    quantiles: Array

    def at(self, u: Array) -> Array:
        """The scores at probabilities `u`."""
        return self.quantiles[np.minimum((u * len(self.quantiles)).astype(int), len(self.quantiles) - 1)]

    @property
    def mean(self) -> float:
        """The mean."""
        return float(self.quantiles.mean())


def draw(seed: int, family: str | None = None) -> Law:
    """Draw a law, of one family if it is named."""
    rng = np.random.default_rng([seed, 1])
    name = FAMILIES[rng.integers(len(FAMILIES))]
    name = family or name
    mean = float(rng.uniform(0.6, 0.95))
    u = (np.arange(_GRID) + 0.5) / _GRID
    if name == "beta":
        mass = float(np.exp(rng.uniform(np.log(3.0), np.log(30.0))))
        x, about = _beta(rng, mean, mass), f"mean {mean:.2f}, concentration {mass:.1f}"
    elif name == "spikes":
        zeros, ones, middle = rng.uniform(0.02, 0.2), rng.uniform(0.2, 0.6), rng.uniform(0.4, 0.8)
        x = np.sort(_beta(rng, middle, rng.uniform(3.0, 12.0)))
        x = np.where(u < zeros, 0.0, np.where(u > 1.0 - ones, 1.0, x))
        about = f"{zeros:.2f} at 0, {ones:.2f} at 1, the middle at {middle:.2f}"
    elif name == "binary":
        x, about = (u > 1.0 - mean).astype(float), f"pass rate {mean:.2f}"
    else:
        cuts = np.cumsum(rng.dirichlet([0.3, 0.6, 1.0, 2.0, 3.0]))[:-1]
        x = np.searchsorted(cuts, u) / 4.0
        about = "shares " + " ".join(f"{share:.2f}" for share in np.diff([0.0, *cuts, 1.0]))
    return Law(family=name, about=about, quantiles=np.sort(x))


def normal_cdf(z: Array) -> Array:
    """The normal distribution function, by interpolation."""
    return np.interp(z, _Z, _PHI)


def _beta(rng: np.random.Generator, mean: float, mass: float) -> Array:
    return rng.beta(mass * mean, mass * (1.0 - mean), _GRID)


def sessions(rng: np.random.Generator, law: Law, sizes: Array, ar: float, kind: str) -> list[Array]:
    """Draw sessions of these sizes.

    Within a session scores are autocorrelated at `ar`: "repeats" repeats the score before with this probability (so it
    is the correlation of the scores), "latent" has a normal AR(1) series behind the scores (so theirs is smaller).
    """
    n, longest = len(sizes), int(sizes.max())
    z = rng.normal(size=(n, longest))
    if kind == "latent":
        for at in range(1, longest):
            z[:, at] = ar * z[:, at - 1] + np.sqrt(1.0 - ar * ar) * z[:, at]
    else:
        repeated = rng.random((n, longest)) < ar
        for at in range(1, longest):
            z[:, at] = np.where(repeated[:, at], z[:, at - 1], z[:, at])
    x = law.at(np.minimum(normal_cdf(z), 1.0 - 1e-12))
    return [x[i, :size] for i, size in enumerate(sizes)]


Judge = Callable[[np.random.Generator, tuple[int, ...]], tuple[Array, Array]]


def judge_of(law: Law, seed: int, rho: float, kind: str | None = None) -> tuple[Judge, str]:
    """Draw a judge with correlation `rho` to the labels; return what draws (labels, judge's scores), and its kind.

    "gross" judges give the label or, at times, the label of another answer; "noisy" ones see the label through normal
    noise. Both score on a scale of their own.
    """
    rng = np.random.default_rng([seed, 2])
    drawn = ("gross", "noisy")[rng.integers(2)]
    kind = kind or drawn
    low, span = float(rng.uniform(0.0, 0.3)), float(rng.uniform(0.5, 0.7))

    def gross(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
        y = law.at(rng.random(shape))
        return y, low + span * np.where(rng.random(shape) < rho, y, law.at(rng.random(shape)))

    def noisy(noise: float) -> Judge:
        def both(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
            y = law.at(rng.random(shape))
            return y, low + span * normal_cdf((y - law.mean + noise * rng.normal(size=shape)) / scale)

        return both

    if kind == "gross":
        return gross, kind
    scale = 2.0 * float(law.quantiles.std())
    least, most = 0.0, 20.0 * scale
    for _ in range(30):
        middle = (least + most) / 2.0
        y, f = noisy(middle)(np.random.default_rng([seed, 3]), (_CALIBRATION,))
        least, most = (middle, most) if np.corrcoef(y, f)[0, 1] > rho else (least, middle)
    return noisy(middle), kind

"""Many streams at once: the e-SR detector and the usual alternatives, one score of each stream a step.

A watcher has a `name` and `begin(history)`, which it is given before anything is watched: the 2000 scores of each
stream that a baseline is learned from. `chunk(scores)` prepares the next scores, an array (steps, streams), and
`step(t)` takes the t-th row of them and says which streams alarm. A stream that alarmed starts afresh.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from laws import M0

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.baselines import Window
from monitors.statistics import eprocess

SLO, SLO_BELOW, LEARNED = "**e-SR**, SLO at the mean", "**e-SR**, SLO .02 below", "**e-SR**, learned from 2000"
ROLLING = "mean of the last 100 < .80", "mean of the last 600 < .80"
MINUTE = 10  # scores between two looks of those that look once a minute


class ESR:
    """The detector; m0 is given (SLO mode), or learned from the history, less a tolerance."""

    def __init__(self, name: str, c: float, *, slo: float | None = None, tolerance: float = 0.0):
        self.name, self.log_start, self.slo, self.tolerance = name, -np.log(c), slo, tolerance
        self.fractions = eprocess.bets()

    def begin(self, history):
        runs = history.shape[1]
        if self.slo is not None:
            self.m0 = np.full(runs, self.slo)
        else:
            self.m0 = np.array([learned(history[:, run], self.tolerance) for run in range(runs)])
        self.log_m = np.full((runs, eprocess.BETS), eprocess.EMPTY)

    def chunk(self, scores):
        payoffs = eprocess.drop_payoffs(scores, np.ones_like(scores), self.m0)
        self.factors = eprocess.log_factors(payoffs, self.fractions)

    def step(self, t):
        self.log_m = eprocess.shiryaev_roberts(self.log_m, self.factors[t], self.log_start)
        hit = log_mean(self.log_m) >= 0.0
        if hit.any():
            self.log_m[hit] = eprocess.EMPTY
        return hit


def log_mean(log_m):
    """`eprocess.log_mean`, faster for many streams."""
    top = np.maximum(log_m.max(axis=-1), -1e300)  # streams that have seen nothing are at minus infinity
    return top + np.log(np.maximum(np.exp(log_m - top[..., None]).mean(axis=-1), 1e-300))


def learned(history, tolerance: float) -> float:
    """The m0 that the product's own baseline learns from a history, in minutes of ten scores."""
    baseline = Window(len(history), tolerance=tolerance)
    for start in range(0, len(history), MINUTE):
        scores = tuple(history[start : start + MINUTE].tolist())
        baseline.update(Bucket(start=6.0 * start, seconds=60.0, scores=scores, weights=(1.0,) * len(scores)))
    return baseline.m0(0.0)


class Rolling:
    """Looks once a minute whether the mean of the last `window` scores is below `limit(baseline mean, sd)`."""

    def __init__(self, name: str, window: int, limit: Callable):
        self.name, self.window, self.limit = name, window, limit

    def begin(self, history):
        runs = history.shape[1]
        self.below = self.limit(history.mean(axis=0), history.std(axis=0))
        self.ring, self.sums = np.zeros((self.window, runs)), np.zeros(runs)
        self.seen, self.at, self.none = np.zeros(runs, dtype=int), 0, np.zeros(runs, dtype=bool)

    def chunk(self, scores):
        self.scores = scores

    def step(self, t):
        slot = self.at % self.window
        self.sums += self.scores[t] - self.ring[slot]
        self.ring[slot] = self.scores[t]
        self.at += 1
        self.seen += 1
        if self.at % MINUTE:
            return self.none
        hit = (self.seen >= self.window) & (self.sums / self.window < self.below)
        if hit.any():
            self.seen[hit], self.sums[hit], self.ring[:, hit] = 0, 0.0, 0.0
        return hit


def fixed(mean, sd):
    """The true mean less .05: what people set who know their mean."""
    del sd
    return np.full_like(mean, M0 - 0.05)


def z_limit(window: int, z: float) -> Callable:
    """A two-sample z-test of a window against the history, one-sided."""
    return lambda mean, sd: mean - z * sd * np.sqrt(1.0 / window + 1.0 / 2000)


class EWMA:
    """An EWMA chart: alarm where z falls `sigmas` of its own standard deviations below the mean of the history."""

    def __init__(self, name: str, weight: float, sigmas: float):
        self.name, self.weight, self.sigmas = name, weight, sigmas

    def begin(self, history):
        self.mean = history.mean(axis=0)
        self.below = self.mean - self.sigmas * history.std(axis=0) * np.sqrt(self.weight / (2.0 - self.weight))
        self.z = self.mean.copy()

    def chunk(self, scores):
        self.scores = scores

    def step(self, t):
        self.z += self.weight * (self.scores[t] - self.z)
        hit = self.z < self.below
        if hit.any():
            self.z[hit] = self.mean[hit]
        return hit


class PageHinkley:
    """As in river 0.26, mode "down", with its defaults; it learns its mean as it goes, from the history on."""

    def __init__(self, name: str, delta: float = 0.005, threshold: float = 50.0):
        self.name, self.delta, self.threshold = name, delta, threshold

    def begin(self, history):
        runs = history.shape[1]
        self.n, self.mean = np.zeros(runs), np.zeros(runs)
        self.total, self.top = np.zeros(runs), np.full(runs, -1.0)
        self.chunk(history)
        for t in range(len(history)):
            self.step(t)

    def chunk(self, scores):
        self.scores = scores

    def step(self, t):
        x = self.scores[t]
        self.n += 1
        self.mean += (x - self.mean) / self.n
        self.total = (1 - 0.0001) * self.total + x - self.mean + self.delta
        np.maximum(self.top, self.total, out=self.top)
        hit = (self.n >= 30) & (self.top - self.total > self.threshold)
        if hit.any():
            self.n[hit] = self.mean[hit] = self.total[hit] = 0.0
            self.top[hit] = -1.0
        return hit


def watchers(c: float):
    """Everything that is compared; z-tests and EWMA learn mean and sd from the history, rolling means know the mean."""
    return [
        ESR(SLO, c, slo=M0),
        ESR(SLO_BELOW, c, slo=M0 - 0.02),
        ESR(LEARNED, c),
        ESR("**e-SR**, learned from 2000, less .02", c, tolerance=0.02),
        ESR("**e-SR**, learned from 2000, less .05", c, tolerance=0.05),
        Rolling(ROLLING[0], 100, fixed),
        Rolling(ROLLING[1], 600, fixed),
        Rolling("z-test of the last 600, p < .01", 600, z_limit(600, 2.326)),
        Rolling("z-test of the last 600, p < .001", 600, z_limit(600, 3.090)),
        EWMA("EWMA .05, 3 sigma", 0.05, 3.0),
        EWMA("EWMA .01, 3 sigma", 0.01, 3.0),
        PageHinkley("Page-Hinkley (river's defaults)"),
    ]

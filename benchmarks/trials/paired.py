"""How often a trial's verdict is wrong, and after how many exchanges it falls: pairs, the same scores unpaired, fixed n.

    nice -n 10 .venv/bin/python benchmarks/trials/paired.py [--seed 1] [--runs 2000] [--write]

Every run is one trial with one metric, looked at after every batch as the product does. Score laws are drawn by the
seed: pass or fail, five levels, shares of supported claims, and pass or fail with rare failures. Live and candidate
scores are quantiles of normal variables that share a part of the session, a part of the exchange, or nothing; the
shared part is solved for the correlation of the scores. In each session the candidate and the live version have
effects of their own, too: else pairing would remove all that ties a session together. Eight sessions are open at a
time. The verdicts are those of `trial_result` (checked in every cell on some runs), computed for all runs at once.
Methods were chosen with seeds below 100; `--write` keeps what 20260701 gives.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from monitors.analysis.ab_compare import look_sizes
from monitors.analysis.trial_result import Pair, TrialRules, trial_result
from monitors.statistics.sequential_ab import MIN_SCORES, PSEUDO_PAIRS, PSEUDO_SCORES, log_evidence, threshold

RESULTS = Path(__file__).parent / "results"
SEED, RUNS, LAWS, CHECKED = 20260701, 2_000, 4, 1
MARGIN, ALPHA = 0.02, 0.05
END_ALPHA = ALPHA / 2.0
KINDS = ("binary", "five levels", "claims", "rare failures")
SESSIONS = {"1": (1, 1), "5": (5, 5), "1-60": (1, 60)}
CORRELATIONS = (0.0, 0.4, 0.8)
DIFFERENCES = {"equal": 0.0, "-.02": -0.02, "-.05": -0.05, "-.10": -0.10, "+.05": 0.05}
LONGEST = {"equal": 6_000, "-.02": 4_000, "-.05": 4_000, "-.10": 1_500, "+.05": 2_500}
OPEN, OWN_EFFECT, SHARED_EFFECT = 8, 0.3, 0.3


class Law(NamedTuple):
    """Scores with their probabilities."""

    x: np.ndarray
    p: np.ndarray

    def of_mean(self, mean: float) -> Law:
        low, high = -60.0, 60.0
        for _ in range(60):
            middle = (low + high) / 2.0
            w = self.p * np.exp(middle * (self.x - 0.5))
            low, high = (middle, high) if (w @ self.x) / w.sum() < mean else (low, middle)
        return Law(self.x, w / w.sum())

    def quantiles(self, z: np.ndarray) -> np.ndarray:
        """The scores of standard normal variables."""
        edges = [NormalDist().inv_cdf(min(1.0 - 1e-15, max(1e-15, c))) for c in np.cumsum(self.p)[:-1]]
        return self.x[np.searchsorted(np.array(edges, dtype=z.dtype), z)]


def drawn(kind: str, draw: np.random.Generator) -> tuple[Law, float]:
    """A law and the mean of the live scores."""
    if kind == "five levels":
        return Law(np.arange(5) / 4.0, draw.dirichlet(np.full(5, 0.7)) * 0.95 + 0.01), draw.uniform(0.55, 0.92)
    if kind == "claims":
        weights: dict[float, float] = {}
        for claims in range(1, int(draw.integers(4, 13)) + 1):
            a, b = draw.uniform(0.3, 3.0, 2)
            logs = [
                math.lgamma(k + a)
                + math.lgamma(claims - k + b)
                - math.lgamma(claims + a + b)
                + math.log(math.comb(claims, k))
                for k in range(claims + 1)
            ]
            for k, p in enumerate(np.exp(np.array(logs) - max(logs))):
                weights[k / claims] = weights.get(k / claims, 0.0) + float(p)
        x = np.array(sorted(weights))
        return Law(x, np.array([weights[value] for value in x])), draw.uniform(0.6, 0.92)
    mean = draw.uniform(0.975, 0.995) if kind == "rare failures" else draw.uniform(0.55, 0.92)
    return Law(np.array([0.0, 1.0]), np.array([0.5, 0.5])), mean


def normals(draw: np.random.Generator, session: np.ndarray, runs: int, shared: float) -> list[np.ndarray]:
    """Two normal variables of each exchange (time x runs), with a correlation of `shared` in the exchange."""
    n, alone = session.size, int(session[-1]) == session.size - 1
    between = SHARED_EFFECT * shared  # of the session, in both

    def part(share: float, *, of_session: bool) -> np.ndarray:
        if share <= 0.0:
            return np.float32(0.0)
        size = int(session.max()) + 1 if of_session else n
        z = np.float32(math.sqrt(share)) * draw.standard_normal((size, runs), dtype=np.float32)
        return z[session] if of_session else z

    common = part(shared if alone else shared - between, of_session=False)
    if not alone:
        common = common + part(between, of_session=True)
    rest = 1.0 - shared
    return [
        common
        + (
            part(rest, of_session=False)
            if alone
            else part(rest * OWN_EFFECT, of_session=True) + part(rest * (1.0 - OWN_EFFECT), of_session=False)
        )
        for _ in range(2)
    ]


def solved(live: Law, candidate: Law, wanted: float, draw: np.random.Generator) -> float:
    """The shared part of the normal variables that gives the scores a correlation."""
    if wanted == 0.0:
        return 0.0
    z = draw.standard_normal((3, 60_000))
    low, high = 0.0, 0.999
    for _ in range(14):
        middle = (low + high) / 2.0
        sides = [math.sqrt(middle) * z[0] + math.sqrt(1.0 - middle) * own for own in z[1:]]
        r = np.corrcoef(live.quantiles(sides[0]), candidate.quantiles(sides[1]))[0, 1]
        low, high = (middle, high) if r < wanted else (low, middle)
    return high


def order(draw: np.random.Generator, sizes: tuple[int, int], n: int) -> np.ndarray:
    """The session of each exchange, in the order of time."""
    if sizes == (1, 1):
        return np.arange(n)
    sessions, left, following = list(range(OPEN)), list(draw.integers(sizes[0], sizes[1] + 1, OPEN)), OPEN
    found = []
    for slot in draw.integers(0, OPEN, n):
        found.append(sessions[slot])
        left[slot] -= 1
        if not left[slot]:
            sessions[slot], left[slot], following = following, int(draw.integers(sizes[0], sizes[1] + 1)), following + 1
    return np.array(found)


class Sums(NamedTuple):
    """At one look, by run: mean and variance of the mean of some values; and the effective number of sessions."""

    mean: np.ndarray
    sd: np.ndarray
    variance: np.ndarray
    units: float


def looked(values: list[np.ndarray], session: np.ndarray) -> Iterator[tuple[int, list[Sums]]]:
    """What `hajek` says of the first 10, 20, ... rows of some values (time x runs)."""
    n, runs = values[0].shape
    k = int(session.max()) + 1
    alone = k == n
    by_session = [np.zeros((k, runs)) for _ in values]
    counts, totals, squares, start = np.zeros(k), [np.zeros(runs) for _ in values], [np.zeros(runs) for _ in values], 0
    for end in look_sizes(2 * n):
        if end > n:
            return
        ids = session[start:end]
        by = np.argsort(ids, kind="stable")
        names, starts = np.unique(ids[by], return_index=True)
        counts[names] += np.diff(np.append(starts, by.size))
        until = int(np.flatnonzero(counts)[-1]) + 1
        shares = counts[:until] / end
        some = []
        for i, x in enumerate(values):
            block = x[start:end]
            totals[i] += block.sum(axis=0, dtype=np.float64)
            squares[i] += np.square(block).sum(axis=0, dtype=np.float64)
            mean = totals[i] / end
            spread = np.maximum(0.0, squares[i] / end - mean**2)
            variance = spread / end
            if not alone:
                by_session[i][names] += np.add.reduceat(block[by], starts, axis=0, dtype=np.float64)
                if np.count_nonzero(counts) < end:
                    deviations = by_session[i][:until] - counts[:until, None] * mean
                    robust = (1.0 / (1.0 - shares)) @ np.square(deviations) / end**2
                    variance = np.maximum(variance, robust)
            some.append(Sums(mean, np.sqrt(spread), variance, float(end) if alone else 1.0 / float((shares**2).sum())))
        start = end
        yield end, some


def reaches(distance: np.ndarray, variance: np.ndarray, needed: float) -> np.ndarray:
    """Where the evidence is enough; it is below z^2/2."""
    enough = (distance > 0.0) & (distance**2 >= 2.0 * needed * variance)
    for at in np.flatnonzero(enough):
        enough[at] = log_evidence(float(distance[at]), float(variance[at]), MARGIN) >= needed
    return enough


class Decided:
    """The verdicts of all runs of one test: 1 ship, -1 do not ship, 0 not yet."""

    def __init__(self, runs: int) -> None:
        self.verdict, self.at = np.zeros(runs, dtype=int), np.full(runs, -1)

    def see(self, end: int, difference: np.ndarray, variance: np.ndarray, usable: np.ndarray) -> None:
        open_ = usable & (self.verdict == 0)
        for sign in (1, -1):
            new = open_ & (self.verdict == 0)
            index = np.flatnonzero(new)
            hit = index[reaches(sign * (difference[index] + MARGIN), variance[index], threshold(END_ALPHA))]
            self.verdict[hit], self.at[hit] = sign, end


def drawn_to_the_middle(
    mean: np.ndarray, variance: np.ndarray, units: np.ndarray, pseudo: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and its variance with pseudo-scores of 0 and 1, as `with_pseudo_scores`."""
    t = units + 2.0 * pseudo
    middle = (units * mean + pseudo) / t
    return middle, ((units * (variance * units + mean**2) + pseudo) / t - middle**2) / t


def play(
    live: np.ndarray, candidate: np.ndarray, session: np.ndarray, pseudo: float = PSEUDO_PAIRS
) -> tuple[Decided, Decided]:
    """The paired test and the unpaired one on the same scores (time x runs)."""
    runs = live.shape[1]
    paired, unpaired = Decided(runs), Decided(runs)
    for end, (halves, a, b) in looked([(candidate - live + 1.0) / 2.0, live, candidate], session):
        named = session[:end].max() + 1 >= 20  # the product waits for so many conversations
        units = np.minimum(
            halves.units,
            np.divide(halves.sd**2, halves.variance, out=np.full(runs, np.inf), where=halves.variance > 0.0),
        )
        mean, variance = drawn_to_the_middle(halves.mean, halves.variance, units, pseudo)
        paired.see(end, 2.0 * mean - 1.0, 4.0 * variance, (units >= MIN_SCORES) & named)
        sides = []
        smaller = np.full(runs, np.inf)
        for side in (a, b):
            n_eff = np.divide(side.sd**2, side.variance, out=np.full(runs, float(end)), where=side.variance > 0.0)
            smaller = np.minimum(smaller, n_eff)
            sides.append(drawn_to_the_middle(side.mean, side.variance, n_eff, PSEUDO_SCORES))
        unpaired.see(end, sides[1][0] - sides[0][0], sides[0][1] + sides[1][1], (smaller >= MIN_SCORES) & named)
    return paired, unpaired

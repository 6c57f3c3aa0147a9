"""False alarms when scores are alike, and the delay after drops: one bet per score beside one bet per cluster.

    .venv/bin/python benchmarks/detection/clusters.py [--full]

Each row is traffic without any change; the SLO is its true mean, the budget is 2 false alarms per 100,000 scores. The
product's own code runs (`Clusters`, `MixtureESR`), stream by stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from laws import LAWS, M0, SEED

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.statistics.clusters import Clusters

SCORES_A_BUCKET, SECONDS, C = 10, 60.0, 5e4
MARGIN = 0.05
Scores = list[tuple[float, str | None]]
GRID = np.linspace(0.0, 1.0, 2001)


def quantiles(law: str, mean: float) -> np.ndarray:
    """The law's quantile function on `GRID`, by sorting many of its scores."""
    return np.quantile(LAWS[law](np.random.default_rng(1), mean, (400_000,)), GRID)


def normal_cdf(z):
    """The normal distribution function, to 1e-7 (Abramowitz & Stegun 26.2.17)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = poly * np.exp(-z * z / 2.0) / np.sqrt(2.0 * np.pi)
    return np.where(z > 0, 1.0 - upper, upper)


def correlated(rng, law: str, mean: float, clusters: int, size: int, latent: float):  # noqa: PLR0917 - same
    """(clusters, size) scores of the law; two of one cluster share a normal variable with this correlation."""
    own, shared = rng.standard_normal((clusters, size)), rng.standard_normal((clusters, 1))
    u = normal_cdf(np.sqrt(latent) * shared + np.sqrt(1.0 - latent) * own)
    return np.interp(u, GRID, quantiles(law, mean))


def in_one_go(rng, law: str, mean: float, n: int, size: int, latent: float) -> Scores:  # noqa: PLR0917 - same
    """Sessions one after the other."""
    x = correlated(rng, law, mean, n // size, size, latent)
    return [(float(v), f"s{i}") for i, row in enumerate(x) for v in row]


def interleaved(rng, law: str, mean: float, n: int, size: int, latent: float) -> Scores:  # noqa: PLR0917 - parameters of a law
    """Sessions whose turns are ten sessions apart: each of them in another bucket."""
    x = correlated(rng, law, mean, n // size, size, latent)
    order = sorted((i + 10.0 * j, i, j) for i in range(len(x)) for j in range(size))
    return [(float(x[i, j]), f"s{i}") for _, i, j in order]


def with_own_mean(rng, law: str, n: int, size: int, by: float) -> Scores:
    """Users with means M0 +- `by`, `size` scores in a row each."""
    q = {sign: quantiles(law, M0 + sign * by) for sign in (-1, 1)}
    return [
        (float(v), f"u{i}")
        for i, sign in enumerate(rng.choice((-1, 1), n // size))
        for v in np.interp(rng.random(size), GRID, q[int(sign)])
    ]


def bursts(rng, law: str, n: int, size: int) -> Scores:
    """One document in ten is weak (.35 lower) and asked about in bursts; the mean of all is M0."""
    good, bad = quantiles(law, min(0.99, M0 + 0.035)), quantiles(law, M0 - 0.315)
    found: Scores = []
    while len(found) < n:
        if rng.random() < 0.1:
            found += [(float(v), f"q:{len(found)}") for v in np.interp(rng.random(size), GRID, bad)]
        else:
            found += [(float(v), None) for v in np.interp(rng.random(size), GRID, good)]
    return found[:n]


def independent(rng, law: str, mean: float, n: int) -> Scores:
    return [(float(v), None) for v in np.interp(rng.random(n), GRID, quantiles(law, mean))]


def buckets(scores: Scores, *, grouped: bool) -> Iterator[Bucket]:
    """The stream in buckets, as the product makes them."""
    clusters = Clusters()
    for index, start in enumerate(range(0, len(scores) - SCORES_A_BUCKET + 1, SCORES_A_BUCKET)):
        part, at = scores[start : start + SCORES_A_BUCKET], SECONDS * index
        x = [value for value, _ in part]
        if not grouped:
            yield Bucket(start=at, seconds=SECONDS, scores=tuple(x), weights=(1.0,) * len(x))
            continue
        means = clusters.means(x, [1.0] * len(x), [name for _, name in part], at=at)
        yield Bucket.of_clusters(at, SECONDS, means)


def alarms(scores: Scores, m0: float, *, grouped: bool) -> list[int]:
    """After how many scores the detector alarmed."""
    detector = MixtureESR(m0=m0, budget_per_s=SCORES_A_BUCKET / SECONDS / C)
    found = []
    for index, bucket in enumerate(buckets(scores, grouped=grouped)):
        if detector.update(bucket) is not None:
            found.append((index + 1) * SCORES_A_BUCKET)
    return found


ROWS: dict[str, Callable] = {
    "independent": lambda rng, law, n: independent(rng, law, M0, n),
    "sessions of 5, latent correlation .15": lambda rng, law, n: in_one_go(rng, law, M0, n, 5, 0.15),
    "sessions of 5, .4": lambda rng, law, n: in_one_go(rng, law, M0, n, 5, 0.4),
    "sessions of 5, .6": lambda rng, law, n: in_one_go(rng, law, M0, n, 5, 0.6),
    "sessions of 10, .4": lambda rng, law, n: in_one_go(rng, law, M0, n, 10, 0.4),
    "interleaved sessions of 5, .4": lambda rng, law, n: interleaved(rng, law, M0, n, 5, 0.4),
    "interleaved sessions of 10, .6": lambda rng, law, n: interleaved(rng, law, M0, n, 10, 0.6),
    "5 scores of a user, mean +- .1": lambda rng, law, n: with_own_mean(rng, law, n, 5, 0.1),
    "a job sends 500 in a row, mean +- .05": lambda rng, law, n: with_own_mean(rng, law, n, 500, 0.05),
    "weak document, bursts of 20": lambda rng, law, n: bursts(rng, law, n, 20),
    "weak document, bursts of 100": lambda rng, law, n: bursts(rng, law, n, 100),
}


def false_alarms(make: Callable, law: str, *, runs: int, n: int) -> tuple[float, float, float, float]:
    """Alarms per 100,000 scores: one bet per score, one per cluster, its standard error, with a margin."""
    counts, margin = {False: [], True: []}, []
    for run in range(runs):
        scores = make(np.random.default_rng(SEED + run), law, n)
        for grouped, found in counts.items():
            found.append(len(alarms(scores, M0, grouped=grouped)))
        margin.append(len(alarms(scores, M0 - MARGIN, grouped=True)))
    scale = 1e5 / n
    error = float(np.std(counts[True]) / np.sqrt(runs)) * scale
    means = (float(np.mean(found)) * scale for found in (counts[False], counts[True], margin))
    per_score, per_cluster, with_margin = means
    return per_score, per_cluster, error, with_margin


def delays(make: Callable, drop: float, *, runs: int) -> tuple[float, float]:
    """Median scores from the change to the alarm, with today's bets and with one per cluster."""
    found = {False: [], True: []}
    for run in range(runs):
        rng = np.random.default_rng(SEED + 10_000 + run)
        before, after = make(rng, M0, 1_000), make(rng, M0 - drop, 6_000)
        for grouped, some in found.items():
            later = [at - 1_000 for at in alarms(before + after, M0, grouped=grouped) if at > 1_000]
            some.append(later[0] if later else 6_000)
    return float(np.median(found[False])), float(np.median(found[True]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="40 runs of 100,000 scores a row instead of 10")
    full = parser.parse_args().full
    runs = 40 if full else 10
    print(f"m0 {M0}, budget 2 per 100,000 scores, seed {SEED}, numpy {np.__version__}\n")
    print(f"| traffic without any change | law | per score | per cluster | standard error | SLO {MARGIN} below |")
    print("|---|---|---:|---:|---:|---:|")
    for name, make in ROWS.items():
        for law in ("LLM-like", "binary") if full else ("LLM-like",):
            before, after, error, margin = false_alarms(make, law, runs=runs, n=100_000)
            print(f"| {name} | {law} | {before:.1f} | {after:.1f} | {error:.1f} | {margin:.1f} |", flush=True)
    print("\n| drop | traffic | per score | per cluster |\n|---|---|---:|---:|")
    kinds = {
        "independent": lambda rng, mean, n: independent(rng, "LLM-like", mean, n),
        "sessions of 5, correlation 0": lambda rng, mean, n: in_one_go(rng, "LLM-like", mean, n, 5, 0.0),
        "sessions of 5, .4": lambda rng, mean, n: in_one_go(rng, "LLM-like", mean, n, 5, 0.4),
        "interleaved sessions of 5, .4": lambda rng, mean, n: interleaved(rng, "LLM-like", mean, n, 5, 0.4),
    }
    for name, make in kinds.items():
        for drop in (0.05, 0.10, 0.20):
            before, after = delays(make, drop, runs=4 * runs)
            print(f"| {drop} | {name} | {before:.0f} | {after:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

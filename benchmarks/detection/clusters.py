"""False alarms when scores are alike, and the delay after drops: one bet per score beside what the product does.

    .venv/bin/python benchmarks/detection/clusters.py [--full]

Each row is traffic without any change; the SLO is its true mean, the budget is 2 false alarms per 100,000 scores. The
product's own code runs (`Clusters`, `SerialDependence`, `MixtureESR`), stream by stream.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator

import numpy as np
from laws import LAWS, M0, SEED

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.statistics.clusters import Clusters
from monitors.statistics.dependence import SerialDependence

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


def buckets(scores: Scores, *, grouped: bool, named: float = 1.0, rng=None) -> Iterator[Bucket]:
    """The stream in buckets: as the product makes them, or one bet per score; `named` is the share of names kept."""
    clusters, dependence = Clusters(), SerialDependence()
    kept = [name if named >= 1.0 or rng.random() < named else None for _, name in scores]
    for index, start in enumerate(range(0, len(scores) - SCORES_A_BUCKET + 1, SCORES_A_BUCKET)):
        part, at = scores[start : start + SCORES_A_BUCKET], SECONDS * index
        x = [value for value, _ in part]
        if not grouped:
            yield Bucket(start=at, seconds=SECONDS, scores=tuple(x), weights=(1.0,) * len(x))
            continue
        means = clusters.means(x, [1.0] * len(x), kept[start : start + SCORES_A_BUCKET], at=at)
        effect = dependence.design_effect
        dependence.add([mean.score for mean in means])
        yield Bucket.of_clusters(at, SECONDS, means, effect)


def alarms(scores: Scores, m0: float, *, grouped: bool, named: float = 1.0, rng=None) -> list[int]:
    """After how many scores the detector alarmed."""
    detector = MixtureESR(m0=m0, budget_per_s=SCORES_A_BUCKET / SECONDS / C)
    found = []
    for index, bucket in enumerate(buckets(scores, grouped=grouped, named=named, rng=rng)):
        if detector.update(bucket) is not None:
            found.append((index + 1) * SCORES_A_BUCKET)
    return found


def drawn_sessions(rng, law: str, n: int, *, longest: int, interleave: bool = False) -> Scores:
    """Sessions of 1 to `longest` scores (of exactly five, if that is five) with a correlation that the seed draws."""
    latent, found, orders, session = rng.uniform(0.05, 0.5), [], [], 0
    q = quantiles(law, M0)
    apart = rng.uniform(1.0, 20.0) if interleave else 0.0
    while len(found) < n:
        size = 5 if longest == 5 else int(rng.integers(1, longest + 1))
        shared = rng.standard_normal()
        u = normal_cdf(math.sqrt(latent) * shared + math.sqrt(1.0 - latent) * rng.standard_normal(size))
        found += [(float(v), f"s:{session}") for v in np.interp(u, GRID, q)]
        orders += [session + apart * turn for turn in range(size)]
        session += 1
    return [found[index] for index in np.argsort(orders, kind="stable")][:n]


def topics(rng, law: str, n: int) -> Scores:
    """A topic whose answers are better or worse trends now and then, in words of its own; the mean of all is M0."""
    by, share, length = rng.uniform(0.03, 0.1), rng.uniform(0.2, 0.5), rng.uniform(100.0, 1_000.0)
    curves = {sign: quantiles(law, M0 + sign * by) for sign in (-1, 1)}
    x, at = np.interp(rng.random(n), GRID, quantiles(law, M0)), 0
    while at < n:
        at += int(rng.exponential(4.0 * length))
        end = min(n, at + int(rng.exponential(length)))
        about = np.arange(at, end)[rng.random(max(0, end - at)) < share]
        x[about] = np.interp(rng.random(about.size), GRID, curves[int(rng.choice((-1, 1)))])
        at = end
    return [(float(v), None) for v in x]


def returning(rng, law: str, n: int) -> Scores:
    """Users of a mean of their own (sd .1) who come back for another session of five; the session is named."""
    steps = np.linspace(0.55, 0.99, 45)
    curves = [quantiles(law, float(step)) for step in steps]
    users = np.clip(M0 + 0.1 * rng.standard_normal(400), 0.55, 0.99)
    users += M0 - users.mean()
    found: Scores = []
    for session in range(n // 5):
        user = int(rng.integers(400))
        curve = curves[int(np.abs(steps - users[user]).argmin())]
        found += [(float(v), f"s:{session} u:{user}") for v in np.interp(rng.random(5), GRID, curve)]
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


DRAWN: dict[str, tuple[Callable, float]] = {
    "sessions of 5, no ids": (lambda rng, law, n: drawn_sessions(rng, law, n, longest=5), 0.0),
    "interleaved sessions of 5, no ids": (
        lambda rng, law, n: drawn_sessions(rng, law, n, longest=5, interleave=True),
        0.0,
    ),
    "sessions of 1 to 60, no ids": (lambda rng, law, n: drawn_sessions(rng, law, n, longest=60), 0.0),
    "sessions of 1 to 20, ids of 60 %": (lambda rng, law, n: drawn_sessions(rng, law, n, longest=20), 0.6),
    "sessions of 1 to 60, named": (lambda rng, law, n: drawn_sessions(rng, law, n, longest=60), 1.0),
    "users who return, sessions named": (returning, 1.0),
    "a topic trends, paraphrased": (topics, 0.0),
    "one weak question in bursts of 20, no ids": (lambda rng, law, n: bursts(rng, law, n, 20), 0.0),
}
"""Traffic whose parameters the seed draws, and which share of it has its names."""


def drawn_row(name: str, law: str, *, runs: int, n: int) -> str:
    """Alarms per 100,000 scores with one bet per score, and as the product bets; with standard errors."""
    make, named = DRAWN[name]
    plain, product = [], []
    for run in range(runs):
        rng = np.random.default_rng((SEED, 41, run))
        scores = make(rng, law, n)
        plain.append(len(alarms(scores, M0, grouped=False)) * 1e5 / n)
        product.append(len(alarms(scores, M0, grouped=True, named=named, rng=rng)) * 1e5 / n)
    shown = [f"{np.mean(some):.1f} ± {np.std(some) / math.sqrt(runs):.1f}" for some in (plain, product)]
    return f"| {name} | {law} | {' | '.join(shown)} |"


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
    print("\n| drawn by seed | law | per score | as the product bets |\n|---|---|---:|---:|", flush=True)
    for name in DRAWN:
        for law in ("LLM-like", "binary") if full else ("LLM-like",):
            print(drawn_row(name, law, runs=2 * runs, n=50_000), flush=True)
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

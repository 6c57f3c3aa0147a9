"""The default rule that pages: the margin learned from the hourly means against .05 for everybody.

    .venv/bin/python benchmarks/detection/margins.py [--runs N]

Streams of 600 scores an hour through the product's baseline, clusters and detector, at a budget of 2 false alarms per
100,000 scores: alarms without any change, and scores until a drop is found that begins after 70,000.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from clusters import M0, ROWS, SCORES_A_BUCKET, SECONDS, C, Scores, buckets, independent, quantiles
from laws import SEED

from monitors.alerting.detectors.baselines import Auto
from monitors.alerting.detectors.e_sr import MixtureESR

BEFORE, AFTER, WHOLE = 70_000, 12_000, 100_000
SETTINGS: dict[str, float | None] = {"learned": None, "0.05": 0.05}
GRID = np.linspace(0.0, 1.0, 2001)


def daily(rng, law: str, n: int, by: float) -> Scores:
    """The mean moves by +- `by` over the day."""
    hours = np.arange(n) * SECONDS / SCORES_A_BUCKET / 3600.0
    means = M0 + by * np.sin(2.0 * math.pi * hours / 24.0)
    steps = np.linspace(M0 - by, M0 + by, 25)
    curves = np.array([quantiles(law, float(mean)) for mean in steps])
    nearest = np.abs(means[:, None] - steps[None, :]).argmin(axis=1)
    u = rng.random(n)
    return [(float(np.interp(u[i], GRID, curves[nearest[i]])), None) for i in range(n)]


def kinds() -> dict[str, Callable]:
    """Traffic without any change."""
    return {
        **ROWS,
        "mean +- .015 over the day": lambda rng, law, n: daily(rng, law, n, 0.015),
        "mean +- .03 over the day": lambda rng, law, n: daily(rng, law, n, 0.03),
    }


def watch(scores: Scores, tolerance: float | None) -> tuple[list[int], float]:
    """After how many scores the rule alarmed, and its margin at the end."""
    baseline, detector = Auto(tolerance=tolerance), MixtureESR(m0=0.5, budget_per_s=SCORES_A_BUCKET / SECONDS / C)
    found = []
    for index, bucket in enumerate(buckets(scores, grouped=True)):
        m0 = baseline.m0(bucket.start)
        if m0 is not None and detector.update(bucket, m0) is not None:
            found.append((index + 1) * SCORES_A_BUCKET)
        baseline.update(bucket)
    return found, baseline.margin


def calm(name: str, law: str, run: int) -> list[tuple[int, float]]:
    """Alarms of one stream without a change, and the margin, for each setting."""
    scores = kinds()[name](np.random.default_rng(SEED + run), law, WHOLE)
    watched = [watch(scores, tolerance) for tolerance in SETTINGS.values()]
    return [(len(found), margin) for found, margin in watched]


def dropped(law: str, drop: float, run: int) -> list[float]:
    """Scores until a drop was found, for each setting; infinite if it was not."""
    rng = np.random.default_rng(SEED + 1_000 + run)
    scores = independent(rng, law, M0, BEFORE) + independent(rng, law, M0 - drop, AFTER)
    delays = []
    for tolerance in SETTINGS.values():
        later = [at - BEFORE for at in watch(scores, tolerance)[0] if at > BEFORE]
        delays.append(float(later[0]) if later else math.inf)
    return delays


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="streams a row")
    parser.add_argument("--laws", default="LLM-like", help="comma-separated: LLM-like, binary, beta")
    arguments = parser.parse_args()
    runs, laws = range(arguments.runs), arguments.laws.split(",")
    print(f"mean {M0}, budget 2 per 100,000 scores, {len(runs)} streams a row, seed {SEED}, numpy {np.__version__}\n")
    with ProcessPoolExecutor(2) as pool:
        print("| traffic without any change | law | alarms per 100,000, learned | .05 | margin learned |")
        print("|---|---|---:|---:|---:|")
        for law in laws:
            for name in kinds():
                found = np.array(list(pool.map(calm, [name] * len(runs), [law] * len(runs), runs)))
                (learned, fixed), margins = found[:, :, 0].mean(axis=0) * 1e5 / WHOLE, found[:, 0, 1]
                print(f"| {name} | {law} | {learned:.1f} | {fixed:.1f} | {np.median(margins):.3f} |", flush=True)
        print("\n| drop | law | scores until the alarm, learned: median (90 %) | .05 |\n|---|---|---:|---:|")
        for law in laws:
            for drop in (0.05, 0.07, 0.10, 0.20):
                delays = np.array(list(pool.map(dropped, [law] * len(runs), [drop] * len(runs), runs)))
                shown = [f"{np.median(one):.0f} ({np.quantile(one, 0.9, method='higher'):.0f})" for one in delays.T]
                print(f"| {drop} | {law} | {' | '.join(shown)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

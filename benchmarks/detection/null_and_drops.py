"""False alarms at the boundary and delays after drops of the e-SR detector, SLO mode, one score a bucket, c = 50 000.

    .venv/bin/python benchmarks/detection/null_and_drops.py          # about ten seconds
    .venv/bin/python benchmarks/detection/null_and_drops.py --full   # 200 x 100 000 null scores, 400 runs a drop

The mean is exactly m0 = .85 in the null, so the bound is 100 000/c = 2 false alarms per 100 000 scores. Delays are
scores from the change to the first alarm, after 1000 scores at m0.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from monitors.detectors import Bucket
from monitors.detectors.esr import MixtureESR
from monitors.statistics import eprocess

M0, C, SEED, CHUNK = 0.85, 5e4, 20260101, 250
BARS = {"beta": (100, 40, 20), "LLM-like": (400, 150, 55), "binary": (650, 215, 75)}  # STATISTICS 5.5, bar 2


def beta(rng, mean, shape):
    """Standard deviation .12 at .85; the concentration stays when the mean moves."""
    return rng.beta(7.854 * mean, 7.854 * (1.0 - mean), shape)


def llm_like(rng, mean, shape):
    """Spikes at 0 and 1 and a middle, sd .27 at .85; a drop moves mass from 1 to 0 and lowers the middle, half each."""
    drop = M0 - mean
    middle = 0.735 - drop / 2 / 0.34
    u = rng.random(shape)
    scores = rng.beta(4.73 * middle, 4.73 * (1.0 - middle), shape)
    return np.where(u < 0.06 + drop / 2, 0.0, np.where(u < 0.66, 1.0, scores))


def binary(rng, mean, shape):
    """Right or wrong, sd .36."""
    return (rng.random(shape) < mean).astype(float)


LAWS = {"beta": beta, "LLM-like": llm_like, "binary": binary}


def alarms(law: Callable, rng, mean: float, *, runs: int, n: int, log_m=None):
    """Feed `n` scores to each of `runs` detectors; give the statistics and the times of the first alarms (n: none)."""
    log_m = np.full((runs, eprocess.BETS), eprocess.EMPTY) if log_m is None else log_m
    first, count, fractions, log_start = np.full(runs, n), 0, eprocess.bets(), -np.log(C)
    for start in range(0, n, CHUNK):
        scores = law(rng, mean, (min(CHUNK, n - start), runs))
        factors = eprocess.log_factors(eprocess.drop_payoffs(scores, np.ones_like(scores), M0), fractions)
        for t, increments in enumerate(factors, start):
            log_m = eprocess.shiryaev_roberts(log_m, increments, log_start)
            hit = eprocess.log_mean(log_m) >= 0.0
            if hit.any():
                count += int(hit.sum())
                first[hit] = np.minimum(first[hit], t + 1)
                log_m[hit] = eprocess.EMPTY
    return log_m, first, count


def delays(law: Callable, rng, drop: float, runs: int):
    """Scores from a drop to the alarm, one for each run; a run without one counts as the longest time tried."""
    log_m, _, _ = alarms(law, rng, M0, runs=runs, n=1000)
    _, first, _ = alarms(law, rng, M0 - drop, runs=runs, n=4000 if drop < 0.1 else 1500, log_m=log_m)
    return first


def update_us() -> float:
    """Microseconds for one update of the real detector with one score."""
    detector = MixtureESR(M0, 1.0 / C)
    scores = np.random.default_rng(SEED).uniform(0.8, 1.0, 20_000).tolist()
    buckets = [Bucket(start=float(t), seconds=1.0, scores=(x,), weights=(1.0,)) for t, x in enumerate(scores)]
    begun = time.perf_counter()
    for bucket in buckets:
        detector.update(bucket)
    return (time.perf_counter() - begun) / len(buckets) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="200 x 100 000 null scores and 400 runs a drop")
    full = parser.parse_args().full
    runs, n, change_runs = (200, 100_000, 400) if full else (200, 20_000, 200)
    print(
        f"m0 {M0}, c {C:.0f}, seed {SEED}; null: {runs} x {n} scores; drops: {change_runs} runs; numpy {np.__version__}"
    )
    print("| law | false alarms per 1e5 (bound 2) | P(alarm within 1e4) (bound .20) | drop .05 | drop .10 | drop .20 |")
    print("|---|---|---|---|---|---|")
    for name, law in LAWS.items():
        rng = np.random.default_rng(SEED)
        _, first, count = alarms(law, rng, M0, runs=runs, n=n)
        medians = [float(np.median(delays(law, rng, drop, change_runs))) for drop in (0.05, 0.10, 0.20)]
        cells = [f"{median:.0f} (bar {bar})" for median, bar in zip(medians, BARS[name], strict=True)]
        rate = count / (runs * n) * 1e5
        print(f"| {name} | {rate:.2f} | {(first <= 10_000).mean():.2f} |", " | ".join(cells), "|", flush=True)
    print(f"one update with one score: {update_us():.1f} us")


if __name__ == "__main__":
    main()

"""How often the interval of the difference of two versions is ever wrong, whatever share of the traffic each has.

    .venv/bin/python benchmarks/statistics/differences.py [--runs 300]

The product's `difference_sequence` is called at every second score of B from ten to 100, then at every twentieth.
"""

from __future__ import annotations

import argparse

import numpy as np

from monitors.statistics.confidence_sequence import MIN_N_EFF, difference_sequence
from monitors.statistics.weighted_mean import Estimate

SEED, N = 20260101, 1500
LOOKS = [*range(MIN_N_EFF, 100, 2), *range(100, N, 20)]
RATES = ((0.9, 0.7), (0.95, 0.95), (0.99, 0.97), (0.5, 0.5))
SPLITS = {
    "half and half": lambda b: b,
    "A has ten times as many": lambda b: min(N, 10 * b),
    "all of A before B": lambda _: N,
}
"""Scores of A when B has `b`."""


def known(passed: int, n: int) -> Estimate:
    """The estimate from `passed` of `n` pass-or-fail scores."""
    mean = passed / n
    return Estimate(mean=mean, sd=(mean * (1.0 - mean)) ** 0.5, n=n, n_eff=float(n))


def ever_wrong(rates: tuple[float, float], split: str, runs: int) -> float:
    """The share of runs in which the interval ever misses the true difference."""
    rng, wrong = np.random.default_rng(SEED), 0
    for _ in range(runs):
        a, b = ((rng.random(N) < rate).cumsum() for rate in rates)
        for at in LOOKS:
            of_a = SPLITS[split](at)
            low, high = difference_sequence(known(int(a[of_a - 1]), of_a), known(int(b[at - 1]), at))
            if not low - 1e-12 <= rates[1] - rates[0] <= high + 1e-12:
                wrong += 1
                break
    return wrong / runs


def main() -> None:
    """Print the table."""
    asking = argparse.ArgumentParser()
    asking.add_argument("--runs", type=int, default=300)
    runs = asking.parse_args().runs
    print(f"| pass rates of A and B | {' | '.join(SPLITS)} |\n|---|{'---|' * len(SPLITS)}")
    for rates in RATES:
        found = [f"{ever_wrong(rates, split, runs):.3f}" for split in SPLITS]
        print(f"| {rates[0]} and {rates[1]} | {' | '.join(found)} |")


if __name__ == "__main__":
    main()

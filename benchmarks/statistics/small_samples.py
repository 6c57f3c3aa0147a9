"""How often the live interval is ever wrong from ten scores on, for ten laws, among them those of good apps.

    .venv/bin/python benchmarks/statistics/small_samples.py [--full]

The product's `confidence_sequence` and `closed_window` are called at every score up to 100, then at every tenth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from monitors.statistics.confidence_sequence import MIN_N_EFF, closed_window, confidence_sequence
from monitors.statistics.weighted_mean import Estimate

SEED, N, BAR = 20260101, 5_000, 0.05
LOOKS = [*range(MIN_N_EFF, 100), *range(100, N + 1, 10)]
WIDTHS_AT = (30, 100, 300, 1_000, 5_000)
Law = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def passes(rate: float) -> Law:
    """Right or wrong."""
    return lambda rng, shape: (rng.random(shape) < rate).astype(float)


def spikes(rng, shape):
    """Spikes at 0 and 1 and a middle."""
    u = rng.random(shape)
    return np.where(u < 0.06, 0.0, np.where(u < 0.66, 1.0, rng.beta(3.4766, 1.2535, shape)))


LAWS: dict[str, tuple[Law, float]] = {
    **{f"pass rate {rate}": (passes(rate), rate) for rate in (0.5, 0.85, 0.95, 0.98, 0.99, 0.995)},
    "beta, mean .85": (lambda rng, shape: rng.beta(6.6759, 1.1781, shape), 0.85),
    "beta, mean .97": (lambda rng, shape: rng.beta(9.7, 0.3, shape), 0.97),
    "LLM-like": (spikes, 0.60 + 0.34 * 3.4766 / 4.7301),
    "two modes": (lambda rng, shape: np.where(rng.random(shape) < 0.1, 0.2, 0.95), 0.875),
}


def measure(law: Law, mean: float, *, runs: int, interval: Callable) -> tuple[float, list[float]]:
    """The share of runs in which the interval ever missed the mean, and its mean width at `WIDTHS_AT`."""
    scores = law(np.random.default_rng(SEED), (runs, N))
    t = np.arange(1, N + 1)
    means = scores.cumsum(axis=1) / t
    sds = np.sqrt(np.maximum((scores**2).cumsum(axis=1) / t - means**2, 0.0))
    wrong, widths = np.zeros(runs, bool), dict.fromkeys(WIDTHS_AT, 0.0)
    for at in LOOKS:
        for run in range(runs):
            estimate = Estimate(mean=float(means[run, at - 1]), sd=float(sds[run, at - 1]), n=at, n_eff=float(at))
            low, high = interval(estimate)
            wrong[run] |= not low <= mean <= high
            if at in widths:
                widths[at] += (high - low) / runs
    return float(wrong.mean()), list(widths.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="800 runs a law instead of 100")
    runs = 800 if parser.parse_args().full else 100
    print(f"{runs} runs of {N:,} scores a law, seed {SEED}, numpy {np.__version__}; from {MIN_N_EFF} scores on\n")
    print("| law | ever wrong | ordinary 95 % interval | width at 30 | 100 | 300 | 1,000 | 5,000 |")
    print("|---|---|---|---|---|---|---|---|")
    missed = []
    for name, (law, mean) in LAWS.items():
        wrong, widths = measure(law, mean, runs=runs, interval=confidence_sequence)
        ordinary, _ = measure(law, mean, runs=runs, interval=closed_window)
        print(
            f"| {name} | {wrong:.3f} | {ordinary:.3f} | {' | '.join(f'{width:.3f}' for width in widths)} |", flush=True
        )
        missed += [name] if wrong > BAR else []
    print(f"\nbar {BAR}: " + (f"NOT MET by {', '.join(missed)}" if missed else "met by all"))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

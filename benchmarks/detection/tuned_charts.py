"""CUSUM and EWMA charts tuned to the detector's rate of false alarms on one law of scores, and used on the others.

    .venv/bin/python benchmarks/detection/tuned_charts.py            # about five minutes
    .venv/bin/python benchmarks/detection/tuned_charts.py --quick

All know the true mean of .85. A chart's limit is the one that gives 2 alarms per 100,000 scores without a change on the
law it is tuned on: found on 200 streams of 100,000 scores, checked on others. Delays are medians of scores from a drop
to the first alarm, 400 streams, after 1,000 scores without a change.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from laws import LAWS, M0, SEED
from streams import ESR, SLO

from monitors.statistics.eprocess import Array

RATE, C = 2.0, 5e4
CHUNK, CALM, LONGEST = 500, 1000, 12_000
DROPS = (0.05, 0.10, 0.20)
ALLOWANCE, WEIGHT = 0.05, 0.01


class Cusum:
    """sum of (mean - allowance - score), at least 0, against a limit; the allowance of .05 suits a drop of .10."""

    name = "CUSUM, allowance .05"
    limits = np.geomspace(0.2, 40.0, 80)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.state = np.zeros(shape)

    def step(self, scores: Array) -> Array:
        """Return the statistic after one score of each stream."""
        self.state = np.maximum(0.0, self.state + (M0 - ALLOWANCE) - scores)
        return self.state


class Ewma:
    """The mean less an exponentially weighted mean of the scores, against a limit."""

    name = "EWMA, weight .01"
    limits = np.geomspace(0.005, 0.3, 80)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.state = np.zeros(shape)

    def step(self, scores: Array) -> Array:
        """Return the statistic after one score of each stream."""
        self.state += WEIGHT * (M0 - scores - self.state)
        return self.state


CHARTS = (Cusum, Ewma)


def pieces(law, rng, mean: float, n: int, runs: int) -> Iterator[Array]:
    """Scores (steps, streams) in pieces that fit into the cache."""
    for start in range(0, n, CHUNK):
        yield law(rng, mean, (min(CHUNK, n - start), runs))


def rates(chart, limits: Array, law, rng, *, runs: int, n: int) -> Array:
    """Alarms per 1e5 scores without a change, for each limit; a stream that alarmed starts again."""
    watching = chart((len(limits), runs))
    counts = np.zeros(len(limits))
    for scores in pieces(law, rng, M0, n, runs):
        for row in scores:
            hit = watching.step(row) > limits[:, None]
            if hit.any():
                counts += hit.sum(axis=1)
                watching.state[hit] = 0.0
    return counts / (runs * n) * 1e5


def tuned(chart, law, rng, *, runs: int, n: int) -> float:
    """The limit at which the rate is `RATE`, between two that were tried."""
    found = rates(chart, chart.limits, law, rng, runs=runs, n=n)
    above = np.flatnonzero(found >= RATE)[-1]
    low, high = found[above], max(found[above + 1], 1e-3)
    share = (np.log(low) - np.log(RATE)) / (np.log(low) - np.log(high))
    return float(chart.limits[above] * (chart.limits[above + 1] / chart.limits[above]) ** share)


def delay(chart, limit: float, law, rng, drop: float, *, runs: int) -> float:
    """The median number of scores from a drop to the alarm."""
    watching = chart((runs,))
    for scores in pieces(law, rng, M0, CALM, runs):
        for row in scores:
            watching.state[watching.step(row) > limit] = 0.0
    return _median(lambda row: watching.step(row) > limit, law, rng, drop, runs)


def delay_of_detector(law, rng, drop: float, *, runs: int) -> float:
    """The same for the e-SR detector with its SLO at the mean."""
    detector = ESR(SLO, C, slo=M0)
    detector.begin(np.zeros((1, runs)))

    def step(row: Array) -> Array:
        detector.chunk(row[None, :])
        return detector.step(0)

    for scores in pieces(law, rng, M0, CALM, runs):
        for row in scores:
            step(row)
    return _median(step, law, rng, drop, runs)


def _median(step, law, rng, drop: float, runs: int) -> float:
    first, at = np.full(runs, LONGEST), 0
    for scores in pieces(law, rng, M0 - drop, LONGEST, runs):
        for row in scores:
            at += 1
            first[step(row) & (first == LONGEST)] = at
        if (first < LONGEST).mean() > 0.6:  # the median is known
            break
    return float(np.median(first))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter streams")
    quick = parser.parse_args().quick
    size = {"runs": 50, "n": 20_000} if quick else {"runs": 200, "n": 100_000}
    runs = 100 if quick else 400
    names = list(LAWS)
    print(f"| detector | tuned on | false alarms per 10⁵: {' / '.join(names)} | drop .05 | .10 | .20 |")
    print("|---|---|---|---|---|---|")
    for chart in CHARTS:
        for name, law in LAWS.items():
            limit = tuned(chart, law, np.random.default_rng(SEED), **size)
            alarms = [
                float(rates(chart, np.array([limit]), other, np.random.default_rng(SEED + 1), **size)[0])
                for other in LAWS.values()
            ]
            medians = [delay(chart, limit, law, np.random.default_rng(SEED + 2), drop, runs=runs) for drop in DROPS]
            print(
                f"| {chart.name} | {name} | {' / '.join(f'{one:.2f}' for one in alarms)} | "
                + " | ".join(f"{one:.0f}" for one in medians)
                + " |",
                flush=True,
            )
    for name, law in LAWS.items():
        medians = [delay_of_detector(law, np.random.default_rng(SEED + 2), drop, runs=runs) for drop in DROPS]
        print(
            f"| **e-SR**, SLO at the mean, on {name} | nothing | see above | "
            + " | ".join(f"{one:.0f}" for one in medians)
            + " |",
            flush=True,
        )


if __name__ == "__main__":
    main()

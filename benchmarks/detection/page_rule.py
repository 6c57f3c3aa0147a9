"""Scores from a drop to the page, with the default rule: beside a window of 600 scores and an oracle.

    nice -n 10 .venv/bin/python -m benchmarks.detection.page_rule [--runs 30]

The default rule of one of five metrics through the product's stream, after so many scores of history, buckets of five
minutes. The window alarms where the mean of the last 600 scores is below a limit that knows the true mean and law, and
the oracle is Page's CUSUM of the log likelihood ratio of the two laws before and after this very drop (a normal one of
the same means and variance for laws without a density). Both have the same rate of false alarms as the rule's budget
allows: the window's limit from as many simulated scores as 20 false alarms take, the oracle's is ln of the scores for
one, which bounds its rate (Lorden 1971). Writes results/page-rule.md.
"""

from __future__ import annotations

import argparse
import math
import platform
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.detection.laws import LAWS, M0
from benchmarks.detection.seasons import BUCKET_S, METRICS, Fleet, take

RESULTS = Path(__file__).parent / "results" / "page-rule.md"
DROPS, HISTORIES, RATES = (0.05, 0.10, 0.20), (3_000, 20_000), (3_000.0, 20_000.0)
WINDOW, STEP, MOST, CALIBRATED = 600, 10, 10_000, 20
DAY_S = 86_400.0


class Case(NamedTuple):
    """A law, scores a day, scores of history, and the size of the drop."""

    law: str
    per_day: float
    history: int
    drop: float
    run: int


def delay(case: Case) -> float:
    """Scores from the drop to the page, infinite above the limit."""
    rng = np.random.default_rng((20261129, list(LAWS).index(case.law), case.run))
    (stream,) = Fleet().streams("app")[METRICS[0]]
    seen, start = 0, 0.0
    while seen < case.history + MOST:
        n = int(rng.poisson(case.per_day * BUCKET_S / DAY_S))
        mean = M0 if seen < case.history else M0 - case.drop
        values = LAWS[case.law](rng, mean, (n,)).tolist()
        if values and take(stream, start, values) and seen >= case.history:
            return seen + n - case.history
        seen, start = seen + n, start + BUCKET_S
    return math.inf


def scores_per_false_alarm(per_day: float) -> float:
    (stream,) = Fleet().streams("app")[METRICS[0]]
    return per_day / DAY_S / stream.budget_per_s


def window_limit(law: str, apart: float) -> float:
    """The limit of the mean of 600 scores that is crossed, from above, once in `apart` scores."""
    rng, lows = np.random.default_rng(1), []
    blocks = math.ceil(CALIBRATED * apart / 2e6)
    for _ in range(blocks):
        means = _window_means(LAWS[law](rng, M0, (2_000_000,)))
        # one alarm in a stretch of ten windows at most: the lowest mean of each
        whole = means.size // WINDOW * WINDOW
        lows.append(means[:whole].reshape(-1, WINDOW).min(axis=1))
    lowest = np.sort(np.concatenate(lows))
    return float(lowest[max(0, round(blocks * 2e6 / apart) - 1)])


def _window_means(x: np.ndarray) -> np.ndarray:
    sums = np.concatenate([[0.0], np.cumsum(x)])
    return ((sums[WINDOW:] - sums[:-WINDOW]) / WINDOW)[::STEP]


def window_delay(law: str, drop: float, limit: float, run: int) -> float:
    rng = np.random.default_rng((7, run))
    x = np.concatenate([LAWS[law](rng, M0, (WINDOW,)), LAWS[law](rng, M0 - drop, (MOST,))])
    below = np.flatnonzero(_window_means(x)[1:] < limit)
    return float((below[0] + 1) * STEP) if below.size else math.inf


def oracle_delay(law: str, drop: float, apart: float, run: int) -> float:
    rng = np.random.default_rng((8, run))
    x = LAWS[law](rng, M0 - drop, (MOST,))
    if law == "binary":
        ratio = np.where(x > 0.5, math.log((M0 - drop) / M0), math.log((1.0 - M0 + drop) / (1.0 - M0)))
    else:
        variance = float(LAWS[law](np.random.default_rng(2), M0, (100_000,)).var())
        ratio = drop / variance * (M0 - drop / 2.0 - x)
    level = 0.0
    for at, step in enumerate(ratio.tolist()):
        level = max(0.0, level) + step
        if level >= math.log(apart):
            return at + 1.0
    return math.inf


def shown(delays: list[float]) -> str:
    """The median and the 90th percentile."""
    ordered = sorted(delays)
    pair = ordered[len(ordered) // 2], ordered[math.ceil(0.9 * len(ordered)) - 1]
    middle, late = ("none" if math.isinf(value) else f"{value:.0f}" for value in pair)
    return f"{middle} ({late})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    runs = range(parser.parse_args().runs)
    columns = " | ".join(f"rule after {history:,}" for history in HISTORIES)
    lines = [
        "# The default page rule: scores from a drop to the page, median (90th percentile)",
        f"\n{len(runs)} runs, mean {M0}, Python {platform.python_version()}, numpy {np.__version__}.\n",
        f"| law | scores a day | drop | {columns} | window of {WINDOW}, knows the law | oracle |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    print("\n".join(lines), flush=True)
    with ProcessPoolExecutor(2) as pool:
        for law in LAWS:
            for per_day in RATES:
                apart = scores_per_false_alarm(per_day)
                limit = window_limit(law, apart)
                for drop in DROPS:
                    rules = [
                        shown(list(pool.map(delay, [Case(law, per_day, history, drop, run) for run in runs])))
                        for history in HISTORIES
                    ]
                    window = shown([window_delay(law, drop, limit, run) for run in runs])
                    oracle = shown([oracle_delay(law, drop, apart, run) for run in runs])
                    cells = [law, f"{per_day:,.0f}", drop, *rules, window, oracle]
                    lines.append(f"| {' | '.join(map(str, cells))} |")
                    print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

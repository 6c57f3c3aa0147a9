"""How long a drop goes unnoticed, in minutes: LLM-like scores, the product's defaults for budget and buckets.

    .venv/bin/python benchmarks/detection/wallclock.py [--full]

One false alarm in 30 days over everything; the stream of all traffic of the only app has a quarter of it. Buckets of a
minute; the watermark of 5 minutes and half a bucket are not in the numbers.
"""

from __future__ import annotations

import argparse

import numpy as np
from laws import M0, SEED, llm_like
from streams import learned, log_mean

from monitors.statistics import eprocess

BUDGET = 0.25 / 43_200  # a minute
CALM, LONGEST, HISTORY = 600, 6000, 2000
DROPS = (0.05, 0.10, 0.20)
MODES = {
    "SLO at the mean": None,
    "window, less .02 (warn)": 0.02,
    "window, less .05 (page)": 0.05,
}


def minutes(rng, drop: float, *, a_minute: int, runs: int, tolerance: float | None):
    """Minutes from the drop to the alarm, one for each run; a run without one counts as `LONGEST`."""
    m0 = np.full(runs, M0)
    if tolerance is not None:
        m0 = np.array([learned(llm_like(rng, M0, HISTORY), tolerance) for _ in range(runs)])
    log_m, found = np.full((runs, eprocess.BETS), eprocess.EMPTY), np.full(runs, LONGEST)
    for minute in range(-CALM, LONGEST):
        scores = llm_like(rng, M0 if minute < 0 else M0 - drop, (a_minute, runs))
        payoffs = eprocess.drop_payoffs(scores, np.ones_like(scores), m0)
        logs = eprocess.log_factors(payoffs, eprocess.bets()).sum(axis=0)
        log_m = eprocess.shiryaev_roberts(log_m, logs, np.log(BUDGET))
        hit = log_mean(log_m) >= 0.0
        log_m[hit] = eprocess.EMPTY
        if minute >= 0:
            found[hit] = np.minimum(found[hit], minute + 1)
            if (found < LONGEST).mean() > 0.92:  # the 90th percentile is known
                break
    return found


def shown(found) -> str:
    """The median and the 90th percentile."""
    numbers = (f"{value:.0f}" if value < LONGEST else f"> {LONGEST}" for value in np.percentile(found, [50, 90]))
    return "{} ({})".format(*numbers)


def table(*, full: bool) -> str:
    """Minutes as Markdown."""
    runs = 300 if full else 40
    lines = ["| judged scores a minute | m₀ | drop .05 | .10 | .20 |", "|---|---|---|---|---|"]
    for a_minute in (10, 1):
        for name, tolerance in MODES.items():
            rng = np.random.default_rng(SEED)
            cells = [
                shown(minutes(rng, drop, a_minute=a_minute, runs=runs, tolerance=tolerance))
                if tolerance is None or drop > tolerance
                else "none: within the tolerance"
                for drop in DROPS
            ]
            lines.append(f"| {a_minute} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="300 runs a cell")
    print(table(full=parser.parse_args().full))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

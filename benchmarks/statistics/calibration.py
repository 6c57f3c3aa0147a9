"""Calibration: how wrong the interval of the error is when one stops at the worst look, and which map errs less.

    .venv/bin/python benchmarks/statistics/calibration.py                 # both tables
    ... --write FILE                                                      # into a file as well

Laws are drawn by seed: scores (beta, spikes at 0 and 1, a few values), and the truth given the score (logistic, power,
step). `ENOUGH_FOR_ISOTONIC` was chosen on seeds below 300; the tables have seeds from 10,000 on.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from monitors.statistics import calibration
from tests.monitors.statistics.test_calibration import error_of, law

FIRST_SEED, RUNS = 10_000, 300
LOOKS = (20, 35, 60, 100, 150, 220, 320, 450, 600, 800, 1_000, 1_500)
WIDTHS = (60, 220, 600, 1_500)
SIZES = (30, 60, 100, 150, 200, 300, 500, 1_000)
ROUNDING = 0.002
"""The true error is a mean of 100,000 scores."""


def intervals() -> list[str]:
    """Return the table of the error's interval."""
    wrong, widths = 0, []
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        rng, scores, truth = law(seed)
        x = scores(LOOKS[-1])
        y = rng.random(x.size) < truth(x)
        wide = scores(100_000)
        error = error_of(wide, truth(wide))
        found = {n: calibration.reliability(x[:n], y[:n]) for n in LOOKS}
        wrong += any(not one.low - ROUNDING <= error <= one.high + ROUNDING for one in found.values())
        widths.append([found[n].high - found[n].low for n in WIDTHS])
    means = np.mean(widths, axis=0)
    head = ["ever wrong (nominal .05)", *(f"width at {n}" for n in WIDTHS)]
    return [row(head), row(["---"] * len(head)), row([f"{wrong / RUNS:.3f}", *(f"{mean:.3f}" for mean in means)])]


def maps() -> list[str]:
    """Return the table of the maps' errors."""
    lines = [row(["pairs", "raw", "isotonic", "Platt"]), row(["---"] * 4)]
    for n in SIZES:
        errors = []
        for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
            rng, scores, truth = law(seed)
            x = scores(n)
            y = rng.random(n) < truth(x)
            fresh = scores(2_000)
            made = []
            for least in (0, 10**9):
                calibration.ENOUGH_FOR_ISOTONIC = least
                made.append(calibration.fit(x, y, "0" * 8).apply(fresh))
            errors.append([np.mean((values - truth(fresh)) ** 2) for values in (fresh, *made)])
        lines.append(row([str(n), *(f"{error:.4f}" for error in np.sqrt(np.mean(errors, axis=0)))]))
    return lines


def row(cells: list[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    target = parser.parse_args().write
    lines = [
        "# Calibration",
        "",
        f"`benchmarks/statistics/calibration.py`: {RUNS} laws, seeds from {FIRST_SEED:,}, numpy {np.__version__},",
        f"Python {platform.python_version()} on {platform.machine()}.",
        "",
        "## The interval of the calibration error, looked at 12 times from 20 to 1,500 labels",
        "",
        *intervals(),
        "",
        "## Root mean square error of the score against the true probability",
        "",
        *maps(),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if target is not None:
        target.write_text(text)


if __name__ == "__main__":
    main()

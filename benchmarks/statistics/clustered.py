"""How often intervals cover the true mean when the scores of a session are alike.

    .venv/bin/python benchmarks/statistics/clustered.py [--full]

Sessions of five scores. "once" is `closed_window` of the clustered `hajek` estimate, looked at after n scores; "always"
is `confidence_sequence` with the design effect, right only if it holds at each of 10, 15, 20 ... 1,000 scores.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from monitors.statistics.confidence_sequence import closed_window, confidence_sequence
from monitors.statistics.weighted_mean import hajek

sys.path.insert(0, str(Path(__file__).parents[1] / "detection"))
from clusters import GRID, correlated, quantiles

SIZE, LONGEST, SEED = 5, 1_000, 20260101
LAWS = (("LLM-like", 0.85), ("binary", 0.85), ("binary", 0.95), ("beta", 0.85))


def covered(low_high: tuple[float, float], mean: float) -> bool:
    return low_high[0] <= mean <= low_high[1]


def row(law: str, mean: float, latent: float, runs: int) -> str:
    """One line of the table."""
    rng = np.random.default_rng(SEED)
    truth = float(np.trapezoid(quantiles(law, mean), GRID))
    once = {30: 0, 100: 0, LONGEST: 0}
    plain, always = dict.fromkeys(once, 0), 0
    for _ in range(runs):
        x = correlated(rng, law, mean, LONGEST // SIZE, SIZE, latent).ravel()
        groups = np.repeat(np.arange(LONGEST // SIZE), SIZE).tolist()
        for n in once:
            once[n] += covered(closed_window(hajek(x[:n], [1.0] * n, groups[:n])), truth)
            plain[n] += covered(closed_window(hajek(x[:n], [1.0] * n)), truth)
        looks = range(2 * SIZE, LONGEST + 1, SIZE)
        always += all(covered(confidence_sequence(hajek(x[:n], [1.0] * n, groups[:n])), truth) for n in looks)
    shares = " | ".join(f"{plain[n] / runs:.3f} | {once[n] / runs:.3f}" for n in once)
    return f"| {law} {mean} | {latent} | {shares} | {always / runs:.3f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="2,000 runs a row instead of 200")
    runs = 2_000 if parser.parse_args().full else 200
    print(f"sessions of {SIZE}, {runs} runs a row, seed {SEED}, numpy {np.__version__}\n")
    print("| law and mean | correlation | n 30, as if independent | once | n 100 | once | n 1,000 | once | always |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for law, mean in LAWS:
        for latent in (0.0, 0.4, 0.6):
            print(row(law, mean, latent, runs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

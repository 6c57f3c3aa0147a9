"""How soon an alert ends after the repair, and how often it ends while the drop lasts.

    .venv/bin/python benchmarks/detection/recovery.py [--full]

The SLO is the true mean or .05 below it. A drop lasts until 200 scores after its alarm; then the mean is what it was
before, or comes back by half only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from laws import LAWS, M0, SEED

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.alerting.detectors.recovery import Recovery

SCORES_A_BUCKET, SECONDS, C = 5, 30.0, 5e4
MOST, LASTING, LASTED = 6_000, 4_000, 200


def buckets(x: np.ndarray) -> Iterator[Bucket]:
    for index, start in enumerate(range(0, len(x) - SCORES_A_BUCKET + 1, SCORES_A_BUCKET)):
        scores = tuple(x[start : start + SCORES_A_BUCKET].tolist())
        yield Bucket(start=SECONDS * index, seconds=SECONDS, scores=scores, weights=(1.0,) * len(scores))


def alarm(rng, law: str, slo: float, mean: float) -> tuple[int, float, int] | None:
    """Scores from the change to the alarm, and the drop's depth as the finding has it."""
    detector = MixtureESR(m0=slo, budget_per_s=SCORES_A_BUCKET / SECONDS / C)
    for index, bucket in enumerate(buckets(LAWS[law](rng, mean, (MOST,)))):
        if (found := detector.update(bucket)) is not None:
            return (index + 1) * SCORES_A_BUCKET, found.baseline - (found.estimate or found.baseline), found.n
    return None


def end(recovery: Recovery, x: np.ndarray, slo: float) -> int | None:
    """After how many of these scores the alert ended."""
    for index, bucket in enumerate(buckets(x)):
        if recovery.update(bucket, slo):
            return (index + 1) * SCORES_A_BUCKET
    return None


def row(law: str, slo: float, drop: float, runs: int) -> str:
    """One line of the table."""
    ended: list[float] = []
    found_in: list[int] = []
    wrong = half = 0
    for run in range(runs):
        rng = np.random.default_rng(SEED + run)
        seen = alarm(rng, law, slo, M0 - drop)
        if seen is None:
            continue
        found_in.append(seen[0])
        lasting = LAWS[law](rng, M0 - drop, (LASTING,))
        back, partly = (LAWS[law](rng, mean, (MOST,)) for mean in (M0, M0 - drop / 2.0))
        recovery = Recovery(depth=seen[1], n=seen[2])
        wrong += end(recovery, lasting, slo) is not None
        recovery = Recovery(depth=seen[1], n=seen[2])
        end(recovery, lasting[:LASTED], slo)
        ended.append(end(recovery, back, slo) or float("inf"))
        half += end(Recovery(depth=seen[1], n=seen[2]), partly[:2000], slo) is not None
    n = len(found_in)
    late = np.mean(np.array(ended) > 2.0 * np.array(found_in))
    shares = f"{100.0 * wrong / n:.1f} % | {100.0 * half / n:.1f} %"
    scores = f"{np.median(found_in):.0f} | {np.median(ended):.0f} | {np.quantile(ended, 0.9):.0f}"
    return f"| {law} | {slo:.2f} | {drop:.2f} | {scores} | {100.0 * late:.0f} % | {shares} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="400 runs a row instead of 100")
    runs = 400 if parser.parse_args().full else 100
    print(f"mean {M0}, {SCORES_A_BUCKET} scores a bucket, {runs} runs a row, seed {SEED}, numpy {np.__version__}\n")
    shares = f"ended within {LASTING} scores of the drop | ended within 2,000 at half the way back"
    ends = "scores to the alarm | to the end | 90th percentile | over twice the alarm's"
    print(f"| law | SLO | drop | {ends} | {shares} |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for law in LAWS:
        for slo in (M0, M0 - 0.05):
            for drop in (0.05, 0.10, 0.20):
                if M0 - drop < slo - 1e-9:
                    print(row(law, slo, drop, runs), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

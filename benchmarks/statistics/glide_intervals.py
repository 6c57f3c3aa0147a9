"""Runs in glide's environment: its intervals for the labels and scores of a file that `few_labels.py` wrote.

python glide_intervals.py IN.npz OUT.npy

IN has `labels` (runs, labelled) and `judged` (runs, all answers; the labelled ones first). OUT has (runs, 2 methods, 2
bounds): PPI++ and Predict-Then-Debias, NaN where glide refuses (labels that are all equal).
"""

from __future__ import annotations

import sys

import numpy as np
from glide.estimators import PPIMeanEstimator, PTDMeanEstimator

BOOTSTRAPS = 500


def main() -> None:
    data = np.load(sys.argv[1])
    labels, judged = data["labels"], data["judged"]
    found = np.full((len(labels), 2, 2), np.nan)
    for run in range(len(labels)):
        y = np.full(judged.shape[1], np.nan)
        y[: labels.shape[1]] = labels[run]
        for method, estimate in enumerate(
            (
                lambda y, f: PPIMeanEstimator().estimate(y, f),
                lambda y, f: PTDMeanEstimator().estimate(y, f, n_bootstrap=BOOTSTRAPS, random_seed=1),
            )
        ):
            try:
                interval = estimate(y, judged[run]).confidence_interval
            except ValueError:
                continue
            found[run, method] = interval.lower_bound, interval.upper_bound
    np.save(sys.argv[2], found)


if __name__ == "__main__":
    main()

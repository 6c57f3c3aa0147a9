"""How much a verifier narrows the interval of the judge's mean, as the covariate in place of counting words or none.

    .venv/bin/python benchmarks/statistics/verifier.py          # half a minute
    .venv/bin/python benchmarks/statistics/verifier.py --full   # what results/verifier.md shows
    ... --write FILE                                            # the tables into a file as well

An answer is good with probability .85. The judge's score is 1 or 0 for good and bad ("binary"), or a share of claims
("claims": bad answers have 1 to 4 wrong ones of 6). The cheap score is a normal one whose mean differs between good and
bad answers so that its AUROC is the stated one, squeezed into (0, 1). Judged is a tenth of the answers. The control is
fitted to an earlier window, as in the product.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import NormalDist

import numpy as np

from gaugeway.storage.sums import WeightedSums
from monitors.analysis.quality import covariates
from monitors.statistics.confidence_sequence import closed_window, confidence_sequence
from monitors.statistics.control_variate import fitted, powered, sums
from monitors.statistics.weighted_mean import hajek_from_sums

SEED, RATE, GOOD = 20260101, 0.1, 0.85
JUDGED = (150, 500, 2000)
CHEAP = {
    "none": None,
    "lexical, answers of newer models (.60)": 0.60,
    "lexical, answers that copy (.78)": 0.78,
    "verifier (.85)": 0.85,
    "verifier (.92)": 0.92,
}


def binary(rng, good):  # noqa: ARG001 - the laws have one form
    """Right or wrong."""
    return good.astype(float)


def claims(rng, good):
    """The share of supported claims of six."""
    return np.where(good, 1.0, 1.0 - rng.integers(1, 5, good.size) / 6.0)


def answers(rng, judged, law, auroc):
    """Judge's scores of a window, the cheap ones, and which are judged."""
    count = round(judged / RATE)
    good = rng.random(count) < GOOD
    scores = law(rng, good)
    gap = 0.0 if auroc is None else np.sqrt(2.0) * NormalDist().inv_cdf(auroc)
    cheap = 1.0 / (1.0 + np.exp(-(rng.normal(0.0, 1.0, count) + gap * good)))
    return scores, cheap, rng.random(count) < RATE


def one(rng, judged, law, auroc):
    """(half width of the sequence, half width looked at once, error over the latter, saving) of one window."""
    earlier, earlier_cheap, seen = answers(rng, judged, law, auroc)
    scores, cheap, chosen = answers(rng, judged, law, auroc)
    given = scores[chosen]
    w = np.full(given.size, 1.0 / RATE)
    plain = hajek_from_sums(WeightedSums.of(given, w))
    found, saving = plain, 1.0
    if auroc is not None:
        rates = np.full(scores.size, RATE)
        fit = fitted(sums(earlier_cheap, np.where(seen, earlier, np.nan), rates))
        better = powered([sums(cheap, np.where(chosen, scores, np.nan), rates)], [fit])
        if better.enough and better.n_eff > plain.n_eff:  # what `quality` does
            found, saving = better.estimate(), better.saving
    low, high = confidence_sequence(found)
    once_low, once_high = closed_window(found)
    truth = scores.mean()  # of this window's traffic
    return (high - low) / 2, (once_high - once_low) / 2, float(once_low <= truth <= once_high), saving


def table(law, runs):
    """The table of one law."""
    lines = [
        f"### Judge's score: {law.__name__}",
        "",
        "| covariate (AUROC) | "
        + " | ".join(f"± at {n} judged, looked at once" for n in JUDGED)
        + " | width against none | the same of the sequence | judge calls for the same interval | covered |",
        "|---|" + "---:|" * (len(JUDGED) + 4),
    ]
    base = {}
    for name, auroc in CHEAP.items():
        rng = np.random.default_rng(SEED)
        found = {n: np.array([one(rng, n, law, auroc) for _ in range(runs)]) for n in JUDGED}
        means = {n: rows.mean(axis=0) for n, rows in found.items()}
        base = base or means
        last = JUDGED[-1]
        cells = [f"{means[n][1]:.4f}" for n in JUDGED]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {means[last][1] / base[last][1]:.2f} | "
            f"{means[last][0] / base[last][0]:.2f} | {1.0 / means[last][3]:.2f} | "
            f"{np.mean([rows[:, 2].mean() for rows in found.values()]):.3f} |"
        )
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    runs, cheap = 600 if options.full else 100, " before ".join(covariates())
    lines = [
        "# A verifier as the covariate",
        "",
        (
            f"{runs} windows each, judged at a rate of {RATE}; covariates are {cheap}. `covered`:"
            " share of the intervals looked at once (nominal .95) that hold the mean of all answers of the window."
        ),
        "",
        *(line for law in (binary, claims) for line in table(law, runs)),
    ]
    print("\n".join(lines))
    if options.write:
        options.write.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()

"""How often the intervals and tests of monitors.statistics are wrong, how wide they are, and how many scores they need.

    .venv/bin/python benchmarks/statistics/coverage.py          # one or two minutes, few runs
    .venv/bin/python benchmarks/statistics/coverage.py --full   # what results/coverage.md shows
    ... --write FILE                                            # the tables into a file as well

Laws of the scores, with mean .85: those of benchmarks/detection/null_and_drops.py. The cheap score is on another
scale (a biased one, .3 + .1 of the standardised mixture) with the stated correlation.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.statistics.sequences import HedgedBetting, bernstein_path, betting_lower
from monitors.statistics.agreement import corrected_mean
from monitors.statistics.confidence_sequence import MIN_N_EFF, closed_window, confidence_sequence
from monitors.statistics.control_variate import Fit, powered, sums
from monitors.statistics.weighted_mean import Estimate

M0, SEED, ALPHA = 0.85, 20260101, 0.05
JUDGED, RATE = 1000, 0.1
WIDTH_BARS = {0.0: 1.02, 0.3: None, 0.5: 0.90, 0.7: 0.77, 0.9: 0.56}
SAVING_BARS = {0.0: None, 0.3: None, 0.5: 1.25, 0.7: 1.7, 0.9: 3.2}


def beta(rng, mean, shape):
    """Standard deviation .12 at .85."""
    return rng.beta(7.854 * mean, 7.854 * (1.0 - mean), shape)


def llm_like(rng, mean, shape):
    """Spikes at 0 and 1 and a middle, sd .27 at .85; a drop moves mass from 1 to 0 and lowers the middle."""
    drop = M0 - mean
    middle = 0.735 - drop / 2 / 0.34
    u = rng.random(shape)
    scores = rng.beta(4.73 * middle, 4.73 * (1.0 - middle), shape)
    return np.where(u < 0.06 + drop / 2, 0.0, np.where(u < 0.66, 1.0, scores))


def binary(rng, mean, shape):
    """Right or wrong, sd .36."""
    return (rng.random(shape) < mean).astype(float)


LAWS: dict[str, Callable] = {"beta": beta, "LLM-like": llm_like, "binary": binary}


def bar(value: float, limit: float | None, digits: int = 3, *, least: bool = False) -> str:
    """The value with its bar; a bar that is not met is marked."""
    text = f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"
    if limit is None:
        return text
    met = value >= limit if least else value <= limit
    return f"{text} ({'>=' if least else '<='} {limit:g}{'' if met else ', MISSED'})"


def powered_runs(rng, law: Callable, rho: float, runs: int, judged: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Width ratios to the same sample without the cheap score, whether each interval was right, and savings."""
    n = round(judged / RATE)
    sd = law(np.random.default_rng(SEED), M0, 10**6).std()
    rates = np.full(n, RATE)
    ratios, right, savings = np.zeros(runs), np.zeros(runs, bool), np.zeros(runs)
    for run in range(runs):
        y = law(rng, M0, n)
        cheap = 0.3 + 0.1 * (rho * (y - M0) / sd + math.sqrt(1.0 - rho * rho) * rng.normal(size=n))
        part = sums(cheap, np.where(rng.random(n) < RATE, y, np.nan), rates)
        found, plain = powered([part]), powered([part], [Fit(intercept=part.uy / part.u)])
        low, high = closed_window(found.estimate())
        ratios[run] = math.sqrt(found.variance / plain.variance)
        right[run], savings[run] = low <= M0 <= high, found.saving
    return ratios, right, savings


def powered_table(runs: int) -> Iterator[str]:
    yield f"### With a cheap score: {JUDGED} of {round(JUDGED / RATE)} exchanges judged, {runs} runs a cell"
    yield ""
    yield "| correlation | law | width to that without | judge calls saved, median | 95 % interval right |"
    yield "|---|---|---|---|---|"
    for rho, limit in WIDTH_BARS.items():
        for name, law in LAWS.items():
            ratios, right, savings = powered_runs(np.random.default_rng(SEED), law, rho, runs, JUDGED)
            saved = bar(float(np.median(savings)), SAVING_BARS[rho], 2, least=True)
            # the bars are for the typical run; that nothing is lost at rho = 0 is for the worst
            width = float(ratios.max() if rho == 0.0 else np.median(ratios))
            kind = " at most" if rho == 0.0 else ""
            yield f"| {rho:g} | {name} | {bar(width, limit)}{kind} | {saved} x | {right.mean():.3f} |"
    yield ""


def ever_wrong(law: Callable, rng, runs: int, n: int) -> dict[str, tuple[float, list[float]]]:
    """For each kind of interval: the share of runs in which it was ever wrong, and mean widths at 300, 1000 and n."""
    looks = [300, 1000, n]
    scores = law(rng, M0, (n, runs))
    empty, level = np.zeros((10, runs)), math.log(2.0 / ALPHA)
    _, low = bernstein_path(empty, scores, np.ones_like(scores), level)
    _, down = bernstein_path(empty, 1.0 - scores, np.ones_like(scores), level)
    found = {"empirical Bernstein": [(low > M0) | (1.0 - down < M0), 1.0 - down - low]}
    t = np.arange(1.0, n + 1.0)[:, None]
    means = scores.cumsum(axis=0) / t
    sds = np.sqrt(np.maximum((scores**2).cumsum(axis=0) / t - means**2, 0.0))
    half = np.array([_half(at) for at in range(1, n + 1)])[:, None]
    half = half * np.sqrt((0.25 + t * sds**2) / (t + 1.0))
    found["ordinary 95 %, from 50"] = [(np.abs(means - M0) > half) & (t >= 50), 2.0 * half]
    found["asymptotic, from 10"] = _sequence_of_the_product(means, sds)
    result = {
        name: (float(wrong.any(axis=0).mean()), [float(width[at - 1].mean()) for at in looks])
        for name, (wrong, width) in found.items()
    }
    wrong, widths = 0, np.zeros(3)
    for run in range(runs):
        sequence, at = HedgedBetting(), 0
        for i, look in enumerate(looks):
            for start in range(at, look, 500):
                sequence.update(scores[start : min(start + 500, look), run].tolist())
            at = look
            widths[i] += sequence.upper - sequence.lower
        wrong += not sequence.lower <= M0 <= sequence.upper  # bounds never loosen: once wrong, wrong at the end
    result["betting"] = wrong / runs, (widths / runs).tolist()
    return result


def _sequence_of_the_product(means: np.ndarray, sds: np.ndarray) -> list[np.ndarray]:
    """Whether `confidence_sequence` missed the mean, and its widths; at every tenth score, from `MIN_N_EFF` on."""
    wrong, widths = np.zeros(means.shape, bool), np.zeros(means.shape)
    for at in range(MIN_N_EFF, len(means) + 1, 10):
        for run in range(means.shape[1]):
            estimate = Estimate(mean=float(means[at - 1, run]), sd=float(sds[at - 1, run]), n=at, n_eff=float(at))
            low, high = confidence_sequence(estimate)
            wrong[at - 1, run], widths[at - 1, run] = not low <= M0 <= high, high - low
    return [wrong, widths]


def _half(n: int) -> float:
    """The half-width of a closed window in standard deviations."""
    low, high = closed_window(Estimate(mean=0.5, sd=1e-9, n=n, n_eff=float(n)))
    # (1/4 + t sd^2)/(t + 1) is what it multiplies with; the cut to [0, 1] is undone by taking one far from it
    shrunk = math.sqrt(0.25 / (n + 1.0))
    return (high - low) / 2.0 / shrunk if high < 1.0 else math.inf


def sequence_table(runs: int, n: int) -> Iterator[str]:
    yield f"### Looked at after every score up to {n:,}: {runs} runs a law"
    yield ""
    yield f"| interval | law | ever wrong | mean width at 300 | at 1,000 | at {n:,} |"
    yield "|---|---|---|---|---|---|"
    limits = {"empirical Bernstein": 0.05, "betting": 0.05, "asymptotic, from 10": 0.05}
    for law_name, law in LAWS.items():
        for name, (wrong, widths) in ever_wrong(law, np.random.default_rng(SEED), runs, n).items():
            cells_ = " | ".join(f"{width:.3f}" for width in widths)
            yield f"| {name} | {law_name} | {bar(wrong, limits.get(name))} | {cells_} |"
    yield ""


def baseline_table(runs: int) -> Iterator[str]:
    yield f"### The lower bound of a baseline window (95 %): {runs} runs a cell"
    yield ""
    yield "| law | n = 300: mean - bound | above the mean | n = 2,000: mean - bound | above the mean |"
    yield "|---|---|---|---|---|"
    for name, law in LAWS.items():
        rng, row = np.random.default_rng(SEED), []
        for n in (300, 2000):
            bounds = np.array([betting_lower(law(rng, M0, n).tolist()) for _ in range(runs)])
            row += [f"{M0 - np.median(bounds):.4f}", bar(float((bounds > M0).mean()), ALPHA)]
        yield f"| {name} | {' | '.join(row)} |"
    yield ""


def labels_table(runs: int) -> Iterator[str]:
    yield f"### A judge's mean corrected by labels, truth .85, sensitivity .95, 5,000 answers: {runs} runs a cell"
    yield ""
    yield "| specificity | labels | 95 % interval right | mean width | without the judge |"
    yield "|---|---|---|---|---|"
    for specificity in (0.9, 0.7):
        for labels in (30, 50, 100, 200):
            rng, right, width, alone = np.random.default_rng(SEED), 0, 0.0, 0.0
            for _ in range(runs):
                truth = rng.random(5000) < M0
                verdict = np.where(truth, rng.random(5000) < 0.95, rng.random(5000) >= specificity).astype(float)
                labelled = truth[:labels].astype(float)
                found = corrected_mean(labelled, verdict[:labels], verdict.size, x=float(verdict.sum())).corrected
                right += found.low <= M0 <= found.high
                width += (found.high - found.low) / runs
                alone += 2 * 1.96 * math.sqrt(M0 * (1 - M0) / labels) / runs
            yield f"| {specificity:g} | {labels} | {right / runs:.3f} | {width:.3f} | {alone:.3f} |"
    yield ""


def speed_table() -> Iterator[str]:
    rng = np.random.default_rng(SEED)
    scores = rng.random(20_000).tolist()
    yield "### Speed"
    yield ""
    begun = time.perf_counter()
    betting_lower(scores[:2000])
    yield f"- betting_lower of 2,000 scores: {(time.perf_counter() - begun) * 1e3:.1f} ms"
    sequence, begun = HedgedBetting(), time.perf_counter()
    for at in range(0, 5000, 10):
        sequence.update(scores[at : at + 10])
    yield f"- HedgedBetting, batches of 10: {(time.perf_counter() - begun) / 5000 * 1e6:.1f} us a score"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="2000 runs of the powered mean, 600 of the sequences ...")
    parser.add_argument("--write", type=Path, help="write the tables to this file too")
    options = parser.parse_args()
    full = options.full
    begun, lines = time.perf_counter(), []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    say("# Coverage of the estimates")
    say("")
    say(f"`benchmarks/statistics/coverage.py{' --full' if full else ''}`: seed {SEED}, numpy {np.__version__}, Python")
    say(f"{platform.python_version()}. Bars are in brackets; one that is not met says so.")
    say("")
    for table in (
        powered_table(2000 if full else 200),
        sequence_table(600 if full else 100, 10_000 if full else 2000),
        baseline_table(2000 if full else 200),
        labels_table(2000 if full else 200),
        speed_table(),
    ):
        for line in table:
            say(line)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

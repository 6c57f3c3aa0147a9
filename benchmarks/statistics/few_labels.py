"""A judge's mean corrected by few labels: how often its interval covers, and its width beside that of labels alone.

    .venv/bin/python benchmarks/statistics/few_labels.py            # a few laws
    .venv/bin/python benchmarks/statistics/few_labels.py --full     # what results/few_labels.md shows
    ... --write FILE                                                # the tables into a file as well

Laws of labels and judges are drawn by seed (`drawn_laws.py`). The interval was developed on seeds below 200; the table
has seeds from 1,000 on. Where glide-py is installed (`installs.py`) its PPI++ and Predict-Then-Debias intervals of the
same data are shown beside.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing
from benchmarks.statistics.drawn_laws import FAMILIES, Array, Judge, Law, draw, judge_of
from benchmarks.statistics.installs import PEERS
from monitors.statistics.agreement import corrected_mean, wilson
from monitors.statistics.confidence_sequence import student

FIRST_SEED = 1_000
ANSWERS = 2_000
LABELS = (20, 30, 50, 100)
BARS = {0.6: 0.85, 0.9: 0.56}
COVERED = 0.94
WITH_GLIDE, GLIDE_RUNS = 30, 40
Result = dict[str, tuple[float, float]]
"""By method, how often its interval covers and its mean width."""


def intervals(labels: Array, judged: Array) -> Iterator[tuple[str, Array]]:
    """The intervals of the product, and of labels alone, for every run."""
    n = labels.shape[1]
    found = [corrected_mean(y, f[:n], f.size, x=float(f.sum())).corrected for y, f in zip(labels, judged, strict=True)]
    yield "corrected", np.array([(interval.low, interval.high) for interval in found])
    half = student(0.05, n - 1) * labels.std(axis=1, ddof=1) / np.sqrt(n)
    yield "labels alone", np.stack([labels.mean(axis=1) - half, labels.mean(axis=1) + half], axis=1)
    yield "labels alone, Wilson", np.array([wilson(float(y.sum()), n) for y in labels])


def by_glide(labels: Array, judged: Array) -> Iterator[tuple[str, Array]]:
    """The intervals of glide-py, if it is installed."""
    if not installing.is_there(PEERS / "glide"):
        return
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
        np.savez(given, labels=labels, judged=judged)
        script = Path(__file__).with_name("glide_intervals.py")
        subprocess.run([str(PEERS / "glide/bin/python"), str(script), str(given), str(found)], check=True)
        methods = np.load(found)
    yield "glide PPI++", methods[:, 0]
    yield "glide PTD", methods[:, 1]


@cache
def drawn(seed: int, rho: float) -> tuple[Law, Judge, str]:
    """A law with its judge, and the judge's kind."""
    law = draw(seed, FAMILIES[seed % len(FAMILIES)])
    return law, *judge_of(law, seed, rho)


def measured(seed: int, rho: float, n: int, runs: int) -> tuple[str, str, Result]:
    """Family, kind of judge, and what the methods did on one law."""
    law, judge, kind = drawn(seed, rho)
    rng = np.random.default_rng([seed, n, round(100 * rho)])
    all_labels, judged = judge(rng, (runs, ANSWERS))
    labels = all_labels[:, :n]
    made = [
        *intervals(labels, judged),
        *(by_glide(labels[:GLIDE_RUNS], judged[:GLIDE_RUNS]) if n == WITH_GLIDE else ()),
    ]
    result = {}
    for name, bounds in made:
        covers = (bounds[:, 0] <= law.mean) & (law.mean <= bounds[:, 1])  # NaN, no interval, does not
        result[name] = float(covers.mean()), float(np.nanmean(bounds[:, 1] - bounds[:, 0]))
    return law.family, kind, result


def bar(value: float, limit: float | None, *, least: bool = False) -> str:
    """The value with its bar; a bar that is not met is marked."""
    if limit is None:
        return f"{value:.3f}"
    met = value >= limit if least else value <= limit
    return f"{value:.3f} ({'>=' if least else '<='} {limit:g}{'' if met else ', MISSED'})"


def tables(laws: int, runs: int) -> Iterator[str]:
    seeds = range(FIRST_SEED, FIRST_SEED + laws)
    error = 2.0 * np.sqrt(0.05 * 0.95 / (laws * runs))
    yield f"{laws} laws, {runs} runs each; Monte Carlo error of a coverage over all laws ±{error:.4f}, of one law"
    yield f"±{2.0 * np.sqrt(0.05 * 0.95 / runs):.3f}. {ANSWERS:,} answers in all. Widths are shares of"
    yield "that of Student's interval of the same labels alone (mean width over runs, then over laws)."
    yield ""
    yield "| labels / not labelled | correlation | covers | lowest law | width | widest law | labels alone cover |"
    yield "|---|---|---|---|---|---|---|"
    rows = {(rho, n): [measured(seed, rho, n, runs) for seed in seeds] for rho in BARS for n in LABELS}
    for (rho, n), found in rows.items():
        covers, width = _column(found, "corrected")
        limit = BARS[rho] if n >= WITH_GLIDE else None
        least = COVERED if n >= WITH_GLIDE else None
        yield (
            f"| {n} / {ANSWERS - n:,} | {rho:g} | {bar(covers.mean(), least, least=True)} | {covers.min():.3f} | "
            f"{bar(width.mean(), limit)} | {width.max():.2f} | {_column(found, 'labels alone')[0].mean():.3f} |"
        )
    yield ""
    yield f"By family of the labels and kind of judge, {WITH_GLIDE} labels (glide: the first {GLIDE_RUNS} runs):"
    yield ""
    methods = list(rows[0.6, WITH_GLIDE][0][2])
    yield "| labels, judge | correlation | " + " | ".join(f"{name}: covers, width" for name in methods) + " |"
    yield "|---|---|" + "---|" * len(methods)
    for rho in BARS:
        for family in FAMILIES:
            for kind in ("noisy", "gross"):
                if part := [row for row in rows[rho, WITH_GLIDE] if row[:2] == (family, kind)]:
                    cells = [f"{covers.mean():.3f}, {width.mean():.2f}" for covers, width in map(_of(part), methods)]
                    yield f"| {family}, {kind} ({len(part)}) | {rho:g} | {' | '.join(cells)} |"
        cells = [
            f"{covers.mean():.3f}, {width.mean():.2f}" for covers, width in map(_of(rows[rho, WITH_GLIDE]), methods)
        ]
        yield f"| all ({laws}) | {rho:g} | {' | '.join(cells)} |"


def _of(rows: list[tuple[str, str, Result]]):
    return lambda name: _column(rows, name)


def _column(rows: list[tuple[str, str, Result]], name: str) -> tuple[Array, Array]:
    """Coverage and relative width of a method on each law."""
    alone = np.array([result["labels alone"][1] for _, _, result in rows])
    return np.array([result[name][0] for _, _, result in rows]), np.array([r[name][1] for _, _, r in rows]) / alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="24 laws of 200 runs")
    parser.add_argument("--write", type=Path, help="write the tables to this file too")
    options = parser.parse_args()
    begun, lines = time.perf_counter(), []
    flags = " --full" if options.full else ""
    glide = installing.version(PEERS / "glide", "glide-py") or "not installed"
    head = [
        "# Few labels",
        "",
        f"`benchmarks/statistics/few_labels.py{flags}`: seeds from {FIRST_SEED:,}, numpy {np.__version__}, Python",
        f"{platform.python_version()} on {platform.machine()}, glide-py {glide}. Bars are in brackets.",
        "",
    ]
    for line in (*head, *tables(*(24, 200) if options.full else (8, 100))):
        print(line, flush=True)
        lines.append(line)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""How many scores it takes until two versions are told apart: what docs/how-to/compare-versions.md shows.

    .venv/bin/python benchmarks/statistics/stopping.py [--write]   # a minute or two; --write: results/stopping.md

Scores are 0 or 1, A at 0.85, half of them each. Whoever waits asks again after every ten scores, later after every two
in a hundred: `compare` looks at all there is whenever it is asked. Pairs differ only where they must.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from monitors.statistics.sequential_ab import Comparison, PairedComparison

RESULTS = Path(__file__).parent / "results"
CHAMPION, MARGIN, ALPHA = 0.85, 0.02, 0.01
CHALLENGERS = (0.90, 0.85, 0.80, 0.75, 0.65)
MOST, RUNS, SEED = 16_000, 100, 20260101


def looks() -> Iterator[tuple[int, int]]:
    """Scores of each version before and after each time of asking."""
    before = 0
    while 2 * before < MOST:
        after = before + max(5, before // 50)
        yield before, after
        before = after


def apart(mean: float, draw: np.random.Generator) -> tuple[int | None, str]:
    """Scores of both until the decision, and the decision; None without any."""
    test = Comparison(MARGIN, ALPHA)
    for before, after in looks():
        test.update("champion", (draw.random(after - before) < CHAMPION) * 1.0)
        test.update("challenger", (draw.random(after - before) < mean) * 1.0)
        if (said := test.verdict().decision) != "not enough data":
            return 2 * after, said
    return None, "none"


def paired(mean: float, draw: np.random.Generator) -> tuple[int | None, str]:
    """Pairs until the decision, and the decision."""
    test = PairedComparison(MARGIN, ALPHA)
    for before, after in looks():
        a = draw.random(after - before) < CHAMPION
        kept = draw.random(after - before) < mean / CHAMPION
        gained = draw.random(after - before) < (mean - CHAMPION) / (1.0 - CHAMPION)
        b = a & kept if mean < CHAMPION else a | gained
        test.update(a * 1.0, b * 1.0)
        if (said := test.verdict().decision) != "not enough data":
            return after, said
    return None, "none"


def told(found: list[int | None], most: int) -> str:
    """The median, or how many went without a decision."""
    open_ = found.count(None)
    if 2 * open_ >= len(found):
        return f"more than {most:,} in {open_} of {len(found)} runs"
    return f"{statistics.median(most if one is None else one for one in found):,.0f}"


def main() -> None:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--write", action="store_true")
    asked = asking.parse_args()
    begin = time.perf_counter()
    rows = ["| B's mean | decisions, apart | scores | decisions, paired | pairs |", "|---|---|---:|---|---:|"]
    ways: tuple[tuple[Callable[[float, np.random.Generator], tuple[int | None, str]], int], ...]
    ways = (apart, MOST), (paired, MOST // 2)
    for mean in CHALLENGERS:
        cells = [f"{mean:.2f}"]
        for way, most in ways:
            found = [way(mean, np.random.default_rng([SEED, run])) for run in range(RUNS)]
            said = [decision for _, decision in found]
            cells.append(", ".join(f"{one} {said.count(one)}" for one in sorted(set(said))))
            cells.append(told([count for count, _ in found], most))
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    about = f"`python benchmarks/statistics/stopping.py`: seed {SEED}, margin {MARGIN}, alpha {ALPHA}, medians of"
    about += f" {RUNS} runs; numpy {np.__version__}, Python {platform.python_version()}."
    text = "\n".join(["# Scores until two versions are told apart", "", about, "", *rows, ""])
    print(f"\n{text}\n{time.perf_counter() - begin:.0f} s")
    if asked.write:
        (RESULTS / "stopping.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()

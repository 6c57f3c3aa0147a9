"""How often a comparison of two versions decides, and wrongly, and after how many scores.

    .venv/bin/python benchmarks/statistics/stopping.py [--seed 1] [--runs 60] [--write]

Every run is `compare` of the product on scores in the order of time, which looks at them as it does on the page: again
after every 10 scores, later after every 4 %. Laws are drawn by the seed from four families on hundredths of [0, 1]. The
oracle knows both laws: it is the sequential likelihood-ratio test of them against the nearest laws at the margin
(exponentially tilted until the difference of the means is the margin), at the level alpha, looked at after every score.
The method was chosen with seeds below 100; `--write` keeps what 20260101 gives.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gaugeway.storage.stores import Point
from monitors.analysis.ab_compare import Compared, Sides, compare
from monitors.statistics.sequential_ab import scores_needed

RESULTS = Path(__file__).parent / "results"
MARGIN, ALPHA, N, SEED = 0.02, 0.01, 3_000, 20260101
GRID = np.arange(101) / 100.0
FAMILIES = ("beta", "spikes and a middle", "pass or fail", "rare failures")
PER_FAMILY = 4
Draw = np.random.Generator


class Law(NamedTuple):
    """Probabilities of the hundredths."""

    p: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.p @ GRID)

    @property
    def sd(self) -> float:
        return math.sqrt(float(self.p @ (GRID - self.mean) ** 2))

    def scores(self, n: int, draw: Draw) -> np.ndarray:
        return draw.choice(GRID, size=n, p=self.p)

    def tilted(self, theta: float) -> Law:
        weights = self.p * np.exp(theta * (GRID - 0.5))
        return Law(weights / weights.sum())

    def of_mean(self, mean: float) -> Law:
        """The same law, tilted to a mean."""
        return self.tilted(solved(lambda theta: self.tilted(theta).mean - mean))


def solved(rising: Callable[[float], float]) -> float:
    low, high = -400.0, 400.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < 0.0 else (low, middle)
    return high


def drawn(family: str, draw: Draw) -> Callable[[float], Law]:
    """Draw a law of the family, for every mean."""
    inside = np.clip(GRID, 0.005, 0.995)
    if family == "beta":
        concentration = 10.0 ** draw.uniform(-0.3, 1.7)

        def law(mean: float) -> Law:
            logs = (concentration * mean - 1) * np.log(inside) + (concentration * (1 - mean) - 1) * np.log1p(-inside)
            p = np.exp(logs - logs.max())
            return Law(p / p.sum()).of_mean(mean)

    elif family == "spikes and a middle":
        middle, centre = draw.uniform(0.1, 0.6), draw.uniform(0.4, 0.8)

        def law(mean: float) -> Law:
            hump = np.exp(-0.5 * ((GRID - centre) / 0.15) ** 2)
            p = middle * hump / hump.sum()
            p[-1] += (1.0 - middle) * mean
            p[0] += (1.0 - middle) * (1.0 - mean)
            return Law(p).of_mean(mean)

    else:

        def law(mean: float) -> Law:
            return Law(np.where(GRID == 1.0, mean, np.where(GRID == 0.0, 1.0 - mean, 0.0)))

    return law


def mean_of(family: str, draw: Draw) -> float:
    return draw.uniform(0.985, 0.999) if family == "rare failures" else draw.uniform(0.45, 0.95)


def oracle(a: Law, b: Law) -> Callable[[np.ndarray, np.ndarray], bool]:
    """Whether the test of known laws decides on which side of the margin B is; for scores of equal numbers."""
    worse = b.mean - a.mean < -MARGIN

    def gap(theta: float) -> float:
        return b.tilted(theta).mean - a.tilted(-theta).mean + MARGIN

    theta = solved(gap)  # above 0 where B is worse

    def decides(x: np.ndarray, y: np.ndarray) -> bool:
        constant = math.log(float(a.p @ np.exp(-theta * (GRID - 0.5)))) + math.log(
            float(b.p @ np.exp(theta * (GRID - 0.5)))
        )
        ratio = theta * np.cumsum(x - y) + constant * np.arange(1, x.size + 1)
        return bool((ratio >= -math.log(ALPHA)).any())

    assert worse == (theta > 0.0)
    return decides


def points(name: str, scores: Sequence[float], at: Sequence[float], *, named: bool) -> list[Point]:
    return [
        Point(
            sample_id=f"{name}{index}",
            started_at=float(when),
            app="app",
            model=name,
            metric="faithfulness",
            outcome="score",
            value=float(score),
            reason="",
            rate=1.0,
            cluster=f"s:{name}{index}" if named else None,
        )
        for index, (score, when) in enumerate(zip(scores, at, strict=True))
    ]


def compared(
    a: np.ndarray,
    b: np.ndarray,
    times: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    named: bool = True,
    margin: float = MARGIN,
) -> Compared:
    """What the product says of two versions without any name of a conversation, or with one for every score."""
    at = times or tuple(np.sort((np.arange(x.size) + 0.5) / x.size) for x in (a, b))
    sides = (points(name, scores, when, named=named) for name, scores, when in zip("ab", (a, b), at, strict=True))
    (row,) = compare(
        [Sides(app="app", metric="faithfulness", champion=next(sides), challenger=next(sides))],
        margin=margin,
        alpha=ALPHA,
    )
    return row


def error_of(share: float, runs: int) -> str:
    return f"{share:.3f} ± {math.sqrt(max(share * (1.0 - share), 1.0 / runs) / runs):.3f}"


def laws_table(seed: int, runs: int) -> Iterator[str]:
    yield f"## Laws drawn by the seed: {N:,} scores of each version, margin {MARGIN}, alpha {ALPHA}, {runs} runs a law"
    yield ""
    yield "At the margin B is worse by exactly the margin: a roll back is wrong; ships are as many as just below."
    yield "Named: every score has a conversation of its own; unnamed: none has a name."
    yield ""
    yield (
        "| family | mean, sd | at the margin: roll back | ship | -.05: roll back, named | unnamed | oracle"
        " | equal: ship or within, named | oracle |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    wrong: Counter[str] = Counter()
    gaps: list[float] = []
    for number, family in enumerate(FAMILIES):
        for index in range(PER_FAMILY):
            draw = np.random.default_rng([seed, number, index])
            family_law, mean = drawn(family, draw), mean_of(family, draw)
            a, at_margin, b = family_law(mean), family_law(mean - MARGIN), family_law(mean - 0.05)
            knows, knows_equal = oracle(a, b), oracle(a, a)
            count: Counter[str] = Counter()
            for _ in range(runs):
                x, y, z, w = (law.scores(N, draw) for law in (a, at_margin, b, a))
                said = compared(x, y).decision
                count["wrong back"] += said == "roll back"
                count["wrong ship"] += said in ("ship", "within the margin")
                count["power"] += compared(x, z).decision == "roll back"
                count["unnamed"] += compared(x, z, named=False).decision == "roll back"
                count["oracle"] += knows(x, z)
                count["equal"] += compared(x, w).decision in ("ship", "within the margin")
                count["oracle equal"] += knows_equal(x, w)
            wrong += count
            gaps.append((count["oracle"] - count["power"]) / runs)
            names = ("wrong back", "wrong ship", "power", "unnamed", "oracle", "equal", "oracle equal")
            cells = [f"{count[name] / runs:.2f}" for name in names]
            yield f"| {family} | {a.mean:.3f}, {a.sd:.2f} | {' | '.join(cells)} |"
    total = runs * PER_FAMILY * len(FAMILIES)
    yield ""
    shares = ", ".join(f"{name} {error_of(wrong[name] / total, total)}" for name in ("wrong back", "wrong ship"))
    yield (
        f"All laws: {shares}; rolled back at -.05 {wrong['power'] / total:.3f}, unnamed {wrong['unnamed'] / total:.3f},"
        f" oracle {wrong['oracle'] / total:.3f}; largest gap of a law to the oracle {max(gaps):.2f}"
        f" (± {math.sqrt(0.25 / runs):.2f} at most)."
    )
    yield ""


def splits_table(seed: int, runs: int) -> Iterator[str]:
    yield f"## At the margin with unequal shares, few scores and other margins: {2 * runs} runs a cell"
    yield ""
    yield "| law | margin | scores of A, of B | roll back (wrong) | ship |"
    yield "|---|---|---|---|---|"
    for mean, margin, n, m in (
        (0.9, 0.05, 10_000, 1_000),
        (0.9, 0.05, 1_000, 10_000),
        (0.98, 0.02, 10_000, 1_000),
        (1.0, 0.02, 3_000, 3_000),
        (0.995, 0.005, 6_000, 6_000),
        (0.9, 0.0, 3_000, 3_000),
    ):
        draw, said = np.random.default_rng([seed, 77, n, m]), Counter[str]()
        for _ in range(2 * runs):
            a, b = draw.random(n) < mean, draw.random(m) < mean - margin
            said[compared(a * 1.0, b * 1.0, margin=margin).decision] += 1
        shares = [(said["roll back"]), said["ship"] + said["within the margin"]]
        cells = " | ".join(error_of(share / (2 * runs), 2 * runs) for share in shares)
        yield f"| pass rate {mean} | {margin} | {n:,}, {m:,} | {cells} |"
    yield ""


def conversations(
    longest: int, correlation: float, draw: Draw, *, by_session: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Latent normal scores and times of two equal versions, in conversations that nothing names."""
    total = 2 * N
    shortest = 5 if longest == 5 else 1
    lengths = draw.integers(shortest, longest + 1, size=2 * total // (shortest + longest) + 400)
    session = np.repeat(np.arange(lengths.size), lengths)[:total]
    latent = math.sqrt(correlation) * draw.normal(size=lengths.size)[session]
    latent += math.sqrt(1.0 - correlation) * draw.normal(size=total)
    to_b = draw.random(lengths.size)[session] < 0.5 if by_session else draw.random(total) < 0.5
    return [(latent[side], np.flatnonzero(side).astype(float)) for side in (~to_b, to_b)]


def conversations_table(seed: int, runs: int) -> Iterator[str]:
    yield f"## Equal versions, conversations that nothing names: {3 * runs} runs a cell of {N:,} scores a version"
    yield ""
    yield "A roll back is wrong. Pass rate .85; the correlation is that of the latent normal scores."
    yield ""
    yield "| turns | correlation | version by | rolled back | ship or within | design effect, median |"
    yield "|---|---|---|---|---|---|"
    for longest in (5, 60):
        for correlation in (0.2, 0.4, 0.6):
            for by_session in (True, False):
                draw = np.random.default_rng([seed, longest, int(10 * correlation), by_session])
                said, effects = Counter[str](), []
                for _ in range(3 * runs):
                    (x, at), (y, at_too) = conversations(longest, correlation, draw, by_session=by_session)
                    row = compared((x > -1.036) * 1.0, (y > -1.036) * 1.0, (at, at_too), named=False)
                    said[row.decision] += 1
                    effects.append(row.champion.design_effect or 1.0)
                share = said["roll back"] / (3 * runs)
                good = (said["ship"] + said["within the margin"]) / (3 * runs)
                how = "conversation" if by_session else "request"
                turns = "5" if longest == 5 else "1-60"
                yield (
                    f"| {turns} | {correlation} | {how} | {error_of(share, 3 * runs)} | {good:.2f}"
                    f" | {statistics.median(effects):.1f} |"
                )
    yield ""


def sizes_table(seed: int, runs: int) -> Iterator[str]:
    yield "## Scores until the decision: pass or fail, A at .85, half of the scores each; and the plan"
    yield ""
    yield f"Medians of {runs} runs. The plan is `scores_needed`; beside it, the share of the runs decided with as many."
    yield ""
    yield "| B's mean | decisions, apart | scores of both | plan, of each | decided | decisions, paired | pairs |"
    yield "|---|---|---:|---:|---:|---|---:|"
    most = 16_000
    for mean in (0.90, 0.85, 0.80, 0.75, 0.65):
        draw, said, paired = np.random.default_rng([seed, 5]), Counter[str](), Counter[str]()
        counts, pairs, kept = [], [], 0
        sd = math.sqrt((0.85 * 0.15 + mean * (1 - mean)) / 2.0)
        plan = scores_needed(sd, margin=MARGIN, distance=abs(mean - 0.83))
        for _ in range(runs):
            a, b = (draw.random(most // 2) < 0.85) * 1.0, (draw.random(most // 2) < mean) * 1.0
            decision, n = until(a, b)
            said[decision] += 1
            counts.append(n)
            n = min(plan, most // 2)
            kept += compared(a[:n], b[:n]).decision != "not enough data"
            stays, gains = draw.random(most // 2) < mean / 0.85, draw.random(most // 2) < (mean - 0.85) / 0.15
            decision, n = until(a, a * stays if mean < 0.85 else np.maximum(a, gains), paired=True)
            paired[decision] += 1
            pairs.append(n)
        words = [", ".join(f"{word} {n}" for word, n in sorted(found.items())) for found in (said, paired)]
        yield (
            f"| {mean:.2f} | {words[0]} | {median(counts, 2, most)} | {plan:,} | {kept / runs:.2f} | {words[1]}"
            f" | {median(pairs, 1, most)} |"
        )
    yield ""


def until(a: np.ndarray, b: np.ndarray, *, paired: bool = False) -> tuple[str, int | None]:
    """The decision, and the number of scores of each after which there is one."""

    def decision(n: int) -> str:
        if not paired:
            return compared(a[:n], b[:n]).decision
        at = np.arange(n, dtype=float)
        sides = [points(name, scores[:n], at, named=True) for name, scores in (("a", a), ("b", b))]
        keys = {point.sample_id: point.sample_id[1:] for side in sides for point in side}
        (row,) = compare([Sides(app="app", metric="faithfulness", champion=sides[0], challenger=sides[1])], keys=keys)
        return row.decision

    if decision(a.size) == "not enough data":
        return "none", None
    low, high = 0, a.size
    while high - low > 5:  # a decision stays
        middle = (low + high) // 2
        low, high = (low, middle) if decision(middle) != "not enough data" else (middle, high)
    return decision(high), high


def median(found: Sequence[int | None], each: int, most: int) -> str:
    """The median, or how many runs went without a decision."""
    if 2 * found.count(None) >= len(found):
        return f"more than {most // 2 * each:,} in {found.count(None)} of {len(found)} runs"
    return f"{each * statistics.median(most if n is None else n for n in found):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--only", choices=["laws", "splits", "conversations", "sizes"])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    begin = time.perf_counter()
    tables = {"laws": laws_table, "splits": splits_table, "conversations": conversations_table, "sizes": sizes_table}
    about = f"`python benchmarks/statistics/stopping.py --runs {options.runs} --write`: seed {options.seed}, "
    lines = ["# Comparisons of two versions: wrong decisions, power, and how long they take", ""]
    lines += [about + f"numpy {np.__version__}, Python {platform.python_version()}.", ""]
    for name, table in tables.items():
        if options.only in (None, name):
            for line in table(options.seed, options.runs):
                print(line, flush=True)
                lines.append(line)
    print(f"{time.perf_counter() - begin:.0f} s")
    if options.write:
        (RESULTS / "stopping.md").write_text("\n".join(lines).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()

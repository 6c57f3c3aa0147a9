"""How often an alert names the right cause: a confusion table over simulated changes.

    .venv/bin/python benchmarks/detection/causes.py --runs 20         # some minutes
    .venv/bin/python benchmarks/detection/causes.py --held-out        # changes the rules were not written with
    .venv/bin/python benchmarks/detection/causes.py --sources         # new sources that nothing contradicts
    .venv/bin/python benchmarks/detection/causes.py --write docs/explanation/causes.md   # between the markers there

Every run draws 1,500 exchanges before and 60, 300 and 1,000 since, with four metrics each, and asks `explain`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from cause_scenarios import Scenario, held_out, scenarios, sources
from cause_worlds import DAY_S, ONSET, World, side
from msgspec import structs

from gaugeway.text.topics import topics
from monitors.alerting.causes import Explanation, explain

SEED, HELD_OUT_SEED, SOURCES_SEED = 20260101, 20260909, 20302101
BEFORE, SIZES, RUNS = 1500, (60, 300, 1000), 100
CAUSES = ("retrieval", "generation", "judge", "traffic_mix", "unknown")
STRONG, MODERATE = 0.95, 0.8
Z = 1.96


def runs_of(scenario: Scenario, seed: int):
    """What is said about one drawn change at each size; the time before is the same."""
    day = side(np.random.default_rng([seed, 0]), scenario.before, BEFORE, ONSET - DAY_S, ONSET)
    return [run(scenario, day, seed, n) for n in SIZES]


def run(scenario: Scenario, day, seed: int, n: int) -> Explanation:
    """What is said after `n` exchanges."""
    before, questions_before, passages_before = day

    def drawn(window: int, world: World):
        return side(np.random.default_rng([seed, n, window]), world, n, ONSET, ONSET + n * 30.0)

    # the metric is drawn first, so its scores are the same whether the others are drawn or not
    alone = replace(scenario.since, metrics=(scenario.metric,))
    windows = range(1, scenario.lowest_of + 1)
    lowest = min(windows, key=lambda one: mean(drawn(one, alone)[0])) if scenario.lowest_of > 1 else 1
    since, questions_since, passages_since = drawn(lowest, scenario.since)
    if questions_before:
        found = topics(questions_before, questions_since)
        before, since = labelled(before, found), labelled(since, found)
    seen = passages_before | passages_since or None
    return explain(scenario.metric, before, since, judge=scenario.judge, passages=seen)


def mean(observations) -> float:
    """A plain mean, to choose a low window by."""
    values = [one.value for one in observations if one.value is not None]
    return sum(values) / len(values)


def labelled(observations, found):
    """The observations with their topics."""
    return [
        structs.replace(one, strata=one.strata | {"topic": found[one.sample_id]}) if one.sample_id in found else one
        for one in observations
    ]


def wilson(hits: int, n: int) -> str:
    """A share and its 95 % Wilson interval, in per cent."""
    if not n:
        return "-"
    part, spread = hits / n, Z**2 / n
    centre = (part + spread / 2.0) / (1.0 + spread)
    half = np.sqrt(part * (1.0 - part) / n + Z**2 / (4.0 * n * n)) * Z / (1.0 + spread)
    return f"{100.0 * part:.0f} ({100.0 * max(0.0, centre - half):.0f}-{100.0 * min(1.0, centre + half):.0f})"


class Tally:
    """How often causes were right, by the strength they were given."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, bool]] = Counter()

    def add(self, scenario: Scenario, said: Explanation) -> None:
        """Count one answer; "unknown" has no strength."""
        if said.cause != "unknown":
            strength = said.strength or 0.0
            word = "strong" if strength >= STRONG else "moderate" if strength >= MODERATE else "weak"
            self.counts[word, said.cause in scenario.right] += 1

    def lines(self) -> Iterable[str]:
        """The table of strengths."""
        yield "| strength | causes named | wrong, per cent |"
        yield "|---|---|---|"
        for word in ("strong", "moderate", "weak"):
            wrong, right = self.counts[word, False], self.counts[word, True]
            if wrong + right:
                yield f"| {word} | {wrong + right:,} | {wilson(wrong, wrong + right)} |"


def rows(some: Mapping[str, Scenario], runs: int, seed: int, *, only: str, tally: Tally, tell: Callable[[str], None]):
    """The lines of the table."""
    head = [f"`{cause}`" for cause in CAUSES]
    yield f"| what changed | scores since | {' | '.join(head)} | right | wrong cause | slice right |"
    yield "|---|---|" + "---|" * (len(CAUSES) + 3)
    for number, (name, scenario) in enumerate(some.items()):
        if only not in name:
            continue
        begun = time.perf_counter()
        said = [runs_of(scenario, seed + 1000 * number + index) for index in range(runs)]
        tell(f"{name}: {time.perf_counter() - begun:.0f} s; {said[0][-1]}")
        for n, answers in zip(SIZES, zip(*said, strict=True), strict=True):
            counts = Counter(one.cause for one in answers)
            shares = [f"{100.0 * counts[cause] / runs:.0f}" if counts[cause] else "" for cause in CAUSES]
            shares = [
                f"**{one}**" if one and cause in scenario.right else one
                for one, cause in zip(shares, CAUSES, strict=True)
            ]
            for one in answers:
                tally.add(scenario, one)
            right = sum(one.cause in scenario.right for one in answers)
            wrong = sum(one.cause not in (*scenario.right, "unknown") for one in answers)
            named = sum(one.slice == scenario.slice for one in answers)
            told = "" if "questions" in name and not scenario.slice else f"{100.0 * named / runs:.0f}"
            yield f"| {name} | {n:,} | {' | '.join(shares)} | {wilson(right, runs)} | {wilson(wrong, runs)} | {told} |"


def write(page: Path, part: str, lines: Iterable[str]) -> None:
    """Put lines between the markers of one part of a page."""
    begin, end = f"<!-- begin: benchmarks/detection/causes.py {part} -->", f"<!-- end {part} -->"
    head, rest = page.read_text("utf-8").split(begin)
    page.write_text("\n".join([head + begin, "", *lines, "", end + rest.split(end)[1]]), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--held-out", action="store_true", help="the changes that the rules were not written with")
    parser.add_argument("--sources", action="store_true", help="new sources that nothing contradicts")
    parser.add_argument("--write", type=Path, help="a page with the markers, to put the tables between")
    options = parser.parse_args()
    some, seed, part = scenarios(), SEED, "table"
    if options.held_out:
        some, seed, part = held_out(), HELD_OUT_SEED, "held out"
    elif options.sources:
        some, seed, part = sources(), SOURCES_SEED, "sources"
    table, tally = [], Tally()
    for line in rows(
        some, options.runs, seed, only=options.only, tally=tally, tell=lambda text: print("#", text, flush=True)
    ):
        print(line, flush=True)
        table.append(line)
    print(*tally.lines(), sep="\n")
    if options.write is not None:
        write(options.write, part, [*table, "", *tally.lines()])


if __name__ == "__main__":
    main()

"""How often intervals are wrong with few sessions of scores that are alike: data sets, and cold live streams.

    .venv/bin/python benchmarks/statistics/few_sessions.py            # a few laws
    .venv/bin/python benchmarks/statistics/few_sessions.py --full     # what results/few_sessions.md shows
    ... --write FILE                                                  # the tables into a file as well

Laws are drawn by seed (`drawn_laws.py`): the family, its parameters, the mean length of a session, the correlation, how
many sessions are open at once. The methods were developed on seeds below 200; the table has seeds from 1,000 on. The
product's own code runs: `Run.summary` of a data set, and `Clusters` with `confidence_sequence` bucket by bucket.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.statistics.drawn_laws import FAMILIES, Array, Law, draw, sessions
from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.sums import WeightedSums
from monitors.offline.results import Measure, Row, Run
from monitors.statistics.clusters import Clusters
from monitors.statistics.confidence_sequence import MIN_N_EFF, closed_window, confidence_sequence
from monitors.statistics.weighted_mean import hajek, hajek_from_sums

FIRST_SEED = 1_000
SCORES, LOOKS = 3_000, (100, 300, 1_000, 3_000)
COVERED, EVER_WRONG = 0.93, 0.07


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a row has in common; None is drawn by seed: a correlation of .3 to .9, sessions of 2 to 12 scores."""

    about: str
    family: str | None = None
    ar: float | None = None
    size: int | None = None
    bar: bool = False


OFFLINE = (
    Case(about="binary, correlation .8, sessions of 5", family="binary", ar=0.8, size=5, bar=True),
    Case(about="binary, correlation .8", family="binary", ar=0.8, bar=True),
    Case(about="all families, correlation .3 to .9", bar=True),
    Case(about="all families, independent", ar=0.0),
)
LIVE = (
    Case(about="all families, correlation .8", ar=0.8, bar=True),
    Case(about="binary, correlation .8, sessions of 10", family="binary", ar=0.8, size=10, bar=True),
    Case(about="all families, correlation .3 to .9", bar=True),
    Case(about="all families, independent", ar=0.0),
)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One law of sessions."""

    law: Law
    kind: str
    ar: float
    size: float
    fixed: bool
    open_at_once: int
    per_bucket: float

    def sessions(self, rng: np.random.Generator, count: int) -> list[Array]:
        """Draw sessions."""
        sizes = np.full(count, round(self.size)) if self.fixed else 1 + rng.poisson(self.size - 1.0, count)
        return sessions(rng, self.law, sizes, self.ar, self.kind)


def drawn(case: Case, seed: int) -> Drawn:
    """Draw the law of a seed."""
    rng = np.random.default_rng([seed, 4])
    ar, size = float(rng.uniform(0.3, 0.9)), float(rng.uniform(2.0, 12.0))
    return Drawn(
        law=draw(seed, case.family or FAMILIES[seed % len(FAMILIES)]),
        kind=("repeats", "latent")[seed // len(FAMILIES) % 2],
        ar=ar if case.ar is None else case.ar,
        size=size if case.size is None else case.size,
        fixed=case.size is not None,
        open_at_once=int(rng.integers(3, 30)),
        per_bucket=float(rng.uniform(2.0, 15.0)),
    )


def offline(scores: list[Array], *, named: bool) -> tuple[float, float]:
    """The interval of an evaluated data set with these sessions."""
    rows = [
        Row(
            sample=Sample(id=f"{number}-{at}", started_at=0.0, session=f"s{number}" if named else None),
            evaluations={"x": Evaluation(sample_id="", metric="x", version="1", outcome=Score(float(value)))},
        )
        for number, session in enumerate(scores)
        for at, value in enumerate(session)
    ]
    (summary,) = Run(source="", created_at=0.0, measures=(Measure(name="x", version="1"),), rows=tuple(rows)).summary
    assert summary.low is not None
    assert summary.high is not None
    return summary.low, summary.high


def offline_row(case: Case, count: int, laws: int, runs: int) -> str:
    """One line: sessions named, not named, and as if independent."""
    found: dict[str, list[list[tuple[bool, float]]]] = {"named": [], "not named": [], "independent": []}
    for seed in range(FIRST_SEED, FIRST_SEED + laws):
        made, rng = drawn(case, seed), np.random.default_rng([seed, 5])
        of_law: dict[str, list[tuple[bool, float]]] = {name: [] for name in found}
        for _ in range(runs):
            scores = made.sessions(rng, count)
            values = np.concatenate(scores).tolist()
            for name, (low, high) in (
                ("named", offline(scores, named=True)),
                ("not named", offline(scores, named=False)),
                ("independent", closed_window(hajek(values, [1.0] * len(values)))),
            ):
                of_law[name].append((low <= made.law.mean <= high, high - low))
        for name, results in of_law.items():
            found[name].append(results)
    cells = []
    for name, results in found.items():
        covers = np.array([[right for right, _ in of_law] for of_law in results]).mean(axis=1)
        width = np.mean([wide for of_law in results for _, wide in of_law])
        limit = COVERED if case.bar and name == "named" and count >= 20 else None
        cells.append(f"{bar(covers.mean(), limit, least=True)} | {covers.min():.3f} | {width:.3f}")
    return f"| {case.about} | {count} | {' | '.join(cells)} |"


def stream(made: Drawn, rng: np.random.Generator) -> Iterator[list[tuple[float, str]]]:
    """Buckets of scores with the names of their sessions, of which some are open at once."""
    known = made.sessions(rng, int(SCORES / made.size * 1.5) + 2 * made.open_at_once)
    places, following, sent = [[i, 0] for i in range(made.open_at_once)], made.open_at_once, 0
    while sent < SCORES:
        bucket = []
        for _ in range(1 + rng.poisson(made.per_bucket - 1.0)):
            place = places[rng.integers(len(places))]
            bucket.append((float(known[place[0]][place[1]]), f"s:{place[0]}"))
            place[1] += 1
            if place[1] == len(known[place[0]]):
                place[:], following = [following, 0], following + 1
        sent += len(bucket)
        yield bucket


def live(made: Drawn, rng: np.random.Generator) -> tuple[bool, bool, list[float], list[float]]:
    """Whether the live interval, and that of independent scores, was ever wrong; their widths at `LOOKS`."""
    clusters, n, x, x2 = Clusters(), 0, 0.0, 0.0
    wrong, widths = [False, False], ([], [])
    for at, bucket in enumerate(stream(made, rng)):
        scores = [score for score, _ in bucket]
        clusters.means(scores, [1.0] * len(scores), [name for _, name in bucket], at=60.0 * at)
        n, x, x2 = n + len(scores), x + sum(scores), x2 + sum(score * score for score in scores)
        plain = hajek_from_sums(WeightedSums(n=n, w=float(n), wx=x, w2=float(n), w2x=x, w2x2=x2))
        assert plain is not None
        for which, estimate in enumerate((plain.widened(clusters.effect.value), plain)):
            low, high = confidence_sequence(estimate) if estimate.n_eff >= MIN_N_EFF else (0.0, 1.0)
            wrong[which] |= not low <= made.law.mean <= high
            if len(widths[which]) < len(LOOKS) and n >= LOOKS[len(widths[which])]:
                widths[which].append(high - low)
    return *wrong, *widths


def live_row(case: Case, laws: int, runs: int) -> str:
    """One line: ever wrong, and widths."""
    ever, widths = [], []
    for seed in range(FIRST_SEED, FIRST_SEED + laws):
        made, rng = drawn(case, seed), np.random.default_rng([seed, 6])
        found = [live(made, rng) for _ in range(runs)]
        ever.append([np.mean([run[which] for run in found]) for which in (0, 1)])
        widths.append([np.mean([run[which] for run in found], axis=0) for which in (2, 3)])
    rates, wide = np.array(ever), np.array(widths).mean(axis=0)
    shown = " | ".join(f"{width:.3f} ({width / plain:.2f} x)" for width, plain in zip(*wide, strict=True))
    limit = EVER_WRONG if case.bar else None
    wrong = f"{bar(rates[:, 0].mean(), limit)} | {rates[:, 0].max():.3f} | {rates[:, 1].mean():.3f}"
    return f"| {case.about} | {wrong} | {shown} |"


def bar(value: float, limit: float | None, *, least: bool = False) -> str:
    """The value with its bar; a bar that is not met is marked."""
    if limit is None:
        return f"{value:.3f}"
    met = value >= limit if least else value <= limit
    return f"{value:.3f} ({'>=' if least else '<='} {limit:g}{'' if met else ', MISSED'})"


def tables(laws: int, runs: int, live_runs: int) -> Iterator[str]:
    errors = [2.0 * np.sqrt(0.05 * 0.95 / n) for n in (laws * runs, runs, laws * live_runs, live_runs)]
    yield f"## Data sets: {laws} laws, {runs} runs each"
    yield ""
    yield f"Monte Carlo error of a coverage ±{errors[0]:.3f}, of one law ±{errors[1]:.3f}. Sessions follow each other."
    yield ""
    yield (
        "| scores | sessions | named: covers | lowest law | width | not named: covers | lowest law | width "
        "| as if independent: covers | lowest law | width |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for case in OFFLINE:
        for count in (10, 20, 40):
            yield offline_row(case, count, laws, runs)
    yield ""
    yield f"## Live interval from the first score to {SCORES:,}: {laws} laws, {live_runs} runs each"
    yield ""
    yield f"Looked at after each bucket. Monte Carlo error of a rate ±{errors[2]:.3f}, of one law ±{errors[3]:.3f}."
    yield "Widths with their ratio to those of scores taken as independent, whose rate of errors is beside."
    yield ""
    yield (
        "| scores | ever wrong | worst law | as if independent | " + " | ".join(f"width at {n:,}" for n in LOOKS) + " |"
    )
    yield "|---|---|---|---|" + "---|" * len(LOOKS)
    for case in LIVE:
        yield live_row(case, laws, live_runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="16 laws of 60 runs, 25 of streams")
    parser.add_argument("--write", type=Path, help="write the tables to this file too")
    options = parser.parse_args()
    begun, lines = time.perf_counter(), []
    head = [
        "# Few sessions",
        "",
        f"`benchmarks/statistics/few_sessions.py{' --full' if options.full else ''}`: seeds from {FIRST_SEED:,}, numpy",
        f"{np.__version__}, Python {platform.python_version()} on {platform.machine()}. Bars are in brackets.",
        "",
    ]
    for line in (*head, *tables(*(16, 60, 25) if options.full else (8, 40, 10))):
        print(line, flush=True)
        lines.append(line)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

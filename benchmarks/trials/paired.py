"""How often a trial's verdict is wrong, and when it falls: with pairs, with the same scores unpaired, with a fixed n.

    nice -n 10 .venv/bin/python benchmarks/trials/paired.py [--seed 1] [--runs 2000] [--write]

Every run is one trial with one metric, looked at after every batch as the product does. Score laws are drawn by the
seed: pass or fail, five levels, shares of supported claims, and pass or fail with rare failures. Live and candidate
scores are quantiles of normal variables that share a part of the session, a part of the exchange, or nothing; the
shared part is solved for the correlation of the scores. In each session the candidate and the live version have
effects of their own, too: else pairing would remove all that ties a session together. Eight sessions are open at a
time. The verdicts are those of `trial_result` (checked in every cell on some runs), computed for all runs at once.
Methods were chosen with seeds below 100; `--write` keeps what 20260701 gives.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from monitors.analysis.ab_compare import FEWEST_NAMES, look_sizes
from monitors.analysis.trial_result import Pair, TrialRules, trial_result
from monitors.statistics.sequential_ab import (
    EVIDENCE_PER_PSEUDO_PAIR,
    MIN_SCORES,
    PSEUDO_SCORES,
    log_evidence,
    threshold,
)

RESULTS = Path(__file__).parent / "results"
SEED, RUNS, LAWS, CHECKED = 20260701, 2_000, 4, 400
MARGIN, ALPHA = 0.02, 0.05
END_ALPHA = ALPHA / 2.0
RARE, RARE_AT = "rare failures", ("-.02", "equal")
KINDS = ("binary", "five levels", "claims", RARE)
SESSIONS = {"1": (1, 1), "5": (5, 5), "1-60": (1, 60)}
CORRELATIONS = (0.0, 0.4, 0.8)
DIFFERENCES = {"-.02": -0.02, "equal": 0.0, "-.05": -0.05, "+.05": 0.05, "-.10": -0.10}
LONGEST = {"-.02": 4_000, "equal": 6_000, "-.05": 4_000, "+.05": 2_500, "-.10": 1_500}
OPEN, OWN_EFFECT, SHARED_EFFECT = 8, 0.3, 0.3


class Law(NamedTuple):
    """Scores with their probabilities."""

    x: np.ndarray
    p: np.ndarray

    def of_mean(self, mean: float) -> Law:
        low, high = -60.0, 60.0
        for _ in range(60):
            middle = (low + high) / 2.0
            w = self.p * np.exp(middle * (self.x - 0.5))
            low, high = (middle, high) if (w @ self.x) / w.sum() < mean else (low, middle)
        return Law(self.x, w / w.sum())

    def quantiles(self, z: np.ndarray) -> np.ndarray:
        """The scores of standard normal variables."""
        edges = [NormalDist().inv_cdf(min(1.0 - 1e-15, max(1e-15, c))) for c in np.cumsum(self.p)[:-1]]
        return self.x[np.searchsorted(np.array(edges, dtype=z.dtype), z)]


def drawn(kind: str, draw: np.random.Generator) -> tuple[Law, float]:
    """A law and the mean of the live scores."""
    if kind == "five levels":
        return Law(np.arange(5) / 4.0, draw.dirichlet(np.full(5, 0.7)) * 0.95 + 0.01), draw.uniform(0.55, 0.92)
    if kind == "claims":
        weights: dict[float, float] = {}
        for claims in range(1, int(draw.integers(4, 13)) + 1):
            a, b = draw.uniform(0.3, 3.0, 2)
            logs = [
                math.lgamma(k + a)
                + math.lgamma(claims - k + b)
                - math.lgamma(claims + a + b)
                + math.log(math.comb(claims, k))
                for k in range(claims + 1)
            ]
            for k, p in enumerate(np.exp(np.array(logs) - max(logs))):
                weights[k / claims] = weights.get(k / claims, 0.0) + float(p)
        x = np.array(sorted(weights))
        return Law(x, np.array([weights[value] for value in x])), draw.uniform(0.6, 0.92)
    mean = draw.uniform(0.975, 0.995) if kind == RARE else draw.uniform(0.55, 0.92)
    return Law(np.array([0.0, 1.0]), np.array([0.5, 0.5])), mean


def normals(draw: np.random.Generator, session: np.ndarray, runs: int, shared: float) -> list[np.ndarray]:
    """Two normal variables of each exchange (time x runs), with a correlation of `shared` in the exchange."""
    n, alone = session.size, int(session[-1]) == session.size - 1
    between = SHARED_EFFECT * shared  # of the session, in both

    def part(share: float, *, of_session: bool) -> np.ndarray:
        if share <= 0.0:
            return np.float32(0.0)
        size = int(session.max()) + 1 if of_session else n
        z = np.float32(math.sqrt(share)) * draw.standard_normal((size, runs), dtype=np.float32)
        return z[session] if of_session else z

    common = part(shared if alone else shared - between, of_session=False)
    if not alone:
        common = common + part(between, of_session=True)
    rest = 1.0 - shared
    return [
        common
        + (
            part(rest, of_session=False)
            if alone
            else part(rest * OWN_EFFECT, of_session=True) + part(rest * (1.0 - OWN_EFFECT), of_session=False)
        )
        for _ in range(2)
    ]


def solved(live: Law, candidate: Law, wanted: float, draw: np.random.Generator) -> float:
    """The shared part of the normal variables that gives the scores a correlation."""
    if wanted == 0.0:
        return 0.0
    z = draw.standard_normal((3, 30_000), dtype=np.float32)
    low, high = 0.0, 0.999
    for _ in range(12):
        middle = (low + high) / 2.0
        sides = [math.sqrt(middle) * z[0] + math.sqrt(1.0 - middle) * own for own in z[1:]]
        r = np.corrcoef(live.quantiles(sides[0]), candidate.quantiles(sides[1]))[0, 1]
        low, high = (middle, high) if r < wanted else (low, middle)
    return high


def order(draw: np.random.Generator, sizes: tuple[int, int], n: int) -> np.ndarray:
    """The session of each exchange, in the order of time."""
    if sizes == (1, 1):
        return np.arange(n)
    sessions, left, following = list(range(OPEN)), list(draw.integers(sizes[0], sizes[1] + 1, OPEN)), OPEN
    found = []
    for slot in draw.integers(0, OPEN, n):
        found.append(sessions[slot])
        left[slot] -= 1
        if not left[slot]:
            sessions[slot], left[slot], following = following, int(draw.integers(sizes[0], sizes[1] + 1)), following + 1
    return np.array(found)


class Sums(NamedTuple):
    """At one look, by run: mean and variance of the mean of some values; and the effective number of sessions."""

    mean: np.ndarray
    sd: np.ndarray
    variance: np.ndarray
    units: float


def looked(values: list[np.ndarray], session: np.ndarray) -> Iterator[tuple[int, list[Sums]]]:
    """What `hajek` says of the first 10, 20, ... rows of some values (time x runs)."""
    n, runs = values[0].shape
    k = int(session.max()) + 1
    alone = k == n
    by_session = [np.zeros((k, runs)) for _ in values]
    counts, totals, squares, start = np.zeros(k), [np.zeros(runs) for _ in values], [np.zeros(runs) for _ in values], 0
    for end in look_sizes(2 * n):
        if end > n:
            return
        ids = session[start:end]
        by = np.argsort(ids, kind="stable")
        names, starts = np.unique(ids[by], return_index=True)
        counts[names] += np.diff(np.append(starts, by.size))
        until = int(np.flatnonzero(counts)[-1]) + 1
        shares = counts[:until] / end
        some = []
        for i, x in enumerate(values):
            block = x[start:end]
            totals[i] += block.sum(axis=0, dtype=np.float64)
            squares[i] += np.square(block).sum(axis=0, dtype=np.float64)
            mean = totals[i] / end
            spread = np.maximum(0.0, squares[i] / end - mean**2)
            variance = spread / end
            if not alone:
                by_session[i][names] += np.add.reduceat(block[by], starts, axis=0, dtype=np.float64)
                if np.count_nonzero(counts) < end:
                    deviations = by_session[i][:until] - counts[:until, None] * mean
                    robust = (1.0 / (1.0 - shares)) @ np.square(deviations) / end**2
                    variance = np.maximum(variance, robust)
            some.append(Sums(mean, np.sqrt(spread), variance, float(end) if alone else 1.0 / float((shares**2).sum())))
        start = end
        yield end, some


class Rule(NamedTuple):
    """What is tested: a margin, at a level for each direction."""

    margin: float = MARGIN
    alpha: float = END_ALPHA
    divisor: float = EVIDENCE_PER_PSEUDO_PAIR

    @property
    def needed(self) -> float:
        return threshold(self.alpha)

    def reaches(self, distance: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Where the evidence is enough; it is below z^2/2."""
        enough = (distance > 0.0) & (distance**2 >= 2.0 * self.needed * variance)
        for at in np.flatnonzero(enough):
            enough[at] = log_evidence(float(distance[at]), float(variance[at]), self.margin) >= self.needed
        return enough


RULE = Rule()


class Decided:
    """The verdicts of all runs of one test: 1 ship, -1 do not ship, 0 not yet."""

    def __init__(self, runs: int, rule: Rule) -> None:
        self.verdict, self.at, self.rule = np.zeros(runs, dtype=int), np.full(runs, np.inf), rule

    def see(self, end: int, difference: np.ndarray, variance: np.ndarray, usable: np.ndarray) -> None:
        for sign in (-1, 1):
            index = np.flatnonzero(usable & (self.verdict == 0))
            hit = index[self.rule.reaches(sign * (difference[index] + self.rule.margin), variance[index])]
            self.verdict[hit], self.at[hit] = sign, end

    @property
    def ship(self) -> float:
        return float(np.mean(self.verdict == 1))

    @property
    def stop(self) -> float:
        return float(np.mean(self.verdict == -1))


def with_pseudo(mean: np.ndarray, variance: np.ndarray, units: np.ndarray, each: float) -> tuple[np.ndarray, ...]:
    """Mean and its variance with pseudo-scores of 0 and 1, as `with_pseudo_scores`."""
    t = units + 2.0 * each
    middle = (units * mean + each) / t
    return middle, ((units * (variance * units + mean**2) + each) / t - middle**2) / t


def effective(side: Sums, otherwise: float) -> np.ndarray:
    """The effective number of independent scores."""
    return np.divide(side.sd**2, side.variance, out=np.full(side.sd.size, otherwise), where=side.variance > 0.0)


def play(live: np.ndarray, candidate: np.ndarray, session: np.ndarray, rule: Rule = RULE) -> tuple[Decided, Decided]:
    """The paired test and the unpaired one on the same scores (time x runs)."""
    runs = live.shape[1]
    paired, unpaired = Decided(runs, rule), Decided(runs, rule)
    for end, (halves, a, b) in looked([(candidate - live + 1.0) / 2.0, live, candidate], session):
        if np.unique(session[:end]).size < FEWEST_NAMES:
            continue
        units = np.minimum(halves.units, effective(halves, np.inf))
        mean, variance = with_pseudo(halves.mean, halves.variance, units, rule.needed / rule.divisor)
        paired.see(end, 2.0 * mean - 1.0, 4.0 * variance, units >= MIN_SCORES)
        n_eff = [effective(side, float(end)) for side in (a, b)]
        (mean_a, v_a), (mean_b, v_b) = (
            with_pseudo(side.mean, side.variance, n, PSEUDO_SCORES) for side, n in zip((a, b), n_eff, strict=True)
        )
        unpaired.see(end, mean_b - mean_a, v_a + v_b, np.minimum(*n_eff) >= MIN_SCORES)
        if paired.verdict.all() and unpaired.verdict.all():
            break
    return paired, unpaired


class Cell(NamedTuple):
    """One row of the tables."""

    difference: str
    kind: str
    sessions: str
    correlation: float
    reached: float
    paired: Decided
    unpaired: Decided
    variance: float  # of the mean difference, times n
    mismatches: int


def cell(difference: str, kind: str, sessions: str, correlation: float, *, seed: int, runs: int) -> Cell:
    """All runs of a cell, an equal number from each of its laws."""
    places = [KINDS.index(kind), list(SESSIONS).index(sessions), CORRELATIONS.index(correlation)]
    draw = np.random.default_rng([seed, list(DIFFERENCES).index(difference), *places])
    by = DIFFERENCES[difference]
    parts, reached, variances, mismatches = [], [], [], 0
    for _ in range(LAWS):
        law, mean = drawn(kind, draw)
        mean = min(mean, 1.0 - by - 0.002) if by > 0.0 else mean
        a, b = law.of_mean(mean), law.of_mean(mean + by)
        session = order(draw, SESSIONS[sessions], LONGEST[difference])
        shared = solved(a, b, correlation, draw)
        sides = normals(draw, session, runs // LAWS, shared)
        live, candidate = (of.quantiles(z) for of, z in zip((a, b), sides, strict=True))
        paired, unpaired = play(live, candidate, session)
        parts.append((paired, unpaired))
        reached.append(float(np.corrcoef(live[::5].ravel(), candidate[::5].ravel())[0, 1]))
        variances.append(float(np.var((candidate - live).mean(axis=0, dtype=np.float64))) * session.size)
        mismatches += not is_as_the_product(live[:, 0], candidate[:, 0], session, paired)
    both = []
    for side in zip(*parts, strict=True):
        joined = Decided(0, RULE)
        joined.verdict, joined.at = (
            np.concatenate([getattr(part, name) for part in side]) for name in ("verdict", "at")
        )
        both.append(joined)
    return Cell(
        difference, kind, sessions, correlation, float(np.mean(reached)), *both, float(np.mean(variances)), mismatches
    )


def is_as_the_product(live: np.ndarray, candidate: np.ndarray, session: np.ndarray, decided: Decided) -> bool:
    """Whether `trial_result` says of the first run what the table does, in the first 400 pairs."""
    n = int(min(CHECKED, live.size))
    pairs = [Pair(str(i), float(i + 1), float(live[i]), float(candidate[i]), 1.0, f"s:{session[i]}") for i in range(n)]
    found = trial_result({"score": pairs}, TrialRules(primary="score", margin=MARGIN, alpha=ALPHA))
    expected = {1: "ship", -1: "do not ship", 0: "not yet"}[int(decided.verdict[0]) if decided.at[0] <= n else 0]
    return found.verdict == expected and (found.decided_at is None or found.decided_at == decided.at[0])


def worst(seed: int, runs: int) -> list[str]:
    """Laws made to deceive: the candidate fails where nothing else differs, alone or in whole sessions."""
    lines = []
    draw = np.random.default_rng([seed, 99])
    for sessions, n, share in (("1", 1_500, 1), ("5", 7_500, 4), ("1-60", 12_000, 8)):
        session = order(draw, SESSIONS[sessions], n)
        for also in (0.0, 0.005, 0.02):
            u = draw.random((int(session.max()) + 1, runs // share), dtype=np.float32)
            live, candidate = ((u > of).astype(np.float32)[session] for of in (also, also + MARGIN))
            for alpha in (END_ALPHA, 0.01, 0.0025):
                paired, unpaired = play(live, candidate, session, Rule(alpha=alpha))
                lines.append(
                    f"| {sessions} | {also:.3f} | {alpha} | {paired.ship:.4f} | {paired.stop:.4f} "
                    f"| {unpaired.ship:.4f} | {runs // share:,} |"
                )
    return lines


def of_n(at: np.ndarray, longest: int) -> tuple[str, float]:
    """The median, and the mean with undecided runs at the longest."""
    median = float(np.median(at))
    return f"{median:,.0f}" if math.isfinite(median) else f"> {longest:,}", float(np.minimum(at, longest).mean())


def row(at: Cell) -> str:
    longest, by = LONGEST[at.difference], DIFFERENCES[at.difference] + MARGIN
    (median, mean), (other_median, other_mean) = (of_n(side.at, longest) for side in (at.paired, at.unpaired))
    text = f"| {at.kind} | {at.sessions} | {at.correlation} ({at.reached:.2f}) "
    text += f"| {at.paired.ship:.4f} | {at.paired.stop:.4f} "
    if by == 0.0:
        return text + f"| {at.unpaired.ship:.4f} | {at.unpaired.stop:.4f} |"
    z = NormalDist().inv_cdf
    fixed = [(z(1.0 - END_ALPHA) + z(power)) ** 2 * at.variance / by**2 for power in (0.8, 0.9)]
    return text + (
        f"| {median} | {mean:,.0f} | {other_median} | {other_mean:,.0f} | {mean / other_mean:.2f} "
        f"| {fixed[0]:,.0f} | {fixed[1]:,.0f} |"
    )


def tables(cells: list[Cell]) -> Iterator[str]:
    for difference in DIFFERENCES:
        rows = [at for at in cells if at.difference == difference]
        if not rows:
            continue
        yield f"\n## Candidate: {difference} (up to {LONGEST[difference]:,} exchanges)\n"
        head = "| score | session | correlation (reached) | ship | do not ship "
        if difference == "-.02":
            yield head + "| unpaired: ship | do not ship |"
            yield "|---|---|---|---|---|---|---|"
        else:
            yield head + "| median | mean | unpaired median | mean | ratio | fixed n, 80 % | 90 % |"
            yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
        yield from map(row, rows)


def summary(cells: list[Cell]) -> Iterator[str]:
    at_margin = [at.paired.ship for at in cells if at.difference == "-.02"]
    worse = [at.paired.ship for at in cells if at.difference in ("-.05", "-.10")]
    not_worse = [at.paired.stop for at in cells if at.difference in ("equal", "-.02", "+.05")]
    for what, shares in (
        ('"ship", candidate worse by exactly the margin', at_margin),
        ('"ship", candidate worse by .05 or .10', worse),
        ('"do not ship", candidate equal, better, or worse by exactly the margin', not_worse),
    ):
        if shares:
            yield f"- {what}: at most {max(shares):.4f} in a cell, {np.mean(shares):.4f} on average; stated {END_ALPHA}"
    decided = [at for at in cells if DIFFERENCES[at.difference] != -MARGIN]
    for correlation in CORRELATIONS:
        for sessions in SESSIONS:
            some = [at for at in decided if at.correlation == correlation and at.sessions == sessions]
            ratios = [
                of_n(at.paired.at, LONGEST[at.difference])[1] / of_n(at.unpaired.at, LONGEST[at.difference])[1]
                for at in some
            ]
            if not some:
                continue
            half = sum(ratio <= 0.5 for ratio in ratios)
            yield (
                f"- correlation {correlation}, sessions of {sessions}: paired/unpaired mean exchanges "
                f"{np.median(ratios):.2f} (median of {len(some)} cells, {min(ratios):.2f} to {max(ratios):.2f}); "
                f"half or less in {half}"
            )
    differ = sum(at.mismatches for at in cells)
    yield f"- runs on which `trial_result` and the table differ: {differ} of {LAWS * len(cells)}"


TITLE = f"""# The verdict of a trial: errors, and exchanges needed

`nice -n 10 .venv/bin/python benchmarks/trials/paired.py --seed {{seed}} --runs {{runs}} --write`, {{seconds:,.0f}} s of
one core; {{machine}}

{{runs:,}} runs a cell, from {LAWS} laws; margin {MARGIN}, alpha {ALPHA}, {END_ALPHA} for each direction. Median
and mean are exchanges to the verdict; runs without a verdict count as the longest in the mean. "Unpaired" is the
sequential A/B test on the same scores at the same level, with both answers of every exchange. An A/B test that has one
answer of each exchange needs twice as many exchanges. "Fixed n" knows the variance and looks once. The correlation is
that of the scores: failures that are rare, or more frequent on one side, cannot reach the higher ones.
"""
DECEIVED = """
## Laws made to deceive

Scores are 1, but for a share of the conversations that both versions fail, and .02 that the candidate alone fails, with
all of their exchanges: it is worse by exactly the margin.

| session | both fail | level | ship | do not ship | unpaired: ship | runs |
|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    started, cells = time.process_time(), list[Cell]()
    deceived = worst(arguments.seed, arguments.runs)
    for difference in DIFFERENCES:
        for kind, sessions, correlation in product(KINDS, SESSIONS, CORRELATIONS):
            if kind != RARE or difference in RARE_AT:
                cells.append(cell(difference, kind, sessions, correlation, seed=arguments.seed, runs=arguments.runs))
        title = TITLE.format(
            seed=arguments.seed,
            runs=arguments.runs,
            seconds=time.process_time() - started,
            machine=f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}",
        )
        text = "\n".join([title, *summary(cells), *tables(cells), DECEIVED, *deceived]) + "\n"
        if arguments.write:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "paired.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

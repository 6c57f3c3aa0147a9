"""A/B comparison of two versions of an app: ship, roll back, or not enough data. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias

from gaugeway.signals import UNDIRECTED
from gaugeway.storage.stores import Point
from monitors.alerting.stream import on_scale, usable
from monitors.analysis.ab_binned import Parts, comparable, estimate, judged
from monitors.statistics.clusters import groups_of
from monitors.statistics.confidence_sequence import MIN_N_EFF, confidence_sequence, difference_sequence, mean_of
from monitors.statistics.sequential_ab import Arm as Side
from monitors.statistics.sequential_ab import Comparison, CountedComparison, Decision, PairedComparison, Verdict
from monitors.statistics.weighted_mean import Estimate, hajek

MARGIN, ALPHA = 0.02, 0.01
PAIRED_FROM = 0.8
"""Minimum share of the smaller side's scores with a partner for `pairing="auto"` to compare pairs."""
APART = 0.5
"""With a smaller overlap the versions served mostly at different times."""
_SAME = 1e-9
"""Scores that differ by less are the same."""
_SIDES: tuple[Side, Side] = ("champion", "challenger")
_BATCH, _GROWTH = 10, 50
"""Scores between two looks, and the divisor of their growth: looking after each score is valid but slow."""


RowDecision: TypeAlias = Decision | Literal["differs", "within the margin"]
"""What is decided about one metric. The last two are of signals without a better direction, from their 95 % interval:
they count neither for nor against a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of a comparison, on the metric's own scale; no interval below an effective sample size of 10.

    `clusters` is the number of groups of scores that may be alike (sessions, end users, ...) and `design_effect` what
    they divide the effective sample size `n_eff` by; None where no two scores may be, or sessions are not known.
    """

    n: int
    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n_eff: float | None = None
    design_effect: float | None = None
    clusters: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The comparison of one app and metric; `difference` is challenger - champion on the metric's own scale.

    `ci_low` to `ci_high` is its 95 % interval, valid however often it is looked at; None below an effective sample size
    of 10 on either side. Of the questions that both answered, `wins` have a better score of the challenger, `losses` a
    worse one, `ties` the same; None where questions were not read. `overlap` is the share of the scores from the time
    when both versions served, of the version with the smaller share (0 for periods); None without scores. `pairs`
    counts questions answered by both, None for unpaired comparisons. `for_roll_back` and `for_ship` are log10 of
    evidence / threshold: a decision falls at 0. `left_out` scores have no partner, or a judge or metric version that
    the other side lacks.
    """

    app: str
    metric: str
    champion: Arm
    challenger: Arm
    decision: RowDecision
    difference: float | None = None
    pairs: int | None = None
    for_roll_back: float = 0.0
    for_ship: float = 0.0
    more: int | None = None
    left_out: int = 0
    reason: str = ""
    ci_low: float | None = None
    ci_high: float | None = None
    wins: int | None = None
    losses: int | None = None
    ties: int | None = None
    overlap: float | None = None

    @property
    def directed(self) -> bool:
        """Whether one version can be better: more or less of the metric is better."""
        return self.metric not in UNDIRECTED

    def __str__(self) -> str:
        if self.decision != "not enough data" or self.more is None:
            return self.decision
        return f"{self.decision}: needs about {self.more:,} more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Scores of one app and metric, by one judge and metric version; each side in the order of time."""

    app: str
    metric: str
    champion: Sequence[Point]
    challenger: Sequence[Point]
    left_out: int = 0


def sides(champion: Iterable[Point], challenger: Iterable[Point]) -> list[Sides]:
    """Pair the comparable scores per app and metric."""
    ordered = [
        sorted(filter(usable, points), key=lambda later: (later.started_at, later.sample_id))
        for points in (champion, challenger)
    ]
    return [
        Sides(app=app, metric=metric, champion=_once(a), challenger=_once(b), left_out=left_out)
        for app, metric, a, b, left_out in comparable(*ordered, number=lambda _: 1)
    ]


def compare(
    everything: Sequence[Sides | Parts],
    *,
    margin: float = MARGIN,
    alpha: float = ALPHA,
    keys: Mapping[str, str] | None = None,
    pairing: Literal["auto", "always"] = "auto",
    lower_is_better: Callable[[str], bool] = lambda _: False,
) -> list[Compared]:
    """Compare the versions per app and metric; the probability that any decision is wrong is at most `alpha`.

    `keys` identify the question of each sample id: samples with equal keys are compared as pairs, with pairing "always"
    as soon as there is one. Raises ValueError for a margin or alpha out of range.
    """
    tests = max(1, sum(scores.metric not in UNDIRECTED for scores in everything))
    found = []
    for sides_of in everything:
        if sides_of.metric in UNDIRECTED:
            found.append(_undirected(sides_of, margin))
            continue
        flipped = lower_is_better(sides_of.metric)
        if isinstance(sides_of, Parts):
            verdict = judged(sides_of, CountedComparison(margin, alpha, tests), flipped=flipped)
            found.append(_compared(sides_of, verdict, pairs=None))
            continue
        pairs = list(pairs_of(sides_of, keys)) if keys else []
        outcomes = outcomes_of(pairs, flipped=flipped) if pairs else Outcomes(None, None, None)
        enough = PAIRED_FROM * min(len(sides_of.champion), len(sides_of.challenger))
        use_pairs = pairing == "always" or (bool(pairs) and len(pairs) >= enough)
        if use_pairs:
            kept = Sides(
                app=sides_of.app,
                metric=sides_of.metric,
                champion=[a for a, _ in pairs],
                challenger=[b for _, b in pairs],
                left_out=sides_of.left_out + len(sides_of.champion) + len(sides_of.challenger) - 2 * len(pairs),
            )
            verdict = _paired(pairs, PairedComparison(margin, alpha, tests), flipped=flipped)
            compared = _compared(kept, verdict, pairs=len(pairs))
            difference, low, high = _paired_difference(pairs)
            compared = replace(compared, difference=difference, ci_low=low, ci_high=high)
        else:
            verdict = _apart(sides_of, Comparison(margin, alpha, tests), flipped=flipped)
            compared = _compared(sides_of, verdict, pairs=None)
        wins, losses, ties = outcomes
        found.append(replace(compared, wins=wins, losses=losses, ties=ties))
    return found


def _undirected(scores: Sides | Parts, margin: float) -> Compared:
    """Compare a signal without a better direction: no test, only the difference and its interval."""
    found = _compared(
        scores, Verdict(decision="not enough data", difference=None, n=0, for_roll_back=0.0, for_ship=0.0), pairs=None
    )
    decided: RowDecision = "not enough data"
    if found.ci_low is not None and found.ci_high is not None:
        if -margin <= found.ci_low and found.ci_high <= margin:
            decided = "within the margin"
        elif found.ci_low > 0.0 or found.ci_high < 0.0:
            decided = "differs"
    return replace(found, decision=decided)


class Outcomes(NamedTuple):
    """Pairs in which the challenger's score is better, worse, or the same."""

    wins: int | None
    losses: int | None
    ties: int | None


def outcomes_of(pairs: Sequence[tuple[Point, Point]], *, flipped: bool) -> Outcomes:
    """Count the pairs by their outcome.

    >>> def point(value):
    ...     return Point(sample_id="x", started_at=0.0, app="a", model="m", metric="x", outcome="score", value=value,
    ...                  reason="", rate=1.0)
    >>> outcomes_of([(point(0.5), point(0.9)), (point(0.5), point(0.5))], flipped=False)
    Outcomes(wins=1, losses=0, ties=1)
    """
    gains = [on_scale(b.value or 0.0, flipped=flipped) - on_scale(a.value or 0.0, flipped=flipped) for a, b in pairs]
    wins, losses = sum(gain > _SAME for gain in gains), sum(gain < -_SAME for gain in gains)
    return Outcomes(wins, losses, len(gains) - wins - losses)


def _paired_difference(pairs: Sequence[tuple[Point, Point]]) -> tuple[float | None, float | None, float | None]:
    """The mean difference of pairs and its interval; None without a basis."""
    if not pairs:
        return None, None, None
    halves = [((b.value or 0.0) - (a.value or 0.0) + 1.0) / 2.0 for a, b in pairs]
    known = hajek(halves, [a.rate * b.rate for a, b in pairs], groups_of([a.cluster for a, _ in pairs]))
    if known.n_eff < MIN_N_EFF:
        return 2.0 * known.mean - 1.0, None, None
    low, high = confidence_sequence(known)
    return 2.0 * known.mean - 1.0, 2.0 * low - 1.0, 2.0 * high - 1.0


def decision(rows: Sequence[Compared]) -> Decision:
    """Return the overall decision: roll back if any row says so, ship if all do that have a better direction."""
    said = {row.decision for row in rows if row.directed}
    if "roll back" in said:
        return "roll back"
    return "ship" if said == {"ship"} else "not enough data"


def pairs_of(scores: Sides, keys: Mapping[str, str]) -> Iterator[tuple[Point, Point]]:
    """Yield pairs of scores with the same key: the first of one side with the first of the other, and so on.

    Pairs come in the order in which they became complete. The pairing depends on the keys only, never on a score.

    >>> def point(name, at):
    ...     return Point(sample_id=name, started_at=at, app="a", model="m", metric="x", outcome="score", value=1.0,
    ...                  reason="", rate=1.0)
    >>> scores = Sides(app="a", metric="x", champion=[point("1", 1.0), point("2", 2.0)], challenger=[point("3", 3.0)])
    >>> [(a.sample_id, b.sample_id) for a, b in pairs_of(scores, {"1": "why?", "2": "how?", "3": "how?"})]
    [('2', '3')]
    """
    waiting: dict[str, tuple[deque[Point], deque[Point]]] = {}
    ordered = sorted(
        [(point, 0) for point in scores.champion] + [(point, 1) for point in scores.challenger],
        key=lambda pair: (pair[0].started_at, pair[1]),
    )
    for point, side in ordered:
        if (key := keys.get(point.sample_id)) is None:
            continue
        queues = waiting.setdefault(key, (deque(), deque()))
        queues[side].append(point)
        if queues[0] and queues[1]:
            yield queues[0].popleft(), queues[1].popleft()


def _once(points: Iterable[Point]) -> list[Point]:
    return list({point.sample_id: point for point in reversed(list(points))}.values())[::-1]


class _Bet(NamedTuple):
    """What the unpaired test takes at once: a score, or the mean of the scores that may be alike."""

    at: float
    side: Side
    score: float
    weight: float


def _apart(scores: Sides, test: Comparison, *, flipped: bool) -> Verdict:
    """Run the unpaired test in the order of time, up to the decision.

    The scores of one cluster (session, user, ...) are one bet, on their mean, at the time of the last of them: a
    product over scores that are alike would decide wrongly too often. What the verdict says of numbers is in scores.
    """
    bets = [
        *_bets("champion", scores.champion, flipped=flipped),
        *_bets("challenger", scores.challenger, flipped=flipped),
    ]
    bets.sort(key=lambda bet: bet.at)
    for start, end in _looks(len(bets)):
        batch = bets[start:end]
        for side in _SIDES:
            some = [bet for bet in batch if bet.side == side]
            if some:
                test.update(side, [bet.score for bet in some], [bet.weight for bet in some])
        if test.verdict().decision != "not enough data":
            break
    verdict, size = test.verdict(), (len(scores.champion) + len(scores.challenger)) / max(1, len(bets))
    more = None if verdict.more is None else round(verdict.more * size)
    return replace(verdict, n=round(verdict.n * size), more=more)


def _bets(side: Side, points: Sequence[Point], *, flipped: bool) -> Iterator[_Bet]:
    weights, groups = _weights(points), groups_of([point.cluster for point in points])
    members: dict[int, list[Point]] = {}
    for point, group in zip(points, groups, strict=True):
        members.setdefault(group, []).append(point)
    for some in members.values():
        score = fmean(on_scale(point.value or 0.0, flipped=flipped) for point in some)
        weight = fmean(weights[point.sample_id] for point in some)
        yield _Bet(max(point.started_at for point in some), side, score, weight)


def _paired(pairs: Sequence[tuple[Point, Point]], test: PairedComparison, *, flipped: bool) -> Verdict:
    """Run the paired test; a pair's rate is the product of both rates, as the sides were sampled independently."""
    rates = [a.rate * b.rate for a, b in pairs]
    least = min(rates, default=1.0)
    for start, end in _looks(len(pairs)):
        batch = pairs[start:end]
        a, b = ([on_scale(pair[side].value or 0.0, flipped=flipped) for pair in batch] for side in (0, 1))
        test.update(a, b, [least / rate for rate in rates[start:end]])
        if test.verdict().decision != "not enough data":
            break
    return test.verdict()


def _looks(count: int) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of the batches between looks."""
    start = 0
    while start < count:
        end = start + max(_BATCH, start // _GROWTH)
        yield start, min(end, count)
        start = end


def _weights(points: Sequence[Point]) -> dict[str, float]:
    least = min((point.rate for point in points), default=1.0)
    return {point.sample_id: least / point.rate for point in points}


def _compared(scores: Sides | Parts, verdict: Verdict, *, pairs: int | None) -> Compared:
    if isinstance(scores, Parts):
        known = [estimate(side) for side in (scores.champion, scores.challenger)]
    else:
        known = [mean_of(side) for side in (scores.champion, scores.challenger)]
    a, b = (_arm(side) for side in known)
    low, high = _interval(*known)
    reason = ""
    if pairs == 0:
        reason = "no question was answered by both versions"
    elif not (a.n and b.n):
        reason = "no judge and version of the metric scored both versions"
    return Compared(
        app=scores.app,
        metric=scores.metric,
        champion=a,
        challenger=b,
        decision=verdict.decision,
        difference=None if a.mean is None or b.mean is None else b.mean - a.mean,
        pairs=pairs,
        for_roll_back=verdict.for_roll_back,
        for_ship=verdict.for_ship,
        more=verdict.more,
        left_out=scores.left_out,
        reason=reason,
        ci_low=low,
        ci_high=high,
        overlap=overlap_of(scores),
    )


def overlap_of(scores: Sides | Parts) -> float | None:
    """Return the share of the scores from the time when both versions served, of the side with the smaller share.

    Binned scores count by the bins of their time, an hour long. None without scores on a side.
    """
    if not (scores.champion and scores.challenger):
        return None
    if isinstance(scores, Parts):
        both = [[(part.since, part.until, part.n) for part in side] for side in (scores.champion, scores.challenger)]
    else:
        both = [
            [(each.started_at, each.started_at, 1) for each in side] for side in (scores.champion, scores.challenger)
        ]
    begin = max(min(since for since, _, _ in side) for side in both)
    end = min(max(until for _, until, _ in side) for side in both)
    shares = []
    for side in both:
        inside = sum(n for since, until, n in side if since >= begin and until <= end)
        shares.append(inside / sum(n for _, _, n in side))
    return min(shares)


def served_apart(rows: Iterable[Compared]) -> float | None:
    """Return the smallest overlap of the rows where it is below `APART`, else None."""
    least = min((row.overlap for row in rows if row.overlap is not None), default=1.0)
    return least if least < APART else None


def _interval(a: Estimate | None, b: Estimate | None) -> tuple[float | None, float | None]:
    """The interval of the difference; None with too few scores on either side."""
    if a is None or b is None or min(a.n_eff, b.n_eff) < MIN_N_EFF:
        return None, None
    return difference_sequence(a, b)


def _arm(found: Estimate | None) -> Arm:
    if found is None:
        return Arm(n=0)
    low, high = confidence_sequence(found) if found.n_eff >= MIN_N_EFF else (None, None)
    alike = found.clusters is not None and 1 < found.clusters < found.n
    return Arm(
        n=found.n,
        mean=found.mean,
        ci_low=low,
        ci_high=high,
        n_eff=found.n_eff,
        design_effect=found.design_effect if alike else None,
        clusters=found.clusters if alike else None,
    )

"""A/B comparison of two versions of an app: whether to ship the new one or to roll it back. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gaugeway.signals import UNDIRECTED
from gaugeway.storage.stores import Point
from monitors.alerting.stream import on_scale, usable
from monitors.analysis.ab_binned import Parts, comparable, looks_at, with_effect
from monitors.statistics.clusters import groups_of
from monitors.statistics.confidence_sequence import MIN_N_EFF, confidence_sequence, difference_sequence, mean_of
from monitors.statistics.dependence import block_sums, design_effects, sums_by
from monitors.statistics.eprocess import Array
from monitors.statistics.sequential_ab import Decision, SequentialTest, Verdict, scores_needed
from monitors.statistics.weighted_mean import Estimate, hajek

MARGIN, ALPHA = 0.02, 0.01
PAIRED_FROM = 0.8
"""Minimum share of the smaller side's scores with a partner for `pairing="auto"` to compare pairs."""
APART = 0.5
"""With a smaller overlap the versions served mostly at different times."""
_SAME = 1e-9
"""Scores that differ by less are the same."""
_BLOCK = 10
"""Scores of the blocks that show dependence."""
MIXED = 0.5
"""Minimum share of the smaller side's blocks of 10 in which the other side has as many."""
_BATCH, _GROWTH = 10, 25
"""Scores between two looks, and the divisor of their growth: looking after each score is valid but slow."""
MIN_UNNAMED, NAMED_SHARE, FEWEST_NAMES = 400, 0.5, 20
"""Scores of each version before a decision where fewer than half of the scores have the name of a session or end user,
or these are fewer than 20: of a few conversations without names, no estimate shows how alike their scores
are."""


RowDecision: TypeAlias = Decision | Literal["differs"]
"""What is decided about one metric. Of signals without a better direction it is "differs" or "within the margin", from
their 95 % interval: they count neither for nor against a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of a comparison, on the metric's own scale; no interval below an effective sample size of 10.

    `clusters` is the number of groups of scores that may be alike (sessions, end users, ...); None where no two scores
    may be, or they are not known. `design_effect` is what the effective sample size `n_eff` is divided by, the larger
    of that of the clusters and that of neighbours in time; None for 1 without clusters.
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

    `low` to `high` is the interval that decides: the verdict falls when it lies on one side of the margin. `ci_low` to
    `ci_high` is its 95 % interval, valid however often it is looked at; None below an effective sample size of 10 on
    either side. Of the questions that both answered, `wins` have a better score of the challenger, `losses` a worse
    one, `ties` the same; None where questions were not read. `overlap` is the share of the scores from the time when
    both versions served, of the version with the smaller share (0 for periods); None without scores. `pairs` counts
    questions answered by both, None for unpaired comparisons. `for_roll_back` and `for_ship` are log10 of evidence /
    threshold: a decision falls at 0. `needed`, from the champion's scores, is the number of scores of each version with
    which an equal version ships, or a loss of twice the margin is rolled back, in 80 % of the runs; None for pairs, and
    below 10 effective scores. `left_out` scores have no partner, or a judge or metric version that the other side
    lacks.
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
    needed: int | None = None
    left_out: int = 0
    reason: str = ""
    ci_low: float | None = None
    ci_high: float | None = None
    low: float | None = None
    high: float | None = None
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
        test = SequentialTest(margin, alpha, tests)
        pairs = list(pairs_of(sides_of, keys)) if keys and isinstance(sides_of, Sides) else []
        enough = PAIRED_FROM * min(len(sides_of.champion), len(sides_of.challenger))
        if isinstance(sides_of, Sides) and (pairing == "always" or (bool(pairs) and len(pairs) >= enough)):
            found.append(_paired(sides_of, pairs, test, flipped=flipped))
        else:
            plan = partial(scores_needed, margin=margin, alpha=alpha, tests=tests)
            found.append(_apart(sides_of, test, plan, flipped=flipped))
        if pairs:
            wins, losses, ties = outcomes_of(pairs, flipped=flipped)
            found[-1] = replace(found[-1], wins=wins, losses=losses, ties=ties)
    return found


_NOTHING = Verdict(decision="not enough data", for_roll_back=0.0, for_ship=0.0)


def _undirected(scores: Sides | Parts, margin: float) -> Compared:
    """Compare a signal without a better direction: no test, only the difference and its interval."""
    looks = _looks_of(scores, flipped=False)
    found = _compared(scores, _NOTHING, looks[-1] if looks else (None, None))
    decided: RowDecision = "not enough data"
    if found.ci_low is not None and found.ci_high is not None:
        if -margin <= found.ci_low and found.ci_high <= margin:
            decided = "within the margin"
        elif found.ci_low > 0.0 or found.ci_high < 0.0:
            decided = "differs"
    return replace(found, decision=decided, low=found.ci_low, high=found.ci_high)


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


def decision(rows: Sequence[Compared]) -> Decision:
    """Return the overall decision, of the rows that have a better direction.

    Roll back if any row says so, within the margin if all do, ship if all are one or the other.
    """
    said = {row.decision for row in rows if row.directed}
    if "roll back" in said:
        return "roll back"
    if said == {"within the margin"}:
        return "within the margin"
    return "ship" if said and said <= {"ship", "within the margin"} else "not enough data"


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


def _apart(scores: Sides | Parts, test: SequentialTest, plan: Callable[..., int], *, flipped: bool) -> Compared:
    """Run the unpaired test in the order of time, up to the decision."""
    looks = _looks_of(scores, flipped=flipped)
    named = isinstance(scores, Sides) and is_named([p.cluster for p in (*scores.champion, *scores.challenger)])
    least = 0 if named else MIN_UNNAMED
    for a, b in looks:
        if min(a.n, b.n) >= least and test.look(a, b) in ("roll back", "within the margin"):
            break
    if not looks:
        return _compared(scores, test.verdict(), (None, None))
    a, b = (replace(side, mean=on_scale(side.mean, flipped=flipped)) for side in looks[-1])
    found = _compared(scores, test.verdict(), (a, b))
    if min(a.n, b.n) >= least:
        found = _deciding(found, test.interval(*looks[-1]), flipped=flipped)
    else:
        why = (
            "most conversations have no name" if isinstance(scores, Sides) else "conversations are not read one by one"
        )
        found = replace(found, reason=f"needs {least} scores of each version, as {why}")
    if a.n_eff < MIN_N_EFF:
        return found
    # n / n_eff: the design effect, and that of unequal rates
    return replace(found, needed=max(least, plan(a.sd, design_effect=max(1.0, a.n / a.n_eff))))


def _looks_of(scores: Sides | Parts, *, flipped: bool) -> list[tuple[Estimate, Estimate]]:
    """Return the estimates of both sides at each look, on the scale where 1 is best.

    Where they served at the same time, and not in turns of many scores, their design effect is that of the difference:
    what moves both alike is no dependence.
    """
    if isinstance(scores, Parts):
        return looks_at(scores, flipped=flipped)
    both = scores.champion, scores.challenger
    at = [np.array([point.started_at for point in side]) for side in both]
    times = np.sort(np.concatenate(at))
    until = np.array([times[end - 1] for end in look_sizes(times.size)])
    ends = [np.searchsorted(side, until, side="right") for side in at]
    values = [_values(side, flipped=flipped) for side in both]
    edges = _edges(*at)
    if (overlap_of(scores) or 0.0) < APART or edges.size * _BLOCK < MIXED * min(map(len, at)):
        effects = [_own_effects(*side, end) for side, end in zip(values, ends, strict=True)]
    else:
        blocks = [np.searchsorted(edges, side) for side in at]
        sums = [sums_by(block, x, 1.0 / r, edges.size + 1) for block, (x, r) in zip(blocks, values, strict=True)]
        effects = [design_effects(*sums)[np.searchsorted(edges, until, side="right")]] * 2
    a, b = (
        _estimates(*side, points, end, effect)
        for side, points, end, effect in zip(values, both, ends, effects, strict=True)
    )
    return [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]


def _edges(a: Array, b: Array) -> Array:
    """Return the ends of the shortest successive times in which both sides have 10 scores, from their times."""
    edges, i, j = [], 0, 0
    while i + _BLOCK <= a.size and j + _BLOCK <= b.size:
        edges.append(max(a[i + _BLOCK - 1], b[j + _BLOCK - 1]))
        i, j = (int(np.searchsorted(side, edges[-1], side="right")) for side in (a, b))
    return np.array(edges)


def is_named(clusters: Sequence[str | None]) -> bool:
    """Whether enough scores have the name of a session or end user."""
    named = [name for cluster in clusters if (name := conversation_of(cluster))]
    return len(set(named)) >= FEWEST_NAMES and len(named) >= NAMED_SHARE * len(clusters)


def conversation_of(cluster: str | None) -> str | None:
    """Return the first name of a session or end user among those of a cluster.

    >>> conversation_of("k:1 u:2"), conversation_of("k:1"), conversation_of(None)
    ('u:2', None, None)
    """
    return next((name for name in (cluster or "").split() if name[:2] in ("s:", "u:")), None)


def _values(points: Sequence[Point], *, flipped: bool) -> tuple[Array, Array]:
    """Return the scores, on the scale where 1 is best, and their rates."""
    scores = [on_scale(point.value or 0.0, flipped=flipped) for point in points]
    return np.array(scores), np.array([point.rate for point in points])


def _own_effects(scores: Array, rates: Array, ends: NDArray[np.int64]) -> Array:
    effects: Array = design_effects(block_sums(scores, 1.0 / rates, _BLOCK))[ends // _BLOCK]
    return effects


def _estimates(
    scores: Array, rates: Array, points: Sequence[Point], ends: NDArray[np.int64], effects: Array
) -> list[Estimate | None]:
    """Return the estimates from the first so many scores, those of `points`; None for none.

    The design effect is the larger of two: that of the clusters, and that of the order in time.
    """
    groups = np.array(groups_of([point.cluster for point in points]))
    return [
        with_effect(hajek(scores[:end], rates[:end], groups[:end]), float(effect)) if end else None
        for end, effect in zip(ends, effects, strict=True)
    ]


def _paired(scores: Sides, pairs: Sequence[tuple[Point, Point]], test: SequentialTest, *, flipped: bool) -> Compared:
    """Run the paired test; a pair's rate is the product of both rates, as the sides were sampled independently."""
    kept = Sides(
        app=scores.app,
        metric=scores.metric,
        champion=[a for a, _ in pairs],
        challenger=[b for _, b in pairs],
        left_out=scores.left_out + len(scores.champion) + len(scores.challenger) - 2 * len(pairs),
    )
    (a, rates_a), (b, rates_b) = (_values(side, flipped=flipped) for side in (kept.champion, kept.challenger))
    halves, rates, ends = (b - a + 1.0) / 2.0, rates_a * rates_b, np.array([*look_sizes(len(pairs))], dtype=np.int64)
    looks = _estimates(halves, rates, kept.champion, ends, _own_effects(halves, rates, ends))
    for look in looks:
        if look is not None and test.look_at_pairs(look) in ("roll back", "within the margin"):
            break
    arms = mean_of(kept.champion), mean_of(kept.challenger)
    found = replace(_compared(kept, test.verdict(), arms), pairs=len(pairs))
    last = looks[-1] if looks else None
    if last is None:
        return replace(found, reason="no question was answered by both versions")
    sign, (low, high) = -1.0 if flipped else 1.0, confidence_sequence(last)
    found = replace(found, difference=sign * (2.0 * last.mean - 1.0), ci_low=None, ci_high=None)
    if last.n_eff >= MIN_N_EFF:
        low, high = sorted((sign * (2.0 * low - 1.0), sign * (2.0 * high - 1.0)))
        found = replace(found, ci_low=low, ci_high=high)
    return _deciding(found, test.interval(last), flipped=flipped)


def _deciding(found: Compared, ends: tuple[float, float] | None, *, flipped: bool) -> Compared:
    """Add the interval that decides, on the metric's own scale; it includes the difference."""
    if ends is None or found.difference is None:
        return found
    low, high = sorted((-end for end in ends) if flipped else ends)
    return replace(found, low=min(low, found.difference), high=max(high, found.difference))


def look_sizes(count: int) -> Iterator[int]:
    """Yield how many scores there are at each look."""
    end = 0
    while end < count:
        end = min(count, end + max(_BATCH, end // _GROWTH))
        yield end


def _compared(scores: Sides | Parts, verdict: Verdict, known: tuple[Estimate | None, Estimate | None]) -> Compared:
    a, b = (_arm(side) for side in known)
    low, high = _interval(*known)
    return Compared(
        app=scores.app,
        metric=scores.metric,
        champion=a,
        challenger=b,
        decision=verdict.decision,
        difference=None if a.mean is None or b.mean is None else b.mean - a.mean,
        for_roll_back=verdict.for_roll_back,
        for_ship=verdict.for_ship,
        more=verdict.more,
        left_out=scores.left_out,
        reason="" if a.n and b.n else "no judge and version of the metric scored both versions",
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
    """Return the smallest overlap of the rows where it is below `APART`, else None; of few scores it says nothing."""
    least = min((row.overlap for row in rows if row.overlap is not None and row.ci_low is not None), default=1.0)
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
        design_effect=found.design_effect if alike or found.design_effect > 1.0 else None,
        clusters=found.clusters if alike else None,
    )

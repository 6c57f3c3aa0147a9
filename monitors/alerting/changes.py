"""Versions in the traffic, and what changed with the onset of an alert. Pure: no clock, no I/O.

A change is a coincidence in time, which is not proof of a cause: that is for `monitors.alerting.causes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from gaugeway.records import PROMPT_SCHEME, Change, same_scheme
from gaugeway.storage.stores import Point
from monitors.alerting.causes import Observation, Passages, Split, elsewhere
from monitors.alerting.stream import usable
from monitors.statistics.agreement import wilson

TAGS = ("version", "prompt", "release")
"""Tags that identify a version."""
ENOUGH = 20
"""Exchanges before a value counts as a version; with fewer it may be an experiment."""
_KEPT = 50
MAX_APPS = 200
"""Apps that are tracked; one with few exchanges is evicted for a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version seen in an app's traffic: `kind` is model, prompt or tag:NAME, `first_seen` Unix time in seconds."""

    app: str
    kind: str
    value: str
    first_seen: float
    exchanges: int


class Versions:
    """Tracks versions, keeping the latest of each app and kind. An app's first version is not a change.

    An exchange has several scores, so only the first metric seen of an app is counted.

    >>> def point(n, model):
    ...     return Point(sample_id=str(n), started_at=float(n), app="a", model=model, metric="x", outcome="score",
    ...                  value=1.0, reason="", rate=1.0)
    >>> versions = Versions()
    >>> versions.notice([point(n, "old" if n < 30 else "new") for n in range(60)])
    >>> [(change.value, change.first_seen) for change in versions.changes()]
    [('new', 30.0)]
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, dict[str, tuple[float, int]]]] = {}
        self._metric: dict[str, str] = {}

    def notice(self, points: Iterable[Point]) -> None:
        """Take points, in the order of time."""
        full = False
        for point in points:
            if point.app not in self._seen and len(self._seen) >= MAX_APPS:
                full = full or not self._make_room()
                if full:
                    continue
            if self._metric.setdefault(point.app, point.metric) != point.metric:
                continue
            kinds = self._seen.setdefault(point.app, {})
            for kind, value in versions_of(point).items():
                values = kinds.setdefault(kind, {})
                first, n = values.get(value, (point.started_at, 0))
                values[value] = min(first, point.started_at), n + 1
                if len(values) > _KEPT:
                    rare = [rare_value for rare_value in values if values[rare_value][1] < ENOUGH] or list(values)
                    del values[min(rare, key=lambda known: values[known][0])]

    def _make_room(self) -> bool:
        """Evict the older half of the apps with too few exchanges for a version; return False if there are none."""
        exchanges = {app: sum(n for _, n in kinds.get("model", {}).values()) for app, kinds in self._seen.items()}
        few = [app for app, n in exchanges.items() if n < ENOUGH]
        for app in few[: (len(few) + 1) // 2]:
            del self._seen[app], self._metric[app]
        return bool(few)

    def all(self) -> Sequence[Version]:
        """Return the versions with enough exchanges, in the order of time."""
        found = [
            Version(app=app, kind=kind, value=value, first_seen=first, exchanges=n)
            for app, kinds in self._seen.items()
            for kind, values in kinds.items()
            for value, (first, n) in values.items()
            if n >= ENOUGH
        ]
        return sorted(found, key=lambda version: (version.first_seen, version.app, version.kind, version.value))

    def changes(self) -> Sequence[Version]:
        """Return the versions that followed another one of their app and kind; a prompt's, in the same scheme."""
        earliest: dict[tuple[str, str, bool], Version] = {}
        return [
            version
            for version in self.all()
            if earliest.setdefault((version.app, version.kind, _is_current(version)), version) is not version
        ]

    def dumps(self) -> bytes:
        """Return the state to save."""
        return msgspec.json.encode([self._seen, self._metric])

    def loads(self, state: bytes) -> None:
        """Restore a state from `dumps`."""
        seen = dict[str, dict[str, dict[str, tuple[float, int]]]]
        self._seen, self._metric = msgspec.json.decode(state, type=tuple[seen, dict[str, str]])


def _is_current(version: Version) -> bool:
    return version.kind != "prompt" or same_scheme((version.value, PROMPT_SCHEME))


def versions_of(point: Point) -> Mapping[str, str]:
    """Return the versions that an exchange used, by kind: model, prompt, tag:NAME."""
    found = {"model": point.model} | {f"tag:{name}": point.tags[name] for name in TAGS if name in point.tags}
    return found | ({"prompt": point.prompt} if point.prompt is not None else {})


LEAST_RECENT, RECENT_S = 100, 300.0
"""Answers since are compared with those of the last five minutes before the onset, and with 100 at least: it may be
dated some minutes late, and a version that came earlier must be in all of these."""
RECENT_READ = 50
"""Answers before the onset whose sources are compared: a tenth of those read."""
LEAST_SHARE = 0.1
"""A version with less of the answers since the onset is not named: an experiment."""
CARRIED = 0.5
"""Versions are named if the answers that those of a kind took over can hold this part of the fall."""
REPLACED = 0.9
"""One with this share of the answers since replaced the others: the onset may be dated after some of its first ones."""
MOST_NAMED = 4  # internal bound: size of a message that we send
_ALPHA = 0.01


def changes_at_onset(before: Sequence[Point], since: Sequence[Point], metric: str) -> tuple[Change, ...]:
    """Return the versions whose share of the answers grew with the onset, the largest growth first.

    `before` and `since` are evaluations on either side of the onset. A version counts if its share grew beyond chance
    (Wilson intervals that do not overlap at 99 %), its scores moved as the mean did and, where other versions remain,
    further than theirs. All of a kind that grew are named if the answers that they took over hold half of the move.
    Changes whose answers are nearly the same are `inseparable`.
    """
    new = _scores(since, metric)
    recent = _recent(_scores(before, metric), new, LEAST_RECENT)
    if not recent or not new:
        return ()
    left_out = set() if same_scheme(point.prompt for point in (*recent, *new)) else {"prompt"}
    kinds = sorted({kind for point in new for kind in versions_of(point)} - left_out)
    found = [change for kind in kinds for change in _changes(kind, recent, new)]
    named = sorted(found, key=lambda change: change.before - change.since)[:MOST_NAMED]
    got = [
        {point.sample_id for point in new if versions_of(point).get(change.kind) == change.value} for change in named
    ]
    same = [any(_same(ids, other) for other in got if other is not ids) for ids in got]
    return tuple(replace(change, inseparable=twin) for change, twin in zip(named, same, strict=True))


def _same(ids: set[str], others: set[str]) -> bool:
    """Return whether nearly all answers with either of two changes have both."""
    return len(ids & others) >= REPLACED * len(ids | others)


def placed(change: Change, place: Split | None, got: Callable[[Observation], bool] | None = None) -> Change:
    """Return a change with how its answers (`got`) outside the part that fell did, if there is such a part."""
    has = got or (lambda answer: answer.strata.get(change.kind) == change.value)
    return change if place is None else replace(change, elsewhere=elsewhere(place, has))


def source_change(
    source: str, passages: Mapping[str, Passages], before: Sequence[Point], since: Sequence[Point], metric: str
) -> Change | None:
    """Return the change of the share of answers that got a source of passages; None if it did not grow with the onset.

    Of answers in `passages`, by sample id: those that were read.
    """
    old, new = ([point for point in _scores(side, metric) if point.sample_id in passages] for side in (before, since))
    recent = _recent(old, new, RECENT_READ)
    if not recent or not new:
        return None
    then, now = (sum(source in passages[point.sample_id].documents for point in side) for side in (recent, new))
    change = Change(kind="source", value=source, before=then / len(recent), since=now / len(new), elsewhere="none")
    return change if _grew(then, len(recent), now, len(new)) else None


def documents_change(
    passages: Mapping[str, Passages],
    before: Sequence[Point],
    since: Sequence[Point],
    metric: str,
    *,
    place: Split | None = None,
) -> Change | None:
    """Return the share of answers that got documents which no answer before the onset got; None if it is no change.

    `place` is the part of the traffic that fell.
    It counts beyond the share of new documents that the later half of the answers before had over the earlier half,
    and if its answers can hold half of the move of the mean.
    """
    old, new = ([point for point in _scores(side, metric) if point.sample_id in passages] for side in (before, since))
    earlier, later = old[: len(old) // 2], old[len(old) // 2 :]
    if not earlier or not new:
        return None
    seen = _documents(earlier, passages)
    then = sum(not passages[point.sample_id].documents <= seen for point in later)
    seen |= _documents(later, passages)
    fresh = [point for point in new if not passages[point.sample_id].documents <= seen]
    if not _grew(then, len(later), len(fresh), len(new)):
        return None
    move = _mean(new) - _mean(old)
    own, grown = _mean(fresh) - _mean(old), len(fresh) / len(new) - then / len(later)
    if own * move <= 0.0 or grown < abs(move) * CARRIED:
        return None
    counts = Counter(name for point in fresh for name in passages[point.sample_id].documents - seen)
    (commonest, _), more = min(counts.items(), key=lambda entry: (-entry[1], entry[0])), len(counts) - 1
    value = f"not seen before ({commonest}{f' and {more} more' if more else ''})"
    change = Change(kind="documents", value=value, before=then / len(later), since=len(fresh) / len(new))
    ids = {point.sample_id for point in fresh}
    return placed(change, place, lambda answer: answer.sample_id in ids)


def _documents(points: Iterable[Point], passages: Mapping[str, Passages]) -> set[str]:
    return {name for point in points for name in passages[point.sample_id].documents}


def _scores(points: Iterable[Point], metric: str) -> list[Point]:
    scores = (point for point in points if point.metric == metric and usable(point))
    return sorted(scores, key=lambda point: point.started_at)


def _recent(old: Sequence[Point], new: Sequence[Point], least: int) -> Sequence[Point]:
    """Return the last points of `old`, `least` of them or those of `RECENT_S` before the first of `new`."""
    if not old or not new:
        return ()
    edge = min(new[0].started_at - RECENT_S, old[-min(least, len(old))].started_at)
    return [point for point in old if point.started_at >= edge]


def _grew(then: int, of_then: int, now: int, of_now: int) -> bool:
    """Return whether a share grew beyond chance, and by enough to be more than an experiment."""
    low, high = wilson(now, of_now, alpha=_ALPHA)[0], wilson(then, of_then, alpha=_ALPHA)[1]
    return low > high and now / of_now - then / of_then >= LEAST_SHARE


def _changes(kind: str, recent: Sequence[Point], new: Sequence[Point]) -> Sequence[Change]:
    """Return the values of `kind` that took over answers."""
    then, now = _counts(kind, recent), _counts(kind, new)
    before, since = ({value: n / sum(side.values()) for value, n in side.items()} for side in (then, now))
    grown = [value for value in now if value and _grew(then.get(value, 0), len(recent), now[value], len(new))]
    rest = [point for point in new if versions_of(point).get(kind, "") not in grown]
    level, move = _mean(recent), _mean(new) - _mean(recent)
    others = [level] if not rest or len(rest) <= (1.0 - REPLACED) * len(new) else [level, _mean(rest)]
    own = {value: _mean([point for point in new if versions_of(point).get(kind, "") == value]) for value in grown}
    worse = [value for value in grown if all((own[value] - other) * move > 0.0 for other in others)]
    # Each answer that was taken over moved by the distance to the others; alone, by at most 1, a mean lies in [0, 1].
    moved = {value: abs(own[value] - others[1]) if len(others) > 1 else 1.0 for value in worse}
    if sum((since[value] - before.get(value, 0.0)) * moved[value] for value in worse) < abs(move) * CARRIED:
        return ()
    lost = max(then, key=lambda value: before[value] - since.get(value, 0.0))
    return [
        Change(
            kind=kind,
            value=value,
            replaced=lost if since[value] >= REPLACED and lost != value else "",
            before=before.get(value, 0.0),
            since=since[value],
        )
        for value in worse
    ]


def _counts(kind: str, points: Iterable[Point]) -> Mapping[str, int]:
    return Counter(versions_of(point).get(kind, "") for point in points)


def _mean(points: Sequence[Point]) -> float:
    """Return the mean weighted by the inverse of the sampling rates."""
    weights = [1.0 / point.rate for point in points]
    return sum(weight * (point.value or 0.0) for weight, point in zip(weights, points, strict=True)) / sum(weights)

"""What changed with an alert's onset: models, prompts and releases that took over answers then. Pure: no clock, no I/O.

A coincidence in time, which is not proof of a cause: that is for `monitors.alerting.causes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from monitors.alerting.stream import usable
from monitors.alerting.versions import versions_of
from monitors.records import Change, same_scheme
from monitors.statistics.agreement import wilson
from monitors.storage.stores import Point

LEAST_RECENT, MOST_RECENT = 100, 500
"""Answers before the onset that are compared with those since: a version that came long before is in all of these."""
LEAST_SHARE = 0.1
"""A version with less of the answers since the onset is not named: an experiment."""
CARRIED = 0.5
"""A version is named if the answers it took over can hold this part of the fall."""
REPLACED = 0.9
"""One with this share of the answers since, and few before, replaced the others."""
MOST_NAMED = 4
_ALPHA = 0.01


def changes_at_onset(before: Sequence[Point], since: Sequence[Point], metric: str) -> tuple[Change, ...]:
    """Return the versions whose share of the answers grew with the onset, the largest growth first.

    `before` and `since` are evaluations on either side of the onset. A version counts if its share grew beyond chance
    (Wilson intervals that do not overlap at 99 %), and by so much that the answers it took over can hold half of the
    fall; where some answers have another version, those with it must have the lower scores in the metric's move.
    """
    old = sorted((one for one in before if one.metric == metric and usable(one)), key=lambda one: one.started_at)
    new = [one for one in since if one.metric == metric and usable(one)]
    if not old or not new:
        return ()
    recent = old[-min(MOST_RECENT, max(LEAST_RECENT, len(new))) :]
    move = _mean(new) - _mean(old)
    left_out = set() if same_scheme(point.prompt for point in (*recent, *new)) else {"prompt"}
    found = [
        change
        for kind in sorted({kind for point in new for kind in versions_of(point)} - left_out)
        if (change := _change(kind, recent, new, move)) is not None
    ]
    return tuple(sorted(found, key=lambda one: one.before - one.since)[:MOST_NAMED])


def _change(kind: str, recent: Sequence[Point], new: Sequence[Point], move: float) -> Change | None:
    """Return the value of `kind` that took over most answers, None if none did."""
    then, now = _counts(kind, recent), _counts(kind, new)
    grown = {value: n / len(new) - then.get(value, 0) / len(recent) for value, n in now.items()}
    value = max(grown, key=lambda one: grown[one])
    before, since = then.get(value, 0) / len(recent), now[value] / len(new)
    rest = [point for point in new if versions_of(point).get(kind, "") != value]
    with_it = [point for point in new if versions_of(point).get(kind, "") == value]
    room = abs(move) * CARRIED  # a mean in [0, 1] moves by at most 1, so a share holds at most itself
    if not value or grown[value] < max(LEAST_SHARE, room):
        return None
    if wilson(now[value], len(new), alpha=_ALPHA)[0] <= wilson(then.get(value, 0), len(recent), alpha=_ALPHA)[1]:
        return None
    if rest and since < REPLACED and (_mean(with_it) - _mean(rest)) * move <= 0.0:
        return None
    lost = max(then, key=lambda one: then[one] / len(recent) - now.get(one, 0) / len(new))
    replaced = lost if since >= REPLACED and before <= 1.0 - REPLACED and lost != value else ""
    return Change(kind=kind, value=value, replaced=replaced, before=before, since=since)


def _counts(kind: str, points: Iterable[Point]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for point in points:
        value = versions_of(point).get(kind, "")
        found[value] = found.get(value, 0) + 1
    return found


def _mean(points: Sequence[Point]) -> float:
    """Return the mean weighted by the inverse of the sampling rates."""
    weights = [1.0 / point.rate for point in points]
    return sum(weight * (point.value or 0.0) for weight, point in zip(weights, points, strict=True)) / sum(weights)

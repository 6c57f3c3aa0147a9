"""Slices: whether one fell while the rest did not, and which are new since the onset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from monitors.alerting.causes.observations import ALPHA, Fall, Observation, Words, compare, percent
from monitors.alerting.causes.traffic_mix import CARRIED, MAX_VALUES, is_version, labelled, slice_name, value_of
from monitors.statistics.decomposition import LEAST_N_EFF, Contrast

LARGEST = 0.9
"""A slice with more than this share counts as the whole traffic."""
ROOM = 0.5
"""Something counts as steady if its fall is below this part of the fall it is compared with."""
_LEAST_NEW = 0.05
_TAIL = 0.1
"""The onset may be dated too late: values first seen in the last tenth of the time before count as new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A slice of the traffic. `fall` is its own, `rest` that of all other traffic.

    A `new` slice did not exist before the onset; both falls are then measured from all traffic before.
    """

    key: str
    value: str
    new: bool
    share: float
    fall: Fall
    rest: Fall

    @property
    def name(self) -> str:
        """The name in alerts."""
        return slice_name(self.key, self.value)

    def contains(self, observation: Observation) -> bool:
        """Return whether an evaluation belongs to the slice."""
        return value_of(observation, self.key) == self.value

    def confined(self, drop: Contrast, alpha: float) -> bool:
        """Return whether only this slice fell, and its fall is most of the drop."""
        ours, theirs = self.fall.contrast, self.rest.contrast
        if ours is None or theirs is None or not ours.clear(alpha):
            return False
        apart = Contrast(value=ours.value - theirs.value, se=math.hypot(ours.se, theirs.se))
        return (
            apart.clear(alpha)
            and not theirs.clear(ALPHA)
            and theirs.interval(ALPHA)[1] < ROOM * ours.value
            and self.share * ours.value >= CARRIED * drop.value
        )

    def sentence(self, words: Words, *, alone: bool) -> str:
        """Return a sentence about the slice; `alone` if the rest did not fall."""
        metric = self.fall.metric
        arrived = f"{self.name} appeared with the onset ({percent(self.share)} of the exchanges since)"
        if not alone:
            return f"{arrived}."
        here = words.change(metric, self.fall.old, self.fall.new)
        rest = words.change(metric, self.rest.old, self.rest.new)
        if self.new:
            return f"{arrived}: {metric} is {words.mean(metric, self.fall.new)} there and {rest} in the rest."
        return f"Only {self.name} changed ({percent(self.share)} of the exchanges): {here}, the rest {rest}."


def slices_of(drop: Fall, keys: Sequence[str]) -> list[Slice]:
    """Return the slices that can be compared: the most frequent values of each key."""
    found: list[Slice | None] = []
    for key in keys:
        old, new = _Divided(labelled(drop.before, key), key), _Divided(labelled(drop.since, key), key)
        large = [value for value in new.parts if len(new.parts[value]) >= LEAST_N_EFF]
        commonest = sorted(large, key=lambda value: (-len(new.parts[value]), value))[:MAX_VALUES]
        found += [_slice(value, drop.metric, old, new) for value in commonest]
    return [slice_ for slice_ in found if slice_ is not None]


def confined(slices: Sequence[Slice], drop: Contrast, alpha: float) -> Slice | None:
    """Return the slice the drop is confined to; of several the one that differs most from the rest."""
    fitting = [slice_ for slice_ in slices if slice_.confined(drop, alpha)]
    return max(fitting, key=_apart, default=None)


def arrived(slices: Sequence[Slice]) -> list[Slice]:
    """Return new versions that replaced all traffic at the onset, so nothing is left to compare them with."""
    return [slice_ for slice_ in slices if slice_.new and slice_.share > LARGEST]


class _Divided:
    """The scores of one side by the value of one key."""

    def __init__(self, scores: Sequence[Observation], key: str) -> None:
        self.key = key
        self.whole = scores
        self.parts: dict[str, list[Observation]] = {}
        for observation in scores:
            self.parts.setdefault(value_of(observation, key), []).append(observation)

    def without(self, value: str) -> list[Observation]:
        """Return the scores of all other values."""
        return [observation for other, part in self.parts.items() if other != value for observation in part]


def _slice(value: str, metric: str, old: _Divided, new: _Divided) -> Slice | None:
    inside, outside, before = new.parts[value], new.without(value), old.parts.get(value, [])
    weight = sum(1.0 / observation.rate for observation in inside)
    part = weight / (weight + sum(1.0 / observation.rate for observation in outside))
    arrived_now = is_version(new.key) and part >= _LEAST_NEW and not before_tail(before, old.whole)
    if part > LARGEST and not arrived_now:
        return None
    return Slice(
        key=new.key,
        value=value,
        new=arrived_now,
        share=part,
        fall=compare(metric, old.whole if arrived_now else before, inside),
        rest=compare(metric, old.whole if arrived_now else old.without(value), outside),
    )


def before_tail(some: Sequence[Observation], everything: Sequence[Observation]) -> list[Observation]:
    """Return those of `some` that are older than the last tenth of everything."""
    if not some:
        return []
    times = sorted(observation.started_at for observation in everything)
    edge = times[int((1.0 - _TAIL) * (len(times) - 1))]
    return [observation for observation in some if observation.started_at < edge]


def _apart(slice_: Slice) -> float:
    ours, theirs = slice_.fall.contrast, slice_.rest.contrast
    if ours is None or theirs is None:
        return 0.0
    return (ours.value - theirs.value) / math.hypot(ours.se, theirs.se)

"""Slices: whether one fell while the rest did not, and which are new since the onset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from monitors.alerting.causes.observations import ALPHA, Fall, Observation, Split, Words, compare, divided, percent
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
class Slice(Split):
    """A slice of the traffic.

    A `new` slice did not exist before the onset; both falls are then measured from all traffic before.
    """

    key: str
    value: str
    new: bool

    @property
    def name(self) -> str:
        """The name in alerts."""
        return slice_name(self.key, self.value)

    def contains(self, observation: Observation) -> bool:
        """Return whether an evaluation belongs to the slice."""
        return value_of(observation, self.key) == self.value

    def confined(self, drop: Contrast, alpha: float) -> bool:
        """Return whether only this slice fell, and its fall is most of the drop."""
        ours, theirs, apart = self.inside.contrast, self.rest.contrast, self.apart
        return (
            ours is not None
            and theirs is not None
            and apart is not None
            and ours.clear(alpha)
            and apart.clear(alpha)
            and not theirs.clear(ALPHA)
            and theirs.interval(ALPHA)[1] < ROOM * ours.value
            and self.share * ours.value >= CARRIED * drop.value
        )

    def sentence(self, words: Words, *, alone: bool) -> str:
        """Return a sentence about the slice; `alone` if the rest did not fall."""
        metric = self.inside.metric
        arrived = f"{self.name} appeared with the onset ({percent(self.share)} of the exchanges since)"
        if not alone:
            return f"{arrived}."
        if self.new:
            rest = words.change(metric, self.rest.old, self.rest.new)
            return f"{arrived}: {metric} is {words.mean(metric, self.inside.new)} there and {rest} in the rest."
        return f"Only {self.name} changed ({percent(self.share)} of the exchanges): {self.changes(words)}."


def slices_of(drop: Fall, keys: Sequence[str]) -> list[Slice]:
    """Return the slices that can be compared: the most frequent values of each key."""
    found: list[Slice | None] = []
    for key in keys:
        before, since = labelled(drop.before, key), labelled(drop.since, key)
        counts = Counter(value_of(observation, key) for observation in since)
        large = [value for value in counts if counts[value] >= LEAST_N_EFF]
        commonest = sorted(large, key=lambda value: (-counts[value], value))[:MAX_VALUES]
        found += [_slice(key, value, drop.metric, before, since) for value in commonest]
    return [slice_ for slice_ in found if slice_ is not None]


def confined(slices: Sequence[Slice], drop: Contrast, alpha: float) -> Slice | None:
    """Return the slice the drop is confined to; of several the one that differs most from the rest."""
    fitting = [slice_ for slice_ in slices if slice_.confined(drop, alpha)]
    return max(fitting, key=lambda slice_: slice_.apart.value / slice_.apart.se if slice_.apart else 0.0, default=None)


def arrived(slices: Sequence[Slice]) -> list[Slice]:
    """Return new versions that replaced all traffic at the onset, so nothing is left to compare them with."""
    return [slice_ for slice_ in slices if slice_.new and slice_.share > LARGEST]


def _slice(
    key: str, value: str, metric: str, before: Sequence[Observation], since: Sequence[Observation]
) -> Slice | None:
    (old, old_rest), (new, new_rest) = (
        divided(side, lambda observation: value_of(observation, key) == value) for side in (before, since)
    )
    weight = sum(1.0 / observation.rate for observation in new)
    part = weight / (weight + sum(1.0 / observation.rate for observation in new_rest))
    arrived_now = is_version(key) and part >= _LEAST_NEW and not before_tail(old, before)
    if part > LARGEST and not arrived_now:
        return None
    return Slice(
        key=key,
        value=value,
        new=arrived_now,
        share=part,
        inside=compare(metric, before if arrived_now else old, new),
        rest=compare(metric, before if arrived_now else old_rest, new_rest),
    )


def before_tail(some: Sequence[Observation], everything: Sequence[Observation]) -> list[Observation]:
    """Return those of `some` that are older than the last tenth of everything."""
    if not some:
        return []
    times = sorted(observation.started_at for observation in everything)
    edge = times[int((1.0 - _TAIL) * (len(times) - 1))]
    return [observation for observation in some if observation.started_at < edge]

"""Parts of the traffic: the cause "traffic_mix", where their shares changed, and the one that alone fell, or is new."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gaugeway.records import Cause, grouped
from monitors.alerting.causes.observations import (
    ALPHA,
    Explanation,
    Fall,
    Observation,
    Split,
    Words,
    compare,
    divided,
    from_p_value,
    percent,
    values_of,
)
from monitors.statistics.decomposition import LEAST_N_EFF, Contrast, Decomposition, Group, Grouped, decompose
from monitors.statistics.weighted_mean import Estimate

CARRIED, PARTLY = 0.6, 0.3
"""The share of a drop that the mix must explain to be the cause, and to keep other causes from being named."""
MAX_KEYS, MAX_VALUES = 30, 20
NONE, REST = "none", "rest"
_NEW, _LARGE = 0.05, 0.1
_GONE = 0.5
"""A value disappeared if its share since the onset is less than this part of that before."""
_VERSION = re.compile(
    r"(^|[^a-z])(model|prompt|version|ver|release|revision|rev|build|commit|sha|deploy\w*|canary|variant|experiment"
    r"|index|retriever|pipeline)($|[^a-z])",
    re.IGNORECASE,
)


def is_version(key: str) -> bool:
    """Return whether the app's owner sets this stratum, not its users: a new value is then a change, not a mix.

    >>> [is_version(key) for key in ("model", "tag:app_version", "tag:tenant", "topic", "tag:conversation")]
    [True, True, False, False, False]
    """
    return _VERSION.search(key) is not None


def slice_name(key: str, value: str) -> str:
    """Return the name of a slice.

    >>> slice_name("tag:tenant", "a"), slice_name("topic", "topic:refund, invoice")
    ('tag:tenant=a', 'topic=refund, invoice')
    """
    return f"{key}={value.removeprefix('topic:') if key == 'topic' else value}"


def keys_of(observations: Iterable[Observation]) -> list[str]:
    """Return the strata with several values, version-like ones first."""
    values: dict[str, set[str]] = {}
    count = 0
    seen: dict[str, int] = {}
    for observation in observations:
        count += 1
        for key, value in observation.strata.items():
            values.setdefault(key, set()).add(value)
            seen[key] = seen.get(key, 0) + 1
    several = [key for key in values if len(values[key]) > 1 or seen[key] < count]
    return sorted(several, key=lambda key: (not is_version(key), key == "topic", key))[:MAX_KEYS]


def value_of(observation: Observation, key: str) -> str:
    """Return the value of a stratum, `NONE` without one."""
    return observation.strata.get(key, NONE)


def labelled(scores: Sequence[Observation], key: str) -> Sequence[Observation]:
    """Return the scores to use for this key: topics may be known of some exchanges only."""
    return [observation for observation in scores if key in observation.strata] if key == "topic" else scores


class Shift(Struct, frozen=True, kw_only=True):
    """The decomposition of the drop by one key."""

    key: str
    parts: Decomposition
    named: Mapping[str, Group]

    @property
    def carried(self) -> float:
        """The share of the drop due to the mix."""
        return self.parts.mix.value / self.parts.total.value

    def explains(self, alpha: float) -> bool:
        """Return whether the mix significantly explains most of the drop, and the rest is not significant."""
        return (
            self.parts.mix.clear(alpha)
            and self.carried >= CARRIED
            and not self.parts.within.clear(alpha)
            and self.parts.total.value > 0.0
        )

    def matters(self, alpha: float) -> bool:
        """Return whether the mix significantly explains a part of the drop."""
        return self.parts.mix.clear(alpha) and self.carried >= PARTLY and self.parts.total.value > 0.0


def shifted(drop: Fall, keys: Sequence[str], alpha: float, words: Words) -> Explanation | None:
    """Return the explanation by the key whose old mix best removes the drop, topics last.

    If it removes only a part, the cause is "unknown": the rest may be due to strata that are too coarse (topics only
    approximate what makes questions hard).
    """
    found = [shift for key in keys if (shift := shift_of(key, drop)) is not None and shift.matters(alpha)]
    if not found:
        return None
    best = min(
        found, key=lambda shift: (not shift.explains(alpha), shift.key == "topic", -min(1.0, shift.carried), -_z(shift))
    )
    if not best.explains(alpha):
        return _explanation(best, drop, "unknown", words)
    return replace(
        _explanation(best, drop, "traffic_mix", words),
        strength=from_p_value(best.parts.mix.p_value * ALPHA / alpha),
        evidence=(f"means and shares by {best.key}",),
    )


def shift_of(key: str, drop: Fall) -> Shift | None:
    """Decompose the drop by one key; None if that is impossible or a new version of the app changed the shares."""
    before, since = labelled(drop.before, key), labelled(drop.since, key)
    old, new = ([value_of(observation, key) for observation in side] for side in (before, since))
    names = _names(old, _Worth(new, [observation.rate for observation in since]))
    index = {name: number for number, name in enumerate(names)}
    groups = [[index.get(value, index[REST]) for value in side] for side in (old, new)]
    sides = [
        Grouped(values=values_of(side), rates=[observation.rate for observation in side], groups=members)
        for side, members in zip((before, since), groups, strict=True)
        if side
    ]
    if len(sides) < 2:  # noqa: PLR2004 - one side was never labelled
        return None
    parts = decompose(*sides)
    if parts is None:
        return None
    if is_version(key) and any(part.before is None and part.share_since >= _NEW for part in parts.groups.values()):
        return None
    named = {name: parts.groups[number] for name, number in index.items() if number in parts.groups}
    return Shift(key=key, parts=parts, named=named)


class _Worth:
    """The values since the onset with their numbers and effective numbers of scores."""

    def __init__(self, values: Sequence[str], rates: Sequence[float]) -> None:
        self.count = Counter(values)
        weights = grouped((value, 1.0 / rate) for value, rate in zip(values, rates, strict=True))
        self._weights = weights

    def of(self, *some: str) -> float:
        """Return the effective number of scores of some values together."""
        weights = [weight for value in some for weight in self._weights.get(value, ())]
        return sum(weights) ** 2 / sum(weight**2 for weight in weights) if weights else 0.0


def _names(old: Sequence[str], since: _Worth) -> list[str]:
    """Return the values kept separate, most frequent first; the others are pooled.

    Kept are values with enough scores since, and large ones that disappeared, which would distort the pool. A value
    that did not disappear must not count as if it had, only because there are few scores yet: its fall would be taken
    for a change of the mix. So where the pool has too few scores, the rarest values of before join it.
    """
    before, total = Counter(old), since.count.total()

    def gone(value: str) -> bool:
        is_large = before[value] >= max(LEAST_N_EFF, _LARGE * len(old))
        return is_large and since.count[value] * len(old) < _GONE * before[value] * total

    values = sorted(before | since.count, key=lambda value: (-before[value] - since.count[value], value))
    alone = [value for value in values if since.of(value) >= LEAST_N_EFF or gone(value)][:MAX_VALUES]
    joining = sorted(
        (known for known in alone if before[known] and not gone(known)), key=lambda known: (since.count[known], known)
    )
    pooled = [value for value in values if value not in alone]
    while joining and any(before[known] for known in pooled) and 0.0 < since.of(*pooled) < LEAST_N_EFF:
        pooled.append(joining.pop(0))
    return [*(value for value in alone if value not in pooled), REST]


def _explanation(shift: Shift, drop: Fall, cause: Cause, words: Words) -> Explanation:
    """Build the explanation, naming the value whose share matters most."""
    overall = drop.old.mean if drop.old is not None else 0.0
    name, group = max(shift.named.items(), key=lambda item: _pull(item[1], overall))
    left = (drop.old.mean if drop.old is not None else 0.0) - shift.parts.within.value
    kept = Estimate(mean=min(1.0, max(0.0, left)), sd=0.0, n=1, n_eff=1.0)
    mean = words.mean(drop.metric, group.since or group.before)
    return Explanation(
        cause=cause,
        detail=(
            f"{words.whole(drop)}; with the shares of {shift.key} as before it would be "
            f"{words.mean(drop.metric, kept)}. {slice_name(shift.key, name)} (mean {mean}) went from "
            f"{percent(group.share_before)} to {percent(group.share_since)} of the exchanges."
        ),
        slice="" if name == REST else slice_name(shift.key, name),
    )


def _pull(group: Group, overall: float) -> float:
    """Return how much the change of the group's share alone lowers the mean."""
    known = group.since or group.before
    return (group.share_since - group.share_before) * (overall - known.mean) if known is not None else 0.0


def _z(shift: Shift) -> float:
    return shift.parts.mix.value / max(shift.parts.mix.se, 1e-12)


LARGEST = 0.9
"""A slice with more than this share counts as the whole traffic."""
ROOM = 0.5
"""Something counts as steady if its fall is below this part of the fall it is compared with."""
_LEAST_NEW = 0.05
_HARDLY = 0.2
"""The onset is dated by low scores, so the rest seems to fall a little: not counted below this part of the fall."""
_STRAY = 0.1
"""Outside a place, as a part of those inside: topics are found by similarity, so some answers are in the wrong one."""
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
        """Return whether only this slice fell, or the rest hardly, and its fall is most of the drop."""
        ours, theirs, apart = self.inside.contrast, self.rest.contrast, self.apart
        return (
            ours is not None
            and theirs is not None
            and apart is not None
            and ours.clear(alpha)
            and apart.clear(alpha)
            and theirs.interval(ALPHA)[1] < (ROOM if self.only else _HARDLY) * ours.value
            and self.share * ours.value >= CARRIED * drop.value
        )

    def sentence(self, words: Words, *, alone: bool) -> str:
        """Return a sentence about the slice; `alone` if it is the part that fell."""
        metric = self.inside.metric
        arrived = f"{self.name} appeared with the onset ({percent(self.share)} of the exchanges since)"
        if not alone:
            return f"{arrived}."
        if self.new:
            here, rest = words.mean(metric, self.inside.new), words.change(self.rest)
            return f"{arrived}: {metric} is {here} there and {rest} in the rest."
        most = "Only" if self.only else "Mostly"
        return f"{most} {self.name} changed ({percent(self.share)} of the exchanges): {self.changes(words)}."


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


def elsewhere(
    place: Split, has: Callable[[Observation], bool]
) -> Literal["none", "worse", "hardly worse", "as before", "unclear"]:
    """Return how the answers outside a place that have what came with the onset did, compared with those before."""
    inside, outside = (
        [observation for observation in part.since if has(observation)] for part in (place.inside, place.rest)
    )
    if len(outside) <= _STRAY * len(inside):
        return "none"
    ours, theirs = place.inside.contrast, compare(place.rest.metric, place.rest.before, outside)
    room = theirs.at_most(ALPHA) / ours.value if ours is not None else math.inf
    if theirs.clear(ALPHA):
        return "hardly worse" if room < _HARDLY else "worse"
    return "unclear" if room >= ROOM else "as before" if place.only else "hardly worse"


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

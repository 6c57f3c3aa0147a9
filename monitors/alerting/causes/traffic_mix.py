"""Whether other questions are asked: the drop disappears when the strata have the shares they had before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from monitors.alerting.causes.observations import Explanation, Fall, Observation, Words, percent, values_of
from monitors.records import Cause
from monitors.statistics.decomposition import LEAST_N_EFF, Decomposition, Group, Grouped, decompose
from monitors.statistics.weighted_mean import Estimate

CARRIED, PARTLY = 0.6, 0.3
"""The share of a drop that an explanation must carry, and the one from which it keeps others from being named."""
MAX_KEYS, MAX_VALUES = 30, 20
NONE, REST = "none", "rest"
_NEW, _LARGE = 0.05, 0.1
_VERSION = re.compile(
    r"(^|[^a-z])(model|prompt|version|ver|release|revision|rev|build|commit|sha|deploy\w*|canary|variant|experiment"
    r"|index|retriever|pipeline)($|[^a-z])",
    re.IGNORECASE,
)


def is_version(key: str) -> bool:
    """Whether the app's owner decides about this stratum, not those who ask: a new value is a change, not a mix.

    >>> [is_version(key) for key in ("model", "tag:app_version", "tag:tenant", "topic", "tag:conversation")]
    [True, True, False, False, False]
    """
    return _VERSION.search(key) is not None


def slice_name(key: str, value: str) -> str:
    """How a slice is written.

    >>> slice_name("tag:tenant", "a"), slice_name("topic", "topic:refund, invoice")
    ('tag:tenant=a', 'topic=refund, invoice')
    """
    return f"{key}={value.removeprefix('topic:') if key == 'topic' else value}"


def keys_of(observations: Iterable[Observation]) -> list[str]:
    """The strata there are, those of the app first; a key by which all exchanges are alike says nothing."""
    values: dict[str, set[str]] = {}
    count = 0
    seen: dict[str, int] = {}
    for one in observations:
        count += 1
        for key, value in one.strata.items():
            values.setdefault(key, set()).add(value)
            seen[key] = seen.get(key, 0) + 1
    several = [key for key in values if len(values[key]) > 1 or seen[key] < count]
    return sorted(several, key=lambda key: (not is_version(key), key == "topic", key))[:MAX_KEYS]


def value_of(one: Observation, key: str) -> str:
    """The value of a stratum, `NONE` where the exchange has none."""
    return one.strata.get(key, NONE)


def labelled(scores: Sequence[Observation], key: str) -> Sequence[Observation]:
    """The scores to look at by this key: topics may be known of some exchanges only, and those stand for all."""
    return [one for one in scores if key in one.strata] if key == "topic" else scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The drop split by one key."""

    key: str
    parts: Decomposition
    named: Mapping[str, Group]

    @property
    def carried(self) -> float:
        """The share of the drop that is mix."""
        return self.parts.mix.value / self.parts.total.value

    def explains(self, alpha: float) -> bool:
        """Whether the mix clearly changed the mean, by most of the drop, and the rest of it may be chance."""
        return (
            self.parts.mix.clear(alpha)
            and self.carried >= CARRIED
            and not self.parts.within.clear(alpha)
            and self.parts.total.value > 0.0
        )

    def matters(self, alpha: float) -> bool:
        """Whether the mix is clearly a part of the drop that nothing else may be blamed for."""
        return self.parts.mix.clear(alpha) and self.carried >= PARTLY and self.parts.total.value > 0.0


def shifted(drop: Fall, keys: Sequence[str], alpha: float, words: Words) -> Explanation | None:
    """The key whose old mix removes the drop best, the app's own strata before topics found in the questions.

    Where it removes a part of it only, the cause is "unknown": what is left cannot be told from strata that are too
    coarse (topics found in the questions never quite are what makes them hard).
    """
    found = [shift for key in keys if (shift := shift_of(key, drop)) is not None and shift.matters(alpha)]
    if not found:
        return None
    best = min(
        found,
        key=lambda shift: (not shift.explains(alpha), shift.key == "topic", -min(1.0, shift.carried), -_z(shift)),
    )
    return _told(best, drop, "traffic_mix" if best.explains(alpha) else "unknown", words)


def shift_of(key: str, drop: Fall) -> Shift | None:
    """Split the drop by one key; None when it cannot be, or when a new version of the app is behind the shares."""
    before, since = labelled(drop.before, key), labelled(drop.since, key)
    old, new = ([value_of(one, key) for one in side] for side in (before, since))
    names = _names(old, new)
    index = {name: number for number, name in enumerate(names)}
    groups = [[index.get(value, index[REST]) for value in side] for side in (old, new)]
    sides = [
        Grouped(values=values_of(side), rates=[one.rate for one in side], groups=members)
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


def _names(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """The values that stand alone, the commonest first; all others are pooled.

    Those with enough scores since, and large ones that are gone: pooled, they would look like a change of the rest.
    """
    before, since = Counter(old), Counter(new)
    alone = [
        value
        for value in before | since
        if since[value] >= LEAST_N_EFF or before[value] >= max(LEAST_N_EFF, _LARGE * len(old))
    ]
    return [*sorted(alone, key=lambda value: (-before[value] - since[value], value))[:MAX_VALUES], REST]


def _told(shift: Shift, drop: Fall, cause: Cause, words: Words) -> Explanation:
    """The explanation, with the value whose share did most of it."""
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
    """How far the change of its share alone lowers the mean."""
    known = group.since or group.before
    return (group.share_since - group.share_before) * (overall - known.mean) if known is not None else 0.0


def _z(shift: Shift) -> float:
    return shift.parts.mix.value / max(shift.parts.mix.se, 1e-12)

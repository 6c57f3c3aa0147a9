"""Versions in the traffic: which models, prompts and tags each app used, and since when. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gaugeway.records import PROMPT_SCHEME, same_scheme
from gaugeway.storage.stores import Point

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

"""Passages that are the same in all requests of a kind, while others vary: they are text of the prompt."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from gaugeway.prompts.learning.tokens import salted
from gaugeway.records import Context

MOST_KINDS = 1_000
"""Kinds of request whose passages are compared."""
_LEAST_REQUESTS = 5
_LEAST_CHANGES = 3


@dataclass(slots=True)
class _Seen:
    common: set[int] = field(default_factory=set)
    """Hashes of what stood in each of the last `requests` requests."""
    last: set[int] = field(default_factory=set)
    requests: int = 0
    changes: int = 0


class ConstantPassages:
    """Compares the passages of the requests of each kind; holds hashes of them. Not thread-safe; memory is bounded."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    def without(self, kind: tuple[str, str], contexts: tuple[Context, ...]) -> tuple[Context, ...]:
        """Return the passages without those that each of the last requests had too, all if the others never changed."""
        hashes = [salted(context.text) for context in contexts]
        seen = self._kinds.setdefault(kind, _Seen())
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        now = set(hashes)
        if not seen.common & now:
            self._kinds[kind] = _Seen(now, now, 1)
            return contexts
        seen.common &= now
        seen.changes += now != seen.last
        seen.requests += 1
        seen.last = now
        if seen.requests < _LEAST_REQUESTS or seen.changes < _LEAST_CHANGES or seen.common == now:
            return contexts
        return tuple(context for context, key in zip(contexts, hashes, strict=True) if key not in seen.common)

"""Finds constant text that an alignment missed: tokens next to a constant run in each of several requests."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

_REACH = 64
"""Most tokens compared on either side of a run."""
ENOUGH = 4
"""Requests in which they must be the same."""


@dataclass(slots=True)
class Gap:
    """The tokens shared so far by the contents of a slot, at both of its ends."""

    before: array[int]
    behind: array[int]
    kinds_before: bytearray
    kinds_behind: bytearray
    shortest: int
    longest: int

    def narrow(self, tokens: Sequence[int]) -> None:
        """Keep only the tokens that another content shares."""
        self.shortest = min(self.shortest, len(tokens))
        self.longest = max(self.longest, len(tokens))
        del self.before[_common(self.before, tokens) :]
        keep = _common(self.behind[::-1], tokens[::-1])
        del self.behind[: len(self.behind) - keep]


@dataclass(slots=True)
class Growth:
    """The gaps of a skeleton since it last changed."""

    gaps: list[Gap] = field(default_factory=list)
    requests: int = 0

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        return sum(300 + 4 * (len(one.before) + len(one.behind)) for one in self.gaps)

    def add(self, slots: list[tuple[array[int], bytearray]]) -> None:
        """Add the slots of one more request, as tokens and their kinds."""
        if not self.requests or len(slots) != len(self.gaps):
            self.requests = 0
            self.gaps = [
                Gap(tokens[:_REACH], tokens[-_REACH:], kinds[:_REACH], kinds[-_REACH:], len(tokens), len(tokens))
                for tokens, kinds in slots
            ]
        for gap, (tokens, _) in zip(self.gaps, slots, strict=True):
            gap.narrow(tokens)
        self.requests += 1

    def found(self) -> list[tuple[array[int], bytearray, array[int], bytearray]]:
        """Return for each gap the tokens that belong to the run before it and to the run after it, with their kinds."""
        said = []
        for gap in self.gaps:
            keep = len(gap.before)
            rest = min(len(gap.behind), gap.shortest - keep)
            start = len(gap.behind) - rest
            behind = gap.kinds_behind[len(gap.kinds_behind) - rest :]
            said.append((gap.before, gap.kinds_before[:keep], gap.behind[start:], behind))
        return said


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count

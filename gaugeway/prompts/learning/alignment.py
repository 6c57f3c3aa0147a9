"""Cuts texts into tokens and aligns their salted hashes: the heaviest common chain of short runs, in linear time."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from gaugeway.prompts.sizes import FEW

_SINGLE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words: each character is a token."""

_TOKEN = re.compile(rf"[{_SINGLE}]|[^\W\d_{_SINGLE}]+|\d+|\n|[ \t]+|-+|=+|#+|\*+|_+|\"+|'+|`+|~+|.", re.DOTALL)

MOST_TOKENS = 8_000
"""Most tokens compared per text: its first and last ones, where an app's instructions are."""
_WIDTH = 4
_ROUNDS = 2 * FEW
"""Rounds of searching the gaps between matches: a run that occurs twice in a text may be unique in a gap."""
Pair: TypeAlias = tuple[int, int]
Run: TypeAlias = tuple[int, ...]
BLANK, WORD, SIGN = 0, 1, 2


def salted(*said: object) -> int:
    """Return a hash that is meaningless outside this process: Python salts string hashes unless PYTHONHASHSEED is set.

    Those of single tokens, of which there are few, have a salt of their own (`hashes`).
    """
    return hash(said)


def spans(text: str) -> tuple[list[str], list[int]]:
    """Return the tokens of a text and where each begins, with the text's length as the last entry."""
    tokens = _TOKEN.findall(text)
    return tokens, [0, *accumulate(map(len, tokens))]


def bounded(tokens: list[str], most: int = MOST_TOKENS) -> tuple[list[str], int]:
    """Return at most `most` tokens, the first and the last, and the number left out in the middle."""
    if len(tokens) <= most:
        return tokens, 0
    half = most // 2
    return tokens[:half] + tokens[-half:], len(tokens) - 2 * half


def hashes(tokens: list[str], salt: int) -> array[int]:
    """Return 32 bits of each token's salted hash: enough to compare texts, too few to read one from."""
    return array("I", [hash((salt, token)) & 0xFFFFFFFF or 1 for token in tokens])


def kind_of(token: str) -> int:
    """Return BLANK, WORD, or SIGN (which includes numbers and line breaks)."""
    first = token[0]
    return WORD if first.isalpha() else BLANK if first in " \t" else SIGN


class Signs(NamedTuple):
    """The hashes of the marks in a frame: those between its texts, and the one between content parts.

    `width` hashes have to agree one behind the other before two places are taken for the same.
    """

    texts: frozenset[int]
    part: int
    width: int = _WIDTH


class Side(Struct, frozen=True):
    """A sequence: hashes, their kinds, and the breaks, where tokens are missing; no match spans a break."""

    tokens: Sequence[int]
    kinds: Sequence[int]
    breaks: AbstractSet[int]

    def part(self, start: int, end: int) -> Side:
        """Return the sequence from `start` to `end`."""
        breaks = {index - start for index in self.breaks if start < index < end}
        return Side(self.tokens[start:end], self.kinds[start:end], breaks)


def align(one: Side, other: Side, signs: Signs, shared: AbstractSet[Run] | None = None) -> list[Pair]:
    """Return the pairs of matching indices, increasing in both sequences.

    Text is compared with text: the marks between them match, or nothing does. Places that occur once in both decide,
    and the first and the last of those that occur more than once: as a rule the template's own words stand before and
    after what was put in. With `shared` no other runs than these count.
    """
    marks_one = [index for index, token in enumerate(one.tokens) if token in signs.texts]
    marks_other = [index for index, token in enumerate(other.tokens) if token in signs.texts]
    if not marks_one or [one.tokens[at] for at in marks_one] != [other.tokens[at] for at in marks_other]:
        return []
    matched: list[Pair] = []
    for (i, j), (next_i, next_j) in pairwise(zip(marks_one, marks_other, strict=True)):
        # The mark before and the mark behind belong to it: a label right behind a mark is a run of its own.
        text = _Text(one.part(i, next_i + 1), other.part(j, next_j + 1), signs, shared)
        matched += [(i + k, j + m) for k, m in text.aligned() if k < next_i - i]
    return [*matched, (marks_one[-1], marks_other[-1])]


def runs_in(tokens: Sequence[int]) -> Iterator[Run]:
    """Yield the runs by which a sequence is aligned, by position."""
    return zip(*(tokens[offset:] for offset in range(_WIDTH)), strict=False)


def runs_of(tokens: Sequence[int]) -> Counter[Run]:
    """Return the runs by which a sequence is aligned, and how often each occurs."""
    return Counter(runs_in(tokens))


def is_structural(kinds: Sequence[int], place: int) -> bool:
    """Whether the run at a position has signs rather than words."""
    return bytes(kinds[place : place + _WIDTH]).count(SIGN) > 1


class _Text(Struct, frozen=True):
    """One text on both sides, with the marks around it."""

    one: Side
    other: Side
    signs: Signs
    shared: AbstractSet[Run] | None

    def aligned(self) -> list[Pair]:
        width = self.signs.width
        last = (len(self.one.tokens) - 1, len(self.other.tokens) - 1)
        matched = [(0, 0), last]
        for _ in range(_ROUNDS):
            found = [matched[0]]
            for low, high in pairwise(self._extended(matched)):
                if high[0] - low[0] > width and high[1] - low[1] > width:
                    found += self._between(low, high)
                found.append(high)
            if len(found) == len(matched):
                break
            matched = found
        return matched

    def _between(self, low: Pair, high: Pair) -> list[Pair]:
        """Return the matches between two others: runs that occur once there in both, else a first or a last one."""
        left = self._places(self.one, low[0] + 1, high[0])
        right = self._places(self.other, low[1] + 1, high[1])
        both = left.keys() & right.keys()
        common = [(left[run], right[run]) for run in both if self.shared is None or run in self.shared]
        pairs = [(a[0], b[0]) for a, b in common if a[0] == a[1] and b[0] == b[1]]
        if not pairs:
            common = [(a, b) for a, b in common if is_structural(self.one.kinds, a[0])]
            pairs = [(a[0], b[0]) for a, b in common] + [(a[1], b[1]) for a, b in common]
        pairs.sort(key=lambda pair: (pair[0], -pair[1]))
        return self._spread(_chain(pairs, self.one.kinds))

    def _places(self, side: Side, start: int, end: int) -> dict[Run, Pair]:
        """Return the first and last place of each run of a fixed width; runs that would span a break are left out."""
        width = self.signs.width
        found: dict[Run, Pair] = {}
        barred = {index - back for index in side.breaks for back in range(1, width)}
        runs = zip(*(side.tokens[start + offset : end] for offset in range(width)), strict=False)
        for place, run in enumerate(runs, start):
            if place not in barred:
                known = found.get(run)
                found[run] = (place, place) if known is None else (known[0], place)
        return found

    def _spread(self, chain: list[Pair]) -> list[Pair]:
        matched: list[Pair] = []
        last_i = last_j = -1
        for i, j in chain:
            for offset in range(self.signs.width):
                if i + offset > last_i and j + offset > last_j:
                    last_i, last_j = i + offset, j + offset
                    matched.append((last_i, last_j))
        return matched

    def _extended(self, matched: list[Pair]) -> list[Pair]:
        """Extend each match into the gaps around it, up to the next break: short common text has no run of its own."""
        one, other, breaks = self.one.tokens, self.other.tokens, self.one.breaks
        whole: list[Pair] = [matched[0]]
        for (i, j), (next_i, next_j) in pairwise(matched):
            low_i, low_j, high_i, high_j = i + 1, j + 1, next_i, next_j
            while low_i < high_i and low_j < high_j and one[low_i] == other[low_j] and low_i not in breaks:
                whole.append((low_i, low_j))
                low_i, low_j = low_i + 1, low_j + 1
            tail = [(high_i, high_j)]
            while low_i < high_i and low_j < high_j and one[high_i - 1] == other[high_j - 1] and high_i not in breaks:
                high_i, high_j = high_i - 1, high_j - 1
                tail.append((high_i, high_j))
            whole += tail[::-1]
        return whole


def _chain(pairs: list[Pair], kinds: Sequence[int]) -> list[Pair]:
    """Return the heaviest increasing subsequence. Signs weigh more than words: they belong to the prompt."""
    ranks = {j: rank for rank, j in enumerate(sorted({j for _, j in pairs}), 1)}
    tree = [(0, -1)] * (len(ranks) + 1)
    before: list[int] = []
    best = (0, -1)
    for index, (i, j) in enumerate(pairs):
        rank = ranks[j] - 1
        under = (0, -1)
        while rank:
            under = max(under, tree[rank])
            rank &= rank - 1
        before.append(under[1])
        weight = under[0] + 1 + 2 * bytes(kinds[i : i + _WIDTH]).count(SIGN), index
        best = max(best, weight)
        rank = ranks[j]
        while rank < len(tree):
            tree[rank] = max(tree[rank], weight)
            rank += rank & -rank
    chain = []
    index = best[1]
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]

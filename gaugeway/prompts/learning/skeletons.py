"""Skeletons: the tokens that requests of the same prompt share, refined by each request; kept as hashes."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import combinations

from msgspec import Struct

from gaugeway.prompts.learning.alignment import (
    BLANK,
    MOST_TOKENS,
    WORD,
    Run,
    Side,
    Signs,
    align,
    bounded,
    hashes,
    is_structural,
    kind_of,
    runs_in,
    runs_of,
    spans,
)
from gaugeway.prompts.learning.frames import END, PART, SYSTEM, USER
from gaugeway.prompts.learning.outline import Outline, Strength, outline
from gaugeway.prompts.sizes import FEW, OBJECT, SEVERAL

_WAITING = SEVERAL
"""Most requests held without a skeleton."""
_ALIKE = 4
"""Similar requests that make a skeleton; `_FEWEST` when `_WAITING` are held."""
_FEWEST = 2
_SETTLED = SEVERAL
_LEAST_SHARED = 0.6
"""Share of a skeleton's words that a request must contain to belong to its prompt."""


class Reading(Struct):
    """A request as tokens: their hashes, kinds and offsets in its text."""

    text: str
    tokens: array[int]
    kinds: bytearray
    offsets: list[int]
    breaks: set[int]
    """Index of the token before which `shift` tokens were left out."""
    shift: int

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return start and end offsets of the tokens from `start` to `end` (exclusive)."""
        cut = min(self.breaks, default=end)
        first = start + self.shift if start >= cut else start
        last = end - 1 + self.shift if end - 1 >= cut else end - 1
        return self.offsets[first], self.offsets[last + 1]


def read(text: str, salt: int, most: int = MOST_TOKENS) -> Reading:
    """Tokenise a text; of more than `most` tokens the first and the last ones are kept."""
    every, offsets = spans(text)
    tokens, left_out = bounded(every, most)
    kinds = bytearray(map(kind_of, tokens))
    return Reading(text, hashes(tokens, salt), kinds, offsets, {len(tokens) // 2} if left_out else set(), left_out)


def signs_of(salt: int) -> Signs:
    """Return the hashes of the frame marks."""
    system, user, part, end = hashes([SYSTEM, USER, PART, END], salt)
    return Signs(frozenset((system, user, end)), part)


class Skeleton(Struct):
    """The tokens that all requests of a prompt share, in order, and before which of them text varies."""

    tokens: array[int]
    kinds: bytearray
    breaks: set[int] = set()
    seen: int = 1

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return len(self.tokens) * FEW + (len(self.breaks) + 2) * OBJECT

    def match(self, reading: Reading | Skeleton, signs: Signs, shared: set[Run] | None = None) -> list[tuple[int, int]]:
        """Return pairs of matching token positions (skeleton, request); `shared` are the runs others have too."""
        one = Side(self.tokens, self.kinds, self.breaks)
        return align(one, Side(reading.tokens, reading.kinds, set()), signs, shared or None)

    def weight(self, pairs: list[tuple[int, int]]) -> int:
        """Return how many words are among the matches."""
        return sum(self.kinds[i] == WORD for i, _ in pairs)

    @property
    def total(self) -> int:
        """How many words the skeleton has."""
        return self.kinds.count(WORD)

    @property
    def fixed(self) -> int:
        """How many words and signs it has."""
        return len(self.kinds) - self.kinds.count(BLANK)

    def refine(self, reading: Reading | Skeleton, pairs: list[tuple[int, int]]) -> bool:
        """Keep only the tokens the request has too. Return whether any were dropped."""
        breaks = set()
        last_i, last_j = -1, -1
        for index, (i, j) in enumerate(pairs):
            if index and (i != last_i + 1 or j != last_j + 1 or i in self.breaks or j in reading.breaks):
                breaks.add(index)
            last_i, last_j = i, j
        changed = len(pairs) != len(self.tokens) or breaks != self.breaks
        self.tokens = array("I", [self.tokens[i] for i, _ in pairs])
        self.kinds = bytearray(self.kinds[i] for i, _ in pairs)
        self.breaks = breaks
        self.seen += 1
        return changed

    def outline(self, reading: Reading, places: list[int], strength: Strength = "strong") -> Outline | None:
        """Return the request's text as literals and slots; `places` are where the skeleton's tokens stand in it."""
        runs = []
        start = 0
        for index in range(1, len(places) + 1):
            if index == len(places) or index in self.breaks:
                runs.append(reading.span(places[start], places[index - 1] + 1))
                start = index
        return outline(reading.text, runs, strength)


def skeleton_of(reading: Reading) -> Skeleton:
    """Return the skeleton of a single request: all of it."""
    return Skeleton(reading.tokens, reading.kinds, set(reading.breaks))


class UnmatchedRequests(Struct):
    """Requests that match no skeleton yet; the most similar ones form a new skeleton."""

    readings: list[Skeleton] = []

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return sum(reading.size for reading in self.readings)

    def add(self, reading: Reading, signs: Signs) -> Skeleton | None:
        """Hold a request. Return a new skeleton when several held requests are similar.

        Not of the first two that share some words: two prompts of one app may begin with the same sentence, and two
        requests may share a passage. What several have counts.
        """
        self.readings.append(skeleton_of(reading))
        if len(self.readings) < _ALIKE:
            return None
        alike, shared = self._alike()
        if len(alike) < _ALIKE and len(self.readings) < _WAITING:
            return None
        if len(alike) < _FEWEST:
            self.readings.pop(0)
            return None
        made, *others = alike
        self.readings = [reading for reading in self.readings if not any(reading is other for other in alike)]
        for other in others:
            pairs = made.match(other, signs, shared)
            if made.weight(pairs):
                made.refine(other, pairs)
        return made

    def _alike(self) -> tuple[list[Skeleton], set[Run]]:
        """Return the largest group of requests that share runs as the two that share most do, and what all share."""
        every: list[Counter[Run]] = [runs_of(reading.tokens) for reading in self.readings]
        pairs = {(i, j): len(every[i].keys() & every[j].keys()) for i, j in combinations(range(len(every)), 2)}
        best: list[int] = [0]
        for i in range(len(every)):
            share = {j: pairs[min(i, j), max(i, j)] for j in range(len(every)) if j != i}
            most = sorted(share.values())[-min(2, len(share))]
            group = [i, *(j for j, count in share.items() if count and count >= most / 2)]
            if len(group) > len(best):
                best = group
        first = every[best[0]] if len(best) > _FEWEST else Counter()
        kinds = self.readings[best[0]].kinds
        structural = {
            run for place, run in enumerate(runs_in(self.readings[best[0]].tokens)) if is_structural(kinds, place)
        }
        # Words of a passage recur by chance; a label occurs once per item.
        shared = {
            run
            for run, count in first.items()
            if all(every[i][run] == count or (every[i][run] and run in structural) for i in best)
        }
        return [self.readings[i] for i in best], shared


def fits(skeleton: Skeleton, pairs: list[tuple[int, int]]) -> bool:
    """Whether a request with these matches belongs to the skeleton's prompt."""
    share = _LEAST_SHARED if skeleton.seen >= _SETTLED else _LEAST_SHARED / 2  # some passages are shared at first
    return bool(pairs) and skeleton.weight(pairs) >= max(1, share * skeleton.total)

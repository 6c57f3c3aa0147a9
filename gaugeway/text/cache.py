"""Keeps what was computed from a text alone, for texts that recur: passages and instructions."""

from __future__ import annotations

from sys import getsizeof
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_CACHED_BYTES = 2 * 1024 * 1024
"""Of memory for the texts in each of a cache's two generations. What is kept of a text is at most about as large; most
caches are of the same texts and share them."""
LONGEST_CACHED = 32_768
"""Characters of a text that is kept."""
_ENTRY = 500
"""Bytes of an entry beside its text, about."""


class TextCache(Generic[T]):
    """Maps texts to values in two generations: when the newer one is full, the older one is dropped.

    A value must be a function of its text alone, whoever sent it: all apps share the cache. None is no value.
    """

    __slots__ = ("_before", "_recent", "_size")

    def __init__(self) -> None:
        self._recent: dict[str, T] = {}
        self._before: dict[str, T] = {}
        self._size = 0

    def __len__(self) -> int:
        """The number of texts."""
        return len(self._recent) + len(self._before)

    def get(self, text: str) -> T | None:
        """Return the value of a text, if it is known."""
        found = self._recent.get(text)
        if found is None and (found := self._before.pop(text, None)) is not None:
            self.put(text, found)
        return found

    def put(self, text: str, value: T) -> None:
        """Keep the value of a text, unless the text is too long."""
        if len(text) > LONGEST_CACHED:
            return
        self._size += getsizeof(text) + _ENTRY
        if self._size > MAX_CACHED_BYTES:
            self._recent, self._before, self._size = {}, self._recent, getsizeof(text) + _ENTRY
        self._recent[text] = value

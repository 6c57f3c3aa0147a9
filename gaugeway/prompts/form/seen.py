"""A message as the reader sees it: its text by form, the words that name parts of prompts, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

from gaugeway.prompts.form.text import Text
from gaugeway.prompts.form.word_index import IndexedText


@dataclass(slots=True)
class Seen:
    """A message's text with its words, and where it stands; `beside` are the system's texts."""

    text: Text
    words: IndexedText
    own: bool
    role: str
    beside: IndexedText
    _meta: dict[tuple[int, int], bool] = field(default_factory=dict)

    def is_meta(self, start: int, end: int) -> bool:
        """Whether a stretch instructs the model about its task."""
        found = self._meta.get((start, end))
        if found is None:
            found = self._meta[start, end] = self.words.is_meta(start, end)
        return found

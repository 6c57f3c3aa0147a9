"""The questions in earlier turns of the user, where the app put passages beside them and hands the prompt back.

A turn was the last one in an earlier exchange: what was found then is remembered, as a place in the text under the
interpreter's hash of it (64 bits, keyed by the process; it takes a third of the time of SHA-256). A turn that this
process did not see is read by the extractors that read prompts, alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from gaugeway.exchange import Request, Response
from gaugeway.prompts import Extraction, Extractor, name_of
from gaugeway.prompts.form.empty_place import may_be_prompt
from gaugeway.settings.bounds import MAX_HISTORY_TEXT

_READ_PROMPTS = ("templates", "patterns", "structure")
_NOT_FROM_PROMPTS = frozenset({"explicit", "tools", "results"})
_REMEMBERED = 4_096
"""Turns in each of two generations, together about 1 MB."""
_NOTHING = Response(status=200, body={})

_Place = tuple[int, int] | None


class EarlierQuestions:
    """Reduces earlier turns to their questions; turns without passages stay as they are."""

    def __init__(self, extractors: Sequence[Extractor] = ()) -> None:
        self._extractors = [one for one in extractors if name_of(one) in _READ_PROMPTS]
        self._places: dict[int, _Place] = {}
        self._places_before: dict[int, _Place] = {}

    def __len__(self) -> int:
        """The number of turns that are remembered."""
        return len(self._places) + len(self._places_before)

    def learn(self, turn: str, found: Extraction) -> None:
        """Remember what the extractors found in the last turn of an exchange."""
        if turn and found.source not in _NOT_FROM_PROMPTS:
            self._remember(hash(turn), None if found.source == "none" else _place(turn, found.question))

    def of(self, turn: str) -> str:
        """Return the question in an earlier turn, or the turn itself if it has no passages."""
        key = hash(turn)
        if key in self._places:
            place = self._places[key]
        elif key in self._places_before:
            place = self._places_before[key]
        elif len(turn) <= MAX_HISTORY_TEXT:
            place = self._read(turn) if may_be_prompt(turn) else None
            self._remember(key, place)
        else:
            return turn
        return turn if place is None else turn[place[0] : place[1]]

    def _read(self, turn: str) -> _Place:
        body = {"messages": [{"role": "user", "content": turn}]}
        request = Request(route="chat_completions", headers={}, body=body)
        for one in self._extractors:
            if (found := one.extract(request, _NOTHING)) is not None:
                return _place(turn, found.question)
        return None

    def _remember(self, key: int, place: _Place) -> None:
        if len(self._places) >= _REMEMBERED:
            self._places, self._places_before = {}, self._places
        self._places[key] = place


def _place(turn: str, question: str | None) -> _Place:
    """Where the question is in a turn; None where it is all of it, or not in it word for word."""
    start = turn.rfind(question) if question and len(question) < len(turn) else -1
    return None if start < 0 or question is None else (start, start + len(question))

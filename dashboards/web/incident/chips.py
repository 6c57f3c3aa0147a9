"""The active filters of Explore as chips, each with a link that removes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboards.web.incident.links import explore, fields_without, topic_words

FILTERS = ("app", "metric", "model", "prompt", "tag", "outcome", "text", "source", "topic", "session")
BOUNDS = {"above": "score above", "below": "score below", "least": "score from", "most": "score up to"}
"""The bounds of scores, and what their chips are called."""
_CLOSE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """An active filter: its name, its value in words, and the address of the selection without it."""

    name: str
    value: str
    url: str


def chips_of(given: Mapping[str, str]) -> list[Chip]:
    """The active filters of a selection; its time range and order are no filters."""
    kept = fields_without(given, "after")
    return [
        Chip(name=BOUNDS.get(name, name), value=_value(name, given[name]), url=explore(fields_without(kept, name)))
        for name in (*FILTERS, *BOUNDS)
        if given.get(name)
    ]


def _value(name: str, text: str) -> str:
    if name in ("least", "most"):
        return score_words(text)
    return topic_words(text) if name == "topic" else text


def score_words(text: str) -> str:
    """A bound of scores in words.

    >>> score_words("0.5"), score_words("0.749999999"), score_words("no number")
    ('0.5', 'just below 0.75', 'no number')
    """
    try:
        value = float(text)
    except ValueError:
        return text
    near = round(value, 4)
    if near == value or abs(near - value) > _CLOSE:
        return text
    return f"just {'below' if value < near else 'above'} {near:g}"

"""The active filters of Explore as chips, each with a link that removes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboards.web.incident.links import explore, fields_without, topic_words

NAMES = {
    "app": "app",
    "metric": "metric",
    "model": "model",
    "prompt": "prompt",
    "tag": "tag",
    "outcome": "outcome",
    "text": "text",
    "source": "source",
    "topic": "topic",
    "session": "session",
}
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
    found = [
        Chip(
            name=words,
            value=topic_words(given[name]) if name == "topic" else given[name],
            url=explore(fields_without(kept, name)),
        )
        for name, words in NAMES.items()
        if given.get(name)
    ]
    found += [
        Chip(name=f"score {name}", value=given[name], url=explore(fields_without(kept, name)))
        for name in ("above", "below")
        if given.get(name)
    ]
    least, most = given.get("least", ""), given.get("most", "")
    if least:
        found.append(Chip(name="score from", value=score_words(least), url=explore(fields_without(kept, "least"))))
    if most:
        found.append(Chip(name="score up to", value=score_words(most), url=explore(fields_without(kept, "most"))))
    return found


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

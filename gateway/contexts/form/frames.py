"""Finds frames: places where two or more records begin with one shape, one behind the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gateway.contexts.form.lines import Line

_TAG = re.compile(r"<(?P<slash>/?)(?P<name>[^\W\d][\w.:-]{0,40})(?P<attributes>(?:\s[^<>]{0,600})?)(?P<empty>/?)>")
_MARKS = "[] 【】 == -- ** <> «« «» 「」 * _ […] (…) 【…】 #. #) (#)"
_GENERIC = {*_MARKS.split(), *(f"item {sign}" for sign in "-*•>")}
"""Marks that passages have, too: they make a frame only where they stand equally far in."""
_PAGE = re.compile(r"<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_BEGINNING = 2_000
MOST_TAGS = 2_000
MOST_RECORDS = 400
_CHAINS = 12


class Frame(NamedTuple):
    """Where records begin. `kind` is the mark's kind; `lines` are the indexes of the marks' lines."""

    kind: str
    key: str
    lines: tuple[int, ...]
    counted: bool


class Element(NamedTuple):
    """A tag's element: its name, and the offsets of the whole and of what is inside."""

    name: str
    start: int
    end: int
    inner: int
    inner_end: int


def frames_of(lines: Sequence[Line]) -> list[Frame]:
    """Return the frames of lines, in the order in which they begin; of marks that alternate, the first alone."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        for key in line.keys:
            plain = key in _GENERIC or key.strip("#") == ""
            groups[key, line.indent if plain else -1].append(index)
    found = [frame for (key, _), places in groups.items() for frame in _runs(key, places, lines)]
    found.sort(key=lambda one: (one.lines[0], -len(one.lines)))
    return _not_led(found)


def _runs(key: str, places: list[int], lines: Sequence[Line]) -> Iterator[Frame]:
    kind = lines[places[0]].kind
    if "#" in key and key.strip("#") and lines[places[0]].number is not None:
        left = places
        for _ in range(_CHAINS):
            if not left:
                break
            run = [left[0]]
            for place in left[1:]:
                if lines[place].number == (lines[run[-1]].number or 0) + 1:
                    run.append(place)
            yield Frame(kind, key, tuple(run[:MOST_RECORDS]), counted=True)
            if len(run) == len(places):
                return
            taken = set(run)
            left = [place for place in left if place not in taken]
        if key[0] in "#(" or key.startswith(("item", "~#", "~(")):
            return
    if len(places) > 1 and kind not in ("rule", "close"):
        yield Frame(kind, key, tuple(places[:MOST_RECORDS]), counted=False)


def _not_led(found: list[Frame]) -> list[Frame]:
    """Leave out a frame whose every mark stands in one record each of another frame that begins before it."""
    kept: list[Frame] = []
    for one in found:
        if not any(_leads(other, one) for other in kept):
            kept.append(one)
    return kept


def _leads(first: Frame, then: Frame) -> bool:
    if len(first.lines) != len(then.lines) or len(first.lines) < 2:  # noqa: PLR2004 - one mark leads nothing
        return False
    ends = (*first.lines[1:], then.lines[-1] + 1)
    return all(a <= b < end for a, b, end in zip(first.lines, then.lines, ends, strict=True))


def elements_of(text: str) -> list[Element]:
    """Return the elements of tags that are closed, in the order in which they begin."""
    if "</" not in text or _PAGE.search(text, 0, _BEGINNING):
        return []
    open_tags: dict[str, list[re.Match[str]]] = defaultdict(list)
    found: list[Element] = []
    tags = list(islice(_TAG.finditer(text), MOST_TAGS))
    closed_again: list[bool] = []
    behind: dict[str, str] = {}
    for tag in reversed(tags):
        closed_again.append(bool(behind.get(tag["name"])))
        behind[tag["name"]] = tag["slash"]
    for tag, again in zip(tags, reversed(closed_again), strict=True):
        name = tag["name"]
        if tag["slash"] and again and len(open_tags[name]) == 1:
            continue  # a passage says so: the last of several ends it
        if tag["empty"]:
            continue
        if not tag["slash"]:
            open_tags[name].append(tag)
        elif open_tags[name]:
            opening = open_tags[name].pop()
            found.append(Element(name, opening.start(), tag.end(), opening.end(), tag.start()))
    return sorted(found, key=lambda one: (one.start, -one.end))

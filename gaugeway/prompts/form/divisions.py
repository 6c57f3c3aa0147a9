"""Every way in which the form of a text divides it into passages, for callers with more evidence than one text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from gaugeway.prompts.form.candidates import contexts, divisions_of
from gaugeway.prompts.form.frames import MOST_RECORDS
from gaugeway.prompts.form.records import passages
from gaugeway.prompts.form.text import Block, Text
from gaugeway.records import Context

NAMES = ("data", "tag", "fence", "numbered", "records", "rule", "blank-line", "lines", "inline", "whole")
"""The ways to divide a text, as a configuration may name them."""
_CERTAIN = {"data": 1.0, "tag": 1.0, "fence": 0.95, "numbered": 0.9, "rule": 0.85, "blank-line": 0.65, "lines": 0.6}
_OTHERWISE = 0.8
_SAID = {"counted": "numbered", "blank": "blank-line"}
_ITSELF = ("data", "part", "fence", "rule", "blank", "lines", "whole")
_FORMER = {"objects": "data", "bullets": "records:item -"}
_RECORDS = ("headed", "pairs", "named", "records", "numbered")
_INLINE = re.compile(r"(?<=\S) (?:[|/*#•~+-]{1,3}|<sep>) (?=\S)")
_NAME = re.compile(r"\s*<([\w:.-]{1,40})")
_GAP = "\n\n"


class Division(NamedTuple):
    """Passages in order, the way they were separated, and how certain that is, in (0, 1]."""

    name: str
    items: tuple[Context, ...]
    certain: float


def divisions(region: str) -> Iterator[Division]:
    """Yield each way to divide a text of passages and nothing else, the most explicit form first."""
    text = Text.of(region.strip("\n"))
    if "\n" not in text.raw:
        for sign, _ in Counter(_INLINE.findall(text.raw)).most_common(1):
            items = tuple(Context(text=one.strip()) for one in text.raw.split(sign, MOST_RECORDS) if one.strip())
            yield Division(f"inline:{sign}", items, _OTHERWISE)
    for block in divisions_of(text):
        if found := tuple(contexts(text, block)):
            name = _name_of(text, block)
            yield Division(name, found, _CERTAIN.get(name.partition(":")[0], _OTHERWISE))


def divided_as(region: str, name: str) -> Division | None:
    """Divide a text as an earlier one was, or as the configuration says; None where it has not that form."""
    text = Text.of(region.strip("\n"))
    kind, _, key = (name := _FORMER.get(name, name)).partition(":")
    if kind == "inline":
        items = tuple(Context(text=one.strip()) for one in text.raw.split(key or " | ", MOST_RECORDS) if one.strip())
        return Division(name, items, 1.0) if items else None
    for block in divisions_of(text, key if kind in ("numbered", "records") else ""):
        said = _name_of(text, block)
        same = said == name or said.partition(":")[0] == name or (kind == "rule" and block.split == "rule")
        if (same or (block.frame is not None and kind in _RECORDS)) and (found := tuple(contexts(text, block))):
            return Division(name, found, 1.0)
    if kind in ("numbered", "records") and key and "#" not in key:
        return divided_as(region, kind)  # earlier versions exported keys that are no shape of a line
    return None


def without_metadata(texts: Sequence[str]) -> list[Context]:
    """Return passages without the titles, sources and fields that all of them begin or end with."""
    ends = list(accumulate(len(one) + len(_GAP) for one in texts))
    spans = [(end - len(_GAP) - len(one), end - len(_GAP)) for one, end in zip(texts, ends, strict=True)]
    raw = _GAP.join(texts)
    return [one.context(raw) for one in passages(raw, spans, (0,) * len(spans))]


def _name_of(text: Text, block: Block) -> str:
    if block.split in _ITSELF:
        return _SAID.get(block.split, block.split)
    if block.split == "tag":
        found = _NAME.match(text.raw, block.start)
        return f"tag:{found[1]}" if found is not None else "tag"
    key = "" if block.frame is None else block.frame.key
    return f"{'numbered' if block.split == 'counted' else 'records'}:{key}"

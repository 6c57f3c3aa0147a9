"""Divides a text that is known to hold passages and nothing else, such as a tool's result."""

from __future__ import annotations

import re

from gaugeway.prompts.form.candidates import contexts, framed, siblings
from gaugeway.prompts.form.frames import Frame, frames_of
from gaugeway.prompts.form.text import Block, Text
from gaugeway.records import Context

_INTRODUCTION = 300
_SHORTEST = 15
_TWO = 2
_SURE = ("counted", "tag")
_NUMBER = re.compile(r"\d+")
_BARE = ("#.", "#)", "item -", "item *", "item •", "~#")


def records_in(text: str, *, plain: bool = True) -> list[Context] | None:
    """Return the passages of two or more records that the whole text consists of, after a line at most; else None.

    Of several frames the counted one that begins first is taken. `plain`: also of a list with mere numbers (`1.`),
    which the steps of a manual have as well; behind a line only if that names how many there are.
    """
    read = Text.of(text.strip())
    raw = read.raw
    best: tuple[tuple[bool, int], list[Context]] | None = None
    for block in _blocks(read):
        said = raw[: block.start].strip()
        if len(said) > _INTRODUCTION or "\n" in said:
            continue
        if block.frame is not None and block.frame.key in _BARE and not (plain and _is_told(block, said)):
            continue
        if block.split not in _SURE and not _is_even(raw, block, said):
            continue
        rank = (block.split in _SURE, -block.start)
        if best is not None and rank <= best[0]:
            continue
        found = contexts(read, block)
        if len(found) == len(block.spans) and min(len(one.text) for one in found) >= _SHORTEST:
            best = rank, found
    return None if best is None else best[1]


def _is_told(block: Block, said: str) -> bool:
    """Whether nothing stands before a plain list but how many entries it has."""
    return not said or str(len(block.spans)) in _NUMBER.findall(said)


def _is_even(raw: str, block: Block, said: str) -> bool:
    """Whether uncounted records are all there is: nothing stands before them, the last one has no more paragraphs."""
    gaps = [raw.count("\n\n", start, end) for start, end in block.spans]
    return (not said or said.endswith((":", "："))) and gaps[-1] <= max(gaps[:-1])


def _is_only(frame: Frame, text: Text) -> bool:
    """Whether a plain list has no list inside: a manual's steps have the same numbers."""
    return sum(frame.key in line.keys for line in text.lines) == len(frame.lines)


def _blocks(text: Text) -> list[Block]:
    found = [block for block in siblings(text) if not text.raw[block.end :].strip()]
    for frame in frames_of(text.lines):
        bare = frame.key in _BARE
        if len(frame.lines) < _TWO or frame.key.strip("#") == "":
            continue  # a heading stays with its text
        if not bare or (frame.counted and frame.lines[0] <= 1 and _is_only(frame, text)):
            found.append(framed(text, text.lines, frame, len(text.raw), None))
    return found

"""Divides a text that is known to hold passages and nothing else, such as a tool's result."""

from __future__ import annotations

from gateway.contexts.form.candidates import Block, Text, contexts, framed, siblings
from gateway.contexts.form.frames import Frame, frames_of
from monitors.records import Context

_INTRODUCTION = 300
_SHORTEST = 15
_TWO = 2
_BARE = ("#.", "#)", "item -", "item *", "item •", "~#")


def records_in(text: str) -> list[Context] | None:
    """Return the passages of two or more records that the whole text consists of, after a line at most; else None.

    Of several frames the counted one that begins first is taken.
    """
    read = Text.of(text.strip())
    raw = read.raw
    best: tuple[tuple[bool, int], list[Context]] | None = None
    for block in _blocks(read):
        if block.start > _INTRODUCTION or raw[: block.start].strip().count("\n") > 1:
            continue
        rank = (block.split in ("counted", "tag"), -block.start)
        if best is not None and rank <= best[0]:
            continue
        found = contexts(read, block)
        if len(found) == len(block.spans) and min(len(one.text) for one in found) >= _SHORTEST:
            best = rank, found
    return None if best is None else best[1]


def _is_only(frame: Frame, text: Text) -> bool:
    """Whether a plain list has no list inside: a manual's steps have the same numbers."""
    return sum(frame.key in line.keys for line in text.lines) == len(frame.lines)


def _blocks(text: Text) -> list[Block]:
    found = [block for block in siblings(text) if not text.raw[block.end :].strip()]
    for frame in frames_of(text.lines):
        bare = frame.key in _BARE
        if len(frame.lines) < _TWO or frame.key.strip("#") == "":
            continue  # a heading stays with its text
        if not bare or (frame.counted and frame.lines[0] == 0 and _is_only(frame, text)):
            found.append(framed(text, text.lines, frame, len(text.raw), None))
    return found

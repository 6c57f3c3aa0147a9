"""What differs between the instructions of two prompt versions, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Literal

from gaugeway.records import Sample
from gaugeway.storage.stores import Query, Store

MAX_LINES, MAX_LINE = 400, 500
"""Lines of a version's instructions that are compared, and characters of a line that are shown."""
_LOOKED_AT = 60
"""Newest scores of a version; of an exchange may be a dozen, and some store no instructions."""
_CONTEXT = 2
_KINDS: dict[str, Literal["added", "removed", "same", "gap"]] = {"+": "added", "-": "removed", " ": "same", "@": "gap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of version B that A lacks ("added"), the reverse, a line of both beside one, or a gap between these."""

    kind: Literal["added", "removed", "same", "gap"]
    text: str


async def prompt_change(store: Store, query: Query, a: str, b: str) -> Sequence[DiffLine] | None:
    """Compare the instructions of each version's newest exchange that stores them; None if a version has none."""
    old, new = await _instructions(store, query, a), await _instructions(store, query, b)
    if not old or not new:
        return None
    lines = list(unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]
    return [DiffLine(kind=_KINDS[line[0]], text="" if line[0] == "@" else line[1:][:MAX_LINE]) for line in lines]


async def _instructions(store: Store, query: Query, version: str) -> Sequence[str]:
    newest = replace(query, prompt=version, order="newest", limit=_LOOKED_AT)
    ids = dict.fromkeys(point.sample_id for point in await store.series(newest))
    stored = await store.samples(list(ids))
    return next((lines for sample_id in ids if sample_id in stored and (lines := _lines(stored[sample_id]))), [])


def _lines(sample: Sample) -> Sequence[str]:
    parts = () if sample.capture is None else sample.capture.parts
    own = [part.text for part in parts if part.kind == "instructions" and part.passage is None]
    return [line.strip() for text in own for line in text.splitlines() if line.strip()][:MAX_LINES]

"""The instructions of two versions of a prompt, compared line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import unified_diff

from gaugeway.records import Sample
from gaugeway.storage.stores import Query, Store

MAX_LINES, MAX_LINE = 400, 500
"""Lines of a version's instructions that are compared, and characters of a line that are shown."""
_LOOKED_AT = 60
"""Newest scores of a version; of an exchange may be a dozen, and some store no instructions."""
_CONTEXT = 2


async def prompt_change(store: Store, query: Query, a: str, b: str) -> Sequence[str] | None:
    """Compare the instructions of each version's newest exchange that stores them; None if a version has none."""
    old, new = await newest_prompt(store, query, a), await newest_prompt(store, query, b)
    return changed_lines(old, new)


async def newest_prompt(store: Store, query: Query, version: str) -> Sample | None:
    """The newest exchange with a version of the prompt that stores its instructions."""
    newest = replace(query, prompt=version, order="newest", limit=_LOOKED_AT)
    ids = dict.fromkeys(point.sample_id for point in await store.series(newest))
    stored = await store.samples(list(ids))
    return next((stored[sample_id] for sample_id in ids if sample_id in stored and _lines(stored[sample_id])), None)


def changed_lines(old: Sample | None, new: Sample | None) -> Sequence[str] | None:
    """Compare the instructions of two exchanges; None if one is missing.

    Each line has a first character as in `diff`: "+" for a line of B that A lacks, "-" for the reverse, " " for one of
    both, "@" for a gap between these.
    """
    if old is None or new is None:
        return None
    changed = unified_diff(_lines(old), _lines(new), lineterm="", n=_CONTEXT)
    return [line[: 1 + MAX_LINE] for line in list(changed)[2:]]


def _lines(sample: Sample) -> Sequence[str]:
    parts = () if sample.capture is None else sample.capture.parts
    own = [part.text for part in parts if part.kind == "instructions" and part.passage is None]
    return [line.strip() for text in own for line in text.splitlines() if line.strip()][:MAX_LINES]

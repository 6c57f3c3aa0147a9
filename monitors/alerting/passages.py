"""Which documents exchanges got, and whether their answers contradict them: read for the cause of an alert."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from monitors.alerting.causes import Passages
from monitors.alerting.stream import usable
from monitors.records import Context, Evaluation, Score
from monitors.storage.stores import Point, Store

MAX_EXCHANGES = 200
"""Exchanges that are read on each side of an onset."""
MAX_READ_S = 20.0
AT_ONCE = 8
_CLAIMS = ("faithfulness", "hallucination")
_HASHED = "blake2b:"
_BEGINNING = 40
_log = logging.getLogger("gaugeway")


async def read_passages(
    store: Store, metric: str, sides: Sequence[Sequence[Point]], *, quote: bool
) -> Mapping[str, Passages]:
    """Return the passages of stored exchanges with a score of `metric`, by sample id; none if the store is too slow.

    Without `quote` documents are named by a hash.
    """
    ids = [one for side in sides for one in _chosen(metric, side)]
    gate = asyncio.Semaphore(AT_ONCE)

    async def read(one: str) -> tuple[str, Passages | None]:
        async with gate:
            stored = await store.sample(one)
        return one, None if stored is None else _passages(stored[0].contexts, stored[1], quote=quote)

    try:
        async with asyncio.timeout(MAX_READ_S):
            found = await asyncio.gather(*map(read, ids))
    except TimeoutError:
        _log.warning("reading the passages for the cause of a drop of %s timed out after %.0f s", metric, MAX_READ_S)
        return {}
    return {one: passages for one, passages in found if passages is not None}


def _chosen(metric: str, side: Iterable[Point]) -> list[str]:
    """Return ids in the order of a hash, a random part."""
    ids = {point.sample_id for point in side if point.metric == metric and usable(point)}
    return sorted(ids, key=lambda one: blake2b(one.encode(), digest_size=8).digest())[:MAX_EXCHANGES]


def _passages(contexts: Iterable[Context], evaluations: Iterable[Evaluation], *, quote: bool) -> Passages | None:
    names = frozenset(_name(one, quote=quote) for one in contexts if one.text.strip())
    return Passages(documents=names, contradicted=_contradicted(evaluations)) if names else None


def _contradicted(evaluations: Iterable[Evaluation]) -> bool | None:
    """Return whether the judge found a contradiction; None if it did not look for one."""
    found: bool | None = None
    for one in evaluations:
        if one.metric in _CLAIMS and isinstance(one.outcome, Score):
            pieces = one.outcome.evidence
            found = bool(found) or any(
                piece.get("verdict") == "contradicted" or piece.get("contradicted") is True for piece in pieces
            )
    return found


def _name(context: Context, *, quote: bool) -> str:
    """Return the source of a passage, or its id, or the beginning of its text."""
    named = context.source or context.id
    digest = blake2b((named or context.text).encode("utf-8", "replace"), digest_size=4).hexdigest()
    if not quote:
        return digest
    if named:
        return named
    text = " ".join(context.text.split())
    return digest if text.startswith(_HASHED) else f'"{text[:_BEGINNING]}…" ({digest})'

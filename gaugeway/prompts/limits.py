"""Limits on the number and size of the passages of one extraction."""

from __future__ import annotations

from collections.abc import Iterable

from gaugeway.prompts import Extraction
from gaugeway.records import Context
from gaugeway.settings import bounds
from gaugeway.settings.bounds import bounded_passage

MAX_PASSAGES = bounds.MAX_PASSAGES
MAX_BYTES = bounds.MAX_BYTES


def extraction(
    question: str | None,
    contexts: Iterable[Context],
    *,
    source: str,
    marker: str | None = None,
    confidence: float = 1.0,
    reason: str | None = None,
) -> Extraction:
    """Return an extraction with as many passages as the limits allow; the last one may be shortened.

    `contexts` is not read beyond that, unless it is a tuple.
    """
    if isinstance(contexts, list) and len(contexts) <= MAX_PASSAGES:
        contexts = tuple(contexts)
    bounded = bounds.bounded_passages(contexts) if isinstance(contexts, tuple) else map(bounded_passage, contexts)
    kept, cut = bounds.passages(bounded)
    return Extraction(
        question=(question or "").strip() or None,
        contexts=kept,
        source=source,
        marker=marker,
        cut=cut,
        confidence=confidence,
        reason=reason,
    )

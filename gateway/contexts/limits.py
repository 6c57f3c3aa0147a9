"""How much one extraction may take out of a request, whatever the app put into it."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.contexts import Extraction
from monitors.records import Context
from monitors.runtime import bounds
from monitors.runtime.bounds import bounded_passage

MAX_PASSAGES = bounds.MAX_PASSAGES
MAX_BYTES = bounds.MAX_BYTES


def extraction(
    question: str | None, contexts: Iterable[Context], *, source: str, marker: str | None = None
) -> Extraction:
    """Return the extraction with as many passages as the bounds allow; the one that crosses them is shortened.

    `contexts` is read no further than that.
    """
    kept, cut = bounds.passages(map(bounded_passage, contexts))
    return Extraction(question=(question or "").strip() or None, contexts=kept, source=source, marker=marker, cut=cut)

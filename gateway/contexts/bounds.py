"""How much one extraction may take out of a request, whatever the app put into it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gateway.contexts import Extraction
from monitors.records import Context

MAX_PASSAGES = 200
MAX_BYTES = 1_000_000
"""Of UTF-8, all passages together. No retriever hands a model more; a judge could not read it either."""


def extraction(
    question: str | None, contexts: Iterable[Context], *, source: str, marker: str | None = None
) -> Extraction:
    """Return the extraction with as many passages as the bounds allow; the one that crosses them is shortened.

    `contexts` is read no further than that.
    """
    kept: list[Context] = []
    room = MAX_BYTES
    cut = False
    for context in contexts:
        if len(kept) == MAX_PASSAGES or room <= 0:
            cut = True
            break
        size = _size(context.text)
        if size > room:
            text = context.text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
            kept.append(replace(context, text=text))
            cut = True
            break
        kept.append(context)
        room -= size
    return Extraction(
        question=(question or "").strip() or None, contexts=tuple(kept), source=source, marker=marker, cut=cut
    )


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

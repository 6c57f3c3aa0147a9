"""How much a client may say about one exchange, and what is kept of more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from monitors.records import Context, Supplement

MAX_PASSAGES = 200
MAX_BYTES = 1_000_000
"""Of UTF-8: texts, ids and sources of all passages together. No retriever hands a model more, no judge reads more."""

MAX_TEXT = 100_000
"""Characters of a question, a reference or a comment."""

MAX_LABEL = 200
MAX_HEARD_BYTES = 16_000_000
"""Of what supplements say about one sample, read together: the earliest count."""


class Bounded(NamedTuple):
    """The passages within the bounds. `cut` says whether there were more."""

    contexts: tuple[Context, ...]
    cut: bool


def passages(contexts: Iterable[Context]) -> Bounded:
    """Keep as many passages as the bounds allow, in order; shorten the text of the one that crosses them.

    `contexts` is read no further than one passage beyond the bound.
    """
    kept: list[Context] = []
    room = MAX_BYTES
    for context in contexts:
        names = _size(context.id) + _size(context.source)
        size = _size(context.text) + names
        if len(kept) == MAX_PASSAGES or room <= names:
            return Bounded(tuple(kept), cut=True)
        if size > room:
            text = context.text.encode("utf-8", "surrogatepass")[: room - names].decode("utf-8", "ignore")
            return Bounded((*kept, replace(context, text=text)), cut=True)
        kept.append(context)
        room -= size
    return Bounded(tuple(kept), cut=False)


def shed(supplement: Supplement) -> Supplement:
    """Release the passages that `bounded` would drop, but the first: it still sees that there were more.

    For where supplements arrive in numbers, before they are held together.
    """
    contexts = supplement.contexts
    if contexts is None or not (within := passages(contexts)).cut:
        return supplement
    return replace(supplement, contexts=contexts[: len(within.contexts) + 1])


def bounded(supplement: Supplement) -> tuple[Supplement, bool]:
    """Return the supplement within the bounds, and whether anything had to be cut.

    A name that is too long is left alone: cut, it would be another's.
    """
    contexts, cut = (None, False) if supplement.contexts is None else passages(supplement.contexts)
    texts = {name: getattr(supplement, name) for name in ("question", "reference", "comment", "label")}
    limits = {"label": MAX_LABEL}
    long = {
        name: text[:limit]
        for name, text in texts.items()
        if text is not None and len(text) > (limit := limits.get(name, MAX_TEXT))
    }
    if not cut and not long:
        return supplement, False
    return replace(supplement, contexts=contexts, **long), True


def size(supplement: Supplement) -> int:
    """About how many bytes the texts of a supplement take up.

    >>> size(Supplement(id="1", received_at=0.0, source="feedback", comment="wrong", contexts=(Context(text="a"),)))
    6
    """
    texts = (supplement.question, supplement.reference, supplement.comment, supplement.label)
    contexts = supplement.contexts or ()
    return sum(map(_size, texts)) + sum(_size(one.text) + _size(one.id) + _size(one.source) for one in contexts)


def _size(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

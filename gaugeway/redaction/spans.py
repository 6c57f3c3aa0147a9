"""Spans of a text to replace, and the choice among overlapping ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from string import ascii_letters, digits
from typing import NamedTuple

_CLASSES = bytes.maketrans(f"{ascii_letters}{digits}".encode(), b"a" * len(ascii_letters) + b"0" * len(digits))


class Span(NamedTuple):
    """`text[start:end]` is of this kind; `value` is what stands there in its normal form (digits, small letters)."""

    start: int
    end: int
    kind: str
    value: str


def resolve(spans: Iterable[Span], order: dict[str, int]) -> list[Span]:
    """Join what overlaps: the longest decides about kind and value; of equally long ones, the first in `order`.

    All that any of them covered stays covered, so nothing of a loser is left over.

    >>> resolve([Span(0, 4, "phone", "1"), Span(2, 9, "card", "2"), Span(11, 12, "ip", "3")], {"card": 0, "phone": 1})
    [Span(start=0, end=9, kind='card', value='2'), Span(start=11, end=12, kind='ip', value='3')]
    """
    joined: list[Span] = []
    best = (0, 0)
    for span in sorted(spans):
        rank = (span.end - span.start, -order.get(span.kind, 0))
        if not joined or span.start >= joined[-1].end:
            joined.append(span)
            best = rank
            continue
        last = joined[-1]
        winner = last
        if rank > best:
            winner, best = span, rank
        joined[-1] = winner._replace(start=last.start, end=max(last.end, span.end))
    return joined


def holds(form: str, between: str = "") -> Callable[[str], bool]:
    """Return a quick check whether a text has ASCII letters ("a") and digits ("0") in the order of `form`.

    The characters of `between` do not count. It never misses such a place, but may see one where there is none: in
    UTF-8, the characters outside ASCII that share a byte with one of `between` may not count either.

    >>> holds("000000", " -")("No. 12-34 56"), holds("000000", " -")("No. 12, 34, 56")
    (True, False)
    """
    wanted, passed_over = form.encode(), between.encode() or None

    def check(text: str) -> bool:
        said = text.encode("utf-8", "surrogatepass")
        return wanted in (said.translate(_CLASSES, passed_over) if passed_over else said.translate(_CLASSES))

    return check

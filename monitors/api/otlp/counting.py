"""Counts the messages of an export request before decoding: an empty span of 2 bytes takes 180 bytes when decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

Fields = Mapping[int, Any]

_VALUE: dict[int, Any] = {}
_PAIR: Fields = {2: _VALUE}
_VALUE |= {5: {1: _VALUE}, 6: {1: _PAIR}}
_SPAN: Fields = {9: _PAIR, 11: {3: _PAIR}, 13: {4: _PAIR}, 15: {}}
_SCOPE: Fields = {1: {3: _PAIR}, 2: _SPAN}
REQUEST: Fields = {1: {1: {1: _PAIR, 3: {}}, 2: _SCOPE}}
"""ExportTraceServiceRequest: its message fields, recursively. Other fields take no more memory than their bytes."""

_VARINT, _LENGTH = 0, 2
_SIZES = {1: 8, 3: 0, 4: 0, 5: 4}
_FIELDS_OF_A_PART = 4
_LONGEST = 63  # internal bound: a number of the format or formula


def more_than(body: bytes, limit: int) -> bool:
    """Whether `body` has more than `limit` messages, or more than four times as many fields of any kind.

    What is no protobuf is left to the decoder to refuse.
    """
    waiting = [(0, len(body), REQUEST)]
    found, steps = 0, limit * _FIELDS_OF_A_PART
    while waiting:
        start, end, fields = waiting.pop()
        for number, at, stop in _fields(body, start, end):
            steps -= 1
            inner = fields.get(number) if stop else None
            found += inner is not None
            if steps < 0 or found > limit:
                return True
            if inner:
                waiting.append((at, stop, inner))
    return False


def _fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The number of each field, and from where to where it lies; (number, 0, 0) for one that is no message or text.

    Groups, which OTLP does not use, are skipped: their content counts as if it were outside.
    """
    with suppress(IndexError):
        while at < end:
            tag, at = _varint(body, at)
            kind, number = tag & 7, tag >> 3
            if kind == _LENGTH:
                size, at = _varint(body, at)
                yield number, at, min(at + size, end)
                at += size
                continue
            if kind == _VARINT:
                _, at = _varint(body, at)
            elif kind not in _SIZES:
                return
            yield number, 0, 0
            at += _SIZES.get(kind, 0)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return value, at
        shift += 7
        if shift > _LONGEST:
            raise IndexError

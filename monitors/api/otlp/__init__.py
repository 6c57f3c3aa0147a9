"""OTLP receiver: turns an app's spans of retrievers, tools and agents into supplements of its exchanges."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Span(Struct, frozen=True, kw_only=True):
    """The parts of a span that are used. Times are Unix time in nanoseconds, 0 if not known; ids are lower-case hex."""

    trace_id: str
    span_id: str
    started_ns: int
    ended_ns: int = 0
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...] = ()


class Decoded(Struct, frozen=True, kw_only=True):
    """The spans of one request; `unreadable` counts those without valid ids."""

    spans: tuple[Span, ...]
    unreadable: int = 0

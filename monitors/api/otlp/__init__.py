"""OTLP receiver: turns an app's retriever spans into supplements of its exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The parts of a span that are used. `started_ns` and `ended_ns` are Unix time in nanoseconds, 0 if not readable.

    Ids are lower-case hex.
    """

    trace_id: str
    span_id: str
    started_ns: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...] = ()
    ended_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The spans of one request; `unreadable` counts those without valid ids."""

    spans: tuple[Span, ...]
    unreadable: int = 0

"""Retriever spans by OTLP over HTTP: what an app's tracing saw of its retrieval, as supplements to its exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is read of one span. `started_ns` is Unix time in nanoseconds; ids are lower-case hex."""

    trace_id: str
    span_id: str
    started_ns: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The spans of one request; `unreadable` of them had no usable ids."""

    spans: tuple[Span, ...]
    unreadable: int = 0

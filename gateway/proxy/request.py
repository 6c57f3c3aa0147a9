"""A request as it is read: its head, its body, and what its client says about it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from gateway.http import json_member
from gateway.http.errors import Rejection
from gateway.http.headers import RequestHead
from gaugeway.exchange import Explicit, Headers, Recording, route_of
from gaugeway.prompts import explicit
from gaugeway.prompts.explicit import ExplicitError


class Head(NamedTuple):
    """A request's target and headers (names in lower case), and what they say."""

    raw_path: bytes
    query: bytes
    headers: Headers
    seen: RequestHead


class Body(NamedTuple):
    """A request's body: as sent upstream, its length if that changed, and without our member (b"" for a stream)."""

    sent: bytes | AsyncIterator[bytes]
    length: int | None
    asked: bytes


def begin(method: str, path: str, headers: Headers, route: str | None = None) -> Recording:
    """Start the recording of a request that arrives now. The headers are kept, not copied."""
    now = time.time()
    return Recording(
        id=exchange_id(now),
        started_at=now,
        method=method,
        path=path,
        route=route or route_of(method, path),
        request_headers=headers,
    )


def read_explicit(
    body: bytes, seen: RequestHead, recording: Recording, cut: tuple[bytes, bytes | None] | None = None
) -> tuple[bytes, int | None]:
    """Read the `gaugeway` member and headers; return the body without the member and its new length, if it changed."""
    new_length = None
    in_body = None
    in_headers = explicit_headers(seen.ours)
    try:
        if cut is not None or json_member.mentions_key(body):
            body, value = cut or json_member.cut_key(body)
            if value is not None:
                in_body = explicit.from_body_key(value)
                new_length = len(body)
        recording.explicit = explicit.merge(in_body, in_headers)
    except ExplicitError as error:
        raise _rejection(error) from error
    return body, new_length


def explicit_headers(ours: Headers) -> Explicit | None:
    """Read the `x-gaugeway-*` headers. Raises Rejection."""
    try:
        return explicit.from_headers(ours) if ours else None
    except ExplicitError as error:
        raise _rejection(error) from error


def _rejection(error: ExplicitError) -> Rejection:
    return Rejection(400, "invalid_value", f"Invalid '{error.field}': {error}.", error.field)


_BYTES = 10
_AT_ONCE = 256
_unused: list[str] = []


def exchange_id(now: float) -> str:
    """Return 12 hex digits of Unix time in milliseconds, so that rows keyed by it are written in order, and 20 random.

    >>> exchange_id(1.0)[:12], len(exchange_id(1.0))
    ('0000000003e8', 32)
    """
    try:
        tail = _unused.pop()
    except IndexError:  # one system call for many ids
        block = os.urandom(_BYTES * _AT_ONCE).hex()
        _unused.extend(block[start : start + 2 * _BYTES] for start in range(0, len(block), 2 * _BYTES))
        tail = _unused.pop()
    return f"{int(now * 1000):012x}{tail}"


os.register_at_fork(after_in_child=_unused.clear)

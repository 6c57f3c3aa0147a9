"""Frames between processes: a value in MessagePack behind its length."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

LENGTH_BYTES = 4


def framed(value: object) -> bytes:
    """Encode a value with its length in front."""
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def next_frame(read: Callable[[int], bytes]) -> bytes | None:
    """Return what the next frame holds; None where the input ends, within a frame too."""
    head = read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    body = read(length)
    return body if len(body) == length else None

"""Reads replies of other servers up to a limit in decompressed bytes, enforced while decompressing."""

from __future__ import annotations

import functools
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import httpx

MAX_REPLY_BYTES = 16 * 1024 * 1024
"""A judge's answer with 20 alternatives for each of 10,000 tokens."""

MAX_VECTOR_BYTES = 256 * 1024
"""Of one text's embedding, as JSON: 10,000 dimensions."""

MAX_RECEIPT_BYTES = 1024 * 1024
"""Of a webhook's answer, which says that the notification was taken."""

_SLICE = 64 * 1024
_LONGEST = 18  # internal bound: a number of the format or formula
_CODINGS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class ReplyError(Exception):
    """The reply cannot be read."""


class ReplyTooLargeError(ReplyError):
    """The reply has more bytes than the limit."""


class Options(TypedDict):
    """Arguments of `httpx.AsyncClient`."""

    headers: dict[str, str]
    event_hooks: dict[str, list[Callable[[httpx.Response], Awaitable[None]]]]


def limited(limit: int = MAX_REPLY_BYTES) -> Options:
    """Return the arguments of an httpx client that reads no reply beyond `limit` bytes: it raises ReplyTooLargeError.

    httpx decompresses a whole chunk at a time: 64 KB may become 64 MB before anyone can count them. So the reply is
    decompressed here, in slices. Only codings that can be are asked for; another is a ReplyError. A hook, because a
    transport of one's own would switch off the proxies of the environment. For clients of httpx2 as well.
    """

    async def limit_reply(response: httpx.Response) -> None:
        if (coding := response.headers.pop("content-encoding", "").strip().lower()) in ("", "identity"):
            length = response.headers.get("content-length", "")
            if length.isascii() and length.isdigit() and (len(length) > _LONGEST or int(length) > limit):
                raise _too_large(limit)
            response.stream = _wrapped(response.stream, None, limit)
        elif coding in _CODINGS:
            response.headers.pop("content-length", None)
            response.stream = _wrapped(response.stream, _CODINGS[coding], limit)
        else:
            raise ReplyError(f"the reply has Content-Encoding {coding[:50]}, which was not asked for")

    return Options(headers={"accept-encoding": "gzip, deflate"}, event_hooks={"response": [limit_reply]})


def _wrapped(stream: Any, window_bits: int | None, limit: int) -> Any:
    """Return the stream limited, as a stream of the library that `stream` is of."""
    base = next(base_class for base_class in type(stream).__mro__ if base_class.__name__ == "AsyncByteStream")
    return _limited_kind(base)(stream, window_bits, limit)


@functools.cache
def _limited_kind(base: type) -> type:
    return type("LimitedStream", (_Limited, base), {})


class _Limited:
    """The decompressed bytes of a stream; ReplyTooLargeError beyond `limit` of them."""

    def __init__(self, stream: httpx.AsyncByteStream, window_bits: int | None, limit: int) -> None:
        self._stream = stream
        self._window_bits = window_bits
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._plain():
            size += len(piece)
            if size > self._limit:
                raise _too_large(self._limit)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _plain(self) -> AsyncIterator[bytes]:
        if self._window_bits is None:
            async for chunk in self._stream:
                yield chunk
            return
        unpacker, begun = zlib.decompressobj(self._window_bits), False
        async for chunk in self._stream:
            rest = chunk
            while rest and not unpacker.eof:
                try:
                    piece = unpacker.decompress(rest, _SLICE)
                except zlib.error as error:
                    if begun or self._window_bits != zlib.MAX_WBITS:
                        raise ReplyError(f"the reply cannot be decompressed: {error}") from error
                    unpacker, begun = zlib.decompressobj(-zlib.MAX_WBITS), True  # "deflate" without zlib's header
                    continue
                begun = True
                rest = unpacker.unconsumed_tail
                yield piece
                while len(piece) == _SLICE and not rest:
                    piece = unpacker.decompress(b"", _SLICE)
                    yield piece


def _too_large(limit: int) -> ReplyTooLargeError:
    return ReplyTooLargeError(f"the reply is larger than {limit} bytes")

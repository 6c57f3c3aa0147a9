"""Decodes a body's Content-Encoding, within a size limit (a small body can decompress to gigabytes)."""

from __future__ import annotations

import zlib

import brotli
import zstandard

DECODERS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd"})
MOST_CODINGS = 3
"""How many codings one body may have: servers use one."""
MOST_MEMBERS = 1_000
"""How many members one gzip body may have."""
WINDOW_BYTES = 8 * 1024 * 1024
"""The window a zstd frame may need: what RFC 9659 allows in HTTP."""
_PIECE_BYTES = 65_536
_GZIP = b"\x1f\x8b"


class EncodingError(ValueError):
    """The body cannot be unpacked; `reason`: unknown_coding, too_many_codings, broken_coding, unpacked_too_large."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def decode(body: bytes, content_encoding: str, limit: int) -> bytes:
    """Decode `body` by `content_encoding` (a header's value: one or several codings, comma separated).

    A truncated body gives what could be decoded. Raises EncodingError when there are too many codings, one is unknown,
    the bytes are not of that coding, or more than `limit` bytes come out.
    """
    if len(codings := content_encoding.split(",", MOST_CODINGS)) > MOST_CODINGS:
        raise EncodingError("too_many_codings", f"more than {MOST_CODINGS} content-codings")
    for coding in reversed([name.strip().lower() for name in codings]):
        if coding in ("identity", ""):
            continue
        if coding not in DECODERS:
            raise EncodingError("unknown_coding", f"unknown content-encoding {coding[:50]!r}")
        try:
            body = _undo(body, coding, limit)
        except (zlib.error, brotli.error, zstandard.ZstdError) as error:
            raise EncodingError("broken_coding", f"broken {coding} body") from error
        if len(body) > limit:
            raise EncodingError("unpacked_too_large", f"more than {limit} bytes")
    return body


def _undo(body: bytes, coding: str, limit: int) -> bytes:
    if coding == "br":
        return bytes(brotli.Decompressor().process(body, output_buffer_limit=limit + 1))
    if coding == "zstd":
        unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
        with unpacker.stream_reader(body, read_across_frames=True) as reader:
            return bytes(reader.read(limit + 1))
    if coding == "deflate":
        raw = not body or body[0] & 0x0F != zlib.DEFLATED
        return zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS).decompress(body, limit + 1)
    return _gunzip(body, limit)


def _gunzip(body: bytes, limit: int) -> bytes:
    """Decode gzip, all of its members; padding after the last one is ignored."""
    pieces: list[bytes] = []
    room = limit + 1
    position = members = 0
    while not members or body.startswith(_GZIP, position):
        members += 1
        if members > MOST_MEMBERS:
            raise EncodingError("broken_coding", f"more than {MOST_MEMBERS} gzip members")
        # zlib copies what it does not use of its input: in pieces, so that many members stay linear.
        member = zlib.decompressobj(zlib.MAX_WBITS | 32)
        while not member.eof and position < len(body) and room:
            piece = body[position : position + _PIECE_BYTES]
            pieces.append(member.decompress(piece, room))
            room -= len(pieces[-1])
            position += len(piece) - len(member.unused_data)
        if not room or not member.eof:
            break
    return b"".join(pieces)

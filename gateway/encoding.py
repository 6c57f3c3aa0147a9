"""Undoing a body's content-encoding, within a size limit (a small body can unpack to gigabytes)."""

from __future__ import annotations

import zlib

import brotli
import zstandard

DECODERS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd"})


class EncodingError(ValueError):
    """The body cannot be unpacked: an unknown or broken encoding, or too large."""


def decode(body: bytes, content_encoding: str, limit: int) -> bytes:
    """Undo `content_encoding` (a header's value, several codings comma separated) of `body`.

    A cut-off body gives what could be read. Raises EncodingError when a coding is unknown, the bytes are not of that
    coding, or more than `limit` bytes come out.
    """
    for coding in reversed([one.strip().lower() for one in content_encoding.split(",") if one.strip()]):
        if coding == "identity":
            continue
        if coding not in DECODERS:
            raise EncodingError(f"unknown content-encoding {coding!r}")
        try:
            body = _undo(body, coding, limit)
        except (zlib.error, brotli.error, zstandard.ZstdError) as error:
            raise EncodingError(f"broken {coding} body") from error
        if len(body) > limit:
            raise EncodingError(f"more than {limit} bytes")
    return body


def _undo(body: bytes, coding: str, limit: int) -> bytes:
    if coding == "br":
        return bytes(brotli.Decompressor().process(body, output_buffer_limit=limit + 1))
    if coding == "zstd":
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            return bytes(reader.read(limit + 1))
    if coding == "deflate" and (not body or body[0] & 0x0F != zlib.DEFLATED):
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(body, limit + 1)
    return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, limit + 1)

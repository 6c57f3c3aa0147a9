import gzip
import zlib

import brotli
import pytest
import zstandard

from gateway.encoding import EncodingError, decode

TEXT = b'{"choices": []}' * 50


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("packed", "coding"),
    [
        (gzip.compress(TEXT), "gzip"),
        (gzip.compress(TEXT), "X-GZip"),
        (zlib.compress(TEXT), "deflate"),
        (raw_deflate(TEXT), "deflate"),
        (brotli.compress(TEXT), "br"),
        (zstandard.compress(TEXT), "zstd"),
        (TEXT, "identity"),
        (brotli.compress(gzip.compress(TEXT)), "gzip, br"),
    ],
)
def test_every_coding_a_client_may_accept_is_undone(packed, coding):
    assert decode(packed, coding, 1_000_000) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
def test_broken_bytes_are_an_error(coding):
    with pytest.raises(EncodingError):
        decode(b"\x78\x9cnot packed at all", coding, 1000)


def test_an_unknown_coding_is_an_error():
    with pytest.raises(EncodingError, match="lzma"):
        decode(b"x", "lzma", 1000)


@pytest.mark.parametrize(
    ("packed", "coding"),
    [
        (gzip.compress(bytes(50_000_000)), "gzip"),
        (brotli.compress(bytes(50_000_000), quality=1), "br"),
        (zstandard.compress(bytes(50_000_000)), "zstd"),
    ],
)
def test_a_body_that_unpacks_to_more_than_the_limit_is_refused_without_unpacking_it_all(packed, coding):
    with pytest.raises(EncodingError, match="more than 1000 bytes"):
        decode(packed, coding, 1000)


def test_a_cut_off_body_gives_what_could_be_read():
    assert TEXT.startswith(decode(gzip.compress(TEXT)[:-12], "gzip", 1_000_000))

import gzip
import zlib

import brotli
import pytest
import zstandard

from gateway.http.encoding import MOST_MEMBERS, EncodingError, decode

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
        (gzip.compress(brotli.compress(gzip.compress(TEXT))), "gzip, br, gzip"),
        (gzip.compress(TEXT[:99]) + gzip.compress(b"") + gzip.compress(TEXT[99:]), "gzip"),
        (gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:]) + bytes(512), "gzip"),
        (gzip.compress(TEXT, 0) + b"trailing", "gzip"),
        (zstandard.compress(TEXT[:99]) + zstandard.compress(TEXT[99:]), "zstd"),
    ],
)
def test_every_coding_a_client_may_accept_is_undone(packed, coding):
    assert decode(packed, coding, 1_000_000) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
def test_broken_bytes_are_an_error(coding):
    with pytest.raises(EncodingError):
        decode(b"\x78\x9cnot packed at all", coding, 1000)


def test_an_unknown_coding_is_an_error():
    with pytest.raises(EncodingError, match="lzma") as error:
        decode(b"x", "lzma", 1000)
    assert error.value.reason == "unknown_coding"


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "identity", ""])
def test_more_codings_than_servers_use_are_not_undone(coding):
    with pytest.raises(EncodingError, match="more than 3") as error:
        decode(TEXT, ",".join([coding] * 170_000), 1000)
    assert error.value.reason == "too_many_codings"


def test_a_later_gzip_member_that_is_cut_off_gives_what_could_be_read():
    packed = gzip.compress(TEXT) + gzip.compress(TEXT)[:-12]
    assert (TEXT * 2).startswith(decode(packed, "gzip", 1_000_000))
    assert len(decode(packed, "gzip", 1_000_000)) >= len(TEXT)


def test_a_later_gzip_member_counts_towards_the_limit():
    packed = gzip.compress(b"a" * 900) + gzip.compress(b"b" * 100)
    assert len(decode(packed, "gzip", 1000)) == 1000
    with pytest.raises(EncodingError) as error:
        decode(packed, "gzip", 999)
    assert error.value.reason == "unpacked_too_large"


def test_gzip_members_without_end_are_not_read():
    assert decode(gzip.compress(b"a") * MOST_MEMBERS, "gzip", 10_000) == b"a" * MOST_MEMBERS
    with pytest.raises(EncodingError, match="members"):
        decode(gzip.compress(b"") * 100_000, "gzip", 10_000)


def test_a_zstd_frame_may_not_ask_for_more_memory_than_http_allows():
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(bytes(10_000)) + packer.flush()
    assert zstandard.get_frame_parameters(packed).window_size > 8 * 1024 * 1024
    with pytest.raises(EncodingError, match="broken zstd"):
        decode(packed, "zstd", 1_000_000)


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

"""The native client's connection against anything that bytes can do: no sockets, so every cut is possible."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstreams import UpstreamError, UpstreamRequest
from gateway.upstreams.connection import Connection, StaleError

SETTINGS = settings(max_examples=3 * settings.default.max_examples // 2, deadline=None)
TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789!#$%&'*+-.^_`|~", min_size=1, max_size=12).map(str.encode)
VALUE = st.binary(max_size=20).map(lambda raw: bytes(byte for byte in raw if byte >= 0x20 and byte != 0x7F).strip())
FRAMING_NAMES = {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"proxy-connection", b"trailer"}
HEADERS = st.lists(st.tuples(TOKEN.filter(lambda name: name.lower() not in FRAMING_NAMES), VALUE), max_size=6)
INTERIM = st.sampled_from(
    [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: </a>\r\nX: 1\r\n\r\n" * 2]
)


class Transport:
    """Keeps what was written; tells the loss in a later turn, as a real one does."""

    def __init__(self, connection):
        self.connection = connection
        self.closing = self.paused = False
        self.written = b""

    def get_extra_info(self, name):
        return None

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.closing

    def write(self, data):
        assert not self.closing
        self.written += data

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False

    def abort(self):
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


class Line:
    """A connection under test and the other side of it."""

    def __init__(self):
        self.released = self.lost = 0
        self.connection = Connection(self._release, self._lose)
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)

    def _release(self, connection):
        self.released += 1

    def _lose(self, connection):
        self.lost += 1

    async def feed(self, pieces, *, end=False):
        for piece in pieces:
            if not self.transport.closing and piece:
                self.connection.data_received(piece)
            await asyncio.sleep(0)
        if end and not self.transport.closing:
            self.connection.eof_received()
            await asyncio.sleep(0)

    async def exchange(self, pieces, *, method="GET", end=False):
        """(status, headers, body), or the error."""
        request = UpstreamRequest(method, ("http", "u", 80), b"/", [(b"host", b"u")], b"")
        asking = asyncio.ensure_future(self._ask(request))
        await asyncio.sleep(0)
        await self.feed(pieces, end=end)
        async with asyncio.timeout(60):
            return await asking

    async def _ask(self, request):
        try:
            response = await self.connection.exchange(request, 2, 2)
            body, more = b"", True
            try:
                while more:
                    chunk, more = await response.read()
                    body += chunk
            finally:
                await response.aclose()
        except (UpstreamError, StaleError) as error:
            return error
        return response.status, response.headers, body


@st.composite
def responses(draw):
    """(bytes, the status, headers and body they mean, whether only the end of the connection ends them)."""
    status = draw(st.sampled_from([200, 200, 201, 207, 301, 400, 404, 429, 500, 503, 599]))
    headers = draw(HEADERS)
    body = draw(st.binary(max_size=300))
    framing = draw(st.sampled_from(["length", "chunks", "end"]))
    if framing == "length":
        headers.append((b"Content-Length", str(len(body)).encode()))
        wire = body
    elif framing == "chunks":
        headers.append((draw(st.sampled_from([b"Transfer-Encoding", b"transfer-encoding"])), b"chunked"))
        size = draw(st.integers(1, 100))
        extension = draw(st.sampled_from([b"", b";x", b';a=b;c="d e"']))
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        wire = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        wire += draw(st.sampled_from([b"0\r\n\r\n", b"0;last\r\nX-Trailer: 1\r\n\r\n", b"000\r\nA: 1\r\nB: 2\r\n\r\n"]))
    else:
        wire = body
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    head = b"HTTP/1.1 %d Some Words\r\n%b\r\n" % (status, lines)
    return draw(INTERIM) + head + wire, (status, headers, body), framing == "end"


def cut(data, positions):
    """Cut bytes at these positions (taken modulo their length)."""
    marks = sorted({position % (len(data) + 1) for position in positions})
    return [data[start:end] for start, end in zip([0, *marks], [*marks, len(data)], strict=True)]


CUTS = st.lists(st.integers(0, 2000), max_size=12)


@SETTINGS
@given(responses(), CUTS)
def test_a_response_means_the_same_however_it_is_cut(response, positions):
    wire, expected, to_the_end = response

    async def main():
        line = Line()
        assert await line.exchange(cut(wire, positions), end=to_the_end) == expected
        assert line.released == (not to_the_end)

    asyncio.run(main())


@pytest.mark.full
@SETTINGS
@given(responses())
def test_a_response_means_the_same_byte_by_byte(response):
    wire, expected, to_the_end = response

    async def main():
        pieces = [wire[index : index + 1] for index in range(len(wire))]
        assert await Line().exchange(pieces, end=to_the_end) == expected

    asyncio.run(main())


@SETTINGS
@given(responses(), st.integers(0, 2000))
def test_a_response_cut_short_is_never_taken_for_a_whole_one(response, position):
    wire, expected, to_the_end = response
    cut_at = position % len(wire)

    async def main():
        outcome = await Line().exchange([wire[:cut_at]], end=True)
        if isinstance(outcome, tuple):
            assert to_the_end
            assert outcome[:2] == expected[:2]
            assert expected[2].startswith(outcome[2])
        else:
            assert isinstance(outcome, StaleError) == (cut_at == 0)

    asyncio.run(main())


@SETTINGS
@given(st.lists(st.binary(max_size=60), max_size=8), st.sampled_from(["GET", "HEAD"]))
def test_garbage_ends_in_an_error_and_never_hangs(pieces, method):
    async def main():
        line = Line()
        outcome = await line.exchange(pieces, method=method, end=True)
        assert isinstance(outcome, UpstreamError if any(pieces) else StaleError)
        await asyncio.sleep(0)
        assert line.lost == 1

    asyncio.run(main())


@SETTINGS
@given(responses(), CUTS, st.integers(0, 2000), st.binary(min_size=1, max_size=3), st.booleans())
def test_a_damaged_response_ends_and_leaves_no_connection_half_open(response, positions, where, junk, replace):
    wire, _, _ = response
    where %= len(wire)
    damaged = wire[:where] + junk + wire[where + (len(junk) if replace else 0) :]

    async def main():
        line = Line()
        outcome = await line.exchange(cut(damaged, positions), end=True)
        assert isinstance(outcome, tuple | UpstreamError)
        await asyncio.sleep(0)
        assert line.lost == 1
        if isinstance(outcome, tuple):
            assert not any(byte in b"\r\n\0" for _, value in outcome[1] for byte in value)

    asyncio.run(main())


@pytest.mark.full
@SETTINGS
@given(responses(), responses(), CUTS, CUTS)
def test_two_exchanges_on_one_connection_never_mix(first, second, first_cuts, second_cuts):
    async def main():
        line = Line()
        assert await line.exchange(cut(first[0], first_cuts), end=first[2]) == first[1]
        if first[2]:
            assert not line.connection.usable
            return
        assert line.released == 1
        assert await line.exchange(cut(second[0], second_cuts), end=second[2]) == second[1]

    asyncio.run(main())


@pytest.mark.full
@SETTINGS
@given(responses().filter(lambda response: not response[2]), responses(), st.integers(1, 2000), CUTS, st.booleans())
def test_what_comes_behind_a_response_never_reaches_another_exchange(first, second, length, positions, together):
    surplus = second[0][: length % len(second[0]) or 1]

    async def main():
        line = Line()
        pieces = [first[0] + surplus] if together else cut(first[0] + surplus, positions)
        outcome = await line.exchange(pieces)
        assert outcome == first[1] or isinstance(outcome, UpstreamError)
        await asyncio.sleep(0)
        assert line.transport.closing
        assert line.lost == 1
        assert line.released <= (not together)

    asyncio.run(main())

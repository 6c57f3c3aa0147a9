"""Request smuggling: what could be read in two ways is answered 400 and never reaches an upstream in either reading.

`REFUSED` is refused by the server itself: uvicorn's parser, llhttp in its strict mode. `REWRITTEN` is clear enough to
be served, and goes on in one framing of ours. `BY_US` is what llhttp lets through and the gateway must see to.
"""

import asyncio
import contextlib
import re

import pytest

from tests.support.running import running_gateway, tcp_server

HEAD = b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Type: text/plain\r\n"
JSON = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: g\r\n"
EVIL = b"GET /v1/evil HTTP/1.1\r\nHost: g\r\n\r\n"
CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = b"3\r\nabc\r\n0\r\n\r\n"
CLEAN = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
CLEAN += b'{"model": 1}'

REFUSED = {
    "two hosts": b"GET /v1/models HTTP/1.1\r\nHost: g\r\nHost: evil\r\n\r\n",
    "CL.TE": JSON + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    "CL.TE with a request inside": HEAD + b"Content-Length: 39\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL,
    "TE.CL": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n22\r\n" + EVIL + b"\r\n0\r\n\r\n",
    "TE.TE, the second unknown": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" + BODY,
    "TE.TE, the same": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY,
    "TE: chunked, x": HEAD + b"Transfer-Encoding: chunked, x\r\n\r\n" + BODY,
    "TE: identity": HEAD + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    "TE: xchunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + BODY,
    "TE: quoted": HEAD + b'Transfer-Encoding: "chunked"\r\n\r\n' + BODY,
    "TE: nothing": HEAD + b"Transfer-Encoding: \r\n\r\n" + BODY,
    "TE: nothing, and CL": HEAD + b"Transfer-Encoding: \r\nContent-Length: 3\r\n\r\nabc",
    "TE: vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + BODY,
    "TE: trailing blank": HEAD + b"Transfer-Encoding: chunked \t\r\n\r\n" + BODY,
    "TE: space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + BODY,
    "TE: folded": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + BODY,
    "CL twice, the same": HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "CL twice, not the same": HEAD + b"Content-Length: 3\r\nContent-Length: 37\r\n\r\nabc" + EVIL,
    "CL: a list": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "CL: negative": HEAD + b"Content-Length: -3\r\n\r\nabc",
    "CL: plus": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "CL: hexadecimal": HEAD + b"Content-Length: 0x3\r\n\r\nabc",
    "CL: overflow": HEAD + b"Content-Length: 18446744073709551619\r\n\r\nabc",
    "CL: nothing": HEAD + b"Content-Length: \r\n\r\nabc",
    "CL: a space inside": HEAD + b"Content-Length: 3 0\r\n\r\nabc",
    "CL: a fraction": HEAD + b"Content-Length: 3.0\r\n\r\nabc",
    "CL: an underscore": HEAD + b"Content-Length: 1_0\r\n\r\nabcdefghij",
    "CL: other digits": HEAD + "Content-Length: ٣\r\n\r\nabc".encode(),
    "CL: space before the colon": HEAD + b"Content-Length : 3\r\n\r\nabc",
    "CL: folded": HEAD + b"Content-Length:\r\n 3\r\n\r\nabc",
    "folded header": HEAD + b"X-A: 1\r\n 2\r\nContent-Length: 3\r\n\r\nabc",
    "folded first header": b"POST /v1/files HTTP/1.1\r\n Host: g\r\nContent-Length: 3\r\n\r\nabc",
    "bare LF everywhere": b"POST /v1/files HTTP/1.1\nHost: g\nContent-Length: 3\n\nabc",
    "bare LF in the headers": HEAD + b"X-A: 1\nContent-Length: 3\r\n\r\nabc",
    "bare LF at their end": HEAD + b"Content-Length: 3\r\n\nabc",
    "bare CR": HEAD + b"X-A: 1\rTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    "CR CR LF": HEAD + b"X-A: 1\r\r\nContent-Length: 3\r\n\r\nabc",
    "NUL in a value": HEAD + b"X-A: 1\0b\r\nContent-Length: 3\r\n\r\nabc",
    "NUL in a name": HEAD + b"X\0A: 1\r\nContent-Length: 3\r\n\r\nabc",
    "NUL in the path": b"GET /v1/mod\0els HTTP/1.1\r\nHost: g\r\n\r\n",
    "control character": HEAD + b"X-A: 1\x01b\r\nContent-Length: 3\r\n\r\nabc",
    "DEL": HEAD + b"X-A: 1\x7fb\r\nContent-Length: 3\r\n\r\nabc",
    "no colon": HEAD + b"X-A\r\nContent-Length: 3\r\n\r\nabc",
    "no name": HEAD + b": 1\r\nContent-Length: 3\r\n\r\nabc",
    "space in a name": HEAD + b"X A: 1\r\nContent-Length: 3\r\n\r\nabc",
    "chunk size 0x": CHUNKS + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size -": CHUNKS + b"-3\r\nabc\r\n0\r\n\r\n",
    "chunk size +": CHUNKS + b"+3\r\nabc\r\n0\r\n\r\n",
    "chunk size overflow": CHUNKS + b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "chunk size missing": CHUNKS + b"\r\nabc\r\n0\r\n\r\n",
    "chunk size and a blank": CHUNKS + b"3 \r\nabc\r\n0\r\n\r\n",
    "chunk size and bare LF": CHUNKS + b"3\nabc\r\n0\r\n\r\n",
    "chunk too long": CHUNKS + b"3\r\nabcd\r\n0\r\n\r\n",
    "chunk without its end": CHUNKS + b"3\r\nabc0\r\n\r\n",
    "chunk ended by bare LF": CHUNKS + b"3\r\nabc\n0\r\n\r\n",
    "chunks ended by bare LF": CHUNKS + b"3\r\nabc\r\n0\n\n",
    "chunk extension with LF": CHUNKS + b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "chunk extension with CR": CHUNKS + b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "CL as a trailer": CHUNKS + b"3\r\nabc\r\n0\r\nContent-Length: 99\r\n\r\n",
    "TE as a trailer": CHUNKS + b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "space in the path": b"GET /v1/a HTTP/1.1\r\nX: b HTTP/1.1\r\nHost : g\r\n\r\n",
    "tabs in the request line": b"GET\t/v1/models\tHTTP/1.1\r\nHost: g\r\n\r\n",
    "bytes in the path": b"GET /v1/\xc3\xa9 HTTP/1.1\r\nHost: g\r\n\r\n",
    "unknown method": b"SMUGGLE /v1/models HTTP/1.1\r\nHost: g\r\n\r\n",
    "unknown version": b"GET /v1/models HTTP/1.2\r\nHost: g\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT to a host": b"CONNECT evil:443 HTTP/1.1\r\nHost: g\r\n\r\n",
}

# what is sent -> (request line, body) of each request that the upstream gets
REWRITTEN = {
    "TE in other case": (HEAD + b"Transfer-Encoding: ChUnKeD\r\n\r\n" + BODY, [(b"POST /v1/files", b"abc")]),
    "chunk extensions": (CHUNKS + b'3;a="b;c"\r\nabc\r\n0;x\r\n\r\n', [(b"POST /v1/files", b"abc")]),
    "TE in HTTP/1.0": (
        b"POST /v1/files HTTP/1.0\r\nHost: g\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
        + BODY
        + EVIL,
        [(b"POST /v1/files", b"abc")],
    ),
    "CL with zeros": (HEAD + b"Content-Length: 0003\r\n\r\nabc", [(b"POST /v1/files", b"abc")]),
    "CL with a trailing blank": (HEAD + b"Content-Length: 3 \r\n\r\nabc", [(b"POST /v1/files", b"abc")]),
    "a request as a JSON body in chunks": (
        JSON + b"Transfer-Encoding: chunked\r\n\r\n27\r\n0\r\n\r\n" + EVIL + b"\r\n0\r\n\r\n",
        [(b"POST /v1/chat/completions", b"0\r\n\r\n" + EVIL)],
    ),
    "a request as the body of a GET": (
        GET + b"Content-Length: %d\r\n\r\n" % len(EVIL) + EVIL,
        [(b"GET /v1/models", EVIL)],
    ),
    "TE named by Connection": (
        HEAD + b"Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY,
        [(b"POST /v1/files", b"abc")],
    ),
    "our key cut out of a chunked body": (
        JSON + b'Transfer-Encoding: chunked\r\n\r\n22\r\n{"model":"m","gaugeway":{"app":1}}\r\n0\r\n\r\n',
        None,
    ),
    "empty lines first": (b"\r\n\r\n" + GET + b"\r\n", [(b"GET /v1/models", b"")]),
    "encoded line ends in the path": (
        b"GET /v1/a%0d%0aX:%20y HTTP/1.1\r\nHost: g\r\n\r\n",
        [(b"GET /v1/a%0d%0aX:%20y", b"")],
    ),
    "absolute target": (b"GET http://evil/v1/models HTTP/1.1\r\nHost: g\r\n\r\n", [(b"GET /v1/models", b"")]),
    "data behind Connection: close": (
        HEAD + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc" + EVIL,
        [(b"POST /v1/files", b"abc")],
    ),
    "an upgrade with a body": (
        HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc" + GET + b"\r\n",
        [(b"POST /v1/files", b"abc"), (b"GET /v1/models", b"")],
    ),
    "an upgrade with chunks": (
        CHUNKS.replace(b"\r\n\r\n", b"\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
        + b"3\r\nabc\r\n0\r\n\r\n"
        + GET
        + b"\r\n",
        [(b"POST /v1/files", b"abc"), (b"GET /v1/models", b"")],
    ),
    "upgrades without bodies": (
        (GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n") * 2,
        [(b"GET /v1/models", b"")] * 2,
    ),
    "pipelined": (
        HEAD + b"Content-Length: 3\r\n\r\nabc" + GET + b"\r\n",
        [(b"POST /v1/files", b"abc"), (b"GET /v1/models", b"")],
    ),
}

# what is sent, and which request the upstream may get at most: (request line, body)
BY_US = {
    "CL named by Connection": (
        HEAD + b"Connection: content-length\r\nContent-Length: %d\r\n\r\n" % len(EVIL) + EVIL,
        (b"POST /v1/files", EVIL),
    ),
    "CL named by Connection, JSON": (
        JSON + b"Connection: close, Content-Length\r\nContent-Length: %d\r\n\r\n" % len(EVIL) + EVIL,
        (b"POST /v1/chat/completions", EVIL),
    ),
    "Host named by Connection": (
        HEAD + b"Connection: host\r\nContent-Length: 3\r\n\r\nabc",
        (b"POST /v1/files", b"abc"),
    ),
    "a coding that is not ours to undo": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + BODY, None),
    "a trailer as a header": (
        CHUNKS + b"3\r\nabc\r\n0\r\nAuthorization: Bearer evil\r\nX-Trailer: 1\r\n\r\n",
        (b"POST /v1/files", b"abc"),
    ),
    "CONNECT": (b"CONNECT /v1/models HTTP/1.1\r\nHost: g\r\n\r\n" + EVIL, None),
    "TE with an underscore": (
        HEAD + b"Transfer_Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        (b"POST /v1/files", b"abc"),
    ),
}


class Upstream:
    """Takes whatever comes and answers what is whole; keeps the bytes of every connection."""

    def __init__(self):
        self.raw = []
        self.connections = 0

    def forget(self):
        self.connections = 0
        for mine in self.raw:
            mine.clear()

    @property
    def received(self):
        return [bytes(mine) for mine in self.raw if mine]

    async def __call__(self, reader, writer):
        mine = bytearray()
        self.raw.append(mine)
        self.connections += 1
        answered = 0
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65536):
                answered = answered if mine else 0
                mine += data
                with contextlib.suppress(ValueError):
                    complete = len(requests_in(bytes(mine)))
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" * (complete - answered))
                    answered = complete
        writer.close()


def requests_in(raw):
    """Read bytes as the strictest of servers: [(request line without version, headers, body)], or ValueError."""
    found = []
    while raw:
        head, end, raw = raw.partition(b"\r\n\r\n")
        line, *lines = head.split(b"\r\n")
        if not end or not re.fullmatch(rb"[A-Z]+ /[\x21-\x7e]* HTTP/1\.1", line):
            raise ValueError(f"request line {line!r}")
        headers = []
        for header in lines:
            if not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\0]*", header):
                raise ValueError(f"header {header!r}")
            name, _, value = header.partition(b": ")
            headers.append((name.lower(), value))
        names = [name.replace(b"_", b"-") for name, _ in headers]
        framing = [(name, value) for name, value in headers if name in (b"content-length", b"transfer-encoding")]
        if names.count(b"host") != 1 or names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
            raise ValueError(f"ambiguous {headers!r}")
        body, raw = _body(framing, raw)
        found.append((line.rpartition(b" ")[0], headers, body))
    return found


def _body(framing, raw):
    for name, value in framing:
        if name == b"transfer-encoding" and value == b"chunked":
            return _chunks_of(raw)
        if name != b"content-length" or not re.fullmatch(rb"[0-9]+ ?", value) or len(raw) < int(value):
            raise ValueError(f"framing {name!r}: {value!r}")
        return raw[: int(value)], raw[int(value) :]
    return b"", raw


def _chunks_of(raw):
    body, size = b"", 1
    while size:
        digits, _, raw = raw.partition(b"\r\n")
        if not re.fullmatch(rb"[0-9a-fA-F]+", digits):
            raise ValueError("chunk size")
        size = int(digits, 16)
        if raw[size : size + 2] != b"\r\n":
            raise ValueError("chunk")
        body, raw = body + raw[:size], raw[size + 2 :]
    return body, raw


async def answer_to(port, *pieces, silence_s=0.3):
    """The bytes that come back until the gateway closes, or says nothing more for a while after it said something."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    closed = False
    with contextlib.suppress(TimeoutError, ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if piece is not pieces[-1]:
                await asyncio.sleep(0.05)
        while not closed:
            data = await asyncio.wait_for(reader.read(65536), silence_s if answer else 20)
            answer += data
            closed = not data
    writer.close()
    return answer, closed


def run(scenario, **settings):
    async def main():
        upstream = Upstream()
        async with (
            asyncio.timeout(120),
            tcp_server(upstream) as port,
            running_gateway(f"http://127.0.0.1:{port}/v1", read_timeout_s=20, **settings) as gateway,
        ):
            await scenario(gateway, upstream)

    asyncio.run(main())


async def clean_request_works(gateway, upstream):
    upstream.forget()
    answer, _ = await answer_to(gateway.port, CLEAN.replace(b"Host: g\r\n", b"Host: g\r\nConnection: close\r\n"))
    return answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"ok")


def test_what_could_be_read_in_two_ways_is_answered_400_and_never_forwarded():
    wrong = {}

    async def scenario(gateway, upstream):
        for case, raw in REFUSED.items():
            generation = raw.replace(b"/v1/files", b"/v1/chat/completions", 1)
            for pieces in ([raw], [raw[:-4], raw[-4:]], [generation], [generation[:-4], generation[-4:]]):
                upstream.forget()
                answer, closed = await answer_to(gateway.port, *pieces, silence_s=20)
                forwarded = b"".join(upstream.received)
                # A streamed body may have begun before its flaw came; then it is broken off, never ended.
                harmless = not forwarded or (b"POST /v1/files" in forwarded and not whole(forwarded))
                if not (answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1 and closed and harmless):
                    wrong[case] = (answer, closed, forwarded)
            if not await clean_request_works(gateway, upstream):
                wrong[case] = "the next request fails"

    run(scenario)
    assert wrong == {}


def whole(raw):
    try:
        return bool(requests_in(raw))
    except ValueError:
        return False


@pytest.mark.parametrize("client", ["native", "httpx"])
def test_what_is_clear_goes_on_in_one_framing(client):
    wrong = {}

    async def scenario(gateway, upstream):
        for case, (raw, expected) in REWRITTEN.items():
            upstream.forget()
            answer, _ = await answer_to(gateway.port, raw)
            try:
                got = [(line, body) for mine in upstream.received for line, _, body in requests_in(mine)]
            except ValueError as error:
                wrong[case] = (str(error), answer, upstream.received)
                continue
            if expected is None:
                assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400")), case
            elif got != expected or not answer.startswith(b"HTTP/1.1 200"):
                wrong[case] = (answer, got)
            if not await clean_request_works(gateway, upstream):
                wrong[case] = "the next request fails"

    run(scenario, upstream_client=client)
    assert wrong == {}


# Taken out one by one as the proxy refuses them.
@pytest.mark.parametrize("case", BY_US)
def test_what_the_server_lets_through_is_refused_by_us_or_made_clear(case):
    raw, at_most = BY_US[case]

    async def scenario(gateway, upstream):
        answer, _ = await answer_to(gateway.port, raw)
        got = [request for mine in upstream.received for request in requests_in(mine)]
        assert [(line, body) for line, _, body in got] in ([], [at_most]), answer
        assert not any(value == b"Bearer evil" for _, headers, _ in got for _, value in headers)
        assert answer.startswith(b"HTTP/1.1 200" if got else b"HTTP/1.1 4")
        assert await clean_request_works(gateway, upstream)

    run(scenario)


def test_a_streamed_body_that_turns_out_wrong_is_broken_off_and_never_ended():
    async def scenario(gateway, upstream):
        for bad in (b"zz\r\n", b"3\r\nabcd\r\n", b"-1\r\n\r\n", b"0\r\nContent-Length: 3\r\n\r\n", b"0\n\n"):
            upstream.forget()
            answer, closed = await answer_to(gateway.port, CHUNKS + b"5\r\nhello\r\n", bad + EVIL)
            assert answer.startswith(b"HTTP/1.1 400")
            assert closed
            forwarded = b"".join(upstream.received)
            assert b"hello" in forwarded
            assert b"\r\n0\r\n" not in forwarded
            assert b"evil" not in forwarded
            assert await clean_request_works(gateway, upstream)

    run(scenario)


def test_a_body_that_breaks_off_is_never_completed_upstream():
    async def scenario(gateway, upstream):
        for head, part in ((HEAD + b"Content-Length: 10\r\n\r\n", b"hello"), (CHUNKS, b"a\r\nhello")):
            upstream.forget()
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(head + part)
            await asyncio.sleep(0.05)
            writer.close()
            await asyncio.sleep(0.05)
            assert not whole(b"".join(upstream.received))
            assert await clean_request_works(gateway, upstream)
            assert upstream.connections == 1  # on a connection of its own: the broken one was closed

    run(scenario)

"""The proxy on the wire: raw bytes in, raw bytes out, on real sockets."""

import asyncio
import gzip
import json

import pytest

from gateway.config import Capture, Config, Upstream
from gateway.config import Gateway as GatewayTable
from gateway.upstreams.router import Router
from gaugeway.exchange import Recording
from tests.support.running import header_lines, read_request, running_gateway, tcp_server

CHAT = b'{"model": "m",  "messages": [{"role": "user", "content": "Q \\u00e9 \xc3\xa9"}], "unknown_field": [1.50]}'
ANSWER = b'{"id": "c", "choices": [{"message": {"role": "assistant", "content": "A."}, "finish_reason": "stop"}]}'


def reply(body=ANSWER, status="200 OK", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class ScriptedUpstream:
    """Answers each request with the next reply and keeps what it received, raw."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self.closed = asyncio.Event()

    async def __call__(self, reader, writer):
        try:
            while True:
                self.requests.append(await read_request(reader))
                step = self.replies.pop(0)
                if callable(step):
                    await step(reader, writer)
                else:
                    writer.write(step)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, IndexError):
            pass
        finally:
            self.closed.set()
            writer.close()


async def request(port, raw):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    await writer.drain()
    return reader, writer


def post(body=CHAT, path="/v1/chat/completions", *headers):
    lines = [f"POST {path} HTTP/1.1", "Host: gw", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + body


async def whole_response(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    headers = header_lines(head)
    if "content-length" in headers:
        return head, headers, await reader.readexactly(int(headers["content-length"]))
    body = b""
    while True:
        size = int((await reader.readline()).strip(), 16)
        body += await reader.readexactly(size)
        await reader.readexactly(2)
        if size == 0:
            return head, headers, body


async def exchange(port, raw):
    reader, writer = await request(port, raw)
    try:
        return await whole_response(reader)
    finally:
        writer.close()


def run(scenario, *replies, **settings):
    async def main():
        upstream = ScriptedUpstream(*replies)
        base = settings.pop("base", "/v1")
        async with (
            tcp_server(upstream) as port,
            running_gateway(f"http://127.0.0.1:{port}{base}", **settings) as gateway,
        ):
            async with asyncio.timeout(60):
                await scenario(gateway, upstream)

    asyncio.run(main())


def test_body_path_query_and_end_to_end_headers_reach_the_upstream_as_sent():
    async def scenario(gateway, upstream):
        raw = post(
            CHAT,
            "/v1/chat/completions?a=%2Fb&c=d%20e&empty=",
            "Authorization: Bearer client-key",
            "X-Custom: one",
            "X-Custom: two",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "Connection: keep-alive",
        )
        await exchange(gateway.port, raw)
        head, body = upstream.requests[0]
        assert body == CHAT
        assert head.startswith(b"POST /v1/chat/completions?a=%2Fb&c=d%20e&empty= HTTP/1.1\r\n")
        lines = [line.lower() for line in head.decode().split("\r\n")[1:] if line]
        assert "authorization: bearer client-key" in lines
        assert [line for line in lines if line.startswith("x-custom")] == ["x-custom: one", "x-custom: two"]
        assert "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" in lines
        names = {line.partition(":")[0] for line in lines}
        ours = {"gaugeway-via"}
        assert names - ours == {"host", "content-type", "content-length", "authorization", "x-custom", "traceparent"}

    run(scenario, reply())


def test_status_body_and_headers_come_back_as_sent():
    async def scenario(gateway, upstream):
        head, headers, body = await exchange(gateway.port, post())
        assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert body == b'{"error": {"message": "slow"}}'
        exchange_id = headers.pop("x-gaugeway-exchange-id")
        assert len(exchange_id) == 32
        assert headers == {
            "content-length": "30",
            "content-type": "application/json",
            "retry-after-ms": "1500",
            "x-request-id": "req_1",
            "date": "Fri, 01 Jan 2027 00:00:00 GMT",
            "server": "upstream",
        }

    extra = ("Retry-After-Ms: 1500", "x-request-id: req_1", "Date: Fri, 01 Jan 2027 00:00:00 GMT", "Server: upstream")
    run(scenario, reply(b'{"error": {"message": "slow"}}', "429 Too Many Requests", *extra))


def test_a_gzipped_body_passes_packed_and_is_captured_unpacked():
    packed = gzip.compress(ANSWER)

    async def scenario(gateway, upstream):
        _, headers, body = await exchange(gateway.port, post(CHAT, "/v1/chat/completions", "Accept-Encoding: gzip"))
        assert body == packed
        assert headers["content-encoding"] == "gzip"
        assert b"accept-encoding: gzip\r\n" in upstream.requests[0][0].lower()
        (sample,) = await gateway.samples(1)
        assert sample.response == "A."
        assert sample.question == "Q é é"

    run(scenario, reply(packed, "200 OK", "Content-Encoding: gzip"))


def test_our_key_and_headers_never_reach_the_upstream():
    async def scenario(gateway, upstream):
        key = b'"gaugeway": {"question": "Real?", "contexts": ["p1"], "app": "shop", "tags": {"v": "7"}}'
        body = CHAT[:-1] + b", " + key + b"}"
        await exchange(gateway.port, post(body, "/v1/chat/completions", "x-gaugeway-session: s1"))
        head, sent = upstream.requests[0]
        assert sent == CHAT
        lines = head.lower().split(b"\r\n")
        assert [line.partition(b":")[0] for line in lines if b"gaugeway" in line] == [b"gaugeway-via"]
        (sample,) = await gateway.samples(1)
        assert (sample.question, sample.app, sample.session, sample.tags) == ("Real?", "shop", "s1", {"v": "7"})
        assert [context.text for context in sample.contexts] == ["p1"]

    run(scenario, reply())


def test_a_mistake_in_our_key_is_answered_in_openais_shape_and_names_the_field():
    async def scenario(gateway, upstream):
        head, _, body = await exchange(gateway.port, post(b'{"model": "m", "gaugeway": {"contexts": "x"}}'))
        assert head.startswith(b"HTTP/1.1 400")
        error = json.loads(body)["error"]
        assert error["param"] == "gaugeway.contexts"
        assert error["type"] == "invalid_request_error"
        assert upstream.requests == []

    run(scenario)


def test_no_cookie_is_kept_between_requests():
    async def scenario(gateway, upstream):
        _, headers, _ = await exchange(gateway.port, post())
        assert headers["set-cookie"] == "sess=userA; Path=/"
        await exchange(gateway.port, post())
        assert b"cookie" not in upstream.requests[1][0].lower()

    run(scenario, reply(ANSWER, "200 OK", "Set-Cookie: sess=userA; Path=/"), reply())


def test_every_chunk_of_a_stream_is_forwarded_before_the_next_is_produced():
    seen = asyncio.Event()
    count = 100

    async def stream(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(count):
            event = b'data: {"choices": [{"index": 0, "delta": {"content": "%d "}}]}\n\n' % number
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            await seen.wait()  # the client has it: only now is the next one produced
            seen.clear()
        writer.write(b"c\r\n: a comment\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async def scenario(gateway, upstream):
        reader, writer = await request(gateway.port, post())
        await reader.readuntil(b"\r\n\r\n")
        for number in range(count):
            chunk = await reader.readuntil(b"\n\n\r\n")
            assert b'"%d "' % number in chunk
            seen.set()
        rest = await reader.readuntil(b"0\r\n\r\n")
        assert b": a comment\n" in rest
        assert b"data: [DONE]\n\n" in rest
        writer.close()
        (sample,) = await gateway.samples(1)
        assert sample.response == "".join(f"{number} " for number in range(count))
        assert sample.skip_reason is None

    run(scenario, stream)


@pytest.mark.parametrize("started", [False, True], ids=["before the first byte", "in the middle of the stream"])
def test_a_client_that_hangs_up_ends_the_upstream_request(started):
    reached = asyncio.Event()

    async def hang(reader, writer):
        if started:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"8\r\ndata: x\n\r\n")
            await writer.drain()
        reached.set()
        await reader.read()  # returns when the gateway closes

    async def scenario(gateway, upstream):
        reader, writer = await request(gateway.port, post())
        await reached.wait()
        if started:
            await reader.readuntil(b"data: x\n")
        writer.close()
        async with asyncio.timeout(60):  # the upstream would never answer
            await upstream.closed.wait()
        (sample,) = await gateway.samples(1)
        assert sample.skip_reason == "client_cancelled"
        assert gateway.total("gaugeway_requests_total", ending="client_cancelled") == 1

    run(scenario, hang)


def test_an_upstream_that_dies_in_the_middle_never_looks_like_a_clean_end():
    async def die(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"8\r\ndata: x\n\r\n")
        await writer.drain()
        writer.close()

    async def scenario(gateway, upstream):
        reader, writer = await request(gateway.port, post())
        received = await reader.read()
        assert b"data: x\n" in received
        assert not received.endswith(b"0\r\n\r\n")
        writer.close()
        (sample,) = await gateway.samples(1)
        assert sample.skip_reason == "upstream_truncated"

    run(scenario, die)


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("client", ["native", "httpx"])
def test_an_upstream_without_a_first_byte_in_time_is_followed_by_the_next_one(client, fast_path):
    asked = []

    async def silent(reader, writer):
        asked.append("silent")
        await reader.read()
        writer.close()

    async def good(reader, writer):
        asked.append("good")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async def main():
        async with tcp_server(silent) as first, tcp_server(good) as second:
            upstreams = (
                Upstream(name="a", base_url=f"http://127.0.0.1:{first}/v1", max_retries=1),
                Upstream(name="b", base_url=f"http://127.0.0.1:{second}/v1", priority=1),
            )
            table = GatewayTable(upstream_client=client, first_byte_timeout_s=0.2)
            config = Config(gateway=table, upstreams=upstreams)
            async with running_gateway("", config=config, fast_path=fast_path) as gateway:
                head, _, _ = await exchange(gateway.port, post())
                assert head.startswith(b"HTTP/1.1 200")
                assert asked == ["silent", "silent", "good"]
                assert gateway.total("gaugeway_upstream_errors_total", kind="timeout", upstream="a") == 2

    asyncio.run(main())


def test_an_http_1_0_client_gets_a_body_without_chunks():
    async def chunked(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        await writer.drain()

    async def scenario(gateway, upstream):
        raw = post().replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        reader, writer = await request(gateway.port, raw)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert body == b"abcde", head
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head.lower()
        writer.close()

    run(scenario, chunked)


@pytest.mark.parametrize("client", ["native", "httpx"])
def test_a_status_that_http_does_not_have_is_a_502(client):
    async def odd(reader, writer):
        writer.write(b"HTTP/1.1 700 Odd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def scenario(gateway, upstream):
        head, _, body = await exchange(gateway.port, post())
        assert head.startswith(b"HTTP/1.1 502")
        assert "invalid status 700" in json.loads(body)["error"]["message"]

    run(scenario, odd, upstream_client=client)


def test_an_unreachable_upstream_is_a_502_in_openais_shape():
    async def main():
        async with running_gateway("http://127.0.0.1:9/v1") as gateway:
            head, _, body = await exchange(gateway.port, post())
            assert head.startswith(b"HTTP/1.1 502")
            assert json.loads(body)["error"]["code"] == "upstream_unreachable"
            await gateway.until(lambda: gateway.total("gaugeway_upstream_errors_total", kind="connect") == 1)
            (sample,) = await gateway.samples(1)
            assert sample.skip_reason == "upstream_error"

    asyncio.run(main())


def test_an_upstream_that_does_not_answer_in_time_is_a_504():
    async def silent(reader, writer):
        await reader.read()

    async def scenario(gateway, upstream):
        head, _, body = await exchange(gateway.port, post())
        assert head.startswith(b"HTTP/1.1 504")
        assert json.loads(body)["error"]["code"] == "upstream_timeout"
        await upstream.closed.wait()
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", ending="timeout") == 1)

    run(scenario, silent, read_timeout_s=0.2)


@pytest.mark.parametrize("framing", ["Content-Length: 2000", "Transfer-Encoding: chunked"])
def test_a_body_over_the_limit_is_a_413_and_never_forwarded(framing):
    async def scenario(gateway, upstream):
        body = b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n" if "chunked" in framing else b"x" * 2000
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n{framing}\r\n\r\n"
        reply_head, _, answer = await exchange(gateway.port, head.encode() + body)
        assert reply_head.startswith(b"HTTP/1.1 413")
        assert json.loads(answer)["error"]["code"] == "request_too_large"
        assert upstream.requests == []
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total", outcome="too_large") == 1)

    run(scenario, max_body_bytes=1000)


def test_an_upload_is_streamed_through_with_its_own_framing():
    async def scenario(gateway, upstream):
        head = (
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        reader, writer = await request(gateway.port, head + b"3\r\nabc\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"3\r\ndef\r\n0\r\n\r\n")
        await whole_response(reader)
        writer.close()
        sent_head, sent = upstream.requests[0]
        assert b"transfer-encoding: chunked" in sent_head.lower()
        assert b"abc" in sent
        assert b"def" in sent
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", route="files") == 1)
        assert gateway.total("gaugeway_exchanges_total") == 0

    run(scenario, reply(b"{}"))


def test_an_azure_style_path_passes_whole():
    async def scenario(gateway, upstream):
        await exchange(gateway.port, post(CHAT, "/openai/deployments/d%201/chat/completions?api-version=2026-01-01"))
        assert upstream.requests[0][0].startswith(
            b"POST /openai/deployments/d%201/chat/completions?api-version=2026-01-01 HTTP/1.1\r\n"
        )
        (sample,) = await gateway.samples(1)
        assert sample.response == "A."

    run(scenario, reply(), base="")


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_a_response_without_a_body_stays_without_one(status):
    async def answer(reader, writer):
        writer.write(f"HTTP/1.1 {status}\r\nX-A: 1\r\n\r\n".encode())
        await writer.drain()

    async def scenario(gateway, upstream):
        reader, writer = await request(gateway.port, b"DELETE /v1/files/f HTTP/1.1\r\nHost: g\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status}".encode())
        assert "transfer-encoding" not in header_lines(head)
        writer.close()

    run(scenario, answer)


def test_a_head_request_gets_the_headers_alone():
    async def answer(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        await writer.drain()

    async def scenario(gateway, upstream):
        reader, writer = await request(
            gateway.port, b"HEAD /v1/models HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"
        )
        raw = await reader.read()
        assert header_lines(raw)["content-length"] == "1234"
        assert raw.endswith(b"\r\n\r\n")
        writer.close()

    run(scenario, answer)


def test_a_response_too_large_to_keep_passes_whole_and_is_counted():
    body = json.dumps({"choices": [{"message": {"content": "x" * 5000}}]}).encode()

    async def main():
        upstream = ScriptedUpstream(reply(body))
        async with tcp_server(upstream) as port:
            config = Config(
                gateway=GatewayTable(),
                upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1"),),
                capture=Capture(max_content_bytes=1000),
            )
            async with running_gateway("", config=config) as gateway:
                assert (await exchange(gateway.port, post()))[2] == body
                await gateway.until(lambda: gateway.total("gaugeway_exchanges_total", outcome="too_large") == 1)

    asyncio.run(main())


def test_health_and_readiness_depend_on_nothing_else():
    async def main():
        async with running_gateway("http://127.0.0.1:9/v1") as gateway:
            for path in (b"/healthz", b"/readyz"):
                head, _, _ = await exchange(gateway.port, b"GET " + path + b" HTTP/1.1\r\nHost: g\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
            gateway.gateway.readiness.drain()
            head, _, _ = await exchange(gateway.port, b"GET /readyz HTTP/1.1\r\nHost: g\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503")
            _, _, body = await exchange(gateway.port, b"GET /chat/completions HTTP/1.1\r\nHost: g\r\n\r\n")
            assert "under /v1" in json.loads(body)["error"]["message"]

    asyncio.run(main())


@pytest.mark.parametrize(("limit", "started"), [("first_byte", False), ("total", False), ("total", True)])
def test_time_limits_of_our_own_end_the_upstream_request(limit, started):
    async def slow(reader, writer):
        if started:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"8\r\ndata: x\n\r\n")
            await writer.drain()
        await reader.read()

    async def scenario(gateway, upstream):
        reader, writer = await request(gateway.port, post())
        received = await reader.read() if started else (await whole_response(reader))[0]
        writer.close()
        await upstream.closed.wait()
        if started:
            assert b"data: x\n" in received
            assert not received.endswith(b"0\r\n\r\n")
        else:
            assert received.startswith(b"HTTP/1.1 504")
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", ending="timeout") == 1)

    run(scenario, slow, **{f"{limit}_timeout_s": 0.3})


def test_a_mistake_of_ours_is_a_500_before_the_head_and_a_cut_after_it(monkeypatch):
    async def scenario(gateway, upstream):
        async def broken(router, attempts):
            raise RuntimeError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(Router, "attempt", broken)
            head, _, body = await exchange(gateway.port, post())
        assert head.startswith(b"HTTP/1.1 500")
        assert json.loads(body)["error"]["code"] == "internal_error"

        def also_broken(recording, chunk, limit):
            raise RuntimeError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(Recording, "keep", also_broken)
            await exchange(gateway.port, post())
        samples = await gateway.samples(2)
        assert [sample.skip_reason for sample in samples] == ["upstream_error", "upstream_truncated"]

    run(scenario, reply())


def test_a_json_body_in_chunks_arrives_whole_with_its_length():
    async def scenario(gateway, upstream):
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        half = len(CHAT) // 2
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (CHAT[:half], CHAT[half:]))
        await exchange(gateway.port, head + chunks + b"0\r\n\r\n")
        sent_head, sent = upstream.requests[0]
        assert sent == CHAT
        assert b"content-length: %d\r\n" % len(CHAT) in sent_head.lower()
        assert b"transfer-encoding" not in sent_head.lower()

    run(scenario, reply())


def test_uploads_have_a_limit_of_their_own():
    async def scenario(gateway, upstream):
        head = b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        await exchange(gateway.port, head + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000)
        assert upstream.requests[0][1] == b"x" * 5000
        reply_head, _, _ = await exchange(gateway.port, head + b"Content-Length: 20000\r\n\r\n" + b"x" * 20000)
        assert reply_head.startswith(b"HTTP/1.1 413")

    run(scenario, reply(), max_body_bytes=1000, max_upload_bytes=10_000)


def test_our_key_is_cut_out_of_a_large_body_too():
    async def scenario(gateway, upstream):
        large = b'{"model": "m", "pad": "' + b"x" * 400_000 + b'"'
        await exchange(gateway.port, post(large + b', "gaugeway": {"app": "shop"}}'))
        assert upstream.requests[0][1] == large + b"}"
        (sample,) = await gateway.samples(1)
        assert sample.app == "shop"

    run(scenario, reply())


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_an_anthropic_message_that_was_cut_counts_as_truncated(reason):
    cut = {"id": "m", "model": "c", "content": [{"type": "text", "text": "Two"}], "stop_reason": reason}

    async def scenario(gateway, upstream):
        body = b'{"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": "How many moons?"}]}'
        await exchange(gateway.port, post(body, "/v1/messages"))
        (one,) = await gateway.samples(1)
        assert one.skip_reason == "truncated_response"

    run(scenario, reply(json.dumps(cut).encode()))


def test_anthropic_messages_pass_and_are_captured():
    events = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "c", "usage": {"input_tokens": 7}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Two "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "moons."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    raw = b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw)
    whole = {
        "id": "msg_2",
        "model": "c",
        "content": [{"type": "text", "text": "Two."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }

    async def scenario(gateway, upstream):
        body = b'{"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": "How many moons?"}]}'
        assert (await exchange(gateway.port, post(body, "/v1/messages")))[2] == raw
        await exchange(gateway.port, post(body, "/v1/messages"))
        first, second = await gateway.samples(2)
        assert (first.question, first.response, first.skip_reason) == ("How many moons?", "Two moons.", None)
        assert (first.usage.input_tokens, first.usage.output_tokens) == (7, 3)
        assert (second.response, second.response_id, second.skip_reason) == ("Two.", "msg_2", None)

    run(scenario, stream, reply(json.dumps(whole).encode()))


def test_usage_that_only_we_asked_for_is_captured_and_kept_from_the_client():
    words = [b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}],"usage":null}\n\n']
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\n'
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (*words, usage, b"data: [DONE]\n\n"))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    stream = head + chunks + b"0\r\n\r\n"

    async def main():
        upstream = ScriptedUpstream(stream, stream, stream)
        async with tcp_server(upstream) as port:
            config = Config(
                gateway=GatewayTable(),
                upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1"),),
                capture=Capture(include_usage=True),
            )
            async with running_gateway("", config=config) as gateway:
                body = (await exchange(gateway.port, post(b'{"model": "m", "stream": true}')))[2]
                assert body == words[0] + b"data: [DONE]\n\n"
                assert b'"stream_options":{"include_usage":true}' in upstream.requests[0][1]
                asked = b'{"model": "m", "stream": true, "stream_options": {"include_usage": true}}'
                body = (await exchange(gateway.port, post(asked)))[2]
                assert body == words[0] + usage + b"data: [DONE]\n\n"
                assert upstream.requests[1][1] == asked
                body = (await exchange(gateway.port, post(b'{"stream": true, "stream_options": null}')))[2]
                assert body == words[0] + b"data: [DONE]\n\n"
                assert upstream.requests[2][1] == b'{"stream": true, "stream_options": {"include_usage":true}}'
                for sample in await gateway.samples(3):
                    assert (sample.usage.input_tokens, sample.usage.output_tokens) == (4, 2)

    asyncio.run(main())


def test_a_request_that_we_refuse_leaves_nothing_of_itself_behind():
    async def scenario(gateway, upstream):
        body = b'{"model": "m", "messages": [{"role": "user", "content": "private"}], "gaugeway": {"capture": "off"}}'
        head, _, _ = await exchange(gateway.port, post(body))
        assert head.startswith(b"HTTP/1.1 400")
        await gateway.until(lambda: gateway.counter("gaugeway_exchanges_total", app="default", outcome="rejected") == 1)
        assert (await gateway.queue.depth()).ready == 0

    run(scenario)


def test_a_request_that_the_upstream_has_worked_on_is_not_sent_a_second_time():
    async def die_at_work(reader, writer):
        await asyncio.sleep(1.3)
        writer.close()

    async def scenario(gateway, upstream):
        await exchange(gateway.port, post())
        head, _, _ = await exchange(gateway.port, post())
        assert head.startswith(b"HTTP/1.1 502")
        assert len(upstream.requests) == 2

    run(scenario, reply(), die_at_work, reply())

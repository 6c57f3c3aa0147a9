"""The rows of the fidelity matrix: each sends something through a contender and compares bytes at both ends."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable

import peers
from probe import Outcome, Probe, fail, verdict
from upstream import LAST, REPLY
from wire import Headers, Received, Response, Script, respond, silence, stream

CANCEL_S = 0.2
WATCH_S = 3.0
BUFFERED_S = 0.1
TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
DONE = b"data: [DONE]\n\n"


def _refused(response: Response) -> Outcome:
    return fail(f"upstream got nothing; the client got {response.status or 'no answer'} {response.body[:120]!r}")


def _elsewhere(response: Response, received: Received | None) -> Outcome | None:
    """On routes a gateway need not have: it answered by itself that it has none."""
    if received is None and response.status in {400, 401, 403, 404, 405, 415, 422, 500, 501}:
        return Outcome("not offered", _refused(response).reason)
    return None if received is not None else _refused(response)


async def unknown_field(probe: Probe) -> Outcome:
    response, received = await probe.chat(respond(), probe.body(x_unknown={"deep": [1, 2.50]}))
    if received is None:
        return _refused(response)
    kept = json.loads(received.body).get("x_unknown") == {"deep": [1, 2.5]}
    return verdict(kept, "kept" if kept else "dropped")


async def body_bytes(probe: Probe) -> Outcome:
    name = probe.contender.model.format("bench").encode()
    body = b'{ "messages":[{"content":"caf\\u00e9 \xc3\xa9 %b","role":"user"}],\n  "temperature" : 1.0, "model":"%b"}'
    body %= (probe.mark(), name)
    response, received = await probe.chat(respond(), body)
    if received is None:
        return _refused(response)
    same = received.body == body
    return verdict(same, "identical" if same else f"rewritten: {received.body[:140]!r}")


async def custom_header(probe: Probe) -> Outcome:
    return await _header(probe, "x-acme-tenant", b"Blue; a=1")


async def traceparent(probe: Probe) -> Outcome:
    return await _header(probe, "traceparent", TRACE)


async def _header(probe: Probe, name: str, value: bytes) -> Outcome:
    response, received = await probe.chat(respond(), headers=[(name, value)])
    if received is None:
        return _refused(response)
    found = received.all(name)
    return verdict(found == [value], f"upstream got {found!r}")


async def query(probe: Probe) -> Outcome:
    text = "?api-version=2024-10-21&x=%2F%20a+b&empty=&x=%e4"
    response, received = await probe.chat(respond(), query=text)
    if received is None:
        return _refused(response)
    return verdict(received.target.endswith(b"/chat/completions" + text.encode()), f"upstream got {received.target!r}")


def upstream_error(status: int) -> Callable[[Probe], Awaitable[Outcome]]:
    async def row(probe: Probe) -> Outcome:
        body = b'{"error" : {"message":"scripted %d","type":"scripted","param":null,"code":"c%d"}}' % (status, status)
        headers: Headers = [("content-type", b"application/json")]
        if status == 429:
            headers += [("retry-after-ms", b"1234"), ("retry-after", b"2"), ("x-should-retry", b"false")]
        response, received = await probe.chat(respond(status, headers, body), probe.body(f"bench-{status}"))
        probe.seen[status] = response
        same = response.status == status and response.body == body
        if received is None and response.status != status:
            return _refused(response)
        return verdict(same, "unchanged" if same else f"the client got {response.status} {response.body[:140]!r}")

    return row


async def after_401(probe: Probe) -> Outcome:
    await probe.chat(respond(401, body=b'{"error":{"message":"no","type":"t"}}'), probe.body("bench-after"))
    response, received = await probe.chat(respond(), probe.body("bench-after"))
    passed = received is not None and response.status == 200
    return verdict(passed, "the next call passes" if passed else _refused(response).reason)


async def retry_headers(probe: Probe) -> Outcome:
    response = probe.seen[429]
    return _kept(response, [("retry-after-ms", b"1234"), ("retry-after", b"2"), ("x-should-retry", b"false")])


async def limit_headers(probe: Probe) -> Outcome:
    sent: Headers = [
        ("x-ratelimit-remaining-requests", b"59"),
        ("x-ratelimit-reset-tokens", b"6m0s"),
        ("openai-processing-ms", b"17"),
        ("x-request-id", b"req_1"),
    ]
    response, _ = await probe.chat(respond(200, [("content-type", b"application/json"), *sent]))
    return _kept(response, sent)


def _kept(response: Response, sent: Headers) -> Outcome:
    lost = [f"{name}: {response.all(name)!r}" for name, value in sent if response.all(name) != [value]]
    return verdict(not lost, "unchanged" if not lost else f"status {response.status}, differ: {', '.join(lost)}")


async def set_cookies(probe: Probe) -> Outcome:
    cookies = [b"a=1; Path=/; HttpOnly", b"b=2; Expires=Wed, 09 Jun 2027 10:18:14 GMT"]
    script = respond(200, [("content-type", b"application/json"), *(("set-cookie", value) for value in cookies)])
    response, _ = await probe.chat(script)
    return verdict(response.all("set-cookie") == cookies, f"the client got {response.all('set-cookie')!r}")


async def no_cookie_kept(probe: Probe) -> Outcome:
    sent: Headers = [("content-type", b"application/json"), ("set-cookie", b"session=of-client-a; Path=/")]
    await probe.chat(respond(200, sent))
    response, received = await probe.chat(respond())
    if received is None:
        return _refused(response)
    return verdict(
        received.header("cookie") is None, f"the next client's request had cookie {received.header('cookie')!r}"
    )


async def gzip_response(probe: Probe) -> Outcome:
    packed = gzip.compress(REPLY, mtime=0)
    sent: Headers = [("content-type", b"application/json"), ("content-encoding", b"gzip")]
    response, _ = await probe.chat(respond(200, sent, packed), headers=[("accept-encoding", b"gzip")])
    same = response.body == packed and response.header("content-encoding") == b"gzip"
    shape = f"{response.status}, content-encoding {response.header('content-encoding')!r}, {len(response.body)} bytes"
    return verdict(same, "identical" if same else f"the client got {shape} for {len(packed)} of gzip")


async def gzip_request(probe: Probe) -> Outcome:
    packed = gzip.compress(probe.body(), mtime=0)
    response, received = await probe.chat(respond(), packed, headers=[("content-encoding", b"gzip")])
    if received is None:
        return _refused(response)
    same = received.body == packed and received.header("content-encoding") == b"gzip"
    return verdict(same, "identical" if same else f"upstream got {len(received.body)} other bytes")


def _delta(text: str) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1741569952,
        "model": "bench",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}],
        "x_provider": {"kept": True},
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def sse_bytes(probe: Probe) -> Outcome:
    events = [b": OPENROUTER PROCESSING\n\n", _delta("one"), b"event: note\nid: 7\n" + _delta("two"), LAST]
    response, _ = await probe.chat(stream(events, gap=0.01), probe.body(stream=True))
    whole = b"".join(events)
    if response.body == whole:
        return verdict(response.complete, "identical" if response.complete else "identical, but not ended")
    parts = {"comment": b": OPENROUTER", "event and id": b"id: 7", "[DONE]": DONE, "unknown field": b"x_provider"}
    lost = [name for name, part in parts.items() if part not in response.body]
    return fail(f"{len(response.body)} bytes for {len(whole)}; lost: {', '.join(lost) or 'only formatting'}")


async def usage_unasked(probe: Probe) -> Outcome:
    async def script(received: Received) -> None:
        asked = b"include_usage" in received.body
        usage = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],'
        usage += b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}\n\n'
        await stream([_delta("one"), *([usage] if asked else []), LAST])(received)

    response, received = await probe.chat(script, probe.body(stream=True))
    if received is None:
        return _refused(response)
    shown = b'"prompt_tokens"' in response.body
    asked = b"include_usage" in received.body
    return verdict(
        not shown, f"asked upstream: {'yes' if asked else 'no'}; shown to the client: {'yes' if shown else 'no'}"
    )


async def hang_up_before(probe: Probe) -> Outcome:
    return await _hang_up(probe, silence, probe.body(), wait_for_data=False)


async def hang_up_during(probe: Probe) -> Outcome:
    events = [_delta(f"word {n} ") for n in range(400)]
    return await _hang_up(probe, stream(events, gap=0.02), probe.body(stream=True), wait_for_data=True)


async def _hang_up(probe: Probe, script: Script, body: bytes, *, wait_for_data: bool) -> Outcome:
    """Leave when the upstream has the request (and, if asked, the client some data); time the end at the upstream."""
    probe.upstream.reset(script, keep_mark=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", probe.port)
    writer.write(probe.raw("POST", "/chat/completions", body, None))
    received = await probe.upstream.first("POST")
    if received is None:
        writer.close()
        return fail("the request did not reach the upstream in 5 s")
    if wait_for_data:
        async with asyncio.timeout(5):
            await reader.readuntil(b"word 3")
    await asyncio.sleep(0.1)
    begun = time.monotonic()
    writer.close()
    try:
        async with asyncio.timeout(WATCH_S):
            await received.closed.wait()
    except TimeoutError:
        return fail(f"upstream not cancelled within {WATCH_S:.0f} s")
    took = time.monotonic() - begun
    return verdict(took <= CANCEL_S, f"cancelled after {took * 1000:.0f} ms")


async def dies_during(probe: Probe) -> Outcome:
    response, _ = await probe.chat(stream([_delta(f"{n}") for n in range(3)], die=True), probe.body(stream=True))
    if not response.complete:
        return Outcome("pass", f"cut off after {response.body.count(b'data:')} events: no client takes it for whole")
    last = response.body.strip().rsplit(b"\n\n", 1)[-1]
    if last.startswith(b'data: {"error"'):
        return Outcome("pass", f"a clean end, but its last event says so: {last[:100]!r}")
    return fail(f"ends cleanly; last event {last[:100]!r}")


async def multipart(probe: Probe) -> Outcome:
    edge = b"----8f3c"
    file = bytes(range(256)) * 300
    body = b'--%b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--%b\r\n' % (edge, edge)
    body += b'Content-Disposition: form-data; name="file"; filename="a.bin"\r\n'
    body += b"Content-Type: application/octet-stream\r\n\r\n"
    body += file + b"\r\n--%b--\r\n" % edge
    kind = b"multipart/form-data; boundary=" + edge
    script = respond(
        body=b'{"id":"file-1","object":"file","bytes":1,"created_at":1,"filename":"a","purpose":"user_data"}'
    )
    response, received = await probe.send("POST", "/files", body, script=script, headers=[("content-type", kind)])
    if (other := _elsewhere(response, received)) is not None or received is None:
        return other or _refused(response)
    same = received.body == body and received.header("content-type") == kind
    return verdict(
        same, "identical" if same else f"upstream got {len(received.body)} bytes for {len(body)}, re-encoded"
    )


async def head(probe: Probe) -> Outcome:
    script = respond(200, [("content-type", b"application/json"), ("x-mark", b"1")], b"x" * 321)
    response, received = await probe.send("HEAD", "/models", script=script)
    if (other := _elsewhere(response, received)) is not None:
        return other
    passed = response.header("x-mark") == b"1" and response.header("content-length") == b"321"
    return verdict(passed, f"{response.status}, content-length {response.header('content-length')!r}")


async def options(probe: Probe) -> Outcome:
    script = respond(204, [("allow", b"GET, POST"), ("x-mark", b"1")], b"")
    response, received = await probe.send("OPTIONS", "/models", script=script)
    if received is None and response.status in {200, 204}:
        return fail(f"answered by the gateway itself: {response.status}")
    if (other := _elsewhere(response, received)) is not None:
        return other
    passed = response.status == 204 and response.header("x-mark") == b"1"
    return verdict(passed, f"{response.status}, allow {response.header('allow')!r}")


async def unknown_path(probe: Probe) -> Outcome:
    path = "/some/future/route%20x"
    response, received = await probe.send("POST", path, b'{"a": 1}', script=respond(201, body=b'{"made":1}'))
    if (other := _elsewhere(response, received)) is not None or received is None:
        return other or _refused(response)
    passed = received.target.endswith(path.encode()) and received.body == b'{"a": 1}' and response.status == 201
    return verdict(passed, f"upstream got {received.target!r} {received.body[:40]!r}; the client {response.status}")


async def chunked_request(probe: Probe) -> Outcome:
    body = probe.body()
    response, received = await probe.send("POST", "/chat/completions", body, script=respond(), chunked=True)
    if received is None:
        return _refused(response)
    passed = response.status == 200 and json.loads(received.body)["messages"] == json.loads(body)["messages"]
    return verdict(
        passed, f"{response.status}; {'same bytes' if received.body == body else 'same messages, rewritten'}"
    )


async def not_buffered(probe: Probe) -> Outcome:
    sent: list[int] = []
    events = [_delta(f"@{n:03d}@") for n in range(100)]
    script = stream([*events, LAST], gap=0.005, stamp=lambda: sent.append(time.monotonic_ns()))
    response, _ = await probe.chat(script, probe.body(stream=True))
    text, arrived = b"", dict[int, int]()
    for when, data in response.reads:
        text += data
        while len(arrived) < 100 and f"@{len(arrived):03d}@".encode() in text:
            arrived[len(arrived)] = when
    if len(arrived) < 100:
        return fail(f"{len(arrived)} of 100 chunks arrived")
    worst = max(arrived[n] - sent[n] for n in arrived) / 1e9
    return verdict(worst < BUFFERED_S, f"100 of 100; the latest {worst * 1000:.0f} ms after it was sent")


ROWS: dict[str, Callable[[Probe], Awaitable[Outcome]]] = {
    "unknown body field kept": unknown_field,
    "request body bytes identical": body_bytes,
    "custom header forwarded": custom_header,
    "traceparent forwarded": traceparent,
    "query string with escapes identical": query,
    "chunked request body": chunked_request,
    "gzip request bytes identical": gzip_request,
    "gzip response bytes identical": gzip_response,
    "two Set-Cookie headers": set_cookies,
    "no cookie kept": no_cookie_kept,
    "x-ratelimit-*, openai-* unchanged": limit_headers,
    "SSE bytes identical": sse_bytes,
    "100-chunk stream not buffered": not_buffered,
    "usage not sent unasked": usage_unasked,
    "hang-up before first byte cancels": hang_up_before,
    "hang-up mid-stream cancels": hang_up_during,
    "upstream dying mid-stream is no clean end": dies_during,
    "multipart upload bytes identical": multipart,
    "HEAD": head,
    "OPTIONS": options,
    "unknown path": unknown_path,
    **{f"upstream {status} unchanged": upstream_error(status) for status in peers.STATUSES},
    "retry-after(-ms), x-should-retry unchanged": retry_headers,
    "a 401 leaves the next call alone": after_401,
}

"""A scripted OpenAI-compatible upstream, as cheap as a Python process can make it; run.py's "direct" row is its cost.

    python benchmarks/gateway/upstream.py PORT

Every POST is answered with one fixed chat completion, or, if the body asks for a stream, with SSE chunks that carry the
time they were emitted. `POST /_set {"delay": s, "interval": s, "chunks": n}` changes how.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time

import uvloop

ANSWER = (
    "Refunds are paid within fourteen days of the goods being received, to the means of payment used for the order. "
    "Opened software is excluded; a restocking fee of ten percent applies to orders made specially for you."
)
REPLY = json.dumps(
    {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1741569952,
        "model": "bench",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": ANSWER, "refusal": None}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 1719, "completion_tokens": 48, "total_tokens": 1767},
        "system_fingerprint": "fp_fc9f1d7035",
    },
    separators=(",", ":"),
).encode()
HEADERS = (
    b"HTTP/1.1 200 OK\r\ndate: Sat, 01 Jan 2028 00:00:00 GMT\r\nopenai-processing-ms: 12\r\n"
    b"x-request-id: req_5f3c2b1a\r\nx-ratelimit-remaining-requests: 9999\r\n"
)
JSON_HEAD = HEADERS + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
STREAM_HEAD = HEADERS + b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"bench","object":"model","created":1741569952,"owned_by":"bench"}]}'
WORDS = "and so the refund is paid"
# The stamp, 16 digits of nanoseconds between two @, is part of the text: a gateway that rewrites events still keeps it.
EVENT = (
    b'data: {"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,'
    b'"model":"bench","system_fingerprint":"fp_fc9f1d7035","choices":[{"index":0,"delta":{%s"content":"@%016d@'
    + WORDS.encode()
    + b'"},"logprobs":null,"finish_reason":null}]}\n\n'
)
LAST = (
    b'data: {"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,'
    b'"model":"bench","system_fingerprint":"fp_fc9f1d7035","choices":[{"index":0,"delta":{},"logprobs":null,'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
FULL_REPLY = JSON_HEAD % len(REPLY) + REPLY


class Settings:
    """How to answer; changed by `/_set`."""

    delay = 0.0
    interval = 0.0
    chunks = 100


def framed(data: bytes) -> bytes:
    """One chunk of the chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Upstream(asyncio.Protocol):
    """One connection. Requests come one after the other: a proxy that pipelines is not what is measured."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held = b""
        self._sent = 0
        self._timer: asyncio.Handle | None = None
        self._paused = self._waiting = False

    def connection_made(self, transport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's shape
        if self._timer is not None:
            self._timer.cancel()
        self._sent = sys.maxsize

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._waiting:
            self._waiting = False
            self._emit()

    def data_received(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._held = data
            return
        head = data[:end].lower()
        where = head.find(b"\r\ncontent-length:")
        if where >= 0:
            length = int(head[where + 17 : head.find(b"\r\n", where + 2) if b"\r\n" in head[where + 2 :] else None])
            complete = len(data) >= end + 4 + length
        else:
            complete = b"\r\ntransfer-encoding:" not in head or data.endswith(b"0\r\n\r\n")
        if not complete:
            self._held = data
            return
        self._held = b""
        if data.startswith(b"POST /_set"):
            vars_ = json.loads(data[end + 4 :])
            for name, value in vars_.items():
                setattr(Settings, name, value)
            self._transport.write(JSON_HEAD % 2 + b"{}")
        elif not data.startswith(b"POST"):
            self._transport.write(JSON_HEAD % len(MODELS) + (b"" if data.startswith(b"HEAD") else MODELS))
        else:
            streamed = data.find(b'"stream":true', end) >= 0 or data.find(b'"stream": true', end) >= 0
            answer = self._open if streamed else self._reply
            if Settings.delay:
                self._timer = self._loop.call_later(Settings.delay, answer)
            else:
                answer()

    def _reply(self) -> None:
        self._transport.write(FULL_REPLY)

    def _open(self) -> None:
        self._sent = 0
        self._due = self._loop.time()
        self._transport.write(STREAM_HEAD)
        self._emit()

    def _emit(self) -> None:
        if self._paused:
            self._waiting = True
            return
        if self._sent >= Settings.chunks:
            if self._sent < sys.maxsize:
                self._transport.write(framed(LAST) + b"0\r\n\r\n")
            return
        role = b'"role":"assistant",' if self._sent == 0 else b""
        self._transport.write(framed(EVENT % (role, time.monotonic_ns() % 10**16)))
        self._sent += 1
        self._due += Settings.interval
        if Settings.interval and self._sent < Settings.chunks:
            self._timer = self._loop.call_at(self._due, self._emit)
        else:
            self._timer = self._loop.call_soon(self._emit)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(loop), "127.0.0.1", port, backlog=1024)
    gc.collect()
    gc.freeze()
    print(f"ready on {port}; reply {len(REPLY)} bytes", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        uvloop.run(main(int(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(0)

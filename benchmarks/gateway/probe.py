"""One contender between our client and our upstream, and what a row of the matrix may say about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import peers
from wire import Headers, Received, Recorder, Response, Script, exchange


@dataclass(frozen=True)
class Outcome:
    """`pass`, `fail` or `not offered`, and why in a line."""

    result: str
    reason: str


def verdict(passed: object, reason: str) -> Outcome:
    return Outcome("pass" if passed else "fail", reason)


def fail(reason: str) -> Outcome:
    return Outcome("fail", reason)


@dataclass
class Probe:
    """One contender between our client and our upstream."""

    contender: peers.Contender
    port: int
    upstream: Recorder
    seen: dict[int, Response] = field(default_factory=dict)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        script: Script,
        headers: Headers | None = None,
        chunked: bool = False,
    ) -> tuple[Response, Received | None]:
        """One request; (what the client got, what the upstream got)."""
        self.upstream.reset(script, keep_mark=True)
        response = await exchange(self.port, self.raw(method, path, body, headers, chunked=chunked), method=method)
        same = (received for received in self.upstream.received if received.method == method)
        return response, next(same, None)

    def raw(self, method: str, path: str, body: bytes, headers: Headers | None, *, chunked: bool = False) -> bytes:
        given: Headers = [
            ("host", b"127.0.0.1:%d" % self.port),
            ("authorization", b"Bearer " + peers.KEY.encode()),
            ("accept", b"*/*"),
            ("user-agent", b"OpenAI/Python 3.52.0"),
            *((name, value.encode()) for name, value in self.contender.headers(self.upstream.port).items()),
            *(headers or []),
        ]
        if method == "POST" and not any(name == "content-type" for name, _ in given):
            given.append(("content-type", b"application/json"))
        if chunked:
            given.append(("transfer-encoding", b"chunked"))
            half = len(body) // 2
            body = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (half, body[:half], len(body) - half, body[half:])
        elif body or method == "POST":
            given.append(("content-length", b"%d" % len(body)))
        lines = b"".join(b"%b: %b\r\n" % (name.encode(), value) for name, value in given)
        return b"%b %b%b HTTP/1.1\r\n%b\r\n%b" % (
            method.encode(),
            self.contender.base.encode(),
            path.encode(),
            lines,
            body,
        )

    def mark(self) -> bytes:
        """A text for the next request, by which the upstream tells it from late retries of earlier ones."""
        self.upstream.mark += 1
        return b"[request %d]" % self.upstream.mark

    def body(self, model: str = "bench", **more: object) -> bytes:
        """A chat request."""
        name = self.contender.model.format(model)
        return json.dumps(
            {
                "model": name,
                "messages": [{"role": "user", "content": f"When is it paid? {self.mark().decode()}"}],
                **more,
            }
        ).encode()

    async def chat(
        self, script: Script, body: bytes | None = None, *, headers: Headers | None = None, query: str = ""
    ) -> tuple[Response, Received | None]:
        sent = self.body() if body is None else body
        return await self.send("POST", "/chat/completions" + query, sent, script=script, headers=headers)

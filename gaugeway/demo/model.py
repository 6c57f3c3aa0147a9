"""The scripted OpenAI-compatible model over HTTP: chat completions and models.

It is deterministic: the same request gets the same bytes. A request that begins with `model_reply.ECHO` is answered
word for word, a judge's request with verdicts, any other from its passages.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeAlias

import msgspec

from gaugeway.demo import servers
from gaugeway.demo.model_reply import Reply, Turn, pieces, read_chat, reply

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Event: TypeAlias = dict[str, Any]

CREATED = 1_767_225_600
"""Every object's creation time: the same request always gets the same bytes."""
MODELS = ("handbook-1", "judge-1", "embed-1")


class Call(msgspec.Struct):
    """One request, and how it is answered."""

    method: str
    path: str
    raw: bytes
    send: Send

    def body(self) -> dict[str, Any]:
        """Decode the body. Raises ValueError for one that is no JSON object."""
        try:
            return msgspec.json.decode(self.raw, type=dict[str, Any])
        except msgspec.DecodeError:
            raise ValueError("the body must be a JSON object") from None

    async def json(self, status: int, content: dict[str, Any], headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Answer with one JSON object."""
        encoded = msgspec.json.encode(content)
        await self.start(status, b"application/json", [(b"content-length", b"%d" % len(encoded)), *headers])
        await self.send({"type": "http.response.body", "body": encoded})

    async def stream(self, events: Iterable[bytes]) -> None:
        """Answer with server-sent events."""
        await self.start(200, b"text/event-stream; charset=utf-8", [(b"cache-control", b"no-cache")])
        for event in events:
            await self.send({"type": "http.response.body", "body": event, "more_body": True})
        await self.send({"type": "http.response.body", "body": b""})

    async def start(self, status: int, content_type: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the status and the headers."""
        number = hashlib.blake2b(self.path.encode() + self.raw, digest_size=16).hexdigest()
        shown = [(b"content-type", content_type), (b"x-request-id", f"req_{number}".encode()), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": shown})


class Model:
    """The ASGI app; `slips` see `model_reply.answer`."""

    def __init__(self, *, slips: bool = False) -> None:
        self.slips = slips
        self.routes: dict[tuple[str, str], Callable[[Any], Awaitable[None]]] = {
            ("POST", "/v1/chat/completions"): self.chat,
            ("GET", "/v1/models"): self.models,
        }

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await self.answer(Call(scope["method"], scope["path"], await servers.body(receive), send))

    async def answer(self, call: Call) -> None:
        """Answer a request by its route."""
        if (route := self.routes.get((call.method, call.path))) is None:
            status = 405 if any(path == call.path for _, path in self.routes) else 404
            await call.json(status, error(f"Invalid URL ({call.method} {call.path})", "unknown_url"))
            return
        try:
            await route(call)
        except ValueError as problem:
            await call.json(400, error(f"Invalid or missing parameter: {problem}", None, param=str(problem)))

    async def chat(self, call: Call) -> None:
        """Answer `POST /v1/chat/completions`, in chunks or as a whole, as the request asks for it."""
        body = call.body()
        turn = read_chat(body)
        said = reply(turn, slips=self.slips)
        if body.get("stream"):
            options = body.get("stream_options")
            include_usage = isinstance(options, dict) and options.get("include_usage") is True
            events = chat_chunks(turn, said, include_usage=include_usage)
            await call.stream([*map(server_sent, events), b"data: [DONE]\n\n"])
        else:
            await call.json(200, chat(turn, said))

    async def models(self, call: Call) -> None:
        """Answer `GET /v1/models`."""
        data = [{"id": name, "object": "model", "created": CREATED, "owned_by": "gaugeway-demo"} for name in MODELS]
        await call.json(200, {"object": "list", "data": data})


@contextlib.asynccontextmanager
async def serving(model: Model, *, port: int = 0) -> AsyncIterator[str]:
    """Serve a model from the running event loop; yields the `base_url` (with `/v1`) for an OpenAI client."""
    async with servers.in_loop(model, port) as address:
        yield f"{address}/v1"


def chat(turn: Turn, said: Reply) -> dict[str, Any]:
    """Return a `chat.completion`."""
    message: Event = {"role": "assistant", "content": said.text, "refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish_reason}
    return _head("chat.completion", turn) | {"choices": [choice], "usage": usage(said), "system_fingerprint": "fp_demo"}


def chat_chunks(turn: Turn, said: Reply, *, include_usage: bool) -> Iterator[Event]:
    """Yield the `chat.completion.chunk`s of a stream."""
    head = _head("chat.completion.chunk", turn) | {"system_fingerprint": "fp_demo"}
    tail: dict[str, Any] = {"usage": None} if include_usage else {}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
    deltas += [{"content": piece} for piece in pieces(said.text)]
    for delta in (*deltas, {}):
        finish = None if delta else said.finish_reason
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        yield head | {"choices": [choice]} | tail
    if include_usage:
        yield head | {"choices": [], "usage": usage(said)}


def error(message: str, code: str | None, *, param: str | None = None, kind: str = "invalid_request_error") -> Event:
    """Return an error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usage(said: Reply) -> dict[str, Any]:
    """Return the tokens of a reply."""
    total = said.prompt_tokens + said.completion_tokens
    counts = {"prompt_tokens": said.prompt_tokens, "completion_tokens": said.completion_tokens, "total_tokens": total}
    details = {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}}
    return counts | details


def server_sent(event: Event) -> bytes:
    """Frame one event."""
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def _head(kind: str, turn: Turn) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn.fingerprint}", "object": kind, "created": CREATED, "model": turn.model}

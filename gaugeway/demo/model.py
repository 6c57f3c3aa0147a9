"""The scripted OpenAI-compatible model over HTTP: chat completions, completions, responses, embeddings, models.

It is deterministic: the same request gets the same bytes, headers included. A request that begins with
`answering.ECHO` is answered word for word, a judge's request (`judging`) with verdicts, any other from its passages.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from gaugeway.demo import model_reply as conversation
from gaugeway.demo import openai_objects as wire
from gaugeway.demo import servers
from gaugeway.runtime.tasks import spawn

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Streamed: TypeAlias = Iterable[bytes]

_OK, _BAD_REQUEST, _NOT_FOUND, _NOT_ALLOWED = 200, 400, 404, 405
_DATE = b"Thu, 01 Jan 2026 00:00:00 GMT"
_MAX_DIMENSIONS = 4096


@dataclass(frozen=True, slots=True)
class Failure:
    """The error the model answers with while `Model.failing` is set."""

    status: int = 500
    retry_after_s: float | None = None
    tasks_only: bool = False
    """Only the judge's requests fail."""


@dataclass(slots=True)
class Logged:
    """One request as it arrived. `headers` have lower-case names; `task` is a judge request's task."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    raw: bytes
    body: dict[str, Any] = field(default_factory=dict)
    task: str | None = None
    status: int = 0
    chunks: int = 0
    ended: Literal["open", "complete", "disconnected"] = "open"

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        return next((value for key, value in self.headers if key == name), None)


class Model:
    """The ASGI app. `log` keeps the latest requests; `failing` makes it answer errors while it is set.

    `delay_s` passes before an answer, `chunk_delay_s` before each chunk of a stream; `slips` see `answering.answer`.
    """

    def __init__(
        self, *, delay_s: float = 0.0, chunk_delay_s: float = 0.0, slips: bool = False, log_size: int = 1000
    ) -> None:
        self.delay_s = delay_s
        self.chunk_delay_s = chunk_delay_s
        self.slips = slips
        self.failing: Failure | None = None
        self.log: deque[Logged] = deque(maxlen=log_size)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        raw = await servers.body(receive)
        entry = Logged(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers, raw)
        self.log.append(entry)
        gone = spawn(_gone(receive), name="demo-model-disconnect")
        try:
            exchange = _Answering(self, entry, send, gone)
            await exchange.run()
        finally:
            gone.cancel()


class _Answering:
    """Handles one request."""

    def __init__(self, model: Model, entry: Logged, send: Send, gone: asyncio.Task[None]) -> None:
        self._model, self._entry, self._send, self._gone = model, entry, send, gone
        self._id = hashlib.blake2b(entry.path.encode() + entry.raw, digest_size=16).hexdigest()
        accepted = entry.header("accept-encoding") or ""
        self._gzip = entry.header("x-demo-gzip") == "1" and "gzip" in accepted

    async def run(self) -> None:
        """Route, answer, note how it ended."""
        entry = self._entry
        answer = _ROUTES.get((entry.method, entry.path))
        if answer is None:
            await self._refuse(*self._unknown())
        elif entry.method != "GET" and (problem := self._parse()) is not None:
            await self._refuse(_BAD_REQUEST, problem, None)
        else:
            try:
                await answer(self, entry.body)
            except ValueError as error:
                await self._refuse(_BAD_REQUEST, f"Invalid or missing parameter: {error}", str(error))

    async def chat(self, body: dict[str, Any]) -> None:
        """Answer `POST /v1/chat/completions`."""
        await self._complete(body, conversation.read_chat(body), wire.chat, wire.chat_chunks)

    async def completions(self, body: dict[str, Any]) -> None:
        """Answer `POST /v1/completions`."""
        await self._complete(body, conversation.read_completion(body), wire.completion, wire.completion_chunks)

    async def responses(self, body: dict[str, Any]) -> None:
        """Answer `POST /v1/responses`."""
        turn = conversation.read_responses(body)
        if (reply := await self._reply(turn)) is None:
            return
        if body.get("stream"):
            await self._stream(wire.server_sent(event, named=True) for event in wire.response_events(turn, reply))
        else:
            await self._json(_OK, wire.response(turn, reply))

    async def embeddings(self, body: dict[str, Any]) -> None:
        """Answer `POST /v1/embeddings`."""
        given = body.get("input")
        inputs = [given] if isinstance(given, str) else given
        if not isinstance(inputs, list) or not inputs:
            raise ValueError("input")
        if isinstance(inputs[0], int):
            inputs = [inputs]
        dimensions = body.get("dimensions", wire.DIMENSIONS)
        if not isinstance(dimensions, int) or not 0 < dimensions <= _MAX_DIMENSIONS:
            raise ValueError("dimensions")
        if not await self._failed(None):
            words = [item if isinstance(item, str) else " ".join(map(str, item)) for item in inputs]
            encoding = str(body.get("encoding_format") or "float")
            await self._json(_OK, wire.embeddings(str(body.get("model") or "embed-1"), words, encoding, dimensions))

    async def models(self, body: dict[str, Any]) -> None:
        """Answer `GET /v1/models`."""
        del body
        await self._json(_OK, wire.models())

    async def _complete(
        self,
        body: dict[str, Any],
        turn: conversation.Turn,
        whole: Callable[[conversation.Turn, conversation.Reply], dict[str, Any]],
        chunks: Callable[..., Iterable[wire.Event]],
    ) -> None:
        """Answer in chunks or as a whole, as the request asks for it."""
        if (reply := await self._reply(turn)) is None:
            return
        if body.get("stream"):
            events = chunks(turn, reply, include_usage=_include_usage(body))
            await self._stream([*map(wire.server_sent, events), b"data: [DONE]\n\n"])
        else:
            await self._json(_OK, whole(turn, reply))

    async def _reply(self, turn: conversation.Turn) -> conversation.Reply | None:
        """Return the reply after the configured delay; None on a configured failure or a disconnect."""
        reply = conversation.reply(turn, slips=self._model.slips)
        self._entry.task = reply.task
        return None if await self._failed(reply.task) else reply

    async def _failed(self, task: str | None) -> bool:
        """Wait the configured delay and send the configured failure; True when the request is finished."""
        if await self._wait(self._model.delay_s):
            return True
        failing = self._model.failing
        if failing is None or (failing.tasks_only and task is None):
            return False
        extra = [] if failing.retry_after_s is None else [(b"retry-after", b"%g" % failing.retry_after_s)]
        body = wire.error("The scripted model fails on purpose.", "scripted_failure", server=True)
        await self._json(failing.status, body, extra)
        return True

    async def _wait(self, seconds: float) -> bool:
        """Sleep unless the client leaves first; True when it did."""
        if seconds > 0:
            await asyncio.wait({self._gone}, timeout=seconds)
        if self._gone.done():
            self._entry.ended = "disconnected"
        return self._gone.done()

    def _parse(self) -> str | None:
        try:
            body = msgspec.json.decode(self._entry.raw)
        except msgspec.DecodeError:
            return "We could not parse the JSON body of your request."
        if not isinstance(body, dict):
            return "The body of your request must be a JSON object."
        self._entry.body = body
        return None

    def _unknown(self) -> tuple[int, str, None]:
        entry = self._entry
        if any(path == entry.path for _, path in _ROUTES):
            return _NOT_ALLOWED, f"Not allowed to {entry.method} on {entry.path}", None
        return _NOT_FOUND, f"Invalid URL ({entry.method} {entry.path})", None

    async def _refuse(self, status: int, message: str, param: str | None) -> None:
        code = "unknown_url" if status == _NOT_FOUND else None
        await self._json(status, wire.error(message, code, param=param))

    async def _json(self, status: int, body: dict[str, Any], extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
        content = msgspec.json.encode(body)
        if self._gzip:
            content = gzip.compress(content, mtime=0)
        headers = [(b"content-length", b"%d" % len(content)), *extra]
        await self._start(status, b"application/json", headers)
        await self._send({"type": "http.response.body", "body": content})
        self._entry.ended = "complete"

    async def _stream(self, events: Streamed) -> None:
        """Send a stream chunk by chunk until the client disconnects."""
        await self._start(_OK, b"text/event-stream; charset=utf-8", [(b"cache-control", b"no-cache")])
        squeeze = zlib.compressobj(wbits=31) if self._gzip else None
        for event in events:
            if await self._wait(self._model.chunk_delay_s):
                return
            data = squeeze.compress(event) + squeeze.flush(zlib.Z_SYNC_FLUSH) if squeeze else event
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            self._entry.chunks += 1
        await self._send({"type": "http.response.body", "body": squeeze.flush() if squeeze else b""})
        self._entry.ended = "complete"

    async def _start(self, status: int, content_type: bytes, extra: list[tuple[bytes, bytes]]) -> None:
        headers = [
            (b"date", _DATE),
            (b"content-type", content_type),
            (b"x-request-id", f"req_{self._id}".encode()),
            (b"openai-processing-ms", b"%d" % (int(self._id[:2], 16) + 1)),
            (b"openai-version", b"2020-10-01"),
            (b"openai-organization", b"gaugeway-demo"),
            (b"x-ratelimit-limit-requests", b"10000"),
            (b"x-ratelimit-remaining-requests", b"9999"),
            (b"set-cookie", f"__cf_bm={self._id[:16]}; path=/; HttpOnly".encode()),
            (b"set-cookie", f"_cfuvid={self._id[16:]}; path=/; HttpOnly".encode()),
            *([(b"content-encoding", b"gzip")] if self._gzip else []),
            *extra,
        ]
        self._entry.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


@contextlib.contextmanager
def serve(model: Model | None = None, *, port: int = 0) -> Iterator[str]:
    """Serve a model from a thread; yields the `base_url` (with `/v1`) for an OpenAI client."""
    with servers.in_thread(model or Model(), port) as address:
        yield f"{address}/v1"


@contextlib.asynccontextmanager
async def serving(model: Model | None = None, *, port: int = 0) -> AsyncIterator[str]:
    """Serve a model from the running event loop; yields the `base_url` (with `/v1`) for an OpenAI client."""
    async with servers.in_loop(model or Model(), port) as address:
        yield f"{address}/v1"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _include_usage(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


_ROUTES: dict[tuple[str, str], Callable[[_Answering, dict[str, Any]], Awaitable[None]]] = {
    ("POST", "/v1/chat/completions"): _Answering.chat,
    ("POST", "/v1/completions"): _Answering.completions,
    ("POST", "/v1/responses"): _Answering.responses,
    ("POST", "/v1/embeddings"): _Answering.embeddings,
    ("GET", "/v1/models"): _Answering.models,
}

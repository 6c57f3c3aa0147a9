"""The scripted OpenAI-compatible model over HTTP: chat completions, embeddings, models.

It is deterministic: the same request gets the same bytes, headers included. A request that begins with
`model_reply.ECHO` is answered word for word, a judge's request with verdicts, any other from its passages.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from gaugeway.demo import model_text as texts
from gaugeway.demo import servers
from gaugeway.demo.model_reply import Reply, Turn, pieces, read_chat, reply
from gaugeway.runtime.tasks import spawn

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Event: TypeAlias = dict[str, Any]

CREATED = 1_767_225_600
"""Every object's creation time: the same request always gets the same bytes."""
DIMENSIONS = 256
MODELS = ("handbook-1", "judge-1", "embed-1")
_OK, _BAD_REQUEST, _NOT_FOUND, _NOT_ALLOWED = 200, 400, 404, 405
_DATE = b"Thu, 01 Jan 2026 00:00:00 GMT"
_MAX_DIMENSIONS = 4096


class Failure(msgspec.Struct, frozen=True):
    """The error the model answers with while `Model.failing` is set."""

    status: int = 500
    retry_after_s: float | None = None
    tasks_only: bool = False
    """Only the judge's requests fail."""


class Logged(msgspec.Struct):
    """One request as it arrived. `headers` have lower-case names; `task` is a judge request's task."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    raw: bytes
    body: dict[str, Any] = {}
    task: str | None = None
    status: int = 0
    chunks: int = 0
    ended: Literal["open", "complete", "disconnected"] = "open"

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        return next((value for key, value in self.headers if key == name), None)


class Model:
    """The ASGI app. `log` keeps the latest requests; `failing` makes it answer errors while it is set.

    `delay_s` passes before an answer, `chunk_delay_s` before each chunk of a stream; `slips` see `model_reply.answer`.
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
            await _Answering(self, entry, send, gone).run()
        finally:
            gone.cancel()


class _Answering:
    """Handles one request."""

    def __init__(self, model: Model, entry: Logged, send: Send, gone: asyncio.Task[None]) -> None:
        self._model, self._entry, self._send, self._gone = model, entry, send, gone
        self._id = hashlib.blake2b(entry.path.encode() + entry.raw, digest_size=16).hexdigest()

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
        """Answer `POST /v1/chat/completions`, in chunks or as a whole, as the request asks for it."""
        turn = read_chat(body)
        said = reply(turn, slips=self._model.slips)
        self._entry.task = said.task
        if await self._failed(said.task):
            return
        if body.get("stream"):
            events = chat_chunks(turn, said, include_usage=_include_usage(body))
            await self._stream([*map(server_sent, events), b"data: [DONE]\n\n"])
        else:
            await self._json(_OK, chat(turn, said))

    async def embeddings(self, body: dict[str, Any]) -> None:
        """Answer `POST /v1/embeddings`."""
        given = body.get("input")
        inputs = [given] if isinstance(given, str) else given
        if not isinstance(inputs, list) or not inputs:
            raise ValueError("input")
        if isinstance(inputs[0], int):
            inputs = [inputs]
        dimensions = body.get("dimensions", DIMENSIONS)
        if not isinstance(dimensions, int) or not 0 < dimensions <= _MAX_DIMENSIONS:
            raise ValueError("dimensions")
        if not await self._failed(None):
            words = [item if isinstance(item, str) else " ".join(map(str, item)) for item in inputs]
            encoding = str(body.get("encoding_format") or "float")
            await self._json(_OK, embeddings(str(body.get("model") or "embed-1"), words, encoding, dimensions))

    async def models(self, body: dict[str, Any]) -> None:
        """Answer `GET /v1/models`."""
        del body
        await self._json(_OK, models())

    async def _failed(self, task: str | None) -> bool:
        """Wait the configured delay and send the configured failure; True when the request is finished."""
        if await self._wait(self._model.delay_s):
            return True
        failing = self._model.failing
        if failing is None or (failing.tasks_only and task is None):
            return False
        extra = [] if failing.retry_after_s is None else [(b"retry-after", b"%g" % failing.retry_after_s)]
        body = error("The scripted model fails on purpose.", "scripted_failure", server=True)
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
        await self._json(status, error(message, code, param=param))

    async def _json(self, status: int, body: dict[str, Any], extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
        content = msgspec.json.encode(body)
        await self._start(status, b"application/json", [(b"content-length", b"%d" % len(content)), *extra])
        await self._send({"type": "http.response.body", "body": content})
        self._entry.ended = "complete"

    async def _stream(self, events: Iterable[bytes]) -> None:
        """Send a stream chunk by chunk until the client disconnects."""
        await self._start(_OK, b"text/event-stream; charset=utf-8", [(b"cache-control", b"no-cache")])
        for event in events:
            if await self._wait(self._model.chunk_delay_s):
                return
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
            self._entry.chunks += 1
        await self._send({"type": "http.response.body", "body": b""})
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


def chat(turn: Turn, said: Reply) -> dict[str, Any]:
    """Return a `chat.completion`."""
    message: Event = {"role": "assistant", "content": said.text, "refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish_reason}
    return _head("chat.completion", turn) | {
        "choices": [choice],
        "usage": usage(said),
        "service_tier": "default",
        "system_fingerprint": "fp_demo",
    }


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


def embeddings(model: str, inputs: list[str], encoding: str, dimensions: int) -> dict[str, Any]:
    """Return a list of embeddings, as floats or as base64 of little-endian 32-bit floats."""
    vectors = [embed(text, dimensions) for text in inputs]
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if encoding == "base64"
            else [float(value) for value in vector],
        }
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(text.split()) for text in inputs)
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def embed(text: str, dimensions: int = DIMENSIONS) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Hash the content words of a text into a unit vector: texts that share words are near each other."""
    vector = np.zeros(dimensions, dtype=np.float32)
    for word in [*texts.content_words(text), *texts.numbers(text)] or ["(empty)"]:
        place = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
        vector[place % dimensions] += 1.0 if place >> 63 else -1.0
    length = math.sqrt(float(vector @ vector))
    return np.asarray(vector / length if length else vector, dtype=np.float32)


def models() -> dict[str, Any]:
    """Return the list of models."""
    data = [{"id": name, "object": "model", "created": CREATED, "owned_by": "gaugeway-demo"} for name in MODELS]
    return {"object": "list", "data": data}


def error(message: str, code: str | None, *, param: str | None = None, server: bool = False) -> dict[str, Any]:
    """Return an error object."""
    kind = "server_error" if server else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usage(said: Reply) -> dict[str, Any]:
    """Return the tokens of a reply."""
    return {
        "prompt_tokens": said.prompt_tokens,
        "completion_tokens": said.completion_tokens,
        "total_tokens": said.prompt_tokens + said.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def server_sent(event: Event) -> bytes:
    """Frame one event."""
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def _head(kind: str, turn: Turn) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn.fingerprint}", "object": kind, "created": CREATED, "model": turn.model}


_ROUTES: dict[tuple[str, str], Callable[[_Answering, dict[str, Any]], Awaitable[None]]] = {
    ("POST", "/v1/chat/completions"): _Answering.chat,
    ("POST", "/v1/embeddings"): _Answering.embeddings,
    ("GET", "/v1/models"): _Answering.models,
}

"""The demo's scripted model with what tests need of a provider: a log, failures, delays, embeddings and its headers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import math
from collections import deque
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, Literal

import msgspec
import numpy as np

from gaugeway.demo import model as demo
from gaugeway.demo import model_text as texts
from gaugeway.demo import servers
from gaugeway.demo.model_judge import task_of
from gaugeway.demo.model_reply import read_chat
from gaugeway.runtime.tasks import spawn
from tests.support.in_thread import in_thread

DIMENSIONS, MAX_DIMENSIONS = 256, 4096
HEADERS = (
    (b"date", b"Thu, 01 Jan 2026 00:00:00 GMT"),
    (b"openai-processing-ms", b"7"),
    (b"openai-version", b"2020-10-01"),
    (b"openai-organization", b"gaugeway-demo"),
    (b"x-ratelimit-limit-requests", b"10000"),
    (b"x-ratelimit-remaining-requests", b"9999"),
    (b"set-cookie", b"__cf_bm=a; path=/; HttpOnly"),
    (b"set-cookie", b"_cfuvid=b; path=/; HttpOnly"),
)


class Failure(msgspec.Struct, frozen=True):
    """The error the model answers with while `Model.failing` is set; with `tasks_only` only to a judge's requests."""

    status: int = 500
    retry_after_s: float | None = None
    tasks_only: bool = False


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


class Call(demo.Call):
    """A request whose answer is slow if the model is, ends when the client leaves, and is noted in the log."""

    entry: Logged
    gone: asyncio.Task[None]
    chunk_delay_s: float

    async def json(self, status: int, content: dict[str, Any], headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        await super().json(status, content, headers)
        self.entry.ended = "complete"

    async def stream(self, events: Iterable[bytes]) -> None:
        await self.start(200, b"text/event-stream; charset=utf-8", [(b"cache-control", b"no-cache")])
        for event in events:
            if await self.left(self.chunk_delay_s):
                return
            await self.send({"type": "http.response.body", "body": event, "more_body": True})
            self.entry.chunks += 1
        await self.send({"type": "http.response.body", "body": b""})
        self.entry.ended = "complete"

    async def start(self, status: int, content_type: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.entry.status = status
        await super().start(status, content_type, [*HEADERS, *headers])

    async def left(self, seconds: float) -> bool:
        """Sleep unless the client leaves first; True when it did."""
        if seconds > 0:
            await asyncio.wait({self.gone}, timeout=seconds)
        if self.gone.done():
            self.entry.ended = "disconnected"
        return self.gone.done()


class Model(demo.Model):
    """`log` keeps the latest requests; `failing` makes it answer errors while it is set.

    `delay_s` passes before an answer, `chunk_delay_s` before each chunk of a stream.
    """

    def __init__(
        self, *, delay_s: float = 0.0, chunk_delay_s: float = 0.0, slips: bool = False, log_size: int = 1000
    ) -> None:
        super().__init__(slips=slips)
        self.routes["POST", "/v1/embeddings"] = self.embeddings
        self.delay_s = delay_s
        self.chunk_delay_s = chunk_delay_s
        self.failing: Failure | None = None
        self.log: deque[Logged] = deque(maxlen=log_size)

    async def __call__(self, scope: MutableMapping[str, Any], receive: demo.Receive, send: demo.Send) -> None:
        if scope["type"] != "http":
            return
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        raw = await servers.body(receive)
        entry = Logged(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers, raw)
        self.log.append(entry)
        gone = spawn(_gone(receive), name="demo-model-disconnect")
        try:
            await self.answer(Call(entry.method, entry.path, raw, send, entry, gone, self.chunk_delay_s))
        finally:
            gone.cancel()

    async def chat(self, call: Call) -> None:
        call.entry.body = call.body()
        call.entry.task = task_of(read_chat(call.entry.body).messages)
        if not await self._failed(call):
            await super().chat(call)

    async def embeddings(self, call: Call) -> None:
        """Answer `POST /v1/embeddings`, as floats or as base64 of little-endian 32-bit floats."""
        body = call.entry.body = call.body()
        given = body.get("input")
        inputs = [given] if isinstance(given, str) else given
        if not isinstance(inputs, list) or not inputs:
            raise ValueError("input")
        if isinstance(inputs[0], int):
            inputs = [inputs]
        dimensions = body.get("dimensions", DIMENSIONS)
        if not isinstance(dimensions, int) or not 0 < dimensions <= MAX_DIMENSIONS:
            raise ValueError("dimensions")
        if await self._failed(call):
            return
        words = [item if isinstance(item, str) else " ".join(map(str, item)) for item in inputs]
        vectors = [embed(text, dimensions) for text in words]
        if body.get("encoding_format") == "base64":
            shown: list[Any] = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
        else:
            shown = [vector.tolist() for vector in vectors]
        data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(shown)]
        tokens = sum(len(text.split()) for text in words)
        counts = {"prompt_tokens": tokens, "total_tokens": tokens}
        model = str(body.get("model") or "embed-1")
        await call.json(200, {"object": "list", "data": data, "model": model, "usage": counts})

    async def _failed(self, call: Call) -> bool:
        """Wait the configured delay and send the configured failure; True when the request is finished."""
        if await call.left(self.delay_s):
            return True
        failing = self.failing
        if failing is None or (failing.tasks_only and call.entry.task is None):
            return False
        extra = [] if failing.retry_after_s is None else [(b"retry-after", b"%g" % failing.retry_after_s)]
        content = demo.error("The scripted model fails on purpose.", "scripted_failure", kind="server_error")
        await call.json(failing.status, content, extra)
        return True


def embed(text: str, dimensions: int = DIMENSIONS) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Hash the content words of a text into a unit vector: texts that share words are near each other."""
    vector = np.zeros(dimensions, dtype=np.float32)
    for word in [*texts.content_words(text), *texts.numbers(text)] or ["(empty)"]:
        place = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
        vector[place % dimensions] += 1.0 if place >> 63 else -1.0
    length = math.sqrt(float(vector @ vector))
    return np.asarray(vector / length if length else vector, dtype=np.float32)


@contextlib.contextmanager
def serve(model: demo.Model | None = None, *, port: int = 0) -> Iterator[str]:
    """Serve a model from a thread; yields the `base_url` (with `/v1`) for an OpenAI client."""
    with in_thread(model or Model(), port) as address:
        yield f"{address}/v1"


async def _gone(receive: demo.Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

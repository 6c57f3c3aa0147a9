"""The micro-batcher of embeddings: requests made at about the same time are sent as one."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaugeway.runtime.tasks import spawn
from monitors.judges import JudgeError
from monitors.metrics.embeddings import Embeddings

# Failures that a single text can cause for its whole request.
_ONE_TEXTS_FAULT = frozenset({"bad_request", "context_overflow", "too_large", "unreadable"})


@dataclass(frozen=True, slots=True)
class _Call:
    """One waiting call and its texts."""

    texts: tuple[str, ...]
    vectors: asyncio.Future[NDArray[np.float64]]


class Batched(Embeddings):
    """Collects texts for at most `wait_s` seconds or until there are `size`, and sends them to `inner` as one request.

    A text occurs once in a request. More texts than `size` become several concurrent requests. When a request fails in
    a way that one text may have caused, each call is retried alone, so that no call fails because of another's text. A
    cancelled call does not stop the request of the others. Belongs to one event loop.
    """

    def __init__(self, inner: Embeddings, *, size: int = 64, wait_s: float = 0.01) -> None:
        if size < 1 or wait_s < 0:
            raise ValueError("a batch has at least one text and waits no negative time")
        self._inner = inner
        self._size = size
        self._wait_s = wait_s
        self._waiting: list[_Call] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not texts:
            return np.empty((0, 0))
        loop = asyncio.get_running_loop()
        call = _Call(tuple(texts), loop.create_future())
        self._waiting.append(call)
        if sum(len(waiting.texts) for waiting in self._waiting) >= self._size:
            self._send_now()
        elif self._timer is None:
            self._timer = loop.call_later(self._wait_s, self._send_now)
        return await call.vectors

    async def aclose(self) -> None:
        """Send the waiting texts, wait for the answers, and close `inner`."""
        self._send_now()
        if self._sending:
            await asyncio.wait(self._sending)
        await self._inner.aclose()

    def _send_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calls = [call for call in self._waiting if not call.vectors.done()]
        self._waiting = []
        if calls:
            task = spawn(self._send(calls), name="embeddings")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, calls: Sequence[_Call]) -> None:
        """Send the texts of these calls; each call gets its vectors or an exception."""
        try:
            await self._answer(calls)
        except JudgeError as error:
            if len(calls) > 1 and error.kind in _ONE_TEXTS_FAULT:
                await asyncio.gather(*(self._send([call]) for call in calls))
            else:
                _fail(calls, error)
        except Exception as error:  # noqa: BLE001 - any error is passed to the waiting calls, whose metrics count it
            _fail(calls, error)
        except asyncio.CancelledError:
            for call in calls:
                call.vectors.cancel()
            raise

    async def _answer(self, calls: Sequence[_Call]) -> None:
        texts = list(dict.fromkeys(text for call in calls for text in call.texts))
        parts = [texts[at : at + self._size] for at in range(0, len(texts), self._size)]
        vectors = [row for part in await asyncio.gather(*map(self._inner.embed, parts)) for row in part]
        if len({len(row) for row in vectors}) != 1 or len(vectors) != len(texts):
            raise JudgeError("unreadable", f"{len(texts)} texts did not give as many vectors of one length")
        places = {text: index for index, text in enumerate(texts)}
        for call in calls:
            if not call.vectors.done():
                call.vectors.set_result(np.stack([vectors[places[text]] for text in call.texts]))


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    for call in calls:
        if not call.vectors.done():
            # One exception object for each call: raising the same one in several tasks mixes their tracebacks.
            own = copy.copy(error) if isinstance(error, JudgeError) else error
            call.vectors.set_exception(own)

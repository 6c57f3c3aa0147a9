"""Requests for embeddings made at about the same time are sent as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from monitors.judges import JudgeError
from monitors.judges.micro_batcher import MicroBatcher
from monitors.metrics.embeddings import Embeddings


class Batched(Embeddings):
    """Sends the texts of several calls to `inner` as one request.

    A text occurs once in a request. More texts than `size` become several concurrent requests.
    """

    def __init__(self, inner: Embeddings, *, size: int, wait_s: float) -> None:
        self._inner = inner
        self._size = size
        self._batcher = MicroBatcher(self._vectors, name="embeddings", size=size, wait_s=wait_s)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not texts:
            return np.empty((0, 0))
        return await self._batcher.call(tuple(texts), size=len(texts))

    async def aclose(self) -> None:
        """Send the waiting texts, wait for the answers, and close `inner`."""
        await self._batcher.finish()
        await self._inner.aclose()

    async def _vectors(self, calls: Sequence[tuple[str, ...]]) -> Sequence[NDArray[np.float64]]:
        texts = list(dict.fromkeys(text for call in calls for text in call))
        parts = [texts[at : at + self._size] for at in range(0, len(texts), self._size)]
        vectors = [row for part in await asyncio.gather(*map(self._inner.embed, parts)) for row in part]
        if len({len(row) for row in vectors}) != 1 or len(vectors) != len(texts):
            raise JudgeError("unreadable", f"{len(texts)} texts did not give as many vectors of one length")
        places = {text: index for index, text in enumerate(texts)}
        return [np.stack([vectors[places[text]] for text in call]) for call in calls]

"""Builds embeddings from settings: an engine behind a micro-batcher and a cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from gaugeway.runtime.replies import MAX_REPLY_BYTES, MAX_VECTOR_BYTES
from gaugeway.settings import shared as config
from monitors.judges import JudgeError, Observer
from monitors.judges.micro_batcher import BATCH_WAIT_S, MicroBatcher
from monitors.metrics.embeddings import Embeddings


def open_embeddings(settings: config.Embeddings, observer: Observer | None = None) -> Embeddings | None:
    """Build the embeddings that the settings name; None if they name none. Opens no connection, loads no model.

    Raises ValueError, beginning with the key, for settings that do not go together or a missing package.
    """
    if settings.kind == "openai" and settings.base_url is None and settings.model is None:
        return None
    if settings.model is None or (settings.kind == "openai" and settings.base_url is None):
        missing = "model" if settings.model is None else "base_url"
        raise ValueError(f"embeddings.{missing}: needed for embeddings (or leave out the whole table)")
    engine = _local(settings, observer) if settings.kind == "local" else _openai(settings, observer)
    batched = Batched(engine, size=settings.batch_size, wait_s=BATCH_WAIT_S)
    return CachedEmbeddings(batched, model=settings.model, observer=observer)


def _openai(settings: config.Embeddings, observer: Observer | None) -> Embeddings:
    from monitors.metrics.embeddings.openai import OpenAIEmbeddings  # noqa: PLC0415 - the SDK is slow to import

    return OpenAIEmbeddings(
        settings.base_url or "",
        settings.api_key,
        settings.model or "",
        timeout_s=settings.timeout_s,
        concurrency=settings.concurrency,
        max_retries=settings.max_retries,
        api_version=settings.api_version,
        price=settings.price,
        max_reply_bytes=max(MAX_REPLY_BYTES, settings.batch_size * MAX_VECTOR_BYTES),
        observer=observer,
    )


def _local(settings: config.Embeddings, observer: Observer | None) -> Embeddings:
    from monitors.metrics.embeddings.local import LocalEmbeddings  # noqa: PLC0415 - only where it is asked for

    path, download, threads = settings.path, settings.download, settings.threads
    try:
        return LocalEmbeddings(settings.model or "", path=path, download=download, threads=threads, observer=observer)
    except ValueError as error:
        raise ValueError(f"embeddings.kind: {error}") from error


_MB = 1_000_000
_OVERHEAD = 250
"""Bytes of an entry in addition to its numbers: the key, the array header, the slot in the table."""


class CachedEmbeddings(Embeddings):
    """Caches vectors in memory by model and text, at most about `max_mb` MB; evicts the least recently used.

    Only hashes of the texts are kept. `hits` and `misses` count texts. Belongs to one event loop.
    """

    def __init__(
        self, inner: Embeddings, *, model: str, max_mb: float = 64.0, observer: Observer | None = None
    ) -> None:
        self.hits = 0
        self.misses = 0
        self._inner = inner
        self._model = model
        self._observer = observer or Observer()
        self._vectors: LRUCache[bytes, NDArray[np.float64]] = LRUCache(max_mb * _MB, getsizeof=_size)

    @property
    def model(self) -> str:
        return self._model

    def __len__(self) -> int:
        return len(self._vectors)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not texts:
            return np.empty((0, 0))
        keys = {text: self._key(text) for text in texts}
        found = {text: vector for text, key in keys.items() if (vector := self._vectors.get(key)) is not None}
        missing = [text for text in keys if text not in found]
        self._count(len(texts), sum(text not in found for text in texts))
        if missing:
            for text, vector in zip(missing, await self._inner.embed(missing), strict=True):
                found[text] = vector.copy()  # a copy: a view would hold the whole batch in memory
                if _size(found[text]) <= self._vectors.maxsize:
                    self._vectors[keys[text]] = found[text]
        try:
            return np.stack([found[text] for text in texts])
        except ValueError:
            self._vectors.clear()
            raise JudgeError("unreadable", "the model has changed the length of its vectors") from None

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _key(self, text: str) -> bytes:
        # Texts may hold half of a surrogate pair, which has no bytes of its own.
        return blake2b(f"{self._model}\0{text}".encode("utf-8", "surrogatepass"), digest_size=20).digest()

    def _count(self, texts: int, misses: int) -> None:
        self.hits += texts - misses
        self.misses += misses
        self._observer.embeddings_looked_up(self._model, texts - misses, misses)


def _size(vector: NDArray[np.float64]) -> int:
    return vector.nbytes + _OVERHEAD


class Batched(Embeddings):
    """Sends the texts of several calls to `inner` as one request.

    A text occurs once in a request. More texts than `size` become several concurrent requests.
    """

    def __init__(self, inner: Embeddings, *, size: int, wait_s: float) -> None:
        self._inner = inner
        self._size = size
        self._batcher = MicroBatcher(self._vectors, name="embeddings", size=size, wait_s=wait_s)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return np.empty((0, 0)) if not texts else await self._batcher.call(tuple(texts), size=len(texts))

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

"""A cache of embeddings, so that no text is embedded, and paid for, twice."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from monitors.judges import JudgeError
from monitors.metrics.embeddings import Embeddings, Observer

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
        self._observer = observer
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
        if self._observer is not None:
            self._observer.embeddings_looked_up(self._model, texts - misses, misses)


def _size(vector: NDArray[np.float64]) -> int:
    return vector.nbytes + _OVERHEAD

"""A text that was embedded is not embedded, and paid for, again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from monitors.judges import JudgeError
from monitors.metrics.embeddings import Embeddings, Observer
from monitors.runtime.plugins import close

_MB = 1_000_000
_OVERHEAD = 250
"""Bytes an entry takes beside its numbers: the key, the array's head, the place in the table."""


class Cached:
    """Keeps vectors in memory by model and text, the least recently used go first; at most about `max_mb` MB.

    Texts themselves are not kept, only their hashes. `hits` and `misses` count texts. Belongs to one event loop.
    """

    def __init__(
        self, inner: Embeddings, *, model: str, max_mb: float = 64.0, observer: Observer | None = None
    ) -> None:
        self.hits = 0
        self.misses = 0
        self._inner = inner
        self._model = model
        self._room = max_mb * _MB
        self._used = 0
        self._observer = observer
        self._kept: OrderedDict[bytes, NDArray[np.float64]] = OrderedDict()

    @property
    def model(self) -> str:
        """The embedding model's name."""
        return self._model

    def __len__(self) -> int:
        return len(self._kept)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not texts:
            return np.empty((0, 0))
        keys = {text: self._key(text) for text in texts}
        found = {text: vector for text, key in keys.items() if (vector := self._kept.get(key)) is not None}
        missing = [text for text in keys if text not in found]
        self._count(len(texts), sum(text not in found for text in texts))
        for text in found:
            self._kept.move_to_end(keys[text])
        if missing:
            for text, vector in zip(missing, await self._inner.embed(missing), strict=True):
                found[text] = vector.copy()  # a row of its own: a view would hold the whole batch in memory
                self._keep(keys[text], found[text])
        try:
            return np.stack([found[text] for text in texts])
        except ValueError:
            self._forget()
            raise JudgeError("unreadable", "the model has changed the length of its vectors") from None

    async def aclose(self) -> None:
        """Close `inner`."""
        await close(self._inner)

    def _key(self, text: str) -> bytes:
        # Texts may hold half of a surrogate pair, which has no bytes of its own.
        return blake2b(f"{self._model}\0{text}".encode("utf-8", "surrogatepass"), digest_size=20).digest()

    def _keep(self, key: bytes, vector: NDArray[np.float64]) -> None:
        if (old := self._kept.pop(key, None)) is not None:  # somebody asked for the same text meanwhile
            self._used -= old.nbytes + _OVERHEAD
        self._kept[key] = vector
        self._used += vector.nbytes + _OVERHEAD
        while self._used > self._room:
            _, oldest = self._kept.popitem(last=False)
            self._used -= oldest.nbytes + _OVERHEAD

    def _forget(self) -> None:
        self._kept.clear()
        self._used = 0

    def _count(self, texts: int, misses: int) -> None:
        self.hits += texts - misses
        self.misses += misses
        if self._observer is not None:
            self._observer.embeddings_looked_up(self._model, texts - misses, misses)

"""Embeddings from an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitors.judges import JudgeError, sdk

_MAX_RETRIES = 2


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Reply(msgspec.Struct):
    data: list[_Row]


class OpenAIEmbeddings:
    """One request a batch; `timeout_s` bounds it, retries included. Belongs to one event loop."""

    def __init__(self, base_url: str, api_key: str | None, model: str, *, timeout_s: float = 30.0) -> None:
        self._client = sdk.connect(base_url=base_url, api_key=api_key, timeout_s=timeout_s, max_retries=_MAX_RETRIES)
        self._api_key = api_key
        self._model = model
        self._timeout_s = timeout_s

    @property
    def model(self) -> str:
        """The embedding model's name."""
        return self._model

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not texts:
            return np.empty((0, 0))
        import openai  # noqa: PLC0415 - loaded by the constructor

        try:
            async with asyncio.timeout(self._timeout_s):
                raw = await self._client.embeddings.with_raw_response.create(
                    model=self._model, input=list(texts), encoding_format="float"
                )
        except TimeoutError:
            raise JudgeError("timeout", f"no embeddings within {self._timeout_s:g} s") from None
        except openai.OpenAIError as error:
            # The causes below hold the request, and so the key: they stay out of every traceback.
            raise sdk.judge_error(error, self._api_key) from None
        return _vectors(raw.content, len(texts))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _vectors(content: bytes, count: int) -> NDArray[np.float64]:
    try:
        rows = {row.index: row.embedding for row in msgspec.json.decode(content, type=_Reply).data}
        vectors = np.array([rows[index] for index in range(count)], dtype=np.float64)
    except (msgspec.DecodeError, KeyError, ValueError):
        raise JudgeError("unreadable", f"the reply does not hold {count} embeddings of one length") from None
    if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():  # noqa: PLR2004 - rows and columns
        raise JudgeError("unreadable", "the reply holds embeddings that are no vectors")
    return vectors

"""Embeddings from an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gaugeway.runtime.replies import MAX_REPLY_BYTES, ReplyError
from gaugeway.settings.bounds import token_count
from monitors.judges import SPEND, JudgeError, Observer
from monitors.judges import openai_client as sdk
from monitors.metrics.embeddings import Embeddings


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Reply(msgspec.Struct):
    data: list[_Row]
    usage: _Usage | None = None


class OpenAIEmbeddings(Embeddings):
    """Sends one request a batch, at most `concurrency` at a time.

    `timeout_s` bounds a request from the moment it has a place, including retries (the SDK's own, at most
    `max_retries`, honouring Retry-After). With `api_version` requests take Azure's form, with the model's name as the
    deployment. `price` is USD per million tokens, charged to the calling metric. Belongs to one event loop.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        model: str,
        *,
        timeout_s: float = 30.0,
        concurrency: int = 4,
        max_retries: int = 2,
        api_version: str | None = None,
        price: float = 0.0,
        observer: Observer | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        self._client = sdk.connect(
            base_url=base_url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            api_version=api_version,
            deployment=model,
            max_reply_bytes=max_reply_bytes,
        )
        self._headers = None if api_version is None else sdk.azure_headers(api_key)
        self._api_key = api_key
        self._model = model
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._price = price / 1e6
        self._observer = observer or Observer()

    @property
    def model(self) -> str:
        return self._model

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not texts:
            return np.empty((0, 0))
        try:
            async with self._slots, asyncio.timeout(self._timeout_s):
                return await self._embed(texts)
        except TimeoutError:
            failure = JudgeError("timeout", f"no embeddings within {self._timeout_s:g} s")
        except JudgeError as error:
            failure = error
        self._observer.embedding_failed(self._model, failure.kind)
        raise failure from None

    async def aclose(self) -> None:
        await self._client.close()

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        import openai  # noqa: PLC0415 - loaded by the constructor

        started = time.perf_counter()
        try:
            raw = await self._client.embeddings.with_raw_response.create(
                model=self._model, input=list(texts), encoding_format="float", extra_headers=self._headers
            )
        except (openai.OpenAIError, ReplyError) as error:
            # The causes below hold the request, and so the key: they stay out of every traceback.
            raise sdk.judge_error(error, self._api_key) from None
        try:
            reply = msgspec.json.decode(raw.content, type=_Reply)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _unreadable(len(texts)) from None
        self._count(len(texts), time.perf_counter() - started, reply.usage)
        return _vectors(reply, len(texts))

    def _count(self, texts: int, seconds: float, usage: _Usage | None) -> None:
        tokens = token_count(usage and usage.prompt_tokens) or 0
        usd = tokens * self._price
        if (spend := SPEND.get()) is not None:
            spend.input_tokens += tokens
            spend.usd += usd
        self._observer.embedded(self._model, texts, seconds, tokens, usd)


def _vectors(reply: _Reply, count: int) -> NDArray[np.float64]:
    rows = {row.index: row.embedding for row in reply.data}
    try:
        vectors = np.array([rows[index] for index in range(count)], dtype=np.float64)
    except (KeyError, ValueError):
        raise _unreadable(count) from None
    if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():  # noqa: PLR2004 - rows and columns
        raise JudgeError("unreadable", "the reply holds embeddings that are no vectors")
    return vectors


def _unreadable(count: int) -> JudgeError:
    return JudgeError("unreadable", f"the reply does not hold {count} embeddings of one length")

"""Builds embeddings from settings: an engine behind a micro-batcher and a cache."""

from __future__ import annotations

from typing import Literal

from gaugeway.runtime.replies import MAX_REPLY_BYTES, MAX_VECTOR_BYTES
from monitors.judges.micro_batcher import BATCH_WAIT_S
from monitors.metrics.embeddings import Embeddings, Observer
from monitors.metrics.embeddings.batching import Batched
from monitors.metrics.embeddings.cache import CachedEmbeddings


def open_embeddings(
    *,
    kind: Literal["openai", "local"] = "openai",
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout_s: float = 30.0,
    concurrency: int = 4,
    max_retries: int = 2,
    api_version: str | None = None,
    price: float = 0.0,
    batch_size: int = 64,
    path: str | None = None,
    download: bool = False,
    threads: int = 1,
    observer: Observer | None = None,
) -> Embeddings | None:
    """Build the embeddings that the settings name; None if they name none. Opens no connection, loads no model.

    Raises ValueError, beginning with the key, for settings that do not go together or a missing package.
    """
    if kind == "openai" and base_url is None and model is None:
        return None
    if model is None or (kind == "openai" and base_url is None):
        missing = "model" if model is None else "base_url"
        raise ValueError(f"embeddings.{missing}: needed for embeddings (or leave out the whole table)")
    if kind == "openai" and base_url is not None:
        from monitors.metrics.embeddings.openai import OpenAIEmbeddings  # noqa: PLC0415 - the SDK is slow to import

        engine: Embeddings = OpenAIEmbeddings(
            base_url,
            api_key,
            model,
            timeout_s=timeout_s,
            concurrency=concurrency,
            max_retries=max_retries,
            api_version=api_version,
            price=price,
            max_reply_bytes=max(MAX_REPLY_BYTES, batch_size * MAX_VECTOR_BYTES),
            observer=observer,
        )
    else:
        from monitors.metrics.embeddings.local import LocalEmbeddings  # noqa: PLC0415 - only where it is asked for

        try:
            engine = LocalEmbeddings(model, path=path, download=download, threads=threads, observer=observer)
        except ValueError as error:
            raise ValueError(f"embeddings.kind: {error}") from error
    batched = Batched(engine, size=batch_size, wait_s=BATCH_WAIT_S)
    return CachedEmbeddings(batched, model=model, observer=observer)

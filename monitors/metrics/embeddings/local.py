"""Embeddings from a model on this machine (extra `local`)."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitors.judges import JudgeError, Observer
from monitors.metrics.embeddings import Embeddings

_DETAIL = 300


class LocalEmbeddings(Embeddings):
    """A model that `fastembed` runs in a thread; loaded when first used or by `prepare`.

    Nothing is fetched from anywhere unless `download` is set. The files are those in `path` (a directory with the
    model's ONNX file and its tokenizer) or in fastembed's cache. Calls are computed one after the other,
    with `threads` threads. Raises ValueError where the package is missing. Belongs to one event loop.
    """

    def __init__(
        self,
        model: str,
        *,
        path: str | None = None,
        download: bool = False,
        threads: int = 1,
        observer: Observer | None = None,
    ) -> None:
        if importlib.util.find_spec("fastembed") is None:
            raise ValueError("local embeddings need the package fastembed: pip install 'gaugeway[local]'")
        self._name = model
        self._path = path
        self._download = download
        self._threads = threads
        self._observer = observer or Observer()
        self._turn = asyncio.Lock()
        self._model: Any = None

    @property
    def model(self) -> str:
        return self._name

    async def prepare(self) -> None:
        """Load the model now instead of with the first text. Raises JudgeError that names what is missing."""
        async with self._turn:
            await asyncio.to_thread(self._load)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not texts:
            return np.empty((0, 0))
        try:
            async with self._turn:
                started = time.perf_counter()
                vectors = await asyncio.to_thread(self._embed, list(texts))
        except JudgeError as error:
            self._observer.embedding_failed(self._name, error.kind)
            raise
        self._observer.embedded(self._name, len(texts), time.perf_counter() - started, 0, 0.0)
        return vectors

    def _embed(self, texts: list[str]) -> NDArray[np.float64]:
        self._load()
        # Half of a surrogate pair is no text to a tokenizer.
        whole = [text.encode("utf-8", "replace").decode() for text in texts]
        vectors = np.array(list(self._model.embed(whole)), dtype=np.float64)
        if vectors.shape[0] != len(texts) or not np.isfinite(vectors).all():
            raise JudgeError("unreadable", f"the model {self._name} gave no vectors")
        return vectors

    def _load(self) -> None:
        if self._model is not None:
            return
        from fastembed import TextEmbedding  # noqa: PLC0415 - a second of loading, and an optional package

        if self._name.lower() not in {model["model"].lower() for model in TextEmbedding.list_supported_models()}:
            raise JudgeError("bad_request", f"fastembed has no model {self._name!r}")
        options: dict[str, Any] = {"local_files_only": not self._download}
        if self._path is not None:
            options["specific_model_path"] = self._path
        try:
            self._model = TextEmbedding(self._name, threads=self._threads, **options)
        except Exception as error:  # the reasons are those of four packages; what to do about them is the same
            raise JudgeError("connection", self._what_to_do(error)) from error

    def _what_to_do(self, error: Exception) -> str:
        where = self._path or "fastembed's cache (FASTEMBED_CACHE_PATH)"
        if self._download:
            advice = "it could not be fetched; is there a way to the internet?"
        else:
            advice = "fetching is off: set embeddings.download, or name the directory in embeddings.path"
        return f"no usable files of the model {self._name!r} in {where}: {advice} ({error!s:.{_DETAIL}})"

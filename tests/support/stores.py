"""A store in a file of the test's own folder, closed when the test is done with it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from gaugeway.storage.engines.sqlite.store import SQLiteStore


@contextlib.asynccontextmanager
async def store_in(folder: Path) -> AsyncIterator[SQLiteStore]:
    """Open the store of a folder."""
    store = SQLiteStore(folder / "store.db")
    try:
        yield store
    finally:
        await store.aclose()

"""Opens the key store that a URL names; imports only its adapter."""

from __future__ import annotations

from pathlib import Path

from gaugeway.extensions import adapter
from gaugeway.storage.engines.sqlite.keys import KeyStore
from gaugeway.storage.keys import BUILT_IN, Keys


def open_keys(url: str | None, file: Path, *, busy_timeout_s: float = 5.0) -> Keys:
    """Return the store that `url` names, `postgresql://…/database`; without one, the one in `file`.

    Nothing is opened yet. Raises ValueError, which does not quote the URL.
    """
    if url is None:
        return KeyStore(file, busy_timeout_s=busy_timeout_s)
    store: Keys = adapter(url, BUILT_IN).from_url(url)
    return store

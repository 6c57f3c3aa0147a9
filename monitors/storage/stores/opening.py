"""From a URL in the configuration to a store; only the adapter it names is imported."""

from __future__ import annotations

from monitors.runtime.plugins import adapter
from monitors.storage.stores import BUILT_IN, EngineStore


def from_url(url: str) -> EngineStore:
    """Return the store that `url` names: `sqlite:////absolute/path`, `sqlite:///relative/path` or `postgresql://…/database`.

    Nothing is opened yet. Raises ValueError for a URL of another kind.
    """
    store: EngineStore = adapter(url, BUILT_IN, "store").from_url(url)
    return store

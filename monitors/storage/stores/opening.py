"""From a URL in the configuration to a store; only the adapter it names is imported."""

from __future__ import annotations

from typing import Protocol

from monitors.runtime.plugins import adapter
from monitors.storage.stores import BUILT_IN, StateStore, Store


class StoreAndLedger(Store, StateStore, Protocol):
    """What an engine keeps in one place: samples and evaluations, and the states of detectors and alerts."""


def from_url(url: str) -> StoreAndLedger:
    """Return the store that `url` names: `sqlite:////absolute/path`, `sqlite:///relative/path` or `postgresql://…/database`.

    Nothing is opened yet. Raises ValueError for a URL of another kind.
    """
    store: StoreAndLedger = adapter(url, BUILT_IN, "store").from_url(url)
    return store

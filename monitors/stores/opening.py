"""From a URL in the configuration to a store; only the adapter it names is imported."""

from __future__ import annotations

from typing import Protocol

from monitors.importer import load
from monitors.stores import BUILT_IN, Ledger, Store


class StoreAndLedger(Store, Ledger, Protocol):
    """What an engine keeps in one place: samples and evaluations, and the states of detectors and alerts."""


def from_url(url: str) -> StoreAndLedger:
    """Return the store that `url` names: `sqlite:////absolute/path` or `sqlite:///relative/path`.

    Nothing is opened yet. Raises ValueError for a URL of another kind.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in BUILT_IN:
        known = ", ".join(f"{name}://" for name in sorted(BUILT_IN))
        raise ValueError(f"no store for URLs that start with {scheme if separator else ''!r}; known: {known}")
    store: StoreAndLedger = load(scheme, BUILT_IN).from_url(url)
    return store

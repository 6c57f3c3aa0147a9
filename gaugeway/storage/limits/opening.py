"""Opens the shared limits that a URL names; imports only their adapter."""

from __future__ import annotations

from gaugeway.extensions import adapter
from gaugeway.storage.limits import BUILT_IN, Sharing


def from_url(url: str) -> Sharing:
    """Return the place that `url` names: `redis://host:6379/0` (`rediss`, `valkey`, `valkeys`) or `postgresql://…/db`.

    Nothing is opened yet. Raises ValueError.
    """
    sharing: Sharing = adapter(url, BUILT_IN).from_url(url)
    return sharing

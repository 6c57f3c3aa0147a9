"""From the store's URL to where the learned templates are; only the adapter it names is imported."""

from __future__ import annotations

from monitors.runtime.plugins import adapter
from monitors.storage.templates import BUILT_IN, Templates


def open_templates(url: str) -> Templates:
    """Return the templates beside the store that `url` names: a table of its database, or a file of its directory.

    Nothing is opened yet. Raises ValueError for a URL of another kind.
    """
    templates: Templates = adapter(url, BUILT_IN, "store").from_url(url)
    return templates

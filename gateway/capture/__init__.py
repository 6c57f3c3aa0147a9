"""Capture: decodes recorded exchanges and makes samples of them."""

from __future__ import annotations

from typing import Any

from gaugeway.exchange import Exchange
from gaugeway.prompts import Extraction
from gaugeway.records import Sample


class Draft:
    """An exchange and what was found in it. A step reads what earlier steps found; `sample` is what the last one makes.

    `reason` is why the response cannot be judged, `kind` the kind of auxiliary call. `more` are fields of the sample.
    """

    __slots__ = ("__weakref__", "exchange", "found", "kind", "more", "reason", "sample")

    exchange: Exchange
    found: Extraction
    kind: str | None
    more: dict[str, Any]
    reason: str | None
    sample: Sample | None

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.more = {}
        self.sample = None

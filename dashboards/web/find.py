"""The search box: an id leads to its exchange or conversation, any other text to Explore."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import quote, urlencode

from litestar import get
from litestar.params import FromQuery
from litestar.response import Redirect

from dashboards.web.incident.explore_search import Walk
from dashboards.web.site import Site
from gaugeway.records import Sample
from gaugeway.storage.stores import SampleField, Store

MAX_TEXT = 300
BUDGET_S = 0.12
"""How long the latest samples are searched for a session or response id, which no index has."""
LOOK_BACK_S = 30 * 86_400.0
_DAY_S = 86_400.0
_ID = re.compile(r"[^\s\x00-\x1f]+")
"""What may be an id: no spaces."""
_INDEXED: tuple[SampleField, ...] = ("trace_id", "context_key")
_SEARCHED: tuple[SampleField, ...] = ("session", "response_id")


async def found_sample(store: Store, text: str, now: float) -> Sample | None:
    """The latest sample that this id names: its own, a trace, key, conversation, session or response id."""
    stored = await store.sample(text)
    if stored is not None:
        return stored[0]
    for field in _INDEXED:
        if some := await store.addressed(field, text, 0.0, now + _DAY_S):
            return some[0]
    if some := await store.conversation(text, 1):
        return some[-1]
    walk, begin = Walk(now - LOOK_BACK_S, now + _DAY_S), time.monotonic()
    while not walk.over and (started := time.monotonic()) - begin < BUDGET_S:
        for field in _SEARCHED:
            if some := await store.addressed(field, text, walk.next, walk.at):
                return some[0]
        walk.took(time.monotonic() - started)
    return None


def find_handlers(site: Site) -> list[Any]:
    """The handler of `/find`."""

    @get("/find")
    async def find(q: FromQuery[str] = "") -> Redirect:
        text = q.strip()[:MAX_TEXT]
        sample = await found_sample(site.insight.store, text, site.clock()) if _ID.fullmatch(text) else None
        if sample is not None:
            return Redirect(f"/{'conversations' if sample.transcript else 'exchanges'}/{quote(sample.id, safe='')}")
        return Redirect(f"/explore?{urlencode({'text': text})}" if text else "/explore")

    return [find]

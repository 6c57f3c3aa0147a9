"""Server-sent events that name the changed parts; the page then fetches them."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Any

from litestar import get
from litestar.exceptions import HTTPException
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage

from dashboards.web.site import Page, Site
from gaugeway.runtime.tasks import happens_within

LOOK_S = 2.0
OVERVIEW_EVERY_S = 10.0
"""With traffic the means change at every look: a page that shows them gets an event this often at most."""
QUIET_LOOKS = 7
"""Idle polls before a keep-alive comment, so that proxies do not close the stream."""
MAX_STREAMS = 64


def digests(site: Site) -> dict[str, str]:
    """Event name -> digest of the data behind it."""
    alerts = [
        (alert.fingerprint, alert.state, alert.mean_since, alert.likely_cause, alert.ended_at)
        for alert in site.engine.alerts()
    ]
    watched = [(stream.app, stream.metric, stream.rule, stream.slice, stream.state) for stream in site.engine.streams()]
    means = [(quality.app, quality.metric, quality.n, quality.mean) for quality in site.insight.quality()]
    captured = [(capture.app, capture.answers, capture.captured) for capture in site.insight.captured()]
    depth = [site.registry.get_sample_value(name) for name in ("gaugeway_queue_depth", "gaugeway_queue_dead_letters")]
    desk = site.engine.acknowledgements
    acts = (sorted(desk.acks()), desk.changes)
    shown = {"overview": (means, captured), "alerts": (alerts, watched, acts), "queue": depth}
    return {name: blake2b(repr(value).encode(), digest_size=8).hexdigest() for name, value in shown.items()}


def event_handlers(site: Site) -> list[Any]:
    """The handler of `/events`."""
    open_streams: set[object] = set()

    @get("/events")
    async def events(request: Page) -> ServerSentEvent:
        if len(open_streams) >= MAX_STREAMS:
            raise HTTPException(status_code=503, detail="too many open pages")
        return ServerSentEvent(_news(site, request, open_streams))

    return [events]


async def _news(site: Site, request: Page, open_streams: set[object]) -> AsyncIterator[ServerSentEventMessage]:
    """Yield an event per changed digest until the client leaves, the session ends or the process stops."""
    if len(open_streams) >= MAX_STREAMS:  # others may have opened since the handler checked
        return
    me = object()
    open_streams.add(me)
    try:
        known, looks, shown_at = digests(site), 0, -math.inf
        yield ServerSentEventMessage(comment="open", data=None, retry=2000)
        while not await happens_within(site.stopping, LOOK_S):
            if not site.entered(request):
                return
            now = digests(site)
            if time.monotonic() - shown_at < OVERVIEW_EVERY_S:
                now["overview"] = known["overview"]
            elif now["overview"] != known["overview"]:
                shown_at = time.monotonic()
            for name in now:
                if now[name] != known[name]:
                    looks = 0
                    yield ServerSentEventMessage(event=name, data=now[name])
            known, looks = now, looks + 1
            if looks >= QUIET_LOOKS:
                looks = 0
                yield ServerSentEventMessage(comment="still here", data=None)
    finally:
        open_streams.discard(me)

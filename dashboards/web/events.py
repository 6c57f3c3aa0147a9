"""A stream of hints that something changed; what changed, the page asks for itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Any

from litestar import get
from litestar.exceptions import HTTPException
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage

from dashboards.web.site import Page, Site
from monitors.runtime.tasks import happens_within

LOOK_S = 2.0
QUIET_LOOKS = 7
"""After so many looks without news a comment is sent: whoever is in between must not take the stream for dead."""
MAX_STREAMS = 64


def digests(site: Site) -> dict[str, str]:
    """Of each event, a short text that is another one when there is news."""
    alerts = [
        (one.fingerprint, one.state, one.mean_since, one.likely_cause, one.ended_at) for one in site.engine.alerts()
    ]
    watched = [(one.app, one.metric, one.rule, one.slice, one.state) for one in site.engine.streams()]
    means = [(one.app, one.metric, one.n, one.mean) for one in site.insight.quality()]
    captured = [(one.app, one.answers, one.captured) for one in site.insight.captured()]
    depth = [site.registry.get_sample_value(name) for name in ("gaugeway_queue_depth", "gaugeway_queue_dead_letters")]
    acks = sorted(site.engine.acknowledgements.acks())
    shown = {"overview": (means, captured), "alerts": (alerts, watched, acks), "queue": depth}
    return {name: blake2b(repr(value).encode(), digest_size=8).hexdigest() for name, value in shown.items()}


def event_handlers(site: Site) -> list[Any]:
    """The handler of `/events`."""
    open_streams: set[object] = set()

    @get("/events")
    async def events(request: Page) -> ServerSentEvent:
        if len(open_streams) >= MAX_STREAMS:
            raise HTTPException(status_code=503, detail="too many pages are open")
        return ServerSentEvent(_news(site, request, open_streams))

    return [events]


async def _news(site: Site, request: Page, open_streams: set[object]) -> AsyncIterator[ServerSentEventMessage]:
    """Tell which digests changed, until the page is left, the session is over or the process stops."""
    if len(open_streams) >= MAX_STREAMS:  # others began between the request and here
        return
    me = object()
    open_streams.add(me)
    try:
        known, looks = digests(site), 0
        yield ServerSentEventMessage(comment="open", data=None, retry=2000)
        while not await happens_within(site.stopping, LOOK_S):
            if not site.entered(request):
                return
            now = digests(site)
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

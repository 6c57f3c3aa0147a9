"""A view that is not ready at once answers with its frame, and with its content as soon as that is read."""

from __future__ import annotations

import asyncio
import re
import time
from copy import copy
from typing import Any, cast
from urllib.parse import unquote

from litestar import Request
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from dashboards.web.addresses import APP_PATH
from dashboards.web.login import PASSED
from dashboards.web.site import Site
from dashboards.web.toolbar import VIEWS
from gaugeway.runtime.tasks import spawn
from monitors.api.errors import accepts_page

KEPT_S = 60.0
"""How long a view that was read is kept for the browser that has its frame: on a busy machine it may come back late."""
MAX_READING = 32
"""Views that are being read, or kept. Further ones have no frame until one of these is done."""
_WAIT = re.compile(rb"(?:^|&)wait=1(?=&|$)")
_OF_THE_ANSWER = frozenset({b"host", b"cookie", b"authorization", b"accept", b"accept-encoding"})
"""Request headers that an answer depends on."""
_TITLES = {"exchanges": "Exchange"}
_Key = tuple[object, ...]


class _Reading:
    """A view that is being read: its task, and the messages of its response.

    `begun` is set once the guards have passed, or the response is ready: nothing may be shown before.
    """

    def __init__(self, app: ASGIApp, scope: Scope, running: set[asyncio.Task[None]]) -> None:
        self._messages: list[Message] = []
        self._read_at: float | None = None
        self.begun = asyncio.Event()
        state = {name: copy(value) for name, value in scope["state"].items()}  # what the frame does not change
        own = cast("Scope", {**scope, "state": state, PASSED: self.begun})
        self._task = spawn(_read(app, own, self._keep), name=f"page: {scope['path']}")
        self._task.add_done_callback(self._is_read)
        running.add(self._task)
        self._task.add_done_callback(running.discard)

    async def is_ready(self, within_s: float | None) -> bool:
        """Wait until it is read, at most so many seconds after its guards have passed (None: until then).

        Reading goes on if the caller leaves.
        """
        await self.begun.wait()
        await asyncio.wait([self._task], timeout=within_s)
        return self._task.done()

    def is_old(self) -> bool:
        """Whether it was read too long ago to be shown."""
        return self._read_at is not None and time.monotonic() - self._read_at > KEPT_S

    async def send(self, send: Send) -> None:
        """Send the response. Raises what reading it raised."""
        await self._task
        for message in self._messages:
            await send(message)

    async def _keep(self, message: Message) -> None:
        self._messages.append(message)

    def _is_read(self, _: asyncio.Task[None]) -> None:
        self._read_at = time.monotonic()
        self.begun.set()


class FrameFirst:
    """Middleware of the views: after `Site.grace_s` it sends the frame, while the view goes on being read.

    The frame's script asks again with `Prefer: wait`, and a browser without scripts is sent to the same address with
    `wait=1`: both get the view when it is read. Errors of a view are answered inside, by its own handlers.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._readings: dict[_Key, _Reading] = {}

    def __deepcopy__(self, _: object) -> FrameFirst:
        """Return itself: Litestar copies the middleware of a router for each handler, and what is kept is shared."""
        return self

    def __call__(self, app: ASGIApp) -> ASGIApp:
        """Wrap a view."""

        async def framed(scope: Scope, receive: Receive, send: Send) -> None:
            redirected, request = _takes_wait(scope), Request[Any, Any, Any](scope)
            reloads = request.headers.get("prefer", "").startswith("wait")
            waits = redirected or reloads
            key = (request.method, scope["path"], request.scope["query_string"], *_headers(request))
            reading = None
            if request.method in ("GET", "HEAD") and renders(scope["route_handler"]) and accepts_page(request):
                reading = self._reading(key, app, scope, new=not waits)
            if reading is None:
                await app(scope, receive, send if request.method in ("GET", "HEAD") else self._forgetting(send))
            elif await reading.is_ready(None if waits else self._site.grace_s):
                if not reloads:
                    self._readings.pop(key, None)
                await reading.send(send)
            else:
                await self._frame(request)(scope, receive, send)

        return framed

    def _reading(self, key: _Key, app: ASGIApp, scope: Scope, *, new: bool) -> _Reading | None:
        """Return the reading of a view, begun before or, with `new`, now; None without one, or with too many."""
        for old in [name for name, reading in self._readings.items() if reading.is_old()]:
            del self._readings[old]
        if new and key not in self._readings and len(self._readings) < MAX_READING:
            self._readings[key] = _Reading(app, scope, self._site.reading)
        return self._readings.get(key)

    def _forgetting(self, send: Send) -> Send:
        """Return the send of a change: what was read before it is not shown after it."""

        async def forget(message: Message) -> None:
            self._readings.clear()
            await send(message)

        return forget

    def _frame(self, request: Request[Any, Any, Any]) -> ASGIApp:
        path, query = request.url.path, request.url.query
        wait_url = f"{path}?{query}&wait=1" if query else f"{path}?wait=1"
        frame = self._site.render(request, "frame.html", title=title_of(path), wait_url=wait_url)
        return frame.to_asgi_response(None, request, is_head_response=request.method == "HEAD")


def renders(handler: Any) -> bool:
    """Whether a handler renders a page for GET."""
    return "GET" in handler.http_methods and "Template" in str(handler.fn.__annotations__.get("return", ""))


def title_of(path: str) -> str:
    """The heading of a view until the view is read.

    >>> title_of("/compare"), title_of("/apps/a%20b"), title_of("/exchanges/x1")
    ('Compare', 'a b', 'Exchange')
    """
    if path.startswith(APP_PATH):
        return unquote(path.removeprefix(APP_PATH))
    first = path.split("/")[1]
    return next((view.name for view in VIEWS if view.to == f"/{first}"), _TITLES.get(first, first.capitalize()))


def _takes_wait(scope: Scope) -> bool:
    """Remove `wait=1` from a query, which is not the view's; return whether it was there."""
    http = cast("dict[str, Any]", scope)
    query = http["query_string"]
    http["query_string"] = _WAIT.sub(b"", query).removeprefix(b"&")
    return bool(http["query_string"] != query)


def _headers(request: Request[Any, Any, Any]) -> list[tuple[bytes, bytes]]:
    return sorted((name, value) for name, value in request.scope["headers"] if name in _OF_THE_ANSWER)


async def _read(app: ASGIApp, scope: Scope, send: Send) -> None:
    """Read a view without a client: the request has no body and is never disconnected."""

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    await app(scope, receive, send)

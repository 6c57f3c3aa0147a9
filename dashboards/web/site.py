"""What every view is given: the plane's knowledge, the frame of a page, and the check of a form."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import PermissionDeniedException
from litestar.response import Template
from prometheus_client import CollectorRegistry

from dashboards.web.sessions import Sessions
from monitors.alerting.acknowledgements import Ack
from monitors.alerting.engine import Watched
from monitors.alerting.repeat_policy import Progress
from monitors.alerting.versions import Version
from monitors.api.alerts import AlertDesk
from monitors.api.app import Insight
from monitors.config import Config
from monitors.records import Alert, Supplement
from monitors.runtime.auth import TokenCheck
from monitors.storage.templates import Templates

COOKIE = "gaugeway_session"
MAX_FORM_BYTES = 65_536
NAVIGATION = (
    ("/", "Overview"),
    ("/alerts", "Alerts"),
    ("/explore", "Explore"),
    ("/compare", "Compare"),
    ("/prompts", "Prompts"),
    ("/pipeline", "Pipeline"),
    ("/setup", "Setup"),
)
DONE = {
    "silenced": "Silenced: no notifications until the silence ends.",
    "unsilenced": "The silence is over.",
    "acknowledged": "Acknowledged: it is not repeated.",
    "unacknowledged": "Nobody looks after it any more; it is repeated again.",
    "rebaselined": "The rule re-learns its baseline.",
    "delivered": "Delivered.",
    "saved": "Saved.",
    "confirmed": "Confirmed: the template stays.",
    "rejected": "Rejected: gateways stop using the template within a few seconds, and do not learn it again.",
}
"""What a page may say was done: a link cannot make it say anything else."""
Page = Request[Any, Any, Any]


class Desk(AlertDesk, Protocol):
    """What people may say about alerts, and what they said."""

    def acks(self) -> Mapping[str, Ack]:
        """The acknowledgements by fingerprint."""


class Versions(Protocol):
    """What is known of versions."""

    def all(self) -> Sequence[Version]:
        """Every version, in the order of time."""

    def changes(self) -> Sequence[Version]:
        """Those that came after another one of their kind."""


class Engine(Protocol):
    """The alert engine, as far as the page asks it."""

    def alerts(self) -> Sequence[Alert]:
        """Alerts, newest first."""

    def streams(self) -> Sequence[Watched]:
        """Every watched stream."""

    def rebaseline(self, rule: str, app: str | None = None) -> int:
        """Learn baselines afresh. Raises KeyError."""

    @property
    def versions(self) -> Versions:
        """The versions seen in the traffic."""

    @property
    def desk(self) -> Desk:
        """Silences, acknowledgements, dead letters."""


async def _keep_nothing(_: Sequence[Supplement]) -> None:
    raise PermissionDeniedException("this page cannot take anything in")


class Site:
    """One operator's page.

    `supply` takes in supplements (the queue's method of that name), `delivery_progress` says how far each notifier is
    with an alert, `gateways` are base URLs of the gateways' admin ports, `templates` are those learned of prompts.
    """

    def __init__(
        self,
        insight: Insight,
        engine: Engine,
        registry: CollectorRegistry,
        *,
        config: Config,
        gateways: Sequence[str] = (),
        supply: Callable[[Sequence[Supplement]], Awaitable[None]] = _keep_nothing,
        delivery_progress: Callable[[str], Mapping[str, Progress]] | None = None,
        templates: Templates | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.insight = insight
        self.engine = engine
        self.registry = registry
        self.config = config
        self.gateways = tuple(gateways)
        self.supply = supply
        self.delivery_progress = delivery_progress
        self.templates = templates
        self.clock = clock
        self.stopping = asyncio.Event()
        self.sessions = Sessions(config.monitors.token)
        self.token_check = TokenCheck(config.monitors.token)

    def render(self, request: Page, template: str, *, title: str, status: int = 200, **context: Any) -> Template:
        """Answer with a page made of `template`; `title` is its heading."""
        path = request.url.path
        frame = {
            "title": title,
            "now": self.clock(),
            "navigation": [
                (to, name, path == to or (to != "/" and path.startswith(f"{to}/"))) for to, name in NAVIGATION
            ],
            "csrf": self.sessions.form_key(session_of(request)),
            "can_leave": self.sessions.needed and self.entered(request) and bool(session_of(request)),
            "entered": self.entered(request),
            "firing": sum(alert.state == "firing" for alert in self.engine.alerts()),
            "done": DONE.get(request.query_params.get("done", "")),
        }
        return Template(template, context={**frame, **context}, status_code=status, media_type="text/html")

    async def form(self, request: Page) -> dict[str, str]:
        """Read a form of ours. Raises PermissionDeniedException for one that is not, or too old."""
        self.check_origin(request)
        given = {name: value for name, value in (await request.form()).items() if isinstance(value, str)}
        if not self.sessions.is_form_key(given.pop("csrf", ""), session_of(request)):
            raise PermissionDeniedException("this form is not from this page, or too old: go back, reload, try again")
        return given

    def entered(self, connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
        """Whether nothing is asked of visitors, or this one is logged in, or carries the token."""
        if not self.sessions.needed or self.sessions.valid(session_of(connection), self.clock()):
            return True
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.sessions.is_token(given)

    def check_origin(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        """Refuse what a page of another origin made the browser send.

        As our pages tell no referrer, browsers call the origin of their forms "null" and say in another header that
        it is the same.
        """
        origin = connection.headers.get("origin")
        fetched = connection.headers.get("sec-fetch-site")
        own = {connection.headers.get("host", ""), urlsplit(self.config.monitors.public_url or "").netloc}
        if origin == "null":
            same = fetched == "same-origin"
        else:
            same = fetched in (None, "same-origin", "none") and (origin is None or urlsplit(origin).netloc in own)
        if not same:
            raise PermissionDeniedException("a page of another origin may not change anything here")

    def secure(self, connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
        """Whether visitors come by HTTPS, here or at the proxy in front."""
        return connection.url.scheme == "https" or (self.config.monitors.public_url or "").startswith("https:")

    def stop(self) -> None:
        """End the streams of events: they would keep the process waiting."""
        self.stopping.set()


def session_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The session that a browser sent, valid or not."""
    return connection.cookies.get(COOKIE, "")

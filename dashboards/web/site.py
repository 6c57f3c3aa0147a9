"""`Site`, which every view is given: access to the evaluation plane's data, page rendering and form checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.exceptions import PermissionDeniedException
from litestar.response import Redirect, Template
from prometheus_client import CollectorRegistry

from dashboards.web.gateways import Answer, ask_all, reading_of
from dashboards.web.sessions import Sessions
from dashboards.web.toolbar import PLACES, VIEWS, TimeRange, toolbar
from gaugeway.data_files import table
from gaugeway.records import Evaluation, Supplement
from gaugeway.runtime.auth import TokenCheck, has_token
from gaugeway.settings.shared import Config
from gaugeway.signals import RISING, SIGNALS
from gaugeway.storage.stores import Point
from gaugeway.storage.templates import Templates
from monitors.alerting.engine import AlertEngine
from monitors.analysis.datasets import Datasets
from monitors.analysis.gateway_counts import GatewayCounts
from monitors.analysis.human_labels import Passing
from monitors.analysis.retrieval.source_reading import SourceReports
from monitors.analysis.series import SeriesReader
from monitors.api.app import Insight
from monitors.api.trials import TrialDesk
from monitors.statistics.agreement import half_width_of

COOKIE = "gaugeway_session"
HTTPS_COOKIE = f"__Host-{COOKIE}"
"""Behind HTTPS: browsers take it from this host only, not from another of the same domain."""
MAX_FORM_BYTES = 65_536
FIRST_SCORES = 100
GRACE_S = 0.3
"""A view that is read within this time is sent whole, without its frame before."""
Page = Request[Any, Any, Any]


@dataclass(kw_only=True, eq=False)
class Site:
    """Shared state and helpers of the operator's page.

    `supply` stores supplements (the queue's method of that name), `gateways` are base URLs of the gateways' admin
    ports, `templates` holds the prompt templates learned from the traffic, `sources` reports on the sources of
    passages, `origins` says where the values of the configuration come from, by key. With fewer scores than
    `first_scores` the front page is Welcome.
    """

    insight: Insight
    engine: AlertEngine
    registry: CollectorRegistry
    config: Config
    gateways: Sequence[str]
    supply: Callable[[Sequence[Supplement]], Awaitable[None]]
    templates: Templates
    datasets: Datasets
    trials: TrialDesk | None
    sources: SourceReports
    series: SeriesReader
    origins: Mapping[str, str]
    clock: Callable[[], float] = time.time
    first_scores: int = FIRST_SCORES
    grace_s: float = GRACE_S
    stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    reading: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    """Views, and parts of them, that are being read for browsers that have the rest."""

    def __post_init__(self) -> None:
        token = self.config.monitors.token
        self.sessions, self.token_check = Sessions(token), TokenCheck(token)
        self.counts = GatewayCounts(self.insight.state_store, self.config.capture.retention_days, self.clock)

    def render(
        self,
        request: Page,
        template: str,
        *,
        title: str,
        status: int = 200,
        time_range: TimeRange | None = None,
        **context: Any,
    ) -> Template:
        """Render `template` in the page frame; `title` is its heading.

        A view that shows a period gives its `time_range`: the frame then has the time-range picker.
        """
        path = request.url.path
        params = parse_qsl(request.url.query)  # in their order, which `query_params` does not keep
        frame = {
            "title": title,
            "now": self.clock(),
            "reload_url": _own(request) if status == HTTPStatus.OK and self.entered(request) else "",
            "time_range": time_range,
            "bar": toolbar(path, params, time_range=time_range, apps=self.apps()),
            "keys": TEXTS["shortcuts"].items(),
            "path": path,
            "places": PLACES,
            "views": VIEWS,
            "csrf": self.sessions.form_key(self.session_of(request)),
            "can_leave": self.sessions.needed and self.entered(request) and bool(self.session_of(request)),
            "entered": self.entered(request),
            "is_best_at_0": self.is_best_at_0,
            "error_of": self.error_of,
            "judge_repeats": self.insight.judge_repeats,
            "judge_evidence": self.insight.judge_evidence,
            "estimated": self.insight.is_estimated(),
            "firing": sum(alert.state == "firing" for alert in self.engine.alerts()),
            "done": TEXTS["done"].get(request.query_params.get("done", "")),
        }
        return Template(template, context={**frame, **context}, status_code=status, media_type="text/html")

    def apps(self) -> list[tuple[str, int]]:
        """The apps with recent scores or answers, each with their number; an app may occur more than once."""
        scored = [(quality.app, quality.n) for quality in self.insight.quality() if not quality.slice]
        return [*scored, *((capture.app, capture.answers) for capture in self.insight.captured())]

    def tags(self, app: str = "") -> set[str]:
        """The tags to break down by, as "tag:NAME": the configured ones, and those seen in the traffic, of an app."""
        kinds = (version.kind for version in self.engine.versions.all() if app in ("", version.app))
        return {key for key in (*self.config.alerts.slices, *kinds) if key.startswith("tag:")}

    async def ask_gateways(self) -> list[Answer]:
        """Read the counters of all gateways."""
        return await ask_all(self.gateways, self.config.gateway.get("admin_token"))

    async def count_gateways(self) -> None:
        """Add the outcomes that the gateways counted since the last reading. Raises EngineError."""
        answers = await self.ask_gateways()
        away = [answer.url for answer in answers if answer.error.startswith("ConnectError")]
        await self.counts.take([reading_of(answer) for answer in answers if not answer.error], away)

    def error_of(self, scored: Point | Evaluation) -> str:
        """The error of a single score, as " ± 0.12"; "" unless its judge judged enough answers twice."""
        width = half_width_of(scored, self.insight.judge_repeats())
        return "" if width is None else f" ± {width:.2f}"

    def passing(self, metric: str) -> Passing:
        """When a score passes. A signal whose best value is 0 fails above one half; the others never fail."""
        if metric in SIGNALS:
            rising = metric in RISING
            return Passing(threshold=0.5 if rising else 0.0, flipped=rising)
        return self.sources.passing(metric)

    def is_best_at_0(self, metric: str) -> bool:
        """Whether the best value of a metric or a signal is 0."""
        return self.passing(metric).flipped

    async def form(self, request: Page) -> dict[str, str]:
        """Fields of a submitted form. Raises PermissionDeniedException if its key is foreign or expired."""
        self.check_origin(request)
        given = {name: value for name, value in (await request.form()).items() if isinstance(value, str)}
        if not self.sessions.is_form_key(given.pop("csrf", ""), self.session_of(request)):
            raise PermissionDeniedException(
                "this form has expired or comes from another page: go back, reload and try again"
            )
        return given

    def entered(self, connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
        """Whether access is open, or the visitor has a valid session or sends the token."""
        if not self.sessions.needed or self.sessions.valid(self.session_of(connection), self.clock()):
            return True
        return has_token(connection, self.config.monitors.token or "")

    def check_origin(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        """Refuse cross-origin requests. Raises PermissionDeniedException.

        Our pages set `referrer-policy: no-referrer`, so browsers send `origin: null` with their forms and report the
        same origin only in `sec-fetch-site`.
        """
        origin = connection.headers.get("origin")
        fetched = connection.headers.get("sec-fetch-site")
        own = {connection.headers.get("host", ""), urlsplit(self.config.monitors.public_url or "").netloc}
        if origin == "null":
            same = fetched == "same-origin"
        else:
            same = fetched in (None, "same-origin", "none") and (origin is None or urlsplit(origin).netloc in own)
        if not same:
            raise PermissionDeniedException("cross-origin requests are not allowed")

    def secure(self, connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
        """Whether visitors use HTTPS, here or at the proxy in front."""
        return connection.url.scheme == "https" or (self.config.monitors.public_url or "").startswith("https:")

    def cookie(self, request: Page, key: str, value: str, seconds: int, path: str = "/") -> Cookie:
        """A cookie of the page: scripts do not see it, and browsers send it with requests from the page only."""
        secure = self.secure(request)
        return Cookie(key=key, value=value, max_age=seconds, path=path, httponly=True, samesite="strict", secure=secure)

    def session_cookie(self, request: Page, session: str, seconds: int) -> Cookie:
        """The cookie with a session."""
        return self.cookie(request, HTTPS_COOKIE if self.secure(request) else COOKIE, session, seconds)

    def session_of(self, connection: ASGIConnection[Any, Any, Any, Any]) -> str:
        """The session cookie of a request, valid or not; empty without one."""
        return connection.cookies.get(HTTPS_COOKIE if self.secure(connection) else COOKIE, "")

    def stop(self) -> None:
        """Close the event streams and stop reading views, which would otherwise delay the shutdown."""
        self.stopping.set()
        self.series.stop()
        for task in (*self.reading,):
            task.cancel()


def done(path: str, what: str, *cookies: Cookie) -> Redirect:
    """Answer to a form: back to a view, which says that it is done."""
    return Redirect(f"{path}?done={what}", status_code=303, cookies=list(cookies))


def _own(request: Page) -> str:
    """The address of the view that is shown; "" for the answer to a form."""
    path, query = request.url.path, request.url.query
    if request.method not in ("GET", "HEAD") or path.startswith("//"):
        return ""
    return f"{path}?{query}" if query else path


TEXTS: dict[str, Any] = table("dashboards.web", "texts.toml")


OPERATOR_COOKIE = "gaugeway_operator"
KEPT_S = 365 * 86_400
MAX_NAME = 200
"""Characters of a name."""


def operator_of(request: Page) -> str:
    """The name that the visitor gave last; "" without one. It is no identity: a visitor can write any name."""
    given = unquote(request.cookies.get(OPERATOR_COOKIE, "")[: 12 * MAX_NAME], errors="replace")
    return "".join(character for character in given if character.isprintable()).strip()[:MAX_NAME]


def operator_cookie(site: Site, request: Page, name: str) -> Cookie:
    """The cookie that remembers a name for a year."""
    return site.cookie(request, OPERATOR_COOKIE, quote(name, safe=""), KEPT_S)

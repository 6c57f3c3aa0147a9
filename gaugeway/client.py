"""Clients of the monitors' API: `Client`, and `AsyncClient` with the same methods to await.

Each method is one operation of the OpenAPI document. `gaugeway/api_types.pyi` is made from that document and has the
types; a test holds the three together.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx

from gaugeway.settings import environment
from gaugeway.settings.shared import LOOPBACK

DEFAULT_URL = "http://127.0.0.1:9465"
TOKEN_VARIABLE = "GAUGEWAY_MONITORS_TOKEN"  # noqa: S105 - the name of a variable
DAY_S = 86_400.0
PAGE = 1000
"""Evaluations of a page, the most that the API gives at once."""
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)
_MAX_DETAIL = 2000  # internal bound: characters of an error that is not ours
_FIELD = re.compile(r"([A-Za-z_][\w.\[\]]*): ")
_TIMES = (
    *("started_at", "at", "since", "until", "ended_at", "changed_at", "learned_at", "received_at", "finding.onset"),
    *("first_seen", "first_used", "last_used", "last_at", "starts", "ends", "recovering_since", "at_alarm.at"),
    *("acknowledgement.at", "new.since"),
)
"""Columns of a frame that are Unix times."""
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Text: TypeAlias = str | None
Number: TypeAlias = float | None


class ApiError(Exception):
    """A request that failed.

    `status` is that of the response, None without one. `code` is its name (`not_found`, `unauthorized`, ...), or
    `unreachable`, `timeout`, `not_gaugeway`, `invalid_value`. `field` names the parameter that is wrong, where one is.
    """

    def __init__(self, message: str, *, status: int | None = None, code: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field


class Rows(list[T]):
    """A list of JSON objects."""

    def to_pandas(self) -> Any:
        """Return a data frame with a row for each object; nested objects become columns `name.field`, times UTC."""
        return _frame(self)


class Record(dict[str, Any]):
    """A JSON object."""

    _rows: str = ""

    def to_pandas(self) -> Any:
        """Return a data frame of the rows in this answer (groups, sources, topics, ...), or of it as a single row."""
        if self._rows == "groups":
            return _frame([{"slice": group["slice"], **point} for group in self["groups"] for point in group["points"]])
        return _frame(self[self._rows] if self._rows else [self])


def _frame(rows: Sequence[Any]) -> Any:
    try:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - optional
    except ImportError:
        raise ImportError("to_pandas needs pandas: pip install pandas") from None
    frame = pd.json_normalize(list(rows))
    for name in {*_TIMES} & {*frame.columns}:
        frame[name] = pd.to_datetime(frame[name], unit="s", utc=True)
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    method: str
    path: str
    given: Mapping[str, Any]
    rows: str = ""

    def arguments(self) -> dict[str, Any]:
        """What httpx takes: a query, or a JSON body for POST."""
        path, given = self.path, {name: value for name, value in self.given.items() if value is not None}
        try:
            for name in re.findall(r"\{(\w+)\}", path):
                path = path.replace(f"{{{name}}}", _segment(name, given.pop(name, "")))
            if self.method != "POST":
                return {"method": self.method, "url": path, "params": given}
            body = json.dumps(given, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ApiError(f"cannot be sent: {error}", code="invalid_value") from None
        return {"method": "POST", "url": path, "content": body, "headers": {"content-type": "application/json"}}


def _segment(name: str, value: Any) -> str:
    if (text := str(value)) in {"", ".", ".."}:
        raise ApiError(f"{name}: expected a name, got {text!r}", code="invalid_value", field=name)
    return quote(text, safe="")


def _operation(of: str, *, rows: str = "") -> Callable[[F], F]:
    """Make a method that sends its arguments to an operation ("get /api/alerts"), by their names.

    `rows` names the member of the answer that `to_pandas` shows.
    """
    method, _, path = of.partition(" ")

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(self: Operations, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs).arguments
            given = {name: value for name, value in bound.items() if name not in {"self", "more"}}
            given |= bound.get("more", {})
            return self._send(_Call(method=method.upper(), path=path, given=given, rows=rows))

        call.operation = of  # type: ignore[attr-defined]
        return cast("F", call)

    return decorate


class Operations:
    """The operations; a subclass sends them."""

    _send: Callable[[_Call], Any]

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, timeout_s: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
            raise ValueError("url: expected http://HOST:PORT or https://HOST, without a user name")
        token = token if token is not None else environment().get(TOKEN_VARIABLE)
        if token and not (token.isascii() and token.isprintable()):
            raise ValueError("token: has characters that no header may have")
        self.url = url.rstrip("/")
        self._settings: dict[str, Any] = {
            "base_url": self.url,
            "headers": {"authorization": f"Bearer {token}"} if token else {},
            "timeout": timeout_s,
            "trust_env": parts.hostname not in LOOPBACK,  # a proxy of the environment must not see the token
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def request(self, method: str, path: str, **given: Any) -> Any:
        """Send any operation: parameters of GET and DELETE are a query, those of POST a JSON body."""
        return self._send(_Call(method=method.upper(), path=path, given=given))

    @_operation("get /api/status")
    def status(self) -> Any:
        """Configuration and state."""

    @_operation("get /api/metrics")
    def metrics(self) -> Any:
        """Mean, interval and n of each app and metric."""

    @_operation("get /api/capture")
    def capture(self) -> Any:
        """Capture coverage of each app."""

    @_operation("get /api/alerts")
    def alerts(self) -> Any:
        """Alerts, the newest first."""

    @_operation("get /api/alerts/{fingerprint}", rows="worst")
    def alert(self, fingerprint: str) -> Any:
        """One alert with its worst answers and what is wrong with them."""

    @_operation("post /api/alerts/{fingerprint}/ack")
    def acknowledge(self, fingerprint: str, *, by: str, comment: str = "") -> Any:
        """Acknowledge an alert."""

    @_operation("delete /api/alerts/{fingerprint}/ack")
    def unacknowledge(self, fingerprint: str) -> Any:
        """Remove an acknowledgement."""

    @_operation("get /api/silences")
    def silences(self) -> Any:
        """Silences."""

    @_operation("post /api/silences")
    def silence(
        self,
        *,
        matchers: Sequence[Mapping[str, str]],
        by: str,
        duration_s: Number = None,
        starts: Number = None,
        ends: Number = None,
        comment: str = "",
    ) -> Any:
        """Create a silence for `duration_s` seconds, or until `ends`."""

    @_operation("delete /api/silences/{silence_id}")
    def unsilence(self, silence_id: str) -> Any:
        """End a silence."""

    @_operation("get /api/versions")
    def versions(self) -> Any:
        """Models, prompts and version tags seen in the traffic of each app."""

    @_operation("get /api/exchanges")
    def exchanges(
        self,
        *,
        app: Text = None,
        metric: Text = None,
        model: Text = None,
        since_s: Number = None,
        until: Number = None,
        order: Literal["newest", "lowest", "highest"] | None = None,
        limit: int | None = None,
    ) -> Any:
        """Stored evaluations, at most `limit` (up to 1000)."""

    @_operation("get /api/exchanges/{exchange_id}", rows="evaluations")
    def exchange(self, exchange_id: str) -> Any:
        """One exchange with its texts, evaluations and labels."""

    @_operation("post /api/exchanges/{exchange_id}/label")
    def label(self, exchange_id: str, *, metric: str, label: Literal["pass", "fail", "withdrawn"], by: str) -> Any:
        """Label an answer."""

    @_operation("get /api/conversations")
    def conversations(self, *, app: Text = None, since_s: Number = None, limit: int | None = None) -> Any:
        """Conversations, the latest first."""

    @_operation("get /api/conversations/{conversation_id}")
    def conversation(self, conversation_id: str, *, app: Text = None) -> Any:
        """The exchanges of a conversation, the oldest first."""

    @_operation("get /api/series", rows="groups")
    def series(
        self, *, app: str, metric: str, by: Text = None, since: Text = None, until: Text = None, step: Text = None
    ) -> Any:
        """Means of a metric over time, with versions and alerts."""

    @_operation("get /api/sources", rows="sources")
    def sources(
        self,
        *,
        app: str,
        metric: Text = None,
        source: Text = None,
        since_s: Number = None,
        until: Number = None,
        order: Text = None,
        limit: int | None = None,
    ) -> Any:
        """What each source of an app's passages did."""

    @_operation("get /api/topics", rows="topics")
    def topics(self, *, app: str, metric: Text = None, since_s: Number = None, until: Number = None) -> Any:
        """Questions without a good answer, by topic."""

    @_operation("get /api/clusters", rows="clusters")
    def clusters(
        self,
        *,
        app: str,
        kind: Literal["failures", "declines", "questions"],
        metric: Text = None,
        since: Text = None,
        until: Text = None,
    ) -> Any:
        """Failing answers, declines or questions of an app in named groups."""

    @_operation("get /api/context-costs", rows="sources")
    def context_costs(self, *, app: str, metric: Text = None, since_s: Number = None, until: Number = None) -> Any:
        """What an app's passages cost."""

    @_operation("get /api/compare", rows="rows")
    def compare(
        self,
        *,
        by: str,
        a: str,
        b: str,
        app: Text = None,
        metric: Sequence[str] | None = None,
        since_s: Number = None,
        delta: Number = None,
        alpha: Number = None,
    ) -> Any:
        """Compare version `b` with version `a`."""

    @_operation("get /api/labels")
    def labels(
        self, *, app: Text = None, metric: Text = None, since_s: Number = None, half_width: Number = None
    ) -> Any:
        """The judge compared with human labels."""

    @_operation("get /api/judge-check")
    def judge_check(self, *, metric: Text = None, app: Text = None, truth: Text = None, since_s: Number = None) -> Any:
        """Agreement of judge and people."""

    @_operation("get /api/datasets")
    def datasets(self, *, app: Text = None) -> Any:
        """Data sets with their newest version."""

    @_operation("get /api/datasets/{name}", rows="records")
    def dataset(self, name: str) -> Any:
        """A data set with its rows; NAME@3 is its third version."""

    @_operation("post /api/datasets/{name}")
    def add_to_dataset(
        self,
        name: str,
        *,
        exchanges: Sequence[str] | None = None,
        alert: Text = None,
        labelled: bool | None = None,
        app: Text = None,
        metric: Text = None,
        below: Number = None,
        above: Number = None,
        since_s: Number = None,
        limit: int | None = None,
        by: Text = None,
    ) -> Any:
        """Add captured exchanges to a data set, as a new version."""

    @_operation("get /api/trials")
    def trials(self) -> Any:
        """Trials with their results so far, the newest first."""

    @_operation("get /api/trials/{name}", rows="arms")
    def trial(self, name: str) -> Any:
        """One trial."""

    @_operation("post /api/trials")
    def start_trial(self, **more: Any) -> Any:
        """Start a trial with the members of the body, as the HTTP reference has them."""

    @_operation("post /api/trials/{name}/stop")
    def stop_trial(self, name: str) -> Any:
        """End a trial."""

    @_operation("get /api/templates")
    def templates(self, *, app: Text = None) -> Any:
        """Prompt templates learned from traffic."""


class Client(Operations):
    """A client that waits for each answer. Close it, or use it in a `with` statement."""

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, timeout_s: float = 30.0) -> None:
        super().__init__(url, token=token, timeout_s=timeout_s)
        self._http = httpx.Client(**self._settings)

    def _send(self, call: _Call) -> Any:
        arguments = call.arguments()
        try:
            response = self._http.request(**arguments)
        except _FAILURES as error:
            raise _failed(error, self.url) from None
        return _answer(response, call.rows)

    def each_exchange(self, *, since_s: float = DAY_S, limit: int | None = None, **filters: Any) -> Iterator[Any]:
        """Yield stored evaluations of the last `since_s` seconds, the newest first, page by page."""
        pages = _Pages(since_s, limit)
        while pages.more:
            yield from pages.take(self.exchanges(**filters, **pages.query()))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Operations):
    """The same methods as those of `Client`, to await. Close it, or use it in an `async with` statement."""

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, timeout_s: float = 30.0) -> None:
        super().__init__(url, token=token, timeout_s=timeout_s)
        self._http = httpx.AsyncClient(**self._settings)

    async def _send(self, call: _Call) -> Any:
        arguments = call.arguments()
        try:
            response = await self._http.request(**arguments)
        except _FAILURES as error:
            raise _failed(error, self.url) from None
        return _answer(response, call.rows)

    async def each_exchange(
        self, *, since_s: float = DAY_S, limit: int | None = None, **filters: Any
    ) -> AsyncIterator[Any]:
        """Yield stored evaluations of the last `since_s` seconds, the newest first, page by page."""
        pages = _Pages(since_s, limit)
        while pages.more:
            for point in pages.take(await self.exchanges(**filters, **pages.query())):
                yield point

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Pages:
    """Pages of evaluations, each of what started no later than the last one that was given."""

    def __init__(self, since_s: float, limit: int | None) -> None:
        self._since = time.time() - since_s
        self._left = math.inf if limit is None else limit
        self._until: float | None = None
        self._given: set[tuple[str, str, str]] = set()
        """Those that started at the time of the last one: the next page may begin with them."""
        self.more = self._left > 0

    def query(self) -> dict[str, Any]:
        """The parameters of the next page."""
        since_s = max(time.time() - self._since, 1e-3)
        return {"since_s": since_s, "until": self._until, "order": "newest", "limit": PAGE}

    def take(self, points: Sequence[Any]) -> list[Any]:
        """Return what is new of a page."""
        fresh = [point for point in points if _key(point) not in self._given]
        self.more = len(points) == PAGE and len(fresh) < self._left
        if points:
            last = points[-1]["started_at"]
            # A page of one moment only: no later page can have more of it, so the next one is before it.
            self._until = math.nextafter(last, math.inf) if fresh else last
            self._given = {_key(point) for point in points if point["started_at"] == last}
        wanted = fresh if math.isinf(self._left) else fresh[: int(self._left)]
        self._left -= len(wanted)
        return wanted


def _key(point: Mapping[str, Any]) -> tuple[str, str, str]:
    return point["sample_id"], point["metric"], point["version"]


def _failed(error: Exception, url: str) -> ApiError:
    """The error without a response; it names no header."""
    if isinstance(error, UnicodeError):
        return ApiError("cannot be sent: a text is not valid Unicode", code="invalid_value")
    if isinstance(error, httpx.TimeoutException):
        return ApiError(f"{url} did not respond in time", code="timeout")
    return ApiError(f"{url} cannot be reached: {type(error).__name__}", code="unreachable")


def _answer(response: httpx.Response, rows: str) -> Any:
    if response.status_code == HTTPStatus.NO_CONTENT:
        return None
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    if response.is_success and isinstance(body, dict | list):
        if isinstance(body, dict):
            body = Record(body)
            body._rows = rows  # noqa: SLF001 - made here
        return Rows(body) if isinstance(body, list) else body
    raise _refused(response.status_code, body)


def _refused(status: int, body: Any) -> ApiError:
    detail = body.get("detail") if isinstance(body, dict) else None
    if not isinstance(detail, str):
        message = f"the answer (status {status}) is not one of Gaugeway's monitors: see the URL"
        return ApiError(message, status=status, code="not_gaugeway")
    code = next((known.name.lower() for known in HTTPStatus if known == status), f"http_{status}")
    field = _FIELD.match(detail)
    return ApiError(detail[:_MAX_DETAIL], status=status, code=code, field=field and field[1])

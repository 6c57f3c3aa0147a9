"""The gateways' counters, read from their admin ports, and the traffic by app over the last minutes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families

from monitors.analysis.gateway_counts import Reading

if TYPE_CHECKING:
    import httpx
import math
import time
from collections import deque
from collections.abc import Callable, Iterator

from gaugeway.runtime.tasks import happens_within, spawn

TIMEOUT_S = 5.0
"""Of reading and parsing: on a busy machine this process waits for the processor longer than for the gateway."""
MAX_BYTES = 16 * 1024 * 1024
MAX_LISTED = 20  # internal bound: label values in a list on the page
ADMIN_HOST, ADMIN_PORT = "127.0.0.1", 9464
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared with, not bound to


class Series:
    """Values by series name and labels.

    >>> series = Series([("a_total", {"app": "x"}, 2.0), ("a_total", {"app": "y"}, 3.0)])
    >>> series.total("a_total"), series.total("a_total", app="x"), series.by("a_total", "app")
    (5.0, 2.0, {'x': 2.0, 'y': 3.0})
    """

    def __init__(self, values: Iterable[tuple[str, Mapping[str, str], float]] = ()) -> None:
        self._values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for name, labels, value in values:
            self._values.setdefault(name, []).append((labels, value))

    def rows(self, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Every series of that name."""
        return self._values.get(name, ())

    def total(self, name: str, **labels: str) -> float:
        """Sum over all series with these labels; 0 without any."""
        return sum(value for found, value in self.rows(name) if labels.items() <= found.items())

    def by(self, name: str, *labels: str) -> dict[str, float]:
        """Sums by label values, joined with a space."""
        sums: dict[str, float] = {}
        for found, value in self.rows(name):
            key = " ".join(found.get(label, "") for label in labels).strip()
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def largest(self, name: str, *labels: str) -> list[tuple[str, float]]:
        """The largest sums by label values, at most `MAX_LISTED`, without those that are 0."""
        counted = [(key, total) for key, total in self.by(name, *labels).items() if total]
        return sorted(counted, key=lambda pair: -pair[1])[:MAX_LISTED]

    def value(self, name: str) -> float | None:
        """Value of a gauge without labels; None if absent."""
        return self.rows(name)[0][1] if self.rows(name) else None

    def plus(self, other: Series) -> Series:
        """The series of both."""
        mine = [(name, labels, value) for name, found in self._values.items() for labels, value in found]
        more = [(name, labels, value) for name, found in other._values.items() for labels, value in found]
        return Series(mine + more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Response of one gateway: its series, or an error."""

    url: str
    series: Series
    error: str = ""


def gateway_urls(configured: Sequence[str] | None, gateway: Mapping[str, Any]) -> tuple[str, ...]:
    """The base URLs of the gateways' admin ports: `[monitors] gateways`, or that of the same file's `[gateway]`.

    >>> gateway_urls(None, {"admin_host": "::", "admin_port": 1234})
    ('http://[::1]:1234',)
    >>> gateway_urls(["http://a:9464/"], {})
    ('http://a:9464',)
    """
    if configured is not None:
        return tuple(address.rstrip("/") for address in configured)
    host = str(gateway.get("admin_host", ADMIN_HOST))
    host = _ANYWHERE.get(host, host)
    return (f"http://{f'[{host}]' if ':' in host else host}:{gateway.get('admin_port', ADMIN_PORT)}",)


def series_of(families: Iterable[Metric]) -> Series:
    """The samples of our metric families; histograms are left out."""
    return Series(
        (sample.name, sample.labels, sample.value)
        for family in families
        if family.name.startswith("gaugeway_") and family.type != "histogram"
        for sample in family.samples
    )


def together(answers: Iterable[Answer]) -> Series:
    """The series of all gateways."""
    total = Series()
    for answer in answers:
        total = total.plus(answer.series)
    return total


def reading_of(answer: Answer) -> Reading:
    """The exchanges that a gateway counted, by app and outcome."""
    exchanges: dict[tuple[str, str], float] = {}
    for labels, value in answer.series.rows("gaugeway_exchanges_total"):
        key = labels.get("app", ""), labels.get("outcome", "")
        exchanges[key] = exchanges.get(key, 0.0) + value
    return Reading(url=answer.url, exchanges=exchanges)


async def own(registry: CollectorRegistry) -> Series:
    """Counters of this process, collected in a thread as for `/metrics`."""
    return await asyncio.to_thread(lambda: series_of(registry.collect()))


async def ask_all(urls: Sequence[str], token: str | None, *, only: tuple[str, ...] = ()) -> list[Answer]:
    """Query all gateways concurrently; `only` names the series to parse, histograms' buckets included."""
    import httpx  # noqa: PLC0415 - only once the page is looked at: 6 MB, 40 ms

    headers = {"authorization": f"Bearer {token}"} if token else {}
    plain = all(url.lower().startswith("http:") for url in urls)  # and redirects are not followed
    tls = not plain and _tls_context()
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, headers=headers, verify=tls) as client:
        return list(await asyncio.gather(*(_ask(client, url, only) for url in urls)))


@cache
def _tls_context() -> ssl.SSLContext:
    """Load the certificates once: that takes tens of milliseconds."""
    import httpx  # noqa: PLC0415 - as above

    return httpx.create_ssl_context(trust_env=False)


async def _ask(client: httpx.AsyncClient, url: str, only: tuple[str, ...]) -> Answer:
    import httpx  # noqa: PLC0415 - as above

    try:
        async with asyncio.timeout(TIMEOUT_S):
            text = await _read(client, f"{url}/metrics")
            return Answer(url=url, series=await asyncio.to_thread(_parsed, text, only))
    except TimeoutError:
        return Answer(url=url, series=Series(), error=f"no answer within {TIMEOUT_S:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        return Answer(url=url, series=Series(), error=f"{type(error).__name__}: {error}"[:200])


def _parsed(text: str, only: tuple[str, ...]) -> Series:
    """The series of an answer. Without their TYPE lines the buckets of a histogram are series like any other."""
    if only:  # parsing a line takes ten times as long as skipping it
        text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(only))
    return series_of(text_string_to_metric_families(text))


async def _read(client: httpx.AsyncClient, url: str) -> str:
    async with client.stream("GET", url) as response:
        if response.status_code != HTTPStatus.OK:
            raise ValueError(f"HTTP {response.status_code}")
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
        return body.decode()


EVERY_S, WINDOW_S, IDLE_S = 15.0, 600.0, 900.0
"""The gateways are read every `EVERY_S` seconds; rates are over the last `WINDOW_S`; reading ends `IDLE_S` after the
last view."""
P95 = 0.95
_REQUESTS, _COST = "gaugeway_requests_total", "gaugeway_cost_usd_total"
_BUCKETS = "gaugeway_request_duration_seconds_bucket"
NAMES = (_REQUESTS, _COST, _BUCKETS)
_ANSWERS = frozenset({"chat_completions", "completions", "responses", "messages"})
"""Routes whose successful requests are answers."""
_BROKEN = frozenset({"upstream_truncated", "upstream_error", "timeout", "rejected"})


class Totals(Struct):
    """Counters of one app; `buckets` are cumulative counts of durations by upper bound in seconds."""

    requests: float = 0.0
    errors: float = 0.0
    answers: float = 0.0
    cost_usd: float = 0.0
    buckets: dict[float, float] = {}


class AppTraffic(Struct, frozen=True, kw_only=True):
    """Traffic of one app; None where it is unknown. `error_ratio` lies in [0, 1], `p95_s` is in seconds.

    An error is a request answered with 4xx or 5xx, or whose response did not arrive whole for a reason other than the
    client's. An answer is a successful request to a route that generates text.
    """

    requests_per_min: float
    error_ratio: float | None
    p95_s: float | None
    usd_per_answer: float | None


class Traffic(Struct, frozen=True, kw_only=True):
    """Traffic by app over `window_s` seconds at most; None, and no app, after the first reading: rates need two.

    `gateways` of those that are `configured` are in it, 0 if none has ever answered; `read` is False until the first
    reading has ended. `age_s` is None unless the latest readings gave no rates: the traffic is so many seconds old, and
    `silent` says that no gateway answered since.
    """

    apps: Mapping[str, AppTraffic]
    window_s: float | None = None
    gateways: int = 0
    configured: int = 0
    read: bool = True
    age_s: float | None = None
    silent: bool = False


Snapshot = tuple[float, Mapping[str, Mapping[str, Totals]]]
"""Monotonic time, and totals by gateway and app."""


def totals_of(series: Series) -> dict[str, Totals]:
    """Counters by app.

    >>> labels = {"app": "a", "route": "chat_completions", "status_class": "5xx", "ending": "complete"}
    >>> totals_of(Series([("gaugeway_requests_total", labels, 2.0)]))["a"].errors
    2.0
    """
    found: dict[str, Totals] = {}
    for labels, value in series.rows(_REQUESTS):
        totals = found.setdefault(labels.get("app", ""), Totals())
        totals.requests += value
        if labels.get("status_class") in ("4xx", "5xx") or labels.get("ending") in _BROKEN:
            totals.errors += value
        elif labels.get("route") in _ANSWERS and labels.get("status_class") == "2xx":
            totals.answers += value
    for labels, value in series.rows(_COST):
        found.setdefault(labels.get("app", ""), Totals()).cost_usd += value
    for labels, value in series.rows(_BUCKETS):
        buckets = found.setdefault(labels.get("app", ""), Totals()).buckets
        bound = float(labels.get("le", "inf"))
        buckets[bound] = buckets.get(bound, 0.0) + value
    return found


def traffic_over(snapshots: Sequence[Snapshot], configured: int) -> Traffic:
    """Traffic over these snapshots of `configured` gateways, oldest first.

    What a gateway counted after a restart is added to what it had counted before. A gateway that answers later than
    others counts from its second answer on: its requests per minute are those since its first one. One that is not in
    the last snapshot is left out.
    """
    last_at, last = snapshots[-1]
    sums: dict[str, Totals] = {}
    per_min: dict[str, float] = {}
    windows = []
    for url in last:
        answers = [(at, found[url]) for at, found in snapshots if url in found]
        if (window_s := last_at - answers[0][0]) <= 0.0:
            continue
        windows.append(window_s)
        for before, now in _runs([apps for _, apps in answers]):
            for app, totals in now.items():
                old = before.get(app, Totals())
                _add(sums.setdefault(app, Totals()), totals, old)
                per_min[app] = per_min.get(app, 0.0) + (totals.requests - old.requests) * 60.0 / window_s
    return Traffic(
        apps={app: _traffic(totals, per_min[app]) for app, totals in sums.items()},
        window_s=max(windows, default=None),
        gateways=len(windows) or len(last),
        configured=configured,
    )


def _runs(answers: Sequence[Mapping[str, Totals]]) -> Iterator[tuple[Mapping[str, Totals], Mapping[str, Totals]]]:
    """The first and the last counters of each run of a gateway; after a restart it counts from 0."""
    first = last = answers[0]
    for now in answers[1:]:
        if any(totals.requests > now.get(app, Totals()).requests for app, totals in last.items()):
            yield first, last
            first = {}
        last = now
    yield first, last


def quantile(q: float, buckets: Mapping[float, float]) -> float | None:
    """Quantile of a histogram, interpolated within its bucket as PromQL does; None without observations.

    >>> quantile(0.5, {1.0: 2.0, 2.0: 6.0, math.inf: 6.0}), quantile(0.95, {1.0: 0.0, math.inf: 3.0})
    (1.25, 1.0)
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0.0:
        return None
    wanted, lower, below = q * buckets[bounds[-1]], 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if math.isinf(bound):
                return lower
            inside = buckets[bound] - below
            return lower + (bound - lower) * ((wanted - below) / inside if inside > 0.0 else 1.0)
        lower, below = bound, buckets[bound]
    return lower


class TrafficReader:
    """Reads the gateways in the background while somebody looks, and keeps the snapshots of the last minutes."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None,
        *,
        stopping: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._urls, self._token = urls, token
        self._stopping, self._clock = stopping, clock
        self._snapshots: deque[Snapshot] = deque()
        self._known: tuple[float, Traffic] | None = None
        self._looked_at = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()

    async def latest(self, timeout_s: float = 0.1) -> Traffic:
        """Return the traffic of the last minutes; waits up to `timeout_s` for the first reading."""
        self._looked_at = self._clock()
        if self._urls and (self._task is None or self._task.done()):
            self._first.clear()
            self._task = spawn(self._run(), name="page: traffic")
        if self._urls and not self._snapshots:
            await happens_within(self._first, timeout_s)
        now = Traffic(apps={}, configured=len(self._urls), read=not self._urls or self._first.is_set())
        if self._snapshots:
            now = traffic_over(self._snapshots, len(self._urls))
        if now.window_s is not None:
            self._known = self._snapshots[-1][0], now
        elif self._known is not None:
            at, known = self._known
            return replace(known, age_s=self._clock() - at, silent=bool(self._snapshots) and not now.gateways)
        return now

    async def read(self) -> None:
        """Take a snapshot; gateways that do not answer are missing in it."""
        answers = await ask_all(self._urls, self._token, only=NAMES)
        found = {
            answer.url: await asyncio.to_thread(totals_of, answer.series) for answer in answers if not answer.error
        }
        now = self._clock()
        self._snapshots.append((now, found))
        while len(self._snapshots) > 1 and now - self._snapshots[1][0] >= WINDOW_S:
            self._snapshots.popleft()
        self._first.set()

    async def _run(self) -> None:
        while self._clock() - self._looked_at < IDLE_S:
            begin = self._clock()
            await self.read()
            if await happens_within(self._stopping, max(EVERY_S, 10.0 * (self._clock() - begin))):
                return
        self._snapshots.clear()


def _add(total: Totals, now: Totals, before: Totals) -> None:
    """Add what was counted from `before` to `now`."""
    total.requests += now.requests - before.requests
    total.errors += max(0.0, now.errors - before.errors)
    total.answers += max(0.0, now.answers - before.answers)
    total.cost_usd += max(0.0, now.cost_usd - before.cost_usd)
    for bound, count in now.buckets.items():
        added = max(0.0, count - before.buckets.get(bound, 0.0))
        total.buckets[bound] = total.buckets.get(bound, 0.0) + added


def _traffic(totals: Totals, requests_per_min: float) -> AppTraffic:
    return AppTraffic(
        requests_per_min=requests_per_min,
        error_ratio=totals.errors / totals.requests if totals.requests > 0.0 else None,
        p95_s=quantile(P95, totals.buckets),
        usd_per_answer=totals.cost_usd / totals.answers if totals.answers > 0.0 and totals.cost_usd > 0.0 else None,
    )

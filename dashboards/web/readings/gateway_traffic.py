"""Requests, errors, latency and cost by app over the last minutes, from the counters of the gateways."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dashboards.web.readings.gateway_scrape import Series, ask_all
from gaugeway.runtime.tasks import happens_within, spawn

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


@dataclass(slots=True)
class Totals:
    """Counters of one app; `buckets` are cumulative counts of durations by upper bound in seconds."""

    requests: float = 0.0
    errors: float = 0.0
    answers: float = 0.0
    cost_usd: float = 0.0
    buckets: dict[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppTraffic:
    """Traffic of one app; None where it is unknown. `error_ratio` lies in [0, 1], `p95_s` is in seconds.

    An error is a request answered with 4xx or 5xx, or whose response did not arrive whole for a reason other than the
    client's. An answer is a successful request to a route that generates text.
    """

    requests_per_min: float
    error_ratio: float | None
    p95_s: float | None
    usd_per_answer: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
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

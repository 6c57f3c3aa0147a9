"""Gateways and monitors of any number over one queue and store, the same traffic for all, and who leads them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

from gaugeway.records import Failed, Score, Skipped
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import from_url
from monitors.alerting.rule_watch import SavedWatch
from monitors.alerting.stream import Case
from tests.support.postgres import Postgres
from tests.support.product import Product, Webhook
from tests.support.scenario import ROAM, STAY
from tests.support.traffic import Sent, request_of, send

CONFIG = """
[[upstreams]]
base_url = "{url}/app/v1"

[capture]
rate = {capture}
salt = "fleet"

[judge]
base_url = "{url}/judge/v1"
model = "judge-1"
cache = "off"

[metrics.faithfulness]
rate = {faithfulness}

[metrics.context_relevancy]
rate = {relevancy}

[metrics.answer_relevancy]
enabled = false

[metrics.hallucination]
enabled = false

[queue]
url = "{queue}"
lease_s = 5
target_age_s = inf

[store]
url = "{store}"

[monitors]
join_window_s = 0
"""
RATES = {"capture": 0.8, "faithfulness": 0.5, "relevancy": 0.3}
ALERTS = """
[alerts]
bucket_s = {bucket_s}
watermark_s = 6
slices = ["app"]
group_wait_s = 0
false_alerts_per_30d = {budget}

[[alerts.rules]]
name = "answers"
metric = "faithfulness"
apps = ["shop"]
slo = 0.8

[[notifiers]]
kind = "webhook"
url = "{hook}"
"""
_NOBODY = "/api/alerts/none/ack"
_LED = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32) | objid::bigint = hashtextextended('gaugeway/monitors', 0)
"""


class Fleet:
    """So many gateways and monitors with one configuration; a context manager. One of each shares a directory."""

    def __init__(self, directory: Path, config: str, *, gateways: int = 1, monitors: int = 1) -> None:
        self._directory = directory
        self._config = config
        self.gateways = [self._product("gateway", number) for number in range(gateways)]
        self.monitors = [self._product("monitors", number) for number in range(monitors)]

    def _product(self, command: str, number: int) -> Product:
        place = self._directory / str(number)
        place.mkdir(parents=True, exist_ok=True)
        return Product(place, self._config, command=command)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._all, _stop)
            self._all(Product.start)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _all(self, action: Callable[[Product], None]) -> None:
        processes = [*self.monitors, *self.gateways]
        with ThreadPoolExecutor(len(processes)) as pool:
            list(pool.map(action, processes))

    @property
    def ports(self) -> list[int]:
        """Where the traffic goes."""
        return [one.port for one in self.gateways]

    @property
    def alive(self) -> list[Product]:
        """The monitors that still run."""
        return [one for one in self.monitors if one.is_running()]

    def kill(self, pid: int) -> None:
        """Kill one of our processes with 9."""
        assert pid in [one.pid for one in (*self.monitors, *self.gateways)]
        os.kill(pid, signal.SIGKILL)

    def counted(self, name: str, **labels: str) -> float:
        """A counter's sum over the gateways, or over the monitors that run."""
        planes = [one.admin for one in self.gateways] + [one.monitors for one in self.alive]
        return sum(self.gateways[0].value(plane, f"gaugeway_{name}", **labels) for plane in planes)

    def waiting(self) -> int:
        """How many samples the queue holds."""
        queue = self.alive[0].get("/api/status")["queue"]
        return int(queue["ready"] + queue["leased"])

    def settle(self, sent: int, within_s: float = 300.0) -> float:
        """Wait until so many exchanges have their outcome and the queue is empty; return when that was."""
        return wait_until(lambda: self.counted("exchanges_total") == sent and self.waiting() == 0, within_s)

    def reach(self, expected: float, name: str, within_s: float = 60.0, **labels: str) -> float:
        """A counter's sum, once it is what is expected or does not get there in time."""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self.counted(name, **labels) == expected, within_s)
        return self.counted(name, **labels)


def wait_until(condition: Callable[[], bool], within_s: float) -> float:
    """Wait until a condition holds; return when that was. Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(0.1)
    return time.monotonic()


def _stop(one: Product) -> None:
    if one.is_running():
        one.stop()


Row = tuple[str | None, str, str, str, float | str]


async def _evaluated(url: str) -> list[Row]:
    store = from_url(url)
    rows: list[Row] = []
    try:
        last, ids = "", await store.ids("", 500)
        while ids:
            for name in ids:
                found = await store.sample(name)
                assert found is not None
                sample, evaluations = found
                for one in (one for one in evaluations if one.metric not in SIGNALS):  # each process learns its own
                    match one.outcome:
                        case Score(value):
                            said: tuple[str, float | str] = "score", value
                        case Skipped(reason):
                            said = "skipped", reason
                        case Failed(error):
                            said = "failed", error
                    rows.append((sample.trace_id, one.metric, one.version, *said))
            last = ids[-1]
            ids = await store.ids(last, 500)
    finally:
        await store.aclose()
    return rows


def evaluated(url: str) -> list[Row]:
    """Every evaluation but signals, by the trace it is about: what must not depend on who evaluated it."""
    return sorted(asyncio.run(_evaluated(url)), key=repr)


def states(url: str) -> Mapping[str, bytes]:
    """What detectors and alerts have saved."""

    async def load() -> Any:
        store = from_url(url)
        try:
            return await store.load()
        finally:
            await store.aclose()

    return asyncio.run(load())


def wait_closed(url: str, until: float, rule: str = "answers", within_s: float = 60.0) -> None:
    """Wait until a rule's buckets are closed up to a moment."""

    def closed() -> bool:
        saved = states(url).get(f"alerts/rule/{rule}")
        return saved is not None and msgspec.json.decode(saved, type=SavedWatch).closed_until >= until

    wait_until(closed, within_s)


ORDER_LOG10 = 1.0
"""By how much the order of scores sent at once, and so which of them are neighbours, may move the evidence of 42."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What became of a planted drop: moments count from its first bucket, so that runs can be compared."""

    alerts: int
    evidence_log10: float
    baseline: float
    scores: int
    estimate: float
    onset_s: float
    alarm_s: float

    def same_as(self, other: Told) -> bool:
        """Whether it is the same but for the order of the scores of a bucket, which says how much neighbours share."""
        mine, others = (astuple(replace(one, evidence_log10=0.0)) for one in (self, other))
        if abs(self.evidence_log10 - other.evidence_log10) > ORDER_LOG10:
            return False
        return all(math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-6) for one, two in zip(mine, others, strict=True))


def told(url: str, hook: Webhook, broken_at: float) -> Told:
    """The only alert that the store knows, and how often people were told of it.

    A first notification may lack the cause; one update with it follows.
    """
    firing = [one for body in list(hook.bodies) for one in body["alerts"] if one["status"] == "firing"]
    cases = msgspec.json.decode(states(url)["alerts/cases"], type=list[Case])
    (case,) = (one for one in cases if one.alert.state == "firing")
    finding = case.alert.finding
    return Told(
        alerts=sum(bool(one["annotations"]["cause_detail"]) for one in firing) or len(firing),
        evidence_log10=finding.evidence_log10,
        baseline=finding.baseline,
        scores=finding.n,
        estimate=finding.estimate or 0.0,
        onset_s=finding.onset - broken_at,
        alarm_s=case.alarm_at - broken_at,
    )


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Traffic whose answers get worse: `per_bucket` requests at the beginning of each bucket."""

    bucket_s: float
    healthy: int
    broken: int
    per_bucket: int
    first: int = 0

    def play(
        self, fleets: Sequence[Fleet], sent: Sequence[Sent], after: Callable[[int], None] = lambda _: None
    ) -> float:
        """Send it to every fleet at the same moments; return when it broke. `after` is called after each bucket."""
        edge = (time.time() // self.bucket_s + 2) * self.bucket_s
        for bucket in range(self.healthy + self.broken):
            time.sleep(max(0.0, edge + bucket * self.bucket_s + 0.02 - time.time()))
            asyncio.run(self._send(bucket, fleets, sent))
            if time.time() >= edge + (bucket + 1) * self.bucket_s - 0.02:
                raise TimeoutError("this machine is too busy: a bucket's requests took longer than the bucket")
            after(bucket)
        return edge + self.healthy * self.bucket_s

    async def _send(self, bucket: int, fleets: Sequence[Fleet], sent: Sequence[Sent]) -> None:
        numbers = range(self.first + bucket * self.per_bucket, self.first + (bucket + 1) * self.per_bucket)
        requests = [request_of(one, system=STAY if bucket < self.healthy else ROAM) for one in numbers]
        pairs = zip(fleets, sent, strict=True)
        await asyncio.gather(*(send(fleet.ports, requests, one, places=4) for fleet, one in pairs))


class Leaders:
    """Looks every 50 ms who leads: who holds the lock in the database, and which processes act as leaders.

    A process that leads looks for the alert that somebody wants to acknowledge; one that follows refuses to look.
    """

    def __init__(self, server: Postgres, url: str, monitors: Sequence[Product]) -> None:
        self.looks = self.none = self.many = self.acting_many = 0
        self.longest_without = 0.0
        self._server, self._url = server, url
        self._monitors = monitors
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._since: float | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def holder(self) -> tuple[int, int]:
        """The process that leads, and the number of its reign."""
        ((holder, term),) = self._server.ask(self._url, "SELECT holder, term FROM terms")
        return int(str(holder).rpartition(":")[2]), int(str(term))

    async def _run(self) -> None:
        import asyncpg

        connection = await asyncpg.connect(self._url)
        try:
            async with httpx.AsyncClient(timeout=5) as client:
                while not self._stop.is_set():
                    began = time.monotonic()
                    held = await connection.fetchval(_LED)
                    acting = sum(await asyncio.gather(*(self._acts(client, one) for one in self._monitors)))
                    self._note(held, acting, began)
                    await asyncio.sleep(max(0.0, 0.05 - (time.monotonic() - began)))
        finally:
            await connection.close()

    def _note(self, held: int, acting: int, now: float) -> None:
        self.looks += 1
        self.many += held > 1
        self.acting_many += acting > 1
        self.none += held == 0
        if held:
            self._since = None
        else:
            self._since = self._since or now
            self.longest_without = max(self.longest_without, time.monotonic() - self._since)

    @staticmethod
    async def _acts(client: httpx.AsyncClient, one: Product) -> bool:
        try:
            answer = await client.post(one.monitors + _NOBODY, json={"by": "the fleet's test"})
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.NOT_FOUND

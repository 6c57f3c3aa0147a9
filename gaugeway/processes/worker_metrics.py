"""`/metrics` of several workers: each counts in its own memory, the supervisor sums what they report over a socket.

Neither end writes a file, so a full disk cannot stop a worker.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry, Metric

from gaugeway.runtime.tasks import happens_within, spawn

FD_VARIABLE = "GAUGEWAY_METRICS_FD"
"""Names the worker's end of the socket to the supervisor."""
MAX_REPORT_BYTES = 256 * 1024 * 1024
"""The most series that an `Instruments` can have, with the longest names, take half of it."""
REPORT_S = 1.0
"""How often a worker reports on its own: a killed worker loses at most the counts of this time."""
REPORT_SHARE = 0.01
"""Share of a processor that these reports take at most, as long as one is sent every `RAREST_REPORT_S`."""
RAREST_REPORT_S = 10.0
POLL_S = 2.0
"""How long a scrape waits for a worker before its last report is used."""
_log = logging.getLogger("gaugeway")

Mode: TypeAlias = Literal["sum", "livesum", "livemin", "max"]
Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
Send: TypeAlias = "Callable[[Poll | Sum], None]"


class Family(msgspec.Struct, array_like=True):
    """The series of one metric; `mode` says how the values of several workers are combined."""

    name: str
    documentation: str
    type: str
    mode: Mode
    samples: dict[Series, float]


class Report(msgspec.Struct, tag=True, array_like=True):
    """A worker's values; `poll` is the number of the poll that this answers."""

    families: list[Family]
    poll: int | None = None


class Scrape(msgspec.Struct, tag=True, array_like=True):
    """A worker's request for the sum over all workers."""


class Poll(msgspec.Struct, tag=True, array_like=True):
    """The supervisor's request for a report."""

    number: int


class Sum(msgspec.Struct, tag=True, array_like=True):
    """The answer to a scrape."""

    families: list[Family]


class Exposed(Protocol):
    """The interface that the exposition formats need."""

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""


class WorkerMetrics:
    """The worker's end: reports `registry` to the supervisor and requests the sum; `modes` are those of the gauges."""

    def __init__(self, end: socket.socket, registry: Exposed, modes: Mapping[str, Mode]) -> None:
        self._end = end
        self._registry = registry
        self._modes = modes
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._one_at_a_time = asyncio.Lock()
        self._asked: asyncio.Future[list[Family]] | None = None
        self._closing = asyncio.Event()

    async def start(self) -> None:
        """Connect to the supervisor."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._end)
        self._tasks = [
            spawn(self._listen(reader), name="worker metrics"),
            spawn(self._report_regularly(), name="worker metrics reports"),
        ]

    async def total(self) -> Exposed:
        """Return the sum over all workers. Raises OSError or TimeoutError when the supervisor does not answer."""
        async with self._one_at_a_time:
            if self._writer is None or self._writer.is_closing():
                raise ConnectionError("the supervisor is gone")
            self._asked = asyncio.get_running_loop().create_future()
            _write(self._writer, Scrape())
            async with asyncio.timeout(2 * POLL_S):
                return _Families(await self._asked)

    async def aclose(self) -> None:
        """Report for the last time and disconnect."""
        self._closing.set()
        if self._writer is not None and not self._writer.is_closing():
            await self._report(None)
            self._writer.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        decode = msgspec.msgpack.Decoder(Poll | Sum).decode
        async for body in _bodies(reader):
            if isinstance(message := decode(body), Poll):
                await self._report(message.number)
            elif self._asked is not None and not self._asked.done():
                self._asked.set_result(message.families)
        if self._writer is not None:
            self._writer.close()
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(ConnectionError("the supervisor is gone"))

    async def _report_regularly(self) -> None:
        wait_s = REPORT_S
        while not await happens_within(self._closing, wait_s):
            if self._writer is None or self._writer.is_closing():
                return
            wait_s = min(max(REPORT_S, await self._report(None) / REPORT_SHARE), RAREST_REPORT_S)

    async def _report(self, poll: int | None) -> float:
        """Send the values of this process; return the CPU seconds that gathering them took."""

        def gather() -> tuple[bytes, float]:
            start = time.thread_time()  # not by the clock: on a busy machine the reports would become rare
            return framed(Report(families_of(self._registry, self._modes), poll)), time.thread_time() - start

        # In a thread: thousands of series must not hold up the event loop.
        report, took_s = await asyncio.to_thread(gather)
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(report)
        return took_s


class WorkersTotal:
    """The supervisor's end: sums the running workers and the counters of those that have ended."""

    def __init__(self) -> None:
        self._workers: dict[int, _Worker] = {}
        self._ended: dict[str, Family] = {}
        self._numbers = itertools.count()

    def latest(self) -> list[Family]:
        """Return the sum of the last reports, without a poll: at most about `REPORT_S` old."""
        total: dict[str, Family] = {}
        _add(total, self._ended.values())
        for worker in list(self._workers.values()):
            _add(total, worker.families)
        return list(total.values())

    async def follow(self, end: socket.socket) -> None:
        """Receive a worker's reports until it ends; then keep its counters."""
        reader, writer = await asyncio.open_unix_connection(sock=end)
        number = next(self._numbers)
        worker = self._workers[number] = _Worker(lambda message: _write(writer, message))
        decode = msgspec.msgpack.Decoder(Report | Scrape).decode
        answering: set[asyncio.Task[None]] = set()
        try:
            async for body in _bodies(reader):
                if isinstance(message := decode(body), Report):
                    worker.take(message)
                else:
                    task = spawn(self._answer(worker), name="sum of the workers' metrics")
                    answering.add(task)
                    task.add_done_callback(answering.discard)
        finally:
            writer.close()
            del self._workers[number]
            worker.end()
            _add(self._ended, [family for family in worker.families if family.mode == "sum"])

    async def total(self) -> list[Family]:
        """Poll the workers and return the sum; of one that does not answer in time, its last report counts."""
        poll = next(self._numbers)
        if answers := [worker.polled(poll) for worker in self._workers.values()]:
            await asyncio.wait(answers, timeout=POLL_S)
        for worker in self._workers.values():
            worker.forget(poll)
        return self.latest()

    async def _answer(self, worker: _Worker) -> None:
        worker.send(Sum(await self.total()))


class SummedRegistry(CollectorRegistry):
    """A registry to which the last reports of workers are added, by the `modes` of their families."""

    def __init__(self, own: CollectorRegistry, workers: WorkersTotal, modes: Mapping[str, Mode]) -> None:
        super().__init__()
        self._own = own
        self._workers = workers
        self._modes = modes

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of this process and its workers."""
        total: dict[str, Family] = {}
        _add(total, families_of(self._own, self._modes))
        _add(total, self._workers.latest())
        return _Families(total.values()).collect()


class CountsOnly:
    """The counters and histograms of a registry, and its gauges that `modes` names: what a sum over workers is of."""

    def __init__(self, registry: CollectorRegistry, modes: Mapping[str, Mode]) -> None:
        self._registry = registry
        self._modes = modes

    def collect(self) -> Iterable[Metric]:
        """Return these metrics."""
        return [metric for metric in self._registry.collect() if metric.type != "gauge" or metric.name in self._modes]


class _Worker:
    """The supervisor's state of one worker."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.families: list[Family] = []
        self._polls: dict[int, asyncio.Future[None]] = {}

    def take(self, report: Report) -> None:
        self.families = report.families
        if report.poll is not None and (poll := self._polls.pop(report.poll, None)) is not None:
            poll.set_result(None)

    def polled(self, number: int) -> asyncio.Future[None]:
        answer = self._polls[number] = asyncio.get_running_loop().create_future()
        self.send(Poll(number))
        return answer

    def forget(self, number: int) -> None:
        self._polls.pop(number, None)

    def end(self) -> None:
        for poll in self._polls.values():
            poll.set_result(None)
        self._polls.clear()


class _Families:
    """What the exposition formats encode: the metrics of families."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.documentation, family.type)
            for (name, labels), value in family.samples.items():
                metric.add_sample(name, dict(labels), value)
            yield metric


def families_of(registry: Exposed, modes: Mapping[str, Mode]) -> list[Family]:
    """Return all values of a registry."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            modes.get(metric.name, "sum"),
            {(sample.name, tuple(sample.labels.items())): float(sample.value) for sample in metric.samples},
        )
        for metric in registry.collect()
    ]


def inherited() -> socket.socket | None:
    """Return this process's end of the socket to the supervisor; None for a process that has none."""
    number = os.environ.pop(FD_VARIABLE, "")  # noqa: TID251 - a descriptor handed over by the supervisor, no setting
    if not number.isdigit():
        return None
    try:
        end = socket.socket(fileno=int(number))
    except OSError:
        return None
    end.set_inheritable(False)
    return end


def _add(total: dict[str, Family], families: Iterable[Family]) -> None:
    for family in families:
        if (known := total.get(family.name)) is None:
            samples = dict(family.samples)
            total[family.name] = Family(family.name, family.documentation, family.type, family.mode, samples)
            continue
        combine = _COMBINED[family.mode]
        for series, value in family.samples.items():
            old = known.samples.get(series)
            known.samples[series] = value if old is None else combine(old, value)


_COMBINED: dict[Mode, Callable[[float, float], float]] = {
    "sum": lambda value, other: value + other,
    "livesum": lambda value, other: value + other,
    "livemin": min,
    "max": max,
}


async def _bodies(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield what the frames hold until the other end closes, or sends one that is too large."""
    while True:
        try:
            if (length := int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")) > MAX_REPORT_BYTES:
                _log.error("worker metrics: refused a report of %d bytes", length)
                return
            body = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            return
        yield body


def _write(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    if not writer.is_closing():
        writer.write(framed(message))


LENGTH_BYTES = 4


def framed(value: object) -> bytes:
    """Encode a value with its length in front."""
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def next_frame(read: Callable[[int], bytes]) -> bytes | None:
    """Return what the next frame holds; None where the input ends, within a frame too."""
    if len(head := read(LENGTH_BYTES)) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    body = read(length)
    return body if len(body) == length else None

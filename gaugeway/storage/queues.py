"""The queue between the planes: at-least-once delivery of samples and supplements, with leases."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from gaugeway.records import Sample, Supplement
from gaugeway.settings.bounds import shed
from gaugeway.storage.engine import adapter
from gaugeway.storage.erase import Subject

Key = TypeVar("Key")
_MEASURE_EVERY_S = 2.0
_log = logging.getLogger("gaugeway")


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A sample handed to one worker until the lease runs out. `attempt` counts deliveries, from 1."""

    sample: Sample
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many samples wait: `ready` to be leased, `leased` now, `dead` after too many attempts.

    `oldest_started_at` is the smallest `Sample.started_at` (Unix seconds) among ready and leased ones, or None.
    `trimmed` counts those that ever had to make room for younger ones, in a queue with a bound; they are gone.
    `bytes` is about what all of them take up in the engine, as it measures that itself, and `fill` the share of its
    bounds that the queue has used: at 1 it takes no more.
    """

    ready: int
    leased: int
    dead: int
    oldest_started_at: float | None
    trimmed: int = 0
    bytes: int = field(default=0, compare=False)
    fill: float = field(default=0.0, compare=False)


class QueueFull(Exception):
    """The queue has reached its bound; nothing was added."""


class Queue(Protocol):
    """Samples on their way to evaluation, and supplements about them. Operations raise `engines.failures.FAILURES`.

    The length of a lease and the number of attempts are set in the constructor.
    """

    async def put(self, samples: Sequence[Sample]) -> None:
        """Add all of `samples` or none. A sample whose id waits already is left as it is.

        Raises QueueFull when the queue has a bound and has reached it, and RefusedError when it never takes one of
        them.
        """

    async def lease(self, limit: int) -> Sequence[Lease]:
        """Take at most `limit` samples, oldest first, that nobody else holds.

        A sample not acknowledged before its lease ends is handed out again, until its attempts are used up; then it is
        set aside as a dead letter.
        """

    async def renew(self, sample_ids: Sequence[str]) -> None:
        """Begin the leases of these samples again, from now on; their attempts stay. By default they run out."""

    async def ack(self, sample_ids: Sequence[str]) -> None:
        """Remove these samples for good, whoever holds them now."""

    async def depth(self) -> Depth:
        """Count the samples that wait."""

    async def supply(self, supplements: Sequence[Supplement]) -> None:
        """Add all of `supplements` or none. One whose id waits already is left as it is."""

    async def take(self, limit: int) -> Sequence[Supplement]:
        """Take at most `limit` supplements, oldest first, that nobody else holds.

        One not acknowledged before its lease ends is handed out again, however often: to store one twice is harmless.
        """

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        """Remove these supplements for good, whoever holds them now."""

    async def set_aside(self, sample_id: str, reason: str) -> None:
        """Move a waiting sample, whoever holds it, to the dead letters with this reason."""

    async def prune(self, before: float) -> int:
        """Delete dead letters and unleased samples started before `before`, Unix seconds; return how many samples.

        Unleased supplements received before `before` are deleted too.
        """

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete what is about one person; return how many rows of each kind are deleted (or would be)."""

    async def aclose(self) -> None:
        """Release the connection; calling it twice is harmless."""


class PayloadReader(Generic[Key]):
    """Reads the rows that an engine hands out, each with the id under which it stores the payload.

    `stored` gives an id as the engine stores it. What cannot be read comes back by its key: a payload of another
    version, a damaged or a misplaced one.
    """

    def __init__(self, stored: Callable[[str], object] = str) -> None:
        self._stored = stored
        self._samples = msgspec.json.Decoder(Sample)
        self._supplements = msgspec.json.Decoder(Supplement)

    def leases(self, rows: Iterable[tuple[Key, object, int, bytes]]) -> tuple[list[Lease], list[tuple[Key, int, str]]]:
        """Read key, id, attempt and payload; return leases, and key, attempt and reason of what cannot be read."""
        leases: list[Lease] = []
        unreadable: list[tuple[Key, int, str]] = []
        for key, sample_id, attempt, payload in rows:
            try:
                sample = self._samples.decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                unreadable.append((key, attempt, f"unreadable: {error}"))
                continue
            if self._stored(sample.id) == sample_id:
                leases.append(Lease(sample=sample, attempt=attempt))
            else:
                unreadable.append((key, attempt, "unreadable: the payload belongs to another sample"))
        if unreadable:
            _log.warning(
                "queue: moved %d unreadable samples to dead letters, first: %s", len(unreadable), unreadable[0][2]
            )
        return leases, unreadable

    def supplements(self, rows: Iterable[tuple[Key, object, bytes]]) -> tuple[list[Supplement], list[Key]]:
        """Read key, id and payload; return supplements, and the keys of what cannot be read."""
        taken: list[Supplement] = []
        unreadable: list[Key] = []
        for key, supplement_id, payload in rows:
            try:
                supplement = shed(self._supplements.decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError):
                unreadable.append(key)
                continue
            if self._stored(supplement.id) == supplement_id:
                taken.append(supplement)
            else:
                unreadable.append(key)
        if unreadable:
            _log.warning("queue: removed %d unreadable supplements", len(unreadable))
        return taken, unreadable


class Bound:
    """Limits a queue to about `max_bytes`; None: to what the engine takes.

    The size is measured before a `put`, at most every two seconds, and every time while the queue is full; in between,
    the bytes of this process are added. So a queue may exceed `max_bytes` by one batch, and by what other processes
    add within two seconds.
    """

    def __init__(self, max_bytes: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._used = 0
        self._ask_at = -math.inf

    async def admit(self, size: int, used: Callable[[], Awaitable[int]]) -> None:
        """Admit `size` bytes; `used` measures the queue. Raises QueueFull."""
        if self._max_bytes is None:
            return
        if self._clock() >= self._ask_at or self._used >= self._max_bytes:
            self._used = await used()
            self._ask_at = self._clock() + _MEASURE_EVERY_S
        if self._used >= self._max_bytes:
            raise QueueFull(f"{self._used} of {self._max_bytes} bytes are taken")
        self._used += size

    def fill(self, used: int) -> float:
        """The utilisation: `used` bytes as a share of the bound.

        >>> Bound(200).fill(50), Bound(None).fill(50)
        (0.25, 0.0)
        """
        return used / self._max_bytes if self._max_bytes else 0.0


MAX_ATTEMPTS = 5
"""Leases of a sample without completion after which it becomes a dead letter: it may be what ends the workers."""


def from_url(url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> Queue:
    """Return the queue that `url` names: `sqlite:////absolute/path`, `sqlite:///relative/path`, `postgresql://…/database`
    or `redis://host:6379/0`, with `rediss`, `valkey` and `valkeys` alike.

    It takes no more than about `max_bytes`, if given. Nothing is opened yet. Raises ValueError for a URL of another
    kind.
    """
    queue: Queue = adapter(url, "queue").from_url(url, lease_s, max_attempts, max_bytes)
    return queue

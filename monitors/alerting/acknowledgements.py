"""Acknowledgements, silences and undelivered notifications, kept in the state store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from monitors.alerting.notifiers.message import labels_of
from monitors.alerting.silences import Silence
from monitors.records import Alert
from monitors.storage.stores import StateStore

SILENCES, ACKS, UNDELIVERED = "alerts/silences", "alerts/acks", "alerts/dead-letters"
MAX_UNDELIVERED, MAX_SILENCES = 100, 500
KEPT_S = 7 * 86_400.0
"""How long an expired silence is still listed."""


class NotLeaderError(Exception):
    """Raised for a change while the state is not restored yet, or while another process leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Who acknowledged an alert, when (Unix seconds), and their comment."""

    by: str
    at: float
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeliveredNotification:
    """An alert given up for one notifier after `attempts` attempts from `since` to `at` (Unix seconds)."""

    id: str
    notifier: str
    alert: Alert
    error: str
    attempts: int
    since: float
    at: float


class Acknowledgements:
    """Silences, acknowledgements and undelivered notifications. Changes take effect at once and are then saved.

    `firing` returns the alert that fires under a fingerprint; `resend` delivers an undelivered notification, or raises.
    """

    def __init__(
        self,
        state_store: StateStore,
        clock: Callable[[], float],
        *,
        firing: Callable[[str], Alert | None],
        resend: Callable[[UndeliveredNotification], Awaitable[None]],
    ) -> None:
        self._state_store = state_store
        self._clock = clock
        self._firing = firing
        self._resend = resend
        self._open = False
        self._silences: dict[str, Silence] = {}
        self._acks: dict[str, Ack] = {}
        self._undelivered: dict[str, UndeliveredNotification] = {}

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Load the saved state and accept changes."""
        silences = msgspec.json.decode(states.get(SILENCES, b"[]"), type=list[Silence])
        undelivered = msgspec.json.decode(states.get(UNDELIVERED, b"[]"), type=list[UndeliveredNotification])
        self._silences = {one.id: one for one in silences}
        self._undelivered = {one.id: one for one in undelivered}
        self._acks = msgspec.json.decode(states.get(ACKS, b"{}"), type=dict[str, Ack])
        self._open = True

    def close(self) -> None:
        """Keep showing the state, but reject changes: another process leads."""
        self._open = False

    def states(self) -> dict[str, bytes]:
        """Return the state to save."""
        return {
            SILENCES: msgspec.json.encode(list(self._silences.values())),
            ACKS: msgspec.json.encode(self._acks),
            UNDELIVERED: msgspec.json.encode(list(self._undelivered.values())),
        }

    def muted(self, alert: Alert) -> bool:
        """Return whether an active silence matches the alert."""
        labels, now = labels_of(alert), self._clock()
        return any(silence.mutes(labels, now) for silence in self._silences.values())

    def acknowledged(self, fingerprint: str) -> bool:
        """Return whether the alert is acknowledged."""
        return fingerprint in self._acks

    def acks(self) -> Mapping[str, Ack]:
        """Return the acknowledgements by fingerprint."""
        return self._acks

    def forget(self) -> None:
        """Drop acknowledgements of alerts that no longer fire, and silences that expired a week ago."""
        long_ago = self._clock() - KEPT_S
        self._acks = {key: ack for key, ack in self._acks.items() if self._firing(key) is not None}
        self._silences = {key: one for key, one in self._silences.items() if one.ends > long_ago}

    def add_undelivered(self, notification: UndeliveredNotification) -> None:
        """Add an undelivered notification and drop the oldest above `MAX_UNDELIVERED`; the caller saves."""
        self._undelivered[notification.id] = notification
        for key in list(self._undelivered)[:-MAX_UNDELIVERED]:
            del self._undelivered[key]

    async def silences(self) -> Sequence[Silence]:
        """Return all silences, the one that ends last first."""
        return sorted(self._silences.values(), key=lambda one: one.ends, reverse=True)

    async def silence(self, silence: Silence) -> None:
        """Add a silence. Raises ValueError when there are too many."""
        if len(self._silences) >= MAX_SILENCES:
            raise ValueError(f"there are {MAX_SILENCES} silences already")
        await self._change(lambda: self._silences.update({silence.id: silence}))

    async def unsilence(self, silence_id: str) -> bool:
        """Remove a silence; return False for an unknown id."""
        if silence_id not in self._silences:
            return False
        await self._change(lambda: self._silences.pop(silence_id))
        return True

    async def acknowledge(self, fingerprint: str, ack: Ack) -> bool:
        """Acknowledge a firing alert; return False when none fires under that fingerprint."""
        if self._open and self._firing(fingerprint) is None:
            return False
        await self._change(lambda: self._acks.update({fingerprint: ack}))
        return True

    async def unacknowledge(self, fingerprint: str) -> bool:
        """Undo an acknowledgement; return False when there was none."""
        if fingerprint not in self._acks:
            return False
        await self._change(lambda: self._acks.pop(fingerprint))
        return True

    async def undelivered(self) -> Sequence[UndeliveredNotification]:
        """Return the undelivered notifications, the latest first."""
        return list(self._undelivered.values())[::-1]

    async def retry(self, notification_id: str) -> bool:
        """Send an undelivered notification and drop it; return False for an unknown id. Raises if the send fails."""
        notification = self._undelivered.get(notification_id)
        if notification is None:
            return False
        self._must_be_open()
        await self._resend(notification)
        await self._change(lambda: self._undelivered.pop(notification_id, None))
        return True

    async def _change(self, change: Callable[[], object]) -> None:
        """Apply a change and save the whole state, so that concurrent saves may finish in any order."""
        self._must_be_open()
        change()
        await self._state_store.save(self.states())

    def _must_be_open(self) -> None:
        if not self._open:
            raise NotLeaderError("the alert engine is starting, or another process leads; try again in a moment")


def undelivered_id(notifier: str, alert: Alert, at: float) -> str:
    """Return the id of an undelivered notification, 16 hex digits."""
    return blake2b(f"{notifier}\0{alert.fingerprint}\0{alert.state}\0{at!r}".encode(), digest_size=8).hexdigest()

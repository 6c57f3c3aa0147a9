"""Silences, acknowledgements, undelivered notifications and the history of alerts, kept in the state store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec
import regex
from msgspec.structs import replace

from gaugeway.records import Alert
from gaugeway.storage.stores import StateStore
from monitors.alerting.alert_history import MAX_NOTES, MAX_TEXT, AlertHistory, Event
from monitors.alerting.notifiers.message import labels_of

Label: TypeAlias = Literal["alertname", "app", "metric", "rule", "severity", "slice"]
Operator: TypeAlias = Literal["=", "!=", "=~", "!~"]
MAX_SILENCE_S = 10 * 365 * 86_400.0
"""How far ahead a silence may end."""
MAX_VALUE = 500
MATCH_S = 0.05
"""Time limit of one match: some patterns backtrack exponentially."""
MAX_KNOWN = 10_000
"""Cached results, by pattern and value."""


class Matcher(msgspec.Struct, frozen=True, kw_only=True):
    """One condition on a label. A missing label counts as empty; patterns match the whole value.

    >>> Matcher(name="app", op="=~", value="shop|bank").matches({"app": "bank"})
    True
    >>> Matcher(name="slice", op="!=", value="").matches({"app": "bank"})
    False
    """

    name: Label
    op: Operator
    value: str

    def problem(self) -> str | None:
        """Return what is wrong with the matcher, None if it is valid."""
        if len(self.value) > MAX_VALUE:
            return f"longer than {MAX_VALUE} characters"
        if self.op in ("=~", "!~"):
            try:
                regex.compile(self.value)
            except regex.error as error:
                return f"not a regular expression: {error}"
        return None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an alert with these labels meets the condition; a pattern that times out does not."""
        value = labels.get(self.name, "")
        if self.op in ("=", "!="):
            return (value == self.value) == (self.op == "=")
        found = _fullmatch(self.value, value)
        # On a timeout the alert is sent: a silence that fails is better than a lost alert.
        return False if found is None else found == (self.op == "=~")


@lru_cache(MAX_KNOWN)
def _fullmatch(pattern: str, value: str) -> bool | None:
    """Return whether the pattern matches the whole value, None on a timeout. Runs on the event loop, once per pair."""
    try:
        return regex.fullmatch(pattern, value, timeout=MATCH_S) is not None
    except TimeoutError:
        return None


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Mutes alerts that meet all `matchers`, from `starts` until `ends` (Unix seconds).

    `removed`: someone ended it, before the time that was chosen.
    """

    id: str
    matchers: tuple[Matcher, ...]
    starts: float
    ends: float
    by: str
    comment: str = ""
    removed: bool = False

    def problems(self, now: float) -> list[str]:
        """Return the problems of a new silence, each prefixed with its field."""
        found = [
            f"matchers[{index}].value: {problem}"
            for index, matcher in enumerate(self.matchers)
            if (problem := matcher.problem()) is not None
        ]
        if not self.matchers:
            found.append("matchers: a silence needs at least one")
        elif not found and all(matcher.matches({}) for matcher in self.matchers):
            found.append("matchers: at least one must not match an empty value, or this silences everything")
        if not max(now, self.starts) < self.ends <= now + MAX_SILENCE_S:
            found.append("ends: must be in the future, after starts, and within ten years")
        if not self.by.strip():
            found.append("by: say who")
        return found

    def state(self, now: float) -> Literal["pending", "active", "expired"]:
        """Return the state at Unix time `now`."""
        return "expired" if now >= self.ends else "active" if now >= self.starts else "pending"

    def mutes(self, labels: Mapping[str, str], now: float) -> bool:
        """Return whether the silence mutes an alert with these labels."""
        return self.state(now) == "active" and self.matches(labels)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an alert with these labels meets all conditions, whatever the time."""
        return all(matcher.matches(labels) for matcher in self.matchers)


SILENCES, ACKS, UNDELIVERED = "alerts/silences", "alerts/acks", "alerts/dead-letters"
HISTORY = "alerts/history"
MAX_UNDELIVERED, MAX_SILENCES = 100, 500
KEPT_S = 7 * 86_400.0
"""How long a silence is still listed after its end."""


class NotLeaderError(Exception):
    """Raised for a change while the state is not restored yet, or while another process leads."""


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """Who acknowledged an alert, when (Unix seconds), and their comment."""

    by: str
    at: float
    comment: str = ""


class UndeliveredNotification(msgspec.Struct, frozen=True, kw_only=True):
    """An alert given up for one notifier after `attempts` attempts from `since` to `at` (Unix seconds)."""

    id: str
    notifier: str
    alert: Alert
    error: str
    attempts: int
    since: float
    at: float


@dataclass(eq=False)
class Acknowledgements:
    """Silences, acknowledgements and undelivered notifications. Changes take effect at once and are then saved.

    `firing` returns the alert that fires under a fingerprint, `unresolved` the alerts that have not ended; `resend`
    delivers an undelivered notification, or raises. `history` has what was done about each alert and sent about it.
    """

    state_store: StateStore
    clock: Callable[[], float]
    _: KW_ONLY
    firing: Callable[[str], Alert | None]
    unresolved: Callable[[], Iterable[Alert]]
    resend: Callable[[UndeliveredNotification], Awaitable[None]]
    _open: bool = field(default=False, init=False)
    _silences: dict[str, Silence] = field(default_factory=dict, init=False)
    _acks: dict[str, Ack] = field(default_factory=dict, init=False)
    _undelivered: dict[str, UndeliveredNotification] = field(default_factory=dict, init=False)
    history: AlertHistory = field(default_factory=AlertHistory, init=False)
    changes: int = field(default=0, init=False)
    """Acts since the start of this process: a page that shows them is current while this stays the same."""

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Load the saved state and accept changes."""
        silences = msgspec.json.decode(states.get(SILENCES, b"[]"), type=list[Silence])
        undelivered = msgspec.json.decode(states.get(UNDELIVERED, b"[]"), type=list[UndeliveredNotification])
        self._silences = {silence.id: silence for silence in silences}
        self._undelivered = {notification.id: notification for notification in undelivered}
        self._acks = msgspec.json.decode(states.get(ACKS, b"{}"), type=dict[str, Ack])
        self.history.load(states.get(HISTORY, b"{}"))
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
            HISTORY: self.history.dump(),
        }

    def muted(self, alert: Alert) -> bool:
        """Return whether an active silence matches the alert."""
        return self.silence_of(alert) is not None

    def acknowledged(self, fingerprint: str) -> bool:
        """Return whether the alert is acknowledged."""
        return fingerprint in self._acks

    def acks(self) -> Mapping[str, Ack]:
        """Return the acknowledgements by fingerprint."""
        return self._acks

    def silence_of(self, alert: Alert) -> Silence | None:
        """Return the active silence that matches the alert and ends last; None without one."""
        labels, now = labels_of(alert), self.clock()
        matching = (silence for silence in self._silences.values() if silence.mutes(labels, now))
        return max(matching, key=lambda silence: silence.ends, default=None)

    def forget(self, known: Collection[str]) -> None:
        """Drop acknowledgements of alerts that no longer fire, the history of those not known, and old silences."""
        self.history.forget(known)
        long_ago = self.clock() - KEPT_S
        self._acks = {key: ack for key, ack in self._acks.items() if self.firing(key) is not None}
        self._silences = {key: silence for key, silence in self._silences.items() if silence.ends > long_ago}

    def add_undelivered(self, notification: UndeliveredNotification) -> None:
        """Add an undelivered notification and drop the oldest above `MAX_UNDELIVERED`; the caller saves."""
        self._undelivered[notification.id] = notification
        for key in list(self._undelivered)[:-MAX_UNDELIVERED]:
            del self._undelivered[key]

    async def silences(self) -> Sequence[Silence]:
        """Return all silences, the one that ends last first."""
        return sorted(self._silences.values(), key=lambda silence: silence.ends, reverse=True)

    async def silence(self, silence: Silence) -> None:
        """Add a silence. Raises ValueError when there are too many."""
        now = self.clock()
        if sum(known.state(now) != "expired" for known in self._silences.values()) >= MAX_SILENCES:
            raise ValueError(f"there are {MAX_SILENCES} silences already")

        event = Event(
            at=max(now, silence.starts),
            kind="silenced",
            by=silence.by,
            comment=silence.comment[:MAX_TEXT],
            silence=silence.id,
            until=silence.ends,
        )
        async with self._changing():
            self._silences[silence.id] = silence
            for key in sorted(self._silences, key=lambda id_: self._silences[id_].ends)[:-MAX_SILENCES]:
                del self._silences[key]
            self._note_silence(silence, event)

    async def unsilence(self, silence_id: str, by: str = "") -> bool:
        """End a silence; return False for an unknown id and for one that has ended."""
        silence, now = self._silences.get(silence_id), self.clock()
        if silence is None or silence.state(now) == "expired":
            return False
        async with self._changing():
            self._silences[silence_id] = replace(silence, ends=now, removed=True)
            self._note_silence(silence, Event(at=now, kind="unsilenced", by=by, silence=silence_id))
        return True

    def _note_silence(self, silence: Silence, event: Event) -> None:
        """Note what was done about a silence in the history of the open alerts that it matches, and of those it had."""
        matching = {alert.fingerprint for alert in self.unresolved() if silence.matches(labels_of(alert))}
        for fingerprint in matching | self.history.silenced_by(silence.id):
            self.history.record(fingerprint, event)

    async def acknowledge(self, fingerprint: str, ack: Ack) -> bool:
        """Acknowledge a firing alert; return False when none fires under that fingerprint."""
        if self._open and self.firing(fingerprint) is None:
            return False
        async with self._changing():
            self._acks[fingerprint] = ack
            event = Event(at=ack.at, kind="acknowledged", by=ack.by, comment=ack.comment[:MAX_TEXT])
            self.history.record(fingerprint, event)
        return True

    async def unacknowledge(self, fingerprint: str, by: str = "") -> bool:
        """Undo an acknowledgement; return False when there was none."""
        if fingerprint not in self._acks:
            return False
        async with self._changing():
            del self._acks[fingerprint]
            self.history.record(fingerprint, Event(at=self.clock(), kind="unacknowledged", by=by))
        return True

    async def assign(self, fingerprint: str, to: str, by: str) -> None:
        """Assign an alert to a person, "" for no one."""
        async with self._changing():
            self.history.record(fingerprint, Event(at=self.clock(), kind="assigned", by=by, to=to))

    async def note(self, fingerprint: str, text: str, by: str) -> None:
        """Keep a note with an alert. Raises ValueError where there are too many."""
        if len(self.history.notes(fingerprint)) >= MAX_NOTES:
            raise ValueError(f"this alert has {MAX_NOTES} notes already")
        async with self._changing():
            self.history.record(fingerprint, Event(at=self.clock(), kind="noted", by=by, comment=text))

    async def undelivered(self) -> Sequence[UndeliveredNotification]:
        """Return the undelivered notifications, the latest first."""
        return list(self._undelivered.values())[::-1]

    async def retry(self, notification_id: str) -> bool:
        """Send an undelivered notification and drop it; return False for an unknown id. Raises if the send fails."""
        notification = self._undelivered.get(notification_id)
        if notification is None:
            return False
        self._must_be_open()
        await self.resend(notification)
        async with self._changing():
            self._undelivered.pop(notification_id, None)
        return True

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Save the whole state after a change, so that concurrent saves may finish in any order."""
        self._must_be_open()
        yield
        self.changes += 1
        await self.state_store.save(self.states())

    def _must_be_open(self) -> None:
        if not self._open:
            raise NotLeaderError("the alert engine is starting, or another process leads; try again in a moment")


def undelivered_id(notifier: str, alert: Alert, at: float) -> str:
    """Return the id of an undelivered notification, 16 hex digits."""
    return blake2b(f"{notifier}\0{alert.fingerprint}\0{alert.state}\0{at!r}".encode(), digest_size=8).hexdigest()

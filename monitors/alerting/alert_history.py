"""What was done about each alert and what was sent about it: the latest events. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import msgspec

from gaugeway.records import Alert
from monitors.alerting.repeat_policy import Task

MAX_EVENTS = 50
"""Events kept per alert, the latest ones."""
MAX_TEXT = 500
"""Characters of a comment or an error in an event."""
MAX_NOTES, MAX_NOTE = 20, 2000
"""Notes of an alert, and characters of one. They are kept as long as the alert, whatever else happens with it."""
Kind: TypeAlias = Literal[
    "acknowledged",
    "unacknowledged",
    "silenced",
    "unsilenced",
    "rebaselined",
    "noted",
    "assigned",
    "delivered",
    "failed",
    "given_up",
    "not_sent",
]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened with an alert at Unix time `at`.

    Of a delivery (`delivered`, `failed`, `given_up`, `not_sent`): the `notifier`, what was sent (`task`), and the means
    in the message, the interval `ci` and the number of scores `n`, on the metric's own scale. Repeats, and failed
    attempts in a row, are one event, whose first of `times` was at `first`. Of a silence: its id and the time `until`
    which it lasts. A note is in `comment`; an assignment is `to` a person, "" for no one.
    """

    at: float
    kind: Kind
    by: str = ""
    comment: str = ""
    notifier: str = ""
    task: Task | None = None
    error: str = ""
    times: int = 1
    first: float | None = None
    silence: str = ""
    to: str = ""
    until: float | None = None
    mean_before: float | None = None
    mean_since: float | None = None
    ci: tuple[float, float] | None = None
    n: int = 0

    @classmethod
    def of_delivery(cls, kind: Kind, at: float, *, notifier: str, task: Task, alert: Alert, error: str = "") -> Event:
        """Build the event of a delivery, with the means that the message has."""
        return cls(
            at=at,
            kind=kind,
            notifier=notifier,
            task=task,
            error=error[:MAX_TEXT],
            mean_before=alert.mean_before,
            mean_since=alert.mean_since,
            ci=alert.ci,
            n=alert.finding.n,
        )


class AlertHistory:
    """The latest events of each alert by its fingerprint, oldest first.

    >>> history = AlertHistory()
    >>> for at in (1.0, 2.0, 4.0):
    ...     history.record("a", Event(at=at, kind="failed", notifier="mail", task="firing"))
    >>> [(event.first, event.at, event.times) for event in history.of("a")]
    [(1.0, 4.0, 3)]
    """

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}

    def of(self, fingerprint: str) -> Sequence[Event]:
        """Return the events of an alert."""
        return tuple(self._events.get(fingerprint, ()))

    def silenced_by(self, silence_id: str) -> frozenset[str]:
        """Return the alerts that were silenced by a silence."""
        return frozenset(
            key for key, events in self._events.items() if any(event.silence == silence_id for event in events)
        )

    def acknowledged_by(self, fingerprint: str) -> str:
        """Return who acknowledged an alert last; "" if no one did, or it was undone."""
        for event in reversed(self._events.get(fingerprint, ())):
            if event.kind in ("acknowledged", "unacknowledged"):
                return event.by if event.kind == "acknowledged" else ""
        return ""

    def assignee(self, fingerprint: str) -> str:
        """Return whom an alert is assigned to; "" for no one."""
        return next((event.to for event in reversed(self.of(fingerprint)) if event.kind == "assigned"), "")

    def notes(self, fingerprint: str) -> Sequence[Event]:
        """Return the notes on an alert."""
        return [event for event in self.of(fingerprint) if event.kind == "noted"]

    def record(self, fingerprint: str, event: Event) -> None:
        """Add an event, joined with earlier ones that it repeats.

        The oldest above `MAX_EVENTS` are dropped, but for notes and the latest assignment.
        """
        events = self._events.setdefault(fingerprint, [])
        earlier = _repeated(events, event)
        if earlier is not None:
            events.remove(earlier)
            first = earlier.at if earlier.first is None else earlier.first
            times = earlier.times + (event.kind != "given_up")
            event = msgspec.structs.replace(event, first=first, times=times)
        events.append(event)
        assigned = [earlier for earlier in events if earlier.kind == "assigned"][-1:]
        passing = [earlier for earlier in events if earlier.kind != "noted" and earlier not in assigned]
        for old in passing[:-MAX_EVENTS]:
            events.remove(old)

    def forget(self, kept: Collection[str]) -> None:
        """Drop the events of all alerts but those."""
        self._events = {key: events for key, events in self._events.items() if key in kept}

    def dump(self) -> bytes:
        """Return the state to save."""
        return msgspec.json.encode(self._events)

    def load(self, state: bytes) -> None:
        """Replace the events with a state from `dump`."""
        self._events = msgspec.json.decode(state, type=dict[str, list[Event]])


def _repeated(events: Sequence[Event], event: Event) -> Event | None:
    """Return the event that a new one is joined with.

    Attempts that fail in a row are joined, and replaced when the delivery is given up. Of messages that were delivered
    the first keeps its own event, because it shows what the receiver got first.
    """
    if event.task is None:
        return None
    series = [earlier for earlier in events if (earlier.notifier, earlier.task) == (event.notifier, event.task)]
    if not series:
        return None
    last = series[-1]
    if event.kind in ("failed", "given_up"):
        return last if last.kind == "failed" else None
    delivered = sum(earlier.kind == "delivered" for earlier in series)
    return last if event.kind == last.kind == "delivered" and delivered > 1 else None

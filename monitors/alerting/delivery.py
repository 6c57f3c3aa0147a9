"""Delivers alerts to the notifiers; progress is in the state store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

import msgspec

from gaugeway.records import Alert
from gaugeway.runtime.tasks import spawn
from gaugeway.settings.shared import Alerts
from gaugeway.storage.stores import StateStore
from monitors.alerting.acknowledgements import Acknowledgements, UndeliveredNotification, undelivered_id
from monitors.alerting.alert_history import Event, Kind
from monitors.alerting.notifiers import NotDeliveredError, Notifier
from monitors.alerting.notifiers.message import NAMES, labels_of, watchdog
from monitors.alerting.repeat_policy import LAST_RETRY_S, Key, Pace, Progress, Task, group_key

DELIVERY_TIMEOUT_S = 30.0
HEARTBEAT_S = 60.0
"""Between two heartbeats to a notifier: an external watchdog that waits five minutes survives some lost ones."""
GIVE_UP_S = 86_400.0
"""How long a notification is retried: a weekend's outage shorter than a day loses none."""
AT_ONCE = 4
"""Concurrent messages to one notifier."""
MAX_MESSAGES = 200
"""Messages to one notifier per round; the rest wait for the next round."""
MAX_GROUPS = 20
"""Groups with a message of their own per round; above this all are sent together."""
MAX_IN_MESSAGE = 200
"""Alerts in one message."""
_LATEST_S = 10.0
"""So long after the time of a group's first message a tick is still hurried along for it."""
_PROGRESS = "alerts/told"
_SAVE = ""
"""Key of the round that only saves; no notifier has an empty name."""
_MAX_REASON = 500  # internal bound: size of a message that we send
_log = logging.getLogger("gaugeway")

T = TypeVar("T")
Result: TypeAlias = Literal["delivered", "failed", "silenced", "dead"]
Message: TypeAlias = Sequence[tuple[Alert, Task]]
"""One call of a notifier: alerts, each with its task; several only for a notifier that takes groups."""


class DeliveryObserver:
    """Receives the results of deliveries; does nothing unless a subclass overrides it."""

    def notified(self, notifier: str, result: Result) -> None:
        """Count one alert: delivered, failed, held back by a silence, or given up ("dead")."""


@dataclass(eq=False)
class Delivery:
    """Delivers each alert's state to each notifier, at least once and independently of the others.

    Runs in the background, one round at a time per notifier, with a time limit per call. A failed call is retried in a
    later round, after 10 s, 20 s ... 15 min; after `GIVE_UP_S` it is kept as an undelivered notification. A crash
    before the progress is saved causes a resend.
    """

    notifiers: Mapping[str, Notifier]
    state_store: StateStore
    clock: Callable[[], float]
    observer: DeliveryObserver
    config: Alerts

    def __post_init__(self) -> None:
        self._paces = {name: _pace(self.config, notifier) for name, notifier in self.notifiers.items()}
        self._alerts: dict[str, Alert] = {}
        self._progress: dict[str, dict[str, Progress]] = {name: {} for name in self.notifiers}
        self._first_due: dict[tuple[str, Key], float] = {}
        self._last_heartbeat: dict[str, float] = {}
        self._unsaved = False
        self._rounds: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[tuple[str, bool], list[tuple[str, str, float]]] = {}
        self._began = self.clock()
        self.acknowledgements = Acknowledgements(
            self.state_store, self.clock, firing=self._firing, unresolved=self._unresolved, resend=self._resend
        )

    def restore(self, states: Mapping[str, bytes], alerts: Sequence[Alert]) -> None:
        """Restore the saved progress; a new notifier does not get alerts that are already resolved."""
        saved = states.get(_PROGRESS, b"{}")
        stored = msgspec.json.decode(saved, type=dict[str, dict[str, Progress]])
        over = [alert.fingerprint for alert in alerts if alert.state == "resolved"]
        for name in self.notifiers:
            earlier = {key: Progress(told="resolved", outcome="before") for key in over}
            self._progress[name] = stored.get(name, earlier)
        self._unsaved = self._progress.keys() != stored.keys()
        self.acknowledgements.restore(states)

    @property
    def is_waiting(self) -> bool:
        """Whether a group waits for more alerts before its first message."""
        late = self.clock() - _LATEST_S
        return any(late < at + self._paces[name].wait_s for (name, _), at in self._first_due.items())

    def start(self, alerts: Sequence[Alert]) -> None:
        """Start a round for every notifier with something due, unless its last round still runs."""
        self._alerts = {alert.fingerprint: alert for alert in alerts}
        self._progress = {
            name: {key: progress for key, progress in known.items() if key in self._alerts}
            for name, known in self._progress.items()
        }
        self.acknowledgements.forget(self._alerts)
        for name, notifier in self.notifiers.items():
            if self._busy(name):
                continue
            sends: list[Awaitable[None]] = []
            if notifier.route.heartbeat and self.clock() >= self._last_heartbeat.get(name, 0.0) + HEARTBEAT_S:
                self._last_heartbeat[name] = self.clock()
                sends.append(self._send_heartbeat(name))  # first, so that an alert storm does not delay it
            sends += [self._deliver(name, message) for message in self._messages(name)[:MAX_MESSAGES]]
            if sends:
                self._rounds[name] = spawn(self._round(sends, name), name=f"alert delivery to {name}", is_retried=True)
        if self._unsaved and not any(map(self._busy, [*self.notifiers, _SAVE])):
            self._rounds[_SAVE] = spawn(self._round([]), name="alert delivery", is_retried=True)

    async def aclose(self) -> None:
        """Wait for running rounds; their time limits end them."""
        if self._rounds:
            await asyncio.wait(self._rounds.values())

    def delivery_progress(self, fingerprint: str) -> Mapping[str, Progress]:
        """Return each notifier's progress with an alert."""
        return {name: known[fingerprint] for name, known in self._progress.items() if fingerprint in known}

    def baseline_reset(self, rule: str, app: str | None) -> None:
        """Note in the history of a rule's open alerts, of one app or all, that its baseline was reset."""
        for alert in self._unresolved():
            if alert.rule == rule and app in (None, alert.app):
                self.acknowledgements.history.record(alert.fingerprint, Event(at=self.clock(), kind="rebaselined"))
                self._unsaved = True

    def _busy(self, name: str) -> bool:
        return name in self._rounds and not self._rounds[name].done()

    def _firing(self, fingerprint: str) -> Alert | None:
        alert = self._alerts.get(fingerprint)
        return alert if alert is not None and alert.state == "firing" else None

    def _unresolved(self) -> Sequence[Alert]:
        return [alert for alert in self._alerts.values() if alert.state != "resolved"]

    def _messages(self, name: str) -> list[Message]:
        """Return the messages due for one notifier, with the alerts of a group together if it takes groups."""
        due = [
            (replace(alert, is_update=self._of(name, alert).lacks_cause and alert.at_alarm is not None), task)
            for alert in self._alerts.values()
            if (task := self._due(name, alert)) is not None
        ]
        if not self.notifiers[name].takes_groups:
            return [[member] for member in due]
        groups: dict[Key, list[tuple[Alert, Task]]] = {}
        messages: list[Message] = []
        for alert, task in due:
            if task == "acknowledged":
                messages.append([(alert, task)])
            else:
                groups.setdefault(self._group(name, alert), []).append((alert, task))
        progress = self._progress_by_group(name) if groups else {}
        ready = [
            members
            for key, members in groups.items()
            if any(alert.is_update for alert, _ in members) or self._ready(name, key, progress.get(key, []))
        ]
        if len(ready) > MAX_GROUPS:
            ready = [[member for members in ready for member in members]]
        messages += [part for members in ready for part in batched(members, MAX_IN_MESSAGE)]
        self._first_due = {key: at for key, at in self._first_due.items() if key[0] != name or key[1] in groups}
        return messages

    def _due(self, name: str, alert: Alert) -> Task | None:
        """Return what to send about `alert` now; record what a silence holds back and what is never sent."""
        route, now = self.notifiers[name].route, self.clock()
        if alert.state == "pending" or not route.takes(alert):
            return None
        progress = self._progress[name].setdefault(alert.fingerprint, Progress())
        acknowledged = self.acknowledgements.acknowledged(alert.fingerprint)
        if progress.acknowledged and not acknowledged:
            progress.acknowledged = False
        task = self._paces[name].task(alert, progress, now, acknowledged=acknowledged)
        if task is None:
            return None
        unheard = progress.told is None and (progress.held is not None or self.acknowledgements.muted(alert))
        if task == "resolved" and (unheard or not route.send_resolved):
            progress.settled(task, now, "unheard" if unheard else "unwanted")
            if unheard:
                self._note("not_sent", name, alert, task)
            self._unsaved = True
            return None
        if task != "acknowledged" and self.acknowledgements.muted(alert):
            if progress.held != task:
                progress.held = task
                self._unsaved = True
                self.observer.notified(name, "silenced")
            return None
        return None if progress.failing == task and now < progress.not_before else task

    def _group(self, name: str, alert: Alert) -> Key:
        return () if self._paces[name].must_repeat else group_key(labels_of(alert), self.config.group_by)

    def _progress_by_group(self, name: str) -> dict[Key, list[Progress]]:
        """Group the progress of all known alerts, due or not."""
        found: dict[Key, list[Progress]] = {}
        for fingerprint, progress in self._progress[name].items():
            found.setdefault(self._group(name, self._alerts[fingerprint]), []).append(progress)
        return found

    def _ready(self, name: str, key: Key, group: Sequence[Progress]) -> bool:
        pace = self._paces[name]
        if pace.must_repeat:
            return True
        first_due = self._first_due.setdefault((name, key), self.clock())
        return pace.ready(group, first_due, self.clock())

    async def _round(self, sends: Sequence[Awaitable[None]], name: str = _SAVE) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def send(message: Awaitable[None]) -> None:
            async with gate:
                await message

        await asyncio.gather(*map(send, sends))
        self._log_failures(name)
        if self._unsaved:
            self._unsaved = False
            try:
                await self.state_store.save(
                    {_PROGRESS: msgspec.json.encode(self._progress), **self.acknowledgements.states()}
                )
            except BaseException:
                self._unsaved = True
                raise

    async def _send(self, name: str, message: Message) -> None:
        notifier, (first, task) = self.notifiers[name], message[0]
        async with asyncio.timeout(DELIVERY_TIMEOUT_S):
            if task == "acknowledged":
                await notifier.acknowledge(first)
            elif len(message) > 1:
                await notifier.notify_all([alert for alert, _ in message])
            else:
                await notifier.notify(first)

    async def _deliver(self, name: str, message: Message) -> None:
        try:
            await self._send(name, message)
        except Exception as error:  # noqa: BLE001 - a notifier may raise anything; all of it means "not delivered"
            for alert, task in message:
                self._failed(name, alert, task, error)
        else:
            for alert, task in message:
                self.observer.notified(name, "delivered")
                progress = self._of(name, alert)
                progress.settled(task, self.clock(), "delivered")
                progress.lacks_cause = task == "firing" and alert.rule not in NAMES and alert.at_alarm is None
                self._note("delivered", name, alert, task)
        self._unsaved = True

    def _note(self, kind: Kind, name: str, alert: Alert, task: Task, error: str = "") -> None:
        event = Event.of_delivery(kind, self.clock(), notifier=name, task=task, alert=alert, error=error)
        self.acknowledgements.history.record(alert.fingerprint, event)

    def _failed(self, name: str, alert: Alert, task: Task, error: Exception) -> None:
        progress, now, pace = self._of(name, alert), self.clock(), self._paces[name]
        retry_after_s = error.retry_after_s if isinstance(error, NotDeliveredError) else 0.0
        most_s = min(LAST_RETRY_S, pace.repeat_s)
        pause = progress.failed(task, now, least_s=retry_after_s, most_s=most_s)
        self.observer.notified(name, "failed")
        what = f"{type(error).__name__}: {error}"
        given_up = now - progress.since >= GIVE_UP_S
        self._failures.setdefault((name, given_up), []).append((alert.fingerprint, what[:_MAX_REASON], pause))
        self._note("failed", name, alert, task, what)
        if not given_up:
            return
        self.observer.notified(name, "dead")
        self._note("given_up", name, alert, task, what)
        if task != "acknowledged":
            undelivered = UndeliveredNotification(
                id=undelivered_id(name, alert, now),
                notifier=name,
                alert=alert,
                error=what[:_MAX_REASON],
                attempts=progress.attempts,
                since=progress.since,
                at=now,
            )
            self.acknowledgements.add_undelivered(undelivered)
        progress.settled(task, now, "given_up")

    def _log_failures(self, name: str) -> None:
        """Log one line for all failed alerts of a round, and one for those given up."""
        if failures := self._failures.pop((name, False), None):
            fingerprint, what, pause = failures[0]
            _log.warning(
                "notifier %s rejected %d alerts, the first is %s (%s); next try in %.0f s",
                *(name, len(failures), fingerprint, what, pause),
            )
        if failures := self._failures.pop((name, True), None):
            fingerprint, what, _ = failures[0]
            _log.error(
                "notifier %s rejected %d alerts, giving up; the first is %s (%s)",
                *(name, len(failures), fingerprint, what),
            )

    def _of(self, name: str, alert: Alert) -> Progress:
        """Return the progress with an alert; a fresh, unsaved one if the alert was dropped meanwhile."""
        return self._progress[name].get(alert.fingerprint, Progress())

    async def _send_heartbeat(self, name: str) -> None:
        """Send the watchdog alert; the next heartbeat is the retry."""
        try:
            await self._send(name, [(watchdog(self._began), "firing")])
        except Exception as error:  # noqa: BLE001 - a notifier may raise anything
            _log.warning("heartbeat to notifier %s failed (%s: %s)", name, type(error).__name__, error)
            self.observer.notified(name, "failed")
        else:
            self.observer.notified(name, "delivered")

    async def _resend(self, undelivered: UndeliveredNotification) -> None:
        """Send the current state of an undelivered notification's alert. Raises NotDeliveredError."""
        name = undelivered.notifier
        if name not in self.notifiers:
            raise NotDeliveredError(f"no notifier is called {name} any more")
        alert = self._alerts.get(undelivered.alert.fingerprint, undelivered.alert)
        task: Task = "resolved" if alert.state == "resolved" else "firing"
        try:
            await self._send(name, [(alert, task)])
        except Exception as error:
            self.observer.notified(name, "failed")
            raise NotDeliveredError(f"{type(error).__name__}: {error}") from error
        self.observer.notified(name, "delivered")
        self._of(name, alert).settled(task, self.clock(), "delivered")
        self._note("delivered", name, alert, task)
        self._unsaved = True


def batched(members: Sequence[T], most: int) -> list[Sequence[T]]:
    """Split `members` into parts of at most `most`.

    >>> batched("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [members[start : start + most] for start in range(0, len(members), most)]


def _pace(config: Alerts, notifier: Notifier) -> Pace:
    pace = replace(Pace.of(config), acknowledges=notifier.takes_acknowledgements)
    if notifier.resend_s is not None:
        return replace(pace, repeat_s=notifier.resend_s, must_repeat=True)
    return pace

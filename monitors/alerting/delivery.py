"""Telling people: every notifier hears of every alert that is for it; what was told is in the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from monitors.alerting.acknowledgements import Acknowledgements, DeadLetter, letter_id
from monitors.alerting.notifiers import Acknowledging, GroupNotifier, NotDeliveredError, Notifier, Resending, Routed
from monitors.alerting.notifiers.message import labels_of, watchdog
from monitors.alerting.repeat_policy import LAST_RETRY_S, Key, Pace, Progress, Task, group_key
from monitors.config import Alerts
from monitors.records import Alert
from monitors.runtime.tasks import spawn
from monitors.storage.stores import StateStore

DELIVERY_TIMEOUT_S = 30.0
AT_ONCE = 4
"""Messages to one notifier under way at the same time."""
MAX_MESSAGES = 200
"""Messages to one notifier in a round; the others wait for the next one."""
MAX_GROUPS = 20
"""Groups that get a message of their own in a round; more are put together."""
MAX_IN_MESSAGE = 200
"""Alerts in one message."""
_TOLD = "alerts/told"
_SAVE = ""
"""The round that has nothing to tell, only to save; no notifier is called so."""
_MAX_REASON = 500
_log = logging.getLogger("gaugeway")

T = TypeVar("T")
Result: TypeAlias = Literal["delivered", "failed", "silenced", "dead"]


class Notifications(Protocol):
    """Counts what became of telling."""

    def notified(self, notifier: str, result: Result) -> None:
        """One alert was told, was not, is held back by a silence, or was given up."""


@dataclass(frozen=True, slots=True)
class _Message:
    """What goes out at once: a task, and the alerts it is about; more than one only for a notifier that takes them."""

    alerts: Sequence[Alert]
    tasks: Sequence[Task]

    @classmethod
    def of(cls, members: Sequence[tuple[Alert, Task]]) -> _Message:
        """The message about these alerts."""
        return cls([alert for alert, _ in members], [task for _, task in members])


class Delivery:
    """Tells every notifier every alert's state until it was told once; each notifier counts for itself.

    Runs in the background, one round at a time for each notifier, with a time limit for each call. A failed one is
    tried again on a later round, after 10 s, 20 s ... 15 min, and after `give_up_s` becomes a dead letter. At least
    once: a crash between telling and saving tells again. `desk` is what people say about alerts.
    """

    def __init__(
        self,
        notifiers: Mapping[str, Notifier],
        ledger: StateStore,
        clock: Callable[[], float],
        counts: Notifications,
        config: Alerts,
    ) -> None:
        self._notifiers = {name: one if isinstance(one, Routed) else Routed(one) for name, one in notifiers.items()}
        self._paces = {name: _pace(config, one.notifier) for name, one in self._notifiers.items()}
        self._counts = counts
        self._ledger = ledger
        self._clock = clock
        self._config = config
        self._alerts: dict[str, Alert] = {}
        self._progress: dict[str, dict[str, Progress]] = {name: {} for name in self._notifiers}
        self._first_due: dict[tuple[str, Key], float] = {}
        self._beaten: dict[str, float] = {}
        self._unsaved = False
        self._rounds: dict[str, asyncio.Task[None]] = {}
        self._missed: dict[tuple[str, bool], list[tuple[str, str, float]]] = {}
        self._began = clock()
        self.desk = Acknowledgements(ledger, clock, firing=self._firing, resend=self._resend)

    def restore(self, states: Mapping[str, bytes], alerts: Sequence[Alert]) -> None:
        """Continue from what was saved; a notifier that is new is not told of alerts that are over."""
        saved = states.get(_TOLD, b"{}")
        told = msgspec.json.decode(saved, type=dict[str, dict[str, Progress | Literal["firing", "resolved"]]])
        over = [alert.fingerprint for alert in alerts if alert.state == "resolved"]
        now = self._clock()
        for name in self._notifiers:
            known = {
                key: one if isinstance(one, Progress) else Progress(told=one, at=now)
                for key, one in told.get(name, {}).items()
            }
            self._progress[name] = known if name in told else {key: Progress(told="resolved") for key in over}
        self._unsaved = self._progress.keys() != told.keys()
        self.desk.restore(states)

    def start(self, alerts: Sequence[Alert]) -> None:
        """Begin a round for every notifier that has something due, unless its last one is still under way."""
        self._alerts = {alert.fingerprint: alert for alert in alerts}
        self._progress = {
            name: {key: one for key, one in known.items() if key in self._alerts}
            for name, known in self._progress.items()
        }
        self.desk.forget()
        for name, routed in self._notifiers.items():
            if self._busy(name):
                continue
            telling: list[Awaitable[None]] = []
            if routed.route.heartbeat and self._clock() >= self._beaten.get(name, 0.0) + self._config.heartbeat_s:
                self._beaten[name] = self._clock()
                telling.append(self._beat(name))  # first: a storm of alerts must not look like silence
            telling += [self._tell(name, message) for message in self._messages(name)[:MAX_MESSAGES]]
            if telling:
                self._rounds[name] = spawn(self._round(telling, name), name=f"alert delivery to {name}")
        if self._unsaved and not any(map(self._busy, [*self._notifiers, _SAVE])):
            self._rounds[_SAVE] = spawn(self._round([]), name="alert delivery")

    async def aclose(self) -> None:
        """Wait for the rounds under way, which their time limits end."""
        if self._rounds:
            await asyncio.wait(self._rounds.values())

    def delivery_progress(self, fingerprint: str) -> Mapping[str, Progress]:
        """How far each notifier is with an alert."""
        return {name: known[fingerprint] for name, known in self._progress.items() if fingerprint in known}

    def _busy(self, name: str) -> bool:
        return name in self._rounds and not self._rounds[name].done()

    def _firing(self, fingerprint: str) -> Alert | None:
        alert = self._alerts.get(fingerprint)
        return alert if alert is not None and alert.state == "firing" else None

    def _messages(self, name: str) -> list[_Message]:
        """What is due for one notifier, alerts of one group together where it takes them so."""
        due = [(alert, task) for alert in self._alerts.values() if (task := self._due(name, alert)) is not None]
        if not isinstance(self._notifiers[name].notifier, GroupNotifier):
            return [_Message([alert], [task]) for alert, task in due]
        groups: dict[Key, list[tuple[Alert, Task]]] = {}
        messages = []
        for alert, task in due:
            if task == "acknowledged":
                messages.append(_Message([alert], [task]))
            else:
                groups.setdefault(self._group(name, alert), []).append((alert, task))
        progress = self._progress_by_group(name) if groups else {}
        ready = [members for key, members in groups.items() if self._ready(name, key, progress.get(key, []))]
        if len(ready) > MAX_GROUPS:
            ready = [[member for members in ready for member in members]]
        messages += [_Message.of(part) for members in ready for part in batched(members, MAX_IN_MESSAGE)]
        self._first_due = {key: at for key, at in self._first_due.items() if key[0] != name or key[1] in groups}
        return messages

    def _due(self, name: str, alert: Alert) -> Task | None:
        """What to tell about `alert` now; notes what a silence holds back, and what needs no telling."""
        routed, now = self._notifiers[name], self._clock()
        if alert.state == "pending" or not routed.route.takes(alert):
            return None
        progress = self._progress[name].setdefault(alert.fingerprint, Progress())
        acknowledged = self.desk.acknowledged(alert.fingerprint)
        if progress.acknowledged and not acknowledged:
            progress.acknowledged = False
        task = self._paces[name].task(alert, progress, now, acknowledged=acknowledged)
        if task is None:
            return None
        unheard = progress.told is None and (progress.held is not None or self.desk.muted(alert))
        if task == "resolved" and (unheard or not routed.route.send_resolved):
            progress.done(task, now)
            self._unsaved = True
            return None
        if task != "acknowledged" and self.desk.muted(alert):
            if progress.held != task:
                progress.held = task
                self._unsaved = True
                self._counts.notified(name, "silenced")
            return None
        return None if progress.failing == task and now < progress.not_before else task

    def _group(self, name: str, alert: Alert) -> Key:
        return () if self._paces[name].must_repeat else group_key(labels_of(alert), self._config.group_by)

    def _progress_by_group(self, name: str) -> dict[Key, list[Progress]]:
        """The progress with all alerts that are known, due or not, by their groups."""
        found: dict[Key, list[Progress]] = {}
        for fingerprint, progress in self._progress[name].items():
            found.setdefault(self._group(name, self._alerts[fingerprint]), []).append(progress)
        return found

    def _ready(self, name: str, key: Key, group: Sequence[Progress]) -> bool:
        pace = self._paces[name]
        if pace.must_repeat:
            return True
        first_due = self._first_due.setdefault((name, key), self._clock())
        return pace.ready(group, first_due, self._clock())

    async def _round(self, telling: Sequence[Awaitable[None]], name: str = _SAVE) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(message: Awaitable[None]) -> None:
            async with gate:
                await message

        await asyncio.gather(*map(one, telling))
        self._log_missed(name)
        if self._unsaved:
            self._unsaved = False
            try:
                await self._ledger.save({_TOLD: msgspec.json.encode(self._progress), **self.desk.states()})
            except BaseException:
                self._unsaved = True
                raise

    async def _send(self, name: str, message: _Message) -> None:
        notifier = self._notifiers[name].notifier
        async with asyncio.timeout(DELIVERY_TIMEOUT_S):
            if message.tasks[0] == "acknowledged" and isinstance(notifier, Acknowledging):
                await notifier.acknowledge(message.alerts[0])
            elif len(message.alerts) > 1 and isinstance(notifier, GroupNotifier):
                await notifier.notify_all(message.alerts)
            else:
                await notifier.notify(message.alerts[0])

    async def _tell(self, name: str, message: _Message) -> None:
        try:
            await self._send(name, message)
        except Exception as error:  # noqa: BLE001 - whatever a notifier raises means "not delivered"
            for alert, task in zip(message.alerts, message.tasks, strict=True):
                self._not_told(name, alert, task, error)
        else:
            for alert, task in zip(message.alerts, message.tasks, strict=True):
                self._counts.notified(name, "delivered")
                self._of(name, alert).done(task, self._clock())
        self._unsaved = True

    def _not_told(self, name: str, alert: Alert, task: Task, error: Exception) -> None:
        progress, now, pace = self._of(name, alert), self._clock(), self._paces[name]
        asked = error.retry_after_s if isinstance(error, NotDeliveredError) else 0.0
        most_s = min(LAST_RETRY_S, pace.repeat_s)
        pause = progress.failed(task, now, least_s=asked, most_s=most_s)
        self._counts.notified(name, "failed")
        what = f"{type(error).__name__}: {error}"
        given_up = now - progress.since >= self._config.give_up_s
        self._missed.setdefault((name, given_up), []).append((alert.fingerprint, what[:_MAX_REASON], pause))
        if not given_up:
            return
        self._counts.notified(name, "dead")
        if task != "acknowledged":
            letter = DeadLetter(
                id=letter_id(name, alert, now),
                notifier=name,
                alert=alert,
                error=what[:_MAX_REASON],
                attempts=progress.attempts,
                since=progress.since,
                at=now,
            )
            self.desk.bury(letter)
        progress.done(task, now)

    def _log_missed(self, name: str) -> None:
        """Write one line about all alerts that were not delivered in a round, and one about those given up."""
        if missed := self._missed.pop((name, False), None):
            fingerprint, what, pause = missed[0]
            _log.warning(
                "notifier %s rejected %d alerts, the first is %s (%s); next try in %.0f s",
                *(name, len(missed), fingerprint, what, pause),
            )
        if missed := self._missed.pop((name, True), None):
            fingerprint, what, _ = missed[0]
            _log.error(
                "notifier %s rejected %d alerts, giving up; the first is %s (%s)",
                *(name, len(missed), fingerprint, what),
            )

    def _of(self, name: str, alert: Alert) -> Progress:
        """The progress with an alert; one that was forgotten meanwhile is not remembered again."""
        return self._progress[name].get(alert.fingerprint, Progress())

    async def _beat(self, name: str) -> None:
        """Tell that the engine is at work; the next beat is the next try."""
        try:
            await self._send(name, _Message([watchdog(self._began)], ["firing"]))
        except Exception as error:  # noqa: BLE001 - as with every notifier
            _log.warning("heartbeat to notifier %s failed (%s: %s)", name, type(error).__name__, error)
            self._counts.notified(name, "failed")
        else:
            self._counts.notified(name, "delivered")

    async def _resend(self, letter: DeadLetter) -> None:
        """Tell a dead letter's notifier how its alert is by now. Raises NotDeliveredError."""
        name = letter.notifier
        if name not in self._notifiers:
            raise NotDeliveredError(f"no notifier is called {name} any more")
        alert = self._alerts.get(letter.alert.fingerprint, letter.alert)
        task: Task = "resolved" if alert.state == "resolved" else "firing"
        try:
            await self._send(name, _Message([alert], [task]))
        except Exception as error:
            self._counts.notified(name, "failed")
            raise NotDeliveredError(f"{type(error).__name__}: {error}") from error
        self._counts.notified(name, "delivered")
        self._of(name, alert).done(task, self._clock())
        self._unsaved = True


def batched(members: Sequence[T], most: int) -> list[Sequence[T]]:
    """Parts of `members` with at most `most` each.

    >>> batched("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [members[start : start + most] for start in range(0, len(members), most)]


def _pace(config: Alerts, notifier: Notifier) -> Pace:
    pace = replace(Pace.of(config), acknowledges=isinstance(notifier, Acknowledging))
    if isinstance(notifier, Resending):
        return replace(pace, repeat_s=notifier.resend_s, must_repeat=True)
    return pace

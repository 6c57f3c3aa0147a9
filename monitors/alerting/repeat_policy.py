"""When notifications are due: progress per notifier and alert, repetition, grouping delays. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec import Struct

from gaugeway.records import Alert, AlertState
from gaugeway.settings.shared import Alerts

FIRST_RETRY_S, LAST_RETRY_S = 10.0, 900.0
Task: TypeAlias = Literal["firing", "resolved", "acknowledged"]
Key: TypeAlias = tuple[str, ...]
Outcome: TypeAlias = Literal["delivered", "given_up", "unheard", "unwanted", "before"]
"""How a task ended: delivered; given up after failed attempts; not sent because "firing" was never delivered, because
the notifier takes no resolved alerts, or because the alert had ended before the notifier was there."""


class Progress(Struct, kw_only=True):
    """The state of one alert's delivery to one notifier, as stored.

    `told` is the alert state that was settled at Unix time `at`, `outcome` how: only "delivered" means that the
    receiver took it. `reached_at` is when the alert was last
    delivered as firing, None if never. `held` is the task a silence holds back. A `failing` task had `attempts` since
    `since` and is not retried before `not_before`. `acknowledged`: the acknowledgement was settled;
    `acknowledgement_given_up` says that it was not delivered. `lacks_cause`: the alert was last sent before its cause
    had been looked for, so it is sent again once that is known.
    """

    told: AlertState | None = None
    at: float = 0.0
    acknowledged: bool = False
    held: Task | None = None
    failing: Task | None = None
    attempts: int = 0
    since: float = 0.0
    not_before: float = 0.0
    outcome: Outcome | None = None
    reached_at: float | None = None
    acknowledgement_given_up: bool = False
    lacks_cause: bool = False

    @property
    def never_reached(self) -> bool:
        """Whether the receiver should have heard that the alert fires, and never did."""
        return self.reached_at is None and self.outcome != "before"

    def settled(self, task: Task, now: float, outcome: Outcome) -> None:
        """Record that `task` was delivered, or that it will not be sent (again)."""
        if task == "acknowledged":
            self.acknowledged, self.acknowledgement_given_up = True, outcome != "delivered"
        else:
            self.told, self.at, self.outcome = task, now, outcome
            if task == "firing" and outcome == "delivered":
                self.reached_at = now
        self.held = self.failing = None

    def failed(self, task: Task, now: float, *, least_s: float, most_s: float) -> float:
        """Record a failed attempt; return the seconds until the next one."""
        if self.failing != task:
            self.failing, self.attempts, self.since = task, 0, now
        self.attempts += 1
        pause = max(least_s, min(most_s, FIRST_RETRY_S * 2.0 ** min(self.attempts - 1, 10)))
        self.not_before = now + pause
        return pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a notifier gets an alert: again after `repeat_s` while it fires, grouped with others.

    `must_repeat` is for receivers that drop alerts: they get repeats even of acknowledged alerts, and without delay.
    """

    repeat_s: float
    wait_s: float = 0.0
    interval_s: float = 0.0
    must_repeat: bool = False
    acknowledges: bool = False

    @classmethod
    def of(cls, config: Alerts) -> Pace:
        """Build the configured pace; by default groups wait in proportion to the length of a bucket."""
        wait_s, interval_s = config.group_wait_s, config.group_interval_s
        return cls(
            repeat_s=config.repeat_interval_s,
            wait_s=config.bucket_s / 2 if wait_s is None else wait_s,
            interval_s=5 * config.bucket_s if interval_s is None else interval_s,
        )

    def task(self, alert: Alert, progress: Progress, now: float, *, acknowledged: bool) -> Task | None:
        """Return the task that is due for `alert`, regardless of grouping and retry delays."""
        if alert.state == "pending" or progress.told == "resolved":
            return None
        if alert.state == "resolved":
            return "resolved"
        if progress.told is None:
            return "firing"
        if acknowledged and self.acknowledges and not progress.acknowledged:
            return "acknowledged"
        is_update = progress.lacks_cause and alert.at_alarm is not None
        if (is_update or now - progress.at >= self.repeat_s) and (self.must_repeat or not acknowledged):
            return "firing"
        return None

    def ready(self, group: Sequence[Progress], first_due: float, now: float) -> bool:
        """Return whether a group with something due since `first_due` may be sent; `group` has all its alerts.

        A new group waits `wait_s` for more alerts; an open group waits `interval_s` since its last message. A group
        with a failed send has waited already.
        """
        if any(progress.failing is not None for progress in group):
            return True
        if any(progress.told == "firing" for progress in group):
            return now >= max(progress.at for progress in group) + self.interval_s
        return now >= first_due + self.wait_s


def group_key(labels: Mapping[str, str], group_by: Sequence[str]) -> Key:
    """Return the label values that identify an alert's group.

    >>> group_key({"app": "shop", "rule": "answers"}, ["app", "slice"])
    ('shop', '')
    """
    return tuple(labels.get(name, "") for name in group_by)

"""What is due to be told, pure: a notifier's progress with an alert, the pace of repeating, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from monitors.config import Alerts
from monitors.records import Alert, AlertState

FIRST_RETRY_S, LAST_RETRY_S = 10.0, 900.0
Task: TypeAlias = Literal["firing", "resolved", "acknowledged"]
Key: TypeAlias = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far one notifier is with one alert, as the ledger keeps it.

    `told` is the state that was told (or given up) at Unix time `at`; `held` what a silence held back. A `failing` task
    has had `attempts` since `since` and is not tried again before `not_before`.
    """

    told: AlertState | None = None
    at: float = 0.0
    acknowledged: bool = False
    held: Task | None = None
    failing: Task | None = None
    attempts: int = 0
    since: float = 0.0
    not_before: float = 0.0

    def done(self, task: Task, now: float) -> None:
        """Note that `task` was told, or will never be."""
        if task == "acknowledged":
            self.acknowledged = True
        else:
            self.told, self.at = task, now
        self.held = self.failing = None

    def failed(self, task: Task, now: float, *, least_s: float, most_s: float) -> float:
        """Note an attempt that failed; return after how many seconds the next one may be made."""
        if self.failing != task:
            self.failing, self.attempts, self.since = task, 0, now
        self.attempts += 1
        pause = max(least_s, min(most_s, FIRST_RETRY_S * 2.0 ** min(self.attempts - 1, 10)))
        self.not_before = now + pause
        return pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a notifier is told: again after `repeat_s` while an alert fires, together in groups.

    `must_repeat` is for receivers that forget: they are told again whoever looks after the alert, and never wait.
    """

    repeat_s: float
    wait_s: float = 0.0
    interval_s: float = 0.0
    must_repeat: bool = False
    acknowledges: bool = False

    @classmethod
    def of(cls, config: Alerts) -> Pace:
        """The pace of the configuration; groups wait in proportion to the buckets, unless it says how long."""
        wait_s, interval_s = config.group_wait_s, config.group_interval_s
        return cls(
            repeat_s=config.repeat_interval_s,
            wait_s=config.bucket_s / 2 if wait_s is None else wait_s,
            interval_s=5 * config.bucket_s if interval_s is None else interval_s,
        )

    def task(self, alert: Alert, progress: Progress, now: float, *, acknowledged: bool) -> Task | None:
        """What there is to tell about `alert`, however soon."""
        if alert.state == "pending" or progress.told == "resolved":
            return None
        if alert.state == "resolved":
            return "resolved"
        if progress.told is None:
            return "firing"
        if acknowledged and self.acknowledges and not progress.acknowledged:
            return "acknowledged"
        if now - progress.at >= self.repeat_s and (self.must_repeat or not acknowledged):
            return "firing"
        return None

    def ready(self, group: Sequence[Progress], first_due: float, now: float) -> bool:
        """Whether a group with something due since `first_due` may be told; `group` has all of it, due or not.

        A new group waits for others to join; one of which something is open waits since it was last told. Who was told
        in vain has waited already.
        """
        if any(one.failing is not None for one in group):
            return True
        if any(one.told == "firing" for one in group):
            return now >= max(one.at for one in group) + self.interval_s
        return now >= first_due + self.wait_s


def group_key(labels: Mapping[str, str], group_by: Sequence[str]) -> Key:
    """The values by which alerts belong together.

    >>> group_key({"app": "shop", "rule": "answers"}, ["app", "slice"])
    ('shop', '')
    """
    return tuple(labels.get(name, "") for name in group_by)

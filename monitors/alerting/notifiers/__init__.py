"""Notifiers: who is told about an alert, and about which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, runtime_checkable

from monitors.config import BUILT_IN_NOTIFIERS as BUILT_IN
from monitors.records import Alert

__all__ = ["BUILT_IN", "Acknowledging", "GroupNotifier", "NotDeliveredError", "Notifier", "Resending", "Route"]


class NotDeliveredError(Exception):
    """The receiver did not take the alert; the text names nothing that may be a secret.

    `retry_after_s` is how long the receiver asks to be left alone, if it does.
    """

    def __init__(self, text: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Notifier(Protocol):
    """Tells somebody about an alert that began to fire or was resolved."""

    async def notify(self, alert: Alert) -> None:
        """Deliver once. Raises when it was not delivered; the caller tries again later."""


@runtime_checkable
class GroupNotifier(Protocol):
    """A notifier that can tell several alerts in one message."""

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        """Deliver all of them once, or raise."""


@runtime_checkable
class Acknowledging(Protocol):
    """A notifier whose receiver wants to know that somebody looks after an alert."""

    async def acknowledge(self, alert: Alert) -> None:
        """Deliver once that the alert, told before, was acknowledged, or raise."""


@runtime_checkable
class Resending(Protocol):
    """A notifier whose receiver forgets an alert that is not sent again every `resend_s` seconds while it fires."""

    @property
    def resend_s(self) -> float:
        """Seconds from one sending to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which alerts a notifier is told: patterns of severities and apps. What concerns all apps ("*") always passes."""

    severities: tuple[str, ...] = ("*",)
    apps: tuple[str, ...] = ("*",)
    send_resolved: bool = True
    heartbeat: bool = False

    def takes(self, alert: Alert) -> bool:
        """Whether `alert` is for this notifier.

        >>> Route().heartbeat
        False
        """
        return any(fnmatchcase(alert.severity, pattern) for pattern in self.severities) and (
            alert.app == "*" or any(fnmatchcase(alert.app, pattern) for pattern in self.apps)
        )


@dataclass(frozen=True, slots=True)
class Routed:
    """A notifier with its route."""

    notifier: Notifier
    route: Route = field(default_factory=Route)

    async def notify(self, alert: Alert) -> None:
        await self.notifier.notify(alert)

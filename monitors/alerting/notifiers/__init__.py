"""The notifier port: who receives an alert, how, and which alerts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from gaugeway.records import Alert

RUNBOOK = "http://127.0.0.1:9465/runbook"
"""Default runbook link: the page on this machine."""


class NotDeliveredError(Exception):
    """The receiver did not accept the alert. The text contains no secret.

    `retry_after_s` is the delay the receiver asked for, 0.0 if it named none.
    """

    def __init__(self, text: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Route(Struct, frozen=True, kw_only=True):
    """Which alerts a notifier gets, by patterns of severity and app. Alerts about all apps ("*") always pass."""

    severities: tuple[str, ...] = ("*",)
    apps: tuple[str, ...] = ("*",)
    send_resolved: bool = True
    heartbeat: bool = False

    def takes(self, alert: Alert) -> bool:
        """Return whether `alert` is for this notifier.

        >>> Route().heartbeat
        False
        """
        return any(fnmatchcase(alert.severity, pattern) for pattern in self.severities) and (
            alert.app == "*" or any(fnmatchcase(alert.app, pattern) for pattern in self.apps)
        )


class Links(Struct, frozen=True):
    """Where messages link to: the pages below `public_url`, if there is one, and the runbook."""

    public_url: str | None = None
    runbook_url: str = RUNBOOK

    def alert(self, alert: Alert) -> str:
        """Return the URL of the alert's page, "" without a public URL."""
        return f"{self.public_url.rstrip('/')}/alerts/{alert.fingerprint}" if self.public_url else ""

    def exchange(self, exchange_id: str) -> str:
        """Return the URL of an exchange's page, "" without a public URL."""
        return f"{self.public_url.rstrip('/')}/exchanges/{quote(exchange_id, safe='')}" if self.public_url else ""


NO_PAGE = Links()
"""Links where the page has no public URL."""


class Notifier(ABC):
    """Sends alerts to one receiver. Only `notify` is required; everything else has a default.

    The parameters of a constructor are the keys of its table in the configuration. `timeout_s` and, from the rest of
    the configuration, `public_url`, `runbook_url`, `group_by` and `heartbeat_s` are given to one that takes them. Its
    `route` and `links` are set once it is built.

    A receiver that drops an alert unless it is sent again sets `resend_s`, the seconds between two sends while the
    alert fires. One with `opens_incidents` keeps an alert open until it is resolved. `no_heartbeat` says why a receiver
    is not for the alert that always fires.
    """

    route: Route = Route()
    links: Links = NO_PAGE
    takes_groups: bool = False
    opens_incidents: bool = False
    takes_acknowledgements: bool = False
    resend_s: float | None = None
    no_heartbeat: str = ""

    @abstractmethod
    async def notify(self, alert: Alert) -> None:
        """Deliver a firing or resolved alert once. Raises if that failed; the caller retries."""

    async def notify_all(self, alerts: Sequence[Alert]) -> None:  # noqa: B027 - few take groups
        """Deliver several alerts in one message, or raise. Called only with `takes_groups`."""

    async def acknowledge(self, alert: Alert) -> None:  # noqa: B027 - few take it
        """Deliver that an alert sent before was acknowledged, or raise. Called only with `takes_acknowledgements`."""


class GroupNotifier(Notifier):
    """A notifier whose messages may be about several alerts."""

    takes_groups = True

    async def notify(self, alert: Alert) -> None:
        await self.notify_all([alert])

    @abstractmethod
    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        """Deliver alerts in one message, or raise."""


class PluginNotifier(Notifier):
    """Adapts a user's notifier, of which only `notify` is required, to the full port.

    A method `notify_all` or `acknowledge` and an attribute `resend_s` are used where the plug-in has them.
    """

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin
        self.route = Route()
        self.takes_groups = hasattr(plugin, "notify_all")
        self.takes_acknowledgements = hasattr(plugin, "acknowledge")
        self.resend_s = getattr(plugin, "resend_s", None)

    async def notify(self, alert: Alert) -> None:
        await self.plugin.notify(alert)

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        await self.plugin.notify_all(alerts)

    async def acknowledge(self, alert: Alert) -> None:
        await self.plugin.acknowledge(alert)

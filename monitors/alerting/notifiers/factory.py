"""The notifiers of `[[notifiers]]`: built from the parameters of their constructors, and tested on request."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from gaugeway.extensions import load, registered
from gaugeway.records import Alert
from gaugeway.settings import ConfigError
from gaugeway.settings.options import construct
from gaugeway.settings.shared import Notifier as Settings
from gaugeway.settings.shared import Shared
from monitors.alerting.delivery import HEARTBEAT_S
from monitors.alerting.notifiers import Links, NotDeliveredError, Notifier, PluginNotifier, Route
from monitors.alerting.notifiers.message import summary, trial

_log = logging.getLogger("gaugeway.alerts")


class LogNotifier(Notifier):
    """Writes each alert to the logger `gaugeway.alerts`: WARNING when it fires, else INFO."""

    async def notify(self, alert: Alert) -> None:
        level = logging.WARNING if alert.state == "firing" and alert.severity != "none" else logging.INFO
        worst = f" [{', '.join(alert.worst_exchanges)}]" if alert.worst_exchanges else ""
        _log.log(level, "%s %s (%s): %s%s", alert.state, alert.rule, alert.fingerprint, summary(alert), worst)


TIMEOUT_S = 10.0
"""For one delivery; a receiver that takes longer is tried again."""
LOG_NAMES = ("log-0", "log-built-in", "log-built-in-2")
"""Names of the implicit log notifier: the first one that is free."""
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - a host to be replaced, not to bind to
_EVERY_KIND = tuple(key for key in Settings.__struct_fields__ if key != "options")


def open_notifiers(config: Shared) -> dict[str, Notifier]:
    """Build the notifiers by name, each with its route. Raises ConfigError.

    Delivery state is stored under the name, `kind-index` by default. A log notifier is added where none is configured.
    """
    built: dict[str, Notifier] = {}
    problems: list[str] = []
    shared = given_of(config)
    for index, settings in enumerate(config.notifiers):
        where, name = f"notifiers[{index}]", settings.name or f"{settings.kind}-{index}"
        try:
            notifier = _build(settings, where, shared)
        except ConfigError as error:
            problems += error.problems
            continue
        if name in built:
            problems.append(f"{where}.name: another notifier has the name {name!r}")
        notifier.route = _route(settings)
        notifier.links = Links(shared["public_url"], shared["runbook_url"])
        built[name] = notifier
    if problems:
        raise ConfigError(problems)
    if not any(settings.kind == "log" for settings in config.notifiers):
        built[next(name for name in LOG_NAMES if name not in built)] = LogNotifier()
    return built


def given_of(config: Shared) -> dict[str, Any]:
    """Return what a notifier that takes it is given of the rest of the configuration."""
    return {
        "public_url": config.monitors.public_url,
        "runbook_url": runbook_url(config),
        "group_by": config.alerts.group_by,
        "heartbeat_s": HEARTBEAT_S,
        "timeout_s": TIMEOUT_S,
    }


def runbook_url(config: Shared) -> str:
    """Return the runbook link for alerts: as configured, else the page's, at its public URL or listen address."""
    return config.alerts.runbook_url or f"{page_url(config)}/runbook"


def page_url(config: Shared) -> str:
    """Return the address of the operator's page: as configured, else the one listened on."""
    monitors = config.monitors
    host = socket.gethostname() if monitors.host in WILDCARDS else monitors.host
    host = f"[{host}]" if ":" in host else host
    return (monitors.public_url or f"http://{host}:{monitors.port}").rstrip("/")


def _route(settings: Settings) -> Route:
    return Route(
        severities=settings.severities,
        apps=settings.apps,
        send_resolved=settings.send_resolved,
        heartbeat=settings.heartbeat,
    )


def _build(settings: Settings, where: str, shared: Mapping[str, Any]) -> Notifier:
    try:
        kind = load(settings.kind, registered("notifiers"), "kind")
    except ValueError as error:
        raise ConfigError([f"{where}.kind: {error}"]) from error
    notifier = construct(kind, where, settings.options, shared, near=_EVERY_KIND)
    if settings.heartbeat and (why := getattr(kind, "no_heartbeat", "")):
        raise ConfigError([f"{where}.heartbeat: not for {settings.kind}: {why}"])
    if not callable(getattr(notifier, "notify", None)):
        raise ConfigError([f"{where}.kind: {settings.kind!r} has no method notify"])
    return notifier if isinstance(notifier, Notifier) else PluginNotifier(notifier)


PAUSE_S = 30.0
"""Between two tests of one notifier."""
TEST_TIMEOUT_S = 30.0
_ERROR_CHARACTERS = 500


class TooSoonError(Exception):
    """The notifier was tested a moment ago; the next test may be sent in `wait_s` seconds."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"tested a moment ago: the next test may be sent in {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class Tested(Struct, frozen=True, kw_only=True):
    """The result of the last test of a notifier: when (Unix seconds), and the error, "" if it was delivered."""

    at: float
    error: str = ""


class NotifierTests:
    """Sends test notifications, whatever severities and apps a notifier is for. The results are kept in memory."""

    def __init__(self, notifiers: Mapping[str, Notifier], clock: Callable[[], float]) -> None:
        self._notifiers = notifiers
        self._clock = clock
        self._results: dict[str, Tested] = {}
        self._started: dict[str, float] = {}

    def routes(self) -> Mapping[str, Route]:
        """Return the notifiers in use, with what they are for."""
        return {name: notifier.route for name, notifier in self._notifiers.items()}

    def results(self) -> Mapping[str, Tested]:
        """Return the last result of each notifier that was tested since this process started."""
        return self._results

    async def send(self, name: str) -> Tested:
        """Send a test notification, and its end to a receiver that opens incidents; return the result.

        Raises KeyError for an unknown notifier, TooSoonError within `PAUSE_S` of the last test.
        """
        notifier, now = self._notifiers[name], self._clock()
        wait_s = self._started.get(name, -math.inf) + PAUSE_S - now
        if wait_s > 0.0:
            raise TooSoonError(wait_s)
        self._started[name] = now
        self._results[name] = found = Tested(at=now, error=await _failure(notifier, now))
        return found


async def _failure(notifier: Notifier, now: float) -> str:
    """Send, and return what failed, in words."""
    firing, resolved = trial(now)
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await notifier.notify(firing)
            if notifier.opens_incidents:
                await notifier.notify(resolved)
    except NotDeliveredError as error:
        return str(error)[:_ERROR_CHARACTERS]  # has no secret
    except TimeoutError:
        return f"no answer within {TEST_TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001 - a notifier may raise anything; all of it means "not delivered"
        return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]
    return ""

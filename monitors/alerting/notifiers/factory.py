"""Builds the notifiers of `[[notifiers]]`; a kind's own keys are the parameters of its constructor."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from gaugeway.extensions import load, registered
from gaugeway.settings import ConfigError
from gaugeway.settings.options import construct
from gaugeway.settings.shared import Notifier as Settings
from gaugeway.settings.shared import Shared
from monitors.alerting.delivery import HEARTBEAT_S
from monitors.alerting.notifiers import Notifier, PluginNotifier, Route
from monitors.alerting.notifiers.log import LogNotifier

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

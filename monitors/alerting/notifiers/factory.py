"""Builds the notifiers of `[[notifiers]]`; the keys of a kind are the parameters of its constructor."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Mapping
from typing import Any

import msgspec

from gaugeway.extensions import load, reason
from gaugeway.settings import ConfigError
from gaugeway.settings.endpoints import host_problem
from gaugeway.settings.options import placed
from gaugeway.settings.shared import OF_EVERY_NOTIFIER, Shared
from gaugeway.settings.shared import Notifier as Settings
from monitors.alerting import notifiers
from monitors.alerting.notifiers import Notifier, PluginNotifier, Route

_MAY_BE_EMPTY = "password"
LOG_NAMES = ("log-0", "log-built-in", "log-built-in-2")
"""Names of the implicit log notifier: the first one that is free."""
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - a host to be replaced, not to bind to
_NO_HEARTBEAT = {
    "slack": "every heartbeat would be a message",
    "teams": "every heartbeat would be a message",
    "pagerduty": "it would be an incident that never ends",
    "email": "every heartbeat would be an email",
}
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def open_notifiers(config: Shared) -> dict[str, Notifier]:
    """Build the notifiers by name, each with its route. Raises ConfigError.

    Delivery state is stored under the name, `kind-index` by default. A log notifier is added where none is configured.
    """
    built: dict[str, Notifier] = {}
    problems: list[str] = []
    shared = {
        "public_url": config.monitors.public_url,
        "runbook_url": runbook_url(config),
        "group_by": config.alerts.group_by,
        "heartbeat_s": config.alerts.heartbeat_s,
    }
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
        built[next(name for name in LOG_NAMES if name not in built)] = load("log", notifiers.BUILT_IN)()
    return built


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
        kind = load(settings.kind, notifiers.BUILT_IN, "kind")
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError([f"{where}.kind: {error}"]) from error
    built_in = settings.kind in notifiers.BUILT_IN
    required = f'required for kind = "{settings.kind}"' if built_in else "required"
    given = {
        key: value
        for key, value in msgspec.structs.asdict(settings).items()
        if key not in OF_EVERY_NOTIFIER | {"options"} and value is not None
    }
    problems = _key_problems(settings, where, given, parameters)
    defaults = {**shared, "timeout_s": settings.timeout_s}
    arguments = {key: value for key, value in defaults.items() if key in parameters} | given | settings.options
    missing = [
        f"{where}.{key}: {required}"
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in _VARIADIC and key not in arguments
    ] + _empty(given, where, parameters)
    if missing:
        raise ConfigError(problems + missing)
    try:
        notifier = kind(**{key: value for key, value in arguments.items() if _takes(parameters, key)})
    except Exception as error:
        raise ConfigError(problems + placed(where, reason(error), parameters)) from error
    if problems:
        raise ConfigError(problems)
    if not callable(getattr(notifier, "notify", None)):
        raise ConfigError([f"{where}.kind: {settings.kind!r} has no method notify"])
    return notifier if built_in else PluginNotifier(notifier)


def _empty(given: Mapping[str, Any], where: str, parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Report empty strings; only a password may be empty."""
    empty = [key for key, value in given.items() if value == "" and key in parameters and key != _MAY_BE_EMPTY]
    return [f"{where}.{key}: missing: it is empty" for key in empty]


def _takes(parameters: Mapping[str, inspect.Parameter], key: str) -> bool:
    return key in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _key_problems(
    settings: Settings, where: str, given: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> list[str]:
    """Report keys the kind does not take; a constructor with **kwargs takes every key."""
    problems = []
    built_in = settings.kind in notifiers.BUILT_IN
    if built_in and settings.options:
        problems.append(f"{where}.options: only custom notifiers take options")
    if settings.heartbeat and settings.kind in _NO_HEARTBEAT:
        problems.append(f"{where}.heartbeat: not for {settings.kind}: {_NO_HEARTBEAT[settings.kind]}")
    if built_in and settings.host is not None and (problem := host_problem(settings.host)) is not None:
        problems += [] if settings.host == "" else [f"{where}.host: {problem}"]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return problems
    what = settings.kind if built_in else "this"
    known = ", ".join(sorted(key for key in parameters if key in Settings.__struct_fields__)) or "none of these"
    problems += [
        f"{where}.{key}: a {what} notifier does not take it; it takes: {known}"
        for key in given
        if key not in parameters
    ]
    if not built_in:
        taken = ", ".join(sorted(parameters)) or "nothing"
        problems += [
            f"{where}.options.{key}: unknown key; it takes: {taken}"
            for key in settings.options
            if key not in parameters
        ]
    return problems

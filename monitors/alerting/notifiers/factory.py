"""From `[[notifiers]]` to notifiers: which keys a kind takes is what its constructor says."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Mapping
from typing import Any

import msgspec

from monitors.alerting import notifiers
from monitors.alerting.notifiers import Notifier, Route, Routed
from monitors.config import OF_EVERY_NOTIFIER, Shared
from monitors.config import Notifier as Settings
from monitors.runtime.endpoints import host_problem
from monitors.runtime.options import placed
from monitors.runtime.plugins import load, reason
from monitors.runtime.settings import ConfigError

_MAY_BE_EMPTY = "password"
LOG_NAMES = ("log-0", "log-built-in", "log-built-in-2")
"""Names of the log where no notifier is one: the first that is free."""
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - a host to be replaced, not to bind to
_NO_HEARTBEAT = {
    "slack": "every beat would be a message",
    "pagerduty": "it would be an incident without end",
    "email": "every beat would be a mail",
}
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def open_notifiers(config: Shared) -> dict[str, Notifier]:
    """Build the notifiers, each with its route; names tell them apart across restarts. Raises ConfigError.

    One without a `name` is called by its kind and place. Alerts always go to the log, too.
    """
    built: dict[str, Notifier] = {}
    problems: list[str] = []
    ours = {
        "public_url": config.monitors.public_url,
        "runbook_url": runbook_url(config),
        "group_by": config.alerts.group_by,
        "heartbeat_s": config.alerts.heartbeat_s,
    }
    for index, settings in enumerate(config.notifiers):
        where, name = f"notifiers[{index}]", settings.name or f"{settings.kind}-{index}"
        try:
            notifier = _build(settings, where, ours)
        except ConfigError as error:
            problems += error.problems
            continue
        if name in built:
            problems.append(f"{where}.name: two notifiers are called {name!r}")
        built[name] = Routed(notifier, _route(settings))
    if problems:
        raise ConfigError(problems)
    if not any(settings.kind == "log" for settings in config.notifiers):
        built[next(name for name in LOG_NAMES if name not in built)] = load("log", notifiers.BUILT_IN)()
    return built


def runbook_url(config: Shared) -> str:
    """Where alerts say that the runbook is: as configured, or the page, at its public URL or its own address."""
    if config.alerts.runbook_url:
        return config.alerts.runbook_url
    monitors = config.monitors
    host = socket.gethostname() if monitors.host in WILDCARDS else monitors.host
    host = f"[{host}]" if ":" in host else host
    return f"{(monitors.public_url or f'http://{host}:{monitors.port}').rstrip('/')}/runbook"


def _route(settings: Settings) -> Route:
    return Route(
        severities=settings.severities,
        apps=settings.apps,
        send_resolved=settings.send_resolved,
        heartbeat=settings.heartbeat,
    )


def _build(settings: Settings, where: str, ours: Mapping[str, Any]) -> Notifier:
    try:
        kind = load(settings.kind, notifiers.BUILT_IN)
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError([f"{where}.kind: {error}"]) from error
    what = settings.kind if settings.kind in notifiers.BUILT_IN else "this"
    given = {
        key: value
        for key, value in msgspec.structs.asdict(settings).items()
        if key not in OF_EVERY_NOTIFIER | {"options"} and value is not None
    }
    problems = _key_problems(settings, where, given, parameters)
    of_ours = {**ours, "timeout_s": settings.timeout_s}
    arguments = {key: value for key, value in of_ours.items() if key in parameters} | given | settings.options
    missing = [
        f"{where}.{key}: a {what} notifier needs it"
        for key, one in parameters.items()
        if one.default is one.empty and one.kind not in _VARIADIC and key not in arguments
    ] + _empty(given, where, parameters)
    if missing:
        raise ConfigError(problems + missing)
    try:
        notifier: Notifier = kind(**{key: value for key, value in arguments.items() if _takes(parameters, key)})
    except Exception as error:
        raise ConfigError(problems + placed(where, reason(error), parameters)) from error
    if problems:
        raise ConfigError(problems)
    if not callable(getattr(notifier, "notify", None)):
        raise ConfigError([f"{where}.kind: {settings.kind!r} has no method notify"])
    return notifier


def _empty(given: Mapping[str, Any], where: str, parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Name the texts that are given and empty; only a password may be."""
    empty = [key for key, value in given.items() if value == "" and key in parameters and key != _MAY_BE_EMPTY]
    return [f"{where}.{key}: missing: it is empty" for key in empty]


def _takes(parameters: Mapping[str, inspect.Parameter], key: str) -> bool:
    return key in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _key_problems(
    settings: Settings, where: str, given: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> list[str]:
    """Say which keys the kind does not take; one that takes any keywords takes them all."""
    problems = []
    built_in = settings.kind in notifiers.BUILT_IN
    if built_in and settings.options:
        problems.append(f"{where}.options: only a notifier of one's own has them")
    if settings.heartbeat and settings.kind in _NO_HEARTBEAT:
        problems.append(f"{where}.heartbeat: not for {settings.kind}: {_NO_HEARTBEAT[settings.kind]}")
    if built_in and settings.host is not None and (problem := host_problem(settings.host)) is not None:
        problems += [] if settings.host == "" else [f"{where}.host: {problem}"]
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return problems
    known = ", ".join(sorted(key for key in parameters if key in Settings.__struct_fields__)) or "none of these"
    what = settings.kind if built_in else "this"
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

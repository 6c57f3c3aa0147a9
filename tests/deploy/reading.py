"""What is under `deploy/` as data, and what the product knows of the names used there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from gateway.config import Config, load
from gaugeway.settings.loading import load as load_monitors
from monitors import app
from tests.support.commands import commands

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
PLANES = ("serve", "gateway", "monitors")
DEFAULTS = Config()
PORTS = {DEFAULTS.gateway.port, DEFAULTS.gateway.admin_port, DEFAULTS.monitors.port}
PROBES = {
    DEFAULTS.gateway.port: {"/healthz", "/readyz"},
    DEFAULTS.gateway.admin_port: set(),
    DEFAULTS.monitors.port: {"/healthz"},
}
HAND_OVER_S, MONITORS_S = 5, 15
"""What the manual says of stopping: the gateway's hand-off, and the samples that the monitors hold."""
VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)(?:(:[-?])([^}]*))?\}")


def configurations() -> list[Path]:
    """Every shipped `gaugeway.toml`."""
    return sorted(DEPLOY.rglob("gaugeway.toml"))


def named_in(text: str) -> set[str]:
    """The environment variables that a text asks for."""
    return {match[1] for match in VARIABLE.finditer(text)}


def uncommented(path: Path) -> str:
    """A configuration without its comments."""
    return re.sub(r"^\s*#.*$", "", path.read_text("utf-8"), flags=re.MULTILINE)


def read_by_both_planes(path: Path) -> Config:
    """The configuration as `gaugeway check` and both planes read it. Raises ConfigError."""
    load_monitors(path)
    config = load(path)
    app.check(config)
    return config


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """What a command line gives its command; nothing is run. Raises click.ClickException for what is not there."""
    command = commands()[arguments[0]]
    return command.make_context(arguments[0], list(arguments[1:])).params


def environment_variables() -> set[str]:
    """The variables that `serve`, `gateway` and `monitors` read."""
    options = [option for name in PLANES for option in commands()[name].params]
    return {option.envvar for option in options if isinstance(option, click.Option) and isinstance(option.envvar, str)}


def interpolated(value: Any, environment: Mapping[str, str]) -> Any:
    """Compose's `${NAME}`, `${NAME:-default}`, `${NAME:?message}`. Raises KeyError with the message."""
    if isinstance(value, dict):
        return {key: interpolated(one, environment) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolated(one, environment) for one in value]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        given = environment.get(match[1], "")
        if not given and match[2] == ":?":
            raise KeyError(f"{match[1]}: {match[3]}")
        return given or (match[3] if match[2] == ":-" else "")

    return VARIABLE.sub(replaced, value)


def documents(path: Path) -> list[dict[str, Any]]:
    """Every YAML document of a file."""
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one is not None]


def strings(value: Any) -> Iterator[str]:
    """Every string in nested data."""
    if isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value

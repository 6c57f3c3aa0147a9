"""`gaugeway dashboards DIR`: writes the Grafana, Prometheus and Alertmanager files."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from gaugeway.cli.shared import config_option, fail
from gaugeway.settings import ConfigError, Problems, read_into
from gaugeway.settings.endpoints import address_problem

FOLDERS = ("grafana", "prometheus", "alertmanager")
_ALERT = re.compile(r" *(?:- alert|(?:- )?alertname): (\w+)")
_ANNOTATIONS = re.compile(r"( *)(?:exp_)?annotations:")
_EXAMPLE = "https://quality.example.com/runbooks"


def shipped(runbooks: str | None = None) -> dict[str, bytes]:
    """Path below DIR -> content of every file; alerts get a `runbook_url` below the URL `runbooks`, if there is one."""
    found: dict[str, bytes] = {}
    for name in FOLDERS:
        _collect(files("dashboards") / name, name, found)
    if runbooks is None:
        return found
    return {
        name: _linked(content, runbooks) if name.startswith("prometheus/") else content
        for name, content in found.items()
    }


def _linked(content: bytes, runbooks: str) -> bytes:
    """Return Prometheus' rules, or the tests of them, with a `runbook_url` among the annotations of every alert."""
    lines, alert = [], ""
    for line in content.decode().splitlines(keepends=True):
        lines.append(line)
        if named := _ALERT.match(line):
            alert = named[1]
        elif annotations := _ANNOTATIONS.match(line):
            url = json.dumps(f"{runbooks.rstrip('/')}/{alert}.md")
            lines.append(f"{annotations[1]}  runbook_url: {url}\n")
    return "".join(lines).encode()


def runbooks_of(config: Path | None) -> str | None:
    """Return the URL of the runbooks on the page, None if `monitors.public_url` is not set. Raises ConfigError."""
    monitors = read_into(config, Problems()).get("monitors")
    url = monitors.get("public_url") if isinstance(monitors, dict) else None
    if not isinstance(url, str):
        return None
    if (problem := address_problem(url, _EXAMPLE)) is not None:
        raise ConfigError([f"monitors.public_url: {problem}"])
    return f"{url.rstrip('/')}/runbooks"


def write(directory: Path, *, runbooks: str | None = None, force: bool = False) -> list[Path]:
    """Write the files below `directory`; returns the paths written, without unchanged ones.

    Raises FileExistsError and writes nothing if an existing file differs, unless `force`.
    """
    wanted = {directory / name: content for name, content in shipped(runbooks).items()}
    changed = {path: content for path, content in wanted.items() if not _same(path, content)}
    if (taken := sorted(str(path) for path in changed if path.exists())) and not force:
        raise FileExistsError(f"existing files differ: {', '.join(taken)}")
    for path, content in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return sorted(changed)


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@config_option()
@click.option("--runbooks", metavar="URL", help="Where the runbooks are. [/runbooks below monitors.public_url]")
@click.option("--force", is_flag=True, help="Overwrite existing files that differ from the shipped ones.")
def dashboards(directory: Path, config: Path | None, runbooks: str | None, force: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Write the Grafana dashboards, Prometheus rules and Alertmanager routes to DIR."""
    if runbooks is not None and (problem := address_problem(runbooks, _EXAMPLE)) is not None:
        raise click.BadParameter(problem, param_hint="--runbooks")
    try:
        runbooks = runbooks or runbooks_of(config)
        written = write(directory, runbooks=runbooks, force=force)
    except ConfigError as error:
        fail(error)
    except FileExistsError as error:
        fail(f"{error}; nothing was written (--force overwrites them)")
    if runbooks is None:
        click.echo("gaugeway: alerts get no runbook_url: set monitors.public_url, or give --runbooks URL", err=True)
    for path in written:
        click.echo(path)


def _collect(here: Traversable, name: str, found: dict[str, bytes]) -> None:
    for item in sorted(here.iterdir(), key=lambda entry: entry.name):
        path = f"{name}/{item.name}"
        if item.is_dir():
            _collect(item, path, found)
        else:
            found[path] = item.read_bytes()


def _same(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content

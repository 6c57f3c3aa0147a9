"""`gaugeway dashboards DIR`: writes the Grafana, Prometheus and Alertmanager files."""

from __future__ import annotations

import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

_BAD_INPUT = 2
FOLDERS = ("grafana", "prometheus", "alertmanager")


def shipped() -> dict[str, bytes]:
    """Path below DIR -> content of every file."""
    found: dict[str, bytes] = {}
    for name in FOLDERS:
        _collect(files("dashboards") / name, name, found)
    return found


def write(directory: Path, *, force: bool = False) -> list[Path]:
    """Write the files below `directory`; returns the paths written, without unchanged ones.

    Raises FileExistsError and writes nothing if an existing file differs, unless `force`.
    """
    changed = {directory / name: content for name, content in shipped().items() if not _same(directory / name, content)}
    taken = sorted(str(path) for path in changed if path.exists())
    if taken and not force:
        raise FileExistsError(f"existing files differ: {', '.join(taken)}")
    for path, content in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return sorted(changed)


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite existing files that differ from the shipped ones.")
def dashboards(directory: Path, force: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Write the Grafana dashboards, Prometheus rules and Alertmanager routes to DIR."""
    try:
        written = write(directory, force=force)
    except FileExistsError as error:
        click.echo(f"gaugeway: {error}; nothing was written (--force overwrites them)", err=True)
        sys.exit(_BAD_INPUT)
    for path in written:
        click.echo(path)


def _collect(here: Traversable, name: str, found: dict[str, bytes]) -> None:
    for one in sorted(here.iterdir(), key=lambda entry: entry.name):
        path = f"{name}/{one.name}"
        if one.is_dir():
            _collect(one, path, found)
        else:
            found[path] = one.read_bytes()


def _same(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content

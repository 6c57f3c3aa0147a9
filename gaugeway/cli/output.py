"""What commands print: the problem they end with, tables and times; and the audit record of a change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

from gaugeway.runtime import audit
from gaugeway.settings import ConfigError
from gaugeway.settings.placeholders import concealed

BAD_INPUT = 2


def fail(problem: Exception | str, code: int = BAD_INPUT) -> NoReturn:
    """Print a problem, or those of a ConfigError, one line each, and exit with `code`."""
    for line in problem.problems if isinstance(problem, ConfigError) else [str(problem)]:
        click.echo(f"gaugeway: {concealed(line)}", err=True)
    sys.exit(code)


def print_table(rows: Sequence[Sequence[str]], otherwise: str) -> None:
    """Print rows in columns; `otherwise` where there is none below the heading."""
    if len(rows) == 1:
        click.echo(otherwise)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def utc(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def record(data_dir: Path, action: str, **about: str) -> None:
    """Write an audit record to the data directory on this machine; where that is not possible, print why."""
    try:
        log = audit.open_file(data_dir)
    except OSError as error:
        click.echo(f"gaugeway: not in the audit log: {error}", err=True)
        return
    audit.tell(action, by=audit.whoami(), **about)
    audit.close_file(log)

"""`gaugeway forget`: deletes the data of one person from all queues, stores and caches."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from gaugeway.cli import shared
from gaugeway.settings.loading import load, queue_url, store_url
from gaugeway.settings.shared import Config
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.erase import Subject
from gaugeway.storage.queues import MAX_ATTEMPTS
from gaugeway.storage.queues import from_url as open_queue
from gaugeway.storage.stores import from_url as open_store
from gaugeway.storage.templates import meant, open_templates
from gaugeway.storage.trials import open_trials
from monitors.analysis.datasets import open_datasets

_NOT_ALL = 1
_BUSY_S = 5.0
_ANSWERS, _SPILL = "judge-answers.db", "spill.db"
_FILES = ("queue.db", _SPILL, "store.db", "templates.db", "datasets.db", "trials.db", _ANSWERS)


@click.command()
@click.option("--app", help="Only data of this app. [all]")
@click.option("--session", help="Data of this session, exactly as stored.")
@click.option("--match", help="Data containing this text: an address, a name, a number.")
@click.option("--dry-run", is_flag=True, help="Count without deleting.")
@shared.stored_options
def forget(config: Path | None, data_dir: Path, dry_run: bool, **whose: str | None) -> None:  # noqa: FBT001 - click passes options by name
    """Delete the data of one person: samples, scores, feedback, prompts, data sets, trials, the queue, judge answers.

    Prints the number of rows, never their content. Exit codes: 0 success, 1 incomplete, 2 bad input.
    """
    with shared.reported_errors():
        subject = Subject(**whose)
        counts = asyncio.run(_forget(load(config), data_dir.absolute(), subject, dry_run=dry_run))
        files = [] if dry_run else [data_dir / name for name in _FILES if (data_dir / name).exists()]
        locked = [file.name for file in files if not _truncate_log(file)]
    for kind, count in counts.items():
        click.echo(f"{kind}: {count}")
    click.echo("nothing was deleted (--dry-run)" if dry_run else "deleted")
    for name in locked:
        click.echo(f"gaugeway: the write-ahead log of {name} could not be searched or cleaned; see the guide", err=True)
    if locked:
        sys.exit(_NOT_ALL)


async def _forget(config: Config, data_dir: Path, subject: Subject, *, dry_run: bool) -> Mapping[str, int]:
    """Search the queues first: otherwise a queued sample could reach the store after it was searched."""
    counts: Counter[str] = Counter()
    lease = config.queue.lease_s, MAX_ATTEMPTS
    spill = open_queue(f"sqlite:///{data_dir / _SPILL}", *lease)
    queue = open_queue(queue_url(config, data_dir), *lease)
    store = open_store(store_url(config, data_dir))
    embedded = ((spill, None, _SPILL), (queue, config.queue.url, "queue.db"), (store, config.store.url, "store.db"))
    for place, url, file in embedded:
        if url is None and not (data_dir / file).exists():
            continue
        async with contextlib.aclosing(place):
            counts.update(await place.forget(subject, dry_run=dry_run))
    if learned := await _templates(store_url(config, data_dir), subject, dry_run=dry_run):
        counts["templates"] = learned
    async with contextlib.aclosing(open_datasets(store_url(config, data_dir))) as datasets:
        if rows := await datasets.forget(subject, dry_run=dry_run):
            counts["data set rows"] = rows
    with contextlib.suppress(ValueError):  # an engine without trials
        async with contextlib.aclosing(open_trials(store_url(config, data_dir))) as trials:
            if waiting := await trials.forget(subject, dry_run=dry_run):
                counts["trial requests"] = waiting
    if (answers := data_dir / _ANSWERS).exists():
        counts["judge answers"] = _answers(answers, dry_run=dry_run)
    if not counts:
        raise ValueError(f"{data_dir}: nothing was captured here; see --data-dir and --config")
    return counts


async def _templates(url: str, subject: Subject, *, dry_run: bool) -> int:
    """Delete templates learned from the app or containing the text; running gateways drop them at the next sync."""
    async with contextlib.aclosing(open_templates(url)) as templates:
        if (found := meant(await templates.templates(), subject)) and not dry_run:
            await templates.drop_templates([(template.app, template.version) for template in found], learned_only=False)
    return len(found)


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file without its adapter. Raises EngineError."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise EngineError(f"{path}: {error}") from error


def _answers(path: Path, *, dry_run: bool) -> int:
    """Empty the cache of judge answers: they contain quotes that cannot be attributed to a person."""
    with _connected(path) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        ((count,),) = connection.execute("SELECT count(*) FROM answers").fetchall()
        if not dry_run:
            connection.execute("DELETE FROM answers")
    return int(count)


def _truncate_log(path: Path) -> bool:
    """Checkpoint and truncate the write-ahead log; return False if another connection prevented it."""
    with _connected(path) as connection:
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not busy

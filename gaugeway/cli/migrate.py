"""`gaugeway migrate` creates or upgrades tables; `gaugeway move` copies data between engines."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click

from gaugeway.cli.shared import reported_errors, stored_options
from gaugeway.settings import ConfigError
from gaugeway.settings import loading as configuration
from gaugeway.storage import queues, stores
from gaugeway.storage.copy import Moved, move_queue, move_store
from gaugeway.storage.documents import Changes, Collection
from gaugeway.storage.engine import Port, adapter
from gaugeway.storage.engines.sqlite.connection import path_from_url
from gaugeway.storage.templates import TEMPLATES
from monitors.analysis.datasets import DATASETS

_REPORT_EVERY_S = 5.0
_LEASE_S = 60.0
_NO_LIMIT = 1_000_000


@click.command()
@stored_options
def migrate(config: Path | None, data_dir: Path) -> None:
    """Create or upgrade the PostgreSQL tables of `[queue]`, `[store]`, `[keys]` and `[limits]`, and a ClickHouse store.

    SQLite files are upgraded when they are opened.
    """
    with reported_errors():
        loaded = configuration.load(config)
        shared = [str(table.get("url")) for table in (loaded.keys, loaded.limits)]
        urls = [configuration.queue_url(loaded, data_dir), configuration.store_url(loaded, data_dir), *shared]
        databases = [url for url in dict.fromkeys(urls) if url.startswith(("postgresql://", "postgres://"))]
        columnar = [url for url in urls if url.startswith(("clickhouse://", "clickhouses://"))]
        if not databases and not columnar:
            click.echo("nothing to do: SQLite files are upgraded when they are opened")
        for url in databases:
            click.echo(asyncio.run(_migrated(url)))
        for url in columnar:
            click.echo(asyncio.run(_migrated_columnar(url)))


@click.command()
@click.option("--from", "source", required=True, help="URL: sqlite:///path or postgresql://user:password@host/database")
@click.option("--to", "target", required=True, help="URL of the other engine.")
@click.option("--queue", is_flag=True, help="Move a queue instead of a store.")
def move(source: str, target: str, queue: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Copy a store to another engine, or move a queue's samples. If interrupted, run the same command to continue."""
    with reported_errors():
        if source == target:
            raise ConfigError(["--from and --to are the same"])
        _check_scheme("--from", source, queue=queue)
        _check_scheme("--to", target, queue=queue)
        _must_exist(source)
        begin = time.monotonic()
        moved = asyncio.run(_queue(source, target) if queue else _store(source, target))
        _print_summary(moved, time.monotonic() - begin)
        for collection, words in ((TEMPLATES, "learned prompts"), (DATASETS, "rows and versions of data sets")):
            if not queue and (copied := asyncio.run(_documents(source, target, collection))):
                click.echo(f"{copied} {words}")
    if moved.refused:
        raise SystemExit(1)


def _check_scheme(option: str, url: str, *, queue: bool) -> None:
    try:
        adapter(url, "queue" if queue else "store")
    except ValueError as error:
        raise ConfigError([f"{option}: {error}"]) from error


def _must_exist(url: str) -> None:
    if url.startswith("sqlite:") and not path_from_url(url).exists():
        raise ConfigError([f"--from: {path_from_url(url)} does not exist"])


async def _migrated(url: str) -> str:
    from gaugeway.storage.engines.postgres.connection import Database  # noqa: PLC0415 - only with the extra
    from gaugeway.storage.engines.postgres.migrate import migrate as apply  # noqa: PLC0415 - only with the extra

    async with contextlib.aclosing(Database(url, migrates=False)) as database, database.connection() as connection:
        before, after = await apply(connection)
    return _report(database.name, before, after)


async def _migrated_columnar(url: str) -> str:
    store: Any = stores.from_url(url)
    async with contextlib.aclosing(store):
        before, after = await store.database.migrate()
    return _report(store.database.address.name, before, after)


def _report(name: str, before: int, after: int) -> str:
    return f"{name}: " + (f"version {before} -> {after}" if before != after else f"version {after} already")


async def _store(source: str, target: str) -> Moved:
    old, new = stores.from_url(source), stores.from_url(target)
    async with contextlib.aclosing(old), contextlib.aclosing(new):
        return await move_store(old, new, origin=source.rpartition("@")[2], progress=_progress())


async def _documents(source: str, target: str, collection: Collection) -> int:
    """Copy the learned templates or the data sets; return how many records."""
    opened = [adapter(url, cast("Port", collection.name)).from_url(url) for url in (source, target)]
    async with contextlib.aclosing(opened[0]) as old, contextlib.aclosing(opened[1]) as new:
        _, rows = await old.changed(collection, None)
        if rows:
            await new.update(collection, lambda _: Changes(put=rows))
    return len(rows)


async def _queue(source: str, target: str) -> Moved:
    old, new = (queues.from_url(url, _LEASE_S, _NO_LIMIT) for url in (source, target))
    async with contextlib.aclosing(old), contextlib.aclosing(new):
        moved = await move_queue(old, new, progress=_progress())
        left = await old.depth()
    if left.leased or left.dead:
        click.echo(f"left behind: {left.leased} in progress, {left.dead} dead letters", err=True)
    return moved


def _progress() -> Callable[[Moved], None]:
    last = [time.monotonic()]

    def report(moved: Moved) -> None:
        if time.monotonic() - last[0] >= _REPORT_EVERY_S:
            last[0] = time.monotonic()
            click.echo(f"{moved.samples} samples, {moved.supplements} supplements so far", err=True)

    return report


def _print_summary(moved: Moved, seconds: float) -> None:
    click.echo(
        f"{moved.samples} samples, {moved.evaluations} evaluations, {moved.supplements} supplements, "
        f"{moved.states} states in {seconds:.1f} s, verified"
    )
    if moved.unreadable:
        click.echo(f"{moved.unreadable} unreadable rows were left behind", err=True)
    if moved.refused:
        click.echo(f"{moved.refused} samples were rejected by the target", err=True)

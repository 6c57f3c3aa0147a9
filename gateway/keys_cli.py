"""`gaugeway keys`: make, list and revoke the gateway's own keys."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from gateway.keys import Quota, VirtualKey, parse_expiry
from gateway.keystore import FILE, KeyStore
from gateway.limits import DAY_S
from gateway.prices import Spending

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_BAD_INPUT = 2
_POSITIVE = click.FloatRange(min=0, min_open=True)


def _data_dir(function: F) -> F:
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="GAUGEWAY_DATA_DIR",
        default=Path("gaugeway-data"),
        show_default=True,
        help="Where keys.db lives.",
    )(function)


@click.group()
def keys() -> None:
    """Make, list and revoke the gateway's own keys. They are asked for with `[keys] enabled = true`."""


@keys.command()
@click.option("--app", required=True, help="The app that requests with this key are counted for.")
@click.option("--models", default="*", show_default=True, help="Patterns of the models it may use: 'gpt-*,o3'.")
@click.option("--expires", help="30d, 12h, or an ISO date or time (UTC). [never]")
@click.option("--requests-per-min", type=_POSITIVE, help="[no limit]")
@click.option("--tokens-per-min", type=_POSITIVE, help="[no limit]")
@click.option("--usd-per-day", type=_POSITIVE, help="Needs [prices]. [no limit]")
@_data_dir
def create(app: str, models: str, expires: str | None, data_dir: Path, **quota: float | None) -> None:
    """Make a key and print it: once, on standard output. Only its hash is kept."""
    now = time.time()
    patterns = tuple(pattern for one in models.split(",") if (pattern := one.strip()))
    if not app.strip() or not app.isprintable():
        _fail("--app: expected a name")
    if not patterns:
        _fail("--models: expected at least one pattern")
    try:
        expires_at = parse_expiry(expires, now) if expires is not None else None
    except ValueError as error:
        _fail(f"--expires: {error}")
    created = _with_store(
        data_dir,
        lambda store: store.create(
            app=app.strip(), now=now, models=patterns, expires_at=expires_at, quota=Quota(**quota)
        ),
    )
    end = _time(expires_at) if expires_at is not None else "never"
    click.echo(f"{created.key.id} for app {created.key.app}, expires {end}. The key is shown only now:", err=True)
    click.echo(created.secret)


@keys.command("list")
@_data_dir
def list_keys(data_dir: Path) -> None:
    """List all keys with what they allow, their state, and what was spent with them today (UTC)."""
    if not (data_dir / FILE).exists():
        click.echo("no keys")
        return
    now = time.time()
    today = int(now // DAY_S)

    async def read(store: KeyStore) -> tuple[list[VirtualKey], Spending]:
        return await store.keys(), await store.spend({}, today)

    found, spent = _with_store(data_dir, read)
    rows: list[tuple[str, ...]] = [
        ("ID", "APP", "STATE", "MODELS", "CREATED", "EXPIRES", "REQ/MIN", "TOK/MIN", "USD/DAY", "USD TODAY")
    ]
    rows += [_row(key, spent.get((today, f"key:{key.id}"), 0.0), now) for key in found]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows if found else []:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not found:
        click.echo("no keys")


@keys.command()
@click.argument("key_id", metavar="ID")
@_data_dir
def revoke(key_id: str, data_dir: Path) -> None:
    """End a key for good. Running gateways refuse it within a few seconds ([keys] refresh_s)."""
    if key_id.startswith("gw-"):
        _fail("expected the key's ID (key_...), not the key itself; see 'gaugeway keys list'")
    known = (data_dir / FILE).exists() and _with_store(data_dir, lambda store: store.revoke(key_id, time.time()))
    if not known:
        _fail(f"no key has the ID {key_id!r}; see 'gaugeway keys list'")
    click.echo(f"{key_id} is revoked")


def _with_store(data_dir: Path, use: Callable[[KeyStore], Awaitable[T]]) -> T:
    async def run() -> T:
        store = KeyStore(data_dir / FILE)
        try:
            return await use(store)
        finally:
            await store.aclose()

    try:
        return asyncio.run(run())
    except (sqlite3.Error, OSError, ValueError) as error:
        _fail(f"{data_dir / FILE}: {error}")


def _row(key: VirtualKey, spent: float, now: float) -> tuple[str, ...]:
    quota = (key.quota.requests_per_min, key.quota.tokens_per_min, key.quota.usd_per_day)
    return (
        key.id,
        key.app,
        key.state(now),
        ",".join(key.models),
        _time(key.created_at),
        _time(key.expires_at) if key.expires_at is not None else "-",
        *("-" if limit is None else f"{limit:g}" for limit in quota),
        f"{spent:.4f}",
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _fail(message: str) -> NoReturn:
    click.echo(f"gaugeway: {message}", err=True)
    sys.exit(_BAD_INPUT)

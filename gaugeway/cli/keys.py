"""`gaugeway keys`: create, list and revoke virtual keys."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from gateway.access.gate import DAY_S
from gateway.access.keys import is_pattern, parse_expiry
from gaugeway.cli import shared
from gaugeway.settings import ConfigError
from gaugeway.settings.loading import load
from gaugeway.storage.documents import Spending
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.documents import KEYS_FILE
from gaugeway.storage.keys import Keys, Quota, VirtualKey, open_keys

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_POSITIVE = shared.NumberRange(min=0, min_open=True)


class Place(NamedTuple):
    """Where keys are stored: a database (`url`), or a file in the data directory, which also holds the audit log.

    `lacks_prices`: a configuration file was read, and it has no [prices] table.
    """

    url: str | None
    data_dir: Path
    lacks_prices: bool

    def is_empty(self) -> bool:
        """Whether there can be no keys yet; reading must not create the file."""
        return self.url is None and not (self.data_dir / KEYS_FILE).exists()


def _places(more: str = "") -> Callable[[F], F]:
    """Add the options that locate the key store, and pass it as `place`; `more` is what else `--config` is for."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def placed(*, config: Path | None, data_dir: Path, **options: Any) -> Any:
            try:
                loaded = load(config)
            except ConfigError as error:
                shared.fail(error)
            url = loaded.keys.get("url")
            lacks_prices = config is not None and not loaded.prices
            place = Place(url if isinstance(url, str) else None, data_dir, lacks_prices=lacks_prices)
            return function(place=place, **options)

        add = shared.with_options(
            shared.config_option(f"gaugeway.toml; its [keys] url locates the key store{more}."),
            shared.directory_option("Directory of the audit log, and of keys.db unless [keys] url names a database."),
        )
        return add(placed)  # type: ignore[return-value]  # click leaves the function's own type

    return decorate


@click.group()
def keys() -> None:
    """Create, list and revoke virtual keys. Requests need one with `[keys] enabled = true`."""


@keys.command()
@click.option("--app", required=True, help="App to which requests with this key are attributed.")
@click.option("--models", default="*", help="Patterns of allowed models, such as 'gpt-*,o3'.")
@click.option("--expires", help="30d, 12h, or an ISO date or time (UTC). [never]")
@click.option("--requests-per-min", type=_POSITIVE, help="[no limit]")
@click.option("--tokens-per-min", type=_POSITIVE, help="[no limit]")
@click.option("--usd-per-day", type=_POSITIVE, help="Needs [prices]. [no limit]")
@_places(", and --usd-per-day needs its [prices]")
def create(app: str, models: str, expires: str | None, place: Place, **quota: float | None) -> None:
    """Create a key and print it to standard output. It is shown only once; only its hash is stored."""
    now = time.time()
    patterns = tuple(pattern for model in models.split(",") if (pattern := model.strip()))
    if not app.strip() or not app.isprintable():
        shared.fail("--app: expected a name")
    if not patterns:
        shared.fail("--models: expected at least one pattern")
    if wrong := [invalid for invalid in patterns if not is_pattern(invalid)]:
        shared.fail(f"--models: invalid pattern {wrong[0]!r}: '[' needs a closing ']'")
    try:
        expires_at = parse_expiry(expires, now) if expires is not None else None
    except ValueError as error:
        shared.fail(f"--expires: {error}")
    created = _with_store(
        place,
        lambda store: store.create(
            app=app.strip(), now=now, models=patterns, expires_at=expires_at, quota=Quota(**quota)
        ),
    )
    shared.record(place.data_dir, "key_create", key=created.key.id, app=created.key.app)
    end = f"expires {shared.utc(expires_at)}" if expires_at is not None else "no expiry"
    click.echo(f"created {created.key.id} for app {created.key.app} ({end}). Shown only once:", err=True)
    if quota["usd_per_day"] is not None and place.lacks_prices:
        click.echo("gaugeway: warning: --usd-per-day has no effect: the configuration has no [prices]", err=True)
    click.echo(created.secret)


@keys.command("list")
@_places()
def list_keys(place: Place) -> None:
    """List all keys with their limits, state and spending of today (UTC)."""
    _check_directory(place)
    if place.is_empty():
        click.echo("no keys")
        return
    now = time.time()
    today = int(now // DAY_S)

    async def read(store: Keys) -> tuple[list[VirtualKey], Spending]:
        return await store.keys(), await store.spend({}, today)

    found, spent = _with_store(place, read)
    rows: list[tuple[str, ...]] = [
        ("ID", "APP", "STATE", "MODELS", "CREATED", "EXPIRES", "REQ/MIN", "TOK/MIN", "USD/DAY", "USD TODAY")
    ]
    rows += [_row(key, spent.get((today, f"key:{key.id}"), 0.0), now) for key in found]
    shared.print_table(rows, "no keys")


@keys.command()
@click.argument("key_id", metavar="ID")
@_places()
def revoke(key_id: str, place: Place) -> None:
    """Revoke a key permanently. Running gateways reject it within a few seconds."""
    if key_id.startswith("gw-"):
        shared.fail("expected the key's ID (key_...), not the key itself; see 'gaugeway keys list'")
    _check_directory(place)
    known = not place.is_empty() and _with_store(place, lambda store: store.revoke(key_id, time.time()))
    if not known:
        shared.fail(f"no key has the ID {key_id!r}; see 'gaugeway keys list'")
    shared.record(place.data_dir, "key_revoke", key=key_id)
    click.echo(f"{key_id} is revoked")


def _check_directory(place: Place) -> None:
    if place.url is None and not place.data_dir.is_dir():
        shared.fail(f"--data-dir: there is no directory {place.data_dir}")


def _with_store(place: Place, use: Callable[[Keys], Awaitable[T]]) -> T:
    try:
        return shared.run_on(open_keys(place.url, place.data_dir), use)
    except (EngineError, ValueError) as error:
        shared.fail(str(error) if place.url else f"{place.data_dir / KEYS_FILE}: {error}")


def _row(key: VirtualKey, spent: float, now: float) -> tuple[str, ...]:
    quota = (key.quota.requests_per_min, key.quota.tokens_per_min, key.quota.usd_per_day)
    return (
        key.id,
        key.app,
        key.state(now),
        ",".join(key.models),
        shared.utc(key.created_at),
        shared.utc(key.expires_at) if key.expires_at is not None else "-",
        *("-" if limit is None else f"{limit:g}" for limit in quota),
        f"{spent:.4f}",
    )

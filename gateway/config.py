"""The whole configuration: the gateway's tables beside those it shares with the evaluation plane."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.contexts import BUILT_IN as EXTRACTORS
from gateway.contexts import DEFAULT_ORDER
from gateway.target import Target
from monitors import settings
from monitors.config import Count, Port, Positive, Rate, Shared, Table, gather_options
from monitors.importer import load as load_object

MEBIBYTE = 1024 * 1024
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Gateway(Table, frozen=True):
    """`[gateway]`: the traffic port and the gateway's admin port. Times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: Port = 8080
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    admin_host: str = "127.0.0.1"
    admin_port: Port = 9464
    admin_token: str | None = None
    max_body_bytes: Count = 100 * MEBIBYTE
    upstream_client: Literal["native", "httpx"] = "native"
    max_upload_bytes: Count = 1024 * MEBIBYTE
    connect_timeout_s: Positive = 5.0
    first_byte_timeout_s: Positive | None = None
    read_timeout_s: Positive = 600.0
    total_timeout_s: Positive | None = None
    drain_s: Positive = 30.0


class Upstream(Table, frozen=True):
    """`[[upstreams]]`: the provider behind the gateway. Without `api_key` the client's own Authorization passes."""

    base_url: str
    name: str = "default"
    api_key: str | None = None


class Capture(Table, frozen=True):
    """`[capture]`: what is sampled and how much of it is held."""

    rate: Rate = 1.0
    salt: str = "gaugeway"
    max_content_bytes: Count = 4 * MEBIBYTE
    extractors: tuple[str, ...] = DEFAULT_ORDER
    buffer_exchanges: Count = 10_000
    buffer_bytes: Count = 256 * MEBIBYTE
    retention_days: Positive = 30.0


class Config(Shared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`gaugeway.toml`, whole."""

    gateway: Gateway = Gateway()
    upstreams: tuple[Upstream, ...] = ()
    capture: Capture = Capture()


def load(path: Path | None, overrides: dict[str, dict[str, Any]] | None = None, upstream: str | None = None) -> Config:
    """Read the file, lay the command line's options over it, check the whole. Raises ConfigError.

    `overrides` maps table -> key -> value (None: not given); `upstream` replaces `[[upstreams]]`.
    """
    raw = settings.read(path)
    for table, values in (overrides or {}).items():
        given = {key: value for key, value in values.items() if value is not None}
        raw[table] = {**raw.get(table, {}), **given}
    if upstream is not None:
        raw["upstreams"] = [{"base_url": upstream}]
    config = settings.convert(gather_options(raw), Config)
    problems = list(_problems(config))
    if problems:
        raise settings.ConfigError(problems)
    return config


def _problems(config: Config) -> list[str]:
    """Say what a type alone cannot: values that do not go together."""
    problems = []
    if len(config.upstreams) != 1:
        what = "none is given" if not config.upstreams else "routing between several is not available in this version"
        problems.append(f"upstreams: exactly one upstream is needed (--upstream URL or [[upstreams]]); {what}")
    for index, upstream in enumerate(config.upstreams):
        try:
            Target.parse(upstream.base_url)
        except ValueError as error:
            problems.append(f"upstreams[{index}].base_url: {error}")
    for index, name in enumerate(config.capture.extractors):
        try:
            load_object(name, EXTRACTORS)
        except ValueError as error:
            problems.append(f"capture.extractors[{index}]: {error}")
    for where, host, token in (
        ("gateway.admin_host", config.gateway.admin_host, config.gateway.admin_token),
        ("monitors.host", config.monitors.host, config.monitors.token),
    ):
        if host not in LOOPBACK and not token:
            key = "gateway.admin_token" if where.startswith("gateway") else "monitors.token"
            problems.append(f"{where}: binding to {host} needs a token ({key})")
    return problems

"""The running configuration as rows of key, value and source, without its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dashboards.web.addresses import without_secrets
from gaugeway.settings.loading import is_secret
from gaugeway.settings.shared import Config

SECRET = re.compile(
    r"(^|[._])(\w*key|\w*keys|\w*token|password|\w*secret|salt|\w*headers|\w*proxy|channel|sender|recipients|username)"
    r"(\[\d+\])?(\.|$)"
)
"""A name within a key whose value is never shown; numbers are (limits of tokens, for instance)."""
_RECEIVERS = re.compile(r"^(notifiers|sinks)\[")
_SHOWN_OF_RECEIVERS = frozenset(
    ("kind", "name", "severities", "apps", "send_resolved", "heartbeat", "timeout_s", "metrics", "content", "port")
)
"""What is shown of a receiver: its URL is often its only secret."""
SET = "set (not shown)"
DEFAULT, ENVIRONMENT = "default", "environment"
_MISSING = object()
_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One key of the configuration."""

    key: str
    value: str
    source: str


def rows_of(config: Config, origins: Mapping[str, str]) -> list[Row]:
    """The configuration key by key; `origins` are `config_sources.sources_of`.

    What is not in `origins` and differs from the default came from an environment variable of a standard name.
    """
    rows = []
    for key, value, default in _leaves(config, "", _MISSING):
        source = origins.get(key)
        if source is None:
            unset = default is not _MISSING and value == default
            source = DEFAULT if unset or value is None or value in ((), {}, "") else ENVIRONMENT
        rows.append(Row(key=key, value=shown(key, value, source), source=source))
    return sorted(rows, key=lambda row: (row.key.partition(".")[0].partition("[")[0], row.key))


def shown(key: str, value: Any, source: str = "") -> str:
    """A value as text; secrets, and whatever was filled in from the environment or a file, only as "set".

    >>> shown("judge.api_key", "sk-1"), shown("judge.timeout_s", 60.0), shown("store.url", "postgresql://a:b@db/q")
    ('set (not shown)', '60', 'postgresql://db/q')
    """
    if value is None or value in ((), [], {}, "") or is_secret(source):
        return SET if is_secret(source) else "none"
    if isinstance(value, bool | int | float):
        return f"{value:g}" if isinstance(value, float) else str(value).lower()
    name = key.rpartition(".")[2]
    if SECRET.search(key) or (_RECEIVERS.search(key) and name not in _SHOWN_OF_RECEIVERS):
        return SET
    if isinstance(value, list | tuple):
        return _cut(", ".join(shown(key, item) for item in value))
    text = str(value)
    return _cut(without_secrets(text) if "://" in text or "@" in text else text)


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]} …"


def _leaves(value: Any, key: str, default: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            known = getattr(default, field.name, _MISSING) if isinstance(default, type(value)) else _default(field)
            below = getattr(value, field.name)
            if field.name == "options" and getattr(value, "takes_options", False):
                for name, item in below.items():
                    yield from _leaves(item, f"{key}.{name}", _MISSING)
            else:
                yield from _leaves(below, f"{key}.{field.name}".lstrip("."), known)
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}".lstrip("."), _MISSING)
    elif isinstance(value, list | tuple) and any(isinstance(item, dict | msgspec.Struct) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}[{index}]", _MISSING)
    else:
        yield key, value, default


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return _MISSING if field.default is msgspec.NODEFAULT else field.default

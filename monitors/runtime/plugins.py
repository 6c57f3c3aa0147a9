"""The whole plug-in system: a short name of ours, an import string `package.module:Name`, or a URL's scheme."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from traceback import extract_tb
from typing import Any

EXTRAS = {
    "aiosmtplib": "email",
    "asyncpg": "postgres",
    "clickhouse_connect": "clickhouse",
    "fastembed": "local",
    "opentelemetry.exporter": "otlp",
    "opentelemetry.proto": "otlp",
    "pyarrow": "datasets",
    "redis": "redis",
}
"""Module -> extra."""


def load(name: str, built_in: Mapping[str, str]) -> Any:
    """Return the object that `name` stands for: a key of `built_in` (short name -> import string) or an import string.

    Raises ValueError that says what is wrong and which short names exist.
    """
    target = built_in.get(name, name)
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        raise ValueError(
            f"{name!r} is neither one of {', '.join(sorted(built_in))} nor of the form 'package.module:Name'"
        )
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{name!r}: {missing(error)}") from error
    except Exception as error:
        raise ValueError(f"{name!r}: importing it failed: {reason(error)}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise ValueError(f"{name!r}: module {module_name!r} has no {attribute!r}") from error


def reason(error: Exception) -> str:
    """Say why something could not be built: in the words of a TypeError or ValueError, else where it was raised.

    The words of any other exception are not shown: code that is not ours may put an option's value into them.
    """
    if isinstance(error, (TypeError, ValueError)):
        return str(error)
    last = extract_tb(error.__traceback__)[-1:]
    return " at ".join([type(error).__name__, *(f"{one.filename}:{one.lineno}" for one in last)])


def adapter(url: str, built_in: Mapping[str, str], what: str) -> Any:
    """Return the adapter for the scheme of `url`: `what` it is, is for people. Only that adapter is imported.

    Raises ValueError, which quotes no more than the scheme, for one that is not among `built_in`.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in built_in:
        known = ", ".join(f"{name}://" for name in sorted(built_in))
        raise ValueError(f"no {what} for URLs that start with {scheme if separator else ''!r}; known: {known}")
    return load(scheme, built_in)


def extra_of(module: str | None) -> str | None:
    """Return the extra that brings a module, None for one that no extra has.

    >>> extra_of("redis.asyncio"), extra_of("opentelemetry.exporter.otlp.proto.http"), extra_of("redistribute")
    ('redis', 'otlp', None)
    """
    return next((extra for name, extra in EXTRAS.items() if f"{module}.".startswith(f"{name}.")), None)


def missing(error: ImportError) -> str:
    """Return what to do about a module that could not be found.

    >>> missing(ModuleNotFoundError(name="asyncpg"))
    "needs the extra `postgres` (pip install 'gaugeway[postgres]')"
    """
    extra = extra_of(error.name)
    return f"no module named {error.name!r}" if extra is None else f"needs the extra `{extra}` ({install(extra)})"


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'gaugeway[{extra}]'"

"""Plug-in loader: by short name, by import string `package.module:Name`, or by an entry point."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from traceback import extract_tb
from typing import Any

from gaugeway.data_files import table

EXTRAS: Mapping[str, str] = table("gaugeway.extensions", "extras.toml")
"""Module -> extra."""


@cache
def registered(kind: str) -> Mapping[str, str]:
    """Return the extensions of a kind ("metrics", "engines", ...): short name -> import string.

    They are the entry points `gaugeway.<kind>` of the installed packages; the product's own are registered the same
    way. Raises ValueError when two packages register one name.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 25 ms; most commands load no extension

    found: dict[str, tuple[str, str]] = {}
    for point in entry_points(group=f"gaugeway.{kind}"):
        package = point.dist.name if point.dist else ""
        target, owner = found.setdefault(point.name, (point.value, package))
        if target != point.value:
            raise ValueError(f"the packages {owner!r} and {package!r} both register {point.name!r} as gaugeway.{kind}")
    return {name: target for name, (target, _) in found.items()}


def load(name: str, built_in: Mapping[str, str], what: str = "name") -> Any:
    """Return the object called `name`: a key of `built_in` (short name -> import string) or an import string.

    Raises ValueError, which lists the short names, when there is none; `what` names its kind in errors.
    """
    module_name, colon, attribute = built_in.get(name, name).partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        choices = f"use one of {', '.join(sorted(built_in))} or" if built_in else "use the form"
        raise ValueError(f"unknown {what} {name!r}; {choices} 'package.module:Name'")
    if "" not in sys.path:
        sys.path.append("")  # the working directory, last: it must not hide an installed module
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
    """Return why building a plug-in failed: the message of a TypeError or ValueError, else where it was raised.

    The message of any other exception is left out: foreign code may put an option's value (a secret) into it.
    """
    if isinstance(error, (TypeError, ValueError)):
        return str(error)
    last = extract_tb(error.__traceback__)[-1:]
    return " at ".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in last)])


def extra_of(module: str | None) -> str | None:
    """Return the extra that installs a module, or None.

    >>> extra_of("redis.asyncio"), extra_of("opentelemetry.exporter.otlp.proto.http"), extra_of("redistribute")
    ('redis', 'otlp', None)
    """
    return next((extra for name, extra in EXTRAS.items() if f"{module}.".startswith(f"{name}.")), None)


def missing(error: ImportError) -> str:
    """Return how to install a missing module.

    >>> missing(ModuleNotFoundError(name="asyncpg"))
    "needs the extra `postgres` (pip install 'gaugeway[postgres]')"
    """
    extra = extra_of(error.name)
    return f"no module named {error.name!r}" if extra is None else f"needs the extra `{extra}` ({install(extra)})"


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'gaugeway[{extra}]'"


def moved(old: str, new: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that moved from `old` to `new`."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(import_module(new), name)
        warnings.warn(f"{old} moved: import {name} from {new}", DeprecationWarning, stacklevel=2)
        return value

    return find

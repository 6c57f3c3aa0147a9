"""Checks the configured options of a plug-in against its constructor."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_type_hints

import msgspec

from gaugeway.extensions import load
from gaugeway.settings import explained


def keys_of_kind(kind: Any, built_in: Mapping[str, str], keys: Iterable[str], always: Collection[str]) -> list[str]:
    """Return those of a table's `keys` that a built-in `kind` takes: `always`, and what its constructor names.

    All of them for any other kind, and for one that cannot be imported here.
    """
    keys = list(keys)
    try:
        parameters = inspect.signature(load(kind, built_in)).parameters if kind in built_in else None
    except (TypeError, ValueError):
        return keys
    return keys if parameters is None else [key for key in keys if key in always or key in parameters]


def fitting(
    factory: Callable[..., Any], options: Mapping[str, Any], known: Collection[str], *, near: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options of the right types, and for each of the others what is wrong with it.

    `known` are the parameters of `factory` that an option may set; `near` are other keys that may have been meant.
    """
    parameters = inspect.signature(factory).parameters
    anything = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    hints = _hints(factory)
    good: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for key, value in options.items():
        if key not in known and not (anything and key not in parameters):
            wrong[key] = f"unknown option{hint(key, [*known, *near])}"
            continue
        try:
            good[key] = msgspec.convert(value, hints.get(key, Any))
        except msgspec.ValidationError as error:
            where, problem = explained(error, hints[key])
            wrong[key] = f"{problem} - at `${where}`" if where else problem
        except TypeError:  # a type msgspec does not know: the plug-in sees the value as it was written
            good[key] = value
    return good, wrong


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about a name that is not known: the nearest that is, or all.

    >>> hint("treshold", ["rate", "threshold"]), hint("x", ["rate", "rate"]), hint("x", [])
    ("; did you mean 'threshold'?", '; known: rate', '; there are none')
    """
    known = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(known)}" if known else "; there are none"


def placed(where: str, said: str, keys: Collection[str]) -> list[str]:
    r"""Return what a constructor said as lines of the configuration.

    Some name the key, maybe with an index, before a colon; those may have several lines.

    >>> placed("sinks[0]", "urls[1]: cannot be read\nport: 0", ["urls", "port"])
    ['sinks[0].urls[1]: cannot be read', 'sinks[0].port: 0']
    >>> placed("sinks[0]", "a: b", ["url"])
    ['sinks[0]: a: b']
    """
    lines = said.splitlines()
    if lines and all(":" in line and line.partition(":")[0].partition("[")[0] in keys for line in lines):
        return [f"{where}.{line}" for line in lines]
    return [f"{where}: {said}"]


def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(factory.__init__ if inspect.isclass(factory) else factory, include_extras=True)
    except NameError:  # annotated with something imported for type checkers only
        return {}

"""Checks the configured options of an extension against its constructor, and calls it."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_origin, get_type_hints

import msgspec

from gaugeway.extensions import reason
from gaugeway.settings import ConfigError, explained

VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
MAY_BE_EMPTY = "password"


def option_types(factory: Callable[..., Any], given: Collection[str] = ()) -> dict[str, Any]:
    """Return the options that the constructor of an extension takes, with their types.

    They are its parameters, without those that are `given` to every extension of its kind, and without functions.
    """
    hints = _hints(factory)
    return {
        key: hints.get(key, Any)
        for key, parameter in inspect.signature(factory).parameters.items()
        if key not in given and parameter.kind not in VARIADIC and get_origin(hints.get(key)) is not Callable
    }


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
            where, problem = explained(error, hints[key], quotes=False)  # an option may be a secret
            wrong[key] = f"{problem} - at `${where}`" if where else problem
        except TypeError:  # a type msgspec does not know: the plug-in sees the value as it was written
            good[key] = value
    return good, wrong


def construct(
    kind: Callable[..., Any], where: str, options: Mapping[str, Any], given: Mapping[str, Any], *, near: Iterable[str]
) -> Any:
    """Call the constructor of an extension with its options, and with what it takes of `given`.

    `options` are the keys of its table, at `where` in the configuration, or those of a table `options` in it; `near`
    are the table's other keys. Raises ConfigError with everything that is wrong.
    """
    try:
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError([f"{where}.kind: {error}"]) from error
    known = option_types(kind, given)
    nested = options["options"] if isinstance(options.get("options"), dict) else {}
    own = {key: value for key, value in options.items() if value is not nested} | nested
    good, wrong = fitting(kind, own, known, near=near)
    wrong |= {key: "missing: it is empty" for key in good if good[key] == "" and key != MAY_BE_EMPTY}
    required = [key for key in known if parameters[key].default is inspect.Parameter.empty]
    wrong |= {key: "required" for key in required if key not in own}
    problems = [f"{where}.{'options.' if key in nested else ''}{key}: {problem}" for key, problem in wrong.items()]
    if wrong.keys().isdisjoint(required):
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        taken = {key: value for key, value in given.items() if takes_any or key in parameters}
        try:
            made = kind(**taken, **good)
        except Exception as error:  # noqa: BLE001 - an extension raises anything
            problems += placed(where, reason(error), parameters)
    if problems:
        raise ConfigError(problems)
    return made


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about a name that is not known: the nearest that is, or all.

    >>> hint("treshold", ["rate", "threshold"]), hint("x", ["rate", "rate"]), hint("x", [])
    ("; did you mean 'threshold'?", '; known: rate', '; there are none')
    """
    known = list(dict.fromkeys(known))
    if near := difflib.get_close_matches(name, known, n=1):
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

"""Reading `gaugeway.toml`: `${ENV_VAR}` and `${file:/path}` in strings, unknown keys as errors.

Every error has its key and a way out.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_VARIABLE = re.compile(r"\$\{(?:file:([^{}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")
_NO_WORD = re.compile(r"Invalid enum value (?!'[a-z_]{1,16}'\Z).*", re.DOTALL)
"""A mistyped word is worth showing; anything else in its place may be a key."""
_LONGEST_SECRET = 65_536
_ONE_LINE = re.compile(
    r"(?:.*_)?(?:key|token|password|username|urls?|proxy|endpoint|host|version|channel|sender|recipients|headers)"
)
"""The names of what becomes a header or an address."""
_IN_HEADER = re.compile(r"api_key|(?:.*_)?headers")
_METRICS_IN_FILES = "PROMETHEUS_MULTIPROC_DIR"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class ConfigError(Exception):
    """The configuration cannot be used; `problems` has one line for each thing to mend."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read(path: Path | None) -> dict[str, Any]:
    """Read a TOML file (none: an empty configuration) and fill in `${NAME}` and `${file:/path}`.

    The first stands for an environment variable, the second for a file's text without the line break at its end. What
    is filled in is not looked through again. Raises ConfigError when the file cannot be read, is no TOML, or names a
    variable that is not set or a file that cannot be read; no message holds what was filled in.
    """
    if path is None:
        return {}
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except ValueError as error:  # a number of thousands of digits is no TOMLDecodeError
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    except RecursionError:
        raise ConfigError([f"{path}: nested too deeply"]) from None
    problems: list[str] = []
    try:
        expanded = _expand(raw, "", os.environ, problems)  # noqa: TID251 - the configuration's one look at it
    except RecursionError:
        raise ConfigError([f"{path}: nested too deeply"]) from None
    if problems:
        raise ConfigError(problems)
    return dict(expanded)


def overlay(raw: Mapping[str, Any], table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `raw` with these values laid over one of its tables; what is no table stays, for `convert` to complain."""
    below = raw.get(table, {})
    return {**raw, table: {**below, **values} if isinstance(below, dict) else below}


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment for a child, with `extra` laid over it.

    Without what makes prometheus_client count in memory-mapped files: on a full disk those end the process (SIGBUS).
    """
    kept = {name: value for name, value in os.environ.items() if name.upper() != _METRICS_IN_FILES}  # noqa: TID251 - passed on
    return {**kept, **extra}


def _expand(value: Any, key: str, environment: Mapping[str, str], problems: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: _expand(item, f"{key}.{name}".lstrip("."), environment, problems) for name, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, f"{key}[{index}]", environment, problems) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        if match[1] is not None:
            return _secret(Path(match[1]), key, problems)
        if match[2] not in environment:
            problems.append(f"{key}: the environment variable {match[2]} is not set")
        return environment.get(match[2], "")

    return _VARIABLE.sub(variable, value)


def _secret(path: Path, key: str, problems: list[str]) -> str:
    """Read a file as secret stores mount them; a relative path could mean another file in another directory."""
    text = problem = ""
    try:
        if path.is_absolute():
            with path.open(encoding="utf-8") as file:
                text = file.read(_LONGEST_SECRET + 1)
        else:
            problem = "the path must be absolute"
    except OSError as error:
        problem = error.strerror or "cannot be read"
    except ValueError:
        problem = "not UTF-8"
    if len(text) > _LONGEST_SECRET:
        problem = f"longer than {_LONGEST_SECRET} characters"
    if problem:
        problems.append(f"{key}: {path}: {problem}")
        return ""
    return text.removesuffix("\n").removesuffix("\r")


def convert(raw: Mapping[str, Any], into: type[T]) -> T:
    """Turn a raw configuration into `into`. Raises ConfigError naming every unknown key, every header or address that
    cannot be one, and the first wrong value.
    """
    problems = [*_unknown_keys(raw, into, ""), *_unfit(raw, "", "")]
    if not problems:
        try:
            return msgspec.convert(raw, into)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            message = _NO_WORD.sub("Invalid enum value '***'", message)  # it may be a secret that was filled in
            problems.append(f"{where.rstrip('`').lstrip('.') or 'configuration'}: {message}")
    raise ConfigError(problems)


def _unknown_keys(raw: Any, kind: Any, key: str) -> Iterator[str]:
    """Walk `raw` along the types of `kind` and tell every key that no struct knows."""
    kind = _without_none(kind)
    if get_origin(kind) is dict and isinstance(raw, dict):
        for name, item in raw.items():
            yield from _unknown_keys(item, get_args(kind)[1], f"{key}.{name}".lstrip("."))
    elif get_origin(kind) in (tuple, list) and isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from _unknown_keys(item, get_args(kind)[0], f"{key}[{index}]")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(raw, dict):
        hints = get_type_hints(kind)
        known = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        for name, item in raw.items():
            where = f"{key}.{name}".lstrip(".")
            if name in known:
                yield from _unknown_keys(item, hints[known[name]], where)
            elif getattr(kind.__struct_config__, "forbid_unknown_fields", False):
                near = difflib.get_close_matches(name, known, n=1)
                yield f"{where}: unknown key" + (
                    f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
                )


def _unfit(raw: Any, key: str, name: str) -> Iterator[str]:
    """Walk `raw` and tell every key whose value no header or address can carry, without the value."""
    if isinstance(raw, dict):
        free = name.endswith(("headers", "patterns"))  # there people choose the names, which say nothing then
        for below, item in raw.items():
            yield from _unfit(item, f"{key}.{below}".lstrip("."), name if free else below)
    elif isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from _unfit(item, f"{key}[{index}]", name)
    elif isinstance(raw, str) and _ONE_LINE.fullmatch(name):
        if _CONTROL.search(raw):
            yield f"{key}: has a line break or another control character, which no header or address can carry"
        elif _IN_HEADER.fullmatch(name) and not raw.isascii():
            yield f"{key}: has a character beyond ASCII, which a header cannot carry"


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind

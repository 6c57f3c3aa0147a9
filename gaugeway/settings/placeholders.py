"""Placeholders `${NAME}` and `${file:/path}` in a configuration, and their values when it was accepted."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

MISSING = "missing"
"""Stands for what could not be filled in, so that the rest of the file can be checked as well."""
_PLACEHOLDER = re.compile(r"\$\{(?:file:([^{}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")
_PATTERNS = ("capture.redact_patterns.", "capture.templates[")
"""Keys of regular expressions, in which `${` may be a quantifier of an escaped dollar."""
_AS_WRITTEN = "trials["
"""Trials are stored: what placeholders in them stand for is looked up when it is used."""
_LONGEST_SECRET = 65_536  # internal bound: a secret's file, which the operator names
_PARTS = re.compile(r"[^\s/:@?#&=,;'\"\\]{6,}")
"""The parts of a value that an error may quote alone, such as the host of a URL; shorter ones say nothing."""
_SHORT = 4
_filled_in: dict[str, str] = {}
"""All values that placeholders of this process stood for, and these."""
_MOST_REMEMBERED = 1000  # internal bound: values of the configuration, which the operator wrote
_RESOLVED = b"\0gaugeway-resolved-1\n"
"""Begins a resolved configuration; TOML has no NUL, so no configuration file can."""


class Value(NamedTuple):
    """What a placeholder stands for, and why it stands for nothing."""

    text: str
    problem: str | None = None


Lookup: TypeAlias = Callable[[str], Value]


class Live:
    """Looks placeholders up in the environment and in files, each once, and keeps what it found."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.found: dict[str, Value] = {}

    def __call__(self, placeholder: str) -> Value:
        """Return what `${NAME}` or `${file:/path}` stands for."""
        if placeholder not in self.found:
            match = _PLACEHOLDER.fullmatch(placeholder)
            assert match is not None  # noqa: S101 - `expand` finds them with the same expression
            value = _secret(Path(match[1])) if match[1] is not None else self._variable(match[2])
            self.found[placeholder] = value
        return self.found[placeholder]

    def _variable(self, name: str) -> Value:
        if not (value := self._environment.get(name)):
            return Value(MISSING, f"the environment variable {name} is {'not set' if value is None else 'empty'}")
        return Value(value)


def pack(text: str, found: Mapping[str, Value]) -> bytes:
    """Return a resolved configuration: the file's text with what its placeholders stand for."""
    return _RESOLVED + json.dumps([text, found]).encode()


def unpack(content: bytes) -> tuple[bytes, Lookup | None]:
    """Return the file's text and, for what `pack` made, the values of its placeholders. Raises ValueError."""
    if not content.startswith(_RESOLVED):
        return content, None
    text, found = json.loads(content.removeprefix(_RESOLVED))
    values = {placeholder: Value(*value) for placeholder, value in found.items()}
    return text.encode(), values.__getitem__


def expand(value: Any, key: str, lookup: Lookup, problems: list[str]) -> Any:
    """Fill in the placeholders of all strings; what cannot be filled in is added to `problems`."""
    if isinstance(value, dict):
        return {name: expand(item, f"{key}.{name}".lstrip("."), lookup, problems) for name, item in value.items()}
    if isinstance(value, list):
        return [expand(item, f"{key}[{index}]", lookup, problems) for index, item in enumerate(value)]
    if not isinstance(value, str) or key.startswith(_AS_WRITTEN):
        return value

    if not key.startswith(_PATTERNS) and "${" in _PLACEHOLDER.sub("", value):
        problems.append(f"{key}: not a placeholder; expected ${{NAME}} or ${{file:/path}}")
        return MISSING

    def filled(match: re.Match[str]) -> str:
        found = lookup(match[0])
        if found.problem is not None:
            problems.append(f"{key}: {found.problem}")
        else:
            _remember(found.text, match[0])
        return found.text

    return _PLACEHOLDER.sub(filled, value)


def placeholders_in(text: str) -> list[str]:
    """Return the placeholders of a text, as they are written."""
    return [placeholder[0] for placeholder in _PLACEHOLDER.finditer(text)]


def concealed(message: str) -> str:
    """Return an error message with the placeholder in place of every value that came from one, whole or in part.

    The key before the first colon stays: placeholders fill in values only.
    """
    key, colon, text = message.partition(": ")
    if not colon:
        key, text = "", message
    if _filled_in:
        values = sorted(_filled_in, key=len, reverse=True)
        text = re.sub("|".join(map(_written, values)), lambda found: _filled_in[found[0]], text)
    return f"{key}{colon}{text}"


def _written(value: str) -> str:
    """Return the expression that finds a value: a short one only in quotes, elsewhere it is a word of the message."""
    return re.escape(value) if len(value) >= _SHORT else f"(?<=['\"`]){re.escape(value)}(?=['\"`])"


def _remember(value: str, placeholder: str) -> None:
    written = (value, value.strip(), repr(value)[1:-1], json.dumps(value)[1:-1], *_PARTS.findall(value))
    for form in filter(None, (*written, *map(str.lower, written))):  # the host of a URL is quoted in lower case
        _filled_in.pop(form, None)
        _filled_in[form] = placeholder
    while len(_filled_in) > _MOST_REMEMBERED:
        del _filled_in[next(iter(_filled_in))]


def _secret(path: Path) -> Value:
    """Read a file as secret stores mount them; a relative path could mean another file in another directory."""
    text = problem = ""
    try:
        if path.is_absolute():
            with open(path, encoding="utf-8", opener=_open_without_waiting) as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    text = file.read(_LONGEST_SECRET + 1)
                else:
                    problem = "not a regular file"
        else:
            problem = "the path must be absolute"
    except OSError as error:
        problem = error.strerror or "cannot be read"
    except ValueError:
        problem = "not UTF-8"
    if len(text) > _LONGEST_SECRET:
        problem = f"longer than {_LONGEST_SECRET} characters"
    text = text.removesuffix("\n").removesuffix("\r")
    return Value(MISSING, f"{path}: {problem or 'empty'}") if problem or not text else Value(text)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a named pipe must not wait for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

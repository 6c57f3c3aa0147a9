"""Where the values of a configuration come from: the file, a placeholder in it, an option, or the environment."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gaugeway.settings import ConfigError, text_of

FILE, OPTION = "file", "option or environment"
_PLACEHOLDER = re.compile(r"\$\{(?:file:[^{}]+|[A-Za-z_][A-Za-z0-9_]*)\}")


def sources_of(path: Path | None, options: Mapping[str, object]) -> dict[str, str]:
    """Return the source of each value that is set, by its key ("judge.model", "notifiers[0].url").

    `options` are the keys that options of the command line or their environment variables set, None where they are not
    given. A value with placeholders has these as its source: it may be a secret. A file that cannot be read gives none.
    """
    found = dict(_of_file(path)) if path is not None else {}
    return found | {key: OPTION for key, value in options.items() if value is not None}


def is_secret(source: str) -> bool:
    """Return whether a value was filled in from the environment or from a file of its own.

    >>> is_secret("${JUDGE_KEY}"), is_secret("file")
    (True, False)
    """
    return source.startswith("$")


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        raw = tomllib.loads(text_of(path))
    except (ConfigError, OSError, ValueError, RecursionError):
        return iter(())
    return _leaves(raw, "")


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}[{index}]")
    else:
        yield key, ", ".join(dict.fromkeys(_PLACEHOLDER.findall(str(value)))) or FILE

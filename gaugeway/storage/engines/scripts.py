"""SQL and Lua of an engine, which are files in its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*-- .*\n", re.MULTILINE)


@cache
def migrations(folder: str) -> tuple[str, ...]:
    """Return the SQL scripts in a folder such as `sqlite/migrations/store`: the one at n leads to version n + 1."""
    entries = sorted(files(__package__).joinpath(folder).iterdir(), key=lambda entry: entry.name)
    return tuple(entry.read_text("utf-8") for entry in entries if entry.name.endswith(".sql"))


@cache
def statements(path: str) -> Mapping[str, str]:
    """Return the statements in a file of an engine, `sqlite/store.sql`: each stands below a line `-- name: NAME`.

    Words in braces are parts that are filled in with `format`.
    """
    _, *parts = _NAME.split(script(path))
    return {name: _COMMENT.sub("", text).strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def script(path: str) -> str:
    """Return the text of a file of an engine, `redis/scripts/put.lua`."""
    return files(__package__).joinpath(path).read_text("utf-8")

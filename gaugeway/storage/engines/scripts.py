"""SQL and Lua of an engine, which are files in its folder."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def migrations(folder: str) -> tuple[str, ...]:
    """Return the SQL scripts in a folder such as `sqlite/migrations/store`: the one at n leads to version n + 1."""
    entries = sorted(files(__package__).joinpath(folder).iterdir(), key=lambda entry: entry.name)
    return tuple(entry.read_text("utf-8") for entry in entries if entry.name.endswith(".sql"))


def script(path: str) -> str:
    """Return the text of a file of an engine, `redis/scripts/put.lua`."""
    return files(__package__).joinpath(path).read_text("utf-8")

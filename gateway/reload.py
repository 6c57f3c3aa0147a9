"""What a reload does with each key of the configuration; the snapshot of the one that was accepted.

A reload is all or nothing: if one changed key needs a restart, nothing of the new configuration is applied.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec

from gateway.access.gate import needs_gate
from gateway.config import Config
from gaugeway import settings
from gaugeway.data_files import table
from gaugeway.records import grouped
from gaugeway.runtime import audit
from gaugeway.settings import ConfigError, is_struct, item_of, plain

_log = logging.getLogger("gaugeway")
REFUSED = "refused"
"""The line that the supervisor writes to a gateway's standard input, followed by the keys that need a restart."""
Effect: TypeAlias = Literal["live", "restart", "restart_in_use", "monitors"]

EFFECTS: dict[str, Effect] = {
    f"{where}.{name}".removeprefix("."): effect
    for where, by_effect in table("gateway", "reload.toml").items()
    for effect, names in by_effect.items()
    for name in names.split()
}
"""Key -> what a reload does with it; `reload.toml` says what the effects are."""


class RestartNeeded(ConfigError):
    """The configuration is valid, and `keys` of it cannot be changed in a running gateway."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__([f"{key}: needs a restart" for key in keys])
        self.keys = keys


def report_refusal(error: RestartNeeded) -> None:
    """Write to the log and to the audit log which keys need a restart."""
    audit.tell("reload", outcome="refused", process=os.getpid(), keys=" ".join(error.keys))
    what = "; ".join(f"{key} needs a restart" for key in error.keys)
    _log.error("reload refused, configuration unchanged: %s", what)


@cache
def keys_of(kind: Any, prefix: str = "") -> Sequence[str]:
    """Return every key of a table as `EFFECTS` names them; an optional table or list is a key itself."""
    found: list[str] = []
    hints = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        below = plain(hints[name])
        item = plain(item_of(below))
        table = below if is_struct(below) else item if is_struct(item) else None
        if table is None or _may_be_none(kind, name):
            found.append(f"{prefix}{name}")
        if table is not None:
            found += keys_of(table, f"{prefix}{name}.")
    return found


def changed(old: Config, new: Config) -> list[str]:
    """Return the keys whose values differ, as `EFFECTS` names them."""
    before, after = _values(old), _values(new)
    return [key for key in keys_of(type(new)) if before.get(key) != after.get(key)]


def check_live(old: Config, new: Config) -> None:
    """Raise RestartNeeded if a gateway that runs with `old` cannot apply `new`."""
    in_use = needs_gate(old.keys, old.limits) and needs_gate(new.keys, new.limits)
    blocking = {"restart", "restart_in_use"} if in_use else {"restart"}
    # A key without an entry is one that no code applies.
    if keys := tuple(key for key in changed(old, new) if EFFECTS.get(key, "restart") in blocking):
        raise RestartNeeded(keys)


def _values(config: Config) -> dict[str, list[tuple[str, Any]]]:
    """Return all values by key; where a key occurs several times, with the index or the name of each."""
    return grouped((key, (place, value)) for key, place, value in _walk(config, "", ""))


def _walk(table: msgspec.Struct, key: str, place: str) -> Iterator[tuple[str, str, Any]]:
    for name in table.__struct_fields__:
        value = getattr(table, name)
        here = f"{key}{name}"
        if isinstance(value, msgspec.Struct):
            yield here, place, True
            yield from _walk(value, f"{here}.", place)
            continue
        if below := list(_tables(value)):
            yield here, place, True
            for index, item in below:
                yield from _walk(item, f"{here}.", f"{place}/{index}")
        else:
            yield here, place, value


def _tables(value: Any) -> Iterable[tuple[object, msgspec.Struct]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, tuple) else ()
    return [(index, item) for index, item in items if isinstance(item, msgspec.Struct)]


def _may_be_none(kind: Any, name: str) -> bool:
    return any(field.name == name and field.default is None for field in msgspec.structs.fields(kind))


class Snapshot:
    """A copy of a configuration file in memory, which child processes read under `path` if they inherit `descriptor`.

    It includes the values of `${NAME}` and `${file:/path}`, so that a process that is restarted gets what was accepted,
    even if the file or its secrets have changed since. Only this process's children inherit the descriptor, and the
    text is in no file system. Without in-memory files (on any system but Linux) `path` is the file's own.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.path = file
        self.descriptor: int | None = None
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("gaugeway.toml")
            self.path = Path(f"/proc/self/fd/{self.descriptor}")

    @property
    def inherited(self) -> tuple[int, ...]:
        """What a child process must inherit."""
        return () if self.descriptor is None else (self.descriptor,)

    def take(self) -> None:
        """Copy the file and its placeholders' values. Raises OSError and ConfigError, and then keeps the old copy."""
        if self.descriptor is not None:
            self._write(settings.resolve(self.file))

    def replace(self, other: Snapshot) -> None:
        """Copy another snapshot."""
        if self.descriptor is not None:
            self._write(other.path.read_bytes())

    def close(self) -> None:
        """Free the memory."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _write(self, text: bytes) -> None:
        assert self.descriptor is not None  # noqa: S101 - for the type checker
        os.posix_fallocate(self.descriptor, 0, max(1, len(text)))  # without memory it fails before anything is lost
        os.pwrite(self.descriptor, text, 0)
        os.ftruncate(self.descriptor, len(text))

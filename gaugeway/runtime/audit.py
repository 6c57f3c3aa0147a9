"""Audit log: who did what, one JSON object a line, on the logger `gaugeway.audit` and optionally in a file.

It holds names, ids and outcomes, never a token, a key or the text of an exchange.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

_log = logging.getLogger("gaugeway.audit")
_LONGEST = 200  # internal bound: a field of a line of the audit log, cut
FILE = "audit.log"


def tell(
    action: str, *, outcome: str = "ok", by: str | None = None, address: str | None = None, **about: object
) -> None:
    """Log one action. `by` is the unverified name that was given; `address` is the origin of the request."""
    said = {"by": by, "address": address, **about}
    facts = {name: _short(value) for name, value in said.items() if value is not None}
    record = {"action": action, "outcome": outcome} | facts
    _log.info("%s %s%s", action, outcome, _in_words(facts), extra={"audit": record})


def open_file(data_dir: Path, clock: Callable[[], float] = time.time) -> logging.Handler:
    """Also write the audit log to `data_dir`/audit.log, with mode 0600.

    Close the handler with `close_file`. A failed write is reported by `logging` and stops nothing. To rotate the file,
    move it away: the next line starts a new one. Raises OSError when the file cannot be created.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    handler = _Lines(data_dir / FILE, clock)
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    return handler


def open_if_possible(data_dir: Path) -> logging.Handler | None:
    """Write to the file as `open_file` does; where that is not possible, say so and go on without."""
    try:
        return open_file(data_dir)
    except OSError as error:
        _log.warning("no audit log in %s: %s", data_dir, error.strerror)
        return None


def close_file(handler: logging.Handler | None) -> None:
    """Write no more to it."""
    if handler is None:
        return
    _log.removeHandler(handler)
    handler.close()


def whoami() -> str:
    """Return who runs this process, for what is done at a command line."""
    user = os.getuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"uid {user}"


class _Lines(logging.Handler):
    """Appends each record in one write, so that two processes may share the file."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        super().__init__()
        self._path = path
        self._clock = clock
        os.close(self._open())

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] | None = getattr(record, "audit", None)
        if facts is None:
            return
        try:
            descriptor = self._open()
            try:
                os.write(descriptor, msgspec.json.encode({"time": round(self._clock(), 3)} | facts) + b"\n")
            finally:
                os.close(descriptor)
        except OSError:
            self.handleError(record)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _in_words(facts: Mapping[str, object]) -> str:
    """Return the facts for a line of the log: quoted and printable, so that no name looks like another fact or line."""
    return "".join(f" {name}={_quoted(value)}" for name, value in facts.items())


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=not value.isprintable()) if isinstance(value, str) else str(value)


def _short(value: object) -> object:
    return value[:_LONGEST] if isinstance(value, str) else value

"""Log lines: their format, and fewer of them about what fails again and again."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

EVERY_S = 10.0
"""At most one line of each kind in this time: what fails with every request must not fill the disk."""


def configure_logs(log_format: str) -> None:
    """Write log lines to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler()
    if log_format == "json":
        from pythonjsonlogger.json import JsonFormatter  # noqa: PLC0415 - only when asked for

        names = {"asctime": "time", "levelname": "level", "name": "logger"}
        handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("httpx", "httpx2", "httpcore", "openai", "aiosqlite", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It would call every response that the upstream cut an error of ours; those are counted.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


class Outage:
    """The state of one thing that may fail; only changes are logged, to `log`."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.lasts = False

    def begin(self, message: str, *arguments: object) -> None:
        """Log a warning, unless the outage has begun before."""
        if not self.lasts:
            self._log.warning(message, *arguments)
        self.lasts = True

    def end(self, message: str, *arguments: object, level: int = logging.INFO) -> None:
        """Log that it works again, if there was an outage."""
        if self.lasts:
            self._log.log(level, message, *arguments)
        self.lasts = False


class RateLimitedWarnings:
    """Logs to `log`. `clock` is monotonic, in s. The number of kinds must be bounded: they are kept."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._due: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Log a warning, or count it if another of its kind was logged in the last 10 s."""
        now = self._clock()
        due, skipped = self._due.get(kind, (-math.inf, 0))
        if now < due:
            self._due[kind] = due, skipped + 1
            return
        self._due[kind] = now + EVERY_S, 0
        more = f"; {skipped} more since the last such line" if skipped else ""
        self._log.warning("%s%s", message % arguments if arguments else message, more)

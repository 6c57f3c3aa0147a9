"""Log lines about what fails again and again: one when it begins to fail, one when it works again."""

from __future__ import annotations

import logging


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

"""The notifier `journal`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from gaugeway.records import Alert
from monitors.alerting.notifiers import NotDeliveredError, Notifier


class Journal(Notifier):
    """Appends a JSON line for each alert to the file at `path`."""

    opens_incidents = True

    def __init__(self, *, path: str, public_url: str | None = None) -> None:
        self._path = Path(path)
        self._public_url = public_url

    async def notify(self, alert: Alert) -> None:
        """Write one line, or raise: then it is tried again later."""
        line = {"state": alert.state, "app": alert.app, "metric": alert.metric, "page": self._public_url}
        await asyncio.to_thread(self._append, json.dumps(line))

    def _append(self, line: str) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise NotDeliveredError(f"cannot write the journal: {error.strerror}") from error

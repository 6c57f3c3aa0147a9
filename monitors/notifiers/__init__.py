"""Notifiers: who is told about an alert."""

from __future__ import annotations

from typing import Protocol

from monitors.records import Alert

BUILT_IN = {
    "log": "monitors.notifiers.log:LogNotifier",
    "webhook": "monitors.notifiers.webhook:WebhookNotifier",
}


class Notifier(Protocol):
    """Tells somebody about an alert that began to fire or was resolved."""

    async def notify(self, alert: Alert) -> None:
        """Deliver once. Raises when it was not delivered; the caller tries again later."""

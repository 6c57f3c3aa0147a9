"""The log notifier, which needs no receiver."""

from __future__ import annotations

import logging

from gaugeway.records import Alert
from monitors.alerting.notifiers import Notifier
from monitors.alerting.notifiers.message import summary

_log = logging.getLogger("gaugeway.alerts")


class LogNotifier(Notifier):
    """Writes each alert to the logger `gaugeway.alerts`: WARNING when it fires, else INFO."""

    async def notify(self, alert: Alert) -> None:
        level = logging.WARNING if alert.state == "firing" and alert.severity != "none" else logging.INFO
        worst = f" [{', '.join(alert.worst_exchanges)}]" if alert.worst_exchanges else ""
        _log.log(level, "%s %s (%s): %s%s", alert.state, alert.rule, alert.fingerprint, summary(alert), worst)

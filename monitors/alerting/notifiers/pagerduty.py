"""PagerDuty notifier (Events API v2): opens, acknowledges and resolves incidents."""

from __future__ import annotations

from typing import Any

from gaugeway.records import Alert
from monitors.alerting.notifiers import Notifier
from monitors.alerting.notifiers.http import Address
from monitors.alerting.notifiers.message import annotations_of, bounded, labels_of, rfc3339, sent_labels, summary

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
MAX_SUMMARY = 1024  # internal bound: size of a message that we send
SEVERITIES = {"page": "critical", "critical": "critical", "error": "error", "warn": "warning", "warning": "warning"}
"""Our severity -> PagerDuty's; any other is "info"."""


class PagerDutyNotifier(Notifier):
    """Sends events for the integration `routing_key`; the alert's fingerprint is their deduplication key."""

    takes_acknowledgements = True
    opens_incidents = True
    no_heartbeat = "it would be an incident that never ends"

    def __init__(self, *, routing_key: str, url: str = EVENTS_URL, timeout_s: float = 10.0) -> None:
        self._address = Address(url, what="pagerduty", timeout_s=timeout_s)
        self._routing_key = routing_key

    async def notify(self, alert: Alert) -> None:
        if alert.state == "resolved":
            await self._send(alert, "resolve", {})
        else:
            await self._send(alert, "trigger", self._trigger(alert))

    async def acknowledge(self, alert: Alert) -> None:
        await self._send(alert, "acknowledge", {})

    async def _send(self, alert: Alert, action: str, more: dict[str, Any]) -> None:
        event = {"routing_key": self._routing_key, "event_action": action, "dedup_key": alert.fingerprint}
        await self._address.post(event | more)

    def _trigger(self, alert: Alert) -> dict[str, Any]:
        text = summary(alert)
        payload = {
            "summary": text if len(text) <= MAX_SUMMARY else text[: MAX_SUMMARY - 1] + "…",
            "source": "gaugeway",
            "severity": SEVERITIES.get(alert.severity, "info"),
            "timestamp": rfc3339(alert.since),
            "component": alert.metric,
            "group": bounded(alert.app),
            "class": labels_of(alert)["alertname"],
            "custom_details": sent_labels(alert) | annotations_of(alert, self.links),
        }
        return {"payload": payload, "client": "Gaugeway", **self._links(alert)}

    def _links(self, alert: Alert) -> dict[str, Any]:
        runbook, page = {"href": self.links.runbook_url, "text": "the runbook"}, self.links.alert(alert)
        if not page:
            return {"links": [runbook]}
        exchanges = [
            {"href": self.links.exchange(sample_id), "text": f"exchange {sample_id}"}
            for sample_id in alert.worst_exchanges
        ]
        return {"client_url": page, "links": [{"href": page, "text": "the alert"}, runbook, *exchanges]}

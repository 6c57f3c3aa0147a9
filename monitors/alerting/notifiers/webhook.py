"""Webhook notifier, in Alertmanager's webhook format."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gaugeway.records import Alert
from monitors.alerting.notifiers import NO_PAGE, GroupNotifier, Links
from monitors.alerting.notifiers.http import Address
from monitors.alerting.notifiers.message import annotations_of, rfc3339, sent_labels

SIGNATURE = "x-gaugeway-signature"
RECEIVER = "gaugeway"
NOT_ENDED = "0001-01-01T00:00:00Z"
"""How Alertmanager writes the end of an alert that still fires."""


class WebhookNotifier(GroupNotifier):
    """Posts alerts as JSON to `url`; anything but a 2xx response within `timeout_s` raises NotDeliveredError.

    With a `secret` the header `x-gaugeway-signature: t=<Unix time>,v1=<hex>` carries the HMAC-SHA256 of the time, a dot
    and the body, so the receiver can check the origin, the integrity and the age of the message.
    """

    opens_incidents = True

    def __init__(
        self,
        url: str,
        timeout_s: float = 10.0,
        *,
        secret: str | None = None,
        group_by: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._address = Address(url, what="webhook", timeout_s=timeout_s)
        self._secret = secret.encode() if secret else None
        self._group_by = tuple(group_by)
        self._clock = clock

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        body = msgspec.json.encode(group_body(alerts, self.links, self._group_by))
        await self._address.post(body, self._signature(body))

    def _signature(self, body: bytes) -> dict[str, str]:
        if self._secret is None:
            return {}
        moment = int(self._clock())
        digest = hmac.new(self._secret, b"%d." % moment + body, hashlib.sha256).hexdigest()
        return {SIGNATURE: f"t={moment},v1={digest}"}


def group_body(alerts: Sequence[Alert], links: Links = NO_PAGE, group_by: Sequence[str] = ()) -> dict[str, Any]:
    """Return the webhook body for the alerts of one group; its links are empty without a public URL.

    Shape: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config. `group_by` names the group labels;
    without it these are all common labels except the severity.
    """
    labels = [sent_labels(alert) for alert in alerts]
    annotations = [annotations_of(alert, links) for alert in alerts]
    common = _common(labels)
    if group_by:
        group = {name: common.get(name, "") for name in group_by}
    else:
        group = {name: value for name, value in common.items() if name != "severity"}
    firing = any(alert.state != "resolved" for alert in alerts)
    page = links.alert(alerts[0]) if len(alerts) == 1 else (links.public_url or "")
    return {
        "version": "4",
        "groupKey": "{}:{" + ", ".join(f"{name}={_quoted(value)}" for name, value in sorted(group.items())) + "}",
        "truncatedAlerts": 0,
        "status": "firing" if firing else "resolved",
        "receiver": RECEIVER,
        "groupLabels": group,
        "commonLabels": common,
        "commonAnnotations": _common(annotations),
        "externalURL": page,
        "alerts": [
            {
                "status": "resolved" if alert.state == "resolved" else "firing",
                "labels": of_alert,
                "annotations": of_annotations,
                "startsAt": rfc3339(alert.since),
                "endsAt": rfc3339(alert.ended_at) if alert.ended_at is not None else NOT_ENDED,
                "generatorURL": links.alert(alert),
                "fingerprint": alert.fingerprint,
            }
            for alert, of_alert, of_annotations in zip(alerts, labels, annotations, strict=True)
        ],
    }


def _common(every: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for name, value in every[0].items() if all(labels.get(name) == value for labels in every)}


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

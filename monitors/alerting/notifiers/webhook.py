"""Webhook notifier, in Alertmanager's webhook format."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Sequence

import msgspec

from gaugeway.records import Alert
from monitors.alerting.notifiers import Notifier
from monitors.alerting.notifiers.http import Address
from monitors.alerting.notifiers.message import RUNBOOK, group_body

SIGNATURE = "x-gaugeway-signature"


class WebhookNotifier(Notifier):
    """Posts alerts as JSON to `url`; anything but a 2xx response within `timeout_s` raises NotDeliveredError.

    With a `secret` the header `x-gaugeway-signature: t=<Unix time>,v1=<hex>` carries the HMAC-SHA256 of the time, a dot
    and the body, so the receiver can check the origin, the integrity and the age of the message.
    """

    takes_groups = True
    opens_incidents = True

    def __init__(
        self,
        url: str,
        timeout_s: float = 10.0,
        *,
        secret: str | None = None,
        public_url: str | None = None,
        runbook_url: str = RUNBOOK,
        group_by: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._address = Address(url, what="webhook", timeout_s=timeout_s)
        self._secret = secret.encode() if secret else None
        self._public_url = public_url
        self._runbook_url = runbook_url
        self._group_by = tuple(group_by)
        self._clock = clock

    async def notify(self, alert: Alert) -> None:
        await self.notify_all([alert])

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        body = msgspec.json.encode(
            group_body(alerts, public_url=self._public_url, runbook_url=self._runbook_url, group_by=self._group_by)
        )
        await self._address.post(body, self._signature(body))

    def _signature(self, body: bytes) -> dict[str, str]:
        if self._secret is None:
            return {}
        moment = int(self._clock())
        digest = hmac.new(self._secret, b"%d." % moment + body, hashlib.sha256).hexdigest()
        return {SIGNATURE: f"t={moment},v1={digest}"}

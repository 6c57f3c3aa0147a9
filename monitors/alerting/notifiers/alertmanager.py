"""Alerts to Prometheus Alertmanager, which then groups, routes and silences them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from gaugeway.records import Alert
from monitors.alerting.notifiers import GroupNotifier, NotDeliveredError
from monitors.alerting.notifiers.http import Address
from monitors.alerting.notifiers.message import annotations_of, rfc3339, sent_labels

ROUTE = "/api/v2/alerts"
LASTS = 4
"""A firing alert expires in Alertmanager after this many missed sends."""
_log = logging.getLogger("gaugeway")


class AlertmanagerNotifier(GroupNotifier):
    """Posts alerts to the v2 API of every Alertmanager in a cluster, again every `resend_s` while they fire.

    Delivery succeeds if one member accepts: members do not share alerts, but each gets the next send, and a missed
    resolution takes effect anyway because every send carries the time at which the alert expires.
    """

    opens_incidents = True

    def __init__(
        self,
        *,
        url: str | None = None,
        urls: Sequence[str] = (),
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        timeout_s: float = 10.0,
        resend_s: Annotated[float, msgspec.Meta(gt=0.0, le=55.0)] = 45.0,
        heartbeat_s: float = 0.0,
    ) -> None:
        every = {"url": url} if url else {}
        every |= {f"urls[{index}]": address for index, address in enumerate(urls)}
        problems = [] if every else ["urls: an alertmanager needs at least one"]
        if token and username:
            problems.append("token: either a token or a username with its password")
        if username and password is None:
            problems.append("password: a username needs one")
        self._addresses = []
        for key, target in every.items():
            try:
                self._addresses.append(Address(target, what="alertmanager", timeout_s=timeout_s, suffix=ROUTE, key=key))
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("\n".join(problems))
        self.resend_s = resend_s
        self._lasts_s = LASTS * max(resend_s, heartbeat_s)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        if username:
            for address in self._addresses:
                address.sign_in(username, password or "")

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        # Resolved first: Alertmanager keeps the last of two alerts with the same labels.
        body = [
            self._posted(alert)
            for alert in sorted(alerts, key=lambda posted: (posted.state != "resolved", posted.since))
        ]
        errors = await asyncio.gather(*(self._post(address, body) for address in self._addresses))
        failed = [error for error in errors if error is not None]
        if len(failed) == len(errors):
            raise failed[0]
        for error in failed:
            _log.warning("one of %d Alertmanagers rejected the alerts: %s", len(errors), error)

    async def _post(self, address: Address, body: Sequence[dict[str, Any]]) -> NotDeliveredError | None:
        try:
            await address.post(body, self._headers)
        except NotDeliveredError as error:
            return error
        return None

    def _posted(self, alert: Alert) -> dict[str, Any]:
        """Return the alert in the API's format, without empty labels, which the API rejects."""
        ends = alert.ended_at if alert.ended_at is not None else time.time() + self._lasts_s
        link, annotations = self.links.alert(alert), annotations_of(alert, self.links)
        return {
            "labels": {name: value for name, value in sent_labels(alert).items() if value},
            "annotations": {name: value for name, value in annotations.items() if value},
            "startsAt": rfc3339(alert.since),
            "endsAt": rfc3339(ends),
        } | ({"generatorURL": link} if link else {})

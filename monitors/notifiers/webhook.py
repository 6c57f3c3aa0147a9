"""Alerts to anything that takes Alertmanager's webhook."""

from __future__ import annotations

import asyncio

import httpx

from monitors.notifiers.body import webhook_body
from monitors.records import Alert


class NotDeliveredError(Exception):
    """The receiver did not take the alert; the text names no part of the URL that may be a secret."""


class WebhookNotifier:
    """Posts an alert as JSON to `url`; anything but a 2xx answer within `timeout_s` raises NotDeliveredError.

    User, password, path and query of the URL may be secrets. httpx logs the URL of every request, so the request is
    made to the bare origin, with the password as a header and the path and query as the request target. A receiver
    on plain http is spoken to directly: a forward proxy would not understand that target.
    """

    def __init__(self, url: str, timeout_s: float = 10.0) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            raise ValueError("a webhook's url cannot be read") from None  # the reason would quote the URL
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError("a webhook's url is http://... or https://...")
        self._origin = parsed.copy_with(username="", password="", raw_path=b"/", fragment=None)
        self._target = parsed.raw_path
        self._auth = httpx.BasicAuth(parsed.username, parsed.password) if parsed.userinfo else None
        self._timeout_s = timeout_s

    async def notify(self, alert: Alert) -> None:
        body = webhook_body(alert)
        mounts = {"http://": httpx.AsyncHTTPTransport()}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                httpx.AsyncClient(timeout=self._timeout_s, auth=self._auth, mounts=mounts) as client,
            ):
                response = await client.post(self._origin, json=body, extensions={"target": self._target})
        except (httpx.HTTPError, TimeoutError) as error:
            raise NotDeliveredError(f"{self._origin}: {type(error).__name__}") from error
        if not response.is_success:
            raise NotDeliveredError(f"{self._origin}: answered {response.status_code}")

"""Posting JSON to an address of which every part but the origin may be a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
import msgspec

from monitors.alerting.notifiers import NotDeliveredError
from monitors.runtime.replies import MAX_RECEIPT_BYTES, ReplyError, limited

MAX_RETRY_AFTER_S = 3600.0


class Address:
    """Where to post. `what` it is and the `key` the URL comes from are for people; `suffix` is put behind its path.

    User, password, path and query of the URL may be secrets. httpx logs the URL of every request, so the request is
    made to the bare origin, with the password as a header and the path and query as the request target. A receiver
    on plain http is spoken to directly: a forward proxy would not understand that target.
    """

    def __init__(self, url: str, *, what: str, timeout_s: float, suffix: str = "", key: str = "url") -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            raise ValueError(f"{key}: a {what}'s url cannot be read") from None  # the reason would quote the URL
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"{key}: a {what}'s url is http://... or https://...")
        if suffix and parsed.path.rstrip("/").endswith(suffix):
            raise ValueError(f"{key}: ends in {suffix}, which is put behind it: leave that out")
        self.origin = parsed.copy_with(username="", password="", raw_path=b"/", fragment=None)
        path, question, query = parsed.raw_path.partition(b"?")
        self._target = (path.rstrip(b"/") + suffix.encode() if suffix else path) + question + query
        self._auth = httpx.BasicAuth(parsed.username, parsed.password) if parsed.userinfo else None
        self._timeout_s = timeout_s

    def sign_in(self, username: str, password: str) -> None:
        """Send this user and password with every request."""
        self._auth = httpx.BasicAuth(username, password)

    async def post(self, body: object, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Post `body` as JSON, or as it is if bytes. Raises NotDeliveredError for all but a 2xx answer in time."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        mounts = {"http://": httpx.AsyncHTTPTransport()}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                httpx.AsyncClient(
                    timeout=self._timeout_s, auth=self._auth, mounts=mounts, **limited(MAX_RECEIPT_BYTES)
                ) as client,
            ):
                response = await client.post(
                    self.origin,
                    content=content,
                    headers={"content-type": "application/json", **(headers or {})},
                    extensions={"target": self._target},
                )
        except ReplyError as error:
            raise NotDeliveredError(f"{self.origin}: {error}") from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise NotDeliveredError(f"{self.origin}: {type(error).__name__}") from error
        if not response.is_success:
            raise NotDeliveredError(f"{self.origin}: answered {response.status_code}", retry_after_s=_pause(response))
        return response


def _pause(response: httpx.Response) -> float:
    """How long the receiver asks to be left alone; only the form in seconds is understood."""
    asked = response.headers.get("retry-after", "")
    return min(MAX_RETRY_AFTER_S, float(asked)) if asked.isascii() and asked.isdigit() else 0.0

"""HTTP delivery of JSON to a URL of which everything but the origin may be secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
import msgspec

from gaugeway.runtime.replies import MAX_RECEIPT_BYTES, ReplyError, limited
from monitors.alerting.notifiers import NotDeliveredError

MAX_RETRY_AFTER_S = 3600.0  # internal bound: time between our own attempts


class Address:
    """A receiver's URL. `what` and `key` name it in errors; `suffix` is appended to the path.

    User, password, path and query may be secrets, and httpx logs the URL of every request. The request is therefore
    made to the bare origin, with the credentials in a header and path and query as the request target. Plain http
    bypasses a forward proxy, which would not understand that target.
    """

    def __init__(self, url: str, *, what: str, timeout_s: float, suffix: str = "", key: str = "url") -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            raise ValueError(f"{key}: the url of a {what} is malformed") from None  # the reason would quote the URL
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"{key}: the url of a {what} must start with http:// or https://")
        if suffix and parsed.path.rstrip("/").endswith(suffix):
            raise ValueError(f"{key}: must not end in {suffix}, which is appended")
        self.origin = parsed.copy_with(username="", password="", raw_path=b"/", fragment=None)
        path, question, query = parsed.raw_path.partition(b"?")
        self._target = (path.rstrip(b"/") + suffix.encode() if suffix else path) + question + query
        self._auth = httpx.BasicAuth(parsed.username, parsed.password) if parsed.userinfo else None
        self._timeout_s = timeout_s

    def sign_in(self, username: str, password: str) -> None:
        """Use HTTP basic authentication."""
        self._auth = httpx.BasicAuth(username, password)

    async def post(self, body: object, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Post `body`, as JSON unless it is bytes. Raises NotDeliveredError unless a 2xx response arrives in time."""
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
    """Return the seconds of Retry-After, 0.0 without; only the form in seconds is supported."""
    value = response.headers.get("retry-after", "")
    return min(MAX_RETRY_AFTER_S, float(value)) if value.isascii() and value.isdigit() else 0.0

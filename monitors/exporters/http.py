"""The HTTP client of the sinks: calls a JSON API and classifies its errors as retryable or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import httpx

from gaugeway.runtime.replies import ReplyError, limited
from gaugeway.runtime.retry import retry_after_s
from monitors.exporters.outbox import NotYetError, RefusedError, UnavailableError

_MISSING = 404
_TRY_AGAIN = frozenset({401, 403, 407, 408, 409, 425, 429})
"""Statuses that are retried besides 5xx. A rejected key may be corrected before the scores are given up."""
_SHOWN = 200


class Api:
    """Calls `url` + a path. User and password stay out of the URL: httpx logs it with every request."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, auth: httpx.Auth | None = None, timeout_s: float
    ) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            raise ValueError("url: cannot be read") from None  # the reason would quote it
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query:
            raise ValueError("url: expected http://... or https://..., with no password or query in it")
        self._timeout_s = timeout_s
        options = limited()
        self._client = httpx.AsyncClient(
            base_url=str(parsed).rstrip("/"),
            headers={**options["headers"], **(headers or {})},
            event_hooks=options["event_hooks"],
            auth=auth,
            timeout=timeout_s,
        )

    async def call(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Make one request and return the JSON object of the answer ({} without one).

        Raises NotYetError, UnavailableError, RefusedError.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._client.request(method, path, json=body, params=params)
        except ReplyError as error:
            raise RefusedError(str(error)) from error
        except (httpx.TransportError, TimeoutError) as error:
            raise UnavailableError(type(error).__name__) from error
        status = answer.status_code
        if answer.is_success:
            return _object(answer)
        detail = f"answered {status}"
        if status == _MISSING:
            raise NotYetError(detail)
        if status in _TRY_AGAIN or answer.is_server_error:
            raise UnavailableError(detail, retry_after_s(answer.headers, time.time()))
        raise RefusedError(f"{detail}{_reason(answer)}")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _reason(answer: httpx.Response) -> str:
    """Return the server's error message, shortened; never the whole answer, which may quote what was sent."""
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return ""
    told = [found[key] for key in ("detail", "message") if isinstance(found, dict) and isinstance(found.get(key), str)]
    return f": {told[0][:_SHOWN]}" if told else ""


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json() if answer.content else {}
    except (ValueError, RecursionError) as error:
        raise RefusedError("answered something that is not JSON: is the url right?") from error
    return found if isinstance(found, dict) else {}

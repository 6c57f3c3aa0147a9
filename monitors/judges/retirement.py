"""When a model is shut down: read from the list of models of its endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Literal, TypeAlias

import httpx
import msgspec

from monitors.runtime.replies import ReplyError, limited

FIELDS = ("shutdown_date", "retirement_date", "expiration_date", "deprecation_date", "deprecation")
"""Names of the date in a model's entry: OpenAI's first, OpenRouter's third, Mistral's last. The first set counts."""
MAX_LIST_BYTES = 8 * 1024 * 1024
TIMEOUT_S = 20.0
_LATEST = 4_102_444_800.0  # 2100-01-01
Found: TypeAlias = Literal["announced", "none", "unlisted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """What an endpoint says of one of its models. `at` is the shutdown in Unix seconds, if `found` is "announced".

    "none": no date is announced. "unlisted": the list does not name the model (an alias, a deployment). "failed": there
    is no list, or it cannot be read; `detail` says why.
    """

    found: Found
    at: float | None = None
    detail: str = ""


class _Models(msgspec.Struct):
    data: list[dict[str, Any]]


async def read(base_url: str, api_key: str | None, model: str, *, timeout_s: float = TIMEOUT_S) -> Retirement:
    """Ask `GET {base_url}/models` for the date on which `model` is shut down. Raises nothing.

    No redirect is followed, and no more than 8 MiB are read.
    """
    options = limited(MAX_LIST_BYTES)
    headers = dict(options["headers"])
    key = (api_key or "").strip()
    if key:
        headers["authorization"] = f"Bearer {key}"
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(headers=headers, event_hooks=options["event_hooks"], timeout=timeout_s) as client,
        ):
            reply = await client.get(f"{base_url.rstrip('/')}/models")
    except (httpx.HTTPError, httpx.InvalidURL, ReplyError, TimeoutError, ValueError) as error:
        return Retirement(found="failed", detail=type(error).__name__)
    if reply.status_code != httpx.codes.OK:
        return Retirement(found="failed", detail=f"HTTP {reply.status_code}")
    try:
        models = msgspec.json.decode(reply.content, type=_Models).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Retirement(found="failed", detail="no list of models")
    entry = next((one for one in models if one.get("id") == model), None)
    if entry is None:
        return Retirement(found="unlisted")
    return announced(entry)


def announced(entry: Mapping[str, Any]) -> Retirement:
    """Return the date in a model's entry.

    >>> announced({"id": "m", "shutdown_date": "1970-01-02"}).at
    86400.0
    >>> announced({"id": "m", "shutdown_date": None}).found
    'none'
    """
    given = next((entry[name] for name in FIELDS if entry.get(name) not in (None, "", False)), None)
    if given is None:
        return Retirement(found="none")
    at = moment(given)
    if at is None:
        return Retirement(found="failed", detail="a date that cannot be read")
    return Retirement(found="announced", at=at)


def moment(given: object) -> float | None:
    """Return a date, or a time, in Unix seconds: ISO 8601 (UTC without an offset) or Unix seconds; None for others.

    >>> moment("2027-03-01"), moment("2027-03-01T12:00:00Z"), moment(1803859200), moment("soon"), moment(True)
    (1803859200.0, 1803902400.0, 1803859200.0, None, None)
    """
    if isinstance(given, bool):
        return None
    if isinstance(given, int | float):
        seconds = float(given)
        return seconds if 0.0 < seconds < _LATEST else None
    if not isinstance(given, str):
        return None
    try:
        if len(given) == len("2027-03-01"):
            found = datetime.combine(date.fromisoformat(given), time(), UTC)
        else:
            found = datetime.fromisoformat(given)
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0.0 < seconds < _LATEST else None

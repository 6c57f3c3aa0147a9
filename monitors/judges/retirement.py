"""When a model is shut down: read from the list of models of its endpoint."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeAlias

import msgspec

from gaugeway.runtime.replies import ReplyError, limited

FIELDS = ("shutdown_date", "retirement_date", "expiration_date", "deprecation_date", "deprecation")
"""Names of the date in a model's entry: OpenAI's first, OpenRouter's third, Mistral's last. The first readable counts.
"""
MAX_LIST_BYTES = 8 * 1024 * 1024
TIMEOUT_S = 20.0
_LATEST = 253_402_300_800.0  # the end of the year 9999
_FAR = 4_102_444_800.0  # 2100-01-01
"""Dates from here on stand for "not planned", such as 9999-12-31."""
_MILLISECONDS = 1e11
"""Numbers from here on are milliseconds: as seconds they would lie beyond the year 5000."""
_EPOCH = re.compile(r"\d{9,13}(?:\.\d{1,9})?", re.ASCII)
_RFC_1123 = re.compile(
    r"(?:[A-Za-z]{3}, )?\d{1,2} [A-Za-z]{3} \d{4} \d{2}:\d{2}(?::\d{2})? (?:[A-Z]{1,5}|[+-]\d{4})", re.ASCII
)
Found: TypeAlias = Literal["announced", "none", "unlisted", "unreadable", "failed"]


class Retirement(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint says of one of its models. `at` is the shutdown in Unix seconds, if `found` is "announced".

    "none": no date before the year 2100 is announced. "unlisted": the list does not name the model (an alias, a
    deployment). "unreadable": its only dates cannot be read. "failed": there is no list, or it cannot be read; `detail`
    says why. `unreadable` are the fields whose date cannot be read, also where another one can.
    """

    found: Found
    at: float | None = None
    detail: str = ""
    unreadable: tuple[str, ...] = ()


class _Models(msgspec.Struct):
    data: list[dict[str, Any]]


async def read(base_url: str, api_key: str | None, model: str, *, timeout_s: float = TIMEOUT_S) -> Retirement:
    """Ask `GET {base_url}/models` for the date on which `model` is shut down. Raises nothing.

    No redirect is followed, and no more than 8 MiB are read.
    """
    import httpx  # noqa: PLC0415 - without a judge nothing else needs it: 3 MB and 0.1 s

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
        models = _entries(reply.content)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return Retirement(found="failed", detail="the reply is not a list of models in JSON")
    entry = next((described for described in models if described.get("id") == model), None)
    return Retirement(found="unlisted") if entry is None else announced(entry)


def _entries(body: bytes) -> list[dict[str, Any]]:
    """Return the entries of a list of models. NaN and Infinity, which Python servers write, are read too.

    Raises ValueError, RecursionError.
    """
    try:
        return msgspec.json.decode(body, type=_Models).data
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(body), type=_Models).data


def announced(entry: Mapping[str, Any]) -> Retirement:
    """Return the date in a model's entry.

    >>> announced({"id": "m", "shutdown_date": "1970-01-02"}).at
    86400.0
    >>> announced({"id": "m", "shutdown_date": None}).found
    'none'
    """
    unreadable: list[str] = []
    for name in FIELDS:
        if (given := entry.get(name)) is None or given is False or given == "":
            continue
        if (at := moment(given)) is not None:
            if at >= _FAR:
                continue
            return Retirement(found="announced", at=at, unreadable=tuple(unreadable))
        unreadable.append(name)
    return Retirement(found="unreadable" if unreadable else "none", unreadable=tuple(unreadable))


def moment(given: object) -> float | None:
    """Return a date, or a time, in Unix seconds; None for what is neither.

    Read are ISO 8601 (UTC without an offset), RFC 1123, and Unix seconds or milliseconds, also as a string.

    >>> moment("2027-03-01"), moment("2027-03-01T12:00:00Z"), moment(1803859200), moment("soon"), moment(True)
    (1803859200.0, 1803902400.0, 1803859200.0, None, None)
    >>> moment(1803859200000), moment("1803859200"), moment("Mon, 01 Mar 2027 00:00:00 GMT")
    (1803859200.0, 1803859200.0, 1803859200.0)
    """
    if isinstance(given, str) and _EPOCH.fullmatch(given := given.strip()):
        given = float(given)
    if isinstance(given, int | float) and not isinstance(given, bool):
        if not 0.0 < given < _LATEST * 1000.0:
            return None
        return _within(given / 1000.0 if given >= _MILLISECONDS else float(given))
    return _written(given) if isinstance(given, str) else None


def _within(seconds: float) -> float | None:
    return seconds if 0.0 < seconds < _LATEST else None


def _written(given: str) -> float | None:
    """Return a date that is written as text."""
    try:
        if len(given) == len("2027-03-01"):
            found = datetime.combine(date.fromisoformat(given), time(), UTC)
        elif _RFC_1123.fullmatch(given):
            found = parsedate_to_datetime(given)
        else:
            found = datetime.fromisoformat(given)
        return _within((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None

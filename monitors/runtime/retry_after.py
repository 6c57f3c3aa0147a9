"""The `Retry-After` header of a response (RFC 9110, 10.2.3), and OpenAI's `retry-after-ms`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz

_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return how many seconds a server asks to wait; None when it does not say, or not in a form that is known.

    `headers` have lower-case names, or ignore case. `now` is the Unix time that a date is compared with.

    >>> retry_after_s({"retry-after": "2", "retry-after-ms": "1500"}, 0.0)
    1.5
    >>> retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 45.0)
    15.0
    >>> retry_after_s({"retry-after": "soon"}, 0.0)
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    try:
        date = parsedate_tz(value)
        return None if date is None else max(0.0, mktime_tz((*date[:9], date[9] or 0)) - now)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None

"""The session of an exchange: what the app says by the explicit channel, headers, baggage or metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from gaugeway.exchange import Explicit
from gaugeway.settings.bounds import optional_name

SESSION_HEADERS = ("helicone-session-id", "x-litellm-session-id", "x-session-id")
"""Headers that apps send to other gateways and tracers."""

_BAGGAGE = "session.id"
_METADATA = (
    *("conversation_id", "conversationId", "thread_id", "threadId", "chat_id", "chatId"),
    *("session_id", "sessionId", "session.id"),
)
"""Keys of the body's `metadata`, the narrowest first: a session may hold several conversations."""

_INT64 = 2**63


def session_of(
    headers: Mapping[str, str], body: Mapping[str, Any], explicit: Explicit | None, names: Sequence[str]
) -> str | None:
    """Return the name of the session; None if nothing names one. `headers` and `names` are in lower case.

    In this order: the explicit channel, the headers of `names`, W3C baggage `session.id`, the body's `metadata`, and
    the `conversation` of the Responses API.
    """
    if explicit is not None and explicit.session:
        return explicit.session
    for name in names:
        if value := headers.get(name, "").strip():
            return optional_name(_utf8(value))
    said = _from_baggage(headers["baggage"]) if "baggage" in headers else None
    return optional_name(said or _from_metadata(body.get("metadata")) or conversation_id(body.get("conversation")))


def _utf8(value: str) -> str:
    """Header values are read as Latin-1; most that are no ASCII are UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _from_baggage(header: str) -> str | None:
    """Read `session.id` of a W3C baggage header (https://www.w3.org/TR/baggage/).

    >>> _from_baggage("user=7, session.id = a%20b ;ttl=3")
    'a b'
    """
    for member in header.split(","):
        name, equals, value = member.partition(";")[0].partition("=")
        if equals and name.strip() == _BAGGAGE:
            return unquote(value.strip()) or None
    return None


def _from_metadata(metadata: Any) -> str | None:
    if not isinstance(metadata, dict):
        return None
    return next((value for key in _METADATA if (value := _named(metadata.get(key)))), None)


def _named(value: Any) -> str | None:
    """Return a text, or an integer (a row's number) as its decimal text.

    >>> _named("a"), _named(42), _named(True), _named(4.5), _named(10**400)
    ('a', '42', None, None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if -_INT64 <= value < _INT64 else None
    return value if isinstance(value, str) else None


def conversation_id(value: Any) -> str | None:
    """Return the id in the `conversation` of a Responses request: an id, or an object with one."""
    if isinstance(value, dict):
        value = value.get("id")
    return value if isinstance(value, str) and value else None

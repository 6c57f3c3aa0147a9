"""Virtual keys: their format, their permissions, and the check of a request's key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from gateway.http.errors import Rejection
from gaugeway.exchange import Headers
from gaugeway.settings.bounds import bounded_name, optional_name
from gaugeway.storage.keys import PREFIX, VirtualKey, digest

CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})
"""The headers in which clients of OpenAI, Azure and Anthropic send a key."""

_BEARER = re.compile(rb"bearer +", re.IGNORECASE)
_PREFIX = PREFIX.encode()
_DURATION = re.compile(r"(\d{1,9})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WELL_FORMED = re.compile(rb"gw-[A-Za-z0-9_-]{43}")
_EXPECTED = "expected 'Authorization: Bearer gw-...'"
_MALFORMED = "Malformed API key: expected 'gw-' followed by 43 characters (A-Z, a-z, 0-9, '-', '_')."
_UNKNOWN = "Incorrect API key given: it has the right form, but this gateway does not know it."
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="Gaugeway"'),)


def is_pattern(text: str) -> bool:
    """Whether every `[` of a shell pattern has its `]`; `fnmatch` takes one without for a plain character.

    >>> is_pattern("gpt-[45]*"), is_pattern("gpt-["), is_pattern("[!]"), is_pattern("[]]")
    (True, False, False, True)
    """
    while (begin := text.find("[")) >= 0:
        first = begin + 1 + text.startswith("!", begin + 1)
        if (end := text.find("]", first + 1)) < 0:
            return False
        text = text[end + 1 :]
    return True


class Keyring:
    """A snapshot of the keys, looked up by the hash of the presented secret: secrets are never compared.

    Timing may reveal something about the hash, from which the key cannot be derived.
    """

    def __init__(self, keys: Iterable[VirtualKey] = ()) -> None:
        self._by_digest = {key.digest: key for key in keys}
        self._by_id = {key.id: key for key in self._by_digest.values()}

    def __len__(self) -> int:
        return len(self._by_digest)

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._by_id

    def find(self, headers: Headers) -> VirtualKey | None:
        """Return the key that a request presents, whatever its state; None if there is none or it is not known."""
        presented = presented_key(headers)
        return None if presented is None else self._by_digest.get(digest(presented))

    def check(self, headers: Headers, now: float) -> VirtualKey:
        """Return the key of a request (header names in lower case). Raises Rejection with 401."""
        if (presented := presented_key(headers)) is None:
            raise _refusal(_without_ours(headers))
        if (key := self._by_digest.get(digest(presented))) is None:
            raise _refusal(_UNKNOWN if _WELL_FORMED.fullmatch(presented) else _MALFORMED)
        _check_state(key, now)
        return key

    def check_id(self, key_id: str, now: float) -> None:
        """Raise Rejection with 401 unless a key that was checked before is still valid."""
        if (key := self._by_id.get(key_id)) is None:
            raise _refusal("This API key was deleted.")
        _check_state(key, now)


def presented_key(headers: Headers) -> bytes | None:
    """Return the first of our keys among a request's credentials.

    >>> presented_key([(b"authorization", b"Bearer gw-secret")])
    b'gw-secret'
    >>> presented_key([(b"authorization", b"Bearer sk-the-provider's")])
    """
    for name, value in headers:
        if name in CREDENTIALS:
            key = _BEARER.sub(b"", value, count=1).strip() if name == b"authorization" else value.strip()
            if key.startswith(_PREFIX):
                return key
    return None


def without_credentials(headers: Headers) -> Headers:
    """Return the headers without credentials: the upstream must not receive the gateway's keys."""
    return [(name, value) for name, value in headers if name not in CREDENTIALS]


def model_asked(path: str, in_body: str | None) -> str | None:
    """Return the model a request asks for: the body's, or the deployment's of an Azure-style path.

    None when the two differ: the upstream decides which one counts, so neither may be used for the permission check.

    >>> model_asked("/openai/deployments/gpt-4o/chat/completions", None)
    'gpt-4o'
    >>> model_asked("/openai/deployments/o3/chat/completions", "gpt-4o")
    """
    _, marker, rest = path.partition("/deployments/")
    deployment = bounded_name(rest.split("/", 1)[0]) if marker else None
    in_body = optional_name(in_body)
    if deployment is None or in_body is None:
        return deployment or in_body
    return in_body if in_body == deployment else None


def check_model(key: VirtualKey, model: str | None) -> None:
    """Raise Rejection with 403 for a model that the key does not allow."""
    if key.allows(model):
        return
    if model is None:
        message = "This key is restricted to certain models, and the request has no readable 'model'."
    else:
        message = f"This API key does not allow the model '{model[:100]}'."
    raise Rejection(403, "model_not_allowed", message, "model")


def parse_expiry(text: str, now: float) -> float:
    """Return the Unix time of a duration from now (30d, 12h, 45m, 2w) or of an ISO date or time (UTC by default).

    Raises ValueError for anything else, and for a time in the past.

    >>> parse_expiry("2h", 1000.0)
    8200.0
    >>> parse_expiry("1970-01-02", 1000.0)
    86400.0
    """
    try:
        if match := _DURATION.fullmatch(text.strip().lower()):
            expires_at = now + timedelta(**{_UNITS[match[2]]: int(match[1])}).total_seconds()
            datetime.fromtimestamp(expires_at, UTC)
        else:
            moment = datetime.fromisoformat(text.strip())
            expires_at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{text!r}: expected a duration such as 30d or 12h, or an ISO date") from error
    if expires_at <= now:
        raise ValueError(f"{text!r} is not in the future")
    return expires_at


def _without_ours(headers: Headers) -> str:
    given = [name.decode() for name, value in headers if name in CREDENTIALS and value.strip()]
    if not given:
        return f"No API key given: {_EXPECTED}."
    name = "Authorization" if given[0] == "authorization" else given[0]
    return f"The {name} header holds no Gaugeway key (gw-...). Provider keys are not accepted."


def _check_state(key: VirtualKey, now: float) -> None:
    if (state := key.state(now)) != "active":
        raise _refusal(f"This API key was revoked ({key.id})." if state == "revoked" else f"{key.id} has expired.")


def _refusal(message: str) -> Rejection:
    return Rejection(401, "invalid_api_key", message, headers=_CHALLENGE)

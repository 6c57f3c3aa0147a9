"""Signed sessions and form keys (CSRF). Pure: callers pass the time.

A session is a random id and an expiry time, signed with a key derived from the token. Sessions survive a restart and
become invalid when the token changes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from cachetools import FIFOCache

SESSION_S = 12 * 3600.0
MAX_REVOKED = 10_000
_SALT = b"gaugeway operator's page"


class Sessions:
    """Issues, checks and revokes sessions. Without a token no session is needed; form keys use the empty session."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        # Slow on purpose: a stolen session must not allow a weak token to be brute-forced.
        self._key = hashlib.scrypt(token.encode(), salt=_SALT, n=2**14, r=8, p=1) if token else secrets.token_bytes(32)
        self._revoked: FIFOCache[str, float] = FIFOCache(MAX_REVOKED)

    @property
    def needed(self) -> bool:
        """Whether visitors must log in."""
        return self._token is not None

    def issue(self, now: float) -> str:
        """A new session as its cookie value."""
        body = f"{secrets.token_urlsafe(18)}.{int(now + SESSION_S)}"
        return f"{body}.{self._sign('session', body)}"

    def valid(self, session: str, now: float) -> bool:
        """Whether a session's signature is valid and it is neither expired nor revoked."""
        body, _, signature = session.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", body).encode()):
            return False
        name, _, ends = body.partition(".")
        return now < int(ends) and name not in self._revoked

    def revoke(self, session: str, now: float) -> None:
        """Revoke a session before it expires."""
        if self.valid(session, now):
            self._revoked[session.partition(".")[0]] = now

    def form_key(self, session: str) -> str:
        """The CSRF key that forms of this session must carry."""
        return self._sign("form", session)

    def is_form_key(self, given: str, session: str) -> bool:
        """Whether a form's key is the session's, in constant time."""
        return hmac.compare_digest(given.encode(), self.form_key(session).encode())

    def _sign(self, purpose: str, body: str) -> str:
        return hmac.new(self._key, f"{purpose}\0{body}".encode(), hashlib.sha256).hexdigest()

"""Who is logged in, and which form is ours. Pure: the time is told.

A session is a number and its end, signed with a key that is made of the token but does not lead back to it: it
survives a restart, and no session is worth anything under another token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict

SESSION_S = 12 * 3600.0
MAX_REVOKED = 10_000
_SALT = b"gaugeway operator's page"


class Sessions:
    """Issues, checks and ends sessions. Without a token there are none, and everybody has the forms of nobody."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        # Slow on purpose: who steals a session must not find a weak token by trying.
        self._key = hashlib.scrypt(token.encode(), salt=_SALT, n=2**14, r=8, p=1) if token else secrets.token_bytes(32)
        self._revoked: OrderedDict[str, float] = OrderedDict()

    @property
    def needed(self) -> bool:
        """Whether anything is asked of visitors."""
        return self._token is not None

    def is_token(self, given: str) -> bool:
        """Whether it is the token; takes as long whatever is given."""
        return self._token is not None and hmac.compare_digest(_digest(given), _digest(self._token))

    def issue(self, now: float) -> str:
        """A new session, as its cookie carries it."""
        body = f"{secrets.token_urlsafe(18)}.{int(now + SESSION_S)}"
        return f"{body}.{self._sign('session', body)}"

    def valid(self, session: str, now: float) -> bool:
        """Whether a cookie's session is one of ours and not over."""
        body, _, signature = session.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", body).encode()):
            return False
        name, _, ends = body.partition(".")
        return now < int(ends) and name not in self._revoked

    def revoke(self, session: str, now: float) -> None:
        """End a session before its time."""
        if self.valid(session, now):
            self._revoked[session.partition(".")[0]] = now
            while len(self._revoked) > MAX_REVOKED:
                self._revoked.popitem(last=False)

    def form_key(self, session: str) -> str:
        """What a form must carry to be taken: only a page of ours, shown to this session, knows it."""
        return self._sign("form", session)

    def is_form_key(self, given: str, session: str) -> bool:
        """Whether a form was ours."""
        return hmac.compare_digest(given.encode(), self.form_key(session).encode())

    def _sign(self, purpose: str, body: str) -> str:
        return hmac.new(self._key, f"{purpose}\0{body}".encode(), hashlib.sha256).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

"""Virtual keys as they are stored, and what they and the apps have spent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fnmatch import fnmatchcase

PREFIX = "gw-"
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of a key; None for no limit."""

    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualKey:
    """A key as it is stored: without its secret. Times are Unix seconds; `models` are shell patterns."""

    id: str
    digest: bytes
    app: str
    created_at: float
    models: tuple[str, ...] = ("*",)
    expires_at: float | None = None
    revoked_at: float | None = None
    quota: Quota = Quota()

    def state(self, now: float) -> str:
        """Return active, revoked or expired."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"

    def allows(self, model: str | None) -> bool:
        """Whether the key may be used for `model`; one with a list of models not for a request that names none."""
        if "*" in self.models:
            return True
        return model is not None and any(fnmatchcase(model, pattern) for pattern in self.models)


def digest(key: bytes) -> bytes:
    """Return the hash under which a key is stored.

    SHA-256, not a slow hash (scrypt, argon2): those protect guessable secrets such as passwords. Keys have 256 random
    bits, which cannot be guessed at any speed, and a slow hash would delay every request.
    """
    return hashlib.sha256(key).digest()

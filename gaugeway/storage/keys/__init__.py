"""The key store: the port for virtual keys and spending, and the names of its adapters."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gaugeway.storage.keys.virtual_key import PREFIX, SECRET_BYTES, Quota, Spending, VirtualKey, digest

BUILT_IN = {
    "postgresql": "gaugeway.storage.engines.postgres.keys:PostgresKeyStore",
    "postgres": "gaugeway.storage.engines.postgres.keys:PostgresKeyStore",
}
"""URL scheme -> adapter. Without a URL it is the file in the data directory."""
SPENDING_DAYS = 35
"""How long spending is kept."""


class Created(NamedTuple):
    """A new key, and the only copy of its secret."""

    key: VirtualKey
    secret: str


class Keys(Protocol):
    """Stores keys and spending. Operations raise `engines.failures.FAILURES`; the next one tries again."""

    async def create(
        self,
        *,
        app: str,
        now: float,
        models: tuple[str, ...] = ("*",),
        expires_at: float | None = None,
        quota: Quota | None = None,
    ) -> Created:
        """Create a key."""

    async def revoke(self, key_id: str, now: float) -> bool:
        """Revoke a key; False when the id is unknown. A key revoked earlier keeps that time."""

    async def keys(self) -> list[VirtualKey]:
        """Return all keys, oldest first."""

    async def changed(self, revision: bytes | None) -> tuple[bytes, list[VirtualKey] | None]:
        """Return the revision and, if it is not the one given, all keys.

        Keys that were there and are gone altogether, with what they were in, are a failure: none shuts everybody out.
        """

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        """Add spending, all or nothing; return what all processes together have spent today."""

    async def aclose(self) -> None:
        """Close the file or connections; the next operation opens them again."""


def new_key(*, app: str, now: float, models: tuple[str, ...], expires_at: float | None, quota: Quota | None) -> Created:
    """Generate a key; it is not stored yet."""
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    key = VirtualKey(
        id=f"key_{secrets.token_hex(6)}",
        digest=digest(secret.encode()),
        app=app,
        models=models,
        created_at=now,
        expires_at=expires_at,
        quota=quota or Quota(),
    )
    return Created(key, secret)

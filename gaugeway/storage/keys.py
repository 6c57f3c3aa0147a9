"""Virtual keys and spending: what the documents of an engine keep of them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from gaugeway.storage.documents import Changes, Collection, Documents, Row
from gaugeway.storage.engine import adapter
from gaugeway.storage.engines.failures import EngineError

PREFIX = "gw-"
SECRET_BYTES = 32
_PLAIN = re.compile(r"[\w.:@/ -]{1,120}", re.ASCII)
KEYS = Collection(
    name="keys",
    key=("id",),
    others=(
        *("digest", "app", "models", "created_at", "expires_at", "revoked_at"),
        *("requests_per_min", "tokens_per_min", "usd_per_day"),
    ),
    must_stay=True,  # no keys would shut everybody out
)


class Quota(Struct, frozen=True, kw_only=True):
    """The limits of a key; None for no limit."""

    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    usd_per_day: float | None = None


class VirtualKey(Struct, frozen=True, kw_only=True):
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


def stored_name(subject: str) -> str:
    """Return a subject (`key:ID`, `app:NAME`, `app-other`) as it is stored; unusual names are replaced by a hash.

    No engine takes every character, nor an index names of any length, and one such name must not hold up the others.

    >>> stored_name("app:shop")
    'app:shop'
    >>> len(stored_name("app:" + "x" * 9000))
    68
    """
    if _PLAIN.fullmatch(subject):
        return subject
    kind = "key:" if subject.startswith("key:") else "app:"
    return kind + hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()


class Created(NamedTuple):
    """A new key, and the only copy of its secret."""

    key: VirtualKey
    secret: str


class Keys:
    """Stores keys and spending in documents. Operations raise `engines.failures.FAILURES`; the next one tries again."""

    def __init__(self, documents: Documents) -> None:
        self._documents, self.spend, self.aclose = documents, documents.spend, documents.aclose

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
        await self._documents.update(KEYS, lambda _: Changes(put=[_row_of(key)]))
        return Created(key, secret)

    async def revoke(self, key_id: str, now: float) -> bool:
        """Revoke a key; False when the id is unknown. A key revoked earlier keeps that time."""
        known = False

        def change(rows: Sequence[Row]) -> Changes:
            nonlocal known
            found = [dict(zip(KEYS.columns, row, strict=True)) for row in rows if row[0] == key_id]
            known = bool(found)
            return Changes(
                put=[tuple((row | {"revoked_at": now}).values()) for row in found if row["revoked_at"] is None]
            )

        await self._documents.update(KEYS, change)
        return known

    async def keys(self) -> list[VirtualKey]:
        """Return all keys, oldest first."""
        return (await self.changed(None))[1] or []

    async def changed(self, revision: bytes | None) -> tuple[bytes, list[VirtualKey] | None]:
        """Return the revision and, if it is not the one given, all keys.

        Keys that were there and are gone altogether, with what they were in, are a failure: none shuts everybody out.
        """
        current, rows = await self._documents.changed(KEYS, revision)
        # In a thread: decoding thousands of keys must not delay requests.
        return current, None if rows is None else await asyncio.to_thread(_read_keys, rows)


def open_keys(url: str | None, data_dir: Path, *, busy_timeout_s: float = 5.0) -> Keys:
    """Return the keys in the database that `url` names, `postgresql://…/database`; without one, those in `data_dir`.

    Nothing is opened yet. Raises ValueError, which does not quote the URL.
    """
    if url is not None:
        return Keys(adapter(url, "keys").from_url(url))
    from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments  # noqa: PLC0415 - only where there is no URL

    return Keys(SQLiteDocuments(data_dir, busy_timeout_s=busy_timeout_s))


def _row_of(key: VirtualKey) -> Row:
    quota = key.quota
    limits = (quota.requests_per_min, quota.tokens_per_min, quota.usd_per_day)
    times = (key.created_at, key.expires_at, key.revoked_at)
    return (key.id, key.digest, key.app, json.dumps(key.models), *times, *limits)


def _read_keys(rows: Sequence[Row]) -> list[VirtualKey]:
    return sorted(map(_read_key, rows), key=lambda key: (key.created_at, key.id))


def _read_key(row: Row) -> VirtualKey:
    """Return the key of a row. Raises EngineError when its models are not JSON."""
    key_id, key_digest, app, models, created_at, expires_at, revoked_at, requests, tokens, usd = row
    try:
        names = tuple(json.loads(models))
    except (TypeError, ValueError) as error:
        raise EngineError(f"the row of key {key_id} is damaged: {type(error).__name__}") from error
    return VirtualKey(
        id=key_id,
        digest=key_digest,
        app=app,
        models=names,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        quota=Quota(requests_per_min=requests, tokens_per_min=tokens, usd_per_day=usd),
    )

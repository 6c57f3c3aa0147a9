"""A key as a table row, the same in every engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.keys.virtual_key import Quota, VirtualKey

COLUMNS = "id, digest, app, models, created_at, expires_at, revoked_at, requests_per_min, tokens_per_min, usd_per_day"


def row_of(key: VirtualKey) -> tuple[Any, ...]:
    """Return a key's values of `COLUMNS`."""
    quota = key.quota
    limits = (quota.requests_per_min, quota.tokens_per_min, quota.usd_per_day)
    return (
        *(key.id, key.digest, key.app, json.dumps(key.models)),
        *(key.created_at, key.expires_at, key.revoked_at),
        *limits,
    )


def read_key(row: Sequence[Any]) -> VirtualKey:
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

"""Retried requests: the same body sent again by the same client, whose answer is judged once."""

from __future__ import annotations

from hashlib import blake2b

from cachetools import TTLCache

_DIGEST_BYTES = 16


class Resubmissions:
    """Remembers the last `limit` request keys for `window_s` seconds after each was last seen.

    Raises ValueError unless window and limit are positive.
    """

    def __init__(self, window_s: float, limit: int) -> None:
        if not window_s > 0 or limit < 1:
            raise ValueError(f"window and limit must be positive, got {window_s!r} and {limit!r}")
        self._now = 0.0
        self._seen: TTLCache[bytes, None] = TTLCache(limit, window_s, timer=lambda: self._now)

    def __len__(self) -> int:
        return len(self._seen)

    def seen(self, key: bytes, now: float) -> bool:
        """Record `key` at the time `now` (seconds); return whether it was recorded within the window before.

        >>> resubmissions = Resubmissions(window_s=10, limit=100)
        >>> [resubmissions.seen(b"key", now) for now in (0.0, 5.0, 30.0)]
        [False, True, False]
        """
        self._now = now
        known = key in self._seen
        self._seen[key] = None
        return known


def digest(app: str, credential: bytes, path: str, body: bytes) -> bytes:
    """Return the key of a request: a hash that is equal only for the same body, path, app and credential."""
    hashed = blake2b(digest_size=_DIGEST_BYTES, person=b"resubmission")
    for part in (app.encode("utf-8", "surrogatepass"), credential, path.encode("utf-8", "surrogatepass"), body):
        hashed.update(len(part).to_bytes(8, "big"))  # so that no part can be mistaken for the end of another
        hashed.update(part)
    return hashed.digest()

"""Retried requests: the same body sent again by the same client, whose answer is judged once."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

_DIGEST_BYTES = 16


class Resubmissions:
    """Remembers the last `limit` request keys for `window_s` seconds after each was last seen.

    Raises ValueError unless window and limit are positive.
    """

    def __init__(self, window_s: float, limit: int) -> None:
        if not window_s > 0 or limit < 1:
            raise ValueError(f"window and limit must be positive, got {window_s!r} and {limit!r}")
        self._window_s, self._limit = window_s, limit
        self._ends: OrderedDict[bytes, float] = OrderedDict()  # cachetools' TTLCache takes ten times as long

    def __len__(self) -> int:
        return len(self._ends)

    def seen(self, key: bytes, now: float) -> bool:
        """Record `key` at the time `now` (seconds); return whether it was recorded within the window before.

        >>> resubmissions = Resubmissions(window_s=10, limit=100)
        >>> [resubmissions.seen(b"key", now) for now in (0.0, 5.0, 30.0)]
        [False, True, False]
        """
        ends = self._ends
        known = now < ends.pop(key, now)
        while ends and (len(ends) >= self._limit or next(iter(ends.values())) <= now):
            ends.popitem(last=False)
        ends[key] = now + self._window_s
        return known


def digest(app: str, credential: bytes, path: str, body: bytes) -> bytes:
    """Return the key of a request: a hash that is equal only for the same body, path, app and credential."""
    parts = app.encode("utf-8", "surrogatepass"), credential, path.encode("utf-8", "surrogatepass")
    # With the lengths in front, so that no part can be mistaken for the end of another.
    said = b"".join([len(part).to_bytes(8, "big") + part for part in parts]) + len(body).to_bytes(8, "big")
    hashed = blake2b(said, digest_size=_DIGEST_BYTES, person=b"resubmission")
    hashed.update(body)
    return hashed.digest()

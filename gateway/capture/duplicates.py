"""Requests that came once more: a client that retries sends the same body again, and it should count once."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

_DIGEST_BYTES = 16


class Resubmissions:
    """Remembers the last `limit` keys for `window_s` seconds. What was seen longest ago is forgotten first.

    The window starts anew with every time a key is seen. Raises ValueError for a window or limit that is not positive.
    """

    def __init__(self, window_s: float, limit: int) -> None:
        if not window_s > 0 or limit < 1:
            raise ValueError(f"window and limit are positive, got {window_s!r} and {limit!r}")
        self._window_s = window_s
        self._limit = limit
        self._seen_at: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen_at)

    def seen(self, key: bytes, now: float) -> bool:
        """Note `key`; True when it was noted within the window before `now` (seconds of a clock that never goes back).

        >>> resubmissions = Resubmissions(window_s=10, limit=100)
        >>> [resubmissions.seen(b"key", now) for now in (0.0, 5.0, 30.0)]
        [False, True, False]
        """
        before = self._seen_at.pop(key, None)
        self._seen_at[key] = now
        while len(self._seen_at) > self._limit or self._oldest_is_over(now):
            self._seen_at.popitem(last=False)
        return before is not None and now - before <= self._window_s

    def _oldest_is_over(self, now: float) -> bool:
        return now - next(iter(self._seen_at.values())) > self._window_s


def digest(app: str, credential: bytes, path: str, body: bytes) -> bytes:
    """Return the key of a request: equal for the same body to the same path from the same app and credential only.

    Nothing of them can be read out of it.
    """
    hashed = blake2b(digest_size=_DIGEST_BYTES, person=b"resubmission")
    for part in (app.encode("utf-8", "surrogatepass"), credential, path.encode("utf-8", "surrogatepass"), body):
        hashed.update(len(part).to_bytes(8, "big"))  # so that no part can pass for the end of another
        hashed.update(part)
    return hashed.digest()

"""The response cache: replays a response for the same request of the same app with the same credentials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec
from cachetools import LRUCache

from gaugeway.exchange import GENERATION_ROUTES, Headers

ROUTES = GENERATION_ROUTES | {"embeddings"}
HIT = (b"x-gaugeway-cache", b"hit")
MISS = (b"x-gaugeway-cache", b"miss")

# Every header may be a credential or change the answer, except these. The key holds all others, hashed.
_HARMLESS = frozenset(
    {
        b"cache-control",  # read by `_wishes`
        *(b"connection", b"content-length", b"date", b"expect", b"gaugeway-via", b"host", b"keep-alive", b"pragma"),
        *(b"proxy-connection", b"te", b"transfer-encoding", b"user-agent"),
        *(b"b3", b"baggage", b"sentry-trace", b"traceparent", b"tracestate", b"x-amzn-trace-id"),
        *(b"x-client-request-id", b"x-cloud-trace-context", b"x-correlation-id", b"x-request-id"),
    }
)
_HARMLESS_PREFIXES = (b"x-b3-", b"x-datadog-", b"x-gaugeway-", b"x-stainless-")
_CHOOSES_UPSTREAM = b"x-gaugeway-upstream"
# Counts of the moment: a client that paces itself by an old one would be misled.
_OF_THE_MOMENT = (b"x-ratelimit-", b"anthropic-ratelimit-", b"retry-after", b"x-gaugeway-")
_STREAM_ERRORS = (
    *(b"\nevent: error", b"\nevent:error", b'\ndata: {"error"', b'\ndata:{"error"'),
    *(b'"response.failed"', b'"response.cancelled"'),
)
_STREAM_ENDS = (
    (b'"message_start"', (b'"message_stop"',)),
    (b'"response.created"', (b'"response.completed"', b'"response.incomplete"')),
)
"""How a stream begins, and the events of which one ends it."""
_UNFINISHED = ("failed", "cancelled", "queued", "in_progress")
_ENTRY_BYTES = 1024
_PIECE_BYTES = 96
_OK = 200


class _Body(msgspec.Struct):
    """What of a JSON response says that it is no answer."""

    error: Any = None
    status: Any = None


_decode = msgspec.json.Decoder(_Body).decode


@dataclass(frozen=True, slots=True)
class CacheKey:
    """A request's identity, as a hash.

    `lookup` and `store` say what the client's Cache-Control allows; they are not part of the identity.
    """

    digest: bytes
    lookup: bool = field(default=True, compare=False)
    store: bool = field(default=True, compare=False)


class Cached(msgspec.Struct, frozen=True):
    """A cached response: `headers` are the upstream's and an Age; the chunks of a stream stay separate."""

    status: int
    headers: Headers
    chunks: tuple[bytes, ...]


class _Entry(msgspec.Struct, frozen=True):
    response: Cached
    stored_at: float
    size: int


def cache_key(
    *, app: str, key_id: str | None, route: str, method: str, path: bytes, query: bytes, headers: Headers, body: bytes
) -> CacheKey | None:
    """Return the cache key of a request; None for a request that is never cached.

    `headers` are the client's (names in lower case), `key_id` is the id of the virtual key among them, `body` is the
    client's without the `gaugeway` member and without what the gateway adds. Every part is preceded by its length, so
    that different requests never hash the same text.
    """
    if method != "POST" or route not in ROUTES:
        return None
    lookup, store = _wishes(headers)
    compared = sorted((header for header in headers if not _is_harmless(header[0])), key=itemgetter(0))
    parts = [app.encode(errors="surrogatepass"), b"" if key_id is None else b"key " + key_id.encode(), path, query]
    parts += [part for header in compared for part in header]
    hashed = hashlib.sha256(len(parts).to_bytes(8, "big"))
    for part in (*parts, body):
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return CacheKey(hashed.digest(), lookup, store)


class Cache:
    """An LRU cache of responses, each for `ttl_s` seconds, in `max_bytes` at most.

    `apps` are the apps whose responses are cached; "*" means all (each still on its own). `now` is a monotonic clock in
    seconds. Sizes count bodies, headers and an estimate of what Python needs to hold them.
    """

    def __init__(self, apps: Iterable[str], *, ttl_s: float, max_bytes: int) -> None:
        self._apps = frozenset(apps)
        self._ttl_s = ttl_s
        self.max_bytes = max_bytes
        # Not TTLCache, whose clock is its own: what has expired is found when it is looked up, or makes room in turn.
        self._entries: LRUCache[bytes, _Entry] = LRUCache(max_bytes, getsizeof=lambda entry: entry.size)

    @property
    def size(self) -> int:
        """The bytes in use."""
        return int(self._entries.currsize)

    def __len__(self) -> int:
        return len(self._entries)

    def serves(self, app: str) -> bool:
        """Whether responses to this app are cached."""
        return app in self._apps or "*" in self._apps

    def lookup(self, key: CacheKey, now: float) -> Cached | None:
        """Return the cached response to a request, if there is a fresh one."""
        entry = self._entries.get(key.digest) if key.lookup else None
        if entry is None:
            return None
        if (age_s := now - entry.stored_at) >= self._ttl_s:
            del self._entries[key.digest]
            return None
        response = entry.response
        headers = [*response.headers, (b"age", str(int(age_s)).encode()), HIT]
        return Cached(response.status, headers, response.chunks)

    def store(self, key: CacheKey, status: int, headers: Headers, chunks: Sequence[bytes], now: float) -> bool:
        """Cache a complete response, as the client got it; return False if it may not be cached.

        Its headers stay, also `date` and `x-request-id`, which name the original response; each hit adds an Age. Only
        rate-limit counts are left out.
        """
        if not (key.store and status == _OK and _may_be_kept(headers) and _is_an_answer(headers, chunks)):
            return False
        kept = [(name, value) for name, value in headers if not _is_of_the_moment(name.lower())]
        pieces = tuple(chunk for chunk in chunks if chunk)
        size = _ENTRY_BYTES + sum(len(piece) + _PIECE_BYTES for piece in pieces)
        size += sum(len(name) + len(value) + 2 * _PIECE_BYTES for name, value in kept)
        if size > self.max_bytes:
            return False
        self._entries[key.digest] = _Entry(Cached(status, kept, pieces), now, size)
        return True


class CacheRecorder:
    """Collects the chunks of a response for the cache; drops all of them once they are too large."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self.chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        """Add a chunk."""
        if self._left >= 0:
            self._left -= len(chunk)
            self.chunks.append(chunk)
            if self._left < 0:
                self.chunks.clear()

    @property
    def whole(self) -> bool:
        """Whether no chunk was dropped."""
        return self._left >= 0


def _wishes(headers: Headers) -> tuple[bool, bool]:
    """Return whether the client lets us answer from the cache, and keep what it is answered."""
    said = {
        word.strip().lower()
        for name, value in headers
        if name in (b"cache-control", b"pragma")
        for word in value.split(b",")
    }
    return not said & {b"no-store", b"no-cache", b"max-age=0"}, b"no-store" not in said


def _may_be_kept(headers: Headers) -> bool:
    """Whether the answer is nobody's own (Set-Cookie), depends on no header that the key leaves out, and is whole.

    One that only the end of the connection ends may have been cut.
    """
    if not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers):
        return False
    for name, value in headers:
        if (lower := name.lower()) in (b"set-cookie", b"set-cookie2"):
            return False
        if lower == b"vary" and any(_is_left_out(word.strip().lower()) for word in value.split(b",")):
            return False
    return True


def _is_harmless(name: bytes) -> bool:
    return name in _HARMLESS or (name.startswith(_HARMLESS_PREFIXES) and name != _CHOOSES_UPSTREAM)


def _is_left_out(word: bytes) -> bool:
    return word == b"*" or _is_harmless(word)


def _is_of_the_moment(name: bytes) -> bool:
    return name == b"age" or name.startswith(_OF_THE_MOMENT)


def _is_an_answer(headers: Headers, chunks: Sequence[bytes]) -> bool:
    """Whether a response with status 200 holds a whole answer, and no error (not detected in a compressed one)."""
    said = {name.lower(): value.strip().lower() for name, value in headers}
    kind = said.get(b"content-type", b"")
    if said.get(b"content-encoding", b"identity") != b"identity":
        return b"event-stream" in kind or b"json" in kind
    if b"event-stream" in kind:
        return _is_whole_stream(b"\n" + b"".join(chunks).replace(b"\r\n", b"\n"))
    if b"json" not in kind:
        return False
    try:
        body = _decode(b"".join(chunks))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return body.error is None and body.status not in _UNFINISHED


def _is_whole_stream(stream: bytes) -> bool:
    if not stream.endswith(b"\n\n") or any(sign in stream for sign in _STREAM_ERRORS):
        return False
    return all(any(end in stream for end in ends) for begin, ends in _STREAM_ENDS if begin in stream)

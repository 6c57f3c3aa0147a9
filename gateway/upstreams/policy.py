"""Routing and retry rules: which upstream a request goes to, and when it is retried. Pure functions of their input."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from math import log
from typing import TypeAlias

import msgspec

from gateway.http.json_cursor import value_starts
from gaugeway.exchange import Headers
from gaugeway.runtime.retry import delay_s, retry_after_s
from gaugeway.settings.bounds import optional_name

Chance: TypeAlias = Callable[[], float]
"""Draws a number from [0, 1)."""

ANY_MODEL = ("*",)
BACKOFF_BASE_S, BACKOFF_MAX_S = 0.25, 8.0
"""First and longest wait before a retry: the client waits meanwhile, and its own timeout runs."""
MAX_RETRY_AFTER_S = 30.0  # internal bound: time between our own attempts
"""Longest Retry-After that is waited for; the response with a longer one is the client's, who can decide."""
MOST_MENTIONS = 10_000
"""How many times the string "model" may occur in a body in which an alias replaces it."""
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream's routing settings.

    `models` are shell patterns; `aliases` maps a model asked for to the one sent. The lowest `priority` goes first.
    `weight` is the share among equals; with 0 it is only reached by name.
    """

    name: str
    models: tuple[str, ...] = ANY_MODEL
    aliases: Mapping[str, str] = {}
    weight: float = 1.0
    priority: int = 0
    max_retries: int = 0

    def serves(self, model: str | None) -> bool:
        """Whether it takes requests for `model`; a request whose model is not known may go anywhere."""
        return model is None or model in self.aliases or any(fnmatchcase(model, pattern) for pattern in self.models)


def serving(routes: Iterable[Route], model: str | None) -> list[Route]:
    """Return the routes for `model`, without those that are only reached by name."""
    return [route for route in routes if route.weight > 0 and route.serves(model)]


def choose(routes: Sequence[Route], *, session: str | None, chance: Chance) -> Route:
    """Choose by weight among the routes of the best priority.

    A session always gets the same one of the same routes (weighted rendezvous hashing): when one comes or goes, only
    the sessions it gains or loses move. Without a session chance decides.
    """
    best = min(route.priority for route in routes)
    peers = [route for route in routes if route.priority == best]
    if len(peers) == 1:
        return peers[0]
    if session is not None:
        return max(peers, key=lambda route: route.weight / -log(_share(session, route.name)))
    point = chance() * sum(route.weight for route in peers)
    for route in peers:
        point -= route.weight
        if point < 0:
            return route
    return peers[-1]


def first(routes: Sequence[Route]) -> Route:
    """Return the first route of the best priority, for requests that name no model, such as those for files."""
    return min(routes, key=lambda route: route.priority)


def _share(session: str, name: str) -> float:
    """Return a number in (0, 1), the same for the same pair on every machine."""
    key = f"{name}\0{session}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 12
    return (number + 0.5) / 2**52  # 52 bits and a half are exact in a float: neither 0 nor 1 can come out


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a failed attempt is repeated. Times in seconds."""

    statuses: frozenset[int]
    backoff_base_s: float = BACKOFF_BASE_S
    backoff_max_s: float = BACKOFF_MAX_S
    max_retry_after_s: float = MAX_RETRY_AFTER_S

    def wait_s(self, retry: int, headers: Headers, *, now: float, chance: Chance) -> float | None:
        """Return the seconds to wait before a retry at the same upstream; None: do not retry there.

        `retry` counts from 0; `headers` are the failed response's, if there was one; `now` is Unix time. Back-off is
        exponential with full jitter; an upstream that names a longer time gets it, up to `max_retry_after_s`.
        """
        if _header(headers, b"x-should-retry") == b"false":
            return None
        backoff = chance() * delay_s(retry, first_s=self.backoff_base_s, longest_s=self.backoff_max_s)
        named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
        if (requested := retry_after_s(named, now)) is None:
            return backoff
        return max(requested, backoff) if requested <= self.max_retry_after_s else None


def _header(headers: Headers, wanted: bytes) -> bytes | None:
    return next((value.strip().lower() for name, value in headers if name.lower() == wanted), None)


class _Asked(msgspec.Struct):
    model: str | None = None


_asked = msgspec.json.Decoder(_Asked)


def model_of(body: bytes) -> str | None:
    """Return the top-level "model" of a JSON object, bounded; None when there is no such text.

    >>> model_of(b'{"messages": [{"model": "no"}], "model": "m"}')
    'm'
    """
    try:
        return optional_name(_asked.decode(body).model)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def replace_model(body: bytes, model: str) -> bytes | None:
    """Replace the top-level "model" of a JSON object; every other byte stays as it is.

    None when there is no such string. If the key occurs several times, all are replaced, as it is up to the upstream
    which one it reads. None also when one of several is not a string, and beyond `MOST_MENTIONS`.

    >>> replace_model(b'{ "model" : "gpt-4o",  "n":1.0 }', "mine")
    b'{ "model" : "mine",  "n":1.0 }'
    """
    try:
        if _asked.decode(body).model is None:
            return None
        body.decode()
        spans = list(_model_spans(body))
    except (ValueError, RecursionError):
        return None
    written = msgspec.json.encode(model)
    parts: list[bytes] = []
    copied = 0
    for start, end in spans:
        parts += (body[copied:start], written)
        copied = end
    return b"".join([*parts, body[copied:]])


def _model_spans(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the values of "model" stand in `body`, which is known to be a JSON object. Raises ValueError."""
    for start in value_starts(body, "model", MOST_MENTIONS):
        if (value := _TEXT.match(body, start)) is None:
            raise ValueError("one of several models is no text")
        yield start, value.end()

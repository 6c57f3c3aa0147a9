"""The limits, the usage and the reservations of one key or one app."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from gateway.access.concurrency import ConcurrencyLimiter
from gateway.access.token_bucket import SharedBucket
from gateway.http.errors import Rejection
from gaugeway.storage.documents import Draw
from gaugeway.storage.keys import Quota

RESERVED_WAIT_S = 1.0
"""Retry-After in seconds when the rest of a limit is reserved: requests under way may use less than they reserved."""


class OverLimit(Rejection):
    """Rejection with status 429 and Retry-After. `type` is OpenAI's error type for the exhausted limit."""

    def __init__(self, kind: str, message: str, wait_s: float, *, retry: bool = True) -> None:
        headers = [
            (b"retry-after", str(math.ceil(wait_s)).encode()),
            (b"retry-after-ms", str(math.ceil(wait_s * 1000)).encode()),
        ]
        if not retry:
            headers.append((b"x-should-retry", b"false"))
        super().__init__(429, "rate_limit_exceeded", message, headers=headers)
        self.type = kind
        self.wait_s = wait_s


class Quote(NamedTuple):
    """The expected usage of a request, reserved while it is under way."""

    tokens: int = 0
    usd: float = 0.0


class Fleet(Struct, kw_only=True):
    """The processes that share limits: how many, whether they are connected, and how often they sync."""

    processes: int
    together: bool = False
    every_s: float = 1.0


class Account:
    """The limits of one key or one app, and its usage in this process."""

    def __init__(self, subject: str, quota: Quota, *, fleet: Fleet, now: float) -> None:
        self.subject = subject
        self.whose = "other apps" if ":" not in subject else subject.replace(":", " ", 1)
        self.turnstile = ConcurrencyLimiter(None)
        self.max_concurrency: int | None = None
        self.queue_s = 0.0
        self._fleet = fleet
        self._quota = quota
        self._usd_per_day: float | None = None
        self._reserved_tokens, self._reserved_usd, self._reservations = 0, 0.0, 0
        self._requests: SharedBucket | None = None
        self._tokens: SharedBucket | None = None
        self.grant(quota, now)

    def grant(self, quota: Quota, now: float) -> None:
        """Replace the limits; the usage so far stays counted."""
        self._requests = self._bucket(self._requests, quota.requests_per_min, now)
        self._tokens = self._bucket(self._tokens, quota.tokens_per_min, now)
        self._quota = quota
        self._usd_per_day = quota.usd_per_day

    def check(self, spent_usd: float, now: float, day_left_s: float) -> None:
        """Raise OverLimit when a limit has no room for one more request."""
        rates = ((self._requests, "requests", self._quota.requests_per_min),)
        for bucket, kind, rate in (*rates, (self._tokens, "tokens", self._quota.tokens_per_min)):
            if bucket is not None and (wait_s := bucket.wait_s(now, self._fleet.every_s)) > 0:
                message = f"Rate limit for {self.whose} exceeded: {_rate(rate, kind)}. {_retry(wait_s)}"
                raise OverLimit(kind, message, wait_s)
        self.check_budget(spent_usd, day_left_s)
        reserved = f"reserved for requests under way. {_retry(RESERVED_WAIT_S)}"
        tokens = self._tokens
        if tokens is not None and self._reserved_tokens and tokens.level(now) - self._reserved_tokens < 1:
            left = f"what is left of {_rate(self._quota.tokens_per_min, 'tokens')} is {reserved}"
            raise OverLimit("tokens", f"Rate limit for {self.whose}: {left}", RESERVED_WAIT_S)
        if self._usd_per_day is not None and spent_usd + self._reserved_usd >= self._usd_per_day:
            left = f"what is left of {self._usd_per_day:,.10g} USD per day is {reserved}"
            raise OverLimit("insufficient_quota", f"Budget of {self.whose}: {left}", RESERVED_WAIT_S)

    def check_budget(self, spent_usd: float, day_left_s: float) -> None:
        """Raise OverLimit when the budget of the day is spent."""
        if self._usd_per_day is not None and spent_usd >= self._usd_per_day:
            budget = f"{self._usd_per_day:,.10g} USD per day"
            message = f"The budget of {self.whose} for today is spent: {budget}. It resets at 00:00 UTC."
            raise OverLimit("insufficient_quota", message, day_left_s, retry=False)

    def crowded(self) -> OverLimit:
        """Return the rejection of a request that got no place within `queue_s`."""
        waited = f"; waited {self.queue_s:g} s" if self.queue_s else ""
        message = f"Concurrency limit of {self.whose} reached ({self.max_concurrency}){waited}."
        return OverLimit("requests", message, 1.0)

    @property
    def has_budget(self) -> bool:
        """Whether USD a day are limited."""
        return self._usd_per_day is not None and not math.isinf(self._usd_per_day)

    def reserve(self, quote: Quote) -> None:
        """Reserve the expected usage of a request, so that concurrent requests cannot use it too."""
        self._reserved_tokens += quote.tokens
        self._reserved_usd += quote.usd
        self._reservations += 1

    def free(self, quote: Quote) -> None:
        """Release a reservation: the request is charged now, or used nothing."""
        self._reservations -= 1
        self._reserved_tokens -= quote.tokens
        self._reserved_usd = self._reserved_usd - quote.usd if self._reservations else 0.0  # no rounding is left over

    def count_request(self, now: float) -> None:
        """Count an admitted request."""
        if self._requests is not None:
            self._requests.take(1.0, now)

    def charge(self, tokens: int, hidden: int, now: float) -> bool:
        """Count tokens, `hidden` ones up to a debt of MAX_DEBT_S; return whether all were counted."""
        return self._tokens is None or self._tokens.take_reported(tokens, hidden, now)

    def draws(self, now: float) -> Iterator[Draw]:
        """Yield the draws that the other processes have not received yet."""
        for kind, bucket in self._buckets():
            if (draw := bucket.draw(self.subject, kind, now)) is not None:
                yield draw

    def hear(self, draw: Draw, level: float, now: float) -> None:
        """Apply the level that is left after one of `draws` was synced."""
        for kind, bucket in self._buckets():
            if kind == draw.kind:
                bucket.hear(draw, level, self._fleet.processes, now)

    def follow(self, now: float) -> None:
        """Follow the fleet: shared limits while connected, otherwise a share of its own."""
        for _, bucket in self._buckets():
            if self._fleet.together:
                bucket.join(self._fleet.processes, now)
            else:
                bucket.part(self._fleet.processes, now)

    def is_idle(self, now: float) -> bool:
        """Whether it can be dropped without losing usage."""
        full = all(bucket.is_full(now) for _, bucket in self._buckets())
        return full and not self._reservations and not self.turnstile.inside and not self.turnstile.waiting

    def _buckets(self) -> Iterator[tuple[str, SharedBucket]]:
        if self._requests is not None:
            yield "requests", self._requests
        if self._tokens is not None:
            yield "tokens", self._tokens

    def _bucket(self, bucket: SharedBucket | None, per_min: float | None, now: float) -> SharedBucket | None:
        if per_min is None or math.isinf(per_min):
            return None
        fleet = self._fleet
        if bucket is None:
            return SharedBucket(per_min, now, processes=fleet.processes, together=fleet.together)
        bucket.retune(per_min, fleet.processes, now)
        return bucket


def _rate(per_min: float | None, kind: str) -> str:
    """Return a limit in words.

    >>> _rate(2.0, "requests"), _rate(1.0, "requests"), _rate(1e6, "tokens")
    ('2 requests per minute', '1 request per minute', '1,000,000 tokens per minute')
    """
    return f"{per_min:,.10g} {kind.removesuffix('s') if per_min == 1 else kind} per minute"


def _retry(wait_s: float) -> str:
    return f"Retry in {math.ceil(wait_s)} s."

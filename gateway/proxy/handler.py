"""The proxy: what all exchanges share, and its entrance for ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gateway.access.accounting import Accounting, Bill
from gateway.access.gate import Gate, Permit
from gateway.access.keys import model_asked, without_credentials
from gateway.access.operations import operation_of
from gateway.access.restrictions import Asked, check_request, is_restricted
from gateway.http import json_member
from gateway.http.errors import Rejection, empty_body, unclear_request
from gateway.http.headers import RequestHead, inspect
from gateway.http.origins import OriginPolicy
from gateway.http.url import check_target
from gateway.proxy import loops
from gateway.proxy import stream_usage as usage
from gateway.proxy.cache import Cache, CacheKey, cache_key
from gateway.proxy.client import AsgiClient
from gateway.proxy.exchange import Exchange
from gateway.proxy.request import Body, Head, begin, read_explicit
from gateway.upstreams.policy import model_of
from gateway.upstreams.router import Outgoing, Router
from gaugeway.exchange import GENERATION_ROUTES, Explicit, Headers, Recording, Trace
from gaugeway.storage.keys import VirtualKey

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send


class Tracing(Protocol):
    """Decides which trace an exchange belongs to."""

    def begin(self, traceparent: bytes | None) -> tuple[Trace | None, bytes | None]:
        """Return the exchange's trace, and the traceparent to send upstream (None: the client's, untouched)."""


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one request's size (bytes) and time (seconds); None for no limit.

    A body and a response that together exceed `content_bytes` are relayed but not captured. `read_s` bounds each wait
    for the upstream.
    """

    body_bytes: int
    upload_bytes: int
    content_bytes: int
    read_s: float = 600.0
    first_byte_s: float | None = None
    total_s: float | None = None


MOST_SCANS = 4
"""How many large bodies are scanned at the same time."""


@dataclass(eq=False, kw_only=True)
class Proxy:
    """The ASGI app for `/v1/*` and `/openai/*`, and what all of its exchanges share.

    `record` is called once per request, at its end, on the event loop: it must neither block nor raise. With
    `include_usage`, streams are requested with usage, which clients that did not request it do not get. `gate` admits
    requests, `accounting` charges them (required with a gate), `cache` may answer them. `gateway_id` is the value of
    `gaugeway-via`. `origins` says which web pages may send requests; None for all.
    """

    router: Router
    record: Callable[[Recording], None]
    tracing: Tracing
    limits: Limits
    include_usage: bool = False
    gate: Gate | None = None
    accounting: Accounting | None = None
    cache: Cache | None = None
    gateway_id: bytes = b""
    origins: OriginPolicy | None = None
    _scans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_SCANS), init=False)

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = list(scope["headers"])
        recording = begin(scope["method"], scope["path"], headers)
        raw_path = scope.get("raw_path") or recording.path.encode()
        head = Head(raw_path, scope["query_string"], headers, inspect(headers))
        await Exchange(self, AsgiClient(scope, receive, send), head, recording).run()

    # A request's head.

    def is_plain(self, seen: RequestHead) -> bool:
        """Whether the request cannot come from a web page."""
        return self.origins is None or self.origins.is_plain(seen)

    def check(self, head: Head, recording: Recording) -> bytes:
        """Check the request's target and framing, and where it comes from; return its `gaugeway-via` for the upstream.

        Raises Rejection.
        """
        seen = head.seen
        check_target(recording.method, head.raw_path)
        if seen.ambiguous:
            raise unclear_request()
        if self.origins is not None and not self.origins.is_plain(seen):
            self.origins.check(head.headers)
        return loops.chain(seen.via, self.gateway_id)

    def identify(self, recording: Recording) -> None:
        """Check the request's key, where one is needed, before its body is read. Raises Rejection."""
        if self.gate is None or not self.gate.needs_key:
            return
        headers = recording.request_headers
        recording.request_headers = without_credentials(headers)  # only the gate gets to see the key
        try:
            key = self.gate.identify(headers)
        except Rejection:
            self.name_owner(headers, recording)
            raise
        if key is not None:
            recording.explicit = Explicit(app=key.app)  # what is refused from here on counts for the key's app

    def name_owner(self, headers: Headers, recording: Recording) -> None:
        """Count a refused request for the app of the key in `headers`, if it is a known one."""
        if self.gate is not None and (app := self.gate.owner(headers)) is not None:
            _count_for(app, recording)

    # Its body.

    async def cut(self, body: bytes) -> tuple[bytes, bytes | None]:
        """Remove our member from a large body as `json_member.cut_key` does. Raises Rejection."""
        async with self._scans:
            steps = json_member.cutting_key(body)
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    pieces, value = stop.value
                    break
                await asyncio.sleep(0)
            # Joining so much releases the interpreter's lock.
            return (body if value is None else await asyncio.to_thread(b"".join, pieces)), value

    def read(
        self,
        body: bytes | AsyncIterator[bytes],
        seen: RequestHead,
        recording: Recording,
        cut: tuple[bytes, bytes | None] | None = None,
    ) -> Body:
        """Read the `gaugeway` member and headers, and make the body that the upstream gets. Raises Rejection.

        `cut` is the body without our member, and the member's value, if it was removed before.
        """
        if not isinstance(body, bytes):
            if seen.ours:
                read_explicit(b"", seen, recording)
            return Body(body, None, b"")
        if not body and recording.route in GENERATION_ROUTES:
            raise empty_body()
        asked, length = read_explicit(body, seen, recording, cut)
        if recording.route in GENERATION_ROUTES:  # not before: a request we refuse leaves nothing behind
            self._keep_request(body, recording)
        sent = asked
        if self.include_usage and recording.route in usage.ROUTES and (more := usage.ask_for_usage(asked)):
            sent, length, recording.asked_for_usage = more, len(more), True
        if length is None and seen.content_length is None and (sent or seen.chunked):
            length = len(sent)
        return Body(sent, length, asked)

    def _keep_request(self, body: bytes, recording: Recording) -> None:
        if len(body) > self.limits.content_bytes:
            recording.too_large = True
        else:
            recording.request_body = body
            recording.size = len(body)

    def outgoing(self, head: Head, via: bytes, body: Body, recording: Recording) -> Outgoing:
        """Return what is to be sent upstream, whichever upstream is chosen."""
        seen, said = head.seen, recording.explicit
        recording.trace, traceparent = self.tracing.begin(seen.traceparent)
        return Outgoing(
            method=recording.method,
            raw_path=head.raw_path,
            query=head.query,
            headers=recording.request_headers,
            body=body.sent,
            content_length=body.length,
            traceparent=traceparent,
            model=model_of(body.asked) if self.router.reads_model and body.asked else None,
            session=said.session if said else None,
            canary=seen.upstream,
            via=via,
        )

    # Its place and its price.

    def name_key(self, head: Head, recording: Recording) -> VirtualKey | None:
        """Return the request's key; its app takes the place of the one that the client names. Raises Rejection."""
        key = None if self.gate is None else self.gate.identify(head.headers)
        if key is not None:
            _count_for(key.app, recording)
        return key

    def bill(self, key: VirtualKey | None, head: Head, body: bytes, recording: Recording) -> Bill:
        """Open the request's bill, if its key allows the request. Raises Rejection."""
        if key is not None and is_restricted(key):
            check_request(key, Asked(recording.method, head.raw_path, head.query, head.headers, body))
        assert self.accounting is not None  # noqa: S101 - for the type checker: there is one where there is a gate
        operation = operation_of(recording.method, head.raw_path)
        return self.accounting.bill(operation, model_asked(recording.path, model_of(body) if body else None), body)

    async def admit(self, head: Head, bill: Bill, recording: Recording) -> None:
        """Wait until the gate admits the request. Raises Rejection; a request that is refused is not charged."""
        if self.gate is not None:
            permit = await self.gate.admit(
                head.headers,
                bill.model,
                recording.explicit.app if recording.explicit else None,
                reading=recording.method in ("GET", "HEAD"),
                quote=bill.quote,
                metered=_is_metered(bill),
            )
            _use_permit(permit, bill, recording)

    def admit_at_once(self, head: Head, bill: Bill | None, recording: Recording) -> bool:
        """Admit the request unless it would have to wait. Raises Rejection."""
        if self.gate is None or bill is None:
            return True
        app = recording.explicit.app if recording.explicit else None
        metered = _is_metered(bill)
        permit = self.gate.admit_at_once(head.headers, bill.model, app, quote=bill.quote, metered=metered)
        if permit is not None:
            _use_permit(permit, bill, recording)
        return permit is not None

    def settle(self, bill: Bill, recording: Recording) -> None:
        """Make room for the next request, and charge this one."""
        if bill.permit is not None:
            bill.permit.leave()
        if self.accounting is not None:
            self.accounting.settle(bill, recording)

    def cache_key(self, outgoing: Outgoing, asked: bytes, recording: Recording) -> CacheKey | None:
        """Return the request's key in the cache; None where its app has none."""
        if self.cache is None or not isinstance(outgoing.body, bytes) or not self.cache.serves(recording.app):
            return None
        return cache_key(
            app=recording.app,
            key_id=recording.key_id,
            route=recording.route,
            method=outgoing.method,
            path=outgoing.raw_path,
            query=outgoing.query,
            headers=recording.request_headers,
            body=asked,
        )


def _count_for(app: str, recording: Recording) -> None:
    recording.explicit = replace(recording.explicit or Explicit(), app=app)


def _is_metered(bill: Bill) -> bool:
    return bill.operation.kind in ("metered", "free")


def _use_permit(permit: Permit, bill: Bill, recording: Recording) -> None:
    bill.permit = permit
    recording.key_id = permit.key_id
    _count_for(permit.app, recording)

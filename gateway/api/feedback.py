"""Contexts and feedback for an exchange: `POST /gaugeway/v1/contexts` and `/feedback`, and their way to the queue."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar
from uuid import uuid4

import msgspec
from litestar import Request, Response, post
from litestar.exceptions import HTTPException

from gateway.http.errors import Rejection, body_of, too_large
from gateway.telemetry.tracing import parse_traceparent
from gaugeway.exchange import Headers
from gaugeway.prompts.explicit import PREFIX, ExplicitError, from_body_key, from_headers
from gaugeway.records import Context, Supplement
from gaugeway.runtime.retry import Backoff, Capacity, RetryBuffer, Sink
from gaugeway.settings import bounds, in_form
from gaugeway.settings.bounds import bounded_supplement
from gaugeway.settings.field_errors import located
from gaugeway.storage.engines.failures import reason_of, refused
from gaugeway.storage.queues import Queue

_log = logging.getLogger("gaugeway.supplements")
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 0.1, 5.0  # internal bound: time between our own attempts
_BATCH = 50
_RETRY_S = b"5"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
TraceId = Annotated[str, in_form(r"^(?!0{32})[0-9a-fA-F]{32}\Z", "32 hex digits, not all zero")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=bounds.MAX_TEXT)]
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=bounds.MAX_LABEL)]
Rating = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
T = TypeVar("T", "Contexts", "Feedback")


class Authorised(Protocol):
    """A valid key."""

    @property
    def app(self) -> str:
        """The app that the key belongs to."""


Authorise: TypeAlias = Callable[[Headers], Authorised | None]
Redact: TypeAlias = Callable[[Supplement], Supplement]


class Contexts(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /gaugeway/v1/contexts`; contexts may have every form that the explicit channel accepts."""

    contexts: msgspec.Raw
    key: Name | None = None
    trace_id: TraceId | None = None
    question: Text | None = None
    reference: Text | None = None


class Feedback(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /gaugeway/v1/feedback`."""

    exchange_id: Name | None = None
    key: Name | None = None
    trace_id: TraceId | None = None
    contexts: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    reference: Text | None = None
    rating: Rating | None = None
    label: Label | None = None
    comment: Text | None = None


class Observer(Protocol):
    """Counts supplements; the gateway's instruments."""

    def supplement(self, source: str, result: str) -> None:
        """Count one: accepted, full, too_large (see `gaugeway.settings.bounds`), or error (it could not be kept)."""

    def hand_off_failed(self) -> None:
        """Count a failed attempt to reach the queue."""


class SupplementSink(Sink[Supplement]):
    """Redacts supplements in a thread and puts them into the queue."""

    def __init__(self, queue: Queue, observer: Observer, redact: Redact | None) -> None:
        self.redact = redact
        self._queue = queue
        self._observer = observer

    async def send(self, items: Sequence[Supplement]) -> None:
        # In a thread: redacting some megabytes must not hold up the traffic.
        redacted = await asyncio.to_thread(lambda: [self._redacted(supplement) for supplement in items])
        if ready := [supplement for supplement in redacted if supplement is not None]:
            await self._queue.supply(ready)
        for item, supplement in zip(items, redacted, strict=True):
            if supplement is None:
                self._observer.supplement(item.source, "error")

    def refuses(self, error: Exception) -> bool:
        return refused(error)

    def sent(self, item: Supplement) -> None:
        """Nothing to count: it was counted as accepted."""

    def dropped(self, item: Supplement, error: Exception | None) -> None:
        self._observer.supplement(item.source, "error")
        if error is not None:
            _log.warning("the queue refused a supplement, dropping it: %s", reason_of(error))

    def failed(self, count: int, error: Exception) -> None:
        self._observer.hand_off_failed()
        _log.warning("the queue rejected %d supplements, retrying: %s: %s", count, type(error).__name__, error)

    def _redacted(self, supplement: Supplement) -> Supplement | None:
        try:
            return supplement if self.redact is None else self.redact(supplement)
        except Exception as error:  # noqa: BLE001 - lost rather than kept unredacted; counted as an error
            _log.warning("dropping a supplement that cannot be redacted: %s", type(error).__name__)
            return None


class Supplements:
    """The routes for contexts and feedback, and the buffer that brings what they receive to the queue.

    At most `max_items` supplements of `max_bytes` together are held; beyond that new ones are refused with 503. While
    the queue fails they are sent again after 0.1 s up to 5 s. `authorise` raises Rejection for a request without a
    valid key. A supplement sent with a key joins only exchanges of the key's app; without keys, those of the app that
    the request names (`x-gaugeway-app`), or of any. `redact` is applied before a supplement reaches the queue.
    """

    def __init__(
        self,
        *,
        queue: Queue,
        observer: Observer,
        authorise: Authorise | None = None,
        redact: Redact | None = None,
        max_body_bytes: int = 4 * 1024 * 1024,
        max_items: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self._authorise = authorise
        self._observer = observer
        self._sink = SupplementSink(queue, observer, redact)
        backoff = Backoff(_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S)
        self._buffer = RetryBuffer("supplements", self._sink, Capacity(max_items, max_bytes), backoff, batch=_BATCH)

    def use(self, authorise: Authorise | None, redact: Redact) -> None:
        """Use other keys and another redaction from now on."""
        self._authorise = authorise
        self._sink.redact = redact

    def start(self) -> None:
        """Start the background task; needs a running event loop."""
        self._buffer.start()

    def offer(self, supplement: Supplement, size: int) -> None:
        """Take a supplement of about `size` bytes without waiting.

        Raises Rejection: 413 for more passages than are kept, 503 when there is no room.
        """
        if supplement.contexts is not None and bounds.passages(supplement.contexts).cut:
            self._observer.supplement(supplement.source, "too_large")
            message = f"contexts: more than {bounds.MAX_PASSAGES} passages, or than {bounds.MAX_BYTES} bytes of them."
            raise Rejection(413, "request_too_large", message, "contexts")
        if not self._buffer.offer(supplement, size):
            self._observer.supplement(supplement.source, "full")
            message = "Too many supplements are waiting for the queue; try again later."
            raise Rejection(503, "overloaded", message, headers=[(b"retry-after", _RETRY_S)])
        self._observer.supplement(supplement.source, "accepted")

    def handlers(self) -> list[Any]:
        """Return the two routes."""

        @post("/gaugeway/v1/contexts", status_code=202, request_max_body_size=self.max_body_bytes)
        async def contexts(request: Request[Any, Any, Any]) -> Response[bytes]:
            return await self._answer(request, _contexts)

        @post("/gaugeway/v1/feedback", status_code=202, request_max_body_size=self.max_body_bytes)
        async def feedback(request: Request[Any, Any, Any]) -> Response[bytes]:
            return await self._answer(request, _feedback)

        return [contexts, feedback]

    async def aclose(self, timeout_s: float = 5.0) -> None:
        """Deliver what is left within `timeout_s`; what cannot be delivered is counted as error."""
        if lost := await self._buffer.aclose(timeout_s):
            _log.error("%d supplements lost: the queue did not accept them before shutdown", lost)

    async def _answer(
        self, request: Request[Any, Any, Any], read: Callable[[bytes, Headers], Supplement]
    ) -> Response[bytes]:
        headers: Headers = list(request.scope["headers"])
        try:
            key = self._authorise(headers) if self._authorise is not None else None
            body = await self._body(request)
            received = replace(read(body, headers), app=key.app if key is not None else _app_of(headers))
            supplement = bounded_supplement(received)
            self.offer(supplement, len(body))
        except Rejection as rejection:
            sent = {name.decode(): value.decode() for name, value in rejection.headers}
            content = body_of(rejection)
            return Response(content, status_code=rejection.status, headers=sent, media_type="application/json")
        content = msgspec.json.encode({"id": supplement.id})
        return Response(content, status_code=202, media_type="application/json")

    async def _body(self, request: Request[Any, Any, Any]) -> bytes:
        if (coding := request.headers.get("content-encoding", "identity").strip().lower()) != "identity":
            raise Rejection(
                415,
                "unsupported_encoding",
                f"Content-Encoding {coding[:50]} is not supported; send the body uncompressed.",
            )
        try:
            return await request.body()
        except HTTPException as error:
            if error.status_code == 413:  # noqa: PLR2004 - the body is too large
                raise too_large(self.max_body_bytes) from error
            raise Rejection(error.status_code, "invalid_request", error.detail) from error


def _contexts(body: bytes, headers: Headers) -> Supplement:
    supplement = _supplement(_decoded(body, Contexts), "contexts", headers)
    if supplement.contexts is None:
        raise _bad("contexts", "expected an array, got null")
    if supplement.key is None and supplement.trace_id is None:
        raise _bad("key", "`key`, `trace_id` or a traceparent header must say which exchange this is about")
    return supplement


def _feedback(body: bytes, headers: Headers) -> Supplement:
    sent = _decoded(body, Feedback)
    supplement = _supplement(sent, "feedback", headers)
    said = (sent.reference, sent.label, sent.comment)
    if supplement.contexts is None and not any(said) and sent.rating is None:
        raise _bad(None, "One of `reference`, `contexts`, `rating`, `label` and `comment` is needed")
    if sent.exchange_id is None and sent.key is None and supplement.trace_id is None:
        raise _bad("exchange_id", "`exchange_id`, `key` or `trace_id` must say which exchange this is about")
    return supplement


def _supplement(sent: Contexts | Feedback, source: str, headers: Headers) -> Supplement:
    fields = msgspec.structs.asdict(sent)
    fields |= {"contexts": _passages(sent.contexts), "trace_id": _trace_of(sent.trace_id, headers)}
    return Supplement(id=uuid4().hex, received_at=time.time(), source=source, **fields)


def _decoded(body: bytes, into: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=into)
    except msgspec.ValidationError as error:
        where, message = located(error, body, into)
        raise _bad(where.lstrip(".") or None, message) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"The body is not JSON: {error}" if body else "The request has no body: expected a JSON object"
        raise _bad(None, problem) from error
    except RecursionError:
        raise _bad(None, "The body is nested too deeply") from None


def _passages(raw: msgspec.Raw) -> tuple[Context, ...] | None:
    """Read contexts in every form that the explicit channel accepts."""
    try:
        explicit = from_body_key(b'{"contexts":' + bytes(raw) + b"}")
    except ExplicitError as error:
        raise _bad(error.field.removeprefix("gaugeway."), str(error)) from error
    return explicit.contexts


def _app_of(headers: Headers) -> str | None:
    """Return the app that the request's `x-gaugeway-app` header names."""
    try:
        explicit = from_headers([header for header in headers if header[0] == PREFIX + b"app"])
    except ExplicitError as error:
        raise _bad(error.field, str(error)) from error
    return explicit.app or None if explicit else None


def _trace_of(trace_id: str | None, headers: Headers) -> str | None:
    """Return the trace id of the body or, without one, of the request's traceparent header."""
    if trace_id is not None:
        return trace_id.lower()
    parsed = parse_traceparent(next((value for name, value in headers if name == b"traceparent"), None))
    return parsed[0] if parsed else None


def _bad(field: str | None, message: str) -> Rejection:
    where = f"{field}: " if field else ""
    return Rejection(400, "invalid_value", f"{where}{message}.", field)

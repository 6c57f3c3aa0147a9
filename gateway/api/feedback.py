"""What clients say about an exchange beside it: `POST /gaugeway/v1/contexts` and `/feedback`, brought to the queue."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

import msgspec
from litestar import Request, Response, post
from litestar.exceptions import HTTPException

from gateway.contexts.explicit import PREFIX, ExplicitError, from_body_key, from_headers
from gateway.exchange import Headers
from gateway.http.errors import Rejection, body_of, too_large
from gateway.telemetry.tracing import parse_traceparent
from monitors.records import Context, Supplement
from monitors.runtime import bounds
from monitors.runtime.bounds import bounded_supplement
from monitors.runtime.tasks import spawn
from monitors.storage.engines.failures import reason_of, refused
from monitors.storage.queues import Queue

_log = logging.getLogger("gaugeway.supplements")
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 0.1, 5.0
_BATCH = 50
_RETRY_S = b"5"
_FIELD = re.compile(r"field `([^`]*)`")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
TraceId = Annotated[str, msgspec.Meta(pattern=r"^(?!0{32})[0-9a-fA-F]{32}\Z")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=bounds.MAX_TEXT)]
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=bounds.MAX_LABEL)]
Rating = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
T = TypeVar("T", "Contexts", "Feedback")


class Authorised(Protocol):
    """What a key allows."""

    @property
    def app(self) -> str:
        """The app it is for."""


Authorise = Callable[[Headers], Authorised | None]


class Contexts(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /gaugeway/v1/contexts`; the contexts are read in every form of the explicit channel."""

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


class _Held(NamedTuple):
    supplement: Supplement
    size: int


class Supplements:
    """Takes supplements from the traffic port and brings them to the queue.

    At most `max_items` of `max_bytes` together are held; beyond that the newest is refused. While the queue fails they
    stay here and are tried again with back-off (0.1 s up to 5 s). `authorise` raises Rejection for a request without a
    key, where one is asked for; what is said with a key joins exchanges of the key's app only. Without keys it joins
    those of the app that the request names (`x-gaugeway-app`), or of any. `redact` sees each one before the queue does,
    in a thread. `on_result` gets the channel and the result: accepted, full, too_large (more
    passages or bytes than `monitors.runtime.bounds` allows), or error (it could not be kept). `on_failure` counts each
    failed attempt to reach the queue.
    """

    def __init__(
        self,
        *,
        queue: Queue,
        authorise: Authorise | None = None,
        redact: Callable[[Supplement], Supplement] | None = None,
        on_result: Callable[[str, str], None] = lambda *_: None,
        on_failure: Callable[[], None] = lambda: None,
        max_body_bytes: int = 4 * 1024 * 1024,
        max_items: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.authorise = authorise
        self.redact = redact
        self.max_body_bytes = max_body_bytes
        self._queue = queue
        self._on_result = on_result
        self._on_failure = on_failure
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._held: deque[_Held] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task; needs a running event loop."""
        self._task = spawn(self._run(), name="supplements")

    def offer(self, supplement: Supplement, size: int) -> None:
        """Take a supplement of about `size` bytes; never waits.

        Raises Rejection: 413 for more passages than are kept, 503 when there is no room.
        """
        if supplement.contexts is not None and bounds.passages(supplement.contexts).cut:
            self._on_result(supplement.source, "too_large")
            message = f"contexts: more than {bounds.MAX_PASSAGES} passages, or than {bounds.MAX_BYTES} bytes of them."
            raise Rejection(413, "request_too_large", message, "contexts")
        if len(self._held) >= self._max_items or self._bytes + size > self._max_bytes:
            self._on_result(supplement.source, "full")
            message = "Too much is waiting for the queue; try again later."
            raise Rejection(503, "overloaded", message, headers=[(b"retry-after", _RETRY_S)])
        self._held.append(_Held(supplement, size))
        self._bytes += size
        self._wake.set()
        self._on_result(supplement.source, "accepted")

    def handlers(self) -> list[Any]:
        """Return the two routes."""

        @post("/gaugeway/v1/contexts", status_code=202, request_max_body_size=self.max_body_bytes)
        async def contexts(request: Request[Any, Any, Any]) -> Response[bytes]:
            return await self._answer(request, self._contexts)

        @post("/gaugeway/v1/feedback", status_code=202, request_max_body_size=self.max_body_bytes)
        async def feedback(request: Request[Any, Any, Any]) -> Response[bytes]:
            return await self._answer(request, self._feedback)

        return [contexts, feedback]

    async def aclose(self, timeout_s: float = 5.0) -> None:
        """Deliver what is left within `timeout_s`; what cannot be delivered is counted as error."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
            await asyncio.wait([self._task])
        for held in self._held:
            self._on_result(held.supplement.source, "error")
        if self._held:
            _log.error("%d supplements lost: the queue did not accept them before shutdown", len(self._held))

    async def _answer(
        self, request: Request[Any, Any, Any], read: Callable[[bytes, Headers], Supplement]
    ) -> Response[bytes]:
        headers: Headers = list(request.scope["headers"])
        try:
            key = self.authorise(headers) if self.authorise is not None else None
            body = await self._body(request)
            said = replace(read(body, headers), app=key.app if key is not None else _app_of(headers))
            supplement = bounded_supplement(said)
            self.offer(supplement, len(body))
        except Rejection as rejection:
            told = {name.decode(): value.decode() for name, value in rejection.headers}
            answer = body_of(rejection)
            return Response(answer, status_code=rejection.status, headers=told, media_type="application/json")
        answer = msgspec.json.encode({"id": supplement.id})
        return Response(answer, status_code=202, media_type="application/json")

    async def _body(self, request: Request[Any, Any, Any]) -> bytes:
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            raise Rejection(
                415, "unsupported_encoding", f"Content-Encoding {coding[:50]} is not read here; send it plain."
            )
        try:
            return await request.body()
        except HTTPException as error:
            if error.status_code == 413:  # noqa: PLR2004 - the body is too large
                raise too_large(self.max_body_bytes) from error
            raise Rejection(error.status_code, "error", error.detail) from error

    def _contexts(self, body: bytes, headers: Headers) -> Supplement:
        said = _decoded(body, Contexts)
        contexts = _passages(said.contexts)
        if contexts is None:
            raise _bad("contexts", "Expected `array`, got `null`")
        trace_id = _trace_of(said.trace_id, headers)
        if said.key is None and trace_id is None:
            raise _bad("key", "`key`, `trace_id` or a traceparent header must say which exchange this is about")
        return Supplement(
            id=uuid4().hex,
            received_at=time.time(),
            source="contexts",
            key=said.key,
            trace_id=trace_id,
            question=said.question,
            contexts=contexts,
            reference=said.reference,
        )

    def _feedback(self, body: bytes, headers: Headers) -> Supplement:
        said = _decoded(body, Feedback)
        contexts = _passages(said.contexts)
        if contexts is None and not any((said.reference, said.label, said.comment)) and said.rating is None:
            raise _bad(None, "One of `reference`, `contexts`, `rating`, `label` and `comment` is needed")
        trace_id = _trace_of(said.trace_id, headers)
        if said.exchange_id is None and said.key is None and trace_id is None:
            raise _bad("exchange_id", "`exchange_id`, `key` or `trace_id` must say which exchange this is about")
        return Supplement(
            id=uuid4().hex,
            received_at=time.time(),
            source="feedback",
            exchange_id=said.exchange_id,
            key=said.key,
            trace_id=trace_id,
            contexts=contexts,
            reference=said.reference,
            rating=said.rating,
            label=said.label,
            comment=said.comment,
        )

    async def _run(self) -> None:
        back_off = _FIRST_BACK_OFF_S
        while self._held or not self._closing:
            if not self._held:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = [self._held[index] for index in range(min(_BATCH, len(self._held)))]
            if await self._delivered(batch):
                back_off = _FIRST_BACK_OFF_S
                for held in batch:
                    self._held.popleft()
                    self._bytes -= held.size
            else:
                await asyncio.sleep(back_off)
                back_off = min(back_off * 2, _MAX_BACK_OFF_S)

    async def _delivered(self, batch: Sequence[_Held]) -> bool:
        # In a thread: to look through some megabytes must not hold up the traffic.
        ready = await asyncio.to_thread(self._redacted, [held.supplement for held in batch])
        whole = [one for one in ready if one is not None]
        lost = [held.supplement.source for held, one in zip(batch, ready, strict=True) if one is None]
        try:
            lost += await self._supply(whole)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, it is counted and tried again
            self._on_failure()
            _log.warning("the queue rejected %d supplements, retrying: %s: %s", len(batch), type(error).__name__, error)
            return False
        for source in lost:
            self._on_result(source, "error")
        return True

    async def _supply(self, supplements: Sequence[Supplement]) -> list[str]:
        """Bring all to the queue that it takes; return the channels of those that it refuses."""
        try:
            await self._queue.supply(supplements)
        except Exception as error:
            if not refused(error):
                raise
            if len(supplements) == 1:
                _log.warning("the queue refused a supplement, dropping it: %s", reason_of(error))
                return [supplements[0].source]
            return [source for one in supplements for source in await self._supply([one])]
        return []

    def _redacted(self, supplements: Sequence[Supplement]) -> list[Supplement | None]:
        """Redact what can be redacted; the others must not be kept."""
        return [self._redacted_one(one) for one in supplements]

    def _redacted_one(self, supplement: Supplement) -> Supplement | None:
        try:
            return supplement if self.redact is None else self.redact(supplement)
        except Exception as error:  # noqa: BLE001 - lost rather than kept unredacted; counted as an error
            _log.warning("dropping a supplement that cannot be redacted: %s", type(error).__name__)
            return None


def _decoded(body: bytes, into: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=into)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        named = _FIELD.search(message)
        raise _bad(where.rstrip("`").lstrip(".") or (named[1] if named else None), message) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = f"The body is not JSON: {error}" if body else "The request has no body: expected a JSON object"
        raise _bad(None, said) from error
    except RecursionError:
        raise _bad(None, "The body is nested too deeply") from None


def _passages(raw: msgspec.Raw) -> tuple[Context, ...] | None:
    """Read contexts in every form that the request's own channel takes."""
    try:
        explicit = from_body_key(b'{"contexts":' + bytes(raw) + b"}")
    except ExplicitError as error:
        raise _bad(error.field.removeprefix("gaugeway."), str(error)) from error
    return explicit.contexts


def _app_of(headers: Headers) -> str | None:
    """Return the app that the request names, as one that is captured names it."""
    try:
        explicit = from_headers([one for one in headers if one[0] == PREFIX + b"app"])
    except ExplicitError as error:
        raise _bad(error.field, str(error)) from error
    return explicit.app or None if explicit else None


def _trace_of(said: str | None, headers: Headers) -> str | None:
    """Return the trace id of the body, or else of the request that carried it."""
    if said is not None:
        return said.lower()
    header = next((value for name, value in headers if name == b"traceparent"), None)
    parsed = parse_traceparent(header)
    return parsed[0] if parsed else None


def _bad(field: str | None, message: str) -> Rejection:
    where = f"{field}: " if field else ""
    return Rejection(400, "invalid_value", f"{where}{message}.", field)

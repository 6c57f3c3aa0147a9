"""`POST /v1/traces`: accepts OTLP over HTTP and queues spans of retrievers, tools and agents as supplements."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import unquote

from litestar import Request, Response, post
from litestar.exceptions import HTTPException

from gaugeway.records import Supplement
from gaugeway.storage.engines.failures import refused
from monitors.api.otlp import Decoded, Span
from monitors.api.otlp import codec as wire
from monitors.api.otlp.conventions import NoTextError, blank, conventions_of, operation_of, retrieved, step_of

_log = logging.getLogger("gaugeway.otlp")
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_PLAIN_BYTES = 64 * 1024 * 1024
_CODINGS = frozenset({"", "identity", "gzip", "deflate"})
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 3, 8, 14
_RETRY_S = "5"
_UNREADABLE = "unreadable"


class Read(NamedTuple):
    """Result of one request, with all of its spans.

    `counts` are retriever spans by convention, `steps` those of tools and agents by operation; both include
    `unreadable`.
    """

    supplements: list[Supplement]
    counts: Counter[str]
    steps: Counter[str]
    rejected: int
    complaint: str
    spans: Sequence[Span] = ()


def read(decoded: Decoded, now: float) -> Read:
    """Convert the spans of retrievers, tools and agents to supplements; all other spans are ignored."""
    found: list[Supplement] = []
    counts: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    rejected, complaints = decoded.unreadable, ["a span has no valid ids"] if decoded.unreadable else []
    for span in decoded.spans:
        retrieval, failed = None, False
        if conventions := conventions_of(span):
            try:
                convention, retrieval = retrieved(span, conventions, now)
            except ValueError as error:
                silent = isinstance(error, NoTextError)
                counts[_UNREADABLE] += 1
                failed = not silent
                hint = "; does the app's tracing leave content out?" if silent else ""
                complaints.append(f"span {span.span_id} ({', '.join(conventions)}): {error}{hint}")
            else:
                counts[convention] += 1
        if (operation := operation_of(span)) is not None:
            try:
                step = step_of(span, operation)
            except ValueError as error:
                steps[_UNREADABLE] += 1
                failed = True
                complaints.append(f"span {span.span_id} ({operation}): {error}")
            else:
                steps[operation] += 1
                retrieval = replace(retrieval or blank(span, now), calls=(step,))
        rejected += failed and retrieval is None
        found += [] if retrieval is None else [retrieval]
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return Read(found, counts, steps, rejected, f"{complaints[0]}{more}" if complaints else "", decoded.spans)


class _Refused(Exception):
    """The request is refused."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def receiver(
    supply: Callable[[Sequence[Supplement]], Awaitable[None]],
    *,
    counted: Callable[[str, int], None] = lambda *_: None,
    counted_steps: Callable[[str, int], None] = lambda *_: None,
    timed: Callable[[Sequence[Span]], None] | None = None,
    redact: Callable[[Supplement], Supplement] | None = None,
) -> Any:
    """Return the handler of `POST /v1/traces`; needs the extra `otlp`, else it raises ConfigError.

    `supply` takes the supplements of one request, all or none: while it fails, the exporter is asked to retry.
    With a header `x-gaugeway-app` the spans of a request join exchanges of that app only.
    `counted` is called with convention and number, `counted_steps` with operation and number, `timed` with all spans of
    a request that was accepted; `redact` is applied to everything before it is stored.
    """
    wire.require_protobuf()
    place = asyncio.Semaphore()

    def understand(body: bytes, coding: str, content_type: str) -> Read:
        found = read(wire.decode(wire.unpack(body, coding, MAX_PLAIN_BYTES), content_type), time.time())
        return (
            found
            if redact is None
            else found._replace(supplements=[redact(supplement) for supplement in found.supplements])
        )

    @post("/v1/traces", status_code=200, request_max_body_size=MAX_BODY_BYTES)
    async def traces(request: Request[Any, Any, Any]) -> Response[bytes]:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            coding = _coding(request, content_type)
            body = await _body(request)
            # In a thread: to unpack and read some megabytes must not hold up the worker.
            # One at a time: side by side they would only take more memory.
            async with place:
                found = await _understood(asyncio.to_thread(understand, body, coding, content_type))
            if app := unquote(request.headers.get("x-gaugeway-app", "")):
                found = found._replace(supplements=[replace(supplement, app=app) for supplement in found.supplements])
            if found.supplements:
                await _supplied(supply(found.supplements))
        except _Refused as error:
            return _refusal(content_type, error)
        for convention, count in found.counts.items():
            counted(convention, count)
        for operation, count in found.steps.items():
            counted_steps(operation, count)
        if timed is not None and found.spans:
            await asyncio.to_thread(timed, found.spans)  # there may be very many
        return _response(content_type, 200, wire.success(content_type, found.rejected, found.complaint))

    return traces


def _coding(request: Request[Any, Any, Any], content_type: str) -> str:
    coding = request.headers.get("content-encoding", "").strip().lower()
    if content_type not in (wire.PROTOBUF, wire.JSON):
        raise _Refused(415, _INVALID_ARGUMENT, f"expected Content-Type {wire.PROTOBUF} or {wire.JSON}")
    if coding not in _CODINGS:
        raise _Refused(415, _INVALID_ARGUMENT, "expected Content-Encoding gzip, deflate or none")
    return coding


async def _body(request: Request[Any, Any, Any]) -> bytes:
    try:
        return await request.body()
    except HTTPException as error:
        raise _Refused(error.status_code, _RESOURCE_EXHAUSTED, error.detail) from error


async def _understood(reading: Awaitable[Read]) -> Read:
    try:
        return await reading
    except wire.TooLargeError as error:
        raise _Refused(413, _RESOURCE_EXHAUSTED, str(error)) from error
    except ValueError as error:
        raise _Refused(400, _INVALID_ARGUMENT, str(error)) from error


async def _supplied(supplying: Awaitable[None]) -> None:
    try:
        await supplying
    except Exception as error:
        if refused(error):
            raise _Refused(400, _INVALID_ARGUMENT, "the spans hold what cannot be stored") from error
        _log.warning("the queue rejected spans: %s: %s", type(error).__name__, error)
        raise _Refused(503, _UNAVAILABLE, "the queue does not take anything; try again later") from error


def _refusal(content_type: str, refused: _Refused) -> Response[bytes]:
    response = _response(content_type, refused.status, wire.failure(content_type, refused.code, str(refused)))
    if refused.status == 503:  # noqa: PLR2004 - the one that exporters try again
        response.headers["retry-after"] = _RETRY_S
    return response


def _response(content_type: str, status: int, body: bytes) -> Response[bytes]:
    spoken = content_type if content_type == wire.PROTOBUF else wire.JSON
    return Response(body, status_code=status, headers={"content-type": spoken})

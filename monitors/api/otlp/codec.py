"""OTLP's two encodings of an export request: protobuf (behind the extra `otlp`) and JSON.

The messages of a protobuf body are counted before it is decoded: an empty span of 2 bytes takes 180 when decoded.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from gaugeway.settings import ConfigError
from monitors.api.otlp import Decoded, Span

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

Fields = Mapping[int, Any]

_VALUE: dict[int, Any] = {}
_PAIR: Fields = {2: _VALUE}
_VALUE |= {5: {1: _VALUE}, 6: {1: _PAIR}}
_SPAN: Fields = {9: _PAIR, 11: {3: _PAIR}, 13: {4: _PAIR}, 15: {}}
_SCOPE: Fields = {1: {3: _PAIR}, 2: _SPAN}
REQUEST: Fields = {1: {1: {1: _PAIR, 3: {}}, 2: _SCOPE}}
"""ExportTraceServiceRequest: its message fields, recursively. Other fields take no more memory than their bytes."""

_VARINT, _LENGTH = 0, 2
_SIZES = {1: 8, 3: 0, 4: 0, 5: 4}
_FIELDS_OF_A_PART = 4
_LONGEST = 63  # internal bound: a number of the format or formula


def more_than(body: bytes, limit: int) -> bool:
    """Whether `body` has more than `limit` messages, or more than four times as many fields of any kind.

    What is no protobuf is left to the decoder to refuse.
    """
    waiting = [(0, len(body), REQUEST)]
    found, steps = 0, limit * _FIELDS_OF_A_PART
    while waiting:
        start, end, fields = waiting.pop()
        for number, at, stop in _fields(body, start, end):
            steps -= 1
            inner = fields.get(number) if stop else None
            found += inner is not None
            if steps < 0 or found > limit:
                return True
            if inner:
                waiting.append((at, stop, inner))
    return False


def _fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The number of each field, and from where to where it lies; (number, 0, 0) for one that is no message or text.

    Groups, which OTLP does not use, are skipped: their content counts as if it were outside.
    """
    with suppress(IndexError):
        while at < end:
            tag, at = _varint(body, at)
            kind, number = tag & 7, tag >> 3
            if kind == _LENGTH:
                size, at = _varint(body, at)
                yield number, at, min(at + size, end)
                at += size
                continue
            if kind == _VARINT:
                _, at = _varint(body, at)
            elif kind not in _SIZES:
                return
            yield number, 0, 0
            at += _SIZES.get(kind, 0)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return value, at
        shift += 7
        if shift > _LONGEST:
            raise IndexError


PROTOBUF, JSON = "application/x-protobuf", "application/json"
_MISSING = "monitors.otlp_receiver: needs the extra `otlp` (pip install 'gaugeway[otlp]')"
_TRACE_ID, _SPAN_ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
_GZIP_OR_ZLIB = 47
_DEEPEST = 32
MAX_PARTS = 500_000
"""Limit of messages (spans, attributes, values, events, links) per request. A full SDK batch has about 50,000."""

_END_OF_TIME = 2**64


class TooLargeError(ValueError):
    """The decompressed body is too large, or has too many spans and attributes."""


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: _Array | None = None
    kvlist_value: _Pairs | None = None


class _Array(msgspec.Struct):
    values: list[_Value] = []


class _KeyValue(msgspec.Struct):
    key: str = ""
    value: _Value | None = None


class _Pairs(msgspec.Struct):
    values: list[_KeyValue] = []


class _Event(msgspec.Struct):
    name: str = ""
    attributes: list[_KeyValue] = []


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_KeyValue] = []
    events: list[_Event] = []


class _ScopeSpans(msgspec.Struct):
    spans: list[_Span] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    scope_spans: list[_ScopeSpans] = []


class _Export(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans] = []


_decoder = msgspec.json.Decoder(_Export)


def require_protobuf() -> None:
    """Raise ConfigError if the extra is not installed."""
    try:
        import opentelemetry.proto.collector.trace.v1.trace_service_pb2  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ConfigError([_MISSING]) from error


def unpack(body: bytes, coding: str, limit: int) -> bytes:
    """Decode `Content-Encoding`. Raises TooLargeError beyond `limit` bytes, ValueError for an invalid body."""
    if coding in ("", "identity"):
        return body
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValueError(f"the body is not {coding}: {error}") from error
    if len(plain) > limit:
        raise TooLargeError(f"the body unpacks to more than {limit} bytes")
    if not unpacker.eof:
        raise ValueError(f"the {coding} body ends too early")
    return plain


def decode(body: bytes, content_type: str) -> Decoded:
    """Read an export request.

    Raises TooLargeError for one of more than MAX_PARTS, ValueError for one that is not what its content type says.
    """
    # In JSON every message is an object; braces within texts count as well.
    if more_than(body, MAX_PARTS) if content_type == PROTOBUF else body.count(b"{") > MAX_PARTS:
        raise TooLargeError(f"the request holds more than {MAX_PARTS} spans, attributes, values, events and links")
    return _from_protobuf(body) if content_type == PROTOBUF else _from_json(body)


def success(content_type: str, rejected: int, message: str) -> bytes:
    """The response to an accepted request, with the number of `rejected` spans."""
    if content_type == JSON:
        partial = {"rejectedSpans": str(rejected), "errorMessage": message}
        return msgspec.json.encode({"partialSuccess": partial} if rejected or message else {})
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415 - an extra
        ExportTraceServiceResponse,
    )

    response = ExportTraceServiceResponse()
    if rejected or message:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    return bytes(response.SerializeToString())


def failure(content_type: str, code: int, message: str) -> bytes:
    """The response (a google.rpc.Status) to a refused request."""
    if content_type != PROTOBUF:
        return msgspec.json.encode({"code": code, "message": message})
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with the extra

    return bytes(Status(code=code, message=message).SerializeToString())


def _from_protobuf(body: bytes) -> Decoded:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415 - an extra
        ExportTraceServiceRequest,
    )

    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(f"not an ExportTraceServiceRequest: {error}") from error
    return _gather(
        _span(
            span.trace_id.hex(),
            span.span_id.hex(),
            (span.start_time_unix_nano, span.end_time_unix_nano),
            _pairs(span.attributes),
            tuple((event.name, _pairs(event.attributes)) for event in span.events),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )


def _from_json(body: bytes) -> Decoded:
    try:
        return _gather(
            _span(
                span.trace_id.lower(),
                span.span_id.lower(),
                (int(span.start_time_unix_nano), int(span.end_time_unix_nano)),
                _json_pairs(span.attributes),
                tuple((event.name, _json_pairs(event.attributes)) for event in span.events),
            )
            for resource in _decoder.decode(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not an ExportTraceServiceRequest: {error}") from error


def _gather(spans: Iterable[Span | None]) -> Decoded:
    every = list(spans)
    readable = tuple(span for span in every if span is not None)
    return Decoded(spans=readable, unreadable=len(every) - len(readable))


def _span(
    trace_id: str, span_id: str, times_ns: tuple[int, int], attributes: dict[str, Any], events: tuple[Any, ...]
) -> Span | None:
    """The span; None if its ids are not valid OTLP."""
    if not (_TRACE_ID.fullmatch(trace_id) and _SPAN_ID.fullmatch(span_id) and int(trace_id, 16) and int(span_id, 16)):
        return None
    started_ns, ended_ns = (time_ns if 0 <= time_ns < _END_OF_TIME else 0 for time_ns in times_ns)
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        started_ns=started_ns,
        ended_ns=ended_ns,
        attributes=attributes,
        events=events,
    )


def _pairs(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _plain(pair.value, 0) for pair in pairs}


def _plain(value: AnyValue, depth: int) -> Any:
    """A protobuf value as a Python value; None if it is empty, bytes, or nested too deeply."""
    match value.WhichOneof("value"):
        case "array_value" if depth < _DEEPEST:
            return [_plain(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value" if depth < _DEEPEST:
            return {pair.key: _plain(pair.value, depth + 1) for pair in value.kvlist_value.values}
        case "string_value" | "bool_value" | "int_value" | "double_value" as kind:
            return getattr(value, kind)
    return None


def _json_pairs(pairs: Iterable[_KeyValue]) -> dict[str, Any]:
    return {pair.key: _json_plain(pair.value, 0) for pair in pairs}


def _json_plain(value: _Value | None, depth: int) -> Any:
    """A JSON value as a Python value; numbers may be given as strings."""
    if value is None or depth >= _DEEPEST:
        return None
    if value.array_value is not None:
        return [_json_plain(item, depth + 1) for item in value.array_value.values]
    if value.kvlist_value is not None:
        return {pair.key: _json_plain(pair.value, depth + 1) for pair in value.kvlist_value.values}
    if value.int_value is not None:
        return int(value.int_value)
    if value.double_value is not None:
        return float(value.double_value)
    return value.string_value if value.string_value is not None else value.bool_value

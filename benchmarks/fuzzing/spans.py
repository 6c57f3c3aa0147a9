"""OTLP export requests in both encodings, packed or not, and the supplements made of their spans.

Beyond "never raises anything but ValueError": every supplement can be stored and read back, belongs to a trace, and
counts add up. An input is one byte (encoding, packing), then the body; or texts parted by 0xFF, as attributes' names
and values in turn.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import msgspec

from benchmarks.fuzzing.finding import expect
from gaugeway.records import Supplement
from monitors.api.otlp import Decoded, Span, receiver
from monitors.api.otlp import codec as wire

NOW = 1_700_000_000.0
LIMIT = 1 << 20
IDS = b'"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"'
WORDS = [
    b"\xff",
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{' + IDS + b',"attributes":[',
    b'{"key":"openinference.span.kind","value":{"stringValue":"RETRIEVER"}}',
    b"openinference.span.kind\xffRETRIEVER\xff",
    b"retrieval.documents.0.document.content",
    b"retrieval.documents.0.document.score",
    b"input.value",
    b"gen_ai.operation.name\xffretrieval\xff",
    b"gen_ai.retrieval.documents",
    b"gen_ai.retrieval.query.text",
    b"gen_ai.operation.name\xffexecute_tool\xff",
    b"gen_ai.operation.name\xffinvoke_agent\xff",
    b"gen_ai.tool.name\xffsearch\xff",
    b"gen_ai.tool.call.arguments",
    b"gen_ai.agent.name\xffplanner\xff",
    b'"endTimeUnixNano":"1700000001000000000"',
    b"langsmith.span.kind\xffretriever\xff",
    b"gen_ai.completion",
    b"gen_ai.prompt",
    b"traceloop.entity.name\xffretriever\xff",
    b"traceloop.entity.output",
    b"traceloop.entity.input",
    b'{"documents":[{"page_content":"a","metadata":{"score":1}}]}',
    b'[{"content":"a","id":1,"score":0.5}]',
    b'"arrayValue":{"values":[{"stringValue":"a"}]}',
    b'"kvlistValue":{"values":[{"key":"k","value":{"intValue":"1"}}]}',
    b'"doubleValue":"NaN"',
    b'"startTimeUnixNano":"1"',
    b'"events":[{"name":"db.query.result","attributes":[]}]',
    b"\x0a\x12",
    b"\x12\x08",
]
SEEDS = [
    b'\x00{"resourceSpans":[{"scopeSpans":[{"spans":[{' + IDS + b',"startTimeUnixNano":"1700000000000000000",'
    b'"attributes":[{"key":"openinference.span.kind","value":{"stringValue":"RETRIEVER"}},'
    b'{"key":"retrieval.documents.0.document.content","value":{"stringValue":"a"}},'
    b'{"key":"n","value":{"arrayValue":{"values":[{"intValue":"1"},{"doubleValue":0.5}]}}}]}]}]}]}',
    b"\x01\x0a\x2f\x12\x2d\x12\x2b\x0a\x10aaaaaaaaaaaaaaaa\x12\x08bbbbbbbb\x4a\x0d\x0a\x01k\x12\x08\x0a\x06string",
    b"\x02" + gzip.compress(b'{"resourceSpans":[]}', mtime=0),
    b"\x02" + zlib.compress(b"{}"),
    b'\x00{"x":' + b"[" * 2000,
    b"\x04langsmith.span.kind\xffretriever\xffgen_ai.completion\xff" + b"[" * 2000,
    b'\x04gen_ai.operation.name\xffretrieval\xffgen_ai.retrieval.documents\xff[{"content":"a","id":1,"score":0.5}]',
    b'\x04gen_ai.operation.name\xffexecute_tool\xffgen_ai.tool.name\xffsearch\xffgen_ai.tool.call.arguments\xff{"q":1}',
    b"\x04gen_ai.operation.name\xffinvoke_agent\xffgen_ai.agent.name\xffplanner",
    b"\x04openinference.span.kind\xffRETRIEVER\xffretrieval.documents.0.document.content\xffa\xffinput.value\xffq",
    b'\x04langsmith.span.kind\xffretriever\xffgen_ai.completion\xff{"documents":[{"kwargs":{"page_content":"a"}}]}',
    b'\x04traceloop.entity.name\xffretriever\xfftraceloop.entity.output\xff["a"]\xfftraceloop.entity.input\xff{"q":"x"}',
]


def one(data: bytes) -> None:
    """What the fuzzer calls."""
    if not data:
        return
    choices, body = data[0], data[1:]
    if choices & 4:
        decoded: Decoded | None = _spoken(body)
    else:
        plain = _or_none(lambda: wire.unpack(body, "gzip" if choices & 2 else "", LIMIT))
        if plain is None:
            return
        expect(len(plain) <= LIMIT, "unpacked to more than the limit")
        decoded = _or_none(lambda: wire.decode(plain, wire.PROTOBUF if choices & 1 else wire.JSON))
    if decoded is None:
        return
    for span in decoded.spans:
        expect(int(span.trace_id, 16) and len(span.trace_id) == 32 and len(span.span_id) == 16, f"bad ids: {span!r}")
    read = receiver.read(decoded, NOW)
    found, called = (counts.total() - counts["unreadable"] for counts in (read.counts, read.steps))
    among = max(found, called) <= len(read.supplements) <= found + called  # a tool that retrieves is both
    expect(among, f"{len(read.supplements)} supplements, {read.counts!r} and {read.steps!r} counted")
    expect(bool(read.complaint) or read.rejected == 0, "spans were rejected without a word")
    for supplement in read.supplements:
        expect(supplement.trace_id and 0.0 < supplement.received_at < NOW + 86_401.0, f"placed badly: {supplement!r}")
        stored = msgspec.json.decode(msgspec.json.encode(supplement), type=Supplement)
        expect(stored == supplement, f"not stored as it is: {supplement!r}")
    for content_type in (wire.PROTOBUF, wire.JSON):
        wire.success(content_type, read.rejected, read.complaint)


def _or_none(read: Callable):
    """ValueError is the one way to refuse."""
    try:
        return read()
    except ValueError as error:
        expect(str(error), "an error that says nothing")
        for content_type in (wire.PROTOBUF, wire.JSON):
            wire.failure(content_type, 3, str(error))
        return None


def _spoken(body: bytes) -> Decoded:
    texts = [piece.decode("utf-8", "replace") for piece in body.split(b"\xff")]
    attributes = dict(zip(texts[::2], texts[1::2], strict=False))
    events = tuple((name, {"db.query.result.document": name}) for name in texts if name.startswith("db."))
    span = Span(trace_id="0" * 31 + "1", span_id="0" * 15 + "1", started_ns=1, attributes=attributes, events=events)
    return Decoded(spans=(span,))

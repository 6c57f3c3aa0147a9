"""The receiver of retriever spans, asked by OpenTelemetry's own exporter and by hand."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
import tracemalloc
import zlib

import httpx
import pytest
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from prometheus_client import CollectorRegistry

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Sample
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Monitors, Shared
from gaugeway.storage.engines.failures import RefusedError
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from monitors.api.app import admin_app
from monitors.api.otlp import Decoded, Span
from monitors.api.otlp import codec as wire
from monitors.api.otlp.codec import more_than
from monitors.api.otlp.receiver import MAX_BODY_BYTES, MAX_PLAIN_BYTES, read, receiver
from monitors.app import _receivers, check
from monitors.exporters.instruments import Instruments
from tests.support.product import product
from tests.support.running import serving

pytestmark = pytest.mark.full

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NOW = 1_700_000_000.0


class Insight:
    """An admin app wants one; nothing here asks it anything."""

    store = None


@contextlib.asynccontextmanager
async def receiving(queue, *, token=None, config=None, **options):
    """A running admin app with the receiver; yields its URL and the counts of spans."""
    instruments = Instruments(CollectorRegistry(), version="0")
    if options:
        handlers = [receiver(queue.supply, **options)]
    else:
        config = Shared(monitors=Monitors(otlp_receiver=True))
        handlers = _receivers(config, queue, instruments)
    app = admin_app(Insight(), instruments.registry, host="127.0.0.1", token=token, handlers=handlers)

    def counts():
        return {
            one.labels["convention"]: one.value
            for family in instruments.registry.collect()
            for one in family.samples
            if one.name == "gaugeway_retrieval_spans_total"
        }

    async with serving(app) as port:
        yield f"http://127.0.0.1:{port}/v1/traces", counts


@contextlib.asynccontextmanager
async def posting(**options):
    """Run `scenario(post, queue, counts)`; `post` sends a body and returns the response."""
    queue = options.pop("queue", None) or MemoryQueue()
    async with receiving(queue, **options) as (url, counts), httpx.AsyncClient() as client:

        async def post(body, content_type=wire.JSON, **headers):
            return await client.post(url, content=body, headers={"content-type": content_type, **headers})

        yield post, queue, counts


async def exported(url, spans, **options):
    """Export spans as an instrumented app does; `spans(tracer)` makes them. Returns what `spans` returned."""

    def export():
        provider = TracerProvider()
        exporter = OTLPSpanExporter(endpoint=url, **options)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        made = spans(provider.get_tracer("app"))
        provider.shutdown()
        return made

    return await asyncio.to_thread(export)


def openinference(query, *documents):
    attributes = {"openinference.span.kind": "RETRIEVER", "input.value": query}
    for index, (document_id, text, score) in enumerate(documents):
        prefix = f"retrieval.documents.{index}.document"
        attributes |= {f"{prefix}.id": document_id, f"{prefix}.content": text, f"{prefix}.score": score}
        attributes[f"{prefix}.metadata"] = json.dumps({"source": f"{document_id}.md", "page": 1})
    return attributes


def two_hops(tracer):
    """A RAG app's trace: a root, two retrievals one after the other, an embedding and a chat."""
    with tracer.start_as_current_span("ask") as root:
        with tracer.start_as_current_span("retrieve") as first:
            first.set_attributes(openinference("hop one?", ("d1", "Paris is a city.", 0.75), ("d2", "Ein Fluß.", 0.5)))
            with tracer.start_as_current_span("embed") as inner:
                inner.set_attribute("openinference.span.kind", "EMBEDDING")
        with tracer.start_as_current_span("retrieve again") as second:
            second.set_attributes(openinference("hop two?", ("d2", "Ein Fluß.", 0.25), ("d3", "你好", 0.125)))
        with tracer.start_as_current_span("chat") as chat:
            chat.set_attributes({"openinference.span.kind": "LLM", "input.value": "prompt"})
    return format(root.get_span_context().trace_id, "032x")


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
async def test_opentelemetrys_own_exporter_is_understood_and_only_retrievals_are_kept(compression):
    queue = MemoryQueue()
    async with receiving(queue) as (url, counts):
        trace_id = await exported(url, two_hops, compression=compression)
        first, second = await queue.take(10)
        assert counts() == {"openinference": 2.0}
    assert (first.source, first.trace_id, first.question) == ("spans", trace_id, "hop one?")
    assert first.contexts == (
        Context(text="Paris is a city.", id="d1", score=0.75, source="d1.md"),
        Context(text="Ein Fluß.", id="d2", score=0.5, source="d2.md"),
    )
    assert (second.trace_id, second.question) == (trace_id, "hop two?")
    assert first.received_at < second.received_at <= time.time()
    assert first.id != second.id


def test_the_hops_of_a_trace_are_joined_in_order_and_scored_in_the_running_product(tmp_path):
    """`gaugeway monitors` as users run it: one exchange waits for its spans, one comes after them."""
    with product(tmp_path, "[monitors]\notlp_receiver = true\njoin_window_s = 60\n", command="monitors") as running:
        url, path = f"{running.monitors}/v1/traces", running.data / "queue.db"

        def hops_with_exchanges(tracer):
            with tracer.start_as_current_span("outermost") as root:
                trace_id = format(root.get_span_context().trace_id, "032x")
                asyncio.run(_put(path, "before", trace_id))
                running.until(lambda: _leased(running), 60, what="the exchange waits")
                return two_hops(tracer)

        trace_id = asyncio.run(exported(url, hops_with_exchanges))
        asyncio.run(_put(path, "after", trace_id))
        for name in ("before", "after"):
            running.until(lambda name=name: _scored(running, name), 60, what=f"{name} is scored")
            exchange = running.get(f"/api/exchanges/{name}")
            assert exchange["sample"]["context_source"] == "spans"
            assert [one["id"] for one in exchange["sample"]["contexts"]] == ["d1", "d2", "d3"]
            assert [one["question"] for one in exchange["supplements"]] == ["hop one?", "hop two?"]
            assert {one["trace_id"] for one in exchange["supplements"]} == {trace_id}
        assert running.value(running.monitors, "gaugeway_supplements_total", result="expired") == 0
        assert running.value(running.monitors, "gaugeway_retrieval_spans_total", convention="openinference") == 2


async def _put(path, name, trace_id):
    queue = SQLiteQueue(path)
    await queue.put([Sample(id=name, started_at=time.time(), response="Paris is a city.", trace_id=trace_id)])
    await queue.aclose()


def _leased(running):
    return running.get("/api/status")["queue"]["leased"] == 1


def _scored(running, name):
    response = httpx.get(f"{running.monitors}/api/exchanges/{name}", timeout=5)
    outcomes = response.json()["evaluations"] if response.status_code == 200 else []
    return any(one["outcome"]["kind"] == "score" for one in outcomes)


def attribute(key, value):
    kind = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}.get(type(value))
    if kind is not None:
        return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}
    return {"key": key, "value": any_value(value)}


def any_value(value):
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [attribute(name, one) for name, one in value.items()]}}
    return attribute("", value)["value"]


def span_json(attributes=None, *, trace_id=TRACE, span_id=SPAN, events=(), started_ns=str(int(NOW * 1e9)), **more):
    return {
        "traceId": trace_id,
        "spanId": span_id,
        "name": "retrieve",
        "kind": 3,
        "startTimeUnixNano": started_ns,
        "attributes": [attribute(name, value) for name, value in (attributes or {}).items()],
        "events": [
            {"name": name, "timeUnixNano": "1", "attributes": [attribute(*one) for one in inner.items()]}
            for name, inner in events
        ],
        **more,
    }


def export_json(*spans):
    resource = {"resource": {"attributes": []}, "scopeSpans": [{"scope": {"name": "app"}, "spans": list(spans)}]}
    return json.dumps({"resourceSpans": [resource]}).encode()


RETRIEVAL = openinference("q?", ("d1", "one", 0.5))


async def test_json_is_understood_plain_and_packed_and_answered_in_json():
    async with posting() as (post, queue, _):
        started_ns = time.time_ns() - 5_000_000_000
        for number, (pack, coding) in enumerate([(bytes, {}), (gzip.compress, "gzip"), (zlib.compress, "deflate")]):
            headers = {"content-encoding": coding} if coding else {}
            span = span_json(RETRIEVAL, span_id=f"{number + 1:016x}", started_ns=str(started_ns))
            body = pack(export_json(span))
            response = await post(body, "application/json; charset=utf-8", **headers)
            assert (response.status_code, response.json()) == (200, {})
            assert response.headers["content-type"] == "application/json"
        taken = await queue.take(10)
        assert [one.id for one in taken] == [f"span-{TRACE}-{number:016x}" for number in (1, 2, 3)]
        assert taken[0].received_at == started_ns / 1e9
        assert taken[0].contexts == (Context(text="one", id="d1", score=0.5, source="d1.md"),)


async def test_the_same_span_sent_twice_is_one_supplement():
    async with posting() as (post, queue, _):
        for _ in range(2):
            await post(export_json(span_json(RETRIEVAL)))
        assert len(await queue.take(10)) == 1


async def test_what_cannot_be_read_is_said_and_the_rest_is_kept():
    bodies = [
        span_json(RETRIEVAL, span_id="0" * 16),
        span_json(RETRIEVAL, trace_id="xyz"),
        span_json({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": "{not json"}),
        span_json({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": '[{"id": "d1", "score": 1}]'}),
        span_json(RETRIEVAL, span_id="00000000000000aa", trace_id=TRACE.upper()),
    ]

    async with posting() as (post, queue, counts):
        partial = (await post(export_json(*bodies))).json()["partialSuccess"]
        assert partial["rejectedSpans"] == "3"
        assert partial["errorMessage"] == "a span has no valid ids (and 2 more)"
        assert [one.trace_id for one in await queue.take(10)] == [TRACE]
        assert counts() == {"openinference": 1.0, "unreadable": 2.0}
        partial = (await post(export_json(bodies[3]))).json()["partialSuccess"]
        assert partial["rejectedSpans"] == "0", "it was taken, but there is a hint"
        assert "leave content out" in partial["errorMessage"]


async def test_protobuf_is_answered_in_protobuf_also_when_refused():
    request = ExportTraceServiceRequest()
    bad = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"short", span_id=b"12345678")
    assert bad

    async with posting() as (post, _, _):
        response = await post(ExportTraceServiceRequest().SerializeToString(), wire.PROTOBUF)
        assert (response.status_code, response.content) == (200, b"")
        response = await post(request.SerializeToString(), wire.PROTOBUF)
        assert response.headers["content-type"] == wire.PROTOBUF
        partial = ExportTraceServiceResponse.FromString(response.content).partial_success
        assert (partial.rejected_spans, partial.error_message) == (1, "a span has no valid ids")
        response = await post(b"\xff\xff not protobuf", wire.PROTOBUF)
        assert response.status_code == 400
        assert "ExportTraceServiceRequest" in Status.FromString(response.content).message


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {"content_type": "text/plain"}, 415),
        (b"{}", {"content_type": ""}, 415),
        (b"{}", {"content-encoding": "br"}, 415),
        (b"not gzip", {"content-encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0)[:-4], {"content-encoding": "gzip"}, 400),
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"resourceSpans": 1}', {}, 400),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "soon"}]}]}]}', {}, 400),
        (b"\xff", {}, 400),
        (b" " * (MAX_BODY_BYTES + 1), {}, 413),
        (gzip.compress(b" " * (MAX_PLAIN_BYTES + 1), mtime=0), {"content-encoding": "gzip"}, 413),
    ],
)
async def test_what_cannot_be_taken_is_refused_as_otlp_says(body, headers, status):
    async with posting() as (post, queue, _):
        response = await post(body, **headers)
        assert response.status_code == status
        assert response.json()["message"]
        assert len(await queue.take(10)) == 0


def test_a_small_body_that_unpacks_to_much_takes_no_more_memory_than_the_limit():
    packed = gzip.compress(b" " * 50_000_000, 1)
    tracemalloc.start()
    try:
        with pytest.raises(wire.TooLargeError):
            wire.unpack(packed, "gzip", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


async def test_while_the_queue_takes_nothing_the_exporter_is_asked_to_come_again():
    class Broken(MemoryQueue):
        async def supply(self, supplements):
            raise OSError("disk full")

    async with posting(queue=Broken()) as (post, _, counts):
        response = await post(export_json(span_json(RETRIEVAL)))
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert counts() == {}
        assert (await post(export_json(span_json({})))).status_code == 200


async def test_spans_that_the_queue_refuses_are_not_asked_for_again():
    class Picky(MemoryQueue):
        async def supply(self, supplements):
            raise RefusedError("too long")

    async with posting(queue=Picky()) as (post, _, _):
        response = await post(export_json(span_json(RETRIEVAL)))
        assert (response.status_code, "retry-after" in response.headers) == (400, False)


async def test_spans_join_the_app_that_their_request_names_or_any():
    async with posting() as (post, queue, _):
        for headers, app in (({"x-gaugeway-app": "caf%C3%A9"}, "caf\u00e9"), ({}, None)):
            await post(export_json(span_json(RETRIEVAL)), **headers)
            (taken,) = await queue.take(10)
            assert taken.app == app
            await queue.ack_supplies([taken.id])


async def test_the_receiver_stands_behind_the_same_token_as_the_rest():
    async with posting(token="secret") as (post, queue, _):
        assert (await post(export_json(span_json(RETRIEVAL)))).status_code == 401
        response = await post(export_json(span_json(RETRIEVAL)), authorization="Bearer secret")
        assert response.status_code == 200
        assert len(await queue.take(10)) == 1


async def test_what_is_received_is_redacted_before_it_is_kept():
    import dataclasses

    async with posting(redact=lambda one: dataclasses.replace(one, question="[redacted]")) as (post, queue, _):
        await post(export_json(span_json(RETRIEVAL)))
        (one,) = await queue.take(1)
        assert one.question == "[redacted]"


def test_without_being_switched_on_nothing_receives():
    instruments = Instruments(CollectorRegistry(), version="0")
    assert _receivers(Shared(), MemoryQueue(), instruments) == []


def test_without_the_extra_the_configuration_is_refused(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    with pytest.raises(ConfigError, match=r"monitors\.otlp_receiver: needs the extra `otlp`"):
        check(Shared(monitors=Monitors(otlp_receiver=True)))
    check(Shared())


def found(attributes, events=(), **fields):
    """What one span becomes: (convention, question, [(text, id, score, source)]) or the complaint."""
    span = Span(
        **{
            "trace_id": TRACE,
            "span_id": SPAN,
            "started_ns": int(NOW * 1e9),
            "attributes": attributes,
            "events": events,
            **fields,
        }
    )
    result = read(Decoded(spans=(span,)), NOW)
    if not result.supplements:
        return result.complaint
    (one,) = result.supplements
    contexts = [(context.text, context.id, context.score, context.source) for context in one.contexts]
    return next(iter(result.counts)), one.question, contexts


GEN_AI = [{"id": "d1", "score": 0.5, "content": "one"}, {"id": 2, "text": "two", "source": "b.md"}, {"id": "no text"}]
LANGCHAIN = [
    {"page_content": "one", "metadata": {"source": "a.md", "id": "m1"}, "type": "Document"},
    {"lc": 1, "type": "constructor", "id": ["langchain", "Document"], "kwargs": {"page_content": "two", "id": "k2"}},
    {"node": {"text": "three", "id_": "n3", "metadata": {"file_name": "c.md"}}, "score": 0.25},
    "four",
]
LANGCHAIN_READ = [
    ("one", "m1", None, "a.md"),
    ("two", "k2", None, None),
    ("three", "n3", 0.25, "c.md"),
    ("four", None, None, None),
]


@pytest.mark.parametrize("documents", [GEN_AI, json.dumps(GEN_AI)])
def test_opentelemetrys_own_convention_is_read_structured_and_as_json(documents):
    attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.query.text": "q?",
        "gen_ai.retrieval.documents": documents,
    }
    assert found(attributes) == ("gen_ai", "q?", [("one", "d1", 0.5, None), ("two", "2", None, "b.md")])


async def test_structured_documents_come_over_the_wire_in_json_and_protobuf():
    attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": GEN_AI}

    def spans(tracer):
        with tracer.start_as_current_span("retrieval") as span:
            span.set_attributes({**attributes, "gen_ai.retrieval.documents": json.dumps(GEN_AI)})

    queue = MemoryQueue()
    async with receiving(queue) as (url, _):
        await exported(url, spans)
        async with httpx.AsyncClient() as client:
            response = await client.post(url, json=json.loads(export_json(span_json(attributes))))
        assert response.json() == {}
        first, second = await queue.take(10)
        assert [one.text for one in first.contexts] == [one.text for one in second.contexts] == ["one", "two"]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"query": "q?"}, {"documents": LANGCHAIN}),
        ({"input": {"question": "q?"}}, {"output": LANGCHAIN}),
        ({"args": ["q?"]}, LANGCHAIN),
        ("q?", {"output": {"documents": LANGCHAIN}}),
    ],
)
def test_langsmiths_runs_are_read(inputs, outputs):
    attributes = {
        "langsmith.span.kind": "retriever",
        "gen_ai.operation.name": "embeddings",
        "gen_ai.prompt": json.dumps(inputs),
        "gen_ai.completion": json.dumps(outputs),
    }
    assert found(attributes) == ("langsmith", "q?", LANGCHAIN_READ)


def test_a_span_that_wears_two_conventions_is_read_by_the_one_that_tells_something():
    attributes = {
        "openinference.span.kind": "RETRIEVER",
        "langsmith.span.kind": "retriever",
        "gen_ai.completion": json.dumps(["one"]),
    }
    assert found(attributes) == ("langsmith", None, [("one", None, None, None)])


def test_the_results_of_a_vector_store_are_read_from_traceloops_events():
    events = (
        ("db.query.embeddings", {"db.query.embeddings.vector": "[1.0]"}),
        (
            "db.query.result",
            {"db.query.result.id": "1", "db.query.result.document": "one", "db.query.result.score": 0.5},
        ),
        (
            "db.query.result",
            {
                "db.query.result.id": "2",
                "db.query.result.document": "two",
                "db.query.result.distance": 0.1,
                "db.query.result.metadata": json.dumps({"source": "b.md"}),
            },
        ),
    )
    attributes = {"db.system": "chroma"}
    assert found(attributes, events) == ("traceloop", None, [("one", "1", 0.5, None), ("two", "2", None, "b.md")])


def test_a_retriever_written_as_a_traceloop_task_is_read_and_other_tasks_are_not():
    attributes = {
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "VectorStoreRetriever",
        "traceloop.entity.input": json.dumps({"inputs": {"query": "q?"}}),
        "traceloop.entity.output": json.dumps({"outputs": LANGCHAIN}),
    }
    assert found(attributes) == ("traceloop", "q?", LANGCHAIN_READ)
    assert found({**attributes, "traceloop.entity.name": "answer"}) == ""


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"openinference.span.kind": "RERANKER", "input.value": "q"},
        {"gen_ai.operation.name": "chat", "gen_ai.prompt": "[]"},
        {"langsmith.span.kind": "llm", "gen_ai.completion": "[]"},
        {"db.system": "postgresql"},
    ],
)
def test_what_is_no_retrieval_is_left_alone_in_silence(attributes):
    assert found(attributes) == ""


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({"openinference.span.kind": "RETRIEVER"}, "no retrieval.documents; does"),
        (
            {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": "__REDACTED__"},
            "no document has a text; does",
        ),
        ({"gen_ai.operation.name": "retrieval"}, "no gen_ai.retrieval.documents; does"),
        ({"langsmith.span.kind": "retriever", "gen_ai.completion": "__REDACTED__"}, "no gen_ai.completion; does"),
        ({"langsmith.span.kind": "retriever", "gen_ai.completion": "{}"}, "no list of documents"),
        ({"langsmith.span.kind": "retriever", "gen_ai.completion": "{"}, "not JSON"),
    ],
)
def test_a_retrieval_that_tells_nothing_is_complained_about(attributes, complaint):
    assert complaint in found(attributes)


def test_a_retrieval_that_found_nothing_is_a_retrieval():
    attributes = {"gen_ai.retrieval.documents": "[]", "gen_ai.retrieval.query.text": "q?"}
    assert found(attributes) == ("gen_ai", "q?", [])


@pytest.mark.parametrize(("query", "question"), [("q?", "q?"), ('{"query": "q?"}', "q?"), ("{q?}", "{q?}"), ("", None)])
def test_the_question_is_the_query_whichever_way_it_is_written(query, question):
    assert found({**RETRIEVAL, "input.value": query})[1] == question


def test_documents_stay_in_the_order_of_their_numbers():
    many = openinference("q?", *((f"d{number}", f"text {number}", 0.5) for number in range(12)))
    shuffled = dict(sorted(many.items(), key=lambda item: item[0][::-1]))
    assert [one[1] for one in found(shuffled)[2]] == [f"d{number}" for number in range(12)]


def test_of_a_span_with_too_many_documents_one_more_than_is_kept_is_held():
    many = openinference("q?", *((f"d{number}", f"text {number}", 0.5) for number in range(1000)))
    assert [one[1] for one in found(many)[2]] == [f"d{number}" for number in range(201)]


@pytest.mark.parametrize(
    ("started", "received"), [(NOW - 5.0, NOW - 5.0), (0.0, NOW), (NOW - 5e6, NOW), (NOW + 2e5, NOW)]
)
def test_a_span_counts_from_its_start_unless_its_clock_is_plainly_wrong(started, received):
    span = Span(trace_id=TRACE, span_id=SPAN, started_ns=int(started * 1e9), attributes=RETRIEVAL)
    assert read(Decoded(spans=(span,)), NOW).supplements[0].received_at == pytest.approx(received)


@pytest.mark.parametrize(("ended", "took"), [(NOW + 0.25, 0.25), (0.0, None), (NOW - 1.0, None), (NOW + 7200.0, None)])
async def test_a_span_keeps_its_duration_unless_its_end_is_plainly_wrong(ended, took):
    async with posting() as (post, queue, _):
        await post(export_json(span_json(RETRIEVAL, endTimeUnixNano=str(int(ended * 1e9)))))
        (one,) = await queue.take(10)
        assert one.retrieval_s == (None if took is None else pytest.approx(took, abs=1e-6))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["query", "documents", "text"]), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "openinference.span.kind",
        "retrieval.documents.0.document.content",
        "retrieval.documents.0.document.metadata",
        "input.value",
        "gen_ai.operation.name",
        "gen_ai.retrieval.documents",
        "gen_ai.retrieval.query.text",
        "langsmith.span.kind",
        "gen_ai.prompt",
        "gen_ai.completion",
        "traceloop.entity.name",
        "traceloop.entity.input",
        "traceloop.entity.output",
        "db.query.result.document",
    ]
)
KINDS = st.sampled_from(["RETRIEVER", "retriever", "retrieval"])


@given(
    st.dictionaries(NAMES, values | KINDS | values.map(json.dumps)),
    st.lists(st.tuples(st.sampled_from(["db.query.result", "x"]), st.dictionaries(NAMES, values)), max_size=2),
)
def test_no_span_whatever_it_carries_stops_the_others(attributes, events):
    odd = Span(trace_id=TRACE, span_id=SPAN, started_ns=0, attributes=attributes, events=tuple(events))
    good = Span(trace_id=TRACE, span_id="00000000000000aa", started_ns=1, attributes=RETRIEVAL)
    result = read(Decoded(spans=(odd, good)), NOW)
    assert result.supplements[-1].id.endswith("aa")


@given(st.binary(max_size=200), st.sampled_from([wire.JSON, wire.PROTOBUF]))
def test_bytes_that_make_no_sense_are_a_value_error_and_nothing_else(body, content_type):
    with contextlib.suppress(ValueError):
        wire.decode(body, content_type)


@given(values.map(lambda value: json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]}).encode()))
def test_json_that_is_no_export_request_is_a_value_error_and_nothing_else(body):
    with contextlib.suppress(ValueError):
        wire.decode(body, wire.JSON)


def field(number, body):
    size, length = len(body), b""
    while size > 0x7F:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + body


ATTRIBUTES = {"array": field(9, field(2, field(5, b"\x0a\x00" * 700))), "empty": b"\x4a\x00" * 700}


@pytest.mark.parametrize(
    "spans",
    [
        b"\x12\x00" * 700,
        field(2, ATTRIBUTES["empty"]),
        field(2, ATTRIBUTES["array"]),
        field(2, b"\x5a\x00" * 700),
        field(2, field(11, b"\x1a\x00" * 700)),
        field(2, b"\x6a\x00" * 700),
        b"\x7b\x7c" + b"\x12\x00" * 700,
        field(2, b"\x30\x01" * 3000),
    ],
    ids=["spans", "attributes", "array", "events", "attributes of an event", "links", "after a group", "numbers"],
)
def test_a_request_of_too_many_parts_is_refused_before_it_is_read(spans, monkeypatch):
    body = field(1, field(2, spans))
    wire.decode(body, wire.PROTOBUF)
    monkeypatch.setattr(wire, "MAX_PARTS", 600)
    with pytest.raises(wire.TooLargeError):
        wire.decode(body, wire.PROTOBUF)


def test_json_of_too_many_parts_is_refused_before_it_is_read(monkeypatch):
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b",".join([b"{}"] * 700) + b"]}]}]}"
    assert wire.decode(body, wire.JSON).unreadable == 700
    monkeypatch.setattr(wire, "MAX_PARTS", 600)
    with pytest.raises(wire.TooLargeError):
        wire.decode(body, wire.JSON)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda body: field(1, field(2, field(2, body)))))
def test_counting_never_fails(body):
    more_than(body, 5)


def test_a_number_without_end_costs_no_time():
    assert not more_than(b"\x80" * 1_000_000, 10)

"""The exchange's span, by OpenTelemetry's names and by OpenInference's; and which baggage goes on."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.capture.exchange_reader import summary_of
from gateway.exchange import Exchange, Explicit, Request, Response, Trace
from gateway.http.headers import for_upstream
from gateway.telemetry.tracing import OTelSpans
from monitors.records import Usage

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def emitted(route="chat_completions", usage=None, **options):
    exporter = InMemorySpanExporter()
    spans = OTelSpans(SimpleSpanProcessor(exporter), server_address="h", server_port=443, **options)
    body = {"temperature": 0.5, "n": 2, "max_tokens": 9, "messages": [{"role": "user", "content": "secret words"}]}
    exchange = Exchange(
        id="x1",
        started_at=1.0,
        duration_s=0.5,
        first_chunk_s=None,
        ending="complete",
        stream=False,
        app="shop",
        model="m",
        request=Request(route=route, headers={}, body=body, explicit=Explicit(session="s1")),
        response=Response(status=200, body={}, text="secret answer", model="m-2026", usage=usage),
        trace=Trace(TRACE, SPAN),
    )
    spans.emit(summary_of(exchange))
    (span,) = exporter.get_finished_spans()
    return span


def test_the_span_has_openinference_names_besides_opentelemetrys():
    found = emitted(usage=Usage(input_tokens=10, output_tokens=4, cached_tokens=3)).attributes
    assert found["gen_ai.operation.name"] == "chat"
    # a session may be a person's name, and this span is made before anything is redacted
    assert "s1" not in found.values()
    assert found["gen_ai.request.choice.count"] == 2
    assert found["openinference.span.kind"] == "LLM"
    assert found["llm.model_name"] == "m-2026"
    assert found["llm.provider"] == found["gen_ai.provider.name"] == "openai"
    assert json.loads(found["llm.invocation_parameters"]) == {"temperature": 0.5, "n": 2, "max_tokens": 9}
    tokens = {key: value for key, value in found.items() if key.startswith("llm.token_count.")}
    assert tokens == {
        "llm.token_count.prompt": 10,
        "llm.token_count.completion": 4,
        "llm.token_count.total": 14,
        "llm.token_count.prompt_details.cache_read": 3,
    }


def test_what_is_not_known_is_not_said():
    found = emitted().attributes
    assert not [key for key in found if key.startswith(("llm.token_count", "gen_ai.usage"))]
    assert None not in found.values()


def test_the_span_never_has_content():
    assert "secret" not in emitted().to_json()


def test_openinference_can_be_left_out():
    found = emitted(openinference=False).attributes
    assert not [key for key in found if key.startswith(("llm.", "openinference.", "session."))]
    assert found["gen_ai.operation.name"] == "chat"


def test_anthropics_route_is_named_as_anthropics():
    assert emitted(route="messages").attributes["gen_ai.provider.name"] == "anthropic"


HEADERS = [(b"baggage", b"user.id=ann"), (b"traceparent", b"00-a-b-01"), (b"tracestate", b"k=v")]


@pytest.mark.parametrize(("kept", "goes_on"), [(False, HEADERS[1:]), (True, HEADERS)])
def test_baggage_stays_behind_unless_it_is_to_go_on(kept, goes_on):
    assert for_upstream(HEADERS, host=b"h", baggage=kept) == [(b"host", b"h"), *goes_on]


def test_baggage_stays_behind_without_being_asked():
    assert for_upstream(HEADERS, host=b"h") == [(b"host", b"h"), *HEADERS[1:]]

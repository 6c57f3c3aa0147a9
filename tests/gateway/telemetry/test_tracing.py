"""The exchange's span, by OpenTelemetry's names and by OpenInference's; and which baggage goes on."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.capture.exchange_reader import summary_of
from gateway.http.headers import for_upstream
from gateway.telemetry.tracing import OTelSpans, Server
from gaugeway.exchange import Exchange, ExchangeSummary, Explicit, Request, Response, Trace
from gaugeway.records import Usage

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


SERVERS = {"default": Server("h", 443), "azure": Server("shop.openai.azure.com", 443, "azure.ai.openai")}


def emitted(route="chat_completions", usage=None, upstream=None, known=None, **options):
    exporter = InMemorySpanExporter()
    spans = OTelSpans(SimpleSpanProcessor(exporter), servers=SERVERS, **options)
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
        upstream=upstream,
    )
    spans.emit(replace(summary_of(exchange), **known or {}))
    (span,) = exporter.get_finished_spans()
    return span


def test_the_span_has_openinference_names_besides_opentelemetrys():
    usage = Usage(input_tokens=10, output_tokens=4, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1)
    found = emitted(usage=usage).attributes
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
        "llm.token_count.prompt_details.cache_write": 2,
        "llm.token_count.completion_details.reasoning": 1,
    }
    assert {key: value for key, value in found.items() if key.startswith("gen_ai.usage.")} == {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_write.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1,
    }


def test_what_is_not_known_is_not_said():
    found = emitted().attributes
    assert not [key for key in found if key.startswith(("llm.token_count", "gen_ai.usage"))]
    assert None not in found.values()


def test_the_span_never_has_content():
    assert "secret" not in emitted().to_json()


def test_anthropics_route_is_named_as_anthropics():
    assert emitted(route="messages").attributes["gen_ai.provider.name"] == "anthropic"


@pytest.mark.parametrize(("route", "provider"), [("decisions", "openai"), ("systemone", "typesafe")])
def test_a_decision_is_named_as_one(route, provider):
    span = emitted(route)
    assert span.name == "decision m"
    assert (span.attributes["gen_ai.operation.name"], span.attributes["gen_ai.provider.name"]) == ("decision", provider)


def test_the_input_of_anthropics_route_includes_what_its_cache_read_and_wrote():
    usage = Usage(input_tokens=10, output_tokens=4, cached_tokens=300, cache_write_tokens=20)
    found = emitted(route="messages", usage=usage).attributes
    assert found["gen_ai.usage.input_tokens"] == found["llm.token_count.prompt"] == 330
    assert found["llm.token_count.total"] == 334


def test_the_provider_and_the_address_are_those_of_the_upstream_that_answered():
    found = emitted(upstream="azure").attributes
    assert (found["gen_ai.provider.name"], found["llm.provider"]) == ("azure.ai.openai", "azure")
    assert found["server.address"] == "shop.openai.azure.com"
    assert found["openai.api.type"] == "chat_completions"
    assert emitted(upstream="gone").attributes["server.address"] == "h"


def test_attributes_of_openai_are_left_out_for_other_providers():
    groq = {"default": Server("api.groq.com", 443, "groq")}
    exporter = InMemorySpanExporter()
    spans = OTelSpans(SimpleSpanProcessor(exporter), servers=groq)
    summary = ExchangeSummary(
        id="x",
        app="a",
        route="chat_completions",
        model="m",
        stream=False,
        started_at=1.0,
        duration_s=1.0,
        ending="complete",
        status=200,
        trace=Trace(TRACE, SPAN),
    )
    spans.emit(summary)
    found = exporter.get_finished_spans()[0].attributes
    assert found["gen_ai.provider.name"] == "groq"
    assert "openai.api.type" not in found


def test_session_and_prompt_version_are_named():
    found = emitted(known={"conversation": "chat-7", "prompt": "0a1b2c3d4e5f"}).attributes
    assert found["gen_ai.conversation.id"] == found["session.id"] == "chat-7"
    assert found["gen_ai.prompt.version"] == "0a1b2c3d4e5f"


def test_the_span_names_scope_version_and_schema():
    scope = emitted().instrumentation_scope
    assert (scope.name, scope.version) == ("gaugeway", version("gaugeway"))
    assert scope.schema_url.startswith("https://opentelemetry.io/schemas/gen-ai")


HEADERS = [(b"baggage", b"user.id=ann"), (b"traceparent", b"00-a-b-01"), (b"tracestate", b"k=v")]


@pytest.mark.parametrize(("kept", "goes_on"), [(False, HEADERS[1:]), (True, HEADERS)])
def test_baggage_stays_behind_unless_it_is_to_go_on(kept, goes_on):
    assert for_upstream(HEADERS, host=b"h", baggage=kept) == [(b"host", b"h"), *goes_on]


def test_baggage_stays_behind_without_being_asked():
    assert for_upstream(HEADERS, host=b"h") == [(b"host", b"h"), *HEADERS[1:]]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_the_bound_on_output_is_that_of_the_route(name):
    assert emitted(known={"parameters": {name: 7, "top_k": 5}}).attributes["gen_ai.request.max_tokens"] == 7


@pytest.mark.parametrize(("given", "shown"), [(5, 5), (5.0, None), ("5", None)])
def test_top_k_is_a_whole_number(given, shown):
    assert emitted(known={"parameters": {"top_k": given}}).attributes.get("gen_ai.request.top_k") == shown

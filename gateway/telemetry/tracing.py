"""The OpenTelemetry CLIENT span of an exchange: ids are drawn on the request path, the span is built by capture."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gaugeway.data_files import table
from gaugeway.exchange import DECISION_ROUTES, ExchangeSummary, Trace
from gaugeway.records import Usage
from gaugeway.runtime import otlp_exporters
from gaugeway.settings.bounds import bounded_name
from gaugeway.settings.shared import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from gateway.telemetry.inference_metrics import InferenceMetrics

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?\s*\Z")
_OPERATIONS = {"completions": "text_completion"} | dict.fromkeys(DECISION_ROUTES, "decision")
_PROVIDER_OF = {"messages": "anthropic", "systemone": "typesafe"}
_MAX_ATTRIBUTE = 1000
_INT64 = 2**63
_API_TYPES = {"chat_completions": "chat_completions", "responses": "responses"}
_PROVIDERS: Mapping[str, str] = table("gateway.telemetry", "providers.toml")
"""OpenTelemetry's names of providers -> OpenInference's, where they differ."""
_OPENAI = frozenset({"openai", "azure.ai.openai"})
"""Providers whose spans have attributes of the namespace `openai`."""


def parse_traceparent(value: bytes | None) -> tuple[str, str, bool] | None:
    """Return (trace id, span id, sampled) of a W3C traceparent header, or None when there is no valid one."""
    match = _TRACEPARENT.match(value) if value else None
    if match is None or match[1] == b"ff" or not match[2].strip(b"0") or not match[3].strip(b"0"):
        return None
    return match[2].decode(), match[3].decode(), bool(int(match[4], 16) & 1)


class ForeignSpans:
    """No spans of the gateway's own: the exchange belongs to the app's span, and its traceparent is forwarded."""

    def begin(self, traceparent: bytes | None) -> tuple[Trace | None, bytes | None]:
        """Return the app's trace, if it has one."""
        parsed = parse_traceparent(traceparent)
        return (Trace(parsed[0], parsed[1], None, parsed[2]) if parsed else None), None


class OwnSpans:
    """One span per exchange, child of the app's span or a new root; `propagate` makes it the upstream's parent."""

    def __init__(self, *, propagate: bool) -> None:
        self._propagate = propagate

    def begin(self, traceparent: bytes | None) -> tuple[Trace | None, bytes | None]:
        """Draw the span's ids for the upstream's traceparent; the span is built when the exchange is complete."""
        trace_id, parent_id, sampled = parse_traceparent(traceparent) or (os.urandom(16).hex(), None, True)
        trace = Trace(trace_id, os.urandom(8).hex(), parent_id, sampled)
        outgoing = f"00-{trace.trace_id}-{trace.span_id}-{'01' if sampled else '00'}".encode()
        return trace, outgoing if self._propagate else None


class Server(NamedTuple):
    """An upstream as its spans name it; `provider` is None where neither the configuration nor the host says it."""

    address: str
    port: int
    provider: str | None = None


class OTelSpans:
    """Emits `chat {model}` spans with `gen_ai.*` and `openinference` attributes, without content.

    `servers` are the upstreams by name; the first stands for an exchange that was sent to none. `metrics` counts
    exchanges of all traces, also of those that are not sampled. With `both` attributes have their old names too.
    """

    def __init__(
        self,
        processor: SpanProcessor,
        *,
        servers: Mapping[str, Server],
        metrics: InferenceMetrics | None = None,
        both: bool = False,
    ) -> None:
        self._processor = processor
        self._resource = otlp_exporters.resource("gaugeway-gateway")
        self._scope = otlp_exporters.scope()
        self._metrics = metrics
        self._both = both
        self._servers = servers
        self._first = next(iter(servers.values()))

    def emit(self, exchange: ExchangeSummary) -> None:
        """Build the finished span from the exchange and pass it to the processor."""
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415 - only with telemetry on
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags  # noqa: PLC0415

        trace = exchange.trace
        sampled = trace is not None and trace.sampled
        if not sampled and self._metrics is None:
            return
        attributes = self._attributes(exchange)
        if self._metrics is not None:
            self._metrics.record(exchange, attributes)
        if trace is None or not sampled:
            return
        flags = TraceFlags(TraceFlags.SAMPLED)
        trace_id = int(trace.trace_id, 16)
        context = SpanContext(trace_id, int(trace.span_id, 16), is_remote=False, trace_flags=flags)
        parent = None
        if trace.parent_id:
            parent = SpanContext(trace_id, int(trace.parent_id, 16), is_remote=True, trace_flags=flags)
        start = int(exchange.started_at * 1e9)
        self._processor.on_end(
            ReadableSpan(
                name=f"{attributes['gen_ai.operation.name']} {exchange.model}",
                context=context,
                parent=parent,
                resource=self._resource,
                instrumentation_scope=self._scope,
                attributes=attributes,
                kind=SpanKind.CLIENT,
                status=Status(StatusCode.ERROR if "error.type" in attributes else StatusCode.UNSET),
                start_time=start,
                end_time=start + int(exchange.duration_s * 1e9),
            )
        )

    def _attributes(self, exchange: ExchangeSummary) -> dict[str, Any]:
        parameters, route = exchange.parameters, exchange.route
        server = self._servers.get(exchange.upstream or "", self._first)
        provider = server.provider or _PROVIDER_OF.get(route, "openai")
        found = {
            "server.address": server.address,
            "server.port": server.port,
            "gen_ai.operation.name": _OPERATIONS.get(route, "chat"),
            "gen_ai.provider.name": provider,
            "gen_ai.conversation.id": exchange.conversation,
            "gen_ai.prompt.version": exchange.prompt,
            "gen_ai.request.model": exchange.model,
            "openai.api.type": _API_TYPES.get(route) if provider in _OPENAI else None,
            "gen_ai.request.stream": exchange.stream or None,
            "gen_ai.request.max_tokens": _max_tokens(parameters),
            "gen_ai.request.temperature": parameters.get("temperature"),
            "gen_ai.request.top_p": parameters.get("top_p"),
            "gen_ai.request.top_k": top_k if isinstance(top_k := parameters.get("top_k"), int) else None,
            "gen_ai.request.seed": parameters.get("seed"),
            "gen_ai.request.frequency_penalty": parameters.get("frequency_penalty"),
            "gen_ai.request.presence_penalty": parameters.get("presence_penalty"),
            "gen_ai.request.choice.count": parameters.get("n") if parameters.get("n") != 1 else None,
            "gen_ai.response.id": exchange.response_id,
            "gen_ai.response.model": exchange.response_model,
            "gen_ai.response.finish_reasons": [exchange.finish_reason] if exchange.finish_reason else None,
            "gen_ai.response.time_to_first_chunk": exchange.first_chunk_s if exchange.stream else None,
            **_usage(exchange, both=self._both),
            "gaugeway.exchange.id": exchange.id,
            "gaugeway.app": exchange.app,
            "error.type": _error_type(exchange),
            **_openinference(exchange, provider),
        }
        known = ((key, _fit(value)) for key, value in found.items() if value is not None)
        return {key: value for key, value in known if value is not None}


def batch_processor(settings: Telemetry) -> SpanProcessor | None:
    """Return the SDK's bounded buffer with its own thread: emitting never waits for the network. None without endpoint.

    What the SDK does not accept in the environment is a warning.
    """
    if (endpoint := settings.otlp_endpoint) is None:
        return None

    def build() -> SpanProcessor:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - only with telemetry on

        exporter = otlp_exporters.span_exporter(endpoint, settings.otlp_headers)
        otlp_exporters.resource("gaugeway-gateway")  # reads more of the environment, now instead of with the first span
        return BatchSpanProcessor(exporter)

    return otlp_exporters.unless_refused(build)


def _max_tokens(parameters: Mapping[str, Any]) -> Any:
    names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
    return next((parameters[name] for name in names if parameters.get(name)), None)


def _usage(exchange: ExchangeSummary, *, both: bool) -> dict[str, int | None]:
    usage = exchange.usage or Usage()
    return {
        **({"gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens} if both else {}),
        "gen_ai.usage.input_tokens": _input_tokens(exchange),
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def _input_tokens(exchange: ExchangeSummary) -> int | None:
    """Return all tokens of the input: OpenTelemetry's include what was read from a cache and written to it.

    Anthropic reports the three apart (its API reference, "Usage").
    """
    usage = exchange.usage or Usage()
    if exchange.route != "messages" or usage.input_tokens is None:
        return usage.input_tokens
    return usage.input_tokens + (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)


def _openinference(exchange: ExchangeSummary, provider: str) -> dict[str, Any]:
    """The attributes by OpenInference's names (https://github.com/Arize-ai/openinference, spec)."""
    usage = exchange.usage or Usage()
    sent, received = _input_tokens(exchange), usage.output_tokens
    parameters = {name: value for name, value in exchange.parameters.items() if not isinstance(value, str)}
    return {
        "openinference.span.kind": "LLM",
        "session.id": exchange.conversation,
        "llm.model_name": exchange.response_model or exchange.model,
        "llm.provider": _PROVIDERS.get(provider, provider),
        "llm.invocation_parameters": json.dumps(parameters) if parameters else None,
        "llm.token_count.prompt": sent,
        "llm.token_count.completion": received,
        "llm.token_count.total": sent + received if sent is not None and received is not None else None,
        "llm.token_count.prompt_details.cache_read": usage.cached_tokens,
        "llm.token_count.prompt_details.cache_write": usage.cache_write_tokens,
        "llm.token_count.completion_details.reasoning": usage.reasoning_tokens,
    }


def _fit(value: Any) -> Any:
    """Return an attribute's value, or None if it is not valid: an integer beyond 64 bits would lose a whole batch."""
    if isinstance(value, str):
        return bounded_name(value, _MAX_ATTRIBUTE)
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else None


def _error_type(exchange: ExchangeSummary) -> str | None:
    if exchange.ending != "complete":
        return exchange.ending
    return str(exchange.status) if exchange.status >= 400 else None  # noqa: PLR2004 - HTTP's border

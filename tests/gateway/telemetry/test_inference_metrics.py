"""The metrics of exchanges by the names of the GenAI conventions 0.1, and by the older ones."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from opentelemetry.sdk.metrics import Counter, Histogram
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.telemetry import inference_metrics, tracing
from gateway.telemetry.inference_metrics import InferenceMetrics
from gateway.telemetry.tracing import OTelSpans, Server
from gaugeway.exchange import ExchangeSummary, Trace
from gaugeway.records import Usage
from gaugeway.runtime.otlp_exporters import SCHEMA_URL
from gaugeway.runtime.otlp_metrics import MAX_ATTRIBUTE_SETS
from gaugeway.settings.shared import Telemetry

USAGE = Usage(input_tokens=10, output_tokens=4, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1)
DURATIONS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
WHO = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m",
    "gen_ai.response.model": "m-2026",
    "server.address": "h",
    "server.port": 443,
}
NEW = "gen_ai.client.inference."


def exchange(**changed):
    found = {
        "id": "x1",
        "app": "shop",
        "route": "chat_completions",
        "model": "m",
        "stream": True,
        "started_at": 1.0,
        "duration_s": 0.5,
        "first_chunk_s": 0.1,
        "ending": "complete",
        "status": 200,
        "response_model": "m-2026",
        "usage": USAGE,
        "trace": Trace("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),
    }
    return ExchangeSummary(**found | changed)


def recorded(*exchanges, both=False, temporality=None, readings=1):
    """The metrics by name, and the names of the spans."""
    reader, exporter = InMemoryMetricReader(preferred_temporality=temporality), InMemorySpanExporter()
    metrics = InferenceMetrics(reader, both=both)
    spans = OTelSpans(SimpleSpanProcessor(exporter), servers={"default": Server("h", 443)}, metrics=metrics, both=both)
    for one in exchanges:
        spans.emit(one)
    for _ in range(readings):
        data = reader.get_metrics_data()
    scopes = [] if data is None else [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    assert {(one.scope.name, one.scope.version, one.schema_url) for one in scopes} <= {
        ("gaugeway", version("gaugeway"), SCHEMA_URL)
    }
    named = {metric.name: metric for scope in scopes for metric in scope.metrics}
    reader.shutdown()
    return named, exporter.get_finished_spans()


def point(metric):
    (found,) = metric.data.data_points
    return found


def test_the_names_buckets_and_labels_are_those_of_the_conventions():
    found, _ = recorded(exchange())
    assert {name: metric.unit for name, metric in found.items()} == {
        f"{NEW}duration": "s",
        f"{NEW}time_to_first_chunk": "s",
        f"{NEW}usage.input_tokens": "{token}",
        f"{NEW}usage.output_tokens": "{token}",
        f"{NEW}usage.cache_read.input_tokens": "{token}",
        f"{NEW}usage.cache_write.input_tokens": "{token}",
        f"{NEW}usage.reasoning.output_tokens": "{token}",
        f"{NEW}operation.input_tokens": "{token}",
        f"{NEW}operation.output_tokens": "{token}",
    }
    for name, value, buckets in (
        ("duration", 0.5, DURATIONS),
        ("time_to_first_chunk", 0.1, DURATIONS),
        ("operation.input_tokens", 10, TOKENS),
        ("operation.output_tokens", 4, TOKENS),
    ):
        one = point(found[NEW + name])
        assert (one.sum, one.count, tuple(one.explicit_bounds), dict(one.attributes)) == (value, 1, buckets, WHO)
    for kind, count in (
        ("input_tokens", 10),
        ("output_tokens", 4),
        ("cache_read.input_tokens", 3),
        ("cache_write.input_tokens", 2),
        ("reasoning.output_tokens", 1),
    ):
        one = point(found[f"{NEW}usage.{kind}"])
        assert (one.value, dict(one.attributes)) == (count, WHO | {"gen_ai.token.modality": "unknown"})


def test_both_records_the_names_before_0_1_beside_the_new_ones():
    new, _ = recorded(exchange())
    found, (span,) = recorded(exchange(), both=True)
    assert set(found) - set(new) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
    }
    for name in ("duration", "time_to_first_chunk"):
        assert point(found[f"gen_ai.client.operation.{name}"]).sum == point(found[NEW + name]).sum
    used = {one.attributes["gen_ai.token.type"]: one.sum for one in found["gen_ai.client.token.usage"].data.data_points}
    assert used == {"input": 10, "output": 4}
    assert span.attributes["gen_ai.usage.cache_creation.input_tokens"] == 2
    assert span.attributes["gen_ai.usage.cache_write.input_tokens"] == 2


def test_an_unsampled_trace_is_counted_though_it_has_no_span():
    found, spans = recorded(exchange(trace=None), exchange(trace=Trace("0" * 31 + "1", "0" * 15 + "1", None, False)))
    assert spans == ()
    assert point(found[f"{NEW}duration"]).count == 2


def test_an_error_is_in_the_duration_and_what_is_not_reported_is_not_counted():
    found, _ = recorded(exchange(status=503, usage=None, stream=False))
    assert set(found) == {f"{NEW}duration"}
    assert point(found[f"{NEW}duration"]).attributes["error.type"] == "503"


@pytest.mark.parametrize("changed", [{"cached": True}, {"ending": "rejected", "status": 429}])
def test_what_no_upstream_answered_is_no_inference(changed):
    found, spans = recorded(exchange(**changed))
    assert found == {}
    assert len(spans) == 1


def test_models_that_clients_make_up_are_counted_together_beyond_the_bound():
    found, _ = recorded(*(exchange(model=f"m{index}") for index in range(MAX_ATTRIBUTE_SETS + 5)))
    points = found[f"{NEW}duration"].data.data_points
    assert len(points) == MAX_ATTRIBUTE_SETS + 1
    (beyond,) = (one for one in points if one.attributes.get("otel.metric.overflow"))
    assert sum(one.count for one in points) == MAX_ATTRIBUTE_SETS + 5
    assert beyond.count == 5


@pytest.mark.parametrize(
    ("temporality", "again"), [(AggregationTemporality.CUMULATIVE, 1), (AggregationTemporality.DELTA, 0)]
)
def test_the_reader_says_whether_values_are_sent_once_or_add_up(temporality, again):
    found, _ = recorded(exchange(), temporality=dict.fromkeys((Counter, Histogram), temporality), readings=2)
    assert sum(point(metric).count for metric in found.values() if metric.name == f"{NEW}duration") == again


def test_a_value_is_in_the_bucket_whose_bound_it_does_not_exceed():
    found, _ = recorded(*(exchange(duration_s=seconds) for seconds in (0.01, 0.011, 100.0)))
    one = point(found[f"{NEW}duration"])
    assert tuple(one.bucket_counts) == (1, 1, *[0] * 12, 1)
    assert (one.min, one.max) == (0.01, 100.0)


def test_nothing_is_recorded_for_an_endpoint_that_takes_only_spans():
    assert inference_metrics.opened(Telemetry(otlp_endpoint="http://127.0.0.1:9", events=False)) is None
    assert inference_metrics.opened(Telemetry()) is None
    assert tracing.batch_processor(Telemetry()) is None

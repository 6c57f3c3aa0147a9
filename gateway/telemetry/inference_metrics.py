"""The GenAI conventions' metrics of exchanges, sent over OTLP; they are counted off the request path."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from gateway.telemetry.metrics import FIRST_CHUNK_BUCKETS
from gaugeway.exchange import ExchangeSummary
from gaugeway.runtime import otlp_exporters
from gaugeway.settings.shared import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric, MetricReader, MetricsData

MAX_ATTRIBUTE_SETS = 1000
"""Of each metric in a process: clients name models."""
_NEW, _OLD = "gen_ai.client.inference", "gen_ai.client.operation"
_TOKEN_BUCKETS = tuple(4.0**power for power in range(14))
_LABELS = (
    *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"),
    *("server.address", "server.port"),
)
_TOKENS = ("input_tokens", "output_tokens")
_PARTS = ("cache_read.input_tokens", "cache_write.input_tokens", "reasoning.output_tokens")
_Labels: TypeAlias = tuple[tuple[str, Any], ...]
_OVERFLOW: _Labels = (("otel.metric.overflow", True),)


def opened(settings: Telemetry) -> InferenceMetrics | None:
    """Return what sends the metrics; None without an endpoint, and for one that takes only spans."""
    endpoint = settings.otlp_endpoint
    if endpoint is None or not settings.events:
        return None
    return otlp_exporters.unless_refused(
        lambda: InferenceMetrics(
            otlp_exporters.metric_reader(endpoint, settings.otlp_headers), both=settings.semconv == "both"
        )
    )


class InferenceMetrics:
    """Durations and tokens of what upstreams answered, with `both` under the names before 0.1 too.

    The SDK's instruments take 9 us a value, most of it to look at the attributes, and an exchange has nine values. So
    they are added up here, and the SDK's reader sends them. How long single chunks took is not known
    (`time_per_output_chunk`), nor which tokens are of text.
    """

    def __init__(self, reader: MetricReader, *, both: bool = False) -> None:
        families = (_NEW, _OLD) if both else (_NEW,)
        self._durations = [_Instrument(f"{name}.duration", "s", FIRST_CHUNK_BUCKETS) for name in families]
        self._first_chunks = [_Instrument(f"{name}.time_to_first_chunk", "s", FIRST_CHUNK_BUCKETS) for name in families]
        self._spent = {kind: _Instrument(f"{_NEW}.usage.{kind}", "{token}") for kind in (*_TOKENS, *_PARTS)}
        self._tokens = {kind: _Instrument(f"{_NEW}.operation.{kind}", "{token}", _TOKEN_BUCKETS) for kind in _TOKENS}
        self._old_tokens = [_Instrument("gen_ai.client.token.usage", "{token}", _TOKEN_BUCKETS)] if both else []
        self._resource = otlp_exporters.resource("gaugeway-gateway")
        self._since = time.time_ns()
        self._lock = Lock()
        self._reader = reader
        # The SDK takes finished histograms in no other way; it declares the callback's parameters wrongly.
        reader._set_collect_callback(lambda reader, **_: self._collect(reader))  # type: ignore[arg-type]  # noqa: SLF001

    def record(self, exchange: ExchangeSummary, attributes: Mapping[str, Any]) -> None:
        """Record one exchange; `attributes` are those of its span. What no upstream answered is no inference."""
        if exchange.cached or exchange.ending == "rejected":
            return
        labels = tuple((name, attributes[name]) for name in _LABELS if name in attributes)
        error = attributes.get("error.type")
        ended = labels if error is None else (*labels, ("error.type", error))
        first = attributes.get("gen_ai.response.time_to_first_chunk")
        usage = ((kind, attributes.get(f"gen_ai.usage.{kind}")) for kind in self._spent)
        counts = {kind: count for kind, count in usage if count is not None}
        with self._lock:
            for duration in self._durations:
                duration.add(ended, exchange.duration_s)
            if first is not None:
                for first_chunk in self._first_chunks:
                    first_chunk.add(labels, first)
            for kind, count in counts.items():
                self._spent[kind].add((*labels, ("gen_ai.token.modality", "unknown")), count)
                if kind in self._tokens:
                    self._tokens[kind].add(ended, count)
                    for old in self._old_tokens:
                        old.add((*labels, ("gen_ai.token.type", kind.removesuffix("_tokens"))), count)

    def shutdown(self) -> None:
        """Send what was recorded since the last time; blocks."""
        self._reader.shutdown()

    def _collect(self, reader: MetricReader) -> MetricsData | None:
        from opentelemetry.sdk.metrics import export  # noqa: PLC0415 - only with telemetry on

        # OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE gives counters and histograms the same.
        asked = {kind.__name__: found for kind, found in reader._instrument_class_temporality.items()}  # noqa: SLF001
        temporality = asked["_Histogram"]
        instruments = [*self._durations, *self._first_chunks, *self._spent.values(), *self._tokens.values()]
        with self._lock:
            since, now = self._since, time.time_ns()
            used = [one for one in (*instruments, *self._old_tokens) if one.points]
            metrics = [one.collected(since, now, temporality) for one in used]
            if temporality is export.AggregationTemporality.DELTA:
                self._since = now
                for one in used:
                    one.points.clear()
        if not metrics:
            return None
        scope = export.ScopeMetrics(otlp_exporters.scope(), metrics, otlp_exporters.SCHEMA_URL)
        return export.MetricsData([export.ResourceMetrics(self._resource, [scope], self._resource.schema_url)])


class _Point:
    """The values of one set of attributes."""

    __slots__ = ("counts", "greatest", "least", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total: float = 0
        self.least, self.greatest = float("inf"), float("-inf")


class _Instrument:
    """A histogram; without `bounds` a counter."""

    def __init__(self, name: str, unit: str, bounds: tuple[float, ...] = ()) -> None:
        self._name, self._unit, self._bounds = name, unit, bounds
        self.points: dict[_Labels, _Point] = {}

    def add(self, labels: _Labels, value: float) -> None:
        """Add a value; where there is no room for its attributes, to the one point of all such."""
        point = self.points.get(labels)
        if point is None:
            labels = labels if len(self.points) < MAX_ATTRIBUTE_SETS else _OVERFLOW
            point = self.points.setdefault(labels, _Point(len(self._bounds) + 1))
        point.counts[bisect_left(self._bounds, value)] += 1
        point.total += value
        point.least, point.greatest = min(point.least, value), max(point.greatest, value)

    def collected(self, since: int, now: int, temporality: AggregationTemporality) -> Metric:
        """Return all points as the SDK's exporter takes them."""
        from opentelemetry.sdk.metrics import export  # noqa: PLC0415 - only with telemetry on

        data: export.Sum | export.Histogram
        points = [(dict(labels), point) for labels, point in self.points.items()]
        if self._bounds:
            histograms = [
                export.HistogramDataPoint(
                    attributes,
                    since,
                    now,
                    count=sum(point.counts),
                    sum=point.total,
                    bucket_counts=tuple(point.counts),
                    explicit_bounds=self._bounds,
                    min=point.least,
                    max=point.greatest,
                )
                for attributes, point in points
            ]
            data = export.Histogram(histograms, temporality)
        else:
            sums = [export.NumberDataPoint(attributes, since, now, point.total) for attributes, point in points]
            data = export.Sum(sums, temporality, is_monotonic=True)
        return export.Metric(self._name, "", self._unit, data)

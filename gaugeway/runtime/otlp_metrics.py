"""Metrics that are sent over OpenTelemetry: added up here, and sent by the SDK's reader.

The SDK's own instruments take 9 us a value, most of it to look at the attributes.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from gaugeway.runtime import otlp_exporters
from gaugeway.settings.shared import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric, MetricReader, MetricsData

MAX_ATTRIBUTE_SETS = 1000
"""Of each metric in a process: clients name models, tools and agents."""
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The conventions' buckets of how long a model or a tool took."""
Labels: TypeAlias = tuple[tuple[str, Any], ...]
_OVERFLOW: Labels = (("otel.metric.overflow", True),)


_T = TypeVar("_T")


def opened(settings: Telemetry, build: Callable[[MetricReader], _T]) -> _T | None:
    """Return what `build` makes of the SDK's reader; None without an endpoint, and for one that takes only spans."""
    if (endpoint := settings.otlp_endpoint) is None or not settings.events:
        return None
    return otlp_exporters.unless_refused(lambda: build(otlp_exporters.metric_reader(endpoint, settings.otlp_headers)))


class Metrics:
    """The instruments of a process; hold `lock` while values are added to them."""

    def __init__(self, reader: MetricReader, service: str, instruments: Sequence[Instrument]) -> None:
        self.lock = Lock()
        self._instruments = instruments
        self._resource = otlp_exporters.resource(service)
        self._since = time.time_ns()
        self._reader = reader
        # The SDK takes finished histograms in no other way; it declares the callback's parameters wrongly.
        reader._set_collect_callback(lambda reader, **_: self._collect(reader))  # type: ignore[arg-type]  # noqa: SLF001

    def shutdown(self) -> None:
        """Send what was added since the last time; blocks."""
        self._reader.shutdown()

    async def aclose(self) -> None:
        """Send it, unless the collector does not answer."""
        await otlp_exporters.shut_down(self.shutdown)

    def _collect(self, reader: MetricReader) -> MetricsData | None:
        from opentelemetry.sdk.metrics import export  # noqa: PLC0415 - only with telemetry on

        # OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE gives counters and histograms the same.
        asked = {kind.__name__: found for kind, found in reader._instrument_class_temporality.items()}  # noqa: SLF001
        temporality = asked["_Histogram"]
        with self.lock:
            since, now = self._since, time.time_ns()
            used = [instrument for instrument in self._instruments if instrument.points]
            metrics = [instrument.collected(since, now, temporality) for instrument in used]
            if temporality is export.AggregationTemporality.DELTA:
                self._since = now
                for instrument in used:
                    instrument.points.clear()
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


class Instrument:
    """A histogram; without `bounds` a counter."""

    def __init__(self, name: str, unit: str, bounds: tuple[float, ...] = ()) -> None:
        self._name, self._unit, self._bounds = name, unit, bounds
        self.points: dict[Labels, _Point] = {}

    def add(self, labels: Labels, value: float) -> None:
        """Add a value; where there is no room for its attributes, to the one point of all such."""
        if (point := self.points.get(labels)) is None:
            labels = labels if len(self.points) < MAX_ATTRIBUTE_SETS else _OVERFLOW
            point = self.points.setdefault(labels, _Point(len(self._bounds) + 1))
        point.total += value
        if not self._bounds:
            return
        point.counts[bisect_left(self._bounds, value)] += 1
        point.least = min(point.least, value)
        point.greatest = max(point.greatest, value)

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

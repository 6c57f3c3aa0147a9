"""The gateway's Prometheus instruments; they are updated off the request path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gaugeway.exchange import GENERATION_ROUTES, Recording
from gaugeway.processes.worker_metrics import Mode
from gaugeway.records import Sample, Usage
from gaugeway.runtime.label_cap import OVERFLOW, LabelCap

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 600)
FIRST_CHUNK_BUCKETS = DURATION_BUCKETS[:-2]
MAX_REQUEST_SERIES = 10_000
"""Series of `gaugeway_requests_total`; beyond that app and model become `_other`."""
OVERHEAD_BUCKETS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05)


class Instruments:
    """All series of the gateway's `/metrics`. The label caps are not thread-safe: count one exchange at a time."""

    def __init__(self, registry: CollectorRegistry, *, version: str) -> None:
        self.registry = registry
        self.modes: dict[str, Mode] = {}
        self._traffic()
        self._capture()
        self._bounds()
        self._gauges(version)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"gaugeway_{name}", text, labels, registry=self.registry)

    def _counting(self, name: str, text: str, *labels: str, known: Iterable[str] = ()) -> Callable[..., None]:
        """Return what counts one under the values of `labels`; the `known` ones are there from the start, at 0."""
        counter = self._counter(name, text, *labels)
        for value in known:
            counter.labels(value)
        return lambda *values: counter.labels(*values).inc()

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"gaugeway_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, mode: Literal["livesum", "livemin", "max"], *labels: str) -> Gauge:
        """Return a gauge; the mode says how the values of several workers are combined."""
        self.modes[f"gaugeway_{name}"] = mode
        return Gauge(f"gaugeway_{name}", text, labels, registry=self.registry)

    def _traffic(self) -> None:
        """Create the series of requests, upstreams, tokens and costs."""
        labels = ("app", "route", "model", "status_class", "stream", "ending")
        self._requests = self._counter("requests", "Requests, by how they ended.", *labels)
        self._duration = self._histogram(
            "request_duration_seconds",
            "From the request's head to the response's last byte.",
            ("app", "model", "stream"),
            DURATION_BUCKETS,
        )
        self._first_chunk = self._histogram(
            "time_to_first_chunk_seconds",
            "From the request's head to the first byte of a streamed body.",
            ("app", "model"),
            FIRST_CHUNK_BUCKETS,
        )
        overhead = self._histogram(
            "overhead_seconds",
            "Time spent in the gateway itself: request = before sending on; capture = off the request path.",
            ("stage",),
            OVERHEAD_BUCKETS,
        )
        self._request_overhead = overhead.labels("request")
        self.capture_seconds = overhead.labels("capture").observe
        self._requests_children: dict[tuple[str, str, bool, str, str, str], tuple[Counter, Histogram, Histogram]] = {}
        self._tokens = self._counter("tokens", "Tokens the upstream reported.", "app", "model", "type")
        self._cost = self._counter("cost_usd", "What exchanges cost at the configured prices.", "app", "model", "type")
        self.error = self._counting("upstream_errors", "Upstream failures by kind.", "upstream", "kind")
        self.resent = self._counting(
            "upstream_resends", "Requests sent again because a reused connection had ended, by reason.", "reason"
        )

    def _capture(self) -> None:
        """Create the series of what is captured, and of its way to the queue."""
        self._exchanges = self._counter("exchanges", "Exchanges, each with exactly one outcome.", "app", "outcome")
        self._extractions = self._counter(
            "context_extractions", "Captured exchanges by what found their contexts.", "app", "extractor"
        )
        self.unreadable = self._counting(
            "unreadable", "Exchanges of which a body could not be read, by reason.", "reason"
        )
        self._captured = self._counter(
            "captured", "Captured exchanges by what they are: answers are judged.", "app", "kind"
        )
        self.supplement = self._counting(
            "supplements_received", "Contexts and feedback received separately.", "source", "result"
        )
        self.hand_off_failed = self._counter(
            "handoff_errors", "Failed attempts to reach the queue; they are repeated."
        ).inc
        self._spilled = self._counter(
            "spilled", "Samples that waited in a file while the queue was unavailable.", "result"
        )
        for step in ("spilled", "returned"):
            self._spilled.labels(step)
        self.template = self._counting(
            "templates", "Prompt templates learned here, dropped, or no longer fitting.", "event"
        )
        self.template_failed = self._counting(
            "template_errors", "Failures to keep learned templates, or to share them, by reason.", "reason"
        )

    def _bounds(self) -> None:
        """Create the counters of reloads, of exceeded bounds and of their consequences."""
        self._reloads = self._counter("config_reloads", "Configuration reloads, by result.", "result")
        self._blocking = self._counter(
            "config_restart_keys", "Reloads refused for a key that needs a restart, by key.", "key"
        )
        self._cap = LabelCap(self._counter("label_overflow", "Label values shown as _other, by label.", "label"))
        self.limits_unshared = self._counter("limits_sync_errors", "Failed syncs of shared limits.").inc
        self.charge_estimated = self._counting(
            "charges_estimated", "Charges to limits and budgets not based on reported usage.", "route", "reason"
        )
        self.write_stalled = self._counter(
            "write_stalls", "Connections aborted because the client did not read the response."
        ).inc
        self.body_given_up = self._counting("slow_bodies", "Request bodies aborted as too slow.", "reason")
        self.connection_closed = self._counting(
            "connections_closed",
            "Connections of the traffic port closed because file descriptors ran out.",
            "reason",
            known=("idle", "refused"),
        )
        self.invalid_request = self._counting(
            "invalid_requests",
            "Requests refused before they reached a route of the API, by reason.",
            "reason",
            known=("malformed", "unknown_path"),
        )
        self.tags_dropped = self._counter("tags_dropped", "Tags of requests beyond the number that is kept.").inc

    def _gauges(self, version: str) -> None:
        self.waiting = self._gauge("handoff_waiting", "Exchanges in memory on their way to the queue.", "livesum")
        self.capture_factor = self._gauge("capture_factor", "By which a full queue lowers the capture rate.", "livemin")
        self.capture_factor.set(1.0)
        self.limits_shared = self._gauge(
            "limits_processes", "Gateway processes that share the limits; 0 while each counts for itself.", "livemin"
        ).set
        self._upstream_state = self._gauge(
            "upstream_state", "1 healthy, 0.5 being probed, 0 ejected.", "livemin", "upstream"
        )
        self._gauge("build_info", "Always 1; the version is the label.", "max", "version").labels(version).set(1)

    def request(self, recording: Recording, *, app: str, model: str, stream: bool) -> None:
        """Count one finished request."""
        key = (*self._cap.pair(app, model), stream, recording.route, _status_class(recording.status), recording.ending)
        requests, duration, first_chunk = self._requests_children.get(key) or self._request_children(key)
        requests.inc()
        duration.observe(recording.duration_s)
        if recording.first_chunk_s is not None and stream:
            first_chunk.observe(recording.first_chunk_s)
        if recording.request_overhead_s is not None:
            self._request_overhead.observe(recording.request_overhead_s)
        kind = recording.error_kind or ("status_5xx" if recording.status >= 500 else None)  # noqa: PLR2004
        if kind is not None and recording.ending != "rejected":
            self.error(recording.upstream or "none", kind)

    def usage(self, app: str, model: str, usage: Usage) -> None:
        """Count the tokens the upstream reported."""
        app, model = self._cap.pair(app, model)
        for kind, count in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached", usage.cached_tokens),
        ):
            if count:
                self._tokens.labels(app, model, kind).inc(count)

    def _request_children(self, key: tuple[str, str, bool, str, str, str]) -> tuple[Counter, Histogram, Histogram]:
        """Return the cached series of one kind of request: a look-up costs more than counting."""
        app, model, stream, route, status_class, ending = key
        if len(self._requests_children) >= MAX_REQUEST_SERIES and (app, model) != (OVERFLOW, OVERFLOW):
            self._cap.count("requests", f"{app}\n{model}\n{route}\n{status_class}\n{ending}")
            key = (OVERFLOW, OVERFLOW, stream, route, status_class, ending)
            return self._requests_children.get(key) or self._request_children(key)
        streamed = "true" if stream else "false"
        children = self._requests_children[key] = (
            self._requests.labels(app, route, model, status_class, streamed, ending),
            self._duration.labels(app, model, streamed),
            self._first_chunk.labels(app, model),
        )
        return children

    def cost(self, app: str, model: str, costs: Mapping[str, float]) -> None:
        """Count the cost of an exchange, in USD by type of token."""
        app, model = self._cap.pair(app, model)
        for kind, usd in costs.items():
            self._cost.labels(app, model, kind).inc(usd)

    def outcome(self, app: str, outcome: str) -> None:
        """Count the outcome of an exchange."""
        self._exchanges.labels(self._cap("app", app), outcome).inc()

    def overflown(self, app: str, route: str, status: int, ending: str, count: int) -> None:
        """Count requests that were dropped because the capture buffer was full."""
        app = self._cap("app", app)
        self._requests.labels(app, route, "unknown", _status_class(status), "false", ending).inc(count)
        if route in GENERATION_ROUTES:
            self._exchanges.labels(app, "overflow").inc(count)

    def captured(self, sample: Sample) -> None:
        """Count a sample that the queue has accepted."""
        self.outcome(sample.app, "captured")
        app = self._cap("app", sample.app)
        self._extractions.labels(app, sample.context_source).inc()
        self._captured.labels(app, _kind(sample.skip_reason)).inc()

    def spilled(self, step: str, count: int) -> None:
        """Count samples written to the spill file (spilled) or moved back to the queue (returned)."""
        self._spilled.labels(step).inc(count)

    def state(self, upstream: str, value: float) -> None:
        """Set the state of an upstream: 1 healthy, 0.5 being probed, 0 ejected."""
        self._upstream_state.labels(upstream).set(value)

    def reloaded(self, result: str, keys: Iterable[str] = ()) -> None:
        """Count a reload of the configuration: applied or refused; `keys` are those that need a restart."""
        self._reloads.labels(result).inc()
        for key in keys:
            self._blocking.labels(key).inc()


def _kind(skip_reason: str | None) -> str:
    if skip_reason is None:
        return "answer"
    if skip_reason in ("auxiliary", "tool_call"):
        return "auxiliary"
    return "resubmission" if skip_reason == "resubmission" else "no_answer"


def _status_class(status: int) -> str:
    if not status:
        return "none"
    return f"{status // 100}xx" if status < 1000 else "other"  # noqa: PLR2004 - three digits

"""The gateway's Prometheus instruments; they are updated off the request path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"gaugeway_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"gaugeway_{name}", text, labels, buckets=buckets, registry=registry)

        self.registry = registry
        self.modes: dict[str, Mode] = {}
        labels = ("app", "route", "model", "status_class", "stream", "ending")
        self._requests = counter("requests", "Requests, by how they ended.", *labels)
        self._duration = histogram(
            "request_duration_seconds",
            "From the request's head to the response's last byte.",
            ("app", "model", "stream"),
            DURATION_BUCKETS,
        )
        self._first_chunk = histogram(
            "time_to_first_chunk_seconds",
            "From the request's head to the first byte of a streamed body.",
            ("app", "model"),
            FIRST_CHUNK_BUCKETS,
        )
        self._overhead = histogram(
            "overhead_seconds",
            "Time spent in the gateway itself: request = before sending on; capture = off the request path.",
            ("stage",),
            OVERHEAD_BUCKETS,
        )
        self._request_overhead = self._overhead.labels("request")
        self._capture_overhead = self._overhead.labels("capture")
        self._requests_children: dict[tuple[str, str, bool, str, str, str], tuple[Counter, Histogram, Histogram]] = {}
        self._tokens = counter("tokens", "Tokens the upstream reported.", "app", "model", "type")
        self._cost = counter("cost_usd", "What exchanges cost at the configured prices.", "app", "model", "type")
        self._upstream_errors = counter("upstream_errors", "Upstream failures by kind.", "upstream", "kind")
        self._exchanges = counter("exchanges", "Exchanges, each with exactly one outcome.", "app", "outcome")
        self._extractions = counter(
            "context_extractions", "Captured exchanges by what found their contexts.", "app", "extractor"
        )
        self._unreadable = counter("unreadable", "Exchanges of which a body could not be read, by reason.", "reason")
        self._captured = counter("captured", "Captured exchanges by what they are: answers are judged.", "app", "kind")
        self._supplements = counter(
            "supplements_received", "Contexts and feedback received separately.", "source", "result"
        )
        self._hand_off_errors = counter("handoff_errors", "Failed attempts to reach the queue; they are repeated.")
        self._sync_errors = counter("limits_sync_errors", "Failed syncs of shared limits.")
        self._spilled = counter("spilled", "Samples that waited in a file while the queue was unavailable.", "result")
        for step in ("spilled", "returned"):
            self._spilled.labels(step)
        self._templates = counter("templates", "Prompt templates learned here, dropped, or no longer fitting.", "event")
        self._template_errors = counter(
            "template_errors", "Failures to keep learned templates, or to share them, by reason.", "reason"
        )
        self._reloads = counter("config_reloads", "Configuration reloads, by result.", "result")
        self._blocking = counter(
            "config_restart_keys", "Reloads refused for a key that needs a restart, by key.", "key"
        )
        self._cap = LabelCap(counter("label_overflow", "Label values shown as _other, by label.", "label"))
        self._bounds(registry)
        self._gauges(registry, version)

    def _bounds(self, registry: CollectorRegistry) -> None:
        """Create the counters of exceeded bounds and of their consequences."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"gaugeway_{name}", text, labels, registry=registry)

        self._charges_estimated = counter(
            "charges_estimated", "Charges to limits and budgets not based on reported usage.", "route", "reason"
        )
        self._write_stalls = counter(
            "write_stalls", "Connections aborted because the client did not read the response."
        )
        self._resends = counter(
            "upstream_resends",
            "Requests sent again because a reused connection had ended, by reason.",
            "reason",
        )
        self._slow_bodies = counter("slow_bodies", "Request bodies aborted as too slow.", "reason")
        self._closed = counter(
            "connections_closed", "Connections of the traffic port closed because file descriptors ran out.", "reason"
        )
        for reason in ("idle", "refused"):
            self._closed.labels(reason)
        self._invalid = counter(
            "invalid_requests", "Requests refused before they reached a route of the API, by reason.", "reason"
        )
        for reason in ("malformed", "unknown_path"):
            self._invalid.labels(reason)
        self._tags_dropped = counter("tags_dropped", "Tags of requests beyond the number that is kept.")

    def _gauges(self, registry: CollectorRegistry, version: str) -> None:
        """Create the gauges; the mode says how the values of several workers are combined."""

        def gauge(name: str, text: str, mode: Literal["livesum", "livemin", "max"], *labels: str) -> Gauge:
            self.modes[f"gaugeway_{name}"] = mode
            return Gauge(f"gaugeway_{name}", text, labels, registry=registry)

        self.waiting = gauge("handoff_waiting", "Exchanges in memory on their way to the queue.", "livesum")
        self.capture_factor = gauge("capture_factor", "By which a full queue lowers the capture rate.", "livemin")
        self.capture_factor.set(1.0)
        self._limits_processes = gauge(
            "limits_processes", "Gateway processes that share the limits; 0 while each counts for itself.", "livemin"
        )
        self._upstream_state = gauge("upstream_state", "1 healthy, 0.5 being probed, 0 ejected.", "livemin", "upstream")
        gauge("build_info", "Always 1; the version is the label.", "max", "version").labels(version).set(1)

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
            self._upstream_errors.labels(recording.upstream or "none", kind).inc()

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

    def unreadable(self, reason: str) -> None:
        """Count an exchange that is not captured because one of its bodies cannot be read."""
        self._unreadable.labels(reason).inc()

    def write_stalled(self) -> None:
        """Count a connection that was closed because the client did not read its response."""
        self._write_stalls.inc()

    def charge_estimated(self, route: str, reason: str) -> None:
        """Count an estimated charge. Thread-safe."""
        self._charges_estimated.labels(route, reason).inc()

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

    def supplement(self, source: str, result: str) -> None:
        """Count a supplement by result: accepted, full, too_large or error."""
        self._supplements.labels(source, result).inc()

    def tags_dropped(self, count: int) -> None:
        """Count tags of a request beyond the maximum."""
        self._tags_dropped.inc(count)

    def connection_closed(self, reason: str) -> None:
        """Count a connection closed for lack of file descriptors: idle, or refused when new."""
        self._closed.labels(reason).inc()

    def invalid_request(self, reason: str) -> None:
        """Count what was refused before it reached a route: malformed (not HTTP), or for an unknown_path."""
        self._invalid.labels(reason).inc()

    def capture_seconds(self, seconds: float) -> None:
        """Record the time that decoding one exchange took."""
        self._capture_overhead.observe(seconds)

    def hand_off_failed(self) -> None:
        """Count a failed attempt to put samples into the queue."""
        self._hand_off_errors.inc()

    def spilled(self, step: str, count: int) -> None:
        """Count samples written to the spill file (spilled) or moved back to the queue (returned)."""
        self._spilled.labels(step).inc(count)

    def template(self, event: str) -> None:
        """Count a template that this process learned, dropped, or found stale."""
        self._templates.labels(event).inc()

    def template_failed(self, reason: str) -> None:
        """Count a failure: store, refused, private, or overflow."""
        self._template_errors.labels(reason).inc()

    def state(self, upstream: str, value: float) -> None:
        """Set the state of an upstream: 1 healthy, 0.5 being probed, 0 ejected."""
        self._upstream_state.labels(upstream).set(value)

    def error(self, upstream: str, kind: str) -> None:
        """Count a failed attempt that was retried, so that the client did not see it."""
        self._upstream_errors.labels(upstream, kind).inc()

    def resent(self, reason: str) -> None:
        """Count a request resent on a new connection: unread, idempotent, or with an idempotency_key."""
        self._resends.labels(reason).inc()

    def body_given_up(self, reason: str) -> None:
        """Count a request whose body arrived too slowly: stalled, too_long or no_room."""
        self._slow_bodies.labels(reason).inc()

    def limits_shared(self, processes: int) -> None:
        """Set the number of processes that share the limits; 0 while this one enforces its own share."""
        self._limits_processes.set(processes)

    def limits_unshared(self) -> None:
        """Count a failed limit sync."""
        self._sync_errors.inc()

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

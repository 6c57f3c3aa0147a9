"""The GenAI conventions' metrics of exchanges, sent over OTLP; they are counted off the request path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gaugeway.exchange import ExchangeSummary
from gaugeway.runtime import otlp_metrics
from gaugeway.runtime.otlp_metrics import SECONDS, Instrument, Metrics
from gaugeway.settings.shared import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

_NEW, _OLD = "gen_ai.client.inference", "gen_ai.client.operation"
_TOKEN_BUCKETS = tuple(4.0**power for power in range(14))
_LABELS = (
    *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"),
    *("server.address", "server.port"),
)
_TOKENS = ("input_tokens", "output_tokens")
_PARTS = ("cache_read.input_tokens", "cache_write.input_tokens", "reasoning.output_tokens")


def opened(settings: Telemetry) -> InferenceMetrics | None:
    """Return what sends the metrics; None without an endpoint, and for one that takes only spans."""
    return otlp_metrics.opened(settings, partial(InferenceMetrics, both=settings.semconv == "both"))


class InferenceMetrics:
    """Durations and tokens of what upstreams answered, with `both` under the names before 0.1 too.

    How long single chunks took is not known (`time_per_output_chunk`), nor which tokens are of text.
    """

    def __init__(self, reader: MetricReader, *, both: bool = False) -> None:
        families = (_NEW, _OLD) if both else (_NEW,)
        self._durations = [Instrument(f"{name}.duration", "s", SECONDS) for name in families]
        self._first_chunks = [Instrument(f"{name}.time_to_first_chunk", "s", SECONDS) for name in families]
        self._spent = {
            f"gen_ai.usage.{kind}": Instrument(f"{_NEW}.usage.{kind}", "{token}") for kind in (*_TOKENS, *_PARTS)
        }
        self._tokens = {
            f"gen_ai.usage.{kind}": Instrument(f"{_NEW}.operation.{kind}", "{token}", _TOKEN_BUCKETS)
            for kind in _TOKENS
        }
        self._old_tokens = [Instrument("gen_ai.client.token.usage", "{token}", _TOKEN_BUCKETS)] if both else []
        instruments = [*self._durations, *self._first_chunks, *self._spent.values(), *self._tokens.values()]
        self._metrics = Metrics(reader, "gaugeway-gateway", [*instruments, *self._old_tokens])
        self.aclose = self._metrics.aclose

    def record(self, exchange: ExchangeSummary, attributes: Mapping[str, Any]) -> None:
        """Record one exchange; `attributes` are those of its span. What no upstream answered is no inference."""
        if exchange.cached or exchange.ending == "rejected":
            return
        labels = tuple([(name, attributes[name]) for name in _LABELS if name in attributes])
        error = attributes.get("error.type")
        ended = labels if error is None else (*labels, ("error.type", error))
        spent = (*labels, ("gen_ai.token.modality", "unknown"))
        first = attributes.get("gen_ai.response.time_to_first_chunk")
        with self._metrics.lock:
            for duration in self._durations:
                duration.add(ended, exchange.duration_s)
            if first is not None:
                for first_chunk in self._first_chunks:
                    first_chunk.add(labels, first)
            for kind, counter in self._spent.items():
                if (count := attributes.get(kind)) is None:
                    continue
                counter.add(spent, count)
                if kind in self._tokens:
                    self._tokens[kind].add(ended, count)
                    for old in self._old_tokens:
                        old.add((*labels, ("gen_ai.token.type", "input" if "input" in kind else "output")), count)

"""How long an app's retrievers, tools and agents took, by its spans: metrics of the GenAI conventions, over OTLP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gaugeway.runtime.otlp_metrics import SECONDS, Instrument, Labels, Metrics
from gaugeway.settings.bounds import bounded_name
from monitors.api.otlp import Span
from monitors.api.otlp.conventions import EXECUTE_TOOL, INVOKE_AGENT, conventions_of, name_of, operation_of, took_s

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

_RETRIEVAL = "retrieval"
_AGENT_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
_LABELS = {
    _RETRIEVAL: ("gen_ai.operation.name", "error.type"),
    EXECUTE_TOOL: ("gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.agent.name", "error.type"),
    INVOKE_AGENT: ("gen_ai.agent.name", "gen_ai.request.model", "error.type"),
}


class StepDurations:
    """Records spans that were accepted; one without a believable time, and a tool without a name, is left out."""

    def __init__(self, reader: MetricReader) -> None:
        self._durations = {
            operation: Instrument(f"gen_ai.{operation}.duration", "s", buckets)
            for operation, buckets in ((_RETRIEVAL, SECONDS), (EXECUTE_TOOL, SECONDS), (INVOKE_AGENT, _AGENT_SECONDS))
        }
        self._metrics = Metrics(reader, "gaugeway-monitors", list(self._durations.values()))
        self.aclose = self._metrics.aclose

    def record(self, spans: Iterable[Span]) -> None:
        """Record the spans that are of a retriever, a tool or an agent."""
        found = [(operation, labels, seconds) for span in spans for operation, labels, seconds in _steps(span)]
        with self._metrics.lock:
            for operation, labels, seconds in found:
                self._durations[operation].add(labels, seconds)


def _steps(span: Span) -> Iterator[tuple[str, Labels, float]]:
    """A tool may be a retriever as well."""
    operations = [_RETRIEVAL] if conventions_of(span) else []
    operations += [operation] if (operation := operation_of(span)) is not None else []
    if not operations or (seconds := took_s(span)) is None:
        return
    for operation in operations:
        known = {"gen_ai.operation.name": operation}
        if operation != _RETRIEVAL and (name := name_of(span, operation)) is not None:
            known["gen_ai.tool.name" if operation == EXECUTE_TOOL else "gen_ai.agent.name"] = name
        values = ((label, known.get(label, span.attributes.get(label))) for label in _LABELS[operation])
        labels = tuple((label, bounded_name(value)) for label, value in values if isinstance(value, str) and value)
        if operation != EXECUTE_TOOL or "gen_ai.tool.name" in known:
            yield operation, labels, seconds

"""The exporter to OpenTelemetry: one EVALUATOR span a sample, one `gen_ai.evaluation.result` event a metric."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.runtime.otlp_exporters import SCHEMA_URL, SCOPE, resource, scope, scope_version, shut_down
from gaugeway.signals import SIGNALS
from monitors.exporters import Exporter, meets, retrieval_spans

EVENT = "gen_ai.evaluation.result"


class OTelExporter(Exporter):
    """Emits to the given processors, which buffer; without `logs` no events.

    The exchange's span ended long ago and ended spans cannot be changed, so the EVALUATOR span is a new root with one
    link to it, and each event carries the exchange's trace and span ids. Explanations quote the answer, so they go out
    only with `content`; so do question and answer, and the passages, as a retrieval span below the exchange's. They
    come from the sample: redacted, and joined with supplements. `passes` maps a metric to (threshold, lower is better);
    the scores of others are labelled neither pass nor fail. With `both` attributes have their names before
    conventions 0.1 too. Signals are attributes of the EVALUATOR span: an event for each would be a dozen an exchange.
    An exchange with signals alone has no span.
    """

    takes_signals = True

    def __init__(
        self,
        spans: SpanProcessor,
        logs: LogRecordProcessor | None,
        *,
        passes: Mapping[str, tuple[float, bool]],
        content: bool = False,
        both: bool = False,
    ) -> None:
        source = resource("gaugeway-monitors")
        self._spans = spans
        self._resource = source
        self._passes = passes
        self._content = content
        self._both = both
        self._tracers = TracerProvider(resource=source, sampler=ALWAYS_ON, shutdown_on_exit=False)
        self._tracers.add_span_processor(spans)
        self._loggers = LoggerProvider(resource=source, shutdown_on_exit=False)
        if logs is not None:
            self._loggers.add_log_record_processor(logs)
        self._events = logs is not None
        self._scope = scope()
        self._tracer = self._tracers.get_tracer(SCOPE, scope_version(), schema_url=SCHEMA_URL)
        self._logger = self._loggers.get_logger(SCOPE, scope_version(), schema_url=SCHEMA_URL)

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Emit the span and its events."""
        signals = {
            f"gaugeway.signal.{evaluation.metric}": evaluation.outcome
            for evaluation in evaluations
            if evaluation.metric in SIGNALS
        }
        evaluations = [evaluation for evaluation in evaluations if evaluation.metric not in SIGNALS]
        if not evaluations:
            return
        now = time.time_ns()
        exchange = _span_context(sample)
        if self._content and exchange is not None and sample.context_source != "none":
            self._emit_retrieval(sample, exchange)
        attributes: dict[str, Any] = {
            "openinference.span.kind": "EVALUATOR",
            "gaugeway.exchange.id": sample.id,
            "gaugeway.app": sample.app,
            "gen_ai.request.model": sample.model,
            **retrieval_spans.origin_of(sample),
            **retrieval_spans.session_of(sample),
            **(_content(sample) if self._content else {}),
            **{name: found.value for name, found in signals.items() if isinstance(found, Score)},
        }
        for index, evaluation in enumerate(evaluations):
            for key, value in self._result(evaluation).items():
                attributes[f"evaluations.{index}.evaluation.{key}"] = value
        span = self._tracer.start_span(
            f"evaluation {sample.app}",
            context=otel_context.Context(),
            kind=SpanKind.INTERNAL,
            links=[Link(exchange)] if exchange else [],
            attributes=attributes,
            start_time=now - int(max(evaluation.seconds for evaluation in evaluations) * 1e9),
        )
        span.end(now)
        for evaluation in evaluations if self._events else ():
            self._emit_event(sample, evaluation, exchange, now)

    async def aclose(self) -> None:
        await shut_down(self.shutdown)

    def shutdown(self) -> None:
        """Flush what is buffered; blocks."""
        self._tracers.shutdown()
        self._loggers.shutdown()

    def _emit_retrieval(self, sample: Sample, exchange: SpanContext) -> None:
        """Emit a span with a stable id, so that a second export of the same sample replaces the first.

        It ends when the exchange begins; how long the app took for it is not known.
        """
        at = int(sample.started_at * 1e9)
        flags = TraceFlags(TraceFlags.SAMPLED)
        context = SpanContext(
            exchange.trace_id, int(retrieval_spans.span_id(sample), 16), is_remote=False, trace_flags=flags
        )
        self._spans.on_end(
            ReadableSpan(
                name="retrieval",
                context=context,
                parent=exchange,
                resource=self._resource,
                instrumentation_scope=self._scope,
                attributes=retrieval_spans.attributes(sample, both=self._both),
                kind=SpanKind.INTERNAL,
                start_time=at,
                end_time=at,
            )
        )

    def _emit_event(self, sample: Sample, evaluation: Evaluation, exchange: SpanContext | None, now: int) -> None:
        result = self._result(evaluation)
        found = {
            "gen_ai.evaluation.name": evaluation.metric,
            "gen_ai.evaluation.score.value": result.get("score"),
            "gen_ai.evaluation.score.label": result.get("label"),
            "gen_ai.evaluation.explanation": result.get("explanation"),
            "gen_ai.response.id": sample.response_id,
            "error.type": evaluation.outcome.error if isinstance(evaluation.outcome, Failed) else None,
            "gaugeway.evaluation.outcome": result["outcome"],
            "gaugeway.evaluation.skip_reason": result.get("skip_reason"),
            "gaugeway.evaluation.version": evaluation.version,
            "gaugeway.evaluation.judge.model": evaluation.judge,
            "gaugeway.exchange.id": sample.id,
            **retrieval_spans.origin_of(sample),
        }
        self._logger.emit(
            timestamp=now,
            event_name=EVENT,
            severity_number=SeverityNumber.INFO,
            context=set_span_in_context(NonRecordingSpan(exchange), otel_context.Context()) if exchange else None,
            attributes={key: value for key, value in found.items() if value is not None},
        )

    def _result(self, evaluation: Evaluation) -> dict[str, Any]:
        result: dict[str, Any] = {"name": evaluation.metric}
        match evaluation.outcome:
            case Score(value, reason):
                result |= {"score": value, "outcome": "scored"}
                if (passed := self._passed(evaluation.metric, value)) is not None:
                    result["label"] = "pass" if passed else "fail"
                if self._content and reason:
                    result["explanation"] = reason
            case Skipped(reason):
                result |= {"outcome": "skipped", "skip_reason": reason}
            case Failed(error):
                result |= {"outcome": "failed", "error": error}
        return result

    def _passed(self, metric: str, value: float) -> bool | None:
        """Return whether a score meets its metric's threshold; None without one."""
        found = self._passes.get(metric)
        return None if found is None else meets(value, *found)


def _content(sample: Sample) -> dict[str, str]:
    texts = {"input.value": sample.question or "", "output.value": sample.response}
    return {key: retrieval_spans.cut(text) for key, text in texts.items() if text}


def _span_context(sample: Sample) -> SpanContext | None:
    if not (sample.trace_id and sample.span_id):
        return None
    return SpanContext(
        int(sample.trace_id, 16), int(sample.span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )

"""The exporter to Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monitors.exporters import Exporter, meets
from monitors.exporters.instruments import Instruments
from monitors.records import Evaluation, Failed, Sample, Score, Skipped


class PrometheusExporter(Exporter):
    """Counts scores, verdicts and outcomes. `passes` maps a metric to (threshold, lower is better)."""

    def __init__(self, instruments: Instruments, passes: Mapping[str, tuple[float, bool]]) -> None:
        self._instruments = instruments
        self._passes = passes

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        instruments = self._instruments
        app, model = instruments.cap.pair(sample.app, sample.model)
        for evaluation in evaluations:
            metric = evaluation.metric
            match evaluation.outcome:
                case Score(value):
                    exemplar = {"trace_id": sample.trace_id} if sample.trace_id else None
                    instruments.score.labels(app, metric, model).observe(value, exemplar)
                    instruments.verdicts.labels(app, metric, self._verdict(metric, value)).inc()
                    instruments.evaluations.labels(metric, "score", "").inc()
                case Skipped(reason):
                    instruments.verdicts.labels(app, metric, "skipped").inc()
                    instruments.evaluations.labels(metric, "skipped", reason).inc()
                case Failed(error):
                    instruments.verdicts.labels(app, metric, "error").inc()
                    instruments.evaluations.labels(metric, "failed", error).inc()

    def _verdict(self, metric: str, value: float) -> str:
        return "pass" if meets(value, *self._passes.get(metric, (0.5, False))) else "fail"

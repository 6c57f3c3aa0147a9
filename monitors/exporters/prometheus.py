"""The exporter to Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from monitors.exporters import Exporter, meets
from monitors.exporters.instruments import Instruments
from monitors.signals.answers import declines, declines_to_judge


class PrometheusExporter(Exporter):
    """Counts scores, verdicts and outcomes. `passes` maps a metric to (threshold, lower is better)."""

    def __init__(self, instruments: Instruments, passes: Mapping[str, tuple[float, bool]]) -> None:
        self._instruments = instruments
        self._passes = passes
        # Finding the series of labels costs more than counting in it. The labels' cap bounds how many there are.
        self._score = cache(instruments.score.labels)
        self._verdicts = cache(instruments.verdicts.labels)
        self._evaluations = cache(instruments.evaluations.labels)
        self._compared = cache(instruments.abstention_comparisons.labels)
        self._disagreed = cache(instruments.abstention_disagreements.labels)

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        app, model = self._instruments.cap.pair(sample.app, sample.model)
        for evaluation in evaluations:
            metric = evaluation.metric
            self._instruments.checked(evaluation)
            match evaluation.outcome:
                case Score(value):
                    exemplar = {"trace_id": sample.trace_id} if sample.trace_id else None
                    self._score(app, metric, model).observe(value, exemplar)
                    self._verdicts(app, metric, self._verdict(metric, value)).inc()
                    self._evaluations(metric, "score", "").inc()
                case Skipped(reason):
                    self._verdicts(app, metric, "skipped").inc()
                    self._evaluations(metric, "skipped", self._reason(metric, reason)).inc()
                case Failed(error):
                    self._verdicts(app, metric, "error").inc()
                    self._evaluations(metric, "failed", self._reason(metric, error)).inc()

        self._compare(app, sample, evaluations)

    def _compare(self, app: str, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Count where judge and signal differ on whether the answer declines."""
        judged = declines_to_judge(evaluations)
        signal = declines(sample) if judged is not None else None
        if signal is None:
            return
        self._compared(app).inc()
        if judged != bool(signal):
            self._disagreed(app, "judge_only" if judged else "signal_only").inc()

    def _reason(self, metric: str, reason: str) -> str:
        """Bound the reasons of each metric: a custom one may give any text."""
        return self._instruments.cap(f"reason:{metric}", reason)

    def _verdict(self, metric: str, value: float) -> str:
        return "pass" if meets(value, *self._passes.get(metric, (0.5, False))) else "fail"

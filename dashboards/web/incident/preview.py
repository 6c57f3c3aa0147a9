"""A summary of one exchange, shown beside the list that it stands in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.web.incident.examples import question_of
from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.signals import SIGNALS
from monitors.alerting.example_texts import faults_of
from monitors.analysis.human_labels import Passings

ANSWER, PASSAGE, PASSAGES = 1_500, 200, 8
"""Characters of the answer and of a passage, and passages, that a summary shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The outcome of one metric; `passes` says whether a score passes the metric's threshold."""

    metric: str
    kind: str
    value: float | None = None
    passes: bool = True
    reason: str = ""


def line_of(evaluation: Evaluation, passing: Passings) -> Line:
    """The outcome of an evaluation."""
    match evaluation.outcome:
        case Score(value):
            return Line(
                metric=evaluation.metric, kind="score", value=value, passes=passing(evaluation.metric).passes(value)
            )
        case Skipped(reason):
            return Line(metric=evaluation.metric, kind="skipped", reason=reason.replace("_", " "))
        case Failed(error):
            return Line(metric=evaluation.metric, kind="failed", reason=error.replace("_", " "))


def summary_of(
    sample: Sample, evaluations: Sequence[Evaluation], names: Sequence[str], passing: Passings
) -> dict[str, Any]:
    """The fields of `preview.html`; `names` are those of the passages."""
    lines = [line_of(evaluation, passing) for evaluation in evaluations if evaluation.metric not in SIGNALS]
    failing = [line.metric for line in lines if line.value is not None and not line.passes]
    faults = [fault for metric in failing for fault in faults_of(evaluations, metric)]
    passages = [
        (name, " ".join(context.text[: 4 * PASSAGE].split())[:PASSAGE])
        for name, context in zip(names, sample.contexts, strict=False)
    ]
    return {
        "title": question_of(sample) or "(no question)",
        "sample": sample,
        "lines": lines,
        "faults": list(dict.fromkeys(faults))[:PASSAGES],
        "answer": sample.response[:ANSWER],
        "rest": max(0, len(sample.response) - ANSWER),
        "passages": passages[:PASSAGES],
        "more_passages": max(0, len(passages) - PASSAGES),
    }

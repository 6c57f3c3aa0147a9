"""A summary of one exchange, shown beside the list that it stands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboards.web.incident.evaluation_lines import line_of
from dashboards.web.incident.examples import question_of
from gaugeway.records import Evaluation, Sample
from gaugeway.signals import SIGNALS
from monitors.alerting.stored_exchanges import faults_of
from monitors.analysis.human_labels import Passings

ANSWER, PASSAGE, PASSAGES = 1_500, 200, 8
"""Characters of the answer and of a passage, and passages, that a summary shows."""


def summary_of(
    sample: Sample, evaluations: Sequence[Evaluation], names: Sequence[str], passing: Passings
) -> dict[str, Any]:
    """The fields of `preview.html`; `names` are those of the passages."""
    lines = [line_of(evaluation) for evaluation in evaluations if evaluation.metric not in SIGNALS]
    failing = {
        line.evaluation.metric
        for line in lines
        if line.value is not None and not passing(line.evaluation.metric).passes(line.value)
    }
    faults = [
        fault
        for line in lines
        if (metric := line.evaluation.metric) in failing
        for fault in faults_of(evaluations, metric)
    ]
    passages = [
        (name, " ".join(context.text[: 4 * PASSAGE].split())[:PASSAGE])
        for name, context in zip(names, sample.contexts, strict=False)
    ]
    return {
        "title": question_of(sample) or "(no question)",
        "sample": sample,
        "lines": lines,
        "failing": failing,
        "faults": list(dict.fromkeys(faults))[:PASSAGES],
        "answer": sample.response[:ANSWER],
        "rest": max(0, len(sample.response) - ANSWER),
        "passages": passages[:PASSAGES],
        "more_passages": max(0, len(passages) - PASSAGES),
    }

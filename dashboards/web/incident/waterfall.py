"""When the retriever, the model and the judge worked on one exchange, as bars. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from dashboards.web.charts import Frame, drawn
from gaugeway.records import Evaluation, Sample, Skipped
from gaugeway.signals import SIGNALS

JUDGED = 12
"""Evaluations shown: those that took longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A bar from `start` seconds after the request was sent, `seconds` long; `start` may be negative."""

    name: str
    kind: Literal["retriever", "model", "judge"]
    start: float
    seconds: float


def spans_of(sample: Sample, evaluations: Sequence[Evaluation]) -> list[Span]:
    """The spans of an exchange.

    Only lengths are stored: the retriever's is placed before the request, and evaluations, which run at the same time,
    after the answer. They happen later, when the answer has long been delivered.
    """
    found = []
    if sample.retrieval_s is not None:
        found.append(Span(name="retriever", kind="retriever", start=-sample.retrieval_s, seconds=sample.retrieval_s))
    if sample.duration_s is not None:
        found.append(Span(name=f"model {sample.model}", kind="model", start=0.0, seconds=sample.duration_s))
    judged = [
        evaluation
        for evaluation in evaluations
        if evaluation.seconds > 0.0 and evaluation.metric not in SIGNALS and not isinstance(evaluation.outcome, Skipped)
    ]
    judged.sort(key=lambda evaluation: -evaluation.seconds)
    end = sample.duration_s or 0.0
    found += [
        Span(
            name=f"{evaluation.metric}{f' by {evaluation.judge}' if evaluation.judge else ''}",
            kind="judge",
            start=end,
            seconds=evaluation.seconds,
        )
        for evaluation in judged[:JUDGED]
    ]
    return found


def chart_of(spans: Sequence[Span]) -> Markup:
    """The spans on one scale; empty without any."""
    if not spans:
        return Markup("")
    first, last = min(span.start for span in spans), max(span.start + span.seconds for span in spans)
    frame = Frame(since=first, until=last, left=10.0, top=0.0, width=990.0, height=46.0 * len(spans))
    return drawn("waterfall", spans=spans, frame=frame)

"""When the retriever, the model and the judge worked on one exchange, as bars. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from dashboards.web.format import duration
from gaugeway.records import Evaluation, Sample, Skipped
from gaugeway.signals import SIGNALS

JUDGED = 12
"""Evaluations shown: those that took longest."""
_WIDTH, _ROW, _LEFT = 990.0, 46.0, 10.0
_LEAST = 2.0


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
    first = min(span.start for span in spans)
    length = max(max(span.start + span.seconds for span in spans) - first, 1e-9)
    height = round(_ROW * len(spans) + 10)
    parts = []
    for at, span in enumerate(spans):
        x = round(_LEFT + _WIDTH * (span.start - first) / length, 1)
        width = round(max(_LEAST, _WIDTH * span.seconds / length), 1)
        y = _ROW * at
        side, anchor = ("end", _LEFT + _WIDTH) if x > _LEFT + _WIDTH / 2 else ("start", x)
        parts.append(
            Markup(
                '<text class="{}" x="{}" y="{}">{}: {}</text>'
                '<rect class="bar {}" x="{}" y="{}" width="{}" height="14"/>'
            ).format(*(side, anchor, y + 18, span.name[:60], duration(span.seconds), span.kind, x, y + 25, width))
        )
    said = "; ".join(f"{span.name} {duration(span.seconds)}" for span in spans)
    return Markup(
        '<svg class="chart waterfall" viewBox="0 0 1010 {0}" width="1010" height="{0}" role="img" aria-label="{1}">'
        "<title>{1}</title>{2}</svg>"
    ).format(height, f"Durations. {said}", Markup("").join(parts))

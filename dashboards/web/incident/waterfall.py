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
        one
        for one in evaluations
        if one.seconds > 0.0 and one.metric not in SIGNALS and not isinstance(one.outcome, Skipped)
    ]
    judged.sort(key=lambda one: -one.seconds)
    end = sample.duration_s or 0.0
    found += [
        Span(
            name=f"{one.metric}{f' by {one.judge}' if one.judge else ''}",
            kind="judge",
            start=end,
            seconds=one.seconds,
        )
        for one in judged[:JUDGED]
    ]
    return found


def chart_of(spans: Sequence[Span]) -> Markup:
    """The spans on one scale; empty without any."""
    if not spans:
        return Markup("")
    first = min(one.start for one in spans)
    length = max(max(one.start + one.seconds for one in spans) - first, 1e-9)
    height = round(_ROW * len(spans) + 10)
    parts = []
    for at, one in enumerate(spans):
        x = round(_LEFT + _WIDTH * (one.start - first) / length, 1)
        width = round(max(_LEAST, _WIDTH * one.seconds / length), 1)
        y = _ROW * at
        side, anchor = ("end", _LEFT + _WIDTH) if x > _LEFT + _WIDTH / 2 else ("start", x)
        parts.append(
            Markup(
                '<text class="{}" x="{}" y="{}">{}: {}</text>'
                '<rect class="bar {}" x="{}" y="{}" width="{}" height="14"/>'
            ).format(*(side, anchor, y + 18, one.name[:60], duration(one.seconds), one.kind, x, y + 25, width))
        )
    said = "; ".join(f"{one.name} {duration(one.seconds)}" for one in spans)
    return Markup(
        '<svg class="chart waterfall" viewBox="0 0 1010 {0}" width="1010" height="{0}" role="img" aria-label="{1}">'
        "<title>{1}</title>{2}</svg>"
    ).format(height, f"Durations. {said}", Markup("").join(parts))

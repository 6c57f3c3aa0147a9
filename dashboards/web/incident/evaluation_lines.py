"""Evaluations as lines of a table, or of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gaugeway.records import Evaluation, Failed, Score, Skipped

_EVIDENCE = 4000
"""Characters of the evidence that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One evaluation as a table row."""

    evaluation: Evaluation
    kind: str
    value: float | None = None
    reason: str = ""
    detail: str = ""
    evidence: str = ""


def line_of(evaluation: Evaluation) -> Line:
    """Table row of an evaluation; long evidence is truncated."""
    match evaluation.outcome:
        case Score(value, reason, evidence):
            return Line(evaluation=evaluation, kind="score", value=value, reason=reason, evidence=evidence_of(evidence))
        case Skipped(reason):
            return Line(evaluation=evaluation, kind="skipped", reason=reason.replace("_", " "))
        case Failed(error, detail):
            return Line(evaluation=evaluation, kind="failed", reason=error.replace("_", " "), detail=detail[:_EVIDENCE])


def evidence_of(evidence: Sequence[Mapping[str, Any]]) -> str:
    """The evidence as JSON, one item per paragraph, truncated to about `_EVIDENCE` characters."""
    shown: list[str] = []
    size = 0
    for number, item in enumerate(evidence):
        if size > _EVIDENCE:
            shown.append(f"… ({len(evidence) - number} more items)")
            break
        piece = msgspec.json.format(msgspec.json.encode(item)).decode()
        shown.append(piece if len(piece) <= _EVIDENCE else f"{piece[:_EVIDENCE]} …")
        size += len(shown[-1])
    return "\n".join(shown)

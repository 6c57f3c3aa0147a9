"""Which passages the claims of an answer rest on, and which contradict it, from the evidence of the judged metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gaugeway.records import Evaluation, Score

CLAIM_METRICS = ("faithfulness", "hallucination")
"""Metrics whose evidence has verdicts on passages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageVerdicts:
    """Indexes of the passages that supported claims cite, and of those that contradict the answer, or it them.

    `cited` is None if no metric asked which passages the claims rest on. `any_contradiction` also counts contradicted
    claims that name no passage.
    """

    cited: frozenset[int] | None
    contradicted: frozenset[int]
    any_contradiction: bool


def passage_verdicts(evaluations: Iterable[Evaluation]) -> PassageVerdicts | None:
    """Return the verdicts on an exchange's passages; None if no evidence of them is stored."""
    judged = False
    cited: set[int] | None = None
    contradicted: set[int] = set()
    conflict = False
    for evaluation in evaluations:
        if evaluation.metric not in CLAIM_METRICS or not isinstance(evaluation.outcome, Score):
            continue
        for item in evaluation.outcome.evidence:
            verdict = item.get("verdict")
            judged = judged or verdict is not None or "contradicted" in item
            if verdict is not None:
                cited = set() if cited is None else cited
            if verdict == "supported" and cited is not None:
                cited.update(_places(item))
            elif verdict == "contradicted" or item.get("contradicted") is True:
                conflict = True
                contradicted.update(_places(item))
    if not judged:
        return None
    return PassageVerdicts(
        cited=None if cited is None else frozenset(cited),
        contradicted=frozenset(contradicted),
        any_contradiction=conflict,
    )


def _places(item: Mapping[str, Any]) -> list[int]:
    """Return the passages that a piece of evidence names: of a claim its `contexts`, of a passage its `context`."""
    listed = item.get("contexts")
    found = listed if isinstance(listed, list | tuple) else [item.get("context")]
    return [index for index in found if isinstance(index, int) and not isinstance(index, bool)]

"""Which metric a name stands for. Some names carry what the metric is made with: `precision@5`, `geval:tone`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BUILT_IN = {
    "answer_relevancy": "monitors.metrics.answer_relevancy:AnswerRelevancy",
    "context_relevancy": "monitors.metrics.context_relevancy:ContextRelevancy",
    "faithfulness": "monitors.metrics.faithfulness:Faithfulness",
    "hallucination": "monitors.metrics.hallucination:Hallucination",
    "lexical_groundedness": "monitors.metrics.lexical_groundedness:LexicalGroundedness",
}
"""All of them are on unless the configuration says otherwise; those that ask an LLM, if there is one."""

ON_REQUEST = {
    "answer_correctness": "monitors.metrics.reference.answer_correctness:AnswerCorrectness",
    "answer_similarity": "monitors.metrics.reference.answer_similarity:AnswerSimilarity",
    "context_entity_recall": "monitors.metrics.reference.context_entity_recall:ContextEntityRecall",
    "context_precision": "monitors.metrics.reference.context_precision:ContextPrecision",
    "context_recall": "monitors.metrics.reference.context_recall:ContextRecall",
    "context_utilization": "monitors.metrics.reference.context_utilization:ContextUtilization",
    "mrr": "monitors.metrics.mrr:Mrr",
    "noise_sensitivity": "monitors.metrics.reference.noise_sensitivity:NoiseSensitivity",
}
"""These run where the configuration names them: most need a reference, or the ids of the relevant passages."""

FAMILIES = {
    "geval": "monitors.metrics.geval:GEval",
    "hit": "monitors.metrics.hit_at_k:HitAtK",
    "ndcg": "monitors.metrics.ndcg_at_k:NdcgAtK",
    "precision": "monitors.metrics.precision_at_k:PrecisionAtK",
    "recall": "monitors.metrics.recall_at_k:RecallAtK",
}
"""On request too, under as many names as wanted: `geval:NAME`, the others as `precision@5`."""

_GEVAL = re.compile(r"geval:([A-Za-z0-9][A-Za-z0-9_.-]{0,63})")
_AT_K = re.compile(r"(hit|ndcg|precision|recall)@([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The import string behind a metric's name, and the arguments that the name itself gives."""

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def resolve(name: str) -> Named | None:
    """What `name` stands for; None for one that nobody knows.

    >>> resolve("precision@5")
    Named(target='monitors.metrics.precision_at_k:PrecisionAtK', arguments={'k': 5})
    >>> resolve("precision@0"), resolve("geval:")
    (None, None)
    """
    if (target := BUILT_IN.get(name) or ON_REQUEST.get(name)) is not None:
        return Named(target=target)
    if (at_k := _AT_K.fullmatch(name)) is not None:
        return Named(target=FAMILIES[at_k[1]], arguments={"k": int(at_k[2])})
    if (geval := _GEVAL.fullmatch(name)) is not None:
        return Named(target=FAMILIES["geval"], arguments={"name": geval[1]})
    if name.startswith("geval:") or ":" not in name:
        return None
    return Named(target=name)


def known() -> list[str]:
    """Every name, with a stand-in for what a family leaves open."""
    return [*BUILT_IN, *ON_REQUEST, "geval:NAME", "hit@K", "ndcg@K", "precision@K", "recall@K"]

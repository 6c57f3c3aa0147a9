"""Likely causes of a drop, found by comparing the evaluations before and since its onset.

>>> def seen(metric, value, n):
...     return [
...         Observation(
...             sample_id=f"{value}-{i}", metric=metric, started_at=float(i), rate=1.0, outcome="score",
...             value=value, reason="", version="1", judge="model-a", strata={},
...         )
...         for i in range(n)
...     ]
>>> before = seen("faithfulness", 0.9, 200) + seen("context_relevancy", 0.8, 200)
>>> since = seen("faithfulness", 0.6, 100) + seen("context_relevancy", 0.8, 100)
>>> explain("faithfulness", before, since).cause
'generation'
>>> since = seen("faithfulness", 0.6, 100) + seen("context_relevancy", 0.5, 100)
>>> explain("faithfulness", before, since).cause
'retrieval'
"""

from __future__ import annotations

from monitors.alerting.causes.documents import Passages
from monitors.alerting.causes.explain import explain
from monitors.alerting.causes.judge_changed import MOVED
from monitors.alerting.causes.observations import Explanation, JudgeEvidence, Observation, Split, strength_word
from monitors.alerting.causes.retrieval_or_generation import is_retrieval
from monitors.alerting.causes.traffic import elsewhere

__all__ = [
    "MOVED",
    "Explanation",
    "JudgeEvidence",
    "Observation",
    "Passages",
    "Split",
    "elsewhere",
    "explain",
    "is_retrieval",
    "strength_word",
]

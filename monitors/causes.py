"""Where to look first after a drop: what else changed between the time before it and the time since."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from monitors.records import Cause
from monitors.statistics.estimators import Estimate
from monitors.statistics.intervals import closed_window

RETRIEVAL = "context_relevancy"
ANSWERS = ("faithfulness", "answer_relevancy", "lexical_groundedness")
MIN_N_EFF = 10
"""Two means of fewer effective scores are not compared at all; no answer is better than a guess from a handful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side of the onset looked like; every mean is on the "higher is better" scale.

    `failed` is the share of evaluations that failed among those that applied, `found` the share of exchanges with
    contexts, `versions` the (version, judge) pairs that made the scores of the metric the alert is about.
    """

    means: Mapping[str, Estimate] = field(default_factory=dict)
    failed: Estimate | None = None
    found: Estimate | None = None
    versions: frozenset[tuple[str, str]] = frozenset()


def likely_cause(before: Side, since: Side) -> Cause:
    """Name the part that changed, the instrument first: a judge that changed explains a drop better than the app does.

    "judge": evaluations clearly fail more often, or a version or judge appeared that was not there before.
    "retrieval": the relevance of the contexts, or the share of exchanges with any, clearly fell.
    "generation": an answer metric clearly fell, the relevance of the contexts did not, and its interval leaves no room
    for a fall as large as that of the answers (else "did not clearly fall" may only mean few scores).
    Otherwise "unknown". Changes are clear when the closed-window intervals of the two sides do not overlap.

    >>> def mean(value): return Estimate(mean=value, sd=0.2, n=200, n_eff=200.0)
    >>> before = Side(means={"context_relevancy": mean(0.8), "faithfulness": mean(0.9)})
    >>> likely_cause(before, Side(means={"context_relevancy": mean(0.5), "faithfulness": mean(0.6)}))
    'retrieval'
    >>> likely_cause(before, Side(means={"context_relevancy": mean(0.81), "faithfulness": mean(0.6)}))
    'generation'
    """
    if _fall(since.failed, before.failed) or (before.versions and since.versions - before.versions):
        return "judge"
    relevant = before.means.get(RETRIEVAL), since.means.get(RETRIEVAL)
    if _fall(*relevant) or _fall(before.found, since.found):
        return "retrieval"
    if max(_fall(before.means.get(name), since.means.get(name)) for name in ANSWERS) > _largest_fall(*relevant):
        return "generation"
    return "unknown"


def _fall(before: Estimate | None, since: Estimate | None) -> float:
    """How far the mean fell, or 0.0 unless the interval of `since` lies wholly below that of `before`."""
    if before is None or since is None or min(before.n_eff, since.n_eff) < MIN_N_EFF:
        return 0.0
    return before.mean - since.mean if closed_window(since)[1] < closed_window(before)[0] else 0.0


def _largest_fall(before: Estimate | None, since: Estimate | None) -> float:
    """The largest fall that the interval of `since` leaves room for; infinite when nothing is known."""
    if before is None or since is None or min(before.n_eff, since.n_eff) < MIN_N_EFF:
        return math.inf
    return before.mean - closed_window(since)[0]

"""Human labels beside scores of the same answers: reading the rows that every engine's `ratings` query returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gaugeway.records import Supplement
from gaugeway.storage.stores import LABELS, WITHDRAWN, LabelledScore

CORRECT = "answer_correctness"
"""The metric that says how near an answer is to a reference."""
EARLY_S = 3600.0
"""How long before its exchange something may be said: under a key, or by a queue that is behind."""


class Reader:
    """Reads rows in the order of what was said, which then is taken apart once for all scores of the answer."""

    def __init__(self) -> None:
        self._last: tuple[str, Supplement] | None = None

    def pair(self, row: Sequence[Any]) -> list[LabelledScore]:
        """What one supplement says about one score: a rating, a reference's verdict, both or neither."""
        sample_id, app, metric, value, rate, received_at, payload, correct = row
        if self._last is None or self._last[0] != payload:
            self._last = payload, msgspec.json.decode(payload, type=Supplement)
        said = self._last[1]
        score: dict[str, Any] = {"sample_id": sample_id, "app": app, "metric": metric, "value": value, "rate": rate}
        score["by"] = said.by or ""
        found = []
        if said.by and said.label == f"{metric}:{WITHDRAWN}":
            found.append(LabelledScore(**score, received_at=received_at, rating=math.nan))
        elif (rating := rating_of(said, metric)) is not None:
            found.append(LabelledScore(**score, received_at=received_at, rating=rating))
        if said.reference and correct is not None and metric != CORRECT:
            found.append(LabelledScore(**score, received_at=received_at, rating=correct, source="reference"))
        return found


def effective(labels: Iterable[LabelledScore]) -> list[LabelledScore]:
    """Drop what a person replaced by a later label of the same answer and metric, and what they withdrew.

    Labels without a name are all kept; the order stays.
    """
    found: dict[object, LabelledScore] = {}
    for number, label in enumerate(labels):
        key = (label.sample_id, label.metric, label.by) if label.by and label.source == "rating" else number
        found.pop(key, None)
        found[key] = label
    return [label for label in found.values() if not math.isnan(label.rating)]


def is_rating(said: Supplement) -> bool:
    """Whether a supplement is a human label, or feedback with a reference answer."""
    refers = said.source == "feedback" and said.reference is not None
    return said.rating is not None or said.label is not None or refers


def rating_of(said: Supplement, metric: str) -> float | None:
    """The rating in [0, 1], or the label pass or fail as 1 or 0; "faithfulness:fail" is about that metric alone.

    >>> said = Supplement(id="1", received_at=0.0, source="feedback", label="faithfulness:Fail")
    >>> rating_of(said, "faithfulness"), rating_of(said, "hallucination")
    (0.0, None)
    """
    about, colon, word = (said.label or "").rpartition(":")
    if colon and about != metric:
        return None
    if said.rating is not None and 0.0 <= said.rating <= 1.0:
        return said.rating
    return LABELS.get(word.strip().lower())

"""Scores beside what people said of the same answers: the SQL, and the reading of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from monitors.records import Supplement
from monitors.storage.stores import LabelledScore

CORRECT = "answer_correctness"
"""The metric that says how near an answer is to a reference."""
LABELS = {"pass": 1.0, "fail": 0.0}
EARLY_S = 3600.0
"""How long before its exchange something may be said: under a key, or by a queue that is behind."""

# What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
_LAST = """
    SELECT samples.id AS about, said.payload, said.received_at, said.id, said.refers
    FROM said JOIN samples ON samples.{column} = said.value
    WHERE said.kind = '{kind}' AND (said.app IS NULL OR said.app = samples.app)
"""
_LATER = """
    AND NOT EXISTS (
        SELECT 1 FROM samples AS later WHERE later.{column} = said.value AND later.started_at > samples.started_at
            AND (said.app IS NULL OR said.app = later.app)
    )
"""
STATEMENT = f"""
    WITH said AS (
        SELECT id, received_at, kind, value, app, payload, json_extract(payload, '$.reference') IS NOT NULL AS refers
        FROM supplements WHERE received_at >= :since - {EARLY_S:g} AND CASE WHEN json_valid(payload) THEN
            coalesce(json_extract(payload, '$.rating'), json_extract(payload, '$.label')) IS NOT NULL
            OR (json_extract(payload, '$.source') = 'feedback' AND json_extract(payload, '$.reference') IS NOT NULL)
        END
    ), labelled AS MATERIALIZED (
        {_LAST.format(kind="exchange", column="id")}
        UNION ALL {(_LAST + _LATER).format(kind="key", column="context_key")}
        UNION ALL {(_LAST + _LATER).format(kind="trace", column="trace_id")}
    )
    SELECT sample_id, app, metric, value, rate, received_at, payload, CASE WHEN refers THEN (
        SELECT value FROM evaluations
        WHERE sample_id = about AND metric = '{CORRECT}' AND outcome = 'score' AND typeof(value) = 'real'
        ORDER BY rowid DESC LIMIT 1
    ) END
    FROM labelled CROSS JOIN evaluations
        INDEXED BY sqlite_autoindex_evaluations_1 ON sample_id = about  -- far fewer than a metric's or an app's
    WHERE outcome = 'score' AND {{conditions}} ORDER BY received_at, labelled.id, evaluations.rowid LIMIT :limit
"""  # noqa: S608 - constants


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
        found = []
        if (rating := rating_of(said, metric)) is not None:
            found.append(LabelledScore(**score, received_at=received_at, rating=rating))
        if said.reference and correct is not None and metric != CORRECT:
            found.append(LabelledScore(**score, received_at=received_at, rating=correct, source="reference"))
        return found


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

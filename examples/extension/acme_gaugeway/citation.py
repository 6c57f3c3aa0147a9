"""The metric `citation`."""

from __future__ import annotations

from gaugeway import Sample, Score, Skipped


class Citation:
    """Passages whose id stands in the response as [id] / passages that have an id, at most `most`."""

    name = "citation"
    measures = "answer"
    on_by_default = True
    review_question = "Does the response cite the passages it uses?"

    def __init__(self, *, most: int = 3) -> None:
        self._most = most
        self.version = f"1-{most}"

    async def score(self, sample: Sample) -> Score | Skipped:
        """Score one sample."""
        ids = [context.id for context in sample.contexts if context.id]
        if not ids:
            return Skipped("no_context_ids")
        cited = [passage_id for passage_id in ids if f"[{passage_id}]" in sample.response]
        needed = min(len(ids), self._most)
        return Score(min(1.0, len(cited) / needed), f"{len(cited)} of {needed} cited", ({"cited": cited},))

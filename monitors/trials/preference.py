"""Preference: which of two answers to the same question serves the user better, asked in both orders."""

from __future__ import annotations

import asyncio

from gaugeway.records import Sample, Score
from monitors.judges import Judge
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.prompts import Datum, contexts_of
from monitors.metrics.judged.schemas import Preferred

PREFERENCE = "preference"
EQUAL = 0.5
"""The score of equal answers; that of a better candidate is 1, of a worse one 0."""


class Preference:
    """Scores a sample against another answer to its question.

    The judge is asked twice, with the answers in either order; where it contradicts itself they are equal. So an answer
    gains nothing from its place (Zheng et al., arXiv 2306.05685).
    """

    name = PREFERENCE
    lower_is_better = False

    def __init__(self, judge: Judge) -> None:
        self._llm = judge
        self._template = prompting.load(PREFERENCE)
        self.judge = judge.model
        self.version = f"1-{self._template.version}"
        self.other = ""
        """The answer that a sample's response is compared with."""

    def against(self, other: str) -> Preference:
        """Return the metric that compares with this answer."""
        made = Preference(self._llm)
        made.other = other
        return made

    async def score(self, sample: Sample) -> Score:
        """Return 1 where the sample's response is better, 0 where the other is, else 0.5. Raises JudgeError."""
        if sample.response.strip() == self.other.strip():
            return Score(EQUAL, "the same answer")
        ours, theirs = await asyncio.gather(
            self._ask(sample, sample.response, self.other), self._ask(sample, self.other, sample.response)
        )
        wins = (ours.better == "first") + (theirs.better == "second")
        losses = (ours.better == "second") + (theirs.better == "first")
        value = 1.0 if wins == 2 else 0.0 if losses == 2 else EQUAL  # noqa: PLR2004 - both orders
        return Score(value, ours.reason, ({"candidate_first": ours.better, "candidate_second": theirs.better},))

    async def _ask(self, sample: Sample, first: str, second: str) -> Preferred:
        data = [Datum("question", sample.question or ""), *contexts_of(sample)]
        prompt = self._template.fill([*data, Datum("first", first), Datum("second", second)])
        return await self._llm.ask(prompt, Preferred)

"""Goal met, gave up, turns to resolution: how a whole conversation ended for its user, judged on the transcript."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gaugeway.records import Sample, Score, Skipped
from monitors.metrics.judged.outcomes import Outcomes, turns_of, unscorable
from monitors.metrics.judged.schemas import ConversationOutcome

_MET = {"met": 1.0, "partly_met": 0.5, "not_met": 0.0}


class _OfConversations(ABC):
    """What the three metrics share: one judge call for each conversation."""

    of_conversations = True

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self.judge, self.version = outcomes.model, outcomes.version

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unscorable(sample)) is not None:
            return skipped
        found = await self._outcomes.of(sample)
        value = self._value(found)
        return value if isinstance(value, Skipped) else Score(value, found.reason, _evidence(sample, found))

    @abstractmethod
    def _value(self, found: ConversationOutcome) -> float | Skipped:
        """Return the score of an outcome."""


class GoalMet(_OfConversations):
    """1 where the user got what was wanted, .5 for a part of it, 0 for nothing."""

    name = "goal_met"

    def _value(self, found: ConversationOutcome) -> float:
        return _MET[found.outcome]


class GaveUp(_OfConversations):
    """1 where the user stopped although the goal still stood, else 0. Lower is better."""

    name = "gave_up"
    lower_is_better = True

    def _value(self, found: ConversationOutcome) -> float:
        return float(found.gave_up)


class TurnsToResolution(_OfConversations):
    """1 / the number of the turn whose answer met the goal. Conversations whose goal was not met are skipped."""

    name = "turns_to_resolution"

    def _value(self, found: ConversationOutcome) -> float | Skipped:
        return 1.0 / found.met_in_turn if found.outcome == "met" else Skipped("not_resolved")


def _evidence(sample: Sample, found: ConversationOutcome) -> tuple[dict[str, Any], ...]:
    return (
        {
            "goal": found.goal,
            "outcome": found.outcome,
            "met_in_turn": found.met_in_turn or None,
            "gave_up": found.gave_up,
            "turns": turns_of(sample.transcript),
        },
    )

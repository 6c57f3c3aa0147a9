"""Goal met, gave up, turns to resolution: how a whole conversation ended for its user, judged on the transcript."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gaugeway.records import Message, Sample, Score, Skipped
from monitors.judges import Judge, JudgeError
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import ConversationOutcome
from monitors.metrics.judged.single_flight import SingleFlight

MOST_MESSAGES, LONGEST_MESSAGE = 40, 1_000
"""Messages that the judge is shown, the first four and the last, and characters of each: 40 KB of a prompt at most."""
_FIRST = 4


class Outcomes:
    """Asks for the outcome of conversations, once for each."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._template = prompting.load("conversation_outcome")
        self._shared: SingleFlight[ConversationOutcome] = SingleFlight()
        self.model = judge.model
        self.version = f"1-{self._template.version}"

    async def of(self, sample: Sample) -> ConversationOutcome:
        """Return the outcome of a conversation. Raises JudgeError."""
        return await self._shared.get((sample.id, sample.transcript), lambda: self._ask(sample))

    async def _ask(self, sample: Sample) -> ConversationOutcome:
        found = await self._judge.ask(self._template.fill(shown(sample.transcript)), ConversationOutcome)
        turns = turns_of(sample.transcript)
        if found.outcome == "met" and not 1 <= found.met_in_turn <= turns:
            raise JudgeError("unreadable", f"the goal was met in turn {found.met_in_turn} of {turns}")
        return found


def unscorable(sample: Sample) -> Skipped | None:
    """Return why a sample is no conversation whose outcome can be judged; None when it is one."""
    if not sample.transcript:
        return Skipped("no_transcript")
    return None if turns_of(sample.transcript) else Skipped("no_question")


def turns_of(transcript: tuple[Message, ...]) -> int:
    """Return the number of a conversation's turns: each begins with a message of the user."""
    return sum(message.role == "user" for message in transcript)


def shown(transcript: tuple[Message, ...]) -> list[Datum]:
    """Return the messages of a conversation with the numbers of their turns, of a long one the first and the last."""
    turn, data = 0, []
    for message in transcript:
        turn += message.role == "user"
        data.append(Datum(message.role, _cut(message.text), id=max(turn, 1)))
    if len(data) <= MOST_MESSAGES:
        return data
    left_out = Datum("left_out", f"{len(data) - MOST_MESSAGES} messages are not shown")
    return [*data[:_FIRST], left_out, *data[_FIRST - MOST_MESSAGES :]]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + " …"


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

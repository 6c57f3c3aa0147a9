"""Signals: what every captured exchange shows without a judge, each a number in [0, 1]."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, TypeAlias

Direction: TypeAlias = Literal["drop", "rise"]
Name: TypeAlias = Literal[
    "abstained",
    "no_contexts",
    "contexts_per_answer",
    "retriever_score",
    "language_mismatch",
    "truncated",
    "tool_invalid",
    "tool_unknown",
    "tool_repeated",
    "tool_empty",
    "slow",
    "expensive",
    "addresses_judge",
]

VERSION = "3"
"""Of all signals: it changes whenever the same exchange could get another value."""


class Signal(NamedTuple):
    """What the mean of a signal is, in words, and the directions in which a change of it is watched."""

    meaning: str
    watched: tuple[Direction, ...] = ("rise",)


SIGNALS: Mapping[str, Signal] = {
    "abstained": Signal("share of answers that decline to answer"),
    "no_contexts": Signal("share of answers without retrieved passages"),
    "contexts_per_answer": Signal(
        "passages per answer, compared with the usual number of the app (0.5 = usual)", ("drop", "rise")
    ),
    "retriever_score": Signal(
        "scores of the retrieved passages, compared with the usual ones of the app (0.5 = usual)", ("drop", "rise")
    ),
    "language_mismatch": Signal("share of answers in another language than the question"),
    "truncated": Signal("share of responses cut off at the token limit"),
    "tool_invalid": Signal("share of tool calls with arguments that do not fit the tool's schema"),
    "tool_unknown": Signal("share of tool calls of a tool that was not offered"),
    "tool_repeated": Signal("share of tool calls that repeat an earlier one"),
    "tool_empty": Signal("share of exchanges with an empty tool result"),
    "slow": Signal("share of responses slower than usual"),
    "expensive": Signal("share of responses more expensive than usual"),
    "addresses_judge": Signal("share of exchanges with an answer or passage that addresses whoever judges it"),
}
"""Every signal by name."""

RISING = frozenset(name for name, signal in SIGNALS.items() if signal.watched == ("rise",))
"""Signals whose best value is 0."""
UNDIRECTED = frozenset(SIGNALS) - RISING
"""Signals of which neither more nor less is better: they may differ, and no difference is an improvement."""


def enabled(off: Collection[str]) -> tuple[str, ...]:
    """Return the names of all signals but those in `off`."""
    return tuple(name for name in SIGNALS if name not in off)

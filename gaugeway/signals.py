"""Signals: what every captured exchange shows without a judge, each a number in [0, 1]."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, TypeAlias

from gaugeway.data_files import table

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
    name: Signal(about["meaning"], tuple(about.get("watched", ("rise",))))
    for name, about in table("gaugeway", "signals.toml").items()
}
"""Every signal by name."""

RISING = frozenset(name for name, signal in SIGNALS.items() if signal.watched == ("rise",))
"""Signals whose best value is 0."""
UNDIRECTED = frozenset(SIGNALS) - RISING
"""Signals of which neither more nor less is better: they may differ, and no difference is an improvement."""


def enabled(off: Collection[str]) -> tuple[str, ...]:
    """Return the names of all signals but those in `off`."""
    return tuple(name for name in SIGNALS if name not in off)

"""The funnel from a request to a score: stages that each lose some exchanges, under a reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gaugeway.data_files import table
from gaugeway.storage.stores import OutcomeCount

_REASONS = table("dashboards.web.readings", "funnel.toml")
NOT_CAPTURED: Mapping[str, str] = _REASONS["not_captured"]
LOST = ("overflow", "error", "not stored")
NO_ANSWER: Mapping[str, str] = _REASONS["no_answer"]
"""Why an exchange is no answer to a user: the skip reasons of the exchange itself, which all its metrics share."""
MAX_REASONS = 12
"""Reasons listed for a stage, the most frequent; the others are one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Exchanges that end before a stage; `bad`: they should not be lost."""

    name: str
    words: str
    count: int
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of the funnel: `count` exchanges reached it, `losses` are those of the stage before that did not."""

    name: str
    words: str
    count: int
    percent: float
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """Stages in order. `uncounted` captured exchanges are stored, but no reading of a gateway counted them."""

    stages: tuple[Stage, ...]
    uncounted: int

    @property
    def total(self) -> int:
        """The exchanges that enter."""
        return self.stages[0].count


def funnel_of(gateway: Mapping[str, int], stored: Iterable[OutcomeCount]) -> Funnel:
    """Build the funnel from the gateways' outcomes and the store's.

    What was captured is what the store holds, or what the gateways counted where that is more: the difference waits or
    is gone. So each stage is the one before without its losses, whatever was restarted in between.
    """
    exchanges = [count for count in stored if not count.metric]
    kept = sum(count.n for count in exchanges)
    counted = gateway.get("captured", 0)
    captured = max(kept, counted)
    outside = {name: n for name, n in gateway.items() if name != "captured" and n > 0}
    skipped = _by_reason(exchanges, "skipped")
    no_answer = {name: n for name, n in skipped.items() if name in NO_ANSWER}
    inapplicable = {name: n for name, n in skipped.items() if name not in NO_ANSWER}
    failed = _by_reason(exchanges, "failed")
    unselected = sum(count.n for count in exchanges if count.outcome == "none")
    steps: list[tuple[str, str, list[Loss]]] = [
        ("Requests", "that may be answered: chat completions, completions, responses, messages", []),
        ("Captured", "selected, and put into the queue", _losses(outside, NOT_CAPTURED)),
        ("Stored", "taken from the queue and processed", _losses({"not stored": captured - kept}, {})),
        ("Answered", "a complete answer to a user", _losses(no_answer, NO_ANSWER)),
        ("Selected", "answers that at least one metric was selected for", _losses({"not selected": unselected}, {})),
        ("Evaluated", "at least one metric applies", _losses(inapplicable, {})),
        ("Scored", "at least one metric has a score", _losses(failed, {}, bad=True)),
    ]
    left = total = captured + sum(outside.values())
    stages = []
    for name, words, losses in steps:
        left -= sum(loss.count for loss in losses)
        share = left / total if total else 0.0
        stages.append(Stage(name=name, words=words, count=left, percent=100 * share, losses=tuple(losses)))
    return Funnel(stages=tuple(stages), uncounted=max(0, kept - counted))


def _by_reason(exchanges: Iterable[OutcomeCount], outcome: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for count in exchanges:
        if count.outcome == outcome:
            found[count.reason] = found.get(count.reason, 0) + count.n
    return found


def _losses(counts: Mapping[str, int], words: Mapping[str, str], *, bad: bool = False) -> list[Loss]:
    """The losses that occurred, the largest first."""
    known = sorted(((name, n) for name, n in counts.items() if n), key=lambda pair: -pair[1])
    found = [Loss(name=name, words=words.get(name, ""), count=n, bad=bad or name in LOST) for name, n in known]
    rest = sum(loss.count for loss in found[MAX_REASONS:])
    return [*found[:MAX_REASONS], *([Loss(name="other reasons", words="", count=rest, bad=bad)] if rest else [])]

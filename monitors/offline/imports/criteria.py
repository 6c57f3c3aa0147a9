"""G-Eval metrics from the prompts of other tools' graders."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from monitors.metrics.judged.prompts import Part
from monitors.offline.imports.result import NotMappedError

MAX_CRITERION = 20_000
_TEMPLATE = re.compile(r"\{\{-?\s*([^{}|]*?)\s*(?:\|[^{}]*?)?-?\}\}")
_MAP = "--map FIELD=NAME says which field it is"
_LOGIC = re.compile(r"\{%")
_ORDER: tuple[Part, ...] = ("question", "contexts", "reference", "response")
_MOST_SCORES = 20
_TEN = (0, 10)


def templates(text: str) -> list[str]:
    """Return the names in `{{ }}`, without filters."""
    return _TEMPLATE.findall(text)


def criterion(
    text: str, part: Callable[[str], Part | None], pattern: re.Pattern[str] = _TEMPLATE, advice: str = _MAP
) -> tuple[str, list[Part]]:
    """Return a prompt with its variables replaced by the names of the texts, and these names.

    The judge is shown the texts apart, as data: "Answer: {{answer}}" becomes "Answer: <response>". Raises
    NotMappedError, with `advice`, for a variable that is none of question, contexts, reference and response.
    """
    if _LOGIC.search(text):
        raise NotMappedError("its prompt has template logic ({% %})")
    if len(text) > MAX_CRITERION:
        raise NotMappedError(f"its prompt is longer than {MAX_CRITERION:,} characters")
    used: set[Part] = set()

    def replaced(match: re.Match[str]) -> str:
        found = part(match[1])
        if found is None:
            raise NotMappedError(
                f"its prompt uses {match[0]}, which is none of question, contexts, reference, response; {advice}"
            )
        used.add(found)
        return f"<{found}>"

    made = pattern.sub(replaced, text).strip()
    if not made:
        raise NotMappedError("its prompt is empty")
    return made, [source for source in _ORDER if source in used] or ["question", "response"]


def factuality() -> dict[str, Any]:
    """Return the table of the check whether a response contradicts the reference: `fact`, or `factuality`.

    Both tools let a response pass that says less or more than the reference, but does not disagree with it.
    """
    return {
        "criteria": (
            "The facts of <response> do not disagree with those of <reference>. It may say less or more, and differ in "
            "style, grammar and punctuation."
        ),
        "params": ["question", "reference", "response"],
        "scale": [0, 1],
        "rubric": {"0": "disagrees with the reference", "1": "does not disagree with it"},
    }


def scored(text: str, params: list[Part], low: float, high: float, threshold: float | None) -> dict[str, Any]:
    """Return the table of a metric for a prompt that asks for a number from `low` to `high`.

    G-Eval scores are up to 20 whole numbers: any other range is read on a scale from 0 to 10, which the criterion says.
    Raises NotMappedError for a range that is none.
    """
    if not low < high:
        how = "equals" if low == high else "is above"
        raise NotMappedError(f"its range {low:g} to {high:g} is empty: the minimum {how} the maximum")
    table: dict[str, Any] = {"criteria": text, "params": list(params)}
    if low >= 0 and low == int(low) and high == int(high) and 1 < high - low < _MOST_SCORES:
        table["scale"] = [int(low), int(high)]
    else:
        table["scale"] = list(_TEN)
        table["criteria"] += f"\n\nScores above run from {low:g} to {high:g}. Here {low:g} is 0 and {high:g} is 10."
    if threshold is not None and low <= threshold <= high:
        table["threshold"] = (threshold - low) / (high - low)
    return table


def chosen(text: str, params: list[Part], scores: Mapping[str, float]) -> dict[str, Any]:
    """Return the table of a metric for a prompt that asks for one of several choices, each with its score.

    Raises NotMappedError if all have the same score.
    """
    low, high = min(scores.values()), max(scores.values())
    if low == high:
        raise NotMappedError("all of its choices have the same score")
    ends = _TEN
    if set(scores.values()) == {low, high}:
        ends = (0, 1)
    elif low >= 0 and high - low < _MOST_SCORES and all(score == int(score) for score in scores.values()):
        ends = (int(low), int(high))
    rank = {name: round(ends[0] + (score - low) / (high - low) * (ends[1] - ends[0])) for name, score in scores.items()}
    names = {score: [name for name in rank if rank[name] == score] for score in sorted(set(rank.values()))}
    told = "; ".join(f"{' or '.join(map(repr, some))} is {score}" for score, some in names.items())
    return {
        "criteria": f"{text}\n\nDecide on one of these choices, and answer with its score: {told}.",
        "params": list(params),
        "scale": list(ends),
        "rubric": {str(score): ", ".join(some) for score, some in names.items()},
    }

"""What variables of another tool stand for: fields of a data set, and texts of a criterion that judges are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gaugeway.data_files import table
from monitors.metrics.judged.prompts import Part
from monitors.offline.data_errors import DataError
from monitors.offline.dataset_fields import unmapped_names
from monitors.offline.imports.result import Imported, NotMappedError, any_of, as_text

_NAMES: Mapping[str, Sequence[str]] = table("monitors.offline", "fields.toml")["variables"]
KNOWN: Mapping[str, str] = {key: ours for ours, keys in _NAMES.items() for key in keys}
"""The fields that variables stand for, by the names that tools usually give them."""
PARTS: dict[str, Part] = {
    "user_input": "question",
    "response": "response",
    "retrieved_contexts": "contexts",
    "reference": "reference",
}
"""What a judge is shown of a field."""
_LONGEST_TAG = 200
_ROLES = ("user", "assistant")
_TEXTS = ("page_content", "pageContent", "text", "content")


class Fields(Struct):
    """The assignment of variables to fields. `mapped` (field to variable) wins over `hints`, both over known names."""

    mapped: Mapping[str, str]
    hints: dict[str, str] = {}
    _by_key: dict[str, str] = {}

    def assign(
        self,
        items: Collection[Mapping[str, Any]],
        out: Imported,
        *,
        declared: Iterable[Mapping[str, Any]] = (),
        guess: bool = True,
    ) -> None:
        """Assign the variables that `items` have and schemas declare; with `guess` a single text left is the question.

        Raises DataError for mapped variables that none of them has.
        """
        given = {key: value for item in (*declared, *items) for key, value in item.items()}
        self._check_mapped(items, given, out)
        taken = {theirs: ours for ours, theirs in (self.hints | dict(self.mapped)).items()}
        fixed = set(taken.values())
        for key in given:
            ours = taken.get(key) or KNOWN.get(key.lower())
            if ours is not None and (key in taken or ours not in fixed):
                self._by_key[key] = ours
        left = [key for key, value in given.items() if key not in self._by_key and isinstance(value, str)]
        if guess and "user_input" not in self._by_key.values() and len(left) == 1:
            self._by_key[left[0]] = "user_input"
            out.note(f"{left[0]!r} is taken as the question; --map user_input=NAME names another")

    def _check_mapped(self, items: Collection[Mapping[str, Any]], given: Mapping[str, Any], out: Imported) -> None:
        if not given:  # graders alone: the names are those in their prompts
            self._by_key |= {theirs: ours for ours, theirs in self.mapped.items()}
            return
        if missing := {ours: theirs for ours, theirs in self.mapped.items() if theirs not in given}:
            raise DataError(unmapped_names("--map", missing, given))
        for ours, theirs in self.mapped.items():
            if (count := sum(theirs in item for item in items)) < len(items):
                out.note(f"--map {ours}={theirs}: {count} of {len(items)} records have {theirs!r}")

    def part(self, key: str) -> Part | None:
        """Return what a judge is shown for a variable, None if it is shown nothing."""
        return PARTS.get(self._by_key.get(key, ""))

    def record(self, item: Mapping[str, Any], out: Imported) -> dict[str, Any]:
        """Return the fields of a record; short other values become tags, and what is neither is counted."""
        record: dict[str, Any] = {}
        tags: dict[str, str] = {}
        for key, value in item.items():
            ours = self._by_key.get(key)
            if value is None:
                continue
            if ours is None or ours in record:
                short = as_text(value)
                if isinstance(value, (str, int, float)) and len(short) <= _LONGEST_TAG:
                    tags[key] = short
                else:
                    why = "is not a data set field and too long or nested for a tag; map it with --map"
                    out.miss(f"field {key!r}", why)
            elif ours == "user_input":
                record |= asked(value)
            else:
                record[ours] = _converted(ours, value)
        return record | {"tags": tags}


def asked(value: Any) -> dict[str, Any]:
    """Return question and history of a text, or of a list of chat messages."""
    messages = [message for message in value if isinstance(message, Mapping)] if isinstance(value, list) else []
    if not messages or len(messages) < len(value):
        return {"user_input": as_text(value)}
    said = [(str(message.get("role", "")), content_text(message.get("content"))) for message in messages]
    last = max((index for index, (role, _) in enumerate(said) if role == "user"), default=len(said) - 1)
    history = [{"role": role, "content": text} for role, text in said[:last] if role in _ROLES and text]
    return {"user_input": said[last][1], "history": history}


def content_text(content: Any) -> str:
    """Return the text of a message's content: a text, a text block, or a list of them; other blocks are left out."""
    if isinstance(content, Mapping):
        return content_text(content.get("text"))
    if isinstance(content, list):
        return "\n".join(filter(None, map(content_text, content)))
    return content if isinstance(content, str) else ""


def _converted(ours: str, value: Any) -> Any:
    if ours == "retrieved_contexts":
        return passages(value)
    return any_of(value) if ours == "reference" else as_text(value)


def passages(value: Any) -> list[str | dict[str, str]]:
    """Return passages, of a list or of one: their texts, with the source that the metadata of a document name.

    A document has its text under one of several names.
    """
    return [_passage(piece) for piece in (value if isinstance(value, list) else [value])]


def _passage(value: Any) -> str | dict[str, str]:
    inside = value.get("kwargs", value) if isinstance(value, Mapping) else None
    if not isinstance(inside, Mapping):
        return as_text(value)
    if (text := next((inside[name] for name in _TEXTS if isinstance(inside.get(name), str)), None)) is None:
        return as_text(value)
    about = inside.get("metadata")
    source = about.get("source") if isinstance(about, Mapping) else None
    return {"text": text, "source": source} if source and isinstance(source, str) else text


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
        if (found := part(match[1])) is None:
            none = "which is none of question, contexts, reference, response"
            raise NotMappedError(f"its prompt uses {match[0]}, {none}; {advice}")
        used.add(found)
        return f"<{found}>"

    if not (made := pattern.sub(replaced, text).strip()):
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
    choices = "; ".join(f"{' or '.join(map(repr, some))} is {score}" for score, some in names.items())
    return {
        "criteria": f"{text}\n\nDecide on one of these choices, and answer with its score: {choices}.",
        "params": list(params),
        "scale": list(ends),
        "rubric": {str(score): ", ".join(some) for score, some in names.items()},
    }

"""Which field of a data set a variable of another tool is: as mapped by the user, as its graders use it, or by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gaugeway.data_files import table
from monitors.metrics.judged.prompts import Part
from monitors.offline.dataset_fields import DataError, unmapped_names
from monitors.offline.imports.result import Imported, any_of, as_text

_NAMES: Mapping[str, Sequence[str]] = table("monitors.offline", "fields.toml")["variables"]
PARTS: dict[str, Part] = {
    "user_input": "question",
    "response": "response",
    "retrieved_contexts": "contexts",
    "reference": "reference",
}
"""What a judge is shown of a field."""
_LONGEST_TAG = 200
_ROLES = ("user", "assistant")
_TEXTS = ("text", "content", "page_content")


@dataclass(slots=True)
class Fields:
    """The assignment of variables to fields. `mapped` (field to variable) wins over `hints`, both over known names."""

    mapped: Mapping[str, str]
    hints: dict[str, str] = field(default_factory=dict)
    _by_key: dict[str, str] = field(default_factory=dict)

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
        known = {key: ours for ours, keys in _NAMES.items() for key in keys}
        taken = {theirs: ours for ours, theirs in (self.hints | dict(self.mapped)).items()}
        fixed = set(taken.values())
        for key in given:
            ours = taken.get(key) or known.get(key.lower())
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
                    out.miss(
                        f"field {key!r}", "is not a data set field and too long or nested for a tag; map it with --map"
                    )
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
        return [_passage(piece) for piece in (value if isinstance(value, list) else [value])]
    if ours == "reference":
        return any_of(value)
    return as_text(value)


def _passage(value: Any) -> str:
    if isinstance(value, Mapping):
        return next((value[name] for name in _TEXTS if isinstance(value.get(name), str)), as_text(value))
    return as_text(value)

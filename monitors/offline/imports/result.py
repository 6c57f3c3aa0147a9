"""What an import made, what did not map, and how both are written: JSONL and a `gaugeway.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from monitors.metrics.registry import models_of
from monitors.offline.data_errors import DataError
from monitors.offline.dataset import MAX_PROBLEMS
from monitors.offline.dataset_fields import Reader

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 48
_EMPTY: tuple[Any, ...] = (None, "", [], {})


class NotMappedError(Exception):
    """Raised with the reason why a grader or an assertion has no counterpart."""


class Imported(msgspec.Struct):
    """The result of an import. `unmapped` counts by what was not imported and why.

    `notes` counts what is imported differently; `models` are the judges of the other tool, `read` the files that those
    of the command name.
    """

    records: list[dict[str, Any]] = []
    metrics: dict[str, dict[str, Any]] = {}
    unmapped: dict[tuple[str, str], int] = {}
    notes: dict[str, int] = {}
    models: list[str] = []
    read: set[Path] = set()
    _reader: Reader = msgspec.field(default_factory=Reader)
    _left_out: int = 0

    def miss(self, what: str, why: str, count: int = 1) -> None:
        """Count something that is not imported."""
        self.unmapped[what, why] = self.unmapped.get((what, why), 0) + count

    def note(self, text: str) -> None:
        """Count something that is imported differently."""
        self.notes[text] = self.notes.get(text, 0) + 1

    def record(self, found: Mapping[str, Any], metrics: list[str] | None = None, place: str = "a record") -> None:
        """Add a record without its empty fields, which only `metrics` score (None: all).

        One without any text, or that `gaugeway evaluate` would not read, is counted as not imported; the first of these
        with their `place`.
        """
        record = {name: value for name, value in found.items() if value not in _EMPTY}
        if metrics is not None:
            record["only_metrics"] = metrics
        if not any(record.get(name) for name in ("user_input", "response", "retrieved_contexts")):
            self.miss("a record", "has no question, no response and no contexts")
            return
        try:
            self._reader.sample(record)
        except DataError as error:
            self._left_out += 1
            if self._left_out > MAX_PROBLEMS:
                self.miss("more records", "have values that cannot be read, or an id that another has")
            else:
                self.miss(place, "; ".join(error.problems))
        else:
            self.records.append(record)

    def unmapped_lines(self) -> list[str]:
        """Return a line for everything that was not imported, with how often and why."""
        return [
            f"not imported: {what}" + (f" ({times} times)" if times > 1 else "") + f": {why}"
            for (what, why), times in self.unmapped.items()
        ]

    def criterion(self, name: str, table: dict[str, Any]) -> str:
        """Add a `geval:` metric under a free name like `name`; return it. An equal one is not added again."""
        short = _NOT_IN_NAMES.sub("_", name).strip("_.-")[:_LONGEST_NAME].strip("_.-") or "criterion"
        number = 1
        while (metric := f"geval:{short}" if number == 1 else f"geval:{short}-{number}") in self.metrics:
            if self.metrics[metric] == table:
                return metric
            number += 1
        self.metrics[metric] = table
        return metric

    def built_in(self, name: str, threshold: float | None) -> None:
        """Add a built-in metric. Raises NotMappedError if it is there with another threshold."""
        table = {} if threshold is None else {"threshold": threshold}
        if self.metrics.setdefault(name, table) != table:
            raise NotMappedError(f"maps to {name}, which has another threshold already")


def as_text(value: Any) -> str:
    """Return a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def any_of(value: Any) -> str:
    """Return the reference for one correct answer, or for a list of alternatives."""
    answers = [as_text(item) for item in value] if isinstance(value, list) else [as_text(value)]
    if len(answers) == 1:
        return answers[0]
    return "\n".join(["Any one of these is correct:", *(f"- {answer}" for answer in answers)])


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNESCAPED = re.compile("[\x7f]")


def check(imported: Imported) -> None:
    """Raise DataError if there is nothing to write; its problems end with what was not imported and why."""
    if not imported.records and not imported.metrics:
        nothing = "there is nothing to import: no record and no grader that maps"
        raise DataError([nothing, *imported.unmapped_lines()])


def data_set(imported: Imported) -> str:
    """Return one JSON object per record."""
    return "".join(msgspec.json.encode(record).decode() + "\n" for record in imported.records)


def config(imported: Imported, source: str) -> str:
    """Return a configuration with the metrics; the judge and embeddings that they need are comments, without keys."""
    model = imported.models[0] if imported.models else "NAME"
    used = {need for name in imported.metrics for need in models_of(name)}
    needed = {"judge": model} if "judge" in used else {}
    if "embeddings" in used:
        needed["embeddings"] = "text-embedding-3-small"
    names = " and ".join({"judge": "a judge", "embeddings": "embeddings"}[need] for need in needed)
    lines = [f"# Metrics imported from {_one_line(source)}. They need {names}:"]
    for name, of in needed.items():
        lines += [
            "#",
            f"# [{name}]",
            '# base_url = "https://api.openai.com/v1"',
            '# api_key = "${OPENAI_API_KEY}"',
            f"# model = {_value(_one_line(of))}",
        ]
    for name, table in imported.metrics.items():
        lines += ["", f"[metrics.{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file, with its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """Return a TOML value. A JSON string is a basic string of TOML, but for DEL."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        # "${NAME}" and "${file:PATH}" stand for secrets in a configuration, and an import must not read any.
        encodable = value.encode("utf-8", "replace").decode().replace("${", "$ {")
        return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(encodable, ensure_ascii=False))
    return json.dumps(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())

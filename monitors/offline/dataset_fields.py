"""Conversion of one record of a data set to a sample: field names, aliases, and validation."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import blake2b
from typing import Any

from gaugeway.data_files import table
from gaugeway.records import Sample
from monitors.offline.data_errors import DataError
from monitors.offline.dataset_values import CONVERT, is_list_of_texts, kind_of, sample_of

ALIASES: Mapping[str, Sequence[str]] = table("monitors.offline", "fields.toml")["aliases"]
"""The fields of a record, each with its names in other tools."""

LISTS = frozenset({"retrieved_contexts", "reference_contexts", "retrieved_context_ids", "reference_context_ids"})
STRUCTURED = LISTS | {"tags", "only_metrics", "history", "tool_calls"}
REFERENCE = "reference"
TRUTHS = "ground_truths"
"""The name of `reference` in old versions of ragas, where it is a list of texts."""
_IGNORED = frozenset({"capture", "scores", "expected_verdicts", "labels", "provenance"})
_SHOWN = 10
_CONTENT = ("user_input", "response", *sorted(LISTS))
_KNOWN = {name: name for name in ALIASES} | {alias: name for name, some in ALIASES.items() for alias in some}


@dataclass(slots=True)
class Reader:
    """Converts records to samples; checks that ids are unique and counts unknown fields.

    `renamed` maps a field, by any of its names, to its name in these records; where a record has both, the mapped one
    is used. `option` is where the user gave them.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    option: str = "fields"
    unknown: dict[str, int] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)
    _read: int = 0
    _having: dict[str, int] = field(default_factory=dict)
    _back: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if wrong := [name for name in self.renamed if name not in _KNOWN]:
            raise ValueError(f"{wrong[0]!r} is not a field; the fields are {', '.join(ALIASES)}")
        fields = [_KNOWN[name] for name in self.renamed]
        if twice := [name for name in fields if fields.count(name) > 1]:
            raise ValueError(f"{twice[0]!r} is mapped twice, also under another of its names")
        self._back = {theirs: _KNOWN[ours] for ours, theirs in self.renamed.items()}

    def sample(self, record: Any) -> Sample:
        """Convert one record: a mapping, or any object with attributes of these names. Raises DataError.

        Without an id the sample's id is a hash of the question, so the same question has the same id in another run.
        """
        if isinstance(record, Sample):
            self._name({"id": record.id})
            return record
        values = as_mapping(record)
        if self._back:
            self._read += 1
            for key in values:
                self._having[key] = self._having.get(key, 0) + 1
        found, given, problems = self._fields(values)
        converted: dict[str, Any] = {}
        for name, value in found.items():
            try:
                converted[name] = CONVERT[name](value)
            except DataError as error:
                problems += [f"{given[name]}: {problem}" for problem in error.problems]
        if not problems and not any(found.get(name) for name in _CONTENT):
            problems.append(f"no field with content; expected some of {', '.join(_CONTENT)}{self._strangers(values)}")
        if problems:
            raise DataError(problems)
        return replace(sample_of(converted), id=self._name(found))

    def notes(self) -> list[str]:
        """Return one note per mapped name that only some records have, and per unknown field with the closest name."""
        partly = [
            f"{theirs!r}, the name of {ours}, is in {self._having.get(theirs, 0)} of {self._read} records"
            for theirs, ours in self._back.items()
            if self._having.get(theirs, 0) < self._read
        ]
        scores = _score_columns(self.unknown)
        return partly + [
            f"field {name!r} ({count} {'record' if count == 1 else 'records'}) is not used{_meant(name, self.option)}"
            for name, count in self.unknown.items()
            if name not in scores
        ]

    def missing_names(self) -> list[str]:
        """Return a problem for each mapped name that no record has."""
        missing = {ours: theirs for ours, theirs in self.renamed.items() if theirs not in self._having}
        return unmapped_names(self.option, missing, self._having) if self._read else []

    def _strangers(self, names: Iterable[str]) -> str:
        """Return how to use the fields of a record that have none of our names, "" without such a field."""
        others = [name for name in names if name not in _KNOWN and name not in _IGNORED and name not in self._back]
        some = ", ".join(map(repr, others[:_SHOWN]))
        return f"; it has {some}: {self.option} {_CONTENT[0]}={others[0]} reads one of them" if others else ""

    def _fields(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
        """Return the values by canonical name, the names used in the record, and problems with the names."""
        found: dict[str, Any] = {}
        given: dict[str, str] = {}
        problems: list[str] = []
        for key, value in record.items():
            if (name := self._back.get(key, _KNOWN.get(key))) is None:
                if key not in _IGNORED:
                    self.unknown[key] = self.unknown.get(key, 0) + 1
            elif not _absent(value):
                whole = _one_reference(_whole(value)) if name == REFERENCE else _whole(value)
                if whole is None:
                    continue
                if name not in found or (key in self._back and given[name] not in self._back):
                    found[name], given[name] = whole, key
                elif found[name] != whole and given[name] not in self._back:
                    problems.append(f"{key}: conflicts with {given[name]}, another name of the same field")
        return found, given, problems

    def _name(self, found: Mapping[str, Any]) -> str:
        """Return the id of a record, and note it. Raises DataError for one that another record has."""
        if (given := found.get("id")) is not None:
            if (name := str(given)) in self._ids:
                raise DataError([f"id: {given!r} is a duplicate"])
        else:
            about = found.get("user_input") or found.get("response") or found.get("retrieved_contexts") or ""
            stem = name = f"q-{blake2b(str(about).encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
            times = 1
            while name in self._ids:
                times += 1
                name = f"{stem}-{times}"
        self._ids.add(name)
        return name


def _score_columns(names: Collection[str]) -> set[str]:
    """Return the names that `gaugeway evaluate` gives to the columns of a metric in a CSV."""
    metrics = {name for name in names if f"{name}.outcome" in names and f"{name}.reason" in names}
    return {f"{name}{suffix}" for name in metrics for suffix in ("", ".outcome", ".reason")}


def as_mapping(record: Any) -> Mapping[str, Any]:
    """Return the fields of a mapping, dataclass, pydantic model or other object. Raises DataError."""
    if isinstance(record, Mapping):
        return {str(key): value for key, value in record.items()}
    if is_dataclass(record) and not isinstance(record, type):
        return {key.name: getattr(record, key.name) for key in fields(record)}
    if hasattr(type(record), "model_fields"):  # pydantic
        return {name: getattr(record, name) for name in type(record).model_fields}
    attributes = {name: getattr(record, name) for name in _KNOWN if hasattr(record, name)}
    if attributes and not isinstance(record, (str, bytes, list, tuple)):
        return attributes
    raise DataError([f"expected an object with fields, got {kind_of(record)}"])


def unmapped_names(option: str, missing: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Return a problem for each field of `missing` whose name (its value) is none of the `names` in the records."""
    some = ", ".join(map(repr, list(names)[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    return [
        f"{option} {ours}={theirs}: no record has {theirs!r}, only {some or 'empty records'}{_near(theirs, names)}"
        for ours, theirs in missing.items()
    ]


def content_key(sample: Sample) -> str:
    """Return a hash of everything a metric may read, which excludes the exchange's id, times and rate."""
    parts = (
        *(sample.question, sample.response, sample.reference, sample.skip_reason),
        *(
            [(context.text, context.id, context.score, context.source) for context in sample.contexts],
            sample.context_source,
        ),
        *(list(sample.reference_contexts), list(sample.reference_context_ids)),
        *(sorted(sample.tags.items()), sample.app, sample.model),
    )
    # Only where there are any: outcomes kept by older releases stay known.
    said = (
        [(message.role, message.text) for message in sample.history],
        [(call.name, call.arguments) for call in sample.calls],
    )
    more = repr(said) if any(said) else ""
    return blake2b((repr(parts) + more).encode("utf-8", "replace"), digest_size=16).hexdigest()


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _whole(value: Any) -> Any:
    """Replace lone surrogates with question marks: stores and reports cannot encode them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, (list, tuple)):
        return [_whole(item) for item in value]
    return {_whole(key): _whole(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _one_reference(value: Any) -> Any:
    """Join the texts of a list, one on each line; anything else is left to the checks."""
    return "\n".join(value) or None if is_list_of_texts(value) else value


def canonical(name: str, renamed: Mapping[str, str] | None = None) -> str:
    """Return the field that `name` stands for; `name` itself if it stands for none."""
    back = {theirs: ours for ours, theirs in (renamed or {}).items()}
    return _KNOWN.get(back.get(name, name), name)


def _meant(name: str, option: str) -> str:
    """Return the closest field with the option that maps `name` to it; without one, how to map any field."""
    near = _near(name, _KNOWN)
    field = _KNOWN[difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.75)[0]] if near else "FIELD"
    return f"{near or ';'} {option} {field}={name} reads it"


def _near(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    return f"; did you mean {near[0]!r}?" if near else ""

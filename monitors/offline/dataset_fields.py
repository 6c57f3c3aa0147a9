"""Conversion of one record of a data set to a sample: field names, aliases, and validation."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import blake2b
from typing import Any

from gaugeway.data_files import table
from gaugeway.records import Context, Sample
from gaugeway.settings import ConfigError
from monitors.offline import conversation_fields

ALIASES: Mapping[str, Sequence[str]] = table("monitors.offline", "fields.toml")["aliases"]
"""The fields of a record, each with its names in other tools."""

LISTS = frozenset({"retrieved_contexts", "reference_contexts", "retrieved_context_ids", "reference_context_ids"})
TABLES = frozenset({"tags"})
SELECTIONS = frozenset({"only_metrics"})
OBJECTS = frozenset({conversation_fields.MESSAGES, conversation_fields.CALLS})
REFERENCE = "reference"
TRUTHS = "ground_truths"
"""The name of `reference` in old versions of ragas, where it is a list of texts."""
COUNTS = conversation_fields.COUNTS
NUMBERS = {"started_at": "Unix seconds", "duration_s": "seconds, 0 or more", "retrieval_s": "seconds, 0 or more"}
_OF_CONVERSATIONS = conversation_fields.NAMES | COUNTS | OBJECTS
_IGNORED = frozenset({"capture", "scores"})
_SHOWN = 10
_EXPECTED = dict.fromkeys(TABLES, "an object or a list of texts") | dict.fromkeys(
    SELECTIONS, "a list of names of metrics"
)
_CONTENT = ("user_input", "response", *sorted(LISTS))
_KNOWN = {name: name for name in ALIASES} | {alias: name for name, some in ALIASES.items() for alias in some}


class DataError(ConfigError):
    """Raised for an invalid data set; `problems` has one line per error."""


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
            clash: list[str] = []
            self._name({"id": record.id}, clash)
            if clash:
                raise DataError(clash)
            return record
        values = as_mapping(record)
        if self._back:
            self._read += 1
            for key in values:
                self._having[key] = self._having.get(key, 0) + 1
        found, given, problems = self._fields(values)
        problems += [
            f"{given[name]}: {problem}" for name, value in found.items() for problem in _checked(name)(name, value)
        ]
        if not problems and not any(found.get(name) for name in _CONTENT):
            problems.append(f"no field with content; expected some of {', '.join(_CONTENT)}{self._strangers(values)}")
        if not problems:
            problems += _passages_problems(found)
        name = "" if problems else self._name(found, problems)
        if problems:
            raise DataError(problems)
        return _sample(name, found)

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
            name = self._back.get(key, _KNOWN.get(key))
            if name is None:
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

    def _name(self, found: Mapping[str, Any], problems: list[str]) -> str:
        if (given := found.get("id")) is not None:
            if str(given) in self._ids:
                problems.append(f"id: {given!r} is a duplicate")
            return self._take(str(given))
        about = found.get("user_input") or found.get("response") or found.get("retrieved_contexts") or ""
        name = f"q-{blake2b(str(about).encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
        times = 2
        unique = name
        while unique in self._ids:
            unique, times = f"{name}-{times}", times + 1
        return self._take(unique)

    def _take(self, name: str) -> str:
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
    raise DataError([f"expected an object with fields, got {_kind(record)}"])


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
    return "\n".join(value) or None if _is_list_of_texts(value) else value


def _checked(name: str) -> Callable[[str, Any], Iterator[str]]:
    return conversation_fields.problems if name in _OF_CONVERSATIONS else _problems


def _problems(name: str, value: Any) -> Iterator[str]:
    """Yield the problems of a value."""
    if name in LISTS:
        yield from _list_problems(name, value)
    elif name in _EXPECTED:
        if not _is_list_of_texts(value) and not (name in TABLES and isinstance(value, Mapping)):
            yield f"expected {_EXPECTED[name]}, got {_kind(value)}"
    elif name in NUMBERS:
        yield from _number_problems(name, value)
    elif name == "id":
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
            yield f"expected a name or a number, got {_kind(value)}"
    elif name == REFERENCE and isinstance(value, (list, tuple)):
        yield from (
            f"[{index}] {problem}" for index, item in enumerate(value) if (problem := _text_problem(name, item))
        )
    elif not isinstance(value, str):
        yield f"expected a text, got {_kind(value)}"


def _number_problems(name: str, value: Any) -> Iterator[str]:
    if not _is_number(value):
        yield f"expected a number ({NUMBERS[name]}), got {_kind(value)}"
    elif name != "started_at" and not 0.0 <= value < math.inf:
        yield f"expected a number ({NUMBERS[name]}), got {value}"


def _list_problems(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, (list, tuple)):
        yield f"expected a list of texts, got {_kind(value)}"
        return
    for index, item in enumerate(value):
        wanted = _passage_problem(item) if name == "retrieved_contexts" else _text_problem(name, item)
        if wanted:
            yield f"[{index}] {wanted}"


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text_problem(name: str, item: Any) -> str:
    fine = isinstance(item, str) or (name.endswith("_ids") and isinstance(item, int) and not isinstance(item, bool))
    return "" if fine else f"expected a text, got {_kind(item)}"


def _passage_problem(item: Any) -> str:
    if isinstance(item, (str, Context)):
        return ""
    if not isinstance(item, Mapping) or not isinstance(item.get("text"), str):
        return f"expected a text, or an object with text, id, score and source, got {_kind(item)}"
    score = item.get("score")
    if score is not None and not _is_number(score):
        return f"score: expected a number, got {_kind(score)}"
    return ""


def _passages_problems(found: Mapping[str, Any]) -> list[str]:
    ids, contexts = found.get("retrieved_context_ids"), found.get("retrieved_contexts")
    if ids is None or not contexts or len(ids) == len(contexts):
        return []
    return [f"retrieved_context_ids: {len(ids)} ids for {len(contexts)} contexts"]


def _kind(value: Any) -> str:
    names = {"dict": "an object", "list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null"}
    kind = type(value).__name__
    return names.get(kind, "a number" if isinstance(value, (int, float)) else kind)


def _sample(name: str, found: Mapping[str, Any]) -> Sample:
    contexts = [_passage(item) for item in found.get("retrieved_contexts", ())]
    ids = [str(context_id) for context_id in found.get("retrieved_context_ids", ())]
    if ids and not contexts:
        contexts = [Context(text="", id=context_id) for context_id in ids]
    elif ids:
        contexts = [
            Context(text=context.text, id=id_, score=context.score, source=context.source)
            for context, id_ in zip(contexts, ids, strict=True)
        ]
    looked = "retrieved_contexts" in found or "retrieved_context_ids" in found
    sample = Sample(
        id=name,
        started_at=float(found.get("started_at", 0.0)),
        duration_s=float(found["duration_s"]) if "duration_s" in found else None,
        retrieval_s=float(found["retrieval_s"]) if "retrieval_s" in found else None,
        app=found.get("app", "default"),
        model=found.get("model", "unknown"),
        question=found.get("user_input"),
        contexts=tuple(contexts),
        context_source="data_set" if looked else "none",
        response=found.get("response", ""),
        reference=found.get("reference"),
        tags=_tags(found.get("tags", {})),
        reference_contexts=tuple(found.get("reference_contexts", ())),
        reference_context_ids=tuple(str(context_id) for context_id in found.get("reference_context_ids", ())),
        only_metrics=tuple(found["only_metrics"]) if "only_metrics" in found else None,
    )
    return conversation_fields.in_conversation(sample, found)


def _tags(given: Any) -> dict[str, str]:
    """Return tags as a dict; tags given as a list get the value "true"."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(given, "true")
    return {str(key): str(value) for key, value in given.items()}


def _passage(item: Any) -> Context:
    if isinstance(item, Context):
        return item
    if isinstance(item, str):
        return Context(text=item)
    score, id_, source = item.get("score"), item.get("id"), item.get("source")
    return Context(
        text=item["text"],
        id=None if id_ is None else str(id_),
        score=None if score is None else float(score),
        source=None if source is None else str(source),
    )


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

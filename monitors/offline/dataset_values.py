"""Values of a data set's fields: each field has a function that checks a value and converts it for a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from gaugeway.data_files import table
from gaugeway.records import Context, Message, Sample, ToolCall
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import MAX_CALLS, MAX_HISTORY, MAX_TURNS, bounded_calls, bounded_history, optional_name
from gaugeway.settings.shared import Sampled
from monitors.offline.data_errors import DataError

Convert: TypeAlias = Callable[[Any], Any]
"""Returns the value for a sample. Raises DataError with the problems of the value."""
_ROLES = ("user", "assistant")


def kind_of(value: Any) -> str:
    """Name the JSON type of a value, else its class."""
    names = {"dict": "an object", "list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null"}
    kind = type(value).__name__
    return names.get(kind, "a number" if isinstance(value, (int, float)) else kind)


def is_list_of_texts(value: Any) -> bool:
    """Whether a value is a list, and all that it holds are texts."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _expected(what: str, value: Any) -> DataError:
    return DataError([f"expected {what}, got {kind_of(value)}"])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _expected("a text", value)


def _id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise _expected("a name or a number", value)
    return str(value)


def _id_of_passage(value: Any) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _name(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(["expected a name or a number"])
    return optional_name(str(value) if str(value).strip() else None)


def _number(meaning: str, *, least: float) -> Convert:
    def converted(value: Any) -> float:
        if not _is_number(value):
            raise _expected(f"a number ({meaning})", value)
        if not (math.isinf(least) or least <= value < math.inf):
            raise DataError([f"expected a number ({meaning}), got {value}"])
        return float(value)

    return converted


def _count(value: Any) -> int:
    if not _is_number(value) or not 1 <= value <= MAX_TURNS or value % 1:
        raise DataError([f"expected a whole number from 1 to {MAX_TURNS:,}"])
    return int(value)


def _each(convert: Convert) -> Convert:
    """Return what converts every item of a list of texts."""

    def converted(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise _expected("a list of texts", value)
        return _items(value, convert)

    return converted


def _objects(convert: Convert) -> Convert:
    """Return what converts every item of a list of objects; what has no value is left out."""

    def converted(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise DataError(["expected a list of objects"])
        return tuple(item for item in _items(value, convert) if item is not None)

    return converted


def _items(values: Iterable[Any], convert: Convert) -> tuple[Any, ...]:
    found, problems = [], []
    for index, value in enumerate(values):
        try:
            found.append(convert(value))
        except DataError as error:
            problems += [f"[{index}] {problem}" for problem in error.problems]
    if problems:
        raise DataError(problems)
    return tuple(found)


def _reference(value: Any) -> str:
    """Return a reference; a list is one already joined, unless it holds something else than texts."""
    if isinstance(value, (list, tuple)):
        _items(value, _text)
    return _text(value)


def _names(value: Any) -> tuple[str, ...]:
    if is_list_of_texts(value):
        return tuple(value)
    raise _expected("a list of names of metrics", value)


def _tags(value: Any) -> dict[str, str]:
    """Return tags as a dict; tags given as a list get the value "true"."""
    if isinstance(value, Mapping):
        return {str(key): str(item) for key, item in value.items()}
    if is_list_of_texts(value):
        return dict.fromkeys(value, "true")
    raise _expected("an object or a list of texts", value)


def _passage(value: Any) -> Context:
    if isinstance(value, Context):
        return value
    if isinstance(value, str):
        return Context(text=value)
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
        raise _expected("a text, or an object with text, id, score and source", value)
    score, id_, source = value.get("score"), value.get("id"), value.get("source")
    if score is not None and not _is_number(score):
        raise DataError([f"score: expected a number, got {kind_of(score)}"])
    return Context(
        text=value["text"],
        id=None if id_ is None else str(id_),
        score=None if score is None else float(score),
        source=None if source is None else str(source),
    )


def _message(value: Any) -> Message | None:
    """Return a message of user or model; None for what a captured history leaves out (other roles, no text)."""
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        raise DataError(["expected an object with role and content"])
    role, text = value["role"], value.get("content")
    if text is not None and not isinstance(text, str):
        raise DataError(["content: expected a text"])
    return Message(role=role, text=text) if role in _ROLES and text and not text.isspace() else None


def _call(value: Any) -> ToolCall:
    if isinstance(value, ToolCall):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise DataError(["expected an object with name and arguments"])
    arguments, hop = value.get("arguments"), value.get("hop")
    if not isinstance(arguments, (str, Mapping, type(None))):
        raise DataError(["arguments: expected a text or an object"])
    try:
        hop = None if hop is None else _count(hop)
    except DataError as error:
        raise DataError([f"hop: {error}"]) from None
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode() if arguments else ""
    return ToolCall(name=value["name"], arguments=text, hop=hop)


MEANINGS = {"started_at": "Unix seconds", "duration_s": "seconds, 0 or more", "retrieval_s": "seconds, 0 or more"}
"""What the numbers among the fields are."""
CONVERT: dict[str, Convert] = {
    "user_input": _text,
    "response": _text,
    "retrieved_contexts": _each(_passage),
    "reference": _reference,
    "reference_contexts": _each(_text),
    "retrieved_context_ids": _each(_id_of_passage),
    "reference_context_ids": _each(_id_of_passage),
    "id": _id,
    "tags": _tags,
    "app": _text,
    "model": _text,
    "started_at": _number(MEANINGS["started_at"], least=-math.inf),
    "duration_s": _number(MEANINGS["duration_s"], least=0.0),
    "retrieval_s": _number(MEANINGS["retrieval_s"], least=0.0),
    "session": _name,
    "conversation_id": _name,
    "turn": _count,
    "hop": _count,
    "history": _objects(_message),
    "tool_calls": _objects(_call),
    "cluster": lambda value: optional_name(_text(value)),
    "only_metrics": _names,
}
_ATTRIBUTES: dict[str, str] = table("monitors.offline", "fields.toml")["attributes"]
"""Fields whose attribute of a sample has another name."""


def sample_of(values: Mapping[str, Any]) -> Sample:
    """Return the sample with the converted values of its fields. Raises DataError unless each context has its id."""
    attributes: dict[str, Any] = {_ATTRIBUTES.get(field, field): value for field, value in values.items()}
    ids = attributes.pop("retrieved_context_ids", None)
    contexts = attributes.get("contexts") or ()
    looked = ids is not None or "contexts" in attributes
    if ids and not contexts:
        contexts = tuple(Context(text="", id=id_) for id_ in ids)
    elif ids is not None and contexts:
        if len(ids) != len(contexts):
            raise DataError([f"retrieved_context_ids: {len(ids)} ids for {len(contexts)} contexts"])
        contexts = tuple(replace(context, id=id_) for context, id_ in zip(contexts, ids, strict=True))
    source = "data_set" if looked else "none"
    attributes |= {"contexts": contexts, "context_source": source}
    return Sample(**{"id": "", "started_at": 0.0, **attributes})


def protected(samples: Iterable[Sample], capture: Sampled) -> list[Sample]:
    """Return the samples with histories and tool calls redacted as `[capture]` says, and bounded like captured ones."""
    redactor = Redactor(capture.redact, tuple(capture.redact_patterns.items()), capture.salt)
    return [_protected(sample, redactor) if sample.history or sample.calls else sample for sample in samples]


def _protected(sample: Sample, redactor: Redactor) -> Sample:
    """Redact, then truncate: a secret that is cut in half would not be recognised."""
    history = (replace(message, text=redactor.redact(message.text)) for message in sample.history[-MAX_HISTORY:])
    calls = (replace(call, arguments=redactor.redact(call.arguments)) for call in sample.calls[:MAX_CALLS])
    return replace(sample, history=bounded_history(tuple(history)), calls=bounded_calls(tuple(calls)))

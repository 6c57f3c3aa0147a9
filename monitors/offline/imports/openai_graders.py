"""Graders of OpenAI's Evals API (`testing_criteria`) as metrics.

Formats: the types `openai.types.graders` of the openai SDK.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from monitors.metrics.judged.prompts import Part
from monitors.offline.dataset_fields import DataError
from monitors.offline.imports import criteria
from monitors.offline.imports.fields import Fields, content_text
from monitors.offline.imports.result import Imported, NotMappedError
from monitors.offline.imports.sources import Document, kind

KINDS = ("string_check", "text_similarity", "score_model", "label_model", "python", "multi")
_ONE = re.compile(r"\s*\{\{\s*([\w.]+)\s*\}\}\s*")
_CUSTOM = "write it as a custom metric"


def hints(graders: list[dict[str, Any]]) -> dict[str, str]:
    """Return the fields (response, reference) that graders name in their `input` and `reference`."""
    found: dict[str, str] = {}
    for grader in graders:
        for name, ours in (("input", "response"), ("reference", "reference")):
            text = grader.get(name)
            if isinstance(text, str) and (match := _ONE.fullmatch(text)) and match[1].startswith("item."):
                found.setdefault(ours, match[1].removeprefix("item."))
    return found


def part_of(fields: Fields) -> Callable[[str], Part | None]:
    """Return a function that says what a judge is shown for `item.NAME` or `sample.output_text`."""

    def part(name: str) -> Part | None:
        if name == "sample.output_text":
            return "response"
        namespace, _, key = name.partition(".")
        return fields.part(key) if namespace == "item" else None

    return part


def add(
    grader: Mapping[str, Any], where: tuple[Document, tuple[str | int, ...]], fields: Fields, out: Imported
) -> None:
    """Add a grader to the metrics, or count it as not mapped. Raises DataError for one that is malformed."""
    document, keys = where
    type_ = grader.get("type")
    if not isinstance(type_, str):
        raise document.problem(f"expected a text, got {kind(type_)}", *keys, "type")
    name = grader.get("name")
    if type_ not in KINDS:
        out.miss(f"{type_} {name!r}", f"is no type of grader that is known: {_CUSTOM}")
        return
    if not isinstance(name, str):
        raise document.problem(f"expected a text, got {kind(name)}", *keys, "name")
    if type_ == "multi":
        _multi(grader, where, fields, out)
        return
    try:
        table = _TYPES[str(type_)](grader, fields, out)
    except NotMappedError as reason:
        out.miss(f"{type_} {name!r}", str(reason))
        return
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise DataError([f"{document.where(*keys)}: not a {type_} grader: {_what(error)}"]) from error
    if table is not None:
        out.criterion(name, table)
        if isinstance(model := grader.get("model"), str) and model not in out.models:
            out.models.append(model)


def _multi(
    grader: Mapping[str, Any], where: tuple[Document, tuple[str | int, ...]], fields: Fields, out: Imported
) -> None:
    """Add each grader of a multi grader; the formula over them has no counterpart."""
    document, keys = where
    some = grader.get("graders")
    if isinstance(some, Mapping) and "type" not in some:
        inside = [(name, part) for name, part in some.items()]
    else:
        inside = list(enumerate(some)) if isinstance(some, list) else [("", some)]
    for key, part in inside:
        path = (*keys, "graders", *([key] if key != "" else []))
        if not isinstance(part, Mapping):
            raise document.problem(f"expected an object, got {kind(part)}", *path)
        add({"name": str(key), **part}, (document, path), fields, out)
    out.miss(
        f"multi {grader.get('name')!r}",
        "its formula calculate_output: metrics are not combined; its graders are separate",
    )


def _string_check(grader: Mapping[str, Any], _: Fields, __: Imported) -> None:
    raise NotMappedError(f"compares text ({grader['operation']}); no built-in metric does this: {_CUSTOM}")


def _python(_: Mapping[str, Any], __: Fields, ___: Imported) -> None:
    raise NotMappedError(f"runs Python code: {_CUSTOM}")


def _text_similarity(grader: Mapping[str, Any], fields: Fields, out: Imported) -> None:
    how = grader["evaluation_metric"]
    if how != "cosine":
        raise NotMappedError(f"measures {how}; no built-in metric does this: {_CUSTOM}, or use answer_correctness")
    part = part_of(fields)
    for name, wanted in (("input", "response"), ("reference", "reference")):
        match = _ONE.fullmatch(grader[name])
        if match is None or part(match[1]) != wanted:
            raise NotMappedError(f"its {name} {grader[name]!r} is not the {wanted} alone")
    threshold = grader.get("pass_threshold")
    out.built_in("answer_similarity", None if threshold is None else min(1.0, max(0.0, float(threshold))))


def _score_model(grader: Mapping[str, Any], fields: Fields, out: Imported) -> dict[str, Any]:
    text, params = criteria.criterion(_prompt(grader["input"]), part_of(fields))
    low, high = grader.get("range") or (0.0, 1.0)
    given = grader.get("pass_threshold")
    threshold = None if given is None else float(given)
    if threshold is not None and not low <= threshold <= high:
        out.note(f"pass_threshold {threshold:g} is outside the range from {low:g} to {high:g}, and not used")
    return criteria.scored(text, params, float(low), float(high), threshold)


def _label_model(grader: Mapping[str, Any], fields: Fields, _: Imported) -> dict[str, Any]:
    text, params = criteria.criterion(_prompt(grader["input"]), part_of(fields))
    passing = {str(label) for label in grader["passing_labels"]}
    scores = {str(label): float(str(label) in passing) for label in grader["labels"]}
    if not any(scores.values()):
        raise NotMappedError("it has no passing label")
    return criteria.chosen(text, params, scores) | {"threshold": 0.5}


def _prompt(messages: Any) -> str:
    """Return the texts of a grader's messages. Raises NotMappedError for images and audio."""
    if isinstance(messages, str):
        return messages
    texts = []
    for message in messages:
        content = message["content"]
        blocks = content if isinstance(content, list) else [content]
        if other := [block["type"] for block in blocks if isinstance(block, Mapping) and "text" not in block]:
            raise NotMappedError(f"its prompt has {other[0]}, and judges are shown texts")
        text = content_text(content)
        texts.append(f"Example of an answer of the grader: {text}" if message.get("role") == "assistant" else text)
    return "\n\n".join(texts)


def _what(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


_TYPES: dict[str, Callable[[Mapping[str, Any], Fields, Imported], dict[str, Any] | None]] = {
    "string_check": _string_check,
    "text_similarity": _text_similarity,
    "score_model": _score_model,
    "label_model": _label_model,
    "python": _python,
}

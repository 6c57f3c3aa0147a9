"""Files of OpenAI's Evals: evals with graders, runs, output items, data source items, samples of `openai/evals`.

Formats: the types `openai.types.graders` of the openai SDK.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from monitors.metrics.judged.prompts import Part
from monitors.offline.data_errors import DataError
from monitors.offline.imports import evals_registry
from monitors.offline.imports.fields import Fields, asked, chosen, content_text, criterion, scored
from monitors.offline.imports.result import Imported, NotMappedError, as_text
from monitors.offline.imports.sources import Document, check_rows, documents, kind, rows

KINDS = ("string_check", "text_similarity", "score_model", "label_model", "python", "multi")
_ONE = re.compile(r"\s*\{\{\s*([\w.]+)\s*\}\}\s*")
_CUSTOM = "write it as a custom metric"


def _hints_of(graders: list[dict[str, Any]]) -> dict[str, str]:
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
    if not isinstance(type_ := grader.get("type"), str):
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
    if isinstance(some := grader.get("graders"), Mapping) and "type" not in some:
        inside = [(name, part) for name, part in some.items()]
    else:
        inside = list(enumerate(some)) if isinstance(some, list) else [("", some)]
    for key, part in inside:
        path = (*keys, "graders", *([key] if key != "" else []))
        add({"name": str(key), **document.object(part, *path)}, (document, path), fields, out)
    why = "its formula calculate_output: metrics are not combined; its graders are separate"
    out.miss(f"multi {grader.get('name')!r}", why)


def _no_counterpart(grader: Mapping[str, Any], _: Fields, __: Imported) -> None:
    if grader["type"] == "python":
        raise NotMappedError(f"runs Python code: {_CUSTOM}")
    raise NotMappedError(f"compares text ({grader['operation']}); no built-in metric does this: {_CUSTOM}")


def _text_similarity(grader: Mapping[str, Any], fields: Fields, out: Imported) -> None:
    if (how := grader["evaluation_metric"]) != "cosine":
        raise NotMappedError(f"measures {how}; no built-in metric does this: {_CUSTOM}, or use answer_correctness")
    part = part_of(fields)
    for name, wanted in (("input", "response"), ("reference", "reference")):
        if (match := _ONE.fullmatch(grader[name])) is None or part(match[1]) != wanted:
            raise NotMappedError(f"its {name} {grader[name]!r} is not the {wanted} alone")
    threshold = grader.get("pass_threshold")
    out.built_in("answer_similarity", None if threshold is None else min(1.0, max(0.0, float(threshold))))


def _score_model(grader: Mapping[str, Any], fields: Fields, out: Imported) -> dict[str, Any]:
    text, params = criterion(_prompt(grader["input"]), part_of(fields))
    low, high = grader.get("range") or (0.0, 1.0)
    given = grader.get("pass_threshold")
    threshold = None if given is None else float(given)
    if threshold is not None and not low <= threshold <= high:
        out.note(f"pass_threshold {threshold:g} is outside the range from {low:g} to {high:g}, and not used")
    return scored(text, params, float(low), float(high), threshold)


def _label_model(grader: Mapping[str, Any], fields: Fields, _: Imported) -> dict[str, Any]:
    text, params = criterion(_prompt(grader["input"]), part_of(fields))
    passing = {str(label) for label in grader["passing_labels"]}
    scores = {str(label): float(str(label) in passing) for label in grader["labels"]}
    if not any(scores.values()):
        raise NotMappedError("it has no passing label")
    return chosen(text, params, scores) | {"threshold": 0.5}


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
    "string_check": _no_counterpart,
    "text_similarity": _text_similarity,
    "score_model": _score_model,
    "label_model": _label_model,
    "python": _no_counterpart,
}


_SHAPES = (
    "an eval (testing_criteria), a run (data_source), an output item (datasource_item), "
    "a data source item (item), or a sample of openai/evals (input)"
)
Place = tuple[Document, tuple[str | int, ...]]


class _Found(Struct):
    """What the files hold: items with their sample, graders with their place, properties of item schemas."""

    items: list[tuple[Mapping[str, Any], dict[str, Any]]] = []
    graders: list[tuple[dict[str, Any], Place]] = []
    schemas: list[dict[str, str | None]] = []
    hints: dict[str, str] = {}


def load(paths: Sequence[Path], mapped: Mapping[str, str]) -> Imported:
    """Import files of one eval: its graders and its data may be in different files. Raises DataError."""
    out = Imported()
    found = _Found()
    for path in paths:
        if path.suffix.lower() == ".csv":
            found.items += [(row, {"place": f"{path}:{line}"}) for line, row in rows(path)]
            continue
        for document in documents(path):
            if path.suffix.lower() in (".yaml", ".yml"):
                found.items += evals_registry.load(document, out)
            else:
                _say_more_pages(document, out)
                for value, keys in _objects(document):
                    before = len(found.items)
                    _add(value, (document, keys), found, out)
                    for _, sampled in found.items[before:]:
                        sampled["place"] = document.where(*keys)
    check_rows(paths[0], len(found.items))
    hints = _hints_of([grader for grader, _ in found.graders]) | found.hints
    fields = Fields(mapped, {ours: key for ours, key in hints.items() if ours not in mapped})
    asked_already = any("user_input" in sampled for _, sampled in found.items)
    fields.assign([item for item, _ in found.items], out, declared=found.schemas, guess=not asked_already)
    for grader, where in found.graders:
        add(grader, where, fields, out)
    for item, sampled in found.items:
        record = fields.record(item, out)
        place = sampled.pop("place")
        tags = record["tags"] | sampled.pop("tags", {})
        asks = {} if "user_input" in record else sampled
        given = {name: value for name, value in sampled.items() if name not in ("user_input", "history")}
        given |= {name: asks[name] for name in ("user_input", "history") if name in asks}
        out.record({**record, **given, "tags": tags}, place=place)
    return out


def _say_more_pages(document: Document, out: Imported) -> None:
    """Count a page of the API that is not the last."""
    if isinstance(document.value, dict) and document.value.get("has_more") is True:
        out.miss(f"the pages after {document.path.name}", "the page says has_more: save the others too (after=last_id)")


def _objects(document: Document) -> Iterator[tuple[dict[str, Any], tuple[str | int, ...]]]:
    """Yield the objects of a file: itself, those of a list, or those of a page of the API."""
    value = document.value
    keys: tuple[str, ...] = ()
    if isinstance(value, dict) and value.get("object") == "list":
        value, keys = value.get("data"), ("data",)
    if isinstance(value, list):
        for index, row in enumerate(document.objects(value, *keys)):
            yield row, (*keys, index)
    elif isinstance(value, dict):
        yield value, ()
    else:
        raise document.problem(f"expected an object or a list of objects, got {kind(value)}")


def _add(value: dict[str, Any], where: Place, found: _Found, out: Imported) -> None:
    """Sort one object by its members. Raises DataError for one that is none of Evals."""
    document, keys = where
    if "testing_criteria" in value:
        _eval(value, where, found)
    elif value.get("type") in KINDS:
        found.graders.append((value, where))
    elif "data_source" in value:
        _run(value, where, found, out)
    elif "datasource_item" in value:
        _output_item(value, where, found, out)
    elif "item" in value:
        _item(value, where, found, out)
    elif "input" in value:
        found.items.append((value, {}))
    else:
        members = ", ".join(map(repr, list(value)[:5])) or "no member"
        raise document.problem(f"expected {_SHAPES}; it has {members}", *keys)


def _eval(value: Mapping[str, Any], where: Place, found: _Found) -> None:
    document, keys = where
    graders = document.objects(value["testing_criteria"], *keys, "testing_criteria")
    found.graders += [(grader, (document, (*keys, "testing_criteria", index))) for index, grader in enumerate(graders)]
    source = _of(value, "data_source_config")
    properties = _of(_of(source, "item_schema") or _of(source, "schema"), "properties")
    if inner := _of(properties, "item"):
        properties = _of(inner, "properties")  # as the API returns the schema: with item and sample
    text = {key: "" for key in properties if _of(properties, key).get("type") == "string"}
    found.schemas.append(dict.fromkeys(properties) | text)


def _run(value: Mapping[str, Any], where: Place, found: _Found, out: Imported) -> None:
    """Add the items in a run's data source; items in a file or in stored completions are not in the run."""
    document, keys = where
    data = document.object(value["data_source"], *keys, "data_source")
    found.hints |= _question_of(data.get("input_messages"))
    source, about = _of(data, "source"), f"data of run {value.get('id')!r}"
    if source.get("type") == "file_content":
        place = (*keys, "data_source", "source", "content")
        for index, row in enumerate(document.objects(source.get("content"), *place)):
            _item(row, (document, (*place, index)), found, out)
    elif source.get("type") == "file_id":
        out.miss(about, f"is in the file {source.get('id')!r}: download and import it")
    else:
        out.miss(about, f"is no list of items but {source.get('type')!r}: import output items")


def _question_of(messages: Any) -> dict[str, str]:
    """Return the item's field that is the question, where a run's input messages name one alone."""
    if not isinstance(messages, Mapping):
        return {}
    if not isinstance(name := messages.get("item_reference"), str):
        users = [message for message in _mappings(messages.get("template")) if message.get("role") == "user"]
        name = content_text(users[-1].get("content")).strip().strip("{}").strip() if users else ""
    key = name.removeprefix("item.")
    return {"user_input": key} if name.startswith("item.") and key.isidentifier() else {}


def _item(value: Mapping[str, Any], where: Place, found: _Found, out: Imported) -> None:
    document, keys = where
    item = document.object(value.get("item"), *keys, "item")
    sample = document.object({} if value.get("sample") is None else value["sample"], *keys, "sample")
    sampled = _sampled(sample)
    _say_unread(sample, sampled, out)
    found.items.append((item, sampled))


def _output_item(value: Mapping[str, Any], where: Place, found: _Found, out: Imported) -> None:
    document, keys = where
    item = dict(document.object(value["datasource_item"], *keys, "datasource_item"))
    sample = value.get("sample")
    sampled = _sampled(_of(value, "sample"))
    if (response := item.pop("sample.output_text", None)) is not None:  # as Azure writes items
        sampled.setdefault("response", as_text(response))
    if inner := item.pop("item", None) if isinstance(item.get("item"), Mapping) else None:
        item = {**inner, **{key: part for key, part in item.items() if key != "sample"}}
    if not sampled.get("response") and isinstance(sample, Mapping) and sample.get("error"):
        out.note("an output item has no output, only an error")
    else:
        _say_unread(sample, sampled, out)
    tags = {key: str(value[key]) for key in ("run_id", "status") if value.get(key)}
    for result in _mappings(value.get("results")):
        if result.get("score") is not None:
            tags[f"openai.{result.get('name')}"] = as_text(result["score"])
    found.items.append((item, sampled | {"tags": tags}))


def _sampled(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a sample: the last output, the question and history of the input, the model."""
    record: dict[str, Any] = {}
    if not isinstance(text := sample.get("output_text"), str):
        outputs = (output for output in _mappings(sample.get("output")) if output.get("role") != "tool")
        texts = [content_text(output.get("content")) for output in outputs]
        choices = [content_text(_of(choice, "message").get("content")) for choice in _mappings(sample.get("choices"))]
        text = next(filter(None, reversed(texts)), None) or next(filter(None, choices), None)
    if text:
        record["response"] = text
    if isinstance(messages := sample.get("input"), list) and messages:
        record |= asked(messages)
    if isinstance(model := sample.get("model"), str) and model:
        record["model"] = model
    return record


def _say_unread(sample: Any, sampled: Mapping[str, Any], out: Imported) -> None:
    """Count the output of a sample from which no response was read."""
    if sampled.get("response") or not sample:
        return
    if not isinstance(sample, Mapping):
        out.miss("sample", f"expected an object, got {kind(sample)}")
    elif not isinstance(text := sample.get("output_text"), str | None):
        out.miss("response in sample.output_text", f"expected a text, got {kind(text)}")
    elif name := next((key for key in ("output", "choices") if sample.get(key)), None):
        out.miss(f"response in sample.{name}", "has no text")


def _mappings(values: Any) -> Iterable[Mapping[str, Any]]:
    return (value for value in values if isinstance(value, Mapping)) if isinstance(values, list) else ()


def _of(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, Mapping) else {}

"""Files of OpenAI's Evals: eval objects, runs, output items and data source items, and samples of `openai/evals`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.offline.imports import evals_registry, openai_graders
from monitors.offline.imports.fields import Fields, asked, content_text
from monitors.offline.imports.result import Imported, as_text
from monitors.offline.imports.sources import Document, check_rows, documents, kind, rows

_SHAPES = (
    "an eval (testing_criteria), a run (data_source), an output item (datasource_item), "
    "a data source item (item), or a sample of openai/evals (input)"
)
Place = tuple[Document, tuple[str | int, ...]]


@dataclass(slots=True)
class _Found:
    """What the files hold: items with their sample, graders with their place, properties of item schemas."""

    items: list[tuple[Mapping[str, Any], dict[str, Any]]] = field(default_factory=list)
    graders: list[tuple[dict[str, Any], Place]] = field(default_factory=list)
    schemas: list[dict[str, str | None]] = field(default_factory=list)
    hints: dict[str, str] = field(default_factory=dict)


def load(paths: Sequence[Path], mapped: Mapping[str, str]) -> Imported:
    """Import files of one eval: its graders and its data may be in different files. Raises DataError."""
    out = Imported()
    found = _Found()
    for path in paths:
        if path.suffix.lower() == ".csv":
            found.items += [(row, {}) for _, row in rows(path)]
            continue
        for document in documents(path):
            if path.suffix.lower() in (".yaml", ".yml"):
                found.items += evals_registry.load(document, out)
            else:
                _say_more_pages(document, out)
                for value, keys in _objects(document):
                    _add(value, (document, keys), found, out)
    check_rows(paths[0], len(found.items))
    hints = openai_graders.hints([grader for grader, _ in found.graders]) | found.hints
    fields = Fields(mapped, {ours: key for ours, key in hints.items() if ours not in mapped})
    asked_already = any("user_input" in sampled for _, sampled in found.items)
    fields.assign([item for item, _ in found.items], out, declared=found.schemas, guess=not asked_already)
    for grader, where in found.graders:
        openai_graders.add(grader, where, fields, out)
    for item, sampled in found.items:
        record = fields.record(item, out)
        tags = record["tags"] | sampled.pop("tags", {})
        asks = {} if "user_input" in record else sampled
        given = {name: value for name, value in sampled.items() if name not in ("user_input", "history")}
        out.record(
            {
                **record,
                **given,
                **{name: asks[name] for name in ("user_input", "history") if name in asks},
                "tags": tags,
            }
        )
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
    elif value.get("type") in openai_graders.KINDS:
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
        raise document.problem(
            f"expected {_SHAPES}; it has {', '.join(map(repr, list(value)[:5])) or 'no member'}", *keys
        )


def _eval(value: Mapping[str, Any], where: Place, found: _Found) -> None:
    document, keys = where
    graders = document.objects(value["testing_criteria"], *keys, "testing_criteria")
    found.graders += [(grader, (document, (*keys, "testing_criteria", index))) for index, grader in enumerate(graders)]
    source = value.get("data_source_config")
    schema = (source.get("item_schema") or source.get("schema")) if isinstance(source, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if isinstance(properties, Mapping) and isinstance(inner := properties.get("item"), Mapping):
        properties = inner.get("properties")  # as the API returns the schema: with item and sample
    if isinstance(properties, Mapping):
        text = {
            key: ""
            for key, property_ in properties.items()
            if isinstance(property_, Mapping) and property_.get("type") == "string"
        }
        found.schemas.append(dict.fromkeys(properties) | text)


def _run(value: Mapping[str, Any], where: Place, found: _Found, out: Imported) -> None:
    """Add the items in a run's data source; items in a file or in stored completions are not in the run."""
    document, keys = where
    data = value["data_source"]
    if not isinstance(data, Mapping):
        raise document.problem(f"expected an object, got {kind(data)}", *keys, "data_source")
    found.hints |= _question_of(data.get("input_messages"))
    source = data.get("source")
    source = source if isinstance(source, Mapping) else {}
    if source.get("type") == "file_content":
        place = (*keys, "data_source", "source", "content")
        for index, row in enumerate(document.objects(source.get("content"), *place)):
            _item(row, (document, (*place, index)), found, out)
    elif source.get("type") == "file_id":
        out.miss(f"data of run {value.get('id')!r}", f"is in the file {source.get('id')!r}: download and import it")
    else:
        out.miss(
            f"data of run {value.get('id')!r}", f"is no list of items but {source.get('type')!r}: import output items"
        )


def _question_of(messages: Any) -> dict[str, str]:
    """Return the item's field that is the question, where a run's input messages name one alone."""
    if not isinstance(messages, Mapping):
        return {}
    name = messages.get("item_reference")
    if not isinstance(name, str):
        template = messages.get("template")
        users = (
            [message for message in template if isinstance(message, Mapping) and message.get("role") == "user"]
            if isinstance(template, list)
            else []
        )
        name = content_text(users[-1].get("content")).strip().strip("{}").strip() if users else ""
    key = name.removeprefix("item.")
    return {"user_input": key} if name.startswith("item.") and key.isidentifier() else {}


def _item(value: Mapping[str, Any], where: Place, found: _Found, out: Imported) -> None:
    document, keys = where
    item = _mapping(value.get("item"), where, "item")
    sample = value.get("sample")
    if sample is not None and not isinstance(sample, Mapping):
        raise document.problem(f"expected an object, got {kind(sample)}", *keys, "sample")
    sampled = _sampled(sample or {})
    _say_unread(sample, sampled, out)
    found.items.append((item, sampled))


def _output_item(value: Mapping[str, Any], where: Place, found: _Found, out: Imported) -> None:
    item = dict(_mapping(value["datasource_item"], where, "datasource_item"))
    sample = value.get("sample")
    sampled = _sampled(sample if isinstance(sample, Mapping) else {})
    if (response := item.pop("sample.output_text", None)) is not None:  # as Azure writes items
        sampled.setdefault("response", as_text(response))
    if inner := item.pop("item", None) if isinstance(item.get("item"), Mapping) else None:
        item = {**inner, **{key: part for key, part in item.items() if key != "sample"}}
    if not sampled.get("response") and isinstance(sample, Mapping) and sample.get("error"):
        out.note("an output item has no output, only an error")
    else:
        _say_unread(sample, sampled, out)
    tags = {key: str(value[key]) for key in ("run_id", "status") if value.get(key)}
    results = value.get("results")
    for result in results if isinstance(results, list) else ():
        if isinstance(result, Mapping) and result.get("score") is not None:
            tags[f"openai.{result.get('name')}"] = as_text(result["score"])
    found.items.append((item, sampled | {"tags": tags}))


def _sampled(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a sample: the last output, the question and history of the input, the model."""
    record: dict[str, Any] = {}
    text = sample.get("output_text")
    if not isinstance(text, str):
        outputs = sample.get("output")
        texts = [
            content_text(mapping.get("content")) for mapping in _mappings(outputs) if mapping.get("role") != "tool"
        ]
        choices = [content_text(_of(mapping, "message").get("content")) for mapping in _mappings(sample.get("choices"))]
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


def _mapping(value: Any, where: Place, name: str) -> Mapping[str, Any]:
    document, keys = where
    if not isinstance(value, Mapping):
        raise document.problem(f"expected an object, got {kind(value)}", *keys, name)
    return value

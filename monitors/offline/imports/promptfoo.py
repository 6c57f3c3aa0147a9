"""promptfoo: configurations (YAML or JSON, with the files they name) and results (`promptfoo eval -o`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitors.offline.dataset_fields import DataError
from monitors.offline.imports import promptfoo_assertions, sources
from monitors.offline.imports.fields import Fields, asked
from monitors.offline.imports.promptfoo_assertions import RUBRIC, Case, requirements
from monitors.offline.imports.promptfoo_config import LONGEST_TAG, Config, Keys, table, tags_of, tests_in
from monitors.offline.imports.result import Imported, as_text
from monitors.offline.imports.sources import Document, kind


def load(path: Path, mapped: Mapping[str, str]) -> Imported:
    """Import a configuration, a file of tests, or the results of a run. Raises DataError."""
    out = Imported()
    cases = _cases(path, out)
    if not cases and not out.unmapped:
        raise DataError([f"{path}: has no test and no result"])
    fields = Fields(mapped)
    fields.assign([case.vars for case in cases], out)
    for case in cases:
        record = fields.record(case.vars, out)
        case.tags = record.pop("tags") | case.tags
        case.record = record | case.record
        if "user_input" not in record and case.prompt:
            case.record |= asked(_messages(case.prompt))
            out.note("no variable is the question: the prompt is; --map user_input=NAME names one")
    promptfoo_assertions.add(cases, fields, out)
    _add_records(cases, out)
    if cases and not any(case.record.get("response") for case in cases):
        out.note("there are no answers: import the results of `promptfoo eval -o results.json`, or add `response`")
    return out


def _add_records(cases: Sequence[Case], out: Imported) -> None:
    """Add the records of the cases, each with the names of the metrics that score it, unless all score all.

    A record has one reference: rubrics of a test that has another reference are a record of their own.
    """
    apart = [case for case in cases if case.rubrics and case.record.get("reference") not in (None, "")]
    selective = bool(apart) or any(set(case.metrics) != set(out.metrics) for case in cases)
    for case in cases:
        metrics = [name for name in out.metrics if name in case.metrics]
        record = {**case.record, "tags": case.tags}
        if case in apart:
            out.record(record, [name for name in metrics if name != RUBRIC])
            out.record(_of_rubric(case, record), [RUBRIC])
            out.note("a test with a reference and a rubric of its own is two records")
            continue
        if case.rubrics:
            record["reference"] = requirements(case)
        if selective and not metrics:
            out.note("a record has no assertion that is imported: no metric scores it")
        out.record(record, metrics if selective else None)
    if selective and out.metrics:
        out.note("tests differ in their assertions: a record is scored only by the metrics in its `only_metrics`")


def _of_rubric(case: Case, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that is judged by the case's own rubrics; its duration is counted once, in the other."""
    name = {"id": f"{record['id']}-rubric"} if record.get("id") else {}
    return {**record, **name, "reference": requirements(case), "duration_s": None}


def _cases(path: Path, out: Imported) -> list[Case]:
    if path.suffix.lower() == ".csv":
        config = Config(Document(path, {}), out)
        return [case for document, test, keys in tests_in(path) for case in config.of_test(document, test, keys)]
    document = sources.document(path)
    value = document.value
    if isinstance(value, list):
        first = value[0] if value and isinstance(value[0], dict) else {}
        is_result = "response" in first or "success" in first
        return _of_results(document, value, (), out) if is_result else Config(document, out).cases()
    if not isinstance(value, dict):
        raise document.problem(f"expected a configuration or results of promptfoo, got {kind(value)}")
    if "results" in value:
        inner = value["results"]
        if isinstance(inner, dict):
            return _of_results(document, inner.get("results"), ("results", "results"), out)
        return _of_results(document, inner, ("results",), out)
    if not {"tests", "prompts", "scenarios"} & set(value):
        raise document.problem("expected tests and prompts (a configuration), or results (of promptfoo eval -o)")
    return Config(document, out).cases()


def _of_results(document: Document, results: Any, keys: Keys, out: Imported) -> list[Case]:
    config = Config(Document(document.path, {}), out)
    cases = []
    failed = empty = 0
    for index, result in enumerate(document.objects(results, *keys)):
        test = table(result.get("testCase"))
        given = result.get("vars", test.get("vars"))
        if not isinstance(given, dict):
            raise document.problem(f"expected an object, got {kind(given)}", *keys, index, "vars")
        record = _answer(result)
        if "response" not in record:
            failed += bool(result.get("error"))
            empty += not result.get("error")
        prompt = result.get("prompt")
        raw = prompt.get("raw") if isinstance(prompt, dict) else prompt
        cases.append(
            Case(
                vars={key: value for key, value in given.items() if key != "_conversation"},
                asserts=config.asserts(document, test.get("assert"), (*keys, index, "testCase", "assert")),
                record=record,
                tags=tags_of(test) | _outcome(result),
                prompt=raw if isinstance(raw, str) else "",
            )
        )
    for number, rest in ((failed, "no output, only an error"), (empty, "no output")):
        if number:
            out.note(f"{number:,} {'result has' if number == 1 else 'results have'} {rest}")
    return cases


def _answer(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return response, model and duration of a result."""
    response = result.get("response")
    output = response.get("output") if isinstance(response, dict) else response
    record: dict[str, Any] = {}
    if output not in (None, ""):
        record["response"] = as_text(output)
    if model := _label(result.get("provider")):
        record["model"] = model
    taken = result.get("latencyMs")
    if isinstance(taken, (int, float)) and not isinstance(taken, bool) and taken >= 0:
        record["duration_s"] = taken / 1000.0
    return record


def _outcome(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the prompt's name and promptfoo's own verdict as tags."""
    given: dict[str, Any] = {"prompt": _label(result.get("prompt"))}
    given |= {f"promptfoo.{name}": result.get(name) for name in ("success", "score")}
    return {name: as_text(value) for name, value in given.items() if value not in (None, "")}


def _label(value: Any) -> str:
    found = (value.get("label") or value.get("id")) if isinstance(value, dict) else value
    return found[:LONGEST_TAG] if isinstance(found, str) else ""


def _messages(prompt: str) -> Any:
    """Return the messages of a prompt that is JSON, else the text."""
    try:
        return json.loads(prompt) if prompt.lstrip().startswith("[") else prompt
    except (ValueError, RecursionError):
        return prompt

"""promptfoo: configurations (YAML or JSON, with the files they name) and results (`promptfoo eval -o`).

Format: https://www.promptfoo.dev/docs/configuration/reference/
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gaugeway import data_files
from monitors.offline.data_errors import DataError
from monitors.offline.imports import promptfoo_assertions, sources
from monitors.offline.imports.fields import Fields, asked, templates
from monitors.offline.imports.promptfoo_assertions import RUBRIC, Case, render, requirements
from monitors.offline.imports.result import Imported, as_text
from monitors.offline.imports.sources import MAX_ROWS, Document, check_rows, kind


def load(path: Path, mapped: Mapping[str, str]) -> Imported:
    """Import a configuration, a file of tests, or the results of a run. Raises DataError."""
    out = Imported()
    if not (cases := _cases(path, out)) and not out.unmapped:
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
            out.record(record, [name for name in metrics if name != RUBRIC], case.place)
            out.record(_of_rubric(case, record), [RUBRIC], case.place)
            out.note("a test with a reference and a rubric of its own is two records")
            continue
        if case.rubrics:
            record["reference"] = requirements(case)
        if selective and not metrics:
            out.note("a record has no assertion that is imported: no metric scores it")
        out.record(record, metrics if selective else None, case.place)
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
    if isinstance(value := document.value, list):
        first = value[0] if value and isinstance(value[0], dict) else {}
        is_result = "response" in first or "success" in first
        return _of_results(document, value, (), out) if is_result else Config(document, out).cases()
    if not isinstance(value, dict):
        raise document.problem(f"expected a configuration or results of promptfoo, got {kind(value)}")
    if "results" in value:
        if isinstance(inner := value["results"], dict):
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
        given = document.object(result.get("vars", test.get("vars")), *keys, index, "vars")
        if "response" not in (record := _answer(result)):
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
                place=document.where(*keys, index),
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


def _filled(prompt: str, values: Mapping[str, Any]) -> str:
    """Return the prompt of a test, "" if a variable in it has no value, or a filter: this text was never sent."""
    known = {name: value for name, value in values.items() if value is not None}
    return "" if templates(render(prompt, dict.fromkeys(known, ""))) else render(prompt, known)


def _label(value: Any) -> str:
    found = (value.get("label") or value.get("id")) if isinstance(value, dict) else value
    return found[:LONGEST_TAG] if isinstance(found, str) else ""


def _messages(prompt: str) -> Any:
    """Return the messages of a prompt that is JSON, else the text."""
    try:
        return json.loads(prompt) if prompt.lstrip().startswith("[") else prompt
    except (ValueError, RecursionError):
        return prompt


LONGEST_TAG = 200
_FILE = "file://"
_TEST_FILES = (".yaml", ".yml", ".json", ".jsonl", ".csv")
_PLAIN_FILES = (".txt", ".md")
_TEXT_FILES = (*_PLAIN_FILES, ".yaml", ".yml", ".json")
_ELSEWHERE = "does not exist or is outside the configuration's folder"
_CODE = re.compile(r"\A(?:python|exec|ruby|golang):|\.(?:py|rb|go|sh|[cm]?[jt]sx?)(?::\w+)?\Z")
_EXPECTED = re.compile(r"(?s)((?:not-)?[a-z][a-z-]*)(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?")
_SHORT = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
_KNOWN = re.compile(
    r"(not-)?(i?contains(-any|-all)?|equals|starts-with|regex|(is|contains)-(json|html|sql|xml)|is-refusal|similar|"
    r"llm-rubric|grade|g-eval|factuality|model-graded-closedqa|javascript|fn|eval|python|ruby|webhook|levenshtein|"
    r"rouge-n|bleu|gleu|meteor|latency|cost|answer-relevance|context-(faithfulness|relevance|recall)|classifier|"
    r"moderation|perplexity(-score)?)"
)
_NOT_USED: dict[str, str] = data_files.table("monitors.offline", "promptfoo.toml")["not_used"]
Keys = tuple[str | int, ...]


class Config:
    """A configuration, or a file of tests alone."""

    def __init__(self, document: Document, out: Imported) -> None:
        self._document = document
        self._out = out
        self._raw = table(document.value)
        default = self._raw.get("defaultTest") or {}
        if isinstance(default, str):
            default = self._parsed(document.path, default, "defaultTest")
        self._default = document.object(default, "defaultTest")
        self._templates = table(self._raw.get("assertionTemplates"))

    def cases(self) -> list[Case]:
        """Return the cases of all tests. Raises DataError."""
        for name, why in _NOT_USED.items():
            if found := self._raw.get(name):
                self._out.miss(name, why, len(found) if isinstance(found, list) else 1)
        prompts = self._prompts()
        cases: list[Case] = []
        for document, test, keys in self._tests():
            cases += self.of_test(document, test, keys)
            check_rows(self._document.path, len(cases))
        for case in cases:
            case.prompt = _filled(prompts[0], case.vars) if len(prompts) == 1 else ""
        return cases

    def of_test(self, document: Document, test: Mapping[str, Any], keys: Keys) -> list[Case]:
        """Return the cases of a test: one per combination of the values of its lists, as promptfoo runs them."""
        options = {**table(self._default.get("options")), **table(test.get("options"))}
        own, shared = (self._vars(document, source, keys) for source in (test, self._default))
        given = {str(key): self._from_file(document.path, value) for key, value in {**shared, **own}.items()}
        asserts = self.asserts(document, test.get("assert"), (*keys, "assert"))
        if not options.get("disableDefaultAsserts"):
            asserts = self.asserts(self._document, self._default.get("assert"), ("defaultTest", "assert")) + asserts
        self._say_unused(test, options, asserts)
        lists = {key: values for key, values in given.items() if isinstance(values, list) and values}
        if options.get("disableVarExpansion"):
            lists = {}
        total = 1
        for some in lists.values():
            total *= len(some)
            if total > MAX_ROWS:
                raise document.problem(f"its lists have more than {MAX_ROWS:,} combinations", *keys, "vars")
        tags = {**tags_of(self._default), **tags_of(test)}
        place = document.where(*keys)
        return [
            Case(vars={**given, **dict(zip(lists, chosen, strict=True))}, asserts=asserts, tags=dict(tags), place=place)
            for chosen in itertools.product(*lists.values())
        ]

    def asserts(self, document: Document, asserts: Any, keys: Keys) -> list[dict[str, Any]]:
        """Return the assertions of a list, with templates filled in. Raises DataError."""
        found = []
        for index, given in enumerate(document.objects([] if asserts is None else asserts, *keys)):
            name = str(given.get("$ref", "")).removeprefix("#/assertionTemplates/")
            template = self._templates[name] if isinstance(self._templates.get(name), dict) else given
            if not isinstance(template.get("type"), str):
                raise document.problem(f"expected a text, got {kind(template.get('type'))}", *keys, index, "type")
            found.append(template)
        return found

    def _vars(self, document: Document, test: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
        given = test.get("vars") or {}
        if isinstance(given, str):
            given = self._parsed(document.path, given, "vars") or {}
        return document.object(given, *keys, "vars")

    def _tests(self) -> Iterator[tuple[Document, dict[str, Any], Keys]]:
        """Yield the tests, and those in the files that are named, with where they are."""
        document = self._document
        if isinstance(document.value, list):
            for index, test in enumerate(document.objects(document.value)):
                yield document, test, (index,)
            return
        tests = self._raw.get("tests")
        listed = tests if isinstance(tests, list) else [] if tests is None else [tests]
        for index, test in enumerate(listed):
            keys: Keys = ("tests", index) if isinstance(tests, list) else ("tests",)
            if isinstance(test, dict) and "path" in test and "vars" not in test:
                self._out.miss(f"tests of {test['path']}", "is code, and no code is run")
            elif isinstance(test, dict):
                yield document, test, keys
            elif isinstance(test, str):
                for path in self._named(document.path, test, _TEST_FILES, "tests"):
                    yield from tests_in(path)
            else:
                raise document.problem(f"expected a test or the name of a file, got {kind(test)}", *keys)

    def _say_unused(self, test: Mapping[str, Any], options: Mapping[str, Any], asserts: list[dict[str, Any]]) -> None:
        for name in ("threshold", "assertScoringFunction"):
            if test.get(name, self._default.get(name)) is not None:
                self._out.miss(f"{name} of a test", "metrics are not combined")
        for name in ("transform", "transformVars", "postprocess"):
            if options.get(name):
                self._out.miss(f"options.{name}", "is code")
        if any(assertion.get("weight", 1) != 1 for assertion in asserts):
            self._out.note("weights of assertions are not used: metrics are not combined")

    def _prompts(self) -> list[str]:
        prompts = self._raw.get("prompts")
        texts = []
        for prompt in prompts if isinstance(prompts, list) else [prompts]:
            text = prompt.get("raw", prompt.get("id")) if isinstance(prompt, dict) else prompt
            if isinstance(text, str) and text.startswith(_FILE):
                texts += [sources.text(path) for path in self._named(self._document.path, text, _TEXT_FILES, "prompts")]
            elif isinstance(text, str):
                texts.append(text)
        return texts

    def _from_file(self, base: Path, value: Any) -> Any:
        """Return the content of the file that a variable names; None if it is of another kind."""
        named = isinstance(value, str) and value.startswith(_FILE)
        return self._parsed(base, value, "a variable") if named else value

    def _parsed(self, base: Path, name: str, what: str) -> Any:
        for path in self._named(base, name, _TEXT_FILES, what):
            return sources.text(path) if path.suffix.lower() in _PLAIN_FILES else sources.document(path).value
        return None

    def _named(self, base: Path, name: str, suffixes: tuple[str, ...], what: str) -> list[Path]:
        """Return the files that a configuration names, in its folder; anything else is counted as not imported."""
        pattern = name.removeprefix(_FILE)
        folder = base.parent.resolve()
        if _CODE.search(pattern):
            self._out.miss(f"{what} in {name}", "is code, and no code is run")
            return []
        if "://" in pattern:
            self._out.miss(f"{what} in {name}", "is not a local file, and nothing is downloaded")
            return []
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            self._out.miss(f"{what} in {name}", _ELSEWHERE)
            return []
        found = sorted(folder.glob(pattern)) if any(sign in pattern for sign in "*?[") else [folder / pattern]
        inside = [path for path in found if path.resolve().is_relative_to(folder) and path.is_file()]
        usable = [path for path in inside if path.suffix.lower() in suffixes]
        if not usable:
            kinds = f"is in a file of another kind than {', '.join(suffixes)}"
            self._out.miss(f"{what} in {name}", kinds if inside else _ELSEWHERE)
        self._out.read.update(usable)
        return usable


def tests_in(path: Path) -> Iterator[tuple[Document, dict[str, Any], Keys]]:
    """Yield the tests of a file: CSV with a column per variable, else a list. Raises DataError."""
    if path.suffix.lower() == ".csv":
        for line, row in sources.rows(path):
            yield Document(path, row, line=line), _csv_test(row), ()
        return
    found = sources.document(path)
    for index, row in enumerate(found.objects(found.value)):
        yield found, row, (index,)


def tags_of(test: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata and the description of a test."""
    return {
        str(key): as_text(value)[:LONGEST_TAG]
        for key, value in {**table(test.get("metadata")), "description": test.get("description")}.items()
        if value not in (None, "") and not isinstance(value, (dict, list))
    }


def table(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _csv_test(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the test of a CSV row: special columns begin with two underscores."""
    more = {"metric": row["__metric"]} if row.get("__metric") else {}
    cells = [cell for name, cell in row.items() if re.fullmatch(r"__expected\d*", name) and cell.strip()]
    return {
        "vars": {name: cell for name, cell in row.items() if not name.startswith("__")},
        "assert": [_expected(cell.strip()) | more for cell in cells],
        "metadata": {name[len("__metadata:") :]: cell for name, cell in row.items() if name.startswith("__metadata:")},
        "description": row.get("__description"),
    }


def _expected(cell: str) -> dict[str, Any]:
    """Return the assertion of an `__expected` cell: `type(threshold):value`, or a text to equal."""
    if (match := _EXPECTED.fullmatch(cell)) is None or not _KNOWN.fullmatch(match[1]):
        return {"type": "equals", "value": cell}
    made: dict[str, Any] = {"type": _SHORT.get(match[1], match[1])}
    if match[2] is not None:
        made["threshold"] = float(match[2])
    return made | ({"value": match[3].strip()} if match[3] is not None else {})

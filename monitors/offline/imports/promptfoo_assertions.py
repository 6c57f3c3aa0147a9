"""Assertions of promptfoo as metrics, and the references that they hold.

Types: https://www.promptfoo.dev/docs/configuration/expected-outputs/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gaugeway.data_files import table
from monitors.metrics.judged.prompts import Part
from monitors.offline.imports.fields import Fields, criterion, factuality, templates
from monitors.offline.imports.result import Imported, NotMappedError, any_of, as_text

_CUSTOM = "write it as a custom metric"
_RUBRICS = ("llm-rubric", "g-eval", "model-graded-closedqa")
_WORDS = table("monitors.offline", "promptfoo.toml")
_METRICS: dict[str, str] = _WORDS["metrics"]
_FACTS = frozenset({"factuality", "context-recall"})
_WITH_REFERENCE = frozenset({"similar", "similar:cosine"})
_REFERENCES = frozenset(_WORDS["references"])
_TEXTS = _REFERENCES.union(_WORDS["texts"])
_CODE = frozenset({"javascript", "python", "ruby", "webhook"})
_OWN_MODELS = frozenset({"classifier", "moderation", "pi", "search-rubric", "agent-rubric", "research-rubric"})
_OF_CALLS: dict[str, str] = _WORDS["of_calls"]
_REQUIREMENTS = "rubric"
RUBRIC = f"geval:{_REQUIREMENTS}"
"""The metric of rubrics that differ between tests."""
_MEETS_REQUIREMENTS = {
    "criteria": "<response> meets every requirement in <reference>.",
    "params": ["question", "reference", "response"],
}
_TEMPLATE = re.compile(r"\{\{-?\s*([\w.]+)\s*-?\}\}")


class Case(Struct):
    """One test with its variables and assertions, and the answer if the file has results.

    `facts` says that the reference is made of facts, each from an assertion, which more can be added to. `rubrics` are
    those that other tests do not have, `metrics` the names of the metrics that the assertions became; `place` is where
    the test is.
    """

    vars: dict[str, Any]
    asserts: list[dict[str, Any]]
    record: dict[str, Any] = {}
    tags: dict[str, str] = {}
    prompt: str = ""
    facts: bool = False
    rubrics: list[str] = []
    metrics: list[str] = []
    place: str = ""


def add(cases: Sequence[Case], fields: Fields, out: Imported) -> None:
    """Add the metrics that the assertions of all cases map to, and put references and rubrics into the cases.

    Afterwards `metrics` of a case names those of its own assertions.
    """
    flat = [[assertion for given in case.asserts for assertion in _flattened(given, out)] for case in cases]
    counts: dict[str, int] = {}
    for case, some in zip(cases, flat, strict=True):
        for key in {_shared_key(assertion, case, fields) for assertion in some}:
            counts[key] = counts.get(key, 0) + 1
    for case, some in zip(cases, flat, strict=True):
        for assertion in some:
            everywhere = counts[_shared_key(assertion, case, fields)] == len(cases)
            try:
                _add(assertion, case, fields, out, everywhere=everywhere)
            except NotMappedError as reason:
                out.miss(f"assertion {assertion.get('type')}", str(reason))
        if case.rubrics:
            case.metrics.append(out.criterion(_REQUIREMENTS, dict(_MEETS_REQUIREMENTS)))
            out.note(
                "a rubric that is not the same in every test is the record's reference, and geval:rubric judges by it"
            )


def requirements(case: Case) -> str:
    """Return the case's own rubrics as one text."""
    return "\n".join(f"- {rubric}" for rubric in case.rubrics) if len(case.rubrics) > 1 else "".join(case.rubrics)


def render(text: str, values: Mapping[str, Any]) -> str:
    """Fill variables into a template, as far as they are known."""
    return _TEMPLATE.sub(lambda match: as_text(values[match[1]]) if match[1] in values else match[0], text)


def _flattened(assertion: dict[str, Any], out: Imported) -> list[dict[str, Any]]:
    if assertion.get("type") != "assert-set":
        return [assertion]
    if assertion.get("threshold") is not None:
        out.miss("threshold of an assert-set", "metrics are not combined; its assertions are separate")
    inside = assertion.get("assert")
    return [item for item in inside if isinstance(item, dict)] if isinstance(inside, list) else []


def _add(assertion: Mapping[str, Any], case: Case, fields: Fields, out: Imported, *, everywhere: bool) -> None:
    """Map one assertion of one case. Raises NotMappedError."""
    type_ = _kind(assertion)
    if (base := type_.removeprefix("not-")) in _REFERENCES and base == type_:
        _reference(case, assertion.get("value"), required=False)
    if (why := _unmapped(base)) is not None:
        raise NotMappedError(why)
    if assertion.get("transform") or assertion.get("contextTransform"):
        raise NotMappedError("transforms the output or the context with code")
    if str(assertion.get("value")).startswith("file://"):
        raise NotMappedError("its value is in a file")
    if assertion.get("rubricPrompt"):
        out.note("rubricPrompt: G-Eval has its own prompt; only the criterion is imported")
    if base in _RUBRICS:
        name = _rubric(assertion, case, fields, out, everywhere=everywhere)
    elif base != type_:
        raise NotMappedError("is negated")
    else:
        name = _metric(base, assertion, case, out)
    if name is not None:
        case.metrics.append(name)


def _metric(base: str, assertion: Mapping[str, Any], case: Case, out: Imported) -> str:
    """Add the metric that a type stands for, and its value to the reference. Raises NotMappedError."""
    if base in _FACTS:
        _fact(case, assertion.get("value"), out)
    if base in _WITH_REFERENCE:
        _reference(case, assertion.get("value"), required=True)
    if base == "factuality":
        return out.criterion("factuality", factuality())
    threshold = assertion.get("threshold")
    out.built_in(_METRICS[base], None if threshold is None else _share(threshold))
    return _METRICS[base]


def _unmapped(base: str) -> str | None:
    """Return why a type has no counterpart; None if it has one."""
    if base in _RUBRICS or base in _METRICS or base == "factuality":
        return None
    if base in _TEXTS:
        return f"compares or parses text; no built-in metric does this: {_CUSTOM}"
    if base in _CODE:
        return f"is code: {_CUSTOM}"
    if base in _OWN_MODELS:
        return f"needs a model or a service of its own: {_CUSTOM}"
    return _OF_CALLS.get(base, f"has no counterpart: {_CUSTOM}")


def _rubric(assertion: Mapping[str, Any], case: Case, fields: Fields, out: Imported, *, everywhere: bool) -> str | None:
    """Add the metric of a rubric that is the same in every case and return its name; else keep it in the case."""
    type_ = _kind(assertion)
    part = _part_of(fields)
    text = _shared_text(_text_of(assertion.get("value")), case, part)
    negated = type_.startswith("not-")
    if not everywhere or any(part(name) is None for name in templates(text)):
        if negated:
            raise NotMappedError("is negated, and not the same in every test")
        case.rubrics.append(_filled(_text_of(assertion.get("value")), case))
        return None
    made, params = criterion(text, part)
    if not templates(text):
        params = ["question", "response"]
    elif "response" not in params:
        params.append("response")
    table: dict[str, Any] = {"criteria": made, "params": params}
    if type_.endswith("closedqa"):
        table["scale"] = [0, 1]
    if negated:
        table["lower_is_better"] = True
    if assertion.get("threshold") is not None:
        table["threshold"] = _share(assertion["threshold"])
    return out.criterion(str(assertion.get("metric") or type_), table)


def _part_of(fields: Fields) -> Callable[[str], Part | None]:
    """Return a function that says what a judge is shown for a variable of a rubric."""
    return lambda name: "response" if name == "output" else fields.part(name)


def _shared_text(text: str, case: Case, part: Callable[[str], Part | None]) -> str:
    """Fill in the variables that a judge is not shown, so that rubrics which then are alike are one criterion."""
    return render(text, {key: value for key, value in case.vars.items() if part(key) is None})


def _shared_key(assertion: Mapping[str, Any], case: Case, fields: Fields) -> str:
    """Return what is the same for assertions that judge alike in different tests."""
    if _kind(assertion).removeprefix("not-") not in _RUBRICS or assertion.get("value") in (None, ""):
        return repr(assertion)
    return repr({**assertion, "value": _shared_text(_text_of(assertion["value"]), case, _part_of(fields))})


def _reference(case: Case, value: Any, *, required: bool) -> None:
    """Put the value of an assertion into the record. Raises NotMappedError if it needs one and there is another."""
    try:
        filled = _reference_text(value, case)
    except NotMappedError:
        if required:
            raise
        return
    if case.record.setdefault("reference", filled) != filled and required:
        raise NotMappedError("its test has another reference already")


def _fact(case: Case, value: Any, out: Imported) -> None:
    """Add a fact to the reference: each is true, so that several are one reference. Raises NotMappedError."""
    fact = _reference_text(value, case)
    if (known := case.record.get("reference")) in (None, ""):
        case.record["reference"], case.facts = fact, True
    elif case.facts and fact not in str(known).splitlines():
        case.record["reference"] = f"{known}\n{fact}"
        out.note("the values of factuality and context-recall in one test are one reference")
    elif not case.facts and known != fact:
        raise NotMappedError("its test has another reference already")


def _reference_text(value: Any, case: Case) -> str:
    if value is None or (isinstance(value, str) and value.startswith("file://")):
        raise NotMappedError("its value is missing, or in a file")
    return any_of([_filled(as_text(item), case) for item in (value if isinstance(value, list) else [value])])


def _filled(text: str, case: Case) -> str:
    """Fill the case's variables into a text. Raises NotMappedError if there are others, or filters."""
    known = _TEMPLATE.sub(lambda match: "" if match[1] in case.vars else match[0], text)
    if left := templates(known):
        raise NotMappedError(f"its value uses {{{{{left[0]}}}}}, which is no variable, or has a filter")
    return render(text, case.vars)


def _text_of(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(f"- {as_text(item)}" for item in value)
    if value in (None, ""):
        raise NotMappedError("has no value")
    return as_text(value)


def _share(threshold: Any) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0.0 <= threshold <= 1.0:
        raise NotMappedError(f"its threshold {threshold!r} is not a number from 0 to 1")
    return float(threshold)


def _kind(assertion: Mapping[str, Any]) -> str:
    return str(assertion.get("type", ""))

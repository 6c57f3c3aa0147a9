"""The registry of the open-source `openai/evals`: YAML with eval classes, JSONL samples, model-graded specs.

Format: https://github.com/openai/evals/blob/main/docs/eval-templates.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monitors.metrics.judged.prompts import Part
from monitors.offline.data_errors import DataError
from monitors.offline.imports.fields import chosen, content_text, criterion, factuality
from monitors.offline.imports.result import Imported, NotMappedError, as_text
from monitors.offline.imports.sources import Document, documents

_PARTS: dict[str, Part] = {"input": "question", "ideal": "reference", "completion": "response"}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_ARGS = "an eval that uses the spec gives it in modelgraded_spec_args"
_CLASSIFY, _FACT = "ModelBasedClassify", "fact"
Items = list[tuple[Mapping[str, Any], dict[str, Any]]]


def load(document: Document, out: Imported) -> Items:
    """Return the samples that a registry file names; add its graders and its model-graded specs."""
    value = document.object(document.value)
    specs = _specs(document)
    for name, spec in specs.items():
        _spec(name, spec, out)
    if _is_spec(value):
        return []
    evals = {str(name): spec for name, spec in value.items() if isinstance(spec, Mapping) and "class" in spec}
    if not evals and not specs:
        raise document.problem("expected evals with a class and args, or specs with prompt and choice_strings")
    for name, spec in value.items():
        if not (str(name) in evals or str(name) in specs or (isinstance(spec, Mapping) and "id" in spec)):
            out.miss(f"entry {name}", "has neither a class and args nor prompt and choice_strings")
    return _evals(document, evals, out)


def _evals(document: Document, evals: Mapping[str, Mapping[str, Any]], out: Imported) -> Items:
    """Add the graders of evals; return their samples."""
    files: dict[Path, None] = {}
    for name, spec in evals.items():
        args = document.object(spec.get("args"), name, "args")
        _grader(document, name, spec, args, out)
        if not isinstance(samples := args.get("samples_jsonl"), str):
            out.miss(f"samples of {name}", "args has no samples_jsonl")
        elif (path := _inside(document.path, samples, "data")) is None:
            why = f"{samples} is not beside the file or in the registry's data; import it alone"
            out.miss(f"samples of {name}", why)
        else:
            files[path] = None
    out.read.update(files)
    return [(line.value, {"place": line.where()}) for path in files for line in documents(path)]


def _grader(document: Document, name: str, settings: Mapping[str, Any], args: Mapping[str, Any], out: Imported) -> None:
    if (class_ := str(settings["class"]).rpartition(":")[2]) != _CLASSIFY:
        out.miss(f"{class_} of {name}", "compares texts, or is code; no metric does: write it as a custom metric")
        return
    if (name_of_spec := args.get("modelgraded_spec")) == _FACT:
        _factuality(out)
        return
    spec = _named(document, name_of_spec, out) if isinstance(name_of_spec, str) else None
    if spec is None:
        why = f"its spec {name_of_spec!r} is not in the registry's modelgraded; import that file too"
        out.miss(f"{class_} of {name}", why)
        return
    given = args.get("modelgraded_spec_args")
    _spec(name if given else str(name_of_spec), spec, out, given)


def _is_spec(value: Any) -> bool:
    return isinstance(value, Mapping) and {"prompt", "choice_strings"} <= set(value)


def _specs(document: Document) -> dict[str, Any]:
    """Return the specs of a file by name: it holds them by name or, in older registries, is one, named as the file."""
    if _is_spec(value := document.value):
        return {document.path.stem: value}
    return {str(name): spec for name, spec in value.items() if _is_spec(spec)} if isinstance(value, Mapping) else {}


def _named(document: Document, name: str, out: Imported) -> Any:
    """Return the spec of this name: of the file itself, of the file of its name, or of any other in the registry."""
    if (found := _specs(document).get(name)) is not None:
        return found
    for path in _spec_files(document.path, name):
        try:
            (other,) = documents(path)
        except DataError:
            if path.stem == name:
                raise
            continue  # a broken file that nothing asked for
        if (found := _specs(other).get(name)) is not None:
            out.read.add(path)
            return found
    return None


def _spec_files(yaml: Path, name: str) -> Iterator[Path]:
    if (path := _inside(yaml, f"{name}.yaml", "modelgraded")) is not None:
        yield path
    folder = (yaml.parent.parent / "modelgraded").resolve()
    yield from (file for file in sorted(folder.glob("*.y*ml")) if file.is_file() and file.resolve().parent == folder)


def _factuality(out: Imported) -> None:
    out.criterion("factuality", factuality())
    out.note("the spec fact has no scores: geval:factuality gives 0 to a response that disagrees with the reference")


def _spec(name: str, spec: Mapping[str, Any], out: Imported, given: Any = None) -> None:
    """Add a metric for a model-graded spec; one per criterion where its `args` give several."""
    if name == _FACT and not spec.get("choice_scores"):
        _factuality(out)
        return
    try:
        scores = _scores(spec)
        prompt = spec["prompt"]
        parts = (
            [content_text(message.get("content")) for message in prompt] if isinstance(prompt, list) else [str(prompt)]
        )
        text = "\n\n".join(parts)
        for key, value in given.items() if isinstance(given, Mapping) else ():
            text = text.replace(f"{{{key}}}", as_text(value))
        args = spec.get("args") or {}
        open_ = (
            {key: values for key, values in args.items() if f"{{{key}}}" in text} if isinstance(args, Mapping) else args
        )
        for suffix, filled in _filled(text, open_):
            made, params = criterion(filled, _PARTS.get, _PLACEHOLDER, _ARGS)
            out.criterion(f"{name}{suffix}", chosen(made, params, scores))
    except NotMappedError as reason:
        out.miss(f"model-graded spec {name}", str(reason))


def _scores(spec: Mapping[str, Any]) -> dict[str, float]:
    choices = [str(string) for string in spec["choice_strings"]]
    scores = spec.get("choice_scores")
    try:
        if scores == "from_strings":
            return {choice: float(choice) for choice in choices}
        if isinstance(scores, Mapping) and scores:
            given = {str(key): float(value) for key, value in scores.items()}
            return {choice: given[choice] for choice in choices if choice in given}
    except ValueError:
        pass
    raise NotMappedError("its choices have no scores (choice_scores), so none is known to be good")


def _filled(text: str, args: Any) -> list[tuple[str, str]]:
    """Return the prompt with each value of the one argument it has, and a suffix for the name."""
    if not args:
        return [("", text)]
    if not isinstance(args, Mapping) or len(args) != 1:
        raise NotMappedError("it has several args")
    ((name, values),) = args.items()
    if not isinstance(values, Mapping):
        raise NotMappedError(f"args.{name} is no object")
    return [(f"-{key}", text.replace(f"{{{name}}}", as_text(value))) for key, value in values.items()]


def _inside(yaml: Path, name: str, folder: str) -> Path | None:
    """Return a file beside the YAML file, or in a folder of its registry; None if it is elsewhere or missing."""
    for root in (yaml.parent, yaml.parent.parent / folder):
        path = (root / name).resolve()
        if path.is_relative_to(root.resolve()) and path.is_file():
            return path
    return None

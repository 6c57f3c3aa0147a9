"""Writes an import: the data set as JSONL, the metrics as a `gaugeway.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from monitors.metrics.registry import models_of
from monitors.offline import dataset
from monitors.offline.dataset_fields import DataError
from monitors.offline.imports.result import Imported

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNESCAPED = re.compile("[\x7f]")


def check(imported: Imported) -> None:
    """Raise DataError for a record that `gaugeway evaluate` would not read, or if there is nothing to write.

    Its problems end with what was not imported and why.
    """
    if not imported.records and not imported.metrics:
        nothing = "there is nothing to import: no record and no grader that maps"
        raise DataError([nothing, *imported.unmapped_lines()])
    if not imported.records:
        return
    try:
        dataset.collect(enumerate(imported.records, 1), where="imported record ")
    except DataError as error:
        raise DataError([*error.problems, *imported.unmapped_lines()]) from error


def data_set(imported: Imported) -> str:
    """Return one JSON object per record."""
    return "".join(msgspec.json.encode(record).decode() + "\n" for record in imported.records)


def config(imported: Imported, source: str) -> str:
    """Return a configuration with the metrics; the judge and embeddings that they need are comments, without keys."""
    model = imported.models[0] if imported.models else "NAME"
    used = {need for name in imported.metrics for need in models_of(name)}
    needed = {"judge": model} if "judge" in used else {}
    if "embeddings" in used:
        needed["embeddings"] = "text-embedding-3-small"
    names = " and ".join({"judge": "a judge", "embeddings": "embeddings"}[need] for need in needed)
    lines = [f"# Metrics imported from {_one_line(source)}. They need {names}:"]
    for name, of in needed.items():
        lines += [
            "#",
            f"# [{name}]",
            '# base_url = "https://api.openai.com/v1"',
            '# api_key = "${OPENAI_API_KEY}"',
            f"# model = {_value(_one_line(of))}",
        ]
    for name, table in imported.metrics.items():
        lines += ["", f"[metrics.{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file, with its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """Return a TOML value. A JSON string is a basic string of TOML, but for DEL."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        # "${NAME}" and "${file:PATH}" stand for secrets in a configuration, and an import must not read any.
        encodable = value.encode("utf-8", "replace").decode().replace("${", "$ {")
        return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(encodable, ensure_ascii=False))
    return json.dumps(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())

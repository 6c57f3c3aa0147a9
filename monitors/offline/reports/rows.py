"""One line per sample: CSV for spreadsheets, JSONL in the format of `gaugeway evaluate`, columns for pandas."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from gaugeway.records import Evaluation, Failed, Score
from monitors.analysis.captured import as_record
from monitors.offline import results_codec as codec
from monitors.offline.results import Row, Run

_FORMULA = re.compile(r"[\s\x00-\x1f\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]*[=+\-@|%]")
"""A cell that begins so is a formula to a spreadsheet (OWASP: CSV injection), which may skip what is not visible."""
_LOOKED_AT = 200
_SAMPLE = (
    *("id", "app", "model", "session", "conversation_id", "user_input", "response"),
    *("retrieved_contexts", "reference", "tags", "duration_s", "retrieval_s", "started_at", "turn", "hop"),
    *("history", "tool_calls", "retrieved_context_ids", "reference_contexts", "reference_context_ids", "cluster"),
    "only_metrics",
)


def jsonl(run: Run) -> str:
    """Return one JSON object per sample, with its `scores` by metric, as `gaugeway export` writes them."""
    lines = (codec.encode(as_record(row.sample, row.evaluations)).decode() for row in run.rows)
    return "".join(line + "\n" for line in lines)


def as_csv(run: Run) -> str:
    """Return a table with a header; lists and objects are JSON, a text that looks like a formula begins with `'`."""
    out = io.StringIO()
    writer = csv.writer(out)  # RFC 4180: lines end in \r\n, so that a lone \r in a cell is quoted too
    writer.writerow([_cell(name) for name in columns(run)])
    for record in records(run):
        writer.writerow([_cell(value) for value in record.values()])
    return out.getvalue()


def columns(run: Run) -> list[str]:
    """Return the names of the columns: fields of the sample, then three per metric."""
    return [*_SAMPLE, *(name for measure in run.measures for name in _names(measure.name))]


def records(run: Run) -> list[dict[str, Any]]:
    """Return a record per sample, with a value or None in every column.

    A metric has its score in the column of its name, and beside it the `outcome` ("scored", "skipped" or "failed";
    None if it was not computed) and the `reason`.
    """
    return [_record(row, run) for row in run.rows]


def _record(row: Row, run: Run) -> dict[str, Any]:
    known: Mapping[str, Any] = as_record(row.sample, {})
    record = {name: known.get(name) for name in _SAMPLE}
    for measure in run.measures:
        record |= dict(zip(_names(measure.name), _outcome(row.evaluations.get(measure.name)), strict=True))
    return record


def _names(metric: str) -> tuple[str, str, str]:
    return metric, f"{metric}.outcome", f"{metric}.reason"


def _outcome(evaluation: Evaluation | None) -> tuple[float | None, str | None, str | None]:
    if evaluation is None:
        return None, None, None
    if isinstance(outcome := evaluation.outcome, Score):
        return outcome.value, "scored", outcome.reason
    if isinstance(outcome, Failed):
        return None, "failed", f"{outcome.error}: {outcome.detail}" if outcome.detail else outcome.error
    return None, "skipped", outcome.reason


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return str(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    is_formula = (
        text[:1] in ("\t", "\r") or _FORMULA.match(unicodedata.normalize("NFKC", text[:_LOOKED_AT])) is not None
    )
    return f"'{text}" if is_formula else text

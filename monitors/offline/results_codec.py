"""Runs and evaluations as plain JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from monitors.records import Evaluation, Failed, Outcome, Score, Skipped

T = TypeVar("T")
KIND, FORMAT = "gaugeway.run", 1


class WrittenRun(msgspec.Struct, kw_only=True):
    """The outer shape of a JSON report."""

    kind: str
    format: int
    source: str
    created_at: float
    measures: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    seconds: float = 0.0
    paid_usd: float = 0.0
    reused: int = 0
    notes: list[str] = []


class _Outcome(msgspec.Struct):
    kind: str
    value: float = 0.0
    reason: str = ""
    evidence: tuple[dict[str, Any], ...] = ()
    error: str = ""
    detail: str = ""


class _Evaluation(msgspec.Struct, kw_only=True):
    metric: str
    version: str
    outcome: _Outcome
    judge: str | None = None
    seconds: float = 0.0
    cost_usd: float = 0.0
    rate: float = 1.0


def plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses as dicts, tuples as lists, all the way down."""
    return decode(encode(value))


def read(value: Any, into: type[T]) -> T:
    """Read plain values strictly. Raises ValueError."""
    return msgspec.convert(value, into)


def encode(value: Any) -> bytes:
    """JSON. Numbers of other libraries inside evidence are written as what they look like."""
    return msgspec.json.encode(value, enc_hook=_unknown)


def decode(text: bytes) -> Any:
    """The values of a JSON text. Raises ValueError."""
    return msgspec.json.decode(text)


def checked(raw: Any) -> WrittenRun:
    """The outer shape of a report. Raises ValueError that says what it is instead."""
    if not isinstance(raw, Mapping) or raw.get("kind") != KIND:
        raise ValueError("is no JSON report of gaugeway evaluate")
    if raw.get("format") != FORMAT:
        raise ValueError(f"is a report of format {raw.get('format')!r}; this release reads {FORMAT}")
    found = msgspec.convert(raw, WrittenRun)
    if any(not {"sample", "evaluations"} <= row.keys() for row in found.rows):
        raise ValueError("holds a row without sample or evaluations")
    return found


def from_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation without its sample's id; the outcome carries its kind, as in the monitors' API."""
    outcome = evaluation.outcome
    kind = "score" if isinstance(outcome, Score) else "skipped" if isinstance(outcome, Skipped) else "failed"
    return {
        "metric": evaluation.metric,
        "version": evaluation.version,
        "judge": evaluation.judge,
        "outcome": {"kind": kind, **plain(outcome)},
        "seconds": evaluation.seconds,
        "cost_usd": evaluation.cost_usd,
        "rate": evaluation.rate,
    }


def to_evaluation(sample_id: str, raw: Any) -> Evaluation:
    """Read what `from_evaluation` wrote. Raises ValueError."""
    found = msgspec.convert(raw, _Evaluation)
    given = found.outcome
    outcome: Outcome
    match given.kind:
        case "score":
            outcome = Score(given.value, given.reason, given.evidence)
        case "skipped":
            outcome = Skipped(given.reason)
        case "failed":
            outcome = Failed(given.error, given.detail)
        case _:
            raise ValueError(f"an outcome is score, skipped or failed, got {given.kind!r}")
    return Evaluation(
        sample_id=sample_id,
        metric=found.metric,
        version=found.version,
        outcome=outcome,
        judge=found.judge,
        seconds=found.seconds,
        cost_usd=found.cost_usd,
        rate=found.rate,
    )


def _unknown(value: Any) -> Any:
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)

"""Conversion of runs and evaluations to JSON and back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gaugeway.records import Evaluation, Failed, Outcome, Score, Skipped
from gaugeway.storage.engines.scripts import migrations
from gaugeway.storage.engines.sqlite.connection import Database, Schema

T = TypeVar("T")
KIND, FORMAT = "gaugeway.run", 1
OF_A_RUN = ("source", "created_at", "seconds", "paid_usd", "reused")
"""Fields of a run that a report holds as they are."""


class WrittenRun(msgspec.Struct, kw_only=True):
    """The top level of a JSON report."""

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
    judge: str | None = None
    outcome: _Outcome
    seconds: float = 0.0
    cost_usd: float = 0.0
    rate: float = 1.0


def plain(value: Any) -> Any:
    """Convert a value to JSON-compatible ones: dataclasses to dicts, tuples to lists, recursively."""
    return decode(encode(value))


def read(value: Any, into: type[T]) -> T:
    """Convert JSON values to `into`, strictly. Raises ValueError."""
    return msgspec.convert(value, into)


def encode(value: Any) -> bytes:
    """Encode as JSON; numpy scalars inside evidence are written as numbers."""
    return msgspec.json.encode(value, enc_hook=_encode_unknown)


def decode(text: bytes) -> Any:
    """Decode JSON. Raises ValueError."""
    return msgspec.json.decode(text)


def checked(raw: Any) -> WrittenRun:
    """Check the top level of a report. Raises ValueError that says what is wrong."""
    if not isinstance(raw, Mapping) or raw.get("kind") != KIND:
        raise ValueError("is not a JSON report of gaugeway evaluate")
    if raw.get("format") != FORMAT:
        raise ValueError(f"is a report of format {raw.get('format')!r}; this release reads {FORMAT}")
    found = msgspec.convert(raw, WrittenRun)
    if any(not {"sample", "evaluations"} <= row.keys() for row in found.rows):
        raise ValueError("contains a row without sample or evaluations")
    return found


def from_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """Convert an evaluation, without the sample id; the outcome has a field `kind`, as in the monitors' API."""
    outcome = evaluation.outcome
    kind = "score" if isinstance(outcome, Score) else "skipped" if isinstance(outcome, Skipped) else "failed"
    own = {name: getattr(evaluation, name) for name in _Evaluation.__struct_fields__}
    return own | {"outcome": {"kind": kind, **plain(outcome)}}


def to_evaluation(sample_id: str, raw: Any) -> Evaluation:
    """Build an evaluation from the result of `from_evaluation`. Raises ValueError."""
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
    return Evaluation(**{**msgspec.structs.asdict(found), "sample_id": sample_id, "outcome": outcome})


def to_evaluations(sample_id: str, rows: Iterable[Any]) -> dict[str, Evaluation]:
    """Build a sample's evaluations by metric. Raises ValueError."""
    return {row["metric"]: to_evaluation(sample_id, row) for row in rows}


def _encode_unknown(value: Any) -> Any:
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


SCHEMA = Schema(kind="run file", application_id=0x67777266, migrations=migrations("sqlite/migrations/runs"))  # "gwrf"
_GET = "SELECT metric, version, judge, payload FROM outcomes WHERE content = ?"
_PUT = """
    INSERT INTO outcomes (content, metric, version, judge, kept_at, payload) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (content, metric, version, judge) DO UPDATE SET kept_at = excluded.kept_at, payload = excluded.payload
"""


class Key(msgspec.Struct, frozen=True):
    """The inputs of an outcome in addition to the sample; `judge` includes the judge's settings and the embeddings."""

    metric: str
    version: str
    judge: str


class ResultsCache:
    """A SQLite file of outcomes. Failures are not stored, so the next run retries. `fresh` ignores stored outcomes."""

    def __init__(self, path: str | Path, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._database = Database(path, schema=SCHEMA, busy_timeout_s=10.0)

    async def get(self, content: str, sample_id: str) -> Mapping[Key, Evaluation]:
        """Return the stored evaluations of a sample with this content."""
        if self._fresh:
            return {}
        return {
            Key(metric, version, judge): to_evaluation(sample_id, decode(payload))
            for metric, version, judge, payload in (await self._database.fetch(_GET, (content,)))
        }

    async def put(self, content: str, evaluations: Iterable[tuple[Key, Evaluation]]) -> None:
        """Store outcomes; a later one replaces an earlier one."""
        rows = [
            (content, key.metric, key.version, key.judge, time.time(), encode(from_evaluation(evaluation)))
            for key, evaluation in evaluations
            if not isinstance(evaluation.outcome, Failed)
        ]
        if rows:
            await self._database.write(lambda connection: connection.executemany(_PUT, rows))

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()

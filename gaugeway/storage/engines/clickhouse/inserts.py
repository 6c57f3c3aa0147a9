"""What a batch of additions makes of what is there: rows to insert, and the answer to each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import Struct

from gaugeway.records import Evaluation, Sample, Skipped
from gaugeway.storage.engines.conditions import day_of
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.joining import completes
from gaugeway.storage.stores import rows

_FIRST = 2**63 - 1

Key = tuple[str, int]


class Wanted(Struct, frozen=True):
    """One call of `add`, checked: everything in it can be inserted."""

    sample: Sample
    evaluations: Sequence[Evaluation]
    payload: str

    @property
    def key(self) -> Key:
        """A sample's identity: its id and day."""
        return self.sample.id, day_of(self.sample.started_at)


@dataclass(slots=True)
class There:
    """A sample that is stored; without `sample` it cannot be read."""

    sample: Sample | None
    started_at: float
    revision: int
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)


class Additions(Struct):
    """Rows of both tables, and for each call the evaluations that were not there."""

    samples: list[tuple[Any, ...]] = []
    evaluations: list[tuple[Any, ...]] = []
    answers: list[Sequence[Evaluation]] = []


def wanted(sample: Sample, evaluations: Sequence[Evaluation]) -> Wanted:
    """Check one call by itself, so that it cannot spoil the batch. Raises RefusedError."""
    if any(evaluation.sample_id != sample.id for evaluation in evaluations):
        raise RefusedError(f"an evaluation belongs to another sample than {sample.id!r}")
    call = Wanted(sample, evaluations, encoded(sample).decode())
    encoded([rows.row(sample, evaluation) for evaluation in evaluations])
    day_of(sample.started_at)
    return call


def additions(calls: Sequence[Wanted], there: Mapping[Key, There], position: int) -> Additions:
    """Take the calls one after the other, as if each had seen what those before it made.

    Evaluations are numbered from `position` on: that is their order, and of equal ones that two processes added at the
    same moment the first stays. `there` holds every stored sample that the calls are about, and is not changed.
    """
    found = Additions()
    known = {key: replace(known_sample, outcomes=dict(known_sample.outcomes)) for key, known_sample in there.items()}
    for call in calls:
        old = known.get(call.key)
        fills = old is not None and old.sample is not None and completes(call.sample, old.sample)
        if old is None:
            old = known[call.key] = There(call.sample, float(call.sample.started_at), _fullness(call.sample))
            found.samples.append(_sample_row(call, old.revision))
        elif fills and old.sample != call.sample:
            old.sample, old.revision = call.sample, max(old.revision + 1, _fullness(call.sample))
            found.samples.append(_sample_row(call, old.revision))
        stored = [(*identity, outcome) for identity, outcome in old.outcomes.items()]
        new = rows.new(call.evaluations, stored, fills=fills)
        for evaluation in new:
            row = _evaluation_row(call, old.started_at, evaluation, position + len(found.evaluations))
            old.outcomes[evaluation.metric, evaluation.version] = row[6]
            found.evaluations.append(row)
        found.answers.append(new)
    return found


def first_wins(position: int) -> int:
    """A revision that is the higher the earlier its row was numbered."""
    return _FIRST - position


def _fullness(sample: Sample) -> int:
    """How many gaps are filled: of two that were added at the same moment the fuller one stays."""
    filled = sample.question, sample.reference, sample.contexts, sample.context_source != "none"
    return sum(map(bool, filled))


def _sample_row(call: Wanted, revision: int) -> tuple[Any, ...]:
    sample, (sample_id, day) = call.sample, call.key
    started_at, keys = float(sample.started_at), (sample.trace_id, sample.context_key)
    place = (sample.conversation, sample.turn, sample.hop)
    return (sample_id, day, started_at, sample.app, sample.model, call.payload, *keys, *place, revision)


def _evaluation_row(call: Wanted, started_at: float, evaluation: Evaluation, position: int) -> tuple[Any, ...]:
    """The flat row with its place; an outcome takes the place of a skip, whenever either came."""
    flat = rows.row(replace(call.sample, started_at=started_at), evaluation)
    outcome = 0 if isinstance(evaluation.outcome, Skipped) else _FIRST + 1
    return (*flat[:-1], call.sample.tags, call.key[1], position, outcome + first_wins(position))

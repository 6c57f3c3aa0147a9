"""What an evaluation of a data set gives: a run, its rows, and its summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from monitors.metrics.latency import Latency, Timing, summary
from monitors.offline import results_codec as wire
from monitors.offline.intervals import bounded_mean
from monitors.records import Evaluation, Failed, Sample, Score, Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A metric as it was used; `threshold` says from which score on one sample passes."""

    name: str
    version: str
    judge: str | None = None
    lower_is_better: bool = False
    threshold: float = 0.7

    def passes(self, value: float) -> bool:
        """Whether a score is on the good side of the threshold."""
        return value <= self.threshold if self.lower_is_better else value >= self.threshold

    def badness(self, value: float) -> float:
        """A score turned so that less is better, for sorting."""
        return value if self.lower_is_better else 1.0 - value


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sample with its evaluations, by metric."""

    sample: Sample
    evaluations: Mapping[str, Evaluation]

    def score(self, metric: str) -> float | None:
        """The metric's number for this sample; None when there is none, for whatever reason."""
        evaluation = self.evaluations.get(metric)
        return evaluation.outcome.value if evaluation and isinstance(evaluation.outcome, Score) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSummary:
    """One metric over all samples. `mean`, `low`, `high` (95 %) are None when nothing was scored.

    `skipped` and `failed` count by reason. `usd` is what its judging cost, whenever that was.
    """

    metric: str
    n: int
    mean: float | None
    low: float | None
    high: float | None
    passed: int
    skipped: Mapping[str, int]
    failed: Mapping[str, int]
    usd: float
    seconds: float

    @property
    def failed_share(self) -> float:
        """Failed / (scored + failed): of the samples that the metric applies to, those it says nothing about."""
        failed = sum(self.failed.values())
        return failed / (self.n + failed) if failed else 0.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A data set evaluated.

    `paid_usd` is what this run cost, `reused` how many evaluations an earlier run had paid for. `notes` are for people.
    """

    source: str
    created_at: float
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    seconds: float = 0.0
    paid_usd: float = 0.0
    reused: int = 0
    notes: tuple[str, ...] = ()

    @cached_property
    def summary(self) -> tuple[MetricSummary, ...]:
        """One summary per metric, in the order of `measures`."""
        return tuple(_summary(one, self.rows) for one in self.measures)

    @cached_property
    def latency(self) -> Latency | None:
        """How long the answers took, of the samples that say so; None where none does."""
        timings = [Timing(generation_s=taken) for row in self.rows if (taken := row.sample.duration_s) is not None]
        return summary(timings)["generation"]

    def measure(self, metric: str) -> Measure:
        """The metric of this name. Raises KeyError."""
        for one in self.measures:
            if one.name == metric:
                return one
        raise KeyError(metric)

    def scores(self, metric: str) -> list[float]:
        """The numbers of one metric, of the samples that have one, in the order of the rows."""
        return [value for row in self.rows if (value := row.score(metric)) is not None]

    def worst(self, metric: str, count: int) -> list[Row]:
        """The rows with the worst scores of one metric, the worst first."""
        measure = self.measure(metric)
        scored = [(measure.badness(value), row) for row in self.rows if (value := row.score(metric)) is not None]
        return [row for _, row in sorted(scored, key=lambda one: -one[0])[:count]]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values; `from_dict` reads it again."""
        return {
            "kind": wire.KIND,
            "format": wire.FORMAT,
            "source": self.source,
            "created_at": self.created_at,
            "seconds": self.seconds,
            "paid_usd": self.paid_usd,
            "reused": self.reused,
            "notes": list(self.notes),
            "measures": [wire.plain(one) for one in self.measures],
            "summary": [wire.plain(one) for one in self.summary],
            "latency": wire.plain(self.latency),
            "rows": [
                {
                    "sample": wire.plain(row.sample),
                    "evaluations": [wire.from_evaluation(one) for one in row.evaluations.values()],
                }
                for row in self.rows
            ],
        }

    @classmethod
    def from_dict(cls, raw: Any) -> Run:
        """Read what `to_dict` wrote. Raises ValueError for anything else."""
        found = wire.checked(raw)
        rows = [(wire.read(row["sample"], Sample), row["evaluations"]) for row in found.rows]
        return cls(
            source=found.source,
            created_at=found.created_at,
            measures=tuple(wire.read(one, Measure) for one in found.measures),
            rows=tuple(
                Row(sample=sample, evaluations={one["metric"]: wire.to_evaluation(sample.id, one) for one in some})
                for sample, some in rows
            ),
            seconds=found.seconds,
            paid_usd=found.paid_usd,
            reused=found.reused,
            notes=tuple(found.notes),
        )

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a JSON report. Raises OSError, or ValueError for a file that is none."""
        return cls.from_dict(wire.decode(Path(path).read_bytes()))

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return wire.encode(self.to_dict()).decode()

    def to_html(self) -> str:
        """One self-contained page."""
        return self._rendered(".html")

    def to_markdown(self) -> str:
        """A page for a pull request or a wiki."""
        return self._rendered(".md")

    def save(self, path: str | Path) -> None:
        """Write the report that the name asks for: .html, .md, .json or .xml (JUnit). Raises ValueError, OSError."""
        from monitors.offline.reports import write  # noqa: PLC0415 - reports read runs, not the reverse

        write(Path(path), self)

    def _rendered(self, suffix: str) -> str:
        from monitors.offline.reports import render  # noqa: PLC0415 - the same

        return render(suffix, self)

    def __str__(self) -> str:
        return "\n".join([f"{len(self.rows)} samples", *(_line(one) for one in self.summary)])


def gathered(
    measures: Sequence[Measure], rows: Sequence[Row], *, source: str, started: float, **facts: Any
) -> Run:  # `facts` are fields of Run
    """Make the run of rows that were just computed; `started` is Unix time."""
    seconds = max(0.0, time.time() - started)
    return Run(source=source, created_at=started, measures=tuple(measures), rows=tuple(rows), seconds=seconds, **facts)


def _summary(measure: Measure, rows: Sequence[Row]) -> MetricSummary:
    found = [row.evaluations[measure.name] for row in rows if measure.name in row.evaluations]
    values = [one.outcome.value for one in found if isinstance(one.outcome, Score)]
    low, high = bounded_mean(values) if values else (None, None)
    return MetricSummary(
        metric=measure.name,
        n=len(values),
        mean=float(np.mean(values)) if values else None,
        low=low,
        high=high,
        passed=sum(measure.passes(value) for value in values),
        skipped=Counter(one.outcome.reason for one in found if isinstance(one.outcome, Skipped)),
        failed=Counter(one.outcome.error for one in found if isinstance(one.outcome, Failed)),
        usd=sum(one.cost_usd for one in found),
        seconds=sum(one.seconds for one in found),
    )


def _line(one: MetricSummary) -> str:
    if one.mean is None or one.low is None or one.high is None:
        return f"{one.metric}: no score ({sum(one.skipped.values())} skipped, {sum(one.failed.values())} failed)"
    return f"{one.metric}: {one.mean:.3f} [{one.low:.3f}, {one.high:.3f}] over {one.n}"

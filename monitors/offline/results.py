"""The result of an evaluation: a run with its rows and a summary per metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.text.abstention import abstained
from monitors.metrics.judged.evidence import EvidenceTally, VerifiedShare
from monitors.metrics.latency import Latency, Timing, summary
from monitors.offline import results_codec as codec
from monitors.statistics.agreement import Repeatability, repeatability
from monitors.statistics.clusters import groups_of
from monitors.statistics.confidence_sequence import closed_window
from monitors.statistics.dependence import closed_design_effect
from monitors.statistics.weighted_mean import hajek


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A metric as it was used; a sample passes at `threshold` or better."""

    name: str
    version: str
    judge: str | None = None
    lower_is_better: bool = False
    threshold: float = 0.7

    def passes(self, value: float) -> bool:
        """Return whether a score is at the threshold or better."""
        return value <= self.threshold if self.lower_is_better else value >= self.threshold

    def badness(self, value: float) -> float:
        """Return the score on a scale where lower is better, for sorting."""
        return value if self.lower_is_better else 1.0 - value


class Row(Struct, frozen=True, kw_only=True):
    """One sample with its evaluations by metric; `repeats` are those of a second judgement, for comparison only."""

    sample: Sample
    evaluations: Mapping[str, Evaluation]
    repeats: Mapping[str, Evaluation] = {}

    def score(self, metric: str) -> float | None:
        """Return the metric's score of this sample; None if it was skipped, failed or not computed."""
        evaluation = self.evaluations.get(metric)
        return evaluation.outcome.value if evaluation and isinstance(evaluation.outcome, Score) else None


class MetricSummary(Struct, frozen=True, kw_only=True):
    """One metric over all samples: the mean with its 95 % interval (`low`, `high`), None without scores.

    `n_eff` is the effective sample size, n / `design_effect` (scores of one session say less than independent ones),
    and `clusters` the number of groups of scores that may be alike, None where nothing names any: then scores that
    follow each other in the data set count as alike as they are. `skipped` and `failed`
    count by reason. `usd` is the cost of all judging, including that of earlier runs.
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
    n_eff: float | None = None
    design_effect: float | None = None
    clusters: int | None = None

    @property
    def failed_share(self) -> float:
        """Failed / (scored + failed): the share of applicable samples without a score."""
        failed = sum(self.failed.values())
        return failed / (self.n + failed) if failed else 0.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """An evaluated data set.

    `paid_usd` is the cost of this run, `reused` the number of evaluations taken from an earlier one. `notes` are shown
    to the user.
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
        return tuple(_summary(measure, self.rows) for measure in self.measures)

    @property
    def clustered(self) -> bool:
        """Whether scores are alike, so that reports show `n_eff` and the design effect."""
        return any(metric_summary.design_effect is not None for metric_summary in self.summary)

    @cached_property
    def abstained(self) -> int:
        """How many of the answers decline to answer."""
        return sum(row.sample.skip_reason == "refusal" or abstained(row.sample.response) for row in self.rows)

    @cached_property
    def judge_repeats(self) -> Mapping[str, Repeatability]:
        """How far two judgements of the same sample differ, by metric; without metrics that were not judged twice."""
        return {measure.name: found for measure in self.measures if (found := _repeated(measure, self.rows))}

    @cached_property
    def judge_evidence(self) -> Sequence[VerifiedShare]:
        """How much of the judge's evidence could be verified, by judge and metric."""
        tally = EvidenceTally(most=None)
        for row in self.rows:
            for evaluation in row.evaluations.values():
                tally.add(evaluation)
        return tally.shares()

    @property
    def unrepeated(self) -> Mapping[str, int]:
        """Second judgements without a score, by reason."""
        outcomes = [one.outcome for row in self.rows for one in row.repeats.values()]
        missing = [outcome for outcome in outcomes if not isinstance(outcome, Score)]
        return Counter(one.reason if isinstance(one, Skipped) else one.error for one in missing)

    @property
    def latency(self) -> Latency | None:
        """Statistics of the answers' durations, without retrieval; None if no sample has one."""
        return self.latencies["generation"]

    @cached_property
    def latencies(self) -> Mapping[str, Latency | None]:
        """Statistics of "retrieval", "generation" and "total", over samples with the duration of their answer."""
        return summary(
            Timing(generation_s=taken, retrieval_s=row.sample.retrieval_s)
            for row in self.rows
            if (taken := row.sample.duration_s) is not None
        )

    def measure(self, metric: str) -> Measure:
        """Return the metric of this name. Raises KeyError."""
        for measure in self.measures:
            if measure.name == metric:
                return measure
        raise KeyError(metric)

    def scores(self, metric: str) -> list[float]:
        """Return the scores of one metric in the order of the rows, without samples that have none."""
        return [value for row in self.rows if (value := row.score(metric)) is not None]

    def worst(self, metric: str, count: int) -> list[Row]:
        """Return the `count` rows with the worst scores of one metric, the worst first."""
        measure = self.measure(metric)
        scored = [(measure.badness(value), row) for row in self.rows if (value := row.score(metric)) is not None]
        return [row for _, row in sorted(scored, key=lambda pair: -pair[0])[:count]]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole run as JSON-compatible values, which `from_dict` reads."""
        return {
            "kind": codec.KIND,
            "format": codec.FORMAT,
            **{name: getattr(self, name) for name in codec.OF_A_RUN},
            "notes": list(self.notes),
            "measures": [codec.plain(measure) for measure in self.measures],
            "summary": [codec.plain(metric_summary) for metric_summary in self.summary],
            "latency": codec.plain(self.latency),
            "retrieval_latency": codec.plain(self.latencies["retrieval"]),
            "abstained": self.abstained,
            "judge_evidence": [codec.plain(share) for share in self.judge_evidence],
            "judge_repeats": [codec.plain(found) for found in self.judge_repeats.values()],
            "rows": [
                {
                    "sample": codec.plain(row.sample),
                    "evaluations": [codec.from_evaluation(evaluation) for evaluation in row.evaluations.values()],
                    "repeats": [codec.from_evaluation(evaluation) for evaluation in row.repeats.values()],
                }
                for row in self.rows
            ],
        }

    @classmethod
    def from_dict(cls, raw: Any) -> Run:
        """Build a run from the result of `to_dict`. Raises ValueError for anything else."""
        found = codec.checked(raw)
        samples = [codec.read(row["sample"], Sample) for row in found.rows]
        rows = tuple(
            Row(
                sample=sample,
                evaluations=codec.to_evaluations(sample.id, row["evaluations"]),
                repeats=codec.to_evaluations(sample.id, row.get("repeats", ())),
            )
            for sample, row in zip(samples, found.rows, strict=True)
        )
        measures = tuple(codec.read(measure, Measure) for measure in found.measures)
        own = {name: getattr(found, name) for name in codec.OF_A_RUN}
        return cls(**own, measures=measures, rows=rows, notes=tuple(found.notes))

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a JSON report. Raises OSError, or ValueError for any other file."""
        return cls.from_dict(codec.decode(Path(path).read_bytes()))

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return codec.encode(self.to_dict()).decode()

    def to_html(self) -> str:
        """Return the report as one self-contained HTML page."""
        return self._rendered(".html")

    def to_markdown(self) -> str:
        """Return the report as Markdown, for a pull request or a wiki."""
        return self._rendered(".md")

    def save(self, path: str | Path) -> None:
        """Write a report in the format of the suffix: .html, .md, .json or .xml (JUnit), .csv or .jsonl (rows).

        Raises ValueError for another suffix, OSError.
        """
        from monitors.offline.reports import write  # noqa: PLC0415 - a shortcut for `reports.write`, which imports runs

        write(self, Path(path))

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row per sample and three columns per metric.

        The column of the metric's name has the score (float, NaN without one), `NAME.outcome` is "scored", "skipped" or
        "failed", `NAME.reason` is the text. Raises ImportError without pandas.
        """
        from monitors.offline.reports import rows  # noqa: PLC0415 - as in `save`

        try:
            pandas: Any = import_module("pandas")  # optional, without types
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        frame = pandas.DataFrame(rows.records(self), columns=rows.columns(self))
        numbers = ["duration_s", *(measure.name for measure in self.measures)]
        return frame.astype(dict.fromkeys(numbers, "float64"))

    def _rendered(self, suffix: str) -> str:
        from monitors.offline.reports import render  # noqa: PLC0415 - as in `save`

        return render(suffix, self)

    def __str__(self) -> str:
        samples = "1 sample" if len(self.rows) == 1 else f"{len(self.rows)} samples"
        return "\n".join([samples, *(_line(metric_summary) for metric_summary in self.summary)])


def _summary(measure: Measure, rows: Sequence[Row]) -> MetricSummary:
    having = [row for row in rows if measure.name in row.evaluations]
    found = [row.evaluations[measure.name] for row in having]
    scored = [row for row in having if isinstance(row.evaluations[measure.name].outcome, Score)]
    values = [evaluation.outcome.value for evaluation in found if isinstance(evaluation.outcome, Score)]
    groups = _groups([row.sample for row in scored])
    found_mean = hajek(values, [1.0] * len(values), groups) if values else None
    alike = 1 < len(set(groups)) < len(values)
    if found_mean and not alike:
        found_mean = found_mean.widened(closed_design_effect(values))
    widened = found_mean is not None and (alike or found_mean.design_effect > 1.0)
    low, high = closed_window(found_mean) if found_mean else (None, None)
    return MetricSummary(
        metric=measure.name,
        n=len(values),
        mean=float(np.mean(values)) if values else None,
        low=low,
        high=high,
        passed=sum(measure.passes(value) for value in values),
        skipped=Counter(evaluation.outcome.reason for evaluation in found if isinstance(evaluation.outcome, Skipped)),
        failed=Counter(evaluation.outcome.error for evaluation in found if isinstance(evaluation.outcome, Failed)),
        usd=sum(evaluation.cost_usd for evaluation in found),
        seconds=sum(evaluation.seconds for evaluation in found),
        n_eff=found_mean.n_eff if found_mean else None,
        design_effect=found_mean.design_effect if found_mean and widened else None,
        clusters=found_mean.clusters if found_mean and alike else None,
    )


def _repeated(measure: Measure, rows: Sequence[Row]) -> Repeatability | None:
    name = measure.name
    scores = [(row.score(name), row.repeats[name].outcome) for row in rows if name in row.repeats]
    pairs = [(first, last.value) for first, last in scores if first is not None and isinstance(last, Score)]
    return repeatability((name, measure.version, measure.judge or ""), pairs, measure.passes) if pairs else None


def _groups(samples: Sequence[Sample]) -> list[int]:
    """Return the number of each sample's cluster: its session, its conversation, or else as in a stream.

    A session named in a data set is a cluster however large it is. If all samples are in one, it says nothing about how
    sessions differ, and each sample counts alone.
    """
    names = [_session(sample) for sample in samples]
    others = groups_of([None if name else sample.cluster for sample, name in zip(samples, names, strict=True)])
    if len(set(names)) == 1 and names[0]:
        return others
    first: dict[tuple[str, ...], int] = {}
    return [other if not name else first.setdefault(name, other) for name, other in zip(names, others, strict=True)]


def _session(sample: Sample) -> tuple[str, ...]:
    if sample.session:
        return sample.app, "session", sample.session
    return (sample.app, "conversation", sample.conversation) if sample.conversation else ()


def _line(result: MetricSummary) -> str:
    if result.mean is None or result.low is None or result.high is None:
        return (
            f"{result.metric}: no score ({sum(result.skipped.values())} skipped, {sum(result.failed.values())} failed)"
        )
    return f"{result.metric}: {result.mean:.3f} [{result.low:.3f}, {result.high:.3f}] over {result.n}"

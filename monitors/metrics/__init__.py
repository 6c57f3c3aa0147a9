"""Metrics: each is immutable and turns a sample into an outcome."""

from __future__ import annotations

from typing import Any, Protocol

from gaugeway.records import Sample, Score, Skipped
from gaugeway.signals import RISING
from monitors.metrics.judged.prompts import Datum, Template
from monitors.statistics.calibration import Calibration, digest

__all__ = [
    "ANCHOR",
    "DISAGREEMENT",
    "Calibrated",
    "Datum",
    "Metric",
    "Template",
    "lower_is_better",
    "raw_of",
    "scores_at_once",
    "scores_conversations",
]


ANCHOR, DISAGREEMENT = "~anchor", "~disagreement"
"""Ends of the names of a metric's scores by the LLM judge beside decisions, and of the difference of the two."""


class Metric(Protocol):
    """The port of a quality metric; samples may be scored concurrently.

    A class says more of itself by attributes, where they apply: `lower_is_better`, `on_by_default`, `of_conversations`,
    `measures` ("retrieval" or "answer": what a drop of it is a drop of), `review_question` (asked of people who label
    answers) and `covariate_rank` (computed for all traffic; of two covariates of the estimates the lower is preferred).
    Its static method `without_embeddings` returns the options it needs where none are configured, or None.
    """

    @property
    def name(self) -> str:
        """The metric's name in configuration and labels."""

    @property
    def version(self) -> str:
        """Changes whenever the same sample could score differently, because of code or prompt."""

    async def score(self, sample: Sample) -> Score | Skipped:
        """Score one sample. Raises JudgeError when the judge gave no usable answer."""


def lower_is_better(metric: Metric) -> bool:
    """Whether 0 is this metric's best value."""
    return metric.name in RISING or bool(getattr(metric, "lower_is_better", False))


def scores_conversations(metric: Metric) -> bool:
    """Whether this metric scores whole conversations instead of answers: its attribute `of_conversations` is True."""
    return bool(getattr(metric, "of_conversations", False))


def scores_at_once(metric: Metric, sample: Sample) -> bool:
    """Whether this metric awaits nothing to score this sample now, by its method `scores_at_once`; False without one.

    Then it is scored together with others, which costs less than a task for each.
    """
    at_once = getattr(metric, "scores_at_once", None)
    return at_once is not None and bool(at_once(sample))


class Calibrated:
    """A version of a metric: its scores mapped by a calibration, the raw ones in the evidence.

    Raises ValueError for a text that is no map, or one that was fitted for another version or judge of the metric.
    """

    def __init__(self, raw: Metric, text: str) -> None:
        calibration, judge = Calibration.parse(text), getattr(raw, "judge", None)
        if calibration.fitted_for != digest(raw.name, str(raw.version), judge and str(getattr(judge, "model", judge))):
            raise ValueError("fitted for another version or judge of the metric")
        self.raw, self._calibration = raw, calibration
        self.name, self.version = raw.name, f"{raw.version}~{digest(str(calibration))}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    async def score(self, sample: Sample) -> Score | Skipped:
        if not isinstance(found := await self.raw.score(sample), Score):
            return found
        value = float(self._calibration.apply([found.value])[0])
        evidence = {"raw": found.value, "calibration": str(self._calibration)}
        return Score(value, f"calibrated from {found.value:.3f}: {found.reason}", (*found.evidence, evidence))


def raw_of(version: str, score: Score) -> tuple[str, float]:
    """Return the version and value of a score before its calibration; its own without one."""
    last = score.evidence[-1] if score.evidence else {}
    return (version.rpartition("~")[0], float(last["raw"])) if "calibration" in last else (version, score.value)

"""Metrics: each is immutable and turns a sample into an outcome."""

from __future__ import annotations

from typing import Protocol

from gaugeway.records import Sample, Score, Skipped
from gaugeway.signals import RISING
from monitors.metrics.judged.prompts import Datum, Template

__all__ = [
    "ANCHOR",
    "DISAGREEMENT",
    "Datum",
    "Metric",
    "Template",
    "lower_is_better",
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

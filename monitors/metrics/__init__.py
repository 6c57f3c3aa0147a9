"""Metrics: one file each; a metric is immutable and turns a sample into an outcome."""

from __future__ import annotations

from typing import Protocol

from monitors.metrics.judged.prompts import Datum, Template
from monitors.records import Sample, Score, Skipped

__all__ = ["LOWER_IS_BETTER", "Datum", "Metric", "Template", "lower_is_better"]

LOWER_IS_BETTER = frozenset({"hallucination", "noise_sensitivity"})
"""Built-in metrics whose best value is 0. A metric of your own says so with an attribute `lower_is_better = True`."""


class Metric(Protocol):
    """One measure of quality. Two samples may be scored at once."""

    @property
    def name(self) -> str:
        """The metric's name, as in the configuration and in labels."""

    @property
    def version(self) -> str:
        """Changes whenever the same sample could score differently: code or prompt."""

    async def score(self, sample: Sample) -> Score | Skipped:
        """Score one sample. Raises JudgeError when the judge gave no usable answer."""


def lower_is_better(metric: Metric) -> bool:
    """Whether 0 is this metric's best value."""
    return metric.name in LOWER_IS_BETTER or bool(getattr(metric, "lower_is_better", False))

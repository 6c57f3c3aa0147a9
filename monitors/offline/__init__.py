"""Offline evaluation: data sets, comparisons of runs, and replays of captured exchanges."""

from __future__ import annotations

from monitors.offline.comparison import Comparison, Floor, compare
from monitors.offline.data_errors import DataError
from monitors.offline.library import evaluate, evaluate_async
from monitors.offline.results import Measure, MetricSummary, Row, Run
from monitors.offline.run import Progress

__all__ = ["Comparison", "DataError", "Floor", "Measure", "MetricSummary", "Progress", "Row", "Run"]
__all__ += ["compare", "evaluate", "evaluate_async"]

"""Exporters: where evaluations are shown to other systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from monitors.records import Evaluation, Sample

BUILT_IN = {
    "langfuse": "monitors.exporters.langfuse:LangfuseSink",
    "mlflow": "monitors.exporters.mlflow:MLflowSink",
    "phoenix": "monitors.exporters.phoenix:PhoenixSink",
}
"""What `[[sinks]]` may name; the other exporters come with the tables they belong to."""


class Exporter(Protocol):
    """Shows evaluations elsewhere. Never blocks: what takes time is buffered behind it."""

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Show the evaluations of `sample` that are new in the store; each is shown once."""

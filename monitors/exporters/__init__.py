"""Exporters: where evaluations are shown to other systems."""

from __future__ import annotations

from typing import Protocol

from monitors.records import Evaluation, Sample


class Exporter(Protocol):
    """Shows one evaluation elsewhere. Never blocks: what takes time is buffered behind it."""

    def export(self, sample: Sample, evaluation: Evaluation) -> None:
        """Show `evaluation` of `sample`; called once for every evaluation that is new in the store."""

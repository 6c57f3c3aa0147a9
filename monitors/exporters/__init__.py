"""Exporters: where evaluations are shown to other systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from monitors.records import Evaluation, Sample


class Exporter(Protocol):
    """Shows evaluations elsewhere. Never blocks: what takes time is buffered behind it."""

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Show the evaluations of `sample` that are new in the store; each is shown once."""

"""Detectors: pure, sequential, their state is a short JSON text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from monitors.records import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The scores of the exchanges that started in [start, start + seconds), higher is better, order without meaning.

    `weights` are the smallest sampling rate of the stream over each score's own rate, in (0, 1].
    """

    start: float
    seconds: float
    scores: tuple[float, ...]
    weights: tuple[float, ...]


class Detector(Protocol):
    """Watches one stream of scores for a drop."""

    def update(self, bucket: Bucket) -> Finding | None:
        """Take in the next bucket, in the order of time; on an alarm return the finding and start afresh."""

    def dumps(self) -> str:
        """The whole state as JSON, under 1 kB."""

    def loads(self, state: str) -> None:
        """Continue from a state that `dumps` gave."""

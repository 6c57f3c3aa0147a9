"""Inverse document frequencies of stems: those in the package and those learnt from traffic."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Weights:
    """The number of sentences, of `sentences`, that contain each stem; 0 if not in `counts`. Immutable.

    >>> weights = Weights(99, {"the": 60.0, "lantern": 1.0})
    >>> [round(weights.of(stem), 2) for stem in ("the", "lantern", "never seen")]
    [0.09, 0.79, 1.0]
    """

    sentences: float
    counts: Mapping[str, float]

    def of(self, stem: str) -> float:
        """ln((N + 1)/(n + 0.5)) as a share of what an unseen stem has: in (0, 1]."""
        whole = self.sentences + 1.0
        return math.log(whole / (self.counts.get(stem, 0.0) + 0.5)) / math.log(whole / 0.5)


class Idf(Protocol):
    """The port to a source of weights that may learn from the contexts it is shown."""

    def weights(self) -> Weights:
        """Return the current weights, an immutable object."""

    def observe(self, sentences: Iterable[Collection[str]]) -> None:
        """Learn from the sentences of contexts, each a collection of stems. May be called from any thread."""


class Fixed:
    """Constant weights: the same sample always scores the same."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def weights(self) -> Weights:
        return self._weights

    def observe(self, sentences: Iterable[Collection[str]]) -> None:
        """Do nothing."""


def shipped() -> Weights:
    """Read the weights that come with the package: English, German, French and Spanish, from text of our own.

    See benchmarks/groundedness/table.py, which makes the file. Most of it is grammar; a word it does not know has full
    weight.
    """
    lines = resources.files(__package__).joinpath("shipped.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    counts = {stem: float(count) for stem, count in rows}
    return Weights(counts.pop("="), counts)

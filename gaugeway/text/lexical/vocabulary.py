"""How rare words are, by a table that comes with the package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import resources

from msgspec import Struct


class Weights(Struct, frozen=True):
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


def shipped() -> Weights:
    """Read the weights that come with the package: English, German, French and Spanish, from text of our own.

    See benchmarks/groundedness/table.py, which makes the file. Most of it is grammar; a word it does not know has full
    weight.
    """
    lines = resources.files(__package__).joinpath("idf.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    counts = {stem: float(count) for stem, count in rows}
    return Weights(counts.pop("="), counts)

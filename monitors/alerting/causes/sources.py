"""The sources of passages that the low scores since an onset point at, and how they are spread over good and bad."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from monitors.alerting.causes.observations import ALPHA, Observation, percent, share, values_of
from monitors.statistics.attribution import ScoredAnswer, contrast, retrievals_of

_STRATA = ("topic", "model", "prompt")
_LOW = 0.1
"""An answer is bad if it scores as the worst tenth before the onset did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The shares of the bad and the good answers since Unix time `since` that got a source; None without any."""

    since: float
    bad: float | None
    good: float | None

    def sentence(self, name: str) -> str:
        """Return where the source occurs.

        >>> Spread(since=50_700.0, bad=0.83, good=0.04).sentence("faq.md")
        'Source faq.md, since 14:05 UTC, in 83 % of the bad answers and 4 % of the good.'
        """
        minutes = int(self.since // 60) % 1440
        clock = f"{minutes // 60:02}:{minutes % 60:02} UTC"
        bad, good = (percent(ratio) if ratio is not None else "none" for ratio in (self.bad, self.good))
        return f"Source {name}, since {clock}, in {bad} of the bad answers and {good} of the good."


def suspicious(
    since: Sequence[Observation], documents: Mapping[str, frozenset[str]], *, across_questions: bool = False
) -> list[str]:
    """Return the sources that exchanges with low scores got, the strongest first; wrong ones are 5 % of these.

    `documents` are the names of the sources by sample id. Exchanges are compared within topic, model and prompt, and
    those of a question that is asked often with one another only; not so `across_questions`, where a source cannot be
    told apart from the questions that it comes with.
    """
    names = sorted({name for observation in since for name in documents[observation.sample_id]})
    answers = [
        ScoredAnswer(
            id=observation.sample_id,
            score=observation.value or 0.0,
            rate=observation.rate,
            traits=documents[observation.sample_id],
            stratum=tuple(observation.strata.get(key, "") for key in _STRATA),
            question="" if across_questions else observation.question,
        )
        for observation in since
    ]
    return [names[source] for source in contrast(retrievals_of(answers, names), ALPHA).log_e_alone]


def spread_of(
    name: str,
    before: Sequence[Observation],
    since: Sequence[Observation],
    documents: Mapping[str, frozenset[str]],
    *,
    new: bool,
) -> Spread:
    """Return how a source is spread over bad and good answers; a `new` one counts from its first use."""
    is_bad = _bad(values_of(before) or values_of(since))
    got = [name in documents[observation.sample_id] for observation in since]
    first = [observation.started_at for observation, has in zip(since, got, strict=True) if has or not new]

    def part(*, bad: bool) -> float | None:
        found = share(
            (has, observation.rate)
            for observation, has in zip(since, got, strict=True)
            if is_bad(observation.value or 0.0) is bad
        )
        return None if found is None else found.mean

    return Spread(since=min(first, default=0.0), bad=part(bad=True), good=part(bad=False))


def _bad(usual: Sequence[float]) -> Callable[[float], bool]:
    """Return whether a score is among the lowest tenth of the usual ones; where most are equal, whether it is lower."""
    limit, median = float(np.quantile(usual, _LOW)), float(np.median(usual))
    return (lambda value: value <= limit) if limit < median else (lambda value: value < median)

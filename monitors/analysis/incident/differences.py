"""What the bad answers since an onset have in common: models, prompts, tags, sources and topics the good ones lack.

Pure: `compared` takes answers that were read, `monitors.analysis.incident.reading` reads them.

Each value of a field is tested on its own: under the null hypothesis, which answers have it has nothing to do with
which are bad. The e-values are those of `monitors.statistics.attribution`, with badness 1 for a bad answer and 0 for a
good one, and e-BH keeps the expected share of wrongly named values at or below alpha, however they depend on each
other. The onset was chosen by the scores, not by these fields, so the test holds since any onset.

A release that all answers since the onset come from cannot differ between the bad and the good ones of that time. So
values that became more frequent at the onset are found too, by the same test with the answers since the onset in the
place of the bad ones. That a value grew does not say that it is to blame: its mean beside that of the others does.

A question asked often is compared with itself, as it has its own difficulty and its own sources. Where each is always
answered well or always badly since the onset, that leaves nothing to compare. If no value is named for that reason,
values are compared across questions, without those that were mostly answered badly before the onset. A value named so
may stand for its questions, and the bound alpha does not cover it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from monitors.analysis.retrieval.sources import Share, Whole, share_of
from monitors.statistics.attribution import ALPHA, FREQUENT, ScoredAnswer, contrast, retrievals_of
from monitors.statistics.clusters import QUESTION, SESSION, name_of
from monitors.statistics.confidence_sequence import Level, confidence_sequence, level_of, mean_of

MAX_VALUES = 400
"""Values that are tested: those that most of the answers have, whether bad or good."""
MIN_USES = 3
LEAST_GROWTH = 0.05
MIN_BAD = 10
"""Bad answers, and good ones, from which on a metric's threshold separates them."""
MAX_TAGS = 20
"""Tags of an answer that are compared."""


class Trait(NamedTuple):
    """A value of a field of an answer: of "model", "prompt", "tag:NAME", "source" or "topic"."""

    field: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One scored answer; `value`, in [0, 1], is on the metric's own scale, `rate` its inclusion probability."""

    id: str
    started_at: float
    rate: float
    value: float
    traits: tuple[Trait, ...]
    cluster: str | None = None


class Cutoff(Struct, frozen=True, kw_only=True):
    """Which scores are bad: at most `value`, or at least if 0 is best (`flipped`).

    `threshold` says that it is the metric's own; otherwise it lies midway between the means before and since.
    """

    value: float
    flipped: bool = False
    threshold: bool = True

    def is_bad(self, score: float) -> bool:
        """Return whether a score is bad."""
        return score >= self.value if self.flipped else score <= self.value


class Difference(Struct, frozen=True, kw_only=True):
    """A value that bad answers have more often than good ones.

    `n` answers since the onset have it, `bad` of them are bad. `in_bad` is the share of the bad answers that have it,
    `in_good` that of the good ones. `evidence_log10` is log10 of the e-value. `alone`: it is over-represented among
    answers with and without the other values, too. `before` and `since` are the levels of the answers that have it.
    """

    trait: Trait
    n: int
    bad: int
    in_bad: Share
    in_good: Share | None
    evidence_log10: float
    alone: bool
    before: Level | None
    since: Level | None


class Change(Struct, frozen=True, kw_only=True):
    """A value that more answers have since the onset: its share of them `before` and `since`.

    `n` answers since the onset have it, `bad` of them are bad. `level` is their mean, `without` that of the answers
    since the onset that do not have it.
    """

    trait: Trait
    n: int
    bad: int
    before: Share
    since: Share
    evidence_log10: float
    level: Level | None
    without: Level | None


class Comparison(Struct, frozen=True, kw_only=True):
    """The bad answers since an onset against the good ones; `differences` are those named, the strongest first.

    `tested` values were compared. `everything` are the levels of all answers before and since, `others` those of the
    answers that have none of the differences. `changes` are the values that more answers have since the
    onset, the largest growth first. `across_questions`: the differences cannot be told apart from the questions they
    come with.
    """

    cutoff: Cutoff
    n: int
    bad: int
    tested: int
    alpha: float
    differences: tuple[Difference, ...] = ()
    changes: tuple[Change, ...] = ()
    everything: tuple[Level | None, Level | None] = (None, None)
    others: tuple[Level | None, Level | None] = (None, None)
    across_questions: bool = False


class _Tested(Struct, frozen=True):
    """The values compared, with log10 of their e-values, and those that e-BH names."""

    evidence_log10: Mapping[Trait, float] = {}
    named: Sequence[Trait] = ()
    alone: Collection[Trait] = ()


def cutoff_of(
    scores: Sequence[float], *, threshold: float, flipped: bool, before: float | None, since: float | None
) -> Cutoff:
    """Return which scores are bad: by the threshold, or between both means where nearly all are on one side of it.

    >>> round(cutoff_of([0.3] * 20 + [0.9] * 20, threshold=0.5, flipped=False, before=0.9, since=0.6).value, 9)
    0.5
    >>> cutoff_of([0.7] * 20 + [0.9] * 20, threshold=0.5, flipped=False, before=0.9, since=0.8).value
    0.85
    """
    usual = Cutoff(value=math.nextafter(threshold, math.inf if flipped else -math.inf), flipped=flipped)
    bad = sum(map(usual.is_bad, scores))
    if (bad >= MIN_BAD and len(scores) - bad >= MIN_BAD) or before is None or since is None or before == since:
        return usual
    return Cutoff(value=round((before + since) / 2.0, 6), flipped=since > before, threshold=False)


def compared(since: Sequence[Answer], before: Sequence[Answer], cutoff: Cutoff, *, alpha: float = ALPHA) -> Comparison:
    """Compare the bad answers since an onset with the good ones; up to a second for 2,000 answers on each side."""
    bad = [cutoff.is_bad(answer.value) for answer in since]
    tested = _tested(since, bad, alpha)
    across = _Tested()
    if not tested.named and max(Counter(filter(None, map(_question_of, since))).values(), default=0) >= FREQUENT:
        kept = _not_poor_before(since, before, cutoff)
        across = _tested(kept, [cutoff.is_bad(answer.value) for answer in kept], alpha, by_question=False)
    tested = across if across.named else tested
    differences = tuple(
        _difference(trait, tested, list(zip(since, bad, strict=True)), before) for trait in tested.named
    )
    suspects = {difference.trait for difference in differences}
    return Comparison(
        cutoff=cutoff,
        n=len(since),
        bad=sum(bad),
        tested=len(tested.evidence_log10),
        alpha=alpha,
        differences=differences,
        changes=_changes(since, before, cutoff, alpha),
        everything=(level(before), level(since)),
        others=(_without(before, suspects), _without(since, suspects)) if suspects else (None, None),
        across_questions=bool(across.named),
    )


def _not_poor_before(since: Sequence[Answer], before: Sequence[Answer], cutoff: Cutoff) -> Sequence[Answer]:
    """Return the answers without those to questions mostly answered badly before the onset: these did not get worse."""
    earlier: dict[str, list[bool]] = {}
    for answer in before:
        if question := _question_of(answer):
            earlier.setdefault(question, []).append(cutoff.is_bad(answer.value))
    poor = {question for question, some in earlier.items() if 2 * sum(some) >= len(some)}
    return [answer for answer in since if _question_of(answer) not in poor]


def _question_of(answer: Answer) -> str:
    return name_of(answer.cluster, QUESTION)


def _tested(since: Sequence[Answer], bad: Sequence[bool], alpha: float, *, by_question: bool = True) -> _Tested:
    uses = Counter(trait for answer in since for trait in answer.traits)
    most = [trait for trait in sorted(uses, key=lambda used: (-uses[used], used)) if uses[trait] >= MIN_USES]
    traits = most[:MAX_VALUES]
    if not any(bad) or all(bad):
        return _Tested(dict.fromkeys(traits, 0.0))
    answers = [
        ScoredAnswer(
            id=answer.id,
            score=0.0 if is_bad else 1.0,
            rate=answer.rate,
            traits=answer.traits,
            question=_question_of(answer) if by_question else "",
            session=name_of(answer.cluster, SESSION),
        )
        for answer, is_bad in zip(since, bad, strict=True)
    ]
    found = contrast(retrievals_of(answers, traits), alpha)
    evidence = {
        trait: round(float(log_e) / math.log(10.0), 3) for trait, log_e in zip(traits, found.log_e, strict=True)
    }
    alone = {traits[at] for at in found.log_e_alone}
    logs = dict(zip(traits, found.log_e.tolist(), strict=True))
    named = sorted((traits[at] for at in found.lower), key=lambda trait: (trait not in alone, -logs[trait], trait))
    return _Tested(evidence, named, alone)


def _difference(
    trait: Trait, tested: _Tested, since: Sequence[tuple[Answer, bool]], before: Sequence[Answer]
) -> Difference:
    have = [(answer, is_bad) for answer, is_bad in since if trait in answer.traits]
    shares = [
        share_of(
            [answer.rate for answer, is_bad in have if is_bad is side],
            Whole([answer.rate for answer, is_bad in since if is_bad is side]),
        )
        for side in (True, False)
    ]
    return Difference(
        trait=trait,
        n=len(have),
        bad=sum(is_bad for _, is_bad in have),
        in_bad=shares[0] or Share(ratio=0.0, ci_low=0.0, ci_high=1.0, n=0),
        in_good=shares[1],
        evidence_log10=tested.evidence_log10[trait],
        alone=trait in tested.alone,
        before=level([answer for answer in before if trait in answer.traits]),
        since=level([answer for answer, _ in have]),
    )


def _changes(since: Sequence[Answer], before: Sequence[Answer], cutoff: Cutoff, alpha: float) -> tuple[Change, ...]:
    """Return the values that more answers have since the onset than before, by at least `LEAST_GROWTH`."""
    both = [*since, *before]
    tested = _tested(both, [True] * len(since) + [False] * len(before), alpha)
    whole_since, whole_before = (Whole([answer.rate for answer in side]) for side in (since, before))
    found = []
    for trait in tested.named:
        have = [answer for answer in since if trait in answer.traits]
        now = share_of([answer.rate for answer in have], whole_since)
        then = share_of([answer.rate for answer in before if trait in answer.traits], whole_before)
        if now is None or then is None or now.ratio - then.ratio < LEAST_GROWTH:
            continue
        change = Change(
            trait=trait,
            n=len(have),
            bad=sum(cutoff.is_bad(answer.value) for answer in have),
            before=then,
            since=now,
            evidence_log10=tested.evidence_log10[trait],
            level=level(have),
            without=_without(since, {trait}),
        )
        found.append(change)
    return tuple(sorted(found, key=lambda changed: (changed.before.ratio - changed.since.ratio, changed.trait)))


def _without(answers: Sequence[Answer], traits: set[Trait]) -> Level | None:
    return level([answer for answer in answers if traits.isdisjoint(answer.traits)])


def level(answers: Sequence[Answer]) -> Level | None:
    """Return the mean of some answers with its confidence sequence; None without answers."""
    return level_of(mean_of(answers), confidence_sequence)

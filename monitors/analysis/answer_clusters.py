"""Clusters of an app's failing answers, declines or questions: their subjects, shares, what differs and what is new.

Pure: `clusters_of` takes exchanges that were read, `monitors.analysis.retrieval.source_reading` reads them.

Answers are put together by the words of their questions and of their failed claims, never by time, model, prompt, tags
or sources. So under the null hypothesis that these have nothing to do with what a question is about, each of them is
distributed over a cluster and the rest as by drawing at random, whatever the clusters are. Conversations are drawn, not
answers: of one conversation, one answer counts.

- New: for each of up to 24 moments, the e-value of the cluster's conversations after it among all after it; their mean
  is an e-value whichever moment is the right one. e-BH over all clusters of the report keeps the expected share of
  wrongly marked clusters at or below alpha. If nothing changed, no cluster at all is marked with probability 1 - alpha.
- What differs: the e-value of a value (a model, a prompt, a tag, a source) in the cluster against good answers to like
  questions, or against all other answers where there are few; e-BH over all values and clusters.

Reference: R. Wang & A. Ramdas (2022), False discovery rate control with e-values (arXiv 2009.02824).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from gaugeway.text.grouping import ALIKE, KEYWORDS, WordWeights, linked
from gaugeway.text.topics import Terms, terms_of
from monitors.analysis.retrieval.sources import TREND_PARTS, Scope, Share
from monitors.statistics.agreement import wilson
from monitors.statistics.attribution import ALPHA, log_e_overlap
from monitors.statistics.clusters import SESSION, name_of
from monitors.statistics.multiple_testing import affected

Kind: TypeAlias = Literal["failures", "declines", "questions"]
KINDS: tuple[Kind, ...] = ("failures", "declines", "questions")
MAX_CLUSTERED = 2_000
"""Answers of a report that are put into clusters, and good answers that are read beside them: chosen at random."""
MAX_CLUSTERS = 20
MIN_CONVERSATIONS = 5
"""Fewer are no cluster."""
MAX_EXAMPLES = 5
MAX_VALUES = 100
"""Values of models, prompts, tags and sources that are tested: those that most answers have."""
MIN_LIKE = 10
"""Good answers to like questions from which on a cluster is compared with these."""
MAX_DIFFERENCES = 4
MOMENTS = 24
LEAST_SHARE, MAX_WIDTH = 0.1, 0.35  # internal bound: what is said of an alert, not what is held
"""A subject of an alert's bad answers has a tenth of them, known to so much."""
_SHOWN_WORDS = 3


class ClusteredAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """An answer with what it is clustered and compared by.

    `is_bad` says that it is of the report's kind, `no_good_answer` that its question has no good answer. `claim` are
    its failed claims or the judge's reason. `traits` are pairs of a field and a value.
    """

    id: str
    started_at: float
    rate: float
    question: str
    is_bad: bool
    claim: str = ""
    cluster: str | None = None
    no_good_answer: bool = False
    traits: tuple[tuple[str, str], ...] = ()

    @property
    def conversation(self) -> str:
        """The conversation, or the answer itself where it is not known."""
        return name_of(self.cluster, SESSION) or self.id


class TrendStep(Struct, frozen=True, kw_only=True):
    """A twelfth of the window, from Unix time `since` on: answers in the cluster, and all that were clustered."""

    since: float
    n: int
    of: int


class ClusterExample(Struct, frozen=True, kw_only=True):
    """An answer of a cluster: its question and failed claim as stored, redacted and cut to 300 characters."""

    id: str
    started_at: float
    question: str
    claim: str


class OverRepresented(Struct, frozen=True, kw_only=True):
    """A value that answers of a cluster have more often than others: `field` is model, prompt, source or tag:NAME.

    `like_questions`: the others are good answers to like questions, else all other answers that were read.
    """

    field: str
    value: str
    in_cluster: float
    in_others: float
    evidence_log10: float
    like_questions: bool


class NewSince(Struct, frozen=True, kw_only=True):
    """The share of a cluster rose at about Unix time `since`: `before` and `now`; `is_first`: there was none before."""

    since: float
    is_first: bool
    before: float
    now: float
    evidence_log10: float


class AnswerCluster(Struct, frozen=True, kw_only=True):
    """Answers about the same subject.

    `n` answers of `conversations` conversations, `share` of those of the report's kind. `no_good_answer` is the share
    of like questions without a good answer. `name` is the judge's, or else the keywords.
    """

    name: str
    is_named: bool = False
    keywords: tuple[str, ...]
    n: int
    conversations: int
    share: Share
    no_good_answer: Share
    trend: tuple[TrendStep, ...]
    differs: tuple[OverRepresented, ...] = ()
    new: NewSince | None = None
    examples: tuple[ClusterExample, ...]


class ClusterReport(Struct, frozen=True, kw_only=True):
    """The clusters of one app over a window, the largest share first; 20 at most.

    `read` exchanges were looked at (`complete` if these are all; `pending` more are read by the next report), `n` of
    them are of this `kind`, `clustered` of these have a text and were compared; `alone` are in no cluster.
    """

    app: str
    kind: Kind
    metric: str
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    n: int
    clustered: int
    alone: int
    alpha: float
    clusters: tuple[AnswerCluster, ...] = ()


class BadSubject(AnswerCluster, frozen=True, kw_only=True):
    """A subject that bad answers have more often than good ones: `share` of the bad ones, `in_good` of the good ones.

    `n` answers are about it, `bad` of them are bad. `evidence_log10` is log10 of the e-value.
    """

    bad: int
    in_good: Share
    evidence_log10: float


class _Group(NamedTuple):
    members: Sequence[int]
    like: Sequence[int]


def clusters_of(answers: Sequence[ClusteredAnswer], kind: Kind, scope: Scope, *, alpha: float = ALPHA) -> ClusterReport:
    """Build the report from answers of one app; up to some seconds for 2,000 of its kind."""
    of_kind = [answer for answer in answers if answer.is_bad]
    bad, good = _drawn(of_kind), _drawn(answer for answer in answers if not answer.is_bad)
    groups = _grouped(bad, good)
    fresh = _new([group.members for group in groups], bad, alpha)
    differs = _differences(groups, bad, good, alpha)
    known = [sum(bool(answer.question) and answer.is_bad is side for answer in answers) for side in (True, False)]
    scale = known[0] / max(1, len(bad)), known[1] / max(1, len(good))
    asked = _Asked(bad, good, *scale)
    words = _keywords([group.members for group in groups], bad, good)
    found = [
        replace(_cluster(group, asked, scope, words[at]), new=fresh.get(at), differs=differs.get(at, ()))
        for at, group in enumerate(groups)
    ]
    in_clusters = sum(len(group.members) for group in groups)
    return ClusterReport(
        app=scope.app,
        kind=kind,
        metric=scope.metric,
        since=scope.since,
        until=scope.until,
        read=len(answers),
        complete=scope.complete,
        pending=scope.pending,
        n=len(of_kind),
        clustered=len(bad),
        alone=len(bad) - in_clusters,
        alpha=alpha,
        clusters=tuple(found),
    )


def bad_subjects(answers: Sequence[ClusteredAnswer], scope: Scope, *, alpha: float = ALPHA) -> tuple[BadSubject, ...]:
    """Return the subjects that bad answers have more often than good ones, the largest share of the bad ones first.

    Bad and good answers are put together alike, so a subject is tested as any value is: e-BH over all subjects keeps
    the expected share of wrong ones at or below alpha. One whose share of the bad answers is known less well than
    to `MAX_WIDTH`, or is below `LEAST_SHARE`, is left out.
    """
    some = _drawn(answers)
    groups = [group.members for group in _grouped(some, (), most=len(some))]
    units = list(_units(some, range(len(some))).values())
    of_bad = {at for at in units if some[at].is_bad}
    logs = {}
    for number, group in enumerate(groups):
        inside = set(units).intersection(group)
        logs[str(number)] = log_e_overlap(len(units), len(inside), len(of_bad), len(of_bad & inside))
    named = [int(name) for name in affected(logs, alpha)] if 0 < len(of_bad) < len(units) else []
    sides = [[answer for answer in some if answer.is_bad is side] for side in (True, False)]
    found = []
    for number, words in zip(named, _keywords([groups[number] for number in named], some, ()), strict=True):
        members = {some[at].id for at in groups[number]}
        shares = [share_by_conversation([(answer, answer.id in members) for answer in side]) for side in sides]
        if shares[0].ratio < LEAST_SHARE or shares[0].ci_high - shares[0].ci_low > MAX_WIDTH:
            continue
        poor = [at for at in groups[number] if some[at].is_bad]
        whole = _cluster(_Group(poor, ()), _Asked(some, (), 1.0, 1.0), scope, words)
        more = {"n": len(members), "bad": len(poor), "share": shares[0], "in_good": shares[1]}
        found.append(BadSubject(**asdict(whole) | more, evidence_log10=_rounded(logs[str(number)] / math.log(10.0))))
    return tuple(sorted(found, key=lambda subject: (-subject.share.ratio, subject.keywords)))


def _drawn(answers: Iterable[ClusteredAnswer]) -> list[ClusteredAnswer]:
    """Return answers with a question, `MAX_CLUSTERED` at most, in an order that has nothing to do with their time."""
    known = (answer for answer in answers if answer.question)
    return sorted(known, key=lambda answer: blake2b(answer.id.encode()).digest())[:MAX_CLUSTERED]


def _grouped(bad: Sequence[ClusteredAnswer], good: Sequence[ClusteredAnswer], most: int = MAX_CLUSTERS) -> list[_Group]:
    """Return the groups of alike answers, the largest first, each with the good answers to like questions."""
    asked, others = ([terms_of(answer.question) for answer in side] for side in (bad, good))
    claimed = [terms_of(answer.claim) for answer in bad]
    numbers: dict[tuple[frozenset[tuple[str, int]], ...], int] = {}
    text_of = [
        numbers.setdefault((frozenset(question.items()), frozenset(claim.items())), len(numbers))
        for question, claim in zip(asked, claimed, strict=True)
    ]
    first = [text_of.index(number) for number in range(len(numbers))]
    weights = WordWeights([*(asked[at] for at in first), *_different(others)])
    questions, of_good = weights.vectors([asked[at] for at in first], others)
    claims, _ = WordWeights(claimed[at] for at in first).vectors([claimed[at] for at in first])
    likeness = questions @ questions.T
    # claims bring like questions nearer; alone they join nothing, as a judge's phrases are the same everywhere
    likeness *= 1.0 + np.minimum(claims @ claims.T, 0.5)
    group_of = linked(likeness, np.bincount(text_of, minlength=len(first)).tolist())
    members: dict[int, list[int]] = {}
    for at, text in enumerate(text_of):
        if asked[at]:
            members.setdefault(group_of[text], []).append(at)
    large = [some for some in members.values() if len(_units(bad, some)) >= MIN_CONVERSATIONS]
    large = sorted(large, key=lambda some: (-len(some), some[0]))[:most]
    like = _like(of_good, [questions[[text_of[at] for at in some]].mean(axis=0) for some in large])
    return [_Group(some, like[at]) for at, some in enumerate(large)]


def _keywords(
    groups: Sequence[Sequence[int]], bad: Sequence[ClusteredAnswer], good: Sequence[ClusteredAnswer]
) -> list[tuple[str, ...]]:
    """Return the most typical words of each group: of its questions, and then of its claims."""
    found: list[tuple[str, ...]] = [()] * len(groups)
    for texts in ([answer.question for answer in bad], [answer.claim for answer in bad]):
        terms = [terms_of(text) for text in texts]
        weights = WordWeights([*terms, *(terms_of(answer.question) for answer in good)])
        for number, group in enumerate(groups):
            more = weights.keywords([terms[at] for at in group])
            found[number] = tuple(dict.fromkeys((*found[number], *more)))[:KEYWORDS]
    return found


def _different(texts: Iterable[Terms]) -> list[Terms]:
    return [dict(terms) for terms in {frozenset(terms.items()) for terms in texts}]


def _like(vectors: NDArray[np.float32], means: Sequence[NDArray[np.float32]]) -> list[list[int]]:
    """Return for each group the texts that are most like it, and like enough to belong to it."""
    found: list[list[int]] = [[] for _ in means]
    if means and len(vectors):
        likeness = vectors @ np.stack(means).T
        for at, group in enumerate(likeness.argmax(axis=1).tolist()):
            if likeness[at, group] >= ALIKE:
                found[group].append(at)
    return found


def _units(answers: Sequence[ClusteredAnswer], chosen: Iterable[int]) -> dict[str, int]:
    """Return one of the chosen answers of each conversation, the first in their order."""
    found: dict[str, int] = {}
    for at in chosen:
        found.setdefault(answers[at].conversation, at)
    return found


def _new(groups: Sequence[Sequence[int]], answers: Sequence[ClusteredAnswer], alpha: float) -> dict[int, NewSince]:
    """Return which groups are new, or have a larger share than before."""
    units = sorted(_units(answers, range(len(answers))).values(), key=lambda at: (answers[at].started_at, at))
    n, place = len(units), {at: rank for rank, at in enumerate(units)}
    if n < 2:  # noqa: PLR2004 - before and after
        return {}
    moments = sorted({round(n * part / (MOMENTS + 1)) for part in range(1, MOMENTS + 1)} - {0, n})
    logs, ranks = dict[int, float](), dict[int, list[int]]()
    for number, group in enumerate(groups):
        ranks[number] = sorted(place[at] for at in group if at in place)
        later = np.searchsorted(ranks[number], moments)
        each = [
            log_e_overlap(n, len(ranks[number]), n - moment, len(ranks[number]) - int(before))
            for moment, before in zip(moments, later, strict=True)
        ]
        logs[number] = float(np.logaddexp.reduce(each)) - math.log(len(each))
    found = {}
    for name in affected({str(number): evidence for number, evidence in logs.items()}, alpha):
        number = int(name)
        k = len(ranks[number])
        before = max(range(k), key=lambda first: log_e_overlap(n, k, n - ranks[number][first], k - first))
        since = ranks[number][before]
        found[number] = NewSince(
            since=answers[units[since]].started_at,
            is_first=not before,
            before=_rounded(before / since) if since else 0.0,
            now=_rounded((k - before) / (n - since)),
            evidence_log10=_rounded(logs[number] / math.log(10.0)),
        )
    return found


def _differences(
    groups: Sequence[_Group], bad: Sequence[ClusteredAnswer], good: Sequence[ClusteredAnswer], alpha: float
) -> dict[int, tuple[OverRepresented, ...]]:
    """Return the values that each group has more often than the answers it is compared with."""
    uses = Counter(trait for answer in (*bad, *good) for trait in answer.traits)
    tested = sorted(uses, key=lambda trait: (-uses[trait], trait))[:MAX_VALUES]
    logs: dict[str, float] = {}
    found: dict[str, tuple[int, OverRepresented]] = {}
    for number, group in enumerate(groups):
        inside = [bad[at] for at in _units(bad, group.members).values()]
        alike = [good[at] for at in _units(good, group.like).values()]
        like_questions = len(alike) >= MIN_LIKE
        if not like_questions:
            own = {answer.conversation for answer in inside}
            some = [*bad, *good]
            alike = [some[at] for name, at in _units(some, range(len(some))).items() if name not in own]
        if not alike:
            continue
        have, have_not = (Counter(trait for answer in side for trait in answer.traits) for side in (inside, alike))
        n = len(inside) + len(alike)
        for trait in tested:
            name = f"{number} {len(logs)}"
            logs[name] = log_e_overlap(n, have[trait] + have_not[trait], len(inside), have[trait])
            found[name] = (
                number,
                OverRepresented(
                    field=trait[0],
                    value=trait[1],
                    in_cluster=_rounded(have[trait] / len(inside)),
                    in_others=_rounded(have_not[trait] / len(alike)),
                    evidence_log10=_rounded(logs[name] / math.log(10.0)),
                    like_questions=like_questions,
                ),
            )
    named: dict[int, tuple[OverRepresented, ...]] = {}
    for name in affected(logs, alpha):
        number, difference = found[name]
        named[number] = (*named.get(number, ()), difference)[:MAX_DIFFERENCES]
    return named


class _Asked(NamedTuple):
    """The answers that were drawn, bad and good ones, and how many each of them stands for."""

    bad: Sequence[ClusteredAnswer]
    good: Sequence[ClusteredAnswer]
    times_bad: float
    times_good: float


def _cluster(group: _Group, asked: _Asked, scope: Scope, keywords: tuple[str, ...]) -> AnswerCluster:
    inside, like = [asked.bad[at] for at in group.members], [asked.good[at] for at in group.like]
    members = {answer.id for answer in inside}
    times = [asked.times_bad] * len(inside) + [asked.times_good] * len(like)
    newest = sorted(inside, key=lambda answer: (-answer.started_at, answer.id))
    return AnswerCluster(
        name=", ".join(keywords[:_SHOWN_WORDS]),
        keywords=keywords,
        n=len(inside),
        conversations=len(_units(asked.bad, group.members)),
        share=share_by_conversation([(answer, answer.id in members) for answer in asked.bad]),
        no_good_answer=share_by_conversation([(answer, answer.no_good_answer) for answer in (*inside, *like)], times),
        trend=_trend(asked.bad, members, scope),
        examples=tuple(
            ClusterExample(id=answer.id, started_at=answer.started_at, question=answer.question, claim=answer.claim)
            for answer in newest[:MAX_EXAMPLES]
        ),
    )


def share_by_conversation(
    answers: Sequence[tuple[ClusteredAnswer, bool]], times: Sequence[float] | None = None
) -> Share:
    """Return the share of answers for which something holds, with Wilson's interval; conversations are the unit.

    Each answer stands for 1/rate of the traffic, and that many `times`. The variance of the ratio is that of the
    conversations' totals (W. G. Cochran 1977, Sampling techniques, chapter 9); with it the effective number of answers
    is p (1 - p) / variance, between 1 and what independent answers of these weights would have.
    """
    weights = [(1.0 if times is None else times[at]) / answer.rate for at, (answer, _) in enumerate(answers)]
    total = math.fsum(weights)
    ratio = min(1.0, math.fsum(weight for weight, (_, holds) in zip(weights, answers, strict=True) if holds) / total)
    deviations, of_conversation = dict[str, float](), dict[str, float]()
    for weight, (answer, holds) in zip(weights, answers, strict=True):
        name = answer.conversation
        deviations[name] = deviations.get(name, 0.0) + weight * (holds - ratio)
        of_conversation[name] = of_conversation.get(name, 0.0) + weight
    most = total**2 / math.fsum(weight**2 for weight in weights)
    variance = math.fsum(value**2 for value in deviations.values()) / total**2
    if variance > 0.0:
        n_eff = max(1.0, min(most, ratio * (1.0 - ratio) / variance))
    else:
        n_eff = total**2 / math.fsum(value**2 for value in of_conversation.values())
    low, high = wilson(min(ratio * n_eff, n_eff), n_eff)
    return Share(ratio=_rounded(ratio), ci_low=_rounded(low), ci_high=_rounded(high), n=len(answers))


def _trend(answers: Sequence[ClusteredAnswer], members: set[str], scope: Scope) -> tuple[TrendStep, ...]:
    length = max(scope.until - scope.since, 1.0) / TREND_PARTS
    inside, every = [0] * TREND_PARTS, [0] * TREND_PARTS
    for answer in answers:
        part = min(TREND_PARTS - 1, max(0, int((answer.started_at - scope.since) / length)))
        every[part] += 1
        inside[part] += answer.id in members
    return tuple(TrendStep(since=scope.since + at * length, n=inside[at], of=every[at]) for at in range(TREND_PARTS))


def _rounded(value: float) -> float:
    return round(value, 6) + 0.0

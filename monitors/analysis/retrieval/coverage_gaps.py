"""Questions that the knowledge base cannot answer, by topic: declined, without passages, or with a low score.

Pure: `gaps_of` takes exchanges that were read, `monitors.analysis.retrieval.source_reading` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gaugeway.records import Evaluation, Sample, Score, Skipped
from gaugeway.text.topics import NAMELESS, UNLIKE
from monitors.analysis.retrieval.sources import TREND_PARTS, RetrievedExchange, Scope, Share, Whole, share_of
from monitors.signals.answers import NONCOMMITTAL, declines

Gap: TypeAlias = Literal["declined", "no_passages", "low"]
GAPS: tuple[Gap, ...] = ("declined", "no_passages", "low")
MAX_EXAMPLES = 5
OTHERS = "other questions"
"""The name of what is in no topic."""
_DECLINED = frozenset({"abstained", "declined", "no_claims", "refusal"})
"""Reasons of skips that say that the answer does not answer: no claim in it, or a refusal."""
_SIGNAL = "abstained"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapExample:
    """A question without a good answer, newest first; its text as stored, redacted and cut to 300 characters."""

    id: str
    started_at: float
    question: str
    gap: Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class GapTrend:
    """A twelfth of the window, from Unix time `since` on: questions of the topic, and gaps among them."""

    since: float
    questions: int
    gaps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGaps:
    """The gaps of one topic, named after its typical words.

    `questions` are about it, `share` of the traffic; `gaps` of them have no good answer, `ratio` of the topic's
    traffic. Each is counted once, under the first of `declined` (the answer does not answer), `no_passages` (the
    retrieval found nothing) and `low` (the score fails the metric's threshold).
    """

    topic: str
    questions: int
    share: Share | None
    gaps: int
    ratio: Share | None
    declined: int
    no_passages: int
    low: int
    trend: tuple[GapTrend, ...]
    examples: tuple[GapExample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """The topics of one app over a window, those with most unanswered traffic first.

    `read` exchanges for which `metric` was computed were looked at (`complete` if these are all; `pending` more are
    read by the next report). With fewer than 24 questions, or without stored texts, there is one topic only, `OTHERS`.
    """

    app: str
    metric: str
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    questions: int
    gaps: int
    topics: tuple[TopicGaps, ...]


def is_declined(sample: Sample, evaluations: Iterable[Evaluation]) -> bool:
    """Return whether an answer does not answer: the signal `abstained`, a metric or the provider says so.

    Where the signal was not stored, it is computed from the stored text.

    >>> from gaugeway.records import Sample
    >>> is_declined(Sample(id="x", started_at=0.0, response="I don't know."), ())
    True
    """
    if sample.skip_reason in _DECLINED:
        return True
    computed = False
    for one in evaluations:
        if isinstance(one.outcome, Skipped) and one.outcome.reason in _DECLINED:
            return True
        if isinstance(one.outcome, Score):
            if one.outcome.reason.endswith(NONCOMMITTAL) or (one.metric == _SIGNAL and one.outcome.value > 0.0):
                return True
            computed |= one.metric == _SIGNAL
    return not computed and declines(sample) == 1.0


def gap_of(one: RetrievedExchange) -> Gap | None:
    """Return why a question has no good answer; None if it has one, or it is not known."""
    if one.declined:
        return "declined"
    if one.found_nothing:
        return "no_passages"
    return "low" if one.passed is False else None


def gaps_of(exchanges: Sequence[RetrievedExchange], scope: Scope) -> GapReport:
    """Build the report from exchanges of one app, whose topics are known."""
    asked = [one for one in exchanges if one.question or one.declined or one.found_nothing or one.score is not None]
    by_topic: dict[str, list[RetrievedExchange]] = {}
    for one in asked:
        name = OTHERS if one.topic in ("", UNLIKE, NAMELESS) else one.topic.removeprefix("topic:")
        by_topic.setdefault(name, []).append(one)
    whole = Whole([one.rate for one in asked])
    topics = [_topic(name, some, whole, scope) for name, some in by_topic.items()]
    return GapReport(
        app=scope.app,
        metric=scope.metric,
        since=scope.since,
        until=scope.until,
        read=len(exchanges),
        complete=scope.complete,
        pending=scope.pending,
        questions=len(asked),
        gaps=sum(one.gaps for one in topics),
        topics=tuple(sorted(topics, key=lambda one: (-_volume(one), one.topic))),
    )


def _topic(name: str, some: Sequence[RetrievedExchange], whole: Whole, scope: Scope) -> TopicGaps:
    found = [(one, gap) for one in some if (gap := gap_of(one)) is not None]
    kinds = [gap for _, gap in found]
    newest = sorted(found, key=lambda pair: (-pair[0].started_at, pair[0].id))
    return TopicGaps(
        topic=name,
        questions=len(some),
        share=share_of([one.rate for one in some], whole),
        gaps=len(found),
        ratio=share_of([one.rate for one, _ in found], Whole([one.rate for one in some])),
        declined=kinds.count("declined"),
        no_passages=kinds.count("no_passages"),
        low=kinds.count("low"),
        trend=_trend(some, scope),
        examples=tuple(
            GapExample(id=one.id, started_at=one.started_at, question=one.question, gap=gap)
            for one, gap in newest[:MAX_EXAMPLES]
        ),
    )


def _volume(one: TopicGaps) -> float:
    """Return the share of the app's traffic that is a gap of this topic."""
    return one.share.ratio * one.ratio.ratio if one.share is not None and one.ratio is not None else 0.0


def _trend(some: Sequence[RetrievedExchange], scope: Scope) -> tuple[GapTrend, ...]:
    length = max(scope.until - scope.since, 1.0) / TREND_PARTS
    questions, gaps = [0] * TREND_PARTS, [0] * TREND_PARTS
    for one in some:
        part = min(TREND_PARTS - 1, max(0, int((one.started_at - scope.since) / length)))
        questions[part] += 1
        gaps[part] += gap_of(one) is not None
    return tuple(
        GapTrend(since=scope.since + at * length, questions=questions[at], gaps=gaps[at]) for at in range(TREND_PARTS)
    )

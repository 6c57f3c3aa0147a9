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
    for evaluation in evaluations:
        if isinstance(evaluation.outcome, Skipped) and evaluation.outcome.reason in _DECLINED:
            return True
        if isinstance(evaluation.outcome, Score):
            if evaluation.outcome.reason.endswith(NONCOMMITTAL) or (
                evaluation.metric == _SIGNAL and evaluation.outcome.value > 0.0
            ):
                return True
            computed |= evaluation.metric == _SIGNAL
    return not computed and declines(sample) == 1.0


def gap_of(exchange: RetrievedExchange) -> Gap | None:
    """Return why a question has no good answer; None if it has one, or it is not known."""
    if exchange.declined:
        return "declined"
    if exchange.found_nothing:
        return "no_passages"
    return "low" if exchange.passed is False else None


def gaps_of(exchanges: Sequence[RetrievedExchange], scope: Scope) -> GapReport:
    """Build the report from exchanges of one app, whose topics are known."""
    asked = [
        exchange
        for exchange in exchanges
        if exchange.question or exchange.declined or exchange.found_nothing or exchange.score is not None
    ]
    by_topic: dict[str, list[RetrievedExchange]] = {}
    for exchange in asked:
        name = OTHERS if exchange.topic in ("", UNLIKE, NAMELESS) else exchange.topic.removeprefix("topic:")
        by_topic.setdefault(name, []).append(exchange)
    whole = Whole([exchange.rate for exchange in asked])
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
        gaps=sum(topic.gaps for topic in topics),
        topics=tuple(sorted(topics, key=lambda topic: (-_volume(topic), topic.topic))),
    )


def _topic(name: str, some: Sequence[RetrievedExchange], whole: Whole, scope: Scope) -> TopicGaps:
    found = [(exchange, gap) for exchange in some if (gap := gap_of(exchange)) is not None]
    kinds = [gap for _, gap in found]
    newest = sorted(found, key=lambda pair: (-pair[0].started_at, pair[0].id))
    return TopicGaps(
        topic=name,
        questions=len(some),
        share=share_of([exchange.rate for exchange in some], whole),
        gaps=len(found),
        ratio=share_of([exchange.rate for exchange, _ in found], Whole([exchange.rate for exchange in some])),
        declined=kinds.count("declined"),
        no_passages=kinds.count("no_passages"),
        low=kinds.count("low"),
        trend=_trend(some, scope),
        examples=tuple(
            GapExample(id=exchange.id, started_at=exchange.started_at, question=exchange.question, gap=gap)
            for exchange, gap in newest[:MAX_EXAMPLES]
        ),
    )


def _volume(topic: TopicGaps) -> float:
    """Return the share of the app's traffic that is a gap of this topic."""
    return topic.share.ratio * topic.ratio.ratio if topic.share is not None and topic.ratio is not None else 0.0


def _trend(some: Sequence[RetrievedExchange], scope: Scope) -> tuple[GapTrend, ...]:
    length = max(scope.until - scope.since, 1.0) / TREND_PARTS
    questions, gaps = [0] * TREND_PARTS, [0] * TREND_PARTS
    for exchange in some:
        part = min(TREND_PARTS - 1, max(0, int((exchange.started_at - scope.since) / length)))
        questions[part] += 1
        gaps[part] += gap_of(exchange) is not None
    return tuple(
        GapTrend(since=scope.since + at * length, questions=questions[at], gaps=gaps[at]) for at in range(TREND_PARTS)
    )

"""What each source of an app's passages did for the answers: uses, citations, contradictions, and effect on scores.

Pure: `reported` takes exchanges that were read, `monitors.analysis.retrieval.source_reading` reads them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from monitors.analysis.retrieval.passage_use import PassageUse
from monitors.statistics.agreement import wilson
from monitors.statistics.attribution import (
    ALPHA,
    Contrast,
    MatchedMeans,
    ScoredAnswer,
    contrast,
    matched_means,
    retrievals_of,
)
from monitors.statistics.clusters import QUESTION, SESSION, name_of

MAX_SOURCES = 2_000
"""Sources of an app that are kept apart, the most used ones; the others are counted together."""
MAX_WORST = 5
TREND_PARTS = 12
PERIODS = 4
"""Parts of the window within which exchanges are compared: a drop of the whole app is not the fault of a new source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedExchange:
    """One exchange with the names of its passages, one each, "" for one without a name, and their `origins`.

    `score`, in [0, 1], is the metric's on the "higher is better" scale, None without one; `passed` compares it with the
    metric's threshold. `rate` is the probability, in (0, 1], with which the metric was computed for the exchange.
    `cited` and `contradicted` are indexes of passages, None where no judge looked. `declined`: the answer does not
    answer; `found_nothing`: the retrieval found no passages. `use` is how an answer used its passages; None without
    any.
    """

    id: str
    started_at: float
    model: str
    rate: float
    passages: tuple[str, ...]
    question: str = ""
    topic: str = ""
    cluster: str | None = None
    score: float | None = None
    passed: bool | None = None
    cited: frozenset[int] | None = None
    contradicted: frozenset[int] | None = None
    declined: bool = False
    found_nothing: bool = False
    use: PassageUse | None = None
    origins: tuple[str, ...] = ()

    @property
    def sources(self) -> frozenset[str]:
        """The names of its passages and of what they come from."""
        return frozenset((*self.passages, *self.origins)) - {""}

    def places_of(self, name: str) -> list[int]:
        """Return the indexes of the passages that are called so, or come from there."""
        return [place for place, pair in enumerate(zip_longest(self.passages, self.origins)) if name in pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of the traffic with its 95 % interval, from `n` exchanges."""

    ratio: float
    ci_low: float
    ci_high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPart:
    """A twelfth of the window, from Unix time `since` on: exchanges with the source, and their mean score."""

    since: float
    uses: int
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source of an app's passages.

    `uses` exchanges got it, `share` of the traffic. `in_bad` is the share of the bad answers (those that fail the
    metric's threshold) that got it, `in_good` that of the good ones; None without such answers. Of `judged` uses a
    judge said which passages the claims rest on: in `cited` it supports a claim, in `never_used` it neither supports
    nor contradicts one. In `contradicted` of `checked` uses it contradicts the answer. `mean_with` and `mean_without`
    are mean scores of exchanges with and without it, matched by topic, model and period, on the metric's own scale;
    `effect` is the first minus the second, with its 95 % interval; `matched` exchanges with it have one to compare
    with. `evidence_log10` is log10 of its e-value, and `named` says that it lowers scores, at the report's
    false-discovery rate. `worst_exchanges` are the ids of the worst scored ones.
    """

    name: str
    uses: int
    share: Share | None
    in_bad: Share | None
    in_good: Share | None
    judged: int
    cited: int | None
    never_used: int | None
    checked: int
    contradicted: int | None
    matched: int
    mean_with: float | None
    mean_without: float | None
    effect: float | None
    effect_ci_low: float | None
    effect_ci_high: float | None
    evidence_log10: float
    named: bool
    first_used: float
    last_used: float
    trend: tuple[TrendPart, ...]
    worst_exchanges: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """All sources of one app over a window, by use.

    `read` exchanges for which `metric` was computed were looked at (`complete` if these are all); `pending` more
    are read by the next report, and without these an incomplete one holds as many as a report may. `with_passages`
    of them have passages, `scored` of these a score. `judged` say which passages the claims rest on; 0 means that
    no metric that finds that out is enabled. `other_sources` beyond `MAX_SOURCES` have `other_uses`. Of the sources
    that are `named`, at most a share `alpha` is expected to be wrong.
    """

    app: str
    metric: str
    lower_is_better: bool
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    with_passages: int
    scored: int
    bad: int
    judged: int
    alpha: float
    sources: tuple[Source, ...]
    other_sources: int
    other_uses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a report is about: app, metric and window, in Unix seconds.

    `complete` if all of its exchanges were read; `pending` of them the next report will read.
    """

    app: str
    metric: str
    since: float
    until: float
    lower_is_better: bool = False
    complete: bool = True
    pending: int = 0


def reported(exchanges: Sequence[RetrievedExchange], scope: Scope, *, alpha: float = ALPHA) -> SourceReport:
    """Build the report from the exchanges of one app; every exchange counts once for each source it got."""
    got = [exchange for exchange in exchanges if any(exchange.passages)]
    uses = Counter(name for exchange in got for name in exchange.sources)
    kept = sorted(uses, key=lambda name: (-uses[name], name))[:MAX_SOURCES]
    index = {name: number for number, name in enumerate(kept)}
    scored = [exchange for exchange in got if exchange.score is not None]
    retrievals = retrievals_of([_answer(exchange, scope) for exchange in scored], kept)
    contrasted, means = contrast(retrievals, alpha), matched_means(retrievals)
    by_source: list[list[RetrievedExchange]] = [[] for _ in kept]
    for exchange in got:
        for name in exchange.sources & index.keys():
            by_source[index[name]].append(exchange)
    groups = _Groups(got)
    sources = tuple(
        _source(name, by_source[at], at, groups=groups, scope=scope, means=means, contrasted=contrasted)
        for at, name in enumerate(kept)
    )
    return SourceReport(
        app=scope.app,
        metric=scope.metric,
        lower_is_better=scope.lower_is_better,
        since=scope.since,
        until=scope.until,
        read=len(exchanges),
        complete=scope.complete,
        pending=scope.pending,
        with_passages=len(got),
        scored=len(scored),
        bad=sum(exchange.passed is False for exchange in scored),
        judged=sum(exchange.cited is not None for exchange in got),
        alpha=alpha,
        sources=sources,
        other_sources=len(uses) - len(kept),
        other_uses=sum(uses.values()) - sum(uses[name] for name in kept),
    )


def _answer(exchange: RetrievedExchange, scope: Scope) -> ScoredAnswer:
    """Return a scored exchange, to be compared with those of the same topic, model and quarter of the window."""
    length = max(scope.until - scope.since, 1.0)
    period = min(PERIODS - 1, max(0, int(PERIODS * (exchange.started_at - scope.since) / length)))
    return ScoredAnswer(
        id=exchange.id,
        score=exchange.score or 0.0,
        rate=exchange.rate,
        traits=tuple(exchange.sources),
        stratum=(exchange.topic, exchange.model, period),
        question=name_of(exchange.cluster, QUESTION),
        session=name_of(exchange.cluster, SESSION),
    )


class _Groups:
    """All exchanges with passages, the bad and the good answers among them."""

    def __init__(self, got: Sequence[RetrievedExchange]) -> None:
        self.everything = Whole([exchange.rate for exchange in got])
        self.bad = Whole([exchange.rate for exchange in got if exchange.passed is False])
        self.good = Whole([exchange.rate for exchange in got if exchange.passed])


def _source(
    name: str,
    got: Sequence[RetrievedExchange],
    at: int,
    *,
    groups: _Groups,
    scope: Scope,
    means: MatchedMeans,
    contrasted: Contrast,
) -> Source:
    bad, good = ([exchange.rate for exchange in got if exchange.passed is flag] for flag in (False, True))
    places = [(exchange, exchange.places_of(name)) for exchange in got]
    cited = [not exchange.cited.isdisjoint(some) for exchange, some in places if exchange.cited is not None]
    against = [
        not exchange.contradicted.isdisjoint(some) for exchange, some in places if exchange.contradicted is not None
    ]
    unused = sum(
        exchange.cited.isdisjoint(some) and (exchange.contradicted or frozenset()).isdisjoint(some)
        for exchange, some in places
        if exchange.cited is not None
    )
    effect = _effect(means, at, flipped=scope.lower_is_better)
    scored = sorted(
        (exchange for exchange in got if exchange.score is not None),
        key=lambda exchange: (exchange.score, -exchange.started_at),
    )
    return Source(
        name=name,
        uses=len(got),
        share=share_of([exchange.rate for exchange in got], groups.everything),
        in_bad=share_of(bad, groups.bad),
        in_good=share_of(good, groups.good),
        judged=len(cited),
        cited=sum(cited) if cited else None,
        never_used=unused if cited else None,
        checked=len(against),
        contradicted=sum(against) if against else None,
        matched=effect.matched,
        mean_with=effect.mean_with,
        mean_without=effect.mean_without,
        effect=effect.difference,
        effect_ci_low=effect.ci_low,
        effect_ci_high=effect.ci_high,
        evidence_log10=_log10(contrasted.log_e_alone.get(at, float(contrasted.log_e[at]))),
        named=at in contrasted.log_e_alone,
        first_used=min(exchange.started_at for exchange in got),
        last_used=max(exchange.started_at for exchange in got),
        trend=_trend(got, scope),
        worst_exchanges=tuple(exchange.id for exchange in scored[:MAX_WORST]),
    )


class _Effect(NamedTuple):
    matched: int = 0
    mean_with: float | None = None
    mean_without: float | None = None
    difference: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None


def _effect(means: MatchedMeans, at: int, *, flipped: bool) -> _Effect:
    """Return the matched means of a source on the metric's own scale."""
    if not means.n[at]:
        return _Effect()
    inside, outside = float(means.with_source[at]), float(means.without[at])
    low, high = means.interval_of(at)
    if flipped:
        inside, outside, low, high = 1.0 - inside, 1.0 - outside, -high, -low
    numbers = (inside, outside, inside - outside, max(-1.0, low), min(1.0, high))
    return _Effect(int(means.n[at]), *map(_rounded, numbers))


class Whole:
    """A part of the traffic: `n` exchanges that stand for `total`, from their inclusion probabilities."""

    def __init__(self, rates: Sequence[float]) -> None:
        self.n = len(rates)
        self.total = sum(1.0 / rate for rate in rates)
        self.n_eff = self.total**2 / sum(1.0 / rate**2 for rate in rates) if rates else 0.0


def share_of(part: Sequence[float], whole: Whole) -> Share | None:
    """Return the share of `whole` that exchanges with these inclusion probabilities are; None without a whole."""
    if not whole.n:
        return None
    ratio = min(1.0, sum(1.0 / rate for rate in part) / whole.total)
    low, high = wilson(ratio * whole.n_eff, whole.n_eff)
    return Share(ratio=_rounded(ratio), ci_low=_rounded(low), ci_high=_rounded(high), n=whole.n)


def _trend(got: Sequence[RetrievedExchange], scope: Scope) -> tuple[TrendPart, ...]:
    length = max(scope.until - scope.since, 1.0) / TREND_PARTS
    parts: list[list[RetrievedExchange]] = [[] for _ in range(TREND_PARTS)]
    for exchange in got:
        parts[min(TREND_PARTS - 1, max(0, int((exchange.started_at - scope.since) / length)))].append(exchange)
    return tuple(
        TrendPart(since=scope.since + at * length, uses=len(part), mean=_mean(part, flipped=scope.lower_is_better))
        for at, part in enumerate(parts)
    )


def _mean(some: Sequence[RetrievedExchange], *, flipped: bool) -> float | None:
    known = [(exchange.score, exchange.rate) for exchange in some if exchange.score is not None]
    if not known:
        return None
    # as `hajek` has it, without its error: there are tens of thousands of these, most of a few scores
    mean = sum(score / rate for score, rate in known) / sum(1.0 / rate for _, rate in known)
    return _rounded(1.0 - mean if flipped else mean)


def _log10(natural: float) -> float:
    return _rounded(natural / math.log(10.0))


def _rounded(value: float) -> float:
    """Round to six decimals: what is beyond is rounding error."""
    return round(value, 6) + 0.0

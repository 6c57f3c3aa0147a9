"""What `monitors.analysis` computes on request: sources, topics, comparisons and labels, on the admin port."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, TypeAlias

from litestar import get
from litestar.exceptions import ClientException
from litestar.params import FromQuery, QueryParameter

from gaugeway.storage.stores import Query, Store
from monitors.analysis import ab_compare as comparing
from monitors.analysis.ab_query import PERIOD, VersionQuery, compare_versions, period_of
from monitors.analysis.answer_clusters import ClusterReport, Kind
from monitors.analysis.captured import UnknownMetricError, moment
from monitors.analysis.human_labels import HALF_WIDTH, WINDOW_S, Labelled, Passings, default_passing, labelled
from monitors.analysis.judge_check import JudgeCheck, judge_checks
from monitors.analysis.retrieval.context_cost import ContextCostReport
from monitors.analysis.retrieval.source_reading import DAY_S, Reports, SourceReports
from monitors.analysis.retrieval.sources import Source, SourceReport
from monitors.metrics.registry import zero_is_best

MAX_PERIOD_S = 90 * DAY_S
Order: TypeAlias = Literal["named", "uses", "bad", "contradicted", "unused"]
ORDERS: tuple[Order, ...] = ("named", "uses", "bad", "contradicted", "unused")
_Seconds: TypeAlias = Annotated[float, QueryParameter(gt=0, description="length of the period, seconds")]
_Until: TypeAlias = Annotated[
    float | None, QueryParameter(ge=0, le=1e10, description="end of the period, Unix time; without it, now")
]


def source_handlers(
    reports: SourceReports, advised: Callable[[ContextCostReport], Awaitable[ContextCostReport]] | None = None
) -> list[Any]:
    """The handlers; the admin app guards them. `advised` adds to the advice on costs what trials found."""

    async def read(app: str, metric: str | None, since_s: float, until: float | None) -> Reports:
        try:
            return await reports.read(app, metric, since_s=since_s, until=until)
        except UnknownMetricError as error:
            raise ClientException(f"metric: {error}") from error

    @get("/api/sources")
    async def sources(
        *,
        app: FromQuery[str],
        metric: FromQuery[str | None] = None,
        source: FromQuery[str | None] = None,
        since_s: _Seconds = DAY_S,
        until: _Until = None,
        order: Annotated[str, QueryParameter(pattern="^(named|uses|bad|contradicted|unused)$")] = "named",
        limit: Annotated[int, QueryParameter(ge=1, le=2000)] = 100,
    ) -> dict[str, Any]:
        report = (await read(app, metric, since_s, until)).sources
        total = len(report.sources)
        chosen = [listed for listed in ordered(report, order) if source in (None, listed.name)]  # type: ignore[arg-type]  # the pattern says so
        return asdict(replace(report, sources=tuple(chosen[:limit]))) | {"total_sources": total}

    @get("/api/topics")
    async def topics(
        *, app: FromQuery[str], metric: FromQuery[str | None] = None, since_s: _Seconds = DAY_S, until: _Until = None
    ) -> dict[str, Any]:
        return asdict((await read(app, metric, since_s, until)).gaps)

    @get("/api/clusters")
    async def clusters(
        *,
        app: FromQuery[str],
        kind: Annotated[Kind, QueryParameter(description="which answers: failures, declines or questions")],
        metric: FromQuery[str | None] = None,
        since: Annotated[str, QueryParameter(description="start: a span before now (24h) or an ISO time")] = "24h",
        until: Annotated[str, QueryParameter(description="end, as `since`; without it, now")] = "",
    ) -> ClusterReport:
        begin, end = period(since, until, time.time())
        try:
            return await reports.clusters(app, kind, metric, since_s=begin, until=end)
        except UnknownMetricError as error:
            raise ClientException(f"metric: {error}") from error

    @get("/api/context-costs")
    async def context_costs(
        *, app: FromQuery[str], metric: FromQuery[str | None] = None, since_s: _Seconds = DAY_S, until: _Until = None
    ) -> dict[str, Any]:
        costs = (await read(app, metric, since_s, until)).costs
        return asdict(costs if advised is None else await advised(costs))

    return [sources, topics, clusters, context_costs]


def period(since: str, until: str, now: float) -> tuple[float, float | None]:
    """Return the length of a period in seconds, and its end if it is not now. Raises ClientException.

    >>> period("1h", "", 7200.0), period("2h", "1h", 7200.0)
    ((3600.0, None), (3600.0, 3600.0))
    """
    ends = {}
    for name, text in (("since", since), ("until", until or "0s")):
        try:
            ends[name] = moment(text, now)
        except ValueError as error:
            raise ClientException(f"{name}: {error}") from None
    if not 0.0 < (length := ends["until"] - ends["since"]) <= MAX_PERIOD_S:
        raise ClientException("since: must be before until, and at most 90 days")
    return length, ends["until"] if until else None


def ordered(report: SourceReport, order: Order) -> list[Source]:
    """Return the sources: those that lower scores first, or by uses, share in bad answers, contradictions or disuse."""
    sign = -1.0 if report.lower_is_better else 1.0

    def key(source: Source) -> tuple[float | str, ...]:
        named, change = source.named, sign * round(source.effect or 0.0, 2)
        end = sign * ((source.effect_ci_low if report.lower_is_better else source.effect_ci_high) or 0.0)
        by: dict[Order, tuple[float, ...]] = {
            "named": (not named, source.effect is None, named and -source.evidence_log10, end >= 0.0, change),
            "uses": (),
            "bad": (-(source.in_bad.ratio if source.in_bad is not None else 0.0),),
            "contradicted": (-(source.contradicted or 0),),
            "unused": (-(source.never_used or 0),),
        }
        return (*by[order], -source.uses, source.name)

    return sorted(report.sources, key=key)


WEEK_S = 7 * 86_400.0
MOST, READING_S = 20_000, 2.0
"""Where the store cannot aggregate: scores read per version and metric, and the time limit for reading."""
MOST_QUESTIONS, WITHIN_S = 2000, 0.12
"""Scores of both versions up to which they are read individually with their questions; time limit for counting."""


def compare_handlers(store: Store, lower_is_better: Callable[[str], bool] = zero_is_best) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/compare")
    async def compare(
        *,
        by: FromQuery[str],
        a: FromQuery[str],
        b: FromQuery[str],
        app: FromQuery[str | None] = None,
        metric: FromQuery[list[str] | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = WEEK_S,
        delta: Annotated[
            float, QueryParameter(ge=0, lt=1, description="acceptable loss of B against A")
        ] = comparing.MARGIN,
        alpha: Annotated[
            float, QueryParameter(gt=0, lt=1, description="probability of any wrong decision")
        ] = comparing.ALPHA,
    ) -> dict[str, Any]:
        now = time.time()
        span: dict[str, Any] = {"since": now - since_s, "until": now + 1.0}
        span |= {
            "margin": delta,
            "alpha": alpha,
            "few": MOST_QUESTIONS,
            "within_s": WITHIN_S,
            "most": MOST,
            "reading_s": READING_S,
        }
        wanted = VersionQuery(by=by, a=a, b=b, metrics=metric or (), app=app, **span)
        try:
            if by == PERIOD:
                wanted = replace(wanted, periods=(period_of(a, now), period_of(b, now)))
            found = await compare_versions(store, wanted, lower_is_better=lower_is_better)
        except (ValueError, OverflowError) as error:
            raise ClientException(str(error)) from error
        answer = {"by": by, "a": a, "b": b, "delta": delta, "alpha": alpha, "decision": comparing.decision(found.rows)}
        return answer | {"partial": found.partial, "rows": [asdict(row) for row in found.rows]}

    return [compare]


def label_handlers(store: Store, passing: Passings = default_passing) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/labels")
    async def labels(
        app: FromQuery[str | None] = None,
        metric: FromQuery[str | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = WINDOW_S,
        half_width: Annotated[
            float, QueryParameter(gt=0, le=0.5, description="half width of the planned interval")
        ] = HALF_WIDTH,
    ) -> Sequence[Labelled]:
        now = time.time()
        query = Query(since=now - since_s, until=now + 1.0, app=app, metric=metric)
        return await labelled(store, query, passing=passing, half_width=half_width)

    @get("/api/judge-check")
    async def check(
        metric: FromQuery[str | None] = None,
        app: FromQuery[str | None] = None,
        truth: FromQuery[str | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = WINDOW_S,
    ) -> Sequence[JudgeCheck]:
        now = time.time()
        query = Query(since=now - since_s, until=now + 1.0, app=app, metric=metric)
        return await judge_checks(store, query, passing=passing, truth=truth)

    return [labels, check]

"""`GET /api/sources` and `GET /api/topics` on the admin port."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, TypeAlias

from litestar import get
from litestar.exceptions import ClientException
from litestar.params import FromQuery, QueryParameter

from monitors.analysis.metric_names import UnknownMetricError
from monitors.analysis.retrieval.source_reading import DAY_S, SourceReports
from monitors.analysis.retrieval.sources import Source, SourceReport

Order: TypeAlias = Literal["named", "uses", "bad", "contradicted", "unused"]
ORDERS: tuple[Order, ...] = ("named", "uses", "bad", "contradicted", "unused")
_Seconds: TypeAlias = Annotated[float, QueryParameter(gt=0, description="length of the period, seconds")]
_Until: TypeAlias = Annotated[
    float | None, QueryParameter(ge=0, le=1e10, description="end of the period, Unix time; without it, now")
]


def source_handlers(reports: SourceReports) -> list[Any]:
    """The handlers; the admin app guards them."""

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
        try:
            report = await reports.report(app, metric, since_s=since_s, until=until)
        except UnknownMetricError as error:
            raise ClientException(f"metric: {error}") from error
        total = len(report.sources)
        chosen = [listed for listed in ordered(report, order) if source in (None, listed.name)]  # type: ignore[arg-type]  # the pattern says so
        return asdict(replace(report, sources=tuple(chosen[:limit]))) | {"total_sources": total}

    @get("/api/topics")
    async def topics(
        *,
        app: FromQuery[str],
        metric: FromQuery[str | None] = None,
        since_s: _Seconds = DAY_S,
        until: _Until = None,
    ) -> dict[str, Any]:
        try:
            return asdict(await reports.gaps(app, metric, since_s=since_s, until=until))
        except UnknownMetricError as error:
            raise ClientException(f"metric: {error}") from error

    return [sources, topics]


def ordered(report: SourceReport, order: Order) -> list[Source]:
    """Return the sources: those that lower scores first, or by uses, share in bad answers, contradictions or disuse."""

    def key(source: Source) -> tuple[float, ...]:
        bad = source.in_bad.ratio if source.in_bad is not None else 0.0
        by: dict[Order, tuple[float, ...]] = {
            "named": (not source.named, -source.evidence_log10),
            "uses": (),
            "bad": (-bad,),
            "contradicted": (-(source.contradicted or 0),),
            "unused": (-(source.never_used or 0),),
        }
        return (*by[order], -source.uses)

    return sorted(report.sources, key=key)

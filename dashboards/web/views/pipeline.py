"""Pipeline: the funnel from a request to a score, the queue, and the judge."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from litestar import get
from litestar.params import FromQuery
from litestar.response import Template

from dashboards.web.readings.funnel import funnel_of
from dashboards.web.readings.gateway_scrape import Series, own, together
from dashboards.web.site import Page, Site
from dashboards.web.time_range import time_range
from gaugeway.storage.stores import OutcomeCount, Query
from monitors.analysis.gateway_counts import whole_buckets
from monitors.evaluation.retirement_watch import AHEAD_DAYS, days_left

MAX_METRICS = 100
"""Rows of the table of metrics."""
MAX_APPS = 200
"""Apps to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluations:
    """Outcome counts of one metric; `reasons` are (skipped or failed, reason, count), the most frequent first."""

    metric: str
    score: int = 0
    skipped: int = 0
    failed: int = 0
    reasons: tuple[tuple[str, str, int], ...] = ()

    @property
    def total(self) -> int:
        """Evaluations, whatever their outcome."""
        return self.score + self.skipped + self.failed


def evaluations_of(stored: Iterable[OutcomeCount]) -> list[Evaluations]:
    """Outcome counts by metric; at most `MAX_METRICS`, those with the most evaluations."""
    outcomes: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[tuple[str, str]]] = {}
    for count in stored:
        if count.metric:
            outcomes.setdefault(count.metric, Counter())[count.outcome] += count.n
            of_metric = reasons.setdefault(count.metric, Counter())
            if count.outcome != "score":
                of_metric[count.outcome, count.reason] += count.n
    rows = [
        Evaluations(
            metric=metric,
            score=sums["score"],
            skipped=sums["skipped"],
            failed=sums["failed"],
            reasons=tuple((*key, n) for key, n in reasons[metric].most_common()),
        )
        for metric, sums in outcomes.items()
    ]
    return sorted(heapq.nlargest(MAX_METRICS, rows, key=lambda row: row.total), key=lambda row: row.metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retiring:
    """A model whose endpoint shuts it down on `day`, in `days` calendar days (UTC); `near` from 30 days before."""

    model: str
    day: str
    days: int
    near: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """How the next judge agrees with the present one on the anchors of a metric; shares in [0, 1]."""

    model: str
    metric: str
    ratio: float
    low: float
    high: float
    anchors: float
    shift: float


def retiring_of(series: Series, now: float) -> tuple[Retiring, ...]:
    """The models with an announced end, the next one first."""
    rows = [
        (value, labels["judge_model"]) for labels, value in series.rows("gaugeway_judge_shutdown_timestamp_seconds")
    ]
    return tuple(
        Retiring(
            model=model,
            day=datetime.fromtimestamp(at, UTC).date().isoformat(),
            days=(days := days_left(at, now)),
            near=days <= AHEAD_DAYS,
        )
        for at, model in sorted(rows)
    )


def successor_of(series: Series) -> tuple[Successor, ...]:
    """The agreement of the next judge by metric."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for name in ("agreement_ratio", "agreement_low", "agreement_high", "anchors", "shift"):
        for labels, value in series.rows(f"gaugeway_judge_next_{name}"):
            found.setdefault((labels["judge_model"], labels["metric"]), {})[name.removeprefix("agreement_")] = value
    complete = {key: numbers for key, numbers in sorted(found.items()) if len(numbers) == 5}  # noqa: PLR2004 - all
    return tuple(Successor(model=model, metric=metric, **numbers) for (model, metric), numbers in complete.items())


_ROLES = {"small": "small judge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Judge requests, errors and cost (USD) since this process started; None where nothing was counted."""

    requests: float
    errors: tuple[tuple[str, float], ...]
    unusable: tuple[tuple[str, float], ...]
    cost_usd: float
    saved_usd: float
    hit_ratio: float | None
    spent_today_usd: float | None
    budget_usd: float | None
    factor: float | None
    blind: bool
    others_blind: tuple[tuple[str, str], ...] = ()
    """(role, model) of the other endpoints whose circuit is open."""
    retiring: tuple[Retiring, ...] = ()
    successor: tuple[Successor, ...] = ()


def judging_of(series: Series, budget_usd: float | None) -> Judging:
    """Judge figures from this process's series."""
    blind = sorted(
        (labels["role"], labels["judge_model"]) for labels, value in series.rows("gaugeway_judge_blind") if value > 0
    )
    looked = series.by("gaugeway_judge_cache_lookups_total", "result")
    lookups = sum(looked.values())
    spent = series.value("gaugeway_judge_budget_spent_usd") if budget_usd else None
    return Judging(
        requests=series.total("gaugeway_judge_requests_total"),
        errors=_largest(series.by("gaugeway_judge_errors_total", "judge_model", "error")),
        unusable=_largest(series.by("gaugeway_judge_unusable_total", "judge_model", "reason")),
        cost_usd=series.total("gaugeway_judge_cost_usd_total"),
        saved_usd=series.total("gaugeway_judge_cache_saved_usd_total"),
        hit_ratio=looked.get("hit", 0.0) / lookups if lookups else None,
        spent_today_usd=spent,
        budget_usd=budget_usd,
        factor=series.value("gaugeway_judge_budget_factor") if budget_usd else None,
        blind=any(role == "judge" for role, _ in blind),
        others_blind=tuple((_ROLES.get(role, role), model) for role, model in blind if role != "judge"),
        retiring=retiring_of(series, time.time()),
        successor=successor_of(series),
    )


def _largest(counts: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(((name, n) for name, n in counts.items() if n), key=lambda pair: -pair[1])[:20])


def pipeline_handlers(site: Site) -> list[Any]:
    """The handler of `/pipeline`."""

    @get("/pipeline")
    async def pipeline(request: Page, app: FromQuery[str] = "") -> Template:
        now = site.clock()
        chosen = time_range(request.query_params, now)
        since, until = whole_buckets(chosen.since, min(chosen.until, now), now)
        series = await own(site.registry)
        answers = await site.ask_gateways()
        seen = together(answers)
        counted = await site.counts.outcomes(since, until, app or None)
        stored = await site.insight.store.outcomes(Query(since=since, until=until, app=app or None))
        about = await site.insight.status()
        known = {capture.app for capture in site.insight.captured()} | {count.app for count in stored} | {app}
        return site.render(
            request,
            "pipeline.html",
            title="Pipeline",
            time_range=chosen,
            since=since,
            shown_until=min(until, now),
            app=app,
            apps=sorted(known - {""})[:MAX_APPS],
            funnel=funnel_of(counted, stored),
            gateways=site.gateways,
            answers=answers,
            waiting=seen.total("gaugeway_handoff_waiting"),
            queue=about["queue"],
            oldest_s=series.value("gaugeway_queue_oldest_seconds"),
            evaluations=evaluations_of(stored),
            late=series.total("gaugeway_late_scores_total"),
            uncovered=series.total("gaugeway_uncovered_scores_total"),
            worker_errors=_largest(series.by("gaugeway_worker_errors_total", "operation")),
            judge=about["judge"],
            judging=judging_of(series, site.config.judge.budget_usd_per_day),
        )

    return [pipeline]

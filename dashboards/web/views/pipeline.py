"""Pipeline: exchange outcomes from the gateway to the score, and the cost of judging."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from litestar import get
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import meter
from dashboards.web.format import shares
from dashboards.web.gateway_scrape import Answer, Series, ask_all, own
from dashboards.web.site import Page, Site
from monitors.evaluation.retirement_watch import AHEAD_DAYS, days_left

OUTCOMES = {
    "captured": "queued for evaluation",
    "sampled_out": "not selected by the capture rate",
    "back_pressure": "not selected because the queue was filling up",
    "opted_out": "the app opted out",
    "rejected": "refused by the gateway (key, limit, invalid request); not sent upstream",
    "overflow": "the capture buffer was full",
    "too_large": "larger than the size limit",
    "error": "could not be parsed or queued",
}
KINDS = {
    "answer": "an answer to a user; evaluated",
    "auxiliary": "an internal call (title, query rewriting, routing)",
    "resubmission": "a repeat of an earlier request",
    "no_answer": "an error, truncated stream, refusal or tool call",
}
LOST = ("overflow", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of a total; the percentages of all parts add up to 100."""

    name: str
    words: str
    count: float
    percent: float
    bar: Markup
    bad: bool = False


def parts_of(counts: Mapping[str, float], words: Mapping[str, str], bad: Sequence[str] = ()) -> list[Part]:
    """Parts of a total: known names in the order of `words`, then unknown ones."""
    names = [*words, *sorted(set(counts) - set(words))]
    percents = shares({name: counts.get(name, 0.0) for name in names})
    return [
        Part(
            name=name,
            words=words.get(name, ""),
            count=counts.get(name, 0.0),
            percent=percents[name],
            bar=meter(percents[name] / 100.0, title=f"{percents[name]:.1f} %"),
            bad=name in bad and counts.get(name, 0.0) > 0,
        )
        for name in names
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluations:
    """Outcome counts of one metric; `reasons` are (skipped or failed, reason, count)."""

    metric: str
    score: float = 0.0
    skipped: float = 0.0
    failed: float = 0.0
    reasons: tuple[tuple[str, str, float], ...] = ()


def evaluations_of(series: Series) -> list[Evaluations]:
    """Outcome counts by metric."""
    found: dict[str, dict[str, float]] = {}
    reasons: dict[str, list[tuple[str, str, float]]] = {}
    for labels, value in series.rows("gaugeway_evaluations_total"):
        sums = found.setdefault(labels["metric"], {})
        sums[labels["outcome"]] = sums.get(labels["outcome"], 0.0) + value
        if labels["reason"] and labels["outcome"] != "score":
            reasons.setdefault(labels["metric"], []).append((labels["outcome"], labels["reason"], value))
    return [
        Evaluations(
            metric=metric,
            score=sums.get("score", 0.0),
            skipped=sums.get("skipped", 0.0),
            failed=sums.get("failed", 0.0),
            reasons=tuple(sorted(reasons.get(metric, ()), key=lambda one: -one[2])),
        )
        for metric, sums in sorted(found.items())
    ]


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
    spent_bar: Markup | None
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
    bar = None
    if budget_usd and spent is not None:
        bar = meter(spent / budget_usd, title=f"{100 * spent / budget_usd:.0f} % of the day's budget")
    return Judging(
        requests=series.total("gaugeway_judge_requests_total"),
        errors=_largest(series.by("gaugeway_judge_errors_total", "judge_model", "error")),
        unusable=_largest(series.by("gaugeway_judge_unusable_total", "judge_model", "reason")),
        cost_usd=series.total("gaugeway_judge_cost_usd_total"),
        saved_usd=series.total("gaugeway_judge_cache_saved_usd_total"),
        hit_ratio=looked.get("hit", 0.0) / lookups if lookups else None,
        spent_today_usd=spent,
        budget_usd=budget_usd,
        spent_bar=bar,
        factor=series.value("gaugeway_judge_budget_factor") if budget_usd else None,
        blind=any(role == "judge" for role, _ in blind),
        others_blind=tuple((_ROLES.get(role, role), model) for role, model in blind if role != "judge"),
        retiring=retiring_of(series, time.time()),
        successor=successor_of(series),
    )


def _largest(counts: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(((name, n) for name, n in counts.items() if n), key=lambda one: -one[1])[:20])


def together(answers: Sequence[Answer]) -> Series:
    """Series of all gateways, merged."""
    total = Series()
    for one in answers:
        total = total.plus(one.series)
    return total


def pipeline_handlers(site: Site) -> list[Any]:
    """The handler of `/pipeline`."""

    @get("/pipeline")
    async def pipeline(request: Page) -> Template:
        series = await own(site.registry)
        answers = await ask_all(site.gateways, site.config.gateway.get("admin_token"))
        seen = together(answers)
        exchanges = seen.by("gaugeway_exchanges_total", "outcome")
        about = await site.insight.status()
        return site.render(
            request,
            "pipeline.html",
            title="Pipeline",
            answers=answers,
            total=sum(exchanges.values()),
            parts=parts_of(exchanges, OUTCOMES, LOST),
            kinds=parts_of(seen.by("gaugeway_captured_total", "kind"), KINDS),
            captured=seen.total("gaugeway_captured_total"),
            extractors=parts_of(seen.by("gaugeway_context_extractions_total", "extractor"), {}),
            waiting=seen.total("gaugeway_handoff_waiting"),
            queue=about["queue"],
            oldest_s=series.value("gaugeway_queue_oldest_seconds"),
            evaluations=evaluations_of(series),
            late=series.total("gaugeway_late_scores_total"),
            uncovered=series.total("gaugeway_uncovered_scores_total"),
            worker_errors=_largest(series.by("gaugeway_worker_errors_total", "operation")),
            judge=about["judge"],
            judging=judging_of(series, site.config.judge.budget_usd_per_day),
        )

    return [pipeline]

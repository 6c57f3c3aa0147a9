"""Pipeline: the funnel from a request to a score, the queue, and the judge."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from litestar import get
from litestar.params import FromQuery
from litestar.response import Template
from msgspec import Struct

from dashboards.web.gateways import Series, own, together
from dashboards.web.site import TEXTS, Page, Site
from dashboards.web.toolbar import time_range
from gaugeway.storage.stores import OutcomeCount, Query
from monitors.analysis.gateway_counts import whole_buckets
from monitors.evaluation.retirement_watch import AHEAD_DAYS, days_left

NOT_CAPTURED: Mapping[str, str] = TEXTS["not_captured"]
LOST = ("overflow", "error", "not stored")
NO_ANSWER: Mapping[str, str] = TEXTS["no_answer"]
"""Why an exchange is no answer to a user: the skip reasons of the exchange itself, which all its metrics share."""
MAX_REASONS = 12
"""Reasons listed for a stage, the most frequent; the others are one row."""


class Loss(Struct, frozen=True, kw_only=True):
    """Exchanges that end before a stage; `bad`: they should not be lost."""

    name: str
    words: str
    count: int
    bad: bool = False


class Stage(Struct, frozen=True, kw_only=True):
    """A stage of the funnel: `count` exchanges reached it, `losses` are those of the stage before that did not."""

    name: str
    words: str
    count: int
    percent: float
    losses: tuple[Loss, ...]


class Funnel(Struct, frozen=True, kw_only=True):
    """Stages in order. `uncounted` captured exchanges are stored, but no reading of a gateway counted them."""

    stages: tuple[Stage, ...]
    uncounted: int

    @property
    def total(self) -> int:
        """The exchanges that enter."""
        return self.stages[0].count


def funnel_of(gateway: Mapping[str, int], stored: Iterable[OutcomeCount]) -> Funnel:
    """Build the funnel from the gateways' outcomes and the store's.

    What was captured is what the store holds, or what the gateways counted where that is more: the difference waits or
    is gone. So each stage is the one before without its losses, whatever was restarted in between.
    """
    exchanges = [count for count in stored if not count.metric]
    kept = sum(count.n for count in exchanges)
    counted = gateway.get("captured", 0)
    captured = max(kept, counted)
    outside = {name: n for name, n in gateway.items() if name != "captured" and n > 0}
    skipped = _by_reason(exchanges, "skipped")
    no_answer = {name: n for name, n in skipped.items() if name in NO_ANSWER}
    inapplicable = {name: n for name, n in skipped.items() if name not in NO_ANSWER}
    failed = _by_reason(exchanges, "failed")
    unselected = sum(count.n for count in exchanges if count.outcome == "none")
    steps: list[tuple[str, str, list[Loss]]] = [
        ("Requests", "that may be answered: chat completions, completions, responses, messages", []),
        ("Captured", "selected, and put into the queue", _losses(outside, NOT_CAPTURED)),
        ("Stored", "taken from the queue and processed", _losses({"not stored": captured - kept}, {})),
        ("Answered", "a complete answer to a user", _losses(no_answer, NO_ANSWER)),
        ("Selected", "answers that at least one metric was selected for", _losses({"not selected": unselected}, {})),
        ("Evaluated", "at least one metric applies", _losses(inapplicable, {})),
        ("Scored", "at least one metric has a score", _losses(failed, {}, bad=True)),
    ]
    left = total = captured + sum(outside.values())
    stages = []
    for name, words, losses in steps:
        left -= sum(loss.count for loss in losses)
        share = left / total if total else 0.0
        stages.append(Stage(name=name, words=words, count=left, percent=100 * share, losses=tuple(losses)))
    return Funnel(stages=tuple(stages), uncounted=max(0, kept - counted))


def _by_reason(exchanges: Iterable[OutcomeCount], outcome: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for count in exchanges:
        if count.outcome == outcome:
            found[count.reason] = found.get(count.reason, 0) + count.n
    return found


def _losses(counts: Mapping[str, int], words: Mapping[str, str], *, bad: bool = False) -> list[Loss]:
    """The losses that occurred, the largest first."""
    known = sorted(((name, n) for name, n in counts.items() if n), key=lambda pair: -pair[1])
    found = [Loss(name=name, words=words.get(name, ""), count=n, bad=bad or name in LOST) for name, n in known]
    rest = sum(loss.count for loss in found[MAX_REASONS:])
    return [*found[:MAX_REASONS], *([Loss(name="other reasons", words="", count=rest, bad=bad)] if rest else [])]


MAX_METRICS = 100
"""Rows of the table of metrics."""


class Evaluations(Struct, frozen=True, kw_only=True):
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


class Retiring(Struct, frozen=True, kw_only=True):
    """A model whose endpoint shuts it down on `day`, in `days` calendar days (UTC); `near` from 30 days before."""

    model: str
    day: str
    days: int
    near: bool


class Successor(Struct, frozen=True, kw_only=True):
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


def open_circuits(series: Series) -> list[tuple[str, str]]:
    """Role and model of the endpoints of judges whose circuit is open."""
    rows = series.rows("gaugeway_judge_blind")
    return sorted((labels["role"], labels["judge_model"]) for labels, value in rows if value > 0)


def pipeline_handlers(site: Site) -> list[Any]:
    """The handler of `/pipeline`."""

    @get("/pipeline")
    async def pipeline(request: Page, app: FromQuery[str] = "") -> Template:
        now = site.clock()
        chosen = time_range(request.query_params, now)
        since, until = whole_buckets(chosen.since, min(chosen.until, now), now)
        series, answers, counted, stored, about = await asyncio.gather(
            own(site.registry),
            site.ask_gateways(),
            site.counts.outcomes(since, until, app or None),
            site.insight.store.outcomes(Query(since=since, until=until, app=app or None)),
            site.insight.status(),
        )
        return site.render(
            request,
            "pipeline.html",
            title="Pipeline",
            time_range=chosen,
            since=since,
            shown_until=min(until, now),
            app=app,
            funnel=funnel_of(counted, stored),
            gateways=site.gateways,
            answers=answers,
            seen=together(answers),
            queue=about["queue"],
            series=series,
            evaluations=evaluations_of(stored),
            judge=about["judge"],
            budget_usd=site.config.judge.budget_usd_per_day,
            open_circuits=open_circuits(series),
            retiring=retiring_of(series, time.time()),
            successor=successor_of(series),
        )

    return [pipeline]

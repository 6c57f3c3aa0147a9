"""Reads stored exchanges for the reports about an app's sources and topics, and remembers what it has read."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from cachetools import TTLCache
from msgspec import structs

from gaugeway.records import Evaluation, Sample, Score, same_scheme
from gaugeway.settings.shared import Price, PriceTable
from gaugeway.storage.spread_points import spread_points
from gaugeway.storage.stores import Point, Query, Store
from gaugeway.text.passage_identity import passage_names, passage_origins
from gaugeway.text.topics import narrow_and_broad_topics
from monitors.alerting.stream import on_scale, usable
from monitors.analysis.answer_clusters import KINDS, AnswerCluster, ClusteredAnswer, ClusterReport, Kind, clusters_of
from monitors.analysis.captured import check_metric
from monitors.analysis.claim_highlight import claims_in
from monitors.analysis.human_labels import Passings, default_passing
from monitors.analysis.incident.differences import MAX_TAGS
from monitors.analysis.prompt_text import HASHED
from monitors.analysis.retrieval.context_cost import ContextCostReport, context_costs
from monitors.analysis.retrieval.coverage_gaps import GapReport, gap_of, gaps_of, is_declined
from monitors.analysis.retrieval.passage_use import PassageUse, passage_use
from monitors.analysis.retrieval.sources import RetrievedExchange, Scope, SourceReport, reported
from monitors.metrics.judged.passage_verdicts import PassageVerdicts, passage_verdicts

DAY_S = 86_400.0
DEFAULT_METRICS = ("faithfulness", "lexical_groundedness")
"""Metrics of a report that names none: the first one with scores."""
MAX_EXCHANGES = 6_000
"""Evaluations that a report reads, spread over its window."""
MAX_REMEMBERED = 20_000
"""Exchanges whose sources are remembered, without their texts but 300 characters of the question."""
AT_ONCE, IN_A_ROW = 8, 200
READING_S = 5.0
"""How long one request waits for the store; what it has read by then is remembered for the next one."""
FRESH_S, SETTLED_S = 60.0, 3600.0
"""An exchange is read again after a minute, or after an hour if it was an hour old: evaluations may come late."""
MAX_REPORTS = 16
MAX_TOPICS = 12
"""Topics of a report, with the other questions."""
_LONGEST_QUESTION = 300
_Key = tuple[str, str | None, float, float | None]
"""App, metric, length of the period in seconds, and its end (None for now)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    read_at: float
    settled: bool
    question: str
    claim: str
    passages: tuple[str, ...]
    origins: tuple[str, ...]
    verdicts: PassageVerdicts | None
    declined: bool
    found_nothing: bool
    use: PassageUse | None


Namer: TypeAlias = Callable[[str, Kind, Sequence[AnswerCluster]], Awaitable[tuple[AnswerCluster, ...]]]


class Reports(NamedTuple):
    """What is made of one reading."""

    sources: SourceReport
    gaps: GapReport
    costs: ContextCostReport


class SourceReports:
    """Makes the reports of `sources` from a store; one at a time, each kept for a minute.

    Passages without id and source are named by a hash with `salt`. `passing` knows the thresholds of the metrics, of
    which those in `enabled` run. `prices` are the gateway's.
    """

    def __init__(
        self,
        store: Store,
        prices: Mapping[str, Price] | None = None,
        *,
        salt: str = "",
        passing: Passings = default_passing,
        enabled: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name_clusters: Namer = _keywords_only
        """Puts the judge's names into clusters of an app and kind; set where there is a judge."""
        self._store = store
        self._salt = salt
        self._passing = passing
        self._enabled = enabled
        self._prices = PriceTable(prices or {})
        self._clock = clock
        self._known: OrderedDict[str, _Remembered] = OrderedDict()
        self._reports: TTLCache[_Key, Reports] = TTLCache(MAX_REPORTS, FRESH_S, timer=clock)
        self._windows: TTLCache[_Key, tuple[Sequence[Point], Scope]] = TTLCache(1, FRESH_S, timer=clock)
        self._clusters: TTLCache[tuple[Hashable, ...], ClusterReport] = TTLCache(
            MAX_REPORTS * len(KINDS), FRESH_S, timer=clock
        )
        self._lock = asyncio.Lock()

    def names(self, sample: Sample) -> tuple[str, ...]:
        """Return the name of each passage of a sample, as reports have it."""
        return passage_names(sample, salt=self._salt)

    def origins(self, sample: Sample) -> tuple[str, ...]:
        """Return the source of each passage of a sample that its name does not say."""
        return passage_origins(sample, salt=self._salt)

    def all_names(self, sample: Sample) -> tuple[str, ...]:
        """Return the names of the passages of a sample, and of what they come from."""
        return (*self.names(sample), *self.origins(sample))

    @property
    def passing(self) -> Passings:
        """The passing rule of each metric."""
        return self._passing

    async def read(
        self,
        app: str,
        metric: str | None = None,
        *,
        since_s: float = DAY_S,
        until: float | None = None,
        budget_s: float = READING_S,
    ) -> Reports:
        """Report the sources of `app`, its gaps and its costs, by `metric` or the first usual one with scores.

        The reports are about the `since_s` seconds before `until`, a Unix time, or before now. Raises
        UnknownMetricError, and the store's errors.
        """
        key = app, metric, since_s, until
        async with self._lock:
            if (known := self._reports.get(key)) is not None:
                return known
            points, scope = await self._read_window(key, time.monotonic() + budget_s)
            found = await asyncio.to_thread(self._reported, points, self._remembered(points), scope)
            if not scope.pending:
                self._reports[key] = found
            return found

    async def clusters(
        self,
        app: str,
        kind: Kind,
        metric: str | None = None,
        *,
        since_s: float = DAY_S,
        until: float | None = None,
        budget_s: float = READING_S,
    ) -> ClusterReport:
        """Report the clusters of the app's answers of a kind, from the same exchanges as `read`, with its errors."""
        key = app, metric, since_s, until
        async with self._lock:
            if (known := self._clusters.get((*key, kind))) is not None:
                return await self._named(known)
            points, scope = await self._read_window(key, time.monotonic() + budget_s)
            found = await asyncio.to_thread(self._clustered, points, self._remembered(points), scope, kind)
            if not scope.pending:
                self._clusters[*key, kind] = found
        return await self._named(found)

    async def _named(self, report: ClusterReport) -> ClusterReport:
        return structs.replace(report, clusters=await self.name_clusters(report.app, report.kind, report.clusters))

    def _remembered(self, points: Sequence[Point]) -> Mapping[str, _Remembered]:
        return {point.sample_id: self._known[point.sample_id] for point in points}

    async def _read_window(self, key: _Key, deadline: float) -> tuple[Sequence[Point], Scope]:
        """Return the evaluations whose exchanges are known by the deadline, one an exchange; the last are kept."""
        if (last := self._windows.get(key)) is not None and all(point.sample_id in self._known for point in last[0]):
            return last
        app, metric, since_s, end = key
        until = self._clock() if end is None else end
        since = until - since_s
        if metric is not None:
            await check_metric(self._store, metric, since=since, until=until, enabled=self._enabled)
        named = metric or DEFAULT_METRICS[0]
        points: Sequence[Point] = ()
        complete = True
        for name in (metric,) if metric else DEFAULT_METRICS:
            window = Query(since=since, until=until, metric=name, app=app)
            read, complete = await spread_points(self._store, window, MAX_EXCHANGES)
            points = _last_evaluations(read)
            if any(point.value is not None for point in points):
                named = name
                break
        ids = sorted((point.sample_id for point in points), key=lambda sample_id: blake2b(sample_id.encode()).digest())
        deleted = await self._read(ids, deadline)
        known = [point for point in points if point.sample_id in self._known]
        pending = len(points) - len(known) - len(deleted)
        scope = Scope(
            app=app,
            metric=named,
            since=since,
            until=until,
            lower_is_better=self._passing(named).flipped,
            complete=complete and not pending,
            pending=pending,
        )
        if not pending:
            self._windows[key] = known, scope
        return known, scope

    async def _read(self, ids: Sequence[str], deadline: float) -> set[str]:
        """Read exchanges that are not known, then those that may have changed; return those that are deleted."""
        now = self._clock()
        missing = [
            sample_id
            for sample_id in ids
            if sample_id not in self._known or not self._is_fresh(self._known[sample_id], now)
        ]
        missing.sort(key=self._known.__contains__)
        gate = asyncio.Semaphore(AT_ONCE)
        deleted: set[str] = set()

        async def read(sample_id: str) -> None:
            async with gate:
                stored = await self._store.sample(sample_id)
            if stored is not None:
                self._remember(*stored)
            else:
                self._known.pop(sample_id, None)
                deleted.add(sample_id)

        for start in range(0, len(missing), IN_A_ROW):
            await asyncio.gather(*map(read, missing[start : start + IN_A_ROW]))
            if time.monotonic() >= deadline:
                break
        wanted = set(ids)
        for name, exchange in list(self._known.items()):
            if now - exchange.read_at > SETTLED_S or (len(self._known) > MAX_REMEMBERED and name not in wanted):
                del self._known[name]
        return deleted

    def _remember(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        now = self._clock()
        question = "" if (sample.question or "").startswith(HASHED) else sample.question or ""
        self._known[sample.id] = _Remembered(
            read_at=now,
            settled=now - sample.started_at > SETTLED_S,
            question=question[:_LONGEST_QUESTION],
            claim=failed_claims(evaluations),
            passages=self.names(sample),
            origins=self.origins(sample),
            verdicts=passage_verdicts(evaluations),
            declined=is_declined(sample, evaluations),
            found_nothing=sample.context_source != "none" and not sample.contexts,
            use=passage_use(sample, evaluations, self._prices.of(sample.model)),
        )
        self._known.move_to_end(sample.id)

    def _is_fresh(self, exchange: _Remembered, now: float) -> bool:
        return now - exchange.read_at < (SETTLED_S if exchange.settled else FRESH_S)

    def _reported(self, points: Sequence[Point], remembered: Mapping[str, _Remembered], scope: Scope) -> Reports:
        questions = {name: exchange.question for name, exchange in remembered.items() if exchange.question}
        narrow, broad = narrow_and_broad_topics(questions, k=MAX_TOPICS - 1)
        exchanges = [
            replace(self._exchange(point, remembered[point.sample_id], scope), topic=narrow.get(point.sample_id, ""))
            for point in points
        ]
        by_subject = [replace(exchange, topic=broad.get(exchange.id, "")) for exchange in exchanges]
        return Reports(reported(exchanges, scope), gaps_of(by_subject, scope), context_costs(exchanges, scope))

    def _clustered(
        self, points: Sequence[Point], remembered: Mapping[str, _Remembered], scope: Scope, kind: Kind
    ) -> ClusterReport:
        prompts = same_scheme(point.prompt for point in points)
        answers = []
        for point in points:
            seen = remembered[point.sample_id]
            exchange = self._exchange(point, seen, scope)
            failed = {"failures": exchange.passed is False, "declines": exchange.declined, "questions": True}[kind]
            if kind == "failures" and exchange.passed is None:
                continue
            answer = ClusteredAnswer(
                id=point.sample_id,
                started_at=point.started_at,
                rate=point.rate,
                question=seen.question,
                is_bad=failed,
                claim=seen.claim if kind == "failures" else "",
                cluster=point.cluster,
                no_good_answer=gap_of(exchange) is not None,
                traits=_traits(point, seen, prompts=prompts),
            )
            answers.append(answer)
        return clusters_of(answers, kind, scope)

    def _exchange(self, point: Point, seen: _Remembered, scope: Scope) -> RetrievedExchange:
        passing, verdicts = self._passing(scope.metric), seen.verdicts
        value = point.value if usable(point) else None
        return RetrievedExchange(
            id=point.sample_id,
            started_at=point.started_at,
            model=point.model,
            rate=point.rate,
            passages=seen.passages,
            origins=seen.origins,
            question=seen.question,
            cluster=point.cluster,
            score=None if value is None else on_scale(value, flipped=passing.flipped),
            passed=None if value is None else passing.passes(value),
            cited=None if verdicts is None else verdicts.cited,
            contradicted=None if verdicts is None else verdicts.contradicted,
            declined=seen.declined,
            found_nothing=seen.found_nothing,
            use=seen.use,
        )


async def _keywords_only(_app: str, _kind: Kind, clusters: Sequence[AnswerCluster]) -> tuple[AnswerCluster, ...]:
    return (*clusters,)


def _last_evaluations(points: Sequence[Point]) -> list[Point]:
    """Return one point for each exchange: its last score, else its last evaluation."""
    found: dict[str, Point] = {}
    for point in points:
        if 0.0 < point.rate <= 1.0 and (point.sample_id not in found or found[point.sample_id].value is None):
            found[point.sample_id] = point
    return list(found.values())


def _traits(point: Point, seen: _Remembered, *, prompts: bool) -> tuple[tuple[str, str], ...]:
    """Return the values of an answer that clusters are compared by; prompts only if these can be compared."""
    tags = [(f"tag:{name}", value) for name, value in sorted(point.tags.items())[:MAX_TAGS]]
    sources = [("source", name) for name in dict.fromkeys((*seen.passages, *seen.origins)) if name]
    prompt = [("prompt", point.prompt)] if point.prompt and prompts else []
    return (("model", point.model), *prompt, *tags, *sources)


def failed_claims(evaluations: Sequence[Evaluation]) -> str:
    """Return the claims that failed, as the judge says, or its reasons where it gave no claims; 300 characters."""
    failed = [claim.text for claim in claims_in(evaluations) if claim.verdict != "supported"]
    reasons = (
        evaluation.outcome.reason
        for evaluation in evaluations
        if isinstance(evaluation.outcome, Score) and evaluation.metric.startswith("geval:")
    )
    return " ".join((" / ".join(failed) or " / ".join(reasons))[: 2 * _LONGEST_QUESTION].split())[:_LONGEST_QUESTION]

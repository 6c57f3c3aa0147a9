"""Store in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gaugeway.records import Evaluation, Sample, Score, Supplement
from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.erase import Subject, Trail
from gaugeway.storage.joining import Address, address_of, addresses_of, completes, may_join
from gaugeway.storage.stores import (
    EngineStore,
    LabelledScore,
    OutcomeCount,
    PairedSums,
    Point,
    Query,
    Summary,
    ratings,
    rows,
)

from .named import shared


class MemoryStore(EngineStore):
    """Samples with their evaluations by metric and version, supplements and states, in dicts.

    It joins no conversations and keeps no sums: what it does not define is Unsupported.
    """

    def __init__(self) -> None:
        self._samples: dict[str, Sample] = {}
        self._evaluations: dict[str, dict[tuple[str, str], Evaluation]] = {}
        self._supplements: dict[str, Supplement] = {}
        self._states: dict[str, bytes] = {}

    @classmethod
    def from_url(cls, url: str) -> MemoryStore:
        """Return the store at this URL."""
        return shared(url, cls, cls)

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        if any(evaluation.sample_id != sample.id for evaluation in evaluations):
            raise RefusedError(f"an evaluation belongs to another sample than {sample.id!r}")
        encoded([sample, *(rows.row(sample, evaluation) for evaluation in evaluations)])
        old = self._samples.get(sample.id)
        fills = old is not None and completes(sample, old)
        there = self._evaluations.setdefault(sample.id, {})
        known = [(*identity, kind_of(evaluation)) for identity, evaluation in there.items()]
        new = rows.new(evaluations, known, fills=fills)
        if old is None or fills:
            self._samples[sample.id] = sample
        there.update({(evaluation.metric, evaluation.version): evaluation for evaluation in new})
        return new

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        found = self._samples.get(sample_id)
        return None if found is None else (found, list(self._evaluations[sample_id].values()))

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        found = await self.samples(sample_ids)
        return rows.questions(encoded(sample).decode() for sample in found.values())

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        concerned: dict[str, Sample] = {}
        for supplement in supplements:
            if address_of(supplement) is not None:
                self._supplements.setdefault(supplement.id, supplement)
                concerned |= {sample.id: sample for sample in self._about(supplement)[-100:]}
        return sorted(concerned.values(), key=lambda sample: (sample.started_at, sample.id))

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        named: set[Address | None] = {*addresses_of(sample)}
        found = [said for said in self._supplements.values() if address_of(said) in named and may_join(said, sample)]
        return sorted(found, key=lambda said: (said.received_at, said.id))[:1000]

    async def series(self, query: Query) -> Sequence[Point]:
        points = [point for point in self._points() if self._matches(query, point)]
        if query.order in ("lowest", "highest"):
            sign = 1.0 if query.order == "lowest" else -1.0
            scores = [point for point in points if point.value is not None]
            points = sorted(scores, key=lambda point: (sign * (point.value or 0.0), point.started_at))
        else:
            points.sort(key=lambda point: point.started_at)
            points = points[::-1] if query.order == "newest" else points
        return points if query.limit is None else points[: max(query.limit, 0)]

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        totals: dict[tuple[str, str, str], rows.Totals] = {}
        for point in self._points():
            if self._matches(query, point):
                key = (point.app, point.metric, slice_of(point, by))
                value = point.value or 0.0
                one = (point.outcome, point.rate, 1, int(point.value is not None), value, value**2)
                totals.setdefault(key, rows.Totals()).add(one)
        return [sums.summary(*key) for key, sums in totals.items()]

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        counts: dict[tuple[str, str, str, str], int] = {}
        within = Query(since=query.since, until=query.until, app=query.app)
        for sample in self._samples.values():
            if not (query.since <= sample.started_at < query.until and query.app in (None, sample.app)):
                continue
            own = [point for point in self._points_of(sample) if self._matches(within, point)]
            judged = [point for point in own if point.metric not in SIGNALS]
            ended = [(sample.app, point.metric, point.outcome, point.reason) for point in judged]
            if not sample.id.startswith("conversation-"):
                ended.append((sample.app, "", *outcome_of(judged)))
            for key in ended:
                counts[key] = counts.get(key, 0) + 1
        return rows.outcomes([(*key, n) for key, n in counts.items()])

    async def paired(self, query: Query, cheap: str) -> Sequence[PairedSums]:
        of_cheap = {
            point.sample_id: point for point in self._points() if point.metric == cheap and point.value is not None
        }
        groups: list[Any] = []
        for point in await self.series(query):
            if point.metric != cheap:
                beside = of_cheap.get(point.sample_id)
                y, f = point.value or 0.0, (beside.value or 0.0) if beside else 0.0
                rate = beside.rate if beside else None
                groups.append((point.app, point.metric, point.outcome, point.rate, rate, 1, y, f, y * y, y * f, f * f))
        totals = [
            (summary.app, summary.n, *(sum(values) for values in self._powers(query, cheap, summary.app)))
            for summary in await self.summary(Query(since=query.since, until=query.until, app=query.app, metric=cheap))
        ]
        return rows.paired(groups, totals)

    async def ratings(self, query: Query) -> Sequence[LabelledScore]:
        reader, labels = ratings.Reader(), []
        points = [point for point in await self.series(query) if point.value is not None]
        said = [said for said in self._supplements.values() if ratings.is_rating(said)]
        for supplement in sorted(said, key=lambda said: (said.received_at, said.id)):
            about = self._about(supplement)[-1:]
            for point in [point for point in points if about and point.sample_id == about[0].id]:
                verdicts = [other for other in self._points_of(about[0]) if other.metric == ratings.CORRECT]
                correct = verdicts[-1].value if verdicts and supplement.reference else None
                score = (point.sample_id, point.app, point.metric, point.value, point.rate)
                labels += reader.pair((*score, supplement.received_at, encoded(supplement).decode(), correct))
        return ratings.effective(labels)

    async def prune(self, before: float) -> int:
        old = [sample.id for sample in self._samples.values() if sample.started_at < before]
        self._drop(old, [said.id for said in self._supplements.values() if said.received_at < before])
        return len(old)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        trail = Trail(subject)
        samples = [name for name, sample in self._samples.items() if trail.sample(name, encoded(sample).decode())]
        said = [name for name, said in self._supplements.items() if trail.supplement(name, encoded(said).decode())]
        evaluations = sum(len(self._evaluations[name]) for name in samples)
        if not dry_run:
            self._drop(samples, said)
        return {"samples": len(samples), "evaluations": evaluations, "supplements": len(said)}

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        return sorted(name for name in self._samples if name > after)[:limit]

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        return {name: len(self._evaluations[name]) for name in sample_ids if name in self._samples}

    async def said(self, after: str, limit: int) -> Sequence[tuple[str, Supplement | None]]:
        names = sorted(name for name in self._supplements if name > after)[:limit]
        return [(name, self._supplements[name]) for name in names]

    async def load(self) -> Mapping[str, bytes]:
        return dict(self._states)

    async def save(self, states: Mapping[str, bytes]) -> None:
        self._states |= states

    async def aclose(self) -> None:
        """Nothing to release: others may have it open."""

    def _about(self, supplement: Supplement) -> list[Sample]:
        """The samples that a supplement concerns, the oldest first."""
        address = address_of(supplement)
        found = [
            sample
            for sample in self._samples.values()
            if address in addresses_of(sample) and may_join(supplement, sample)
        ]
        return sorted(found, key=lambda sample: (sample.started_at, sample.id))

    def _points(self) -> Iterator[Point]:
        for sample in self._samples.values():
            yield from self._points_of(sample)

    def _points_of(self, sample: Sample) -> list[Point]:
        found = []
        for evaluation in self._evaluations[sample.id].values():
            name, metric, version, at, app, model, kind, value, reason, _, _, judge, *others = rows.row(
                sample, evaluation
            )
            _, _, rate, weight, prompt, cluster, tags = others
            about = (name, at, app, model, metric, kind, value, reason, rate, version, judge, prompt)
            found.append((*about, weight, cluster, tags))
        return rows.points(found)

    def _matches(self, query: Query, point: Point) -> bool:
        sample = self._samples[point.sample_id]
        equal = ("metric", "app", "model", "prompt", "outcome")
        texts = f"{sample.question or ''}\n{sample.response}".lower()
        sources = {name.strip() for context in sample.contexts for name in (context.id, context.source) if name}
        return (
            query.since <= point.started_at < query.until
            and all(getattr(query, name) in (None, getattr(point, name)) for name in equal)
            and point.metric not in query.without
            and (query.least is None or (point.value is not None and point.value >= query.least))
            and (query.most is None or (point.value is not None and point.value <= query.most))
            and (query.tag is None or point.tags.get(query.tag[0]) == query.tag[1])
            and (query.text is None or query.text.lower() in texts)
            and (query.source is None or query.source in sources)
            and query.session in (None, sample.session)
        )

    def _powers(self, query: Query, metric: str, app: str) -> tuple[list[float], list[float]]:
        values = [
            point.value
            for point in self._points()
            if (point.metric, point.app) == (metric, app)
            and point.value is not None
            and query.since <= point.started_at < query.until
        ]
        return values, [value**2 for value in values]

    def _drop(self, samples: Sequence[str], supplements: Sequence[str]) -> None:
        for name in samples:
            del self._samples[name], self._evaluations[name]
        for name in supplements:
            del self._supplements[name]


def kind_of(evaluation: Evaluation) -> str:
    """The outcome's name in a point."""
    return "score" if isinstance(evaluation.outcome, Score) else type(evaluation.outcome).__name__.lower()


def slice_of(point: Point, by: str) -> str:
    """The value of "model", "prompt" or "tag:NAME"."""
    kind, _, name = by.partition(":")
    values = {"": "", "model": point.model, "prompt": point.prompt or ""}
    return values[kind] if kind in values else point.tags.get(name, "")


def outcome_of(points: Sequence[Point]) -> tuple[str, str]:
    """How an exchange ended: a score of any metric, else a failure or a skip with one of their reasons."""
    for kind in ("score", "failed", "skipped"):
        reasons = [point.reason for point in points if point.outcome == kind]
        if reasons:
            return kind, "" if kind == "score" else min(reasons)
    return "none", ""

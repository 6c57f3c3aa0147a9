"""What people want to know of an alert, looked up in the store: means, interval, cause, slices, worst exchanges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from monitors.alerting.causes import Explanation, JudgeEvidence, Observation, explain
from monitors.alerting.causes.topics import topics
from monitors.alerting.rule_watch import ALL
from monitors.alerting.slices import OTHER
from monitors.alerting.stream import on_scale, usable
from monitors.records import Alert, Evaluation, Example, Score
from monitors.statistics.confidence_sequence import MIN_N_EFF, confidence_sequence
from monitors.statistics.weighted_mean import Estimate, hajek
from monitors.storage.stores import Point, Query, Store

DAY_S = 86_400.0
PAGE = 20_000
WORST = 3
_TOPICS_FROM = 1000
_SHORT = 300
_HASHED = "blake2b:"


class ScoreCompletion(Protocol):
    """Adds scores on both sides of an onset, where there are too few to name a cause."""

    async def complete(
        self, metric: str, before: Sequence[Point], since: Sequence[Point]
    ) -> tuple[Sequence[Point], Sequence[Point]] | None:
        """Return both sides with more scores of `metric` and of the retrieval; None when there are none to add."""


class Describer:
    """Looks an alert up: up to a day before its onset against the time from there on.

    The onset was chosen because the scores since then were low, so their mean is on the pessimistic side. `judge` tells
    what is known of the judge for a metric; without `content` nothing of an exchange's text is quoted. Where the cause
    is unknown, `more` may add scores to find it.
    """

    def __init__(
        self,
        store: Store,
        *,
        lower_is_better: Callable[[str], bool],
        judge: Callable[[str], JudgeEvidence | None] = lambda _: None,
        content: bool = True,
        more: ScoreCompletion | None = None,
    ) -> None:
        self._more = more
        self._store = store
        self._lower_is_better = lower_is_better
        self._judge = judge
        self._content = content

    async def describe(self, alert: Alert, until: float, affected: Sequence[str]) -> Alert:
        """Return the alert described by what started before `until`, Unix seconds."""
        onset, flipped = alert.finding.onset, self._lower_is_better(alert.metric)
        app = None if alert.app == ALL else alert.app
        whole = Query(since=onset - DAY_S, until=onset, app=app, order="newest", limit=PAGE, **_narrowed(alert.slice))
        since = replace(whole, since=onset, until=until)
        old, new = await self._store.series(whole), await self._store.series(since)
        lowest = replace(since, metric=alert.metric, order="highest" if flipped else "lowest", limit=5 * WORST)
        examples = await self._examples(await self._store.series(lowest))
        before, after = _mean(old, alert.metric, flipped=flipped), _mean(new, alert.metric, flipped=flipped)
        interval = confidence_sequence(after) if after is not None and after.n_eff >= MIN_N_EFF else None
        why = await self._explain(alert.metric, old, new)
        if why.cause == "unknown" and self._more is not None:
            sides = await self._more.complete(alert.metric, old, new)
            why = await self._explain(alert.metric, *sides) if sides is not None else why
        return replace(
            alert,
            finding=replace(
                alert.finding,
                n=after.n if after is not None else alert.finding.n,
                estimate=after.mean if after is not None else None,
                interval=interval,
            ),
            mean_before=on_scale(before.mean, flipped=flipped) if before is not None else None,
            mean_since=on_scale(after.mean, flipped=flipped) if after is not None else None,
            ci=_own_scale(interval, flipped=flipped),
            likely_cause=why.cause,
            cause_detail=why.detail,
            affected=tuple(dict.fromkeys([*_fallen(why), *affected])),
            worst_exchanges=tuple(one.id for one in examples),
            examples=examples,
        )

    async def _explain(self, metric: str, old: Sequence[Point], new: Sequence[Point]) -> Explanation:
        asked = await self._questions(old, metric), await self._questions(new, metric)

        def think() -> Explanation:
            found = topics(*asked) if all(asked) else {}
            before, since = ([self._observed(point, found) for point in points] for points in (old, new))
            return explain(metric, before, since, judge=self._judge(metric), lower_is_better=self._lower_is_better)

        return await asyncio.to_thread(think)  # up to a second, in which the others go on

    async def _questions(self, points: Iterable[Point], metric: str) -> Mapping[str, str]:
        """The questions of some of the exchanges, the newest, by their ids; topics quote words of them."""
        if not self._content:
            return {}
        ids = dict.fromkeys(point.sample_id for point in points if point.metric == metric and usable(point))
        questions = await self._store.questions(list(ids)[:_TOPICS_FROM])
        return {key: question for key, question in questions.items() if not question.startswith(_HASHED)}

    def _observed(self, point: Point, topic: Mapping[str, str]) -> Observation:
        strata = {"model": point.model, **{f"tag:{name}": value for name, value in point.tags.items()}}
        if point.prompt is not None:
            strata["prompt"] = point.prompt
        if point.sample_id in topic:
            strata["topic"] = topic[point.sample_id]
        value = point.value
        return Observation(
            sample_id=point.sample_id,
            metric=point.metric,
            started_at=point.started_at,
            rate=point.rate,
            outcome=point.outcome,
            value=None if value is None else on_scale(value, flipped=self._lower_is_better(point.metric)),
            reason=point.reason,
            version=point.version,
            judge=point.judge,
            strata=strata,
        )

    async def _examples(self, points: Sequence[Point]) -> tuple[Example, ...]:
        """The worst exchanges, each once, with what was wrong with them."""
        worst = {point.sample_id: point for point in reversed(points)}
        examples = []
        for point in list(reversed(worst.values()))[:WORST]:
            found = await self._store.sample(point.sample_id) if self._content else None
            example = Example(id=point.sample_id, value=point.value or 0.0)
            if found is not None:
                question, answer = _quoted(found[0].question or ""), _quoted(found[0].response)
                example = replace(example, question=question, answer=answer, faults=faults_of(found[1], point.metric))
            examples.append(example)
        return tuple(examples)


def _fallen(why: Explanation) -> tuple[str, ...]:
    """The slice that the cause is confined to; with another mix of traffic it grew, it did not fall."""
    return (why.slice,) if why.slice and why.cause not in ("traffic_mix", "unknown") else ()


def faults_of(evaluations: Iterable[Evaluation], metric: str) -> tuple[str, ...]:
    """What speaks against an answer, in short: the claims that nothing supports, or else the reason of its score."""
    for one in evaluations:
        if one.metric == metric and isinstance(one.outcome, Score):
            claims = [_shortened(text) for piece in one.outcome.evidence if (text := _fault(piece))]
            return tuple(claims[:WORST]) or ((_shortened(one.outcome.reason),) if one.outcome.reason else ())
    return ()


def _fault(piece: Mapping[str, Any]) -> str | None:
    """The text of a piece of evidence that speaks against the answer."""
    if piece.get("verdict", "supported") != "supported" or piece.get("relevance") == "irrelevant":
        return str(piece.get("claim") or "") or None
    if piece.get("contradicted") is True:
        return str(piece.get("reason") or "") or None
    if piece.get("unsupported_numbers") or piece.get("unsupported_names"):
        return str(piece.get("sentence") or "") or None
    return None


def _quoted(text: str) -> str:
    """A stored text as alerts quote it; of one that is stored as a hash nothing."""
    return "" if text.startswith(_HASHED) else _shortened(text)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def _narrowed(part: str) -> dict[str, Any]:
    """The fields of a query for the points of a slice; all other values together cannot be asked for."""
    name, _, value = part.partition("=")
    if not part or value == OTHER:
        return {}
    return {"tag": (name.removeprefix("tag:"), value)} if name.startswith("tag:") else {name: value}


def _mean(points: Iterable[Point], metric: str, *, flipped: bool) -> Estimate | None:
    """The mean of a metric on the "higher is better" scale, or None when there is no score."""
    chosen = [point for point in points if point.metric == metric and usable(point)]
    if not chosen:
        return None
    return hajek([on_scale(point.value or 0.0, flipped=flipped) for point in chosen], [point.rate for point in chosen])


def _own_scale(interval: tuple[float, float] | None, *, flipped: bool) -> tuple[float, float] | None:
    return (1.0 - interval[1], 1.0 - interval[0]) if interval is not None and flipped else interval

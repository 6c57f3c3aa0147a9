"""The description of an alert, looked up in the store: means, interval, cause, slices, worst exchanges."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TypeAlias

from msgspec import Struct

from gaugeway.records import Alert, Change, FoundCause, same_scheme
from gaugeway.signals import SIGNALS
from gaugeway.storage.spread_points import spread_points
from gaugeway.storage.stores import Point, Query, Store
from gaugeway.text.normalising import nfkc
from gaugeway.text.topics import topics
from monitors.alerting.causes import MOVED, Explanation, JudgeEvidence, Observation, Passages, explain
from monitors.alerting.causes.retrieval_or_generation import OF_RETRIEVAL
from monitors.alerting.causes.steps import Step
from monitors.alerting.changes import changes_at_onset, documents_change, placed, source_change
from monitors.alerting.rule_watch import ALL
from monitors.alerting.slices import in_slice
from monitors.alerting.stored_exchanges import HASHED, MAX_EXCHANGES, find_fallen_step, read_example, read_passages
from monitors.alerting.stream import Case, on_scale, usable
from monitors.statistics.clusters import groups_of
from monitors.statistics.confidence_sequence import confidence_sequence
from monitors.statistics.weighted_mean import Estimate, hajek

DAY_S = 86_400.0
MAX_POINTS = 20_000
"""Evaluations that are read on each side of an onset, spread over its time."""
WORST = 3
_TOPICS_FROM, _AT_ONCE = 1000, 200
MAX_SIGNALS = 2000
"""Values that are read of each signal of the retrieval, on each side, beside `MAX_POINTS`."""
LOOKBACK_S = 7 * DAY_S
"""How far before an onset scores are read, where earlier incidents leave less than a day of the time before it."""
MAX_TIMES = 8
"""Times between earlier incidents that are read, the latest."""
_INTERVAL_FROM = 100
"""Effective scores since the onset, which is chosen because they are low: an interval around few would be biased."""
_LONGEST = 2000
_WORD = re.compile(r"[^\W\d_]+")
_MEASURES = ("mean_before", "mean_since", "ci", "worst_exchanges", "examples")
_CAUSES = (
    *("likely_cause", "first_cause", "cause_detail", "cause_hop", "cause_tool", "cause_source"),
    *("cause_strength", "cause_evidence", "affected", "at_alarm", "changes", "confined_to", "mostly"),
)

Scales: TypeAlias = Callable[[str], bool]
"""Whether a metric is compared on the flipped scale, where higher is better."""
_Sides: TypeAlias = tuple[list[Point], list[Point]]
_Times: TypeAlias = Sequence[tuple[float, float]]
Both: TypeAlias = tuple[Sequence[Point], Sequence[Point]]
ScoreMore: TypeAlias = Callable[[str, Sequence[Point], Sequence[Point]], Awaitable[Both | None]]
"""Returns both sides of an onset with more scores of a metric and of the retrieval metrics; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSignals:
    """What alerting reads from the judge, and what it requests from it.

    `metrics` are those the judge scores. `failing_since` is the Unix time since which the judge fails, None while it
    works; `resume` passes on the outage in the saved state. With `in_use` False there is no judge, or no metric
    that it scores. `evidence` is what the anchors say about the judge for a metric. `on_alarm` requests a check of the
    anchors. `score_more` finds a cause where there are too few scores. `delay_s` is how long after its exchange a score
    of a metric is dated: a conversation's, after the silence that ended it.
    """

    metrics: Collection[str] = ()
    failing_since: Callable[[], float | None] = lambda: None
    resume: Callable[[float], None] = lambda _: None
    in_use: bool = True
    evidence: Callable[[str], JudgeEvidence | None] = lambda _: None
    on_alarm: Callable[[], None] = lambda: None
    score_more: ScoreMore | None = None
    delay_s: Callable[[str], float] = lambda _: 0.0


class _Asked(Struct, frozen=True):
    """What is to be explained, on which scales, and the signals of the retrieval beside it."""

    metric: str
    scales: Scales
    signals: _Sides


def usual_times(onset: float, earlier: Sequence[tuple[float, float]]) -> _Times:
    """Return the day before an onset without `earlier` incidents, (start, end) in order, of at most a week before.

    The whole day if an incident took all of the week.

    >>> day = 86_400.0
    >>> [(start / day, end / day) for start, end in usual_times(10 * day, [(9.25 * day, 9.75 * day)])]
    [(8.5, 9.25), (9.75, 10.0)]
    """
    times: list[tuple[float, float]] = []
    end, left = onset, DAY_S
    for start, stop in sorted(earlier, key=lambda incident: -incident[1]):
        if stop < end:
            times.append((max(stop, end - left, onset - LOOKBACK_S), end))
            left -= end - times[-1][0]
        end = min(end, start)
        if left <= 0.0 or end <= onset - LOOKBACK_S or len(times) == MAX_TIMES:
            break
    else:
        times.append((max(end - left, onset - LOOKBACK_S), end))
    found = [(start, stop) for start, stop in reversed(times) if start < stop]
    return found or [(onset - DAY_S, onset)]


@dataclass(eq=False)
class Describer:
    """Describes alerts by comparing up to a day before the onset with the time since.

    The onset was chosen because the scores since then are low, so their mean is biased downwards. Without `content` no
    text of an exchange is quoted.
    """

    store: Store
    _: KW_ONLY
    lower_is_better: Callable[[str], bool]
    judge: JudgeSignals = field(default_factory=JudgeSignals)
    content: bool = True

    def __post_init__(self) -> None:
        self.salt = ""
        """Of the hashes that name passages without id and source; set before the first description."""
        self._evidence: dict[str, JudgeEvidence | None] = {}

    def due(self, case: Case, closed_until: float) -> float | None:
        """Return the time up to which a case is to be described now, None if its description is current."""
        until = case.to_describe(closed_until)
        return case.described_until if until is None and self._has_new_evidence(case) else until

    async def describe_case(
        self, case: Case, until: float, slices: Sequence[str], earlier: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Describe a case by its scores before Unix time `until`; for a new alarm, request a check of the anchors.

        The times of `earlier` incidents are no part of what was usual before the onset.
        """
        metric = case.alert.metric
        if not case.described_until and metric in self.judge.metrics:
            self.judge.on_alarm()
        evidence = self.judge.evidence(metric)

        def measured(described: Alert) -> None:
            case.alert = _with_measures(case.alert, described)  # what is known at once does not wait for the cause

        first_time = measured if not case.described_until else None
        described = await self.describe(case.alert, until, slices, earlier, measured=first_time)
        if not case.described_until:
            onset = case.alert.finding.onset
            alarm_at = onset + (case.alarm_at - onset)  # as `to_describe` has it, to the last bit
            first = described if until <= alarm_at else await self.describe(case.alert, alarm_at, slices, earlier)
            described = replace(described, at_alarm=_found_cause(first, min(until, alarm_at)))
        case.alert = _with(_with_measures(case.alert, described), described, _CAUSES)
        case.described_until = until
        self._evidence[case.alert.fingerprint] = evidence

    def forget(self, fingerprints: Iterable[str]) -> None:
        """Drop what is kept about alerts that no longer exist."""
        for fingerprint in fingerprints:
            self._evidence.pop(fingerprint, None)

    def _has_new_evidence(self, case: Case) -> bool:
        """Return whether the anchors were judged since an alert was described: that may change the cause.

        Of a resolved alert only the round counts that was under way when it was described last.
        """
        alert = case.alert
        if alert.metric not in self.judge.metrics or not case.described_until:
            return False
        last, now = self._evidence.get(alert.fingerprint), self.judge.evidence(alert.metric)
        if alert.state != "firing" and (last is None or not last.pending):
            return False
        return now is not None and not now.pending and now != last

    async def describe(
        self,
        alert: Alert,
        until: float,
        affected: Sequence[str],
        earlier: Sequence[tuple[float, float]] = (),
        *,
        measured: Callable[[Alert], None] | None = None,
    ) -> Alert:
        """Return the alert with its description from exchanges that started before Unix time `until`.

        They are compared with those of a day before the onset, without the times (start, end) of `earlier` incidents.
        `measured` takes the alert with its means, and then with its worst exchanges too. What changed is not named
        before it is known where the drop is: a change is not to blame for what did not fall under it.
        """
        onset, flipped = alert.finding.onset, self._flipped(alert)
        app = None if alert.app == ALL else alert.app
        others = tuple(SIGNALS.keys() - {alert.metric})  # they would take the places of the metrics that causes compare
        whole = in_slice(Query(since=onset - DAY_S, until=onset, app=app, without=others), alert.slice)
        since = replace(whole, since=onset, until=until)
        usual = usual_times(onset, earlier)
        old, new = await self._sides(alert.metric, whole, since, usual)
        lowest = replace(since, metric=alert.metric, order="highest" if flipped else "lowest", limit=5 * WORST)
        tell = measured or (lambda _: None)
        tell(alert := _measured(alert, old, new, flipped=flipped))
        worst = await self.store.series(lowest)
        tell(alert := await self._with_examples(alert, worst))
        why, step, source = _settled(alert, self.judge.evidence(alert.metric)), None, None
        if why is None:
            signals = await self._signals(alert.metric, whole, since, usual)
            why, step, source = await self._cause(_Asked(alert.metric, self._scales(alert), signals), old, new)
        if why.source is not None:
            worst = [*await self._with_source(why.source, alert.metric, new, flipped=flipped), *worst]
            alert = await self._with_examples(alert, worst)
        versions = [placed(change, why.place) for change in changes_at_onset(old, new, alert.metric)]
        return replace(
            alert,
            changes=(*versions, *([] if source is None else [source])),
            likely_cause=why.cause,
            first_cause=alert.first_cause or (why.cause if why.cause != "unknown" else None),
            cause_detail=why.detail,
            cause_hop=None if step is None else step.hop,
            cause_tool=None if step is None else step.tool,
            cause_source=why.source,
            cause_strength=why.strength,
            cause_evidence=why.evidence,
            affected=tuple(dict.fromkeys([*_fallen(why), *affected])),
            confined_to=why.slice if why.place is not None and why.source is None else "",
            mostly=why.place is not None and not why.place.only,
        )

    def _flipped(self, alert: Alert) -> bool:
        """Return whether the alert is about a rise."""
        return self.lower_is_better(alert.metric) if alert.direction is None else alert.direction == "rise"

    def _scales(self, alert: Alert) -> Scales:
        """Return which metrics are compared on the flipped scale, the alert's own by its direction."""
        flipped = self._flipped(alert)
        return lambda name: flipped if name == alert.metric else self.lower_is_better(name)

    async def _signals(self, metric: str, whole: Query, since: Query, usual: _Times) -> _Sides:
        """Return the signals of the retrieval before an onset and since; `metric` is read already."""
        before: list[Point] = []
        after: list[Point] = []
        for name in OF_RETRIEVAL:
            if name != metric:
                before += await self._read(replace(whole, metric=name, without=()), usual, MAX_SIGNALS)
                after += (await spread_points(self.store, replace(since, metric=name, without=()), MAX_SIGNALS))[0]
        return before, after

    async def _read(self, whole: Query, times: _Times, most: int) -> list[Point]:
        """Return points of a query from several times, from each in proportion to its length."""
        total = sum(end - start for start, end in times)
        found: list[Point] = []
        for start, end in times:
            part = replace(whole, since=start, until=end)
            found += (await spread_points(self.store, part, math.ceil(most * (end - start) / total)))[0]
        return found

    async def _sides(self, metric: str, whole: Query, since: Query, usual: _Times) -> _Sides:
        """Return the points before an onset and since, by the time of the exchanges that they are about.

        Scores of conversations are dated later than their exchanges. Where the onset is theirs, it was so much earlier
        in the exchanges.
        """
        delay_s = self.judge.delay_s(metric)
        (first, end), *later = usual
        old = await self._read(whole, [(first - delay_s, end), *later], MAX_POINTS)
        new, _ = await spread_points(self.store, since, MAX_POINTS)
        if not delay_s:
            return old, new
        onset = since.since - delay_s
        late = [point for point in old if point.started_at - self.judge.delay_s(point.metric) >= onset]
        return [point for point in old if point.started_at - self.judge.delay_s(point.metric) < onset], [*new, *late]

    async def _cause(
        self, asked: _Asked, old: Sequence[Point], new: Sequence[Point]
    ) -> tuple[Explanation, Step | None, Change | None]:
        """Explain a drop, with the step of an agent that retrieves worse, and the source that came with the onset.

        More exchanges are read or judged only if the scores alone leave the cause open.
        """
        metric, source = asked.metric, None
        why = await self._explain(asked, old, new)
        if why.cause == "unknown" and self.judge.score_more is not None:
            sides = await self.judge.score_more(metric, old, new)
            if sides is not None:
                old, new = sides
                why = await self._explain(asked, old, new)
        if why.cause in ("retrieval", "generation", "unknown"):
            passages = await read_passages(self.store, metric, (old, new), quote=self.content, salt=self.salt)
            why = await self._explain(asked, old, new, passages) if passages else why
            named = why.source and source_change(why.source, passages, old, new, metric)
            source = named or documents_change(passages, old, new, metric, place=why.place)
        step = await find_fallen_step(self.store, old, new) if why.cause in ("retrieval", "unknown") else None
        return (why, None, source) if step is None else (step.explain(why), step.step, source)

    async def _explain(
        self, asked: _Asked, old: Sequence[Point], new: Sequence[Point], passages: Mapping[str, Passages] | None = None
    ) -> Explanation:
        metric, scales, read = asked.metric, asked.scales, passages or {}
        questions = await self._questions(old, metric, read), await self._questions(new, metric, read)

        def find_cause() -> Explanation:
            found = topics(*questions) if all(questions) else {}
            equal = {sample_id: _words(question) for side in questions for sample_id, question in side.items()}
            strata = _Strata(found, prompts=same_scheme(point.prompt for point in (*old, *new)))
            before, since = (
                [self._observed(point, strata, equal, scales) for point in (*points, *signals)]
                for points, signals in zip((old, new), asked.signals, strict=True)
            )
            judge = self.judge.evidence(metric)
            return explain(metric, before, since, judge=judge, passages=passages, lower_is_better=scales)

        return await asyncio.to_thread(find_cause)  # takes up to a second

    async def _questions(self, points: Iterable[Point], metric: str, read: Collection[str]) -> Mapping[str, str]:
        """Return the questions of about a thousand exchanges, and of those that were `read`, by id; topics quote them.

        Sources are compared within topics and questions, so these are needed where passages are known.
        """
        if not self.content:
            return {}
        ids = list(dict.fromkeys(point.sample_id for point in points if point.metric == metric and usable(point)))
        some = ids[:: math.ceil(len(ids) / _TOPICS_FROM) or 1]
        wanted = list(dict.fromkeys([*some, *(sample_id for sample_id in ids if sample_id in read)]))
        found: dict[str, str] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            found |= await self.store.questions(wanted[start : start + _AT_ONCE])
        return {key: question for key, question in found.items() if not question.startswith(HASHED)}

    def _observed(self, point: Point, strata: _Strata, equal: Mapping[str, str], scales: Scales) -> Observation:
        value = point.value
        return Observation(
            sample_id=point.sample_id,
            metric=point.metric,
            started_at=point.started_at - self.judge.delay_s(point.metric),
            rate=point.rate,
            outcome=point.outcome,
            value=None if value is None else on_scale(value, flipped=scales(point.metric)),
            reason=point.reason,
            version=point.version,
            judge=point.judge,
            strata=strata.of(point),
            question=equal.get(point.sample_id, ""),
        )

    async def _with_source(self, source: str, metric: str, points: Iterable[Point], *, flipped: bool) -> list[Point]:
        """Return the points of exchanges that got a source, the worst first; of the worst 500 of all."""
        scored = [point for point in points if point.metric == metric and usable(point)]
        scored.sort(key=lambda point: (on_scale(point.value or 0.0, flipped=flipped), -point.started_at))
        worst = scored[:MAX_EXCHANGES]
        passages = await read_passages(self.store, metric, (worst,), quote=self.content, salt=self.salt)
        return [
            point for point in worst if (got := passages.get(point.sample_id)) is not None and source in got.documents
        ]

    async def _with_examples(self, alert: Alert, points: Iterable[Point]) -> Alert:
        """Return the alert with the first exchanges of `points`, each once, with their faults."""
        first: dict[str, Point] = {}
        for point in points:
            first.setdefault(point.sample_id, point)
        worst = list(first.values())[:WORST]
        examples = [await read_example(self.store, point, quote=self.content) for point in worst]
        return replace(alert, worst_exchanges=tuple(shown.id for shown in examples), examples=tuple(examples))


class _Strata:
    """The strata of points, equal ones as one object; `topic` has the topics by sample id.

    Without `prompts` they leave out the versions of prompts, which cannot be compared.
    """

    def __init__(self, topic: Mapping[str, str], *, prompts: bool) -> None:
        self._topic = topic
        self._prompts = prompts
        self._known: dict[tuple[object, ...], Mapping[str, str]] = {}

    def of(self, point: Point) -> Mapping[str, str]:
        """Return the strata of one point."""
        topic = self._topic.get(point.sample_id)
        prompt = point.prompt if self._prompts else None
        key = (point.model, prompt, topic, *point.tags.items())
        found = self._known.get(key)
        if found is None:
            found = {"model": point.model, **{f"tag:{name}": value for name, value in point.tags.items()}}
            found |= {name: value for name, value in (("prompt", prompt), ("topic", topic)) if value is not None}
            self._known[key] = found
        return found


def _measured(alert: Alert, old: Sequence[Point], new: Sequence[Point], *, flipped: bool) -> Alert:
    """Return the alert with the means on either side of its onset."""
    before, after = _mean(old, alert.metric, flipped=flipped), _mean(new, alert.metric, flipped=flipped)
    interval = confidence_sequence(after) if after is not None and after.n_eff >= _INTERVAL_FROM else None
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
    )


def _with_measures(alert: Alert, described: Alert) -> Alert:
    """Return the alert with the means and examples of `described`; its state may have changed since."""
    found = described.finding
    finding = replace(alert.finding, n=found.n, estimate=found.estimate, interval=found.interval)
    return replace(_with(alert, described, _MEASURES), finding=finding)


def _with(alert: Alert, described: Alert, names: Iterable[str]) -> Alert:
    return replace(alert, **{name: getattr(described, name) for name in names})


def _settled(alert: Alert, judge: JudgeEvidence | None) -> Explanation | None:
    """Return the cause "judge" that anchors have shown since the alarm; None without, or with a new result.

    A later round is about the judge of today, and after a restart there is none: neither says anything about the drop.
    """
    if alert.cause_evidence != MOVED or (judge is not None and judge.drifted and not judge.pending):
        return None
    return Explanation(
        cause="judge", detail=alert.cause_detail, strength=alert.cause_strength, evidence=alert.cause_evidence
    )


def _found_cause(alert: Alert, at: float) -> FoundCause:
    """Return the cause that an alert names now."""
    return FoundCause(
        at=at,
        cause=alert.likely_cause,
        detail=alert.cause_detail,
        strength=alert.cause_strength,
        evidence=alert.cause_evidence,
        source=alert.cause_source,
        mean_since=alert.mean_since,
    )


def _fallen(why: Explanation) -> tuple[str, ...]:
    """Return the slice the cause is confined to; a slice named by "traffic_mix" grew, its scores did not fall."""
    return (why.slice,) if why.slice and why.cause not in ("traffic_mix", "unknown") else ()


def _words(question: str) -> str:
    """Return the words of a question, the same for questions that differ in case, punctuation or numbers only."""
    return " ".join(_WORD.findall(nfkc(question[:_LONGEST]).casefold()))


def _mean(points: Iterable[Point], metric: str, *, flipped: bool) -> Estimate | None:
    """Return the mean of a metric on the "higher is better" scale, or None without scores."""
    chosen = [point for point in points if point.metric == metric and usable(point)]
    if not chosen:
        return None
    values = [on_scale(point.value or 0.0, flipped=flipped) for point in chosen]
    return hajek(values, [point.rate for point in chosen], groups_of([point.cluster for point in chosen]))


def _own_scale(interval: tuple[float, float] | None, *, flipped: bool) -> tuple[float, float] | None:
    return (1.0 - interval[1], 1.0 - interval[0]) if interval is not None and flipped else interval

"""Evaluations as flat rows and back, and sums over grouped rows."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, TypeVar

import msgspec

from gaugeway.records import Evaluation, Failed, Message, Outcome, Sample, Score, Skipped, Supplement, grouped
from gaugeway.storage.conversations import Linked
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.stores import OutcomeCount, PairedSums, Point, ScoreHistogram, ScoreSums, Summary
from gaugeway.storage.stores.rollup_windows import packed
from gaugeway.storage.sums import Sums, WeightedSums

T = TypeVar("T")
_log = logging.getLogger("gaugeway")
_LEAST_RATE = 1e-100


class Lenient:
    """Skips rows that cannot be decoded, so that one damaged row does not hide the others."""

    _complained = False

    def _read(self, read: Callable[[Any], T], found: Iterable[Any]) -> list[T]:
        """Read every row that can be read."""
        readable: list[T] = []
        for row in found:
            try:
                readable.append(read(row))
            except (TypeError, ValueError, msgspec.DecodeError) as error:
                self._complain(f"{type(error).__name__}: {error}")
        return readable

    def _complain(self, problem: str) -> None:
        """Warn once: damaged rows stay until they are pruned, and every query meets them."""
        if not self._complained:
            _log.warning("store: skipping an unreadable row: %s", problem)
        self._complained = True


class Totals:
    """Adds up the groups of equal outcome and rate that make one summary."""

    def __init__(self) -> None:
        self._failed = 0
        self._sums = WeightedSums()

    def add(self, group: Sequence[Any]) -> int:
        """Take in `rows` rows, `n` of them with values whose sum is `x`; return how many of them cannot be read."""
        outcome, rate, rows, n, x, x2 = group
        if not isinstance(rate, float) or not _LEAST_RATE <= rate <= 1.0:
            return int(rows)
        self._failed += rows if outcome == "failed" else 0
        if outcome != "score":
            return 0
        self._sums += WeightedSums.of_groups(n=n, x=x, x2=x2, w=1.0 / rate)
        return int(rows - n)

    def summary(self, app: str, metric: str, part: str = "") -> Summary:
        return Summary(**asdict(self._sums), app=app, metric=metric, slice=part, failed=self._failed)


def paired(groups: Iterable[Sequence[Any]], totals: Iterable[Sequence[Any]]) -> list[PairedSums]:
    """Build `PairedSums` from grouped rows.

    `groups` have app, metric, outcome, rate, the cheap metric's rate (None: no score of it), their number and sums of
    y, f, y^2, y f, f^2; `totals` have app, number and sums of f and f^2 over everything that has a cheap score.
    """
    cheap = {app: Sums(n_all=n, f=f, ff=ff) for app, n, f, ff in totals}
    found: dict[tuple[str, str], PairedSums] = {}
    for app, metric, outcome, rate, cheap_rate, n, *products in groups:
        sums = found.get((app, metric)) or PairedSums(
            app=app, metric=metric, sums=cheap.get(app, Sums()), alone=0, missing=0
        )
        if outcome != "score":
            sums = replace(sums, missing=sums.missing + n)
        elif not (isinstance(cheap_rate, float) and isinstance(rate, float) and _LEAST_RATE <= rate <= 1.0):
            sums = replace(sums, alone=sums.alone + n)
        else:
            sums = replace(sums, sums=sums.sums + judged(n, products, max(1.0, cheap_rate / rate)))
        found[app, metric] = sums
    return list(found.values())


def judged(n: int, products: Sequence[float], u: float) -> Sums:
    """The part of `Sums` that `n` scores of equal weight u = 1/pi make, from sums of y, f, y^2, y f, f^2."""
    y, f, yy, yf, ff = products
    first = {"u": n, "uy": y, "uf": f, "uyy": yy, "uyf": yf, "uff": ff}
    second = {"u2" + name[1:]: u * u * value for name, value in first.items()}
    weighted: dict[str, Any] = {name: u * value for name, value in first.items()} | second
    return Sums(n=n, **weighted)


def row(sample: Sample, evaluation: Evaluation) -> tuple[Any, ...]:
    """Flatten one evaluation. `reason` is a word from a closed set, `detail` is text for people."""
    value: float | None = None
    reason = detail = ""
    evidence: tuple[dict[str, Any], ...] = ()
    match evaluation.outcome:
        case Score():
            kind, value, detail = "score", float(evaluation.outcome.value), evaluation.outcome.reason
            evidence = evaluation.outcome.evidence
        case Skipped():
            kind, reason = "skipped", evaluation.outcome.reason
        case Failed():
            kind, reason, detail = "failed", evaluation.outcome.error, evaluation.outcome.detail
    return (
        sample.id,
        evaluation.metric,
        evaluation.version,
        sample.started_at,
        sample.app,
        sample.model,
        kind,
        value,
        reason,
        detail,
        encoded(evidence).decode() if evidence else "[]",
        evaluation.judge,
        float(evaluation.seconds),
        float(evaluation.cost_usd),
        float(evaluation.rate),
        None if evaluation.weight is None else float(evaluation.weight),
        sample.prompt,
        sample.cluster,
        encoded(sample.tags).decode() if sample.tags else None,
    )


def new(evaluations: Iterable[Evaluation], there: Iterable[Any], *, fills: bool) -> list[Evaluation]:
    """Return the evaluations that the store has no outcome for: of equal ones the first, and a skip only once.

    With `fills`, a skip that is there gives way to an outcome.
    """
    seen = {(metric, version): outcome == "skipped" for metric, version, outcome in there}
    found = []
    for evaluation in evaluations:
        identity = (evaluation.metric, evaluation.version)
        skipped = isinstance(evaluation.outcome, Skipped)
        if identity not in seen or (fills and seen[identity] and not skipped):
            seen[identity] = False
            found.append(evaluation)
    return found


def evaluation(sample_id: str, row: Sequence[Any]) -> Evaluation:
    """Put one evaluation together again."""
    metric, version, kind, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight = row
    outcome: Outcome
    if kind == "score":
        outcome = Score(value, detail, msgspec.json.decode(evidence, type=tuple[dict[str, Any], ...]))
    elif kind == "skipped":
        outcome = Skipped(reason)
    else:
        outcome = Failed(reason, detail)
    return Evaluation(
        sample_id=sample_id,
        metric=metric,
        version=version,
        outcome=outcome,
        judge=judge,
        seconds=seconds,
        cost_usd=cost_usd,
        rate=rate,
        weight=weight,
    )


def outcomes(found: Iterable[Sequence[Any]]) -> list[OutcomeCount]:
    """Counts of evaluations and exchanges from the rows of every engine's queries."""
    return [
        OutcomeCount(app=app, metric=metric, outcome=outcome, reason=reason, n=n)
        for app, metric, outcome, reason, n in found
    ]


def scored(found: Iterable[Sequence[Any]]) -> list[ScoreSums]:
    """Read scores added up: app, metric, number, sums of x and x^2, extremes of the rates."""
    return [
        ScoreSums(app=app, metric=metric, n=n, x=x, x2=x2, least_rate=least, most_rate=most)
        for app, metric, n, x, x2, least, most in found
    ]


def spreads(found: Iterable[Sequence[Any]], since: float, until: float) -> list[ScoreHistogram]:
    """Read counted scores: app, metric, slice, version, judge, rate, hundredth, number, sums of x and x^2."""
    groups = grouped((tuple(row[:6]), row[6:]) for row in found)
    return [
        ScoreHistogram(
            since=since,
            until=until,
            app=app,
            metric=metric,
            slice=part,
            version=version,
            judge=judge,
            rate=rate,
            n=sum(n for _, n, _, _ in bins),
            x=math.fsum(x for _, _, x, _ in bins),
            x2=math.fsum(x2 for _, _, _, x2 in bins),
            bins=packed([(k, n, x) for k, n, x, _ in bins]),
        )
        for (app, metric, part, version, judge, rate), bins in groups.items()
    ]


class _Asked(msgspec.Struct):
    """What `questions` reads of a sample."""

    id: str
    question: str | None = None
    transcript: tuple[Message, ...] = ()


def questions(payloads: Iterable[str]) -> dict[str, str]:
    """The questions by id of stored samples that can be read; of a conversation its first one."""
    found = {}
    for payload in payloads:
        try:
            asked = msgspec.json.decode(payload, type=_Asked)
        except (TypeError, ValueError):
            continue
        opening = next((message.text for message in asked.transcript if message.role == "user"), None)
        if (question := asked.question or opening) is not None:
            found[asked.id] = question
    return found


def samples(payloads: Iterable[str]) -> dict[str, Sample]:
    """Stored samples that can be read, by id."""
    found = {}
    for payload in payloads:
        try:
            stored = msgspec.json.decode(payload, type=Sample)
        except (TypeError, ValueError):
            continue
        found[stored.id] = stored
    return found


def sample(row: Sequence[Any]) -> Sample:
    """Read a sample from a row that begins with its payload."""
    return msgspec.json.decode(row[0], type=Sample)


def placed_sample(row: Sequence[Any]) -> Sample:
    """Read a sample from its payload, conversation, turn and hop: the columns say where it stands by now."""
    found = sample(row)
    conversation, turn, hop = row[1:4]
    return found if conversation is None else replace(found, conversation=conversation, turn=turn, hop=hop)


def field_text(name: str, value: str) -> str:
    """Return how a payload has this field; within its texts quotation marks are escaped, so it is nowhere else.

    >>> field_text("session", "one")
    '"session":"one"'
    """
    return f'"{name}":{encoded(value).decode()}'


def linked(row: Sequence[Any]) -> Linked:
    """Read the links of an exchange from a row that begins with their payload."""
    return msgspec.json.decode(row[0], type=Linked)


def supplement(row: Sequence[Any]) -> Supplement:
    """Read a supplement from a row that begins with its payload."""
    return msgspec.json.decode(row[0], type=Supplement)


def points(found: Iterable[Sequence[Any]]) -> list[Point]:
    """Read points. What is equal is one object: busy apps have tens of thousands of points a minute."""
    same: dict[Any, Any] = {}
    read_tags = cache(_tags)
    read: list[Point] = []
    last: Point | None = None
    for row in found:
        last = _point(row, last, same.setdefault, read_tags)
        read.append(last)
    return read


def _point(
    row: Sequence[Any], last: Point | None, same: Callable[[Any, Any], Any], read_tags: Callable[[Any], dict[str, str]]
) -> Point:
    """Read a point; `last` is the one before, often of the same exchange."""
    *known, weight, cluster, tags = row
    sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt = known
    cluster = cluster if isinstance(cluster, str) else None
    if last is not None and (sample_id, started_at, cluster) == (last.sample_id, last.started_at, last.cluster):
        sample_id, started_at, cluster = last.sample_id, last.started_at, last.cluster
    return Point(
        sample_id=sample_id,
        started_at=started_at,
        app=same(app, app),
        model=same(model, model),
        metric=same(metric, metric),
        outcome=same(outcome, outcome),
        value=value,
        reason=same(reason, reason),
        rate=same(rate, rate),
        version=same(version, version),
        judge=same(judge, judge),
        prompt=same(prompt, prompt),
        tags=read_tags(tags) if isinstance(tags, str) else {},
        cluster=cluster,
        weight=same(weight, weight) if isinstance(weight, float) and 0.0 < weight <= 1.0 else None,
    )


def _tags(text: str) -> dict[str, str]:
    """Read the tags; what somebody else wrote there counts for none."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}

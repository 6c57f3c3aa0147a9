"""`GET /api/series` on the admin port: means of a metric over time, with what happened meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from litestar import get
from litestar.exceptions import ClientException
from litestar.params import QueryParameter
from msgspec import Struct

from gaugeway.settings.shared import Rule
from gaugeway.signals import RISING
from monitors.alerting.engine import AlertEngine
from monitors.analysis import captured
from monitors.analysis.captured import UnknownMetricError, check_metric
from monitors.analysis.human_labels import Passings, default_passing
from monitors.analysis.series import (
    FEW_POINTS,
    Mark,
    ReferenceLine,
    SeriesGroup,
    SeriesQuery,
    SeriesReader,
    chosen_step,
    marks_of,
    reference_lines,
)

MAX_FIELD = 300
_DAY_S = 86_400.0
_BY = re.compile(r"(?:model|prompt|tag:.+)?", re.DOTALL)
_STEP = re.compile(r"(\d{1,12}(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY_S}

Text = Annotated[str, QueryParameter(min_length=1, max_length=MAX_FIELD)]
Given = Annotated[str, QueryParameter(max_length=MAX_FIELD)]


class SeriesAnswer(Struct, frozen=True, kw_only=True):
    """The answer of `/api/series`: means over the steps from `since` to before `until` (Unix times, seconds).

    `asked_since` is the start asked for: a range whose first half has no score begins at the first one. `step_s` is the
    step used; `step_enlarged` says that a shorter one was asked for. Steps without a score are left
    out. Without `complete` only those from `read_since` on were read in time: repeat the request. `more_groups` and
    `more_marks` count what is left out.
    """

    app: str
    metric: str
    by: str
    lower_is_better: bool
    since: float
    until: float
    asked_since: float
    step_s: float
    step_enlarged: bool
    complete: bool
    read_since: float
    groups: Sequence[SeriesGroup]
    more_groups: int
    lines: Sequence[ReferenceLine]
    marks: Sequence[Mark]
    more_marks: int


class SeriesSources(Struct, frozen=True):
    """What `/api/series` reads: the configured `rules`, the thresholds of metrics, and the names of those `enabled`."""

    reader: SeriesReader
    watched: AlertEngine
    rules: Sequence[Rule]
    passing: Passings = default_passing
    enabled: Sequence[str] = ()
    clock: Callable[[], float] = time.time


def asked_step(text: str) -> float | None:
    """A step in seconds from a number of them or a span (5m, 1h); None for "". Raises ClientException.

    >>> asked_step("300"), asked_step("5m"), asked_step("")
    (300.0, 300.0, None)
    """
    if not text:
        return None
    match = _STEP.fullmatch(text.strip())
    if match is None or not (seconds := float(match[1]) * _UNITS[match[2]]) > 0.0:
        raise ClientException(f"step: expected a number of seconds or a span (5m, 1h), got {text!r}")
    return seconds


def read_query(app: str, metric: str, by: str, *, since: str, until: str, step: str, now: float) -> SeriesQuery:
    """The query of the parameters. Raises ClientException, which names the wrong one."""
    if not _BY.fullmatch(by):
        raise ClientException(f"by: expected model, prompt or tag:NAME, got {by!r}")
    begin, end = _moment("since", since, now), min(_moment("until", until, now), now) if until else now
    if end - begin < 1.0:
        raise ClientException("since: must be before until and now")
    try:
        captured.check_length(begin, end)
    except ValueError as error:
        raise ClientException(f"since: {error}") from None
    return SeriesQuery(
        app=app,
        metric=metric,
        by=by,
        since=begin,
        until=end,
        step_s=chosen_step(end - begin, asked_step(step), FEW_POINTS),
    )


async def series_answer(sources: SeriesSources, query: SeriesQuery, asked_s: float | None = None) -> SeriesAnswer:
    """Read a series and what goes with it. Raises UnknownMetricError for a metric that nothing has.

    Without `asked_s` the steps are those that fit the scores.
    """
    asked_since = query.steps.start * query.step_s
    if asked_s is None:
        query, found = await sources.reader.read_fitted(query)
    else:
        found = await sources.reader.read(query)
    if not found.groups and found.complete:
        await check_metric(
            sources.reader.store, query.metric, since=query.since, until=query.until, enabled=sources.enabled
        )
    start, end = query.steps.start * query.step_s, query.steps.stop * query.step_s
    flipped = query.metric in RISING or sources.passing(query.metric).flipped
    marks, more_marks = marks_of(
        sources.watched.versions.changes(),
        sources.watched.alerts(),
        app=query.app,
        metric=query.metric,
        since=start,
        until=end,
    )
    return SeriesAnswer(
        app=query.app,
        metric=query.metric,
        by=query.by,
        lower_is_better=flipped,
        since=start,
        until=end,
        asked_since=asked_since,
        step_s=query.step_s,
        step_enlarged=asked_s is not None and query.step_s > asked_s,
        complete=found.complete,
        read_since=found.read_since,
        groups=found.groups,
        more_groups=found.more_groups,
        lines=reference_lines(
            sources.watched.streams(), sources.rules, app=query.app, metric=query.metric, lower_is_better=flipped
        ),
        marks=marks,
        more_marks=more_marks,
    )


def series_handlers(sources: SeriesSources) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/series")
    async def series(
        *, app: Text, metric: Text, by: Given = "", since: Given = "24h", until: Given = "", step: Given = ""
    ) -> SeriesAnswer:
        asked_s = asked_step(step)
        query = read_query(app, metric, by, since=since, until=until, step=step, now=sources.clock())
        try:
            return await series_answer(sources, query, asked_s)
        except UnknownMetricError as error:
            raise ClientException(f"metric: {error}") from error

    return [series]


def _moment(name: str, text: str, now: float) -> float:
    try:
        return captured.moment(text, now)
    except ValueError as error:
        raise ClientException(f"{name}: {error}") from None

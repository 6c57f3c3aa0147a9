"""What a chart of a metric over time shows beside its means: changes of versions, alerts, baseline and objective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from gaugeway.records import Alert
from gaugeway.settings.shared import Rule
from monitors.alerting.engine import StreamStatus
from monitors.alerting.rule_watch import ALL, name_of
from monitors.alerting.versions import Version

MAX_MARKS = 100
"""Marks of a chart: the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at `at` (Unix time, seconds), up to `until` if it lasted; None while it lasts.

    `kind` is "alert", "model", "prompt" or "tag:NAME"; `value` the version that appeared, or the alert's state.
    `fingerprint` is that of an alert.
    """

    at: float
    kind: str
    value: str
    slice: str = ""
    until: float | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceLine:
    """A mean that a rule compares with: the `slo`, or the `baseline` that it has learned."""

    kind: Literal["slo", "baseline"]
    value: float
    rule: str


def marks_of(
    changes: Iterable[Version], alerts: Iterable[Alert], *, app: str, metric: str, since: float, until: float
) -> tuple[Sequence[Mark], int]:
    """The marks of an app's metric in a range, the oldest first, and how many older ones are left out."""
    found = [
        Mark(at=one.first_seen, until=one.first_seen, kind=one.kind, value=one.value)
        for one in changes
        if one.app == app and since <= one.first_seen < until
    ]
    for alert in alerts:
        begun, ended = alert.finding.onset, alert.ended_at
        if alert.app in (app, ALL) and alert.metric == metric and begun < until and (ended is None or ended > since):
            found.append(
                Mark(
                    at=begun,
                    until=ended,
                    kind="alert",
                    value=alert.state,
                    slice=alert.slice,
                    fingerprint=alert.fingerprint,
                )
            )
    found.sort(key=lambda one: (one.at, one.kind, one.value))
    return found[-MAX_MARKS:], max(0, len(found) - MAX_MARKS)


def reference_lines(
    streams: Iterable[StreamStatus], rules: Iterable[Rule], *, app: str, metric: str, lower_is_better: bool
) -> Sequence[ReferenceLine]:
    """What the rules compare the metric of the whole app with; none of a rule that is still learning.

    The objectives come from the configured `rules`, the baselines from the `streams`.
    """
    objectives = [
        ReferenceLine(kind="slo", value=one.slo, rule=name_of(one, lower_is_better=lower_is_better))
        for one in rules
        if one.slo is not None and one.metric == metric and any(fnmatchcase(app, pattern) for pattern in one.apps)
    ]
    fixed = {one.rule for one in objectives}
    baselines = [
        ReferenceLine(kind="baseline", value=one.m0, rule=one.rule)
        for one in streams
        if one.metric == metric
        and one.app in (app, ALL)
        and not one.slice
        and one.m0 is not None
        and one.rule not in fixed
    ]
    return [*objectives, *baselines]

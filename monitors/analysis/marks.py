"""What a chart of a metric over time shows beside its means: changes of versions, alerts, baseline and objective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from gaugeway.records import Alert
from gaugeway.settings.shared import Rule
from monitors.alerting.changes import Version
from monitors.alerting.engine import StreamStatus
from monitors.alerting.rule_watch import ALL, name_of

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
        Mark(at=version.first_seen, until=version.first_seen, kind=version.kind, value=version.value)
        for version in changes
        if version.app == app and since <= version.first_seen < until
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
    found.sort(key=lambda mark: (mark.at, mark.kind, mark.value))
    return found[-MAX_MARKS:], max(0, len(found) - MAX_MARKS)


def reference_lines(
    streams: Iterable[StreamStatus], rules: Iterable[Rule], *, app: str, metric: str, lower_is_better: bool
) -> Sequence[ReferenceLine]:
    """What the rules compare the metric of the whole app with; none of a rule that is still learning.

    The objectives come from the configured `rules`, the baselines from the `streams`.
    """
    objectives = [
        ReferenceLine(kind="slo", value=rule.slo, rule=name_of(rule, lower_is_better=lower_is_better))
        for rule in rules
        if rule.slo is not None and rule.metric == metric and any(fnmatchcase(app, pattern) for pattern in rule.apps)
    ]
    fixed = {line.rule for line in objectives}
    baselines = [
        ReferenceLine(kind="baseline", value=stream.m0, rule=stream.rule)
        for stream in streams
        if stream.metric == metric
        and stream.app in (app, ALL)
        and not stream.slice
        and stream.m0 is not None
        and stream.rule not in fixed
    ]
    return [*objectives, *baselines]

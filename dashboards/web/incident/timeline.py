"""What happened with an alert, in the order of time: onset, alarm, notifications, acts, recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.web.format import iso
from monitors.alerting.acknowledgements import Ack, UndeliveredNotification
from monitors.alerting.repeat_policy import Progress
from monitors.alerting.silences import Silence
from monitors.records import Alert

ENTRIES = 50
"""Entries shown: the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What happened at Unix time `at`; `trouble` means that something failed, `ahead` that it is still to come."""

    at: float
    words: str
    trouble: bool = False
    ahead: bool = False


def timeline_of(
    alert: Alert,
    *,
    now: float,
    progress: Mapping[str, Progress] | None,
    ack: Ack | None,
    silences: Sequence[Silence],
    undelivered: Sequence[UndeliveredNotification],
) -> list[Entry]:
    """The entries, oldest first. Of each notifier the store keeps the last delivery, so earlier repeats are missing."""
    found = [*_of_alert(alert), *(_of_progress(progress) if progress else ())]
    if ack is not None:
        found.append(Entry(at=ack.at, words=f"acknowledged by {ack.by}" + (f": {ack.comment}" if ack.comment else "")))
    for one in silences:
        why = f": {one.comment}" if one.comment else ""
        found.append(Entry(at=one.starts, words=f"silenced by {one.by} until {iso(one.ends)}{why}"))
        found.append(Entry(at=one.ends, words="silence ends", ahead=one.ends > now))
    found += [
        Entry(at=one.at, words=f"delivery to {one.notifier} abandoned after {one.attempts} attempts", trouble=True)
        for one in undelivered
    ]
    return sorted(found, key=lambda one: one.at)[-ENTRIES:]


def _of_alert(alert: Alert) -> list[Entry]:
    found = [
        Entry(at=alert.finding.onset, words="most likely onset"),
        Entry(at=alert.since, words="first evidence: pending"),
    ]
    if alert.at_alarm is not None:
        found.append(Entry(at=alert.at_alarm.at, words="alarm: the evidence reached the threshold"))
    if alert.recovering_since is not None and alert.recovery:
        found.append(Entry(at=alert.recovering_since, words="evidence for a recovery began to grow"))
    if alert.ended_at is not None:
        found.append(Entry(at=alert.ended_at, words="no longer watched" if alert.unwatched else "recovered: resolved"))
    return found


def _of_progress(progress: Mapping[str, Progress]) -> list[Entry]:
    found = []
    for name, one in sorted(progress.items()):
        if one.told is not None and one.at:
            more = ", acknowledgement too" if one.acknowledged else ""
            found.append(Entry(at=one.at, words=f"“{one.told}” delivered to {name}{more}"))
        if one.failing is not None:
            words = f"“{one.failing}” not delivered to {name}: {one.attempts} attempts, next one here"
            found.append(Entry(at=one.not_before, words=words, trouble=True))
    return found

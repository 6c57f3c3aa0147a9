"""What happened with an alert, in the order of time: onset, alarm, notifications, acts, recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from dashboards.web.format import at, counted, number
from gaugeway.records import Alert
from monitors.alerting.acknowledgements import Ack, UndeliveredNotification
from monitors.alerting.alert_history import Event
from monitors.alerting.repeat_policy import Progress
from monitors.alerting.silences import Silence

ENTRIES = 50
"""Acts and notifications shown: the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What happened at Unix time `at`; `trouble` means that something failed, `ahead` that it is still to come."""

    at: float
    words: Markup
    trouble: bool = False
    ahead: bool = False


def timeline_of(
    alert: Alert,
    *,
    now: float,
    progress: Mapping[str, Progress] | None,
    history: Sequence[Event],
    ack: Ack | None,
    silences: Sequence[Silence],
    undelivered: Sequence[UndeliveredNotification],
) -> list[Entry]:
    """The entries, oldest first. What an older release stored has no history: then the latest state is shown."""
    known = progress or {}
    found = [*_of_silences(alert, history, silences, now), *_of_acts(history, ack)]
    found += [_of_delivery(one, known.get(one.notifier)) for one in history if one.task is not None]
    with_history = {one.notifier for one in history}
    found += _of_progress({name: one for name, one in known.items() if name not in with_history})
    found += [
        Entry(
            at=one.at,
            words=Markup("notification to {} given up after {}").format(one.notifier, counted(one.attempts, "attempt")),
            trouble=True,
        )
        for one in undelivered
        if one.notifier not in with_history
    ]
    latest = sorted(found, key=lambda one: one.at)[-ENTRIES:]
    return sorted([*_of_alert(alert), *latest], key=lambda one: one.at)


def _of_alert(alert: Alert) -> list[Entry]:
    found = [
        Entry(at=alert.finding.onset, words=Markup("most likely onset")),
        Entry(at=alert.since, words=Markup("first evidence: pending")),
    ]
    if alert.at_alarm is not None:
        found.append(Entry(at=alert.at_alarm.at, words=Markup("alarm: the evidence reached the threshold")))
    if alert.ended_at is None:
        return found
    if alert.unwatched:
        return [*found, Entry(at=alert.ended_at, words=Markup("no longer watched"))]
    if alert.recovering_since is not None:
        found.append(Entry(at=alert.recovering_since, words=Markup("most likely start of the recovery")))
    return [*found, Entry(at=alert.ended_at, words=Markup("recovered: resolved"))]


def _of_silences(alert: Alert, history: Sequence[Event], silences: Sequence[Silence], now: float) -> list[Entry]:
    """Begin and end of each silence of the time of the alert; one that is no longer listed is in the history."""
    found = []
    ended = {one.silence: one for one in history if one.kind == "unsilenced"}
    listed = {one.id for one in silences}
    made = [
        Event(at=one.starts, kind="silenced", by=one.by, comment=one.comment, silence=one.id, until=one.ends)
        for one in silences
        if one.ends >= alert.finding.onset and (alert.ended_at is None or one.starts <= alert.ended_at)
    ]
    made += [one for one in history if one.kind == "silenced" and one.silence not in listed]
    removed = {one.id for one in silences if one.removed} | ended.keys()
    chosen = {one.silence: one.until for one in history if one.kind == "silenced"}
    for one in made:
        until = chosen.get(one.silence) or one.until or one.at
        words = Markup("silenced by {} until {}{}").format(one.by, at(until), _remark(one.comment))
        found.append(Entry(at=one.at, words=words))
        if one.silence in removed:
            act = ended.get(one.silence)
            found.append(Entry(at=act.at if act is not None else one.until or until, words=_by("silence removed", act)))
        else:
            found.append(Entry(at=until, words=Markup("silence ends"), ahead=until > now))
    return found


def _of_acts(history: Sequence[Event], ack: Ack | None) -> list[Entry]:
    found = []
    acks = [one for one in history if one.kind == "acknowledged"]
    if ack is not None and ack.at not in [one.at for one in acks]:
        acks.append(Event(at=ack.at, kind="acknowledged", by=ack.by, comment=ack.comment))
    for one in acks:
        words = Markup("acknowledged by {}{}").format(one.by, _remark(one.comment))
        found.append(Entry(at=one.at, words=words))
    for one in history:
        if one.kind == "unacknowledged":
            found.append(Entry(at=one.at, words=_by("acknowledgement undone", one)))
        elif one.kind == "rebaselined":
            found.append(Entry(at=one.at, words=Markup("baseline of the rule reset")))
    return found


def _of_delivery(one: Event, progress: Progress | None) -> Entry:
    what = "acknowledgement" if one.task == "acknowledged" else f"“{one.task}”"
    if one.kind == "delivered":
        words = Markup("{} delivered to {}").format(what, one.notifier)
        if one.times > 1 and one.first is not None:
            words += Markup(", again {} times since {}").format(one.times, at(one.first))
        if one.task == "firing" and one.mean_since is not None:
            words += f": mean {number(one.mean_since)} since the onset ({counted(one.n, 'score')})"
        return Entry(at=one.at, words=words)
    if one.kind == "not_sent":
        words = Markup("{} not sent to {}: “firing” was never delivered").format(what, one.notifier)
        return Entry(at=one.at, words=words, trouble=True)
    attempts = escape(counted(one.times, "attempt"))
    if one.times > 1 and one.first is not None:
        attempts += Markup(" since {}").format(at(one.first))
    if one.kind == "given_up":
        words = Markup("{} notification to {} given up after {}: {}")
        return Entry(at=one.at, words=words.format(what, one.notifier, attempts, one.error), trouble=True)
    words = Markup("{} notification to {} failed ({}): {}").format(what, one.notifier, attempts, one.error)
    if progress is not None and progress.failing == one.task and progress.held is None:
        words += Markup("; next attempt at {}").format(at(progress.not_before))
    return Entry(at=one.at, words=words, trouble=True)


def _of_progress(progress: Mapping[str, Progress]) -> list[Entry]:
    """The latest state of deliveries without a history."""
    found = []
    for name, one in sorted(progress.items()):
        if one.told is not None and one.at and one.outcome in (None, "delivered"):
            more = ", acknowledgement too" if one.acknowledged else ""
            found.append(Entry(at=one.at, words=Markup("“{}” delivered to {}{}").format(one.told, name, more)))
        if one.failing is not None:
            words = Markup("“{}” notification to {} failed ({}); next attempt at {}").format(
                one.failing, name, counted(one.attempts, "attempt"), at(one.not_before)
            )
            found.append(Entry(at=one.since, words=words, trouble=True))
    return found


def _by(what: str, act: Event | None) -> Markup:
    return escape(f"{what} by {act.by}" if act is not None and act.by else what)


def _remark(comment: str) -> str:
    return f": {comment}" if comment else ""

"""What happened with an alert, in the order of time: onset, alarm, notifications, acts, recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from dashboards.web.format import at, counted, number
from gaugeway.records import Alert
from monitors.alerting.acknowledgements import Silence
from monitors.alerting.alert_history import Event
from monitors.alerting.repeat_policy import Progress

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
    progress: Mapping[str, Progress],
    history: Sequence[Event],
    silences: Sequence[Silence],
) -> list[Entry]:
    """The entries, oldest first."""
    found = [*_of_silences(alert, history, silences, now), *_of_acts(history)]
    found += [_of_delivery(event, progress.get(event.notifier)) for event in history if event.task is not None]
    latest = sorted(found, key=lambda entry: entry.at)[-ENTRIES:]
    return sorted([*_of_alert(alert), *latest], key=lambda entry: entry.at)


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
    ended = {event.silence: event for event in history if event.kind == "unsilenced"}
    listed = {silence.id for silence in silences}
    made = [
        Event(
            at=silence.starts,
            kind="silenced",
            by=silence.by,
            comment=silence.comment,
            silence=silence.id,
            until=silence.ends,
        )
        for silence in silences
        if silence.ends >= alert.finding.onset and (alert.ended_at is None or silence.starts <= alert.ended_at)
    ]
    made += [event for event in history if event.kind == "silenced" and event.silence not in listed]
    removed = {silence.id for silence in silences if silence.removed} | ended.keys()
    chosen = {event.silence: event.until for event in history if event.kind == "silenced"}
    for event in made:
        until = chosen.get(event.silence) or event.until or event.at
        words = Markup("silenced by {} until {}{}").format(event.by, at(until), _remark(event.comment))
        found.append(Entry(at=event.at, words=words))
        if event.silence in removed:
            act = ended.get(event.silence)
            found.append(
                Entry(at=act.at if act is not None else event.until or until, words=_by("silence removed", act))
            )
        else:
            found.append(Entry(at=until, words=Markup("silence ends"), ahead=until > now))
    return found


def _of_acts(history: Sequence[Event]) -> list[Entry]:
    found = []
    for event in history:
        if event.kind == "acknowledged":
            words = Markup("acknowledged by {}{}").format(event.by, _remark(event.comment))
            found.append(Entry(at=event.at, words=words))
        elif event.kind == "unacknowledged":
            found.append(Entry(at=event.at, words=_by("acknowledgement undone", event)))
        elif event.kind == "rebaselined":
            found.append(Entry(at=event.at, words=Markup("baseline of the rule reset")))
    return found


def _of_delivery(event: Event, progress: Progress | None) -> Entry:
    what = "acknowledgement" if event.task == "acknowledged" else f"“{event.task}”"
    if event.kind == "delivered":
        words = Markup("{} delivered to {}").format(what, event.notifier)
        if event.times > 1 and event.first is not None:
            words += Markup(", again {} times since {}").format(event.times, at(event.first))
        if event.task == "firing" and event.mean_since is not None:
            words += f": mean {number(event.mean_since)} since the onset ({counted(event.n, 'score')})"
        return Entry(at=event.at, words=words)
    if event.kind == "not_sent":
        words = Markup("{} not sent to {}: “firing” was never delivered").format(what, event.notifier)
        return Entry(at=event.at, words=words, trouble=True)
    attempts = escape(counted(event.times, "attempt"))
    if event.times > 1 and event.first is not None:
        attempts += Markup(" since {}").format(at(event.first))
    if event.kind == "given_up":
        words = Markup("{} notification to {} given up after {}: {}")
        return Entry(at=event.at, words=words.format(what, event.notifier, attempts, event.error), trouble=True)
    words = Markup("{} notification to {} failed ({}): {}").format(what, event.notifier, attempts, event.error)
    if progress is not None and progress.failing == event.task and progress.held is None:
        words += Markup("; next attempt at {}").format(at(progress.not_before))
    return Entry(at=event.at, words=words, trouble=True)


def _by(what: str, act: Event | None) -> Markup:
    return escape(f"{what} by {act.by}" if act is not None and act.by else what)


def _remark(comment: str) -> str:
    return f": {comment}" if comment else ""

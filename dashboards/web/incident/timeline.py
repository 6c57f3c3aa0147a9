"""What happened with an alert in the order of time, and what became of its notifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from dashboards.web.format import at, counted, listed, number, when
from gaugeway.records import Alert
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """Delivery status of an alert for one notifier; `trouble` means that a message did not arrive."""

    notifier: str
    words: Markup
    trouble: bool = False


def notified(progress: Mapping[str, Progress], now: float) -> list[Notified]:
    """Delivery status by notifier, sorted by name; notifiers that have done nothing yet are omitted."""
    found = []
    for name, delivery in sorted(progress.items()):
        if delivery.failing is not None:
            found.append(Notified(notifier=name, words=_failing(delivery, now) + _reached(delivery), trouble=True))
        elif delivery.told is not None:
            lost = delivery.outcome == "given_up" or (delivery.outcome == "unheard" and delivery.attempts > 0)
            found.append(Notified(notifier=name, words=_settled(delivery, now), trouble=lost))
        elif delivery.held is not None:
            found.append(Notified(notifier=name, words=Markup("suppressed by a silence")))
    return found


def unreached(progress: Mapping[str, Progress]) -> str:
    """A sentence that names the notifiers that "firing" never reached; "" if it reached all that were due."""
    due = {name: delivery for name, delivery in progress.items() if delivery.outcome != "before" and _is_used(delivery)}
    away = sorted(name for name, delivery in due.items() if delivery.never_reached)
    if not away:
        return ""
    return f"“firing” never reached {len(away)} of {counted(len(due), 'notifier')}: {listed(away)}."


def sent_means(history: Sequence[Event]) -> tuple[Event | None, Event | None]:
    """The first message about the drop that was delivered, and the latest one if it has other numbers."""
    sent = [
        event
        for event in history
        if (event.kind, event.task) == ("delivered", "firing") and event.mean_since is not None
    ]
    if not sent:
        return None, None
    first, latest = min(sent, key=lambda event: event.first or event.at), max(sent, key=lambda event: event.at)
    same = (latest.mean_before, latest.mean_since, latest.n) == (first.mean_before, first.mean_since, first.n)
    return first, None if same else latest


def _is_used(progress: Progress) -> bool:
    return progress.told is not None or progress.failing is not None or progress.held is not None


def _failing(progress: Progress, now: float) -> Markup:
    if progress.held == progress.failing:
        then = Markup("suppressed by a silence now")
    else:
        then = Markup("next attempt {}").format(when(progress.not_before, now))
    said = Markup("“{}” not delivered: {} since {}; {}")
    return said.format(progress.failing, counted(progress.attempts, "attempt"), at(progress.since), then)


def _settled(progress: Progress, now: float) -> Markup:
    if progress.outcome == "given_up":
        attempts = counted(progress.attempts, "attempt")
        words = Markup("“{}” not delivered: given up after {} {}").format(
            progress.told, attempts, when(progress.at, now)
        )
        return words + _reached(progress)
    if progress.outcome == "unheard":
        why = f"{counted(progress.attempts, 'failed attempt')}" if progress.attempts else "suppressed by a silence"
        return Markup("“{}” not sent: “firing” was never delivered ({})").format(progress.told, why)
    if progress.outcome == "unwanted":
        return Markup("“{}” not sent: this notifier takes no resolved alerts").format(progress.told) + _reached(
            progress
        )
    if progress.outcome == "before":
        return Markup("not sent: the alert had ended before this notifier was added")
    words = Markup("“{}” delivered {}").format(progress.told, when(progress.at, now)) + _acknowledgement(progress)
    return words + _reached(progress) if progress.told == "resolved" and progress.never_reached else words


def _acknowledgement(progress: Progress) -> str:
    if not progress.acknowledged:
        return ""
    return ", acknowledgement given up" if progress.acknowledgement_given_up else ", acknowledgement too"


def _reached(progress: Progress) -> Markup:
    if progress.never_reached:
        return Markup("; “firing” was never delivered")
    if progress.reached_at is None:
        return Markup("")
    return Markup("; “firing” was delivered {}").format(at(progress.reached_at))

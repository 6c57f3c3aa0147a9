"""What happened with an alert in the order of time, and what became of its notifications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape
from msgspec import Struct

from dashboards.web.charts import DRAWINGS
from dashboards.web.format import counted
from gaugeway.records import Alert
from monitors.alerting.acknowledgements import Silence
from monitors.alerting.alert_history import Event
from monitors.alerting.changes import Version
from monitors.alerting.notifiers.message import listed
from monitors.alerting.repeat_policy import Progress

ENTRIES = 50
"""Acts and notifications shown: the latest."""
_DELIVERIES = ("delivered", "failed", "given_up", "not_sent")


class Entry(Struct, frozen=True, kw_only=True):
    """What happened at Unix time `at`; `trouble` means that something failed, `ahead` that it is still to come."""

    at: float
    words: Markup
    trouble: bool = False
    ahead: bool = False


class Notified(Struct, frozen=True, kw_only=True):
    """Delivery status of an alert for one notifier; `trouble` means that a message did not arrive."""

    notifier: str
    words: Markup
    trouble: bool = False


def _worded(phrase: str, *fields: Any) -> Markup:
    """Fill in one of the phrases of `alert_words.html`, which escape texts."""
    words: Markup = getattr(DRAWINGS.get_template("alert_words.html").module, phrase)(*fields)
    return words


def timeline_of(
    alert: Alert,
    *,
    now: float,
    progress: Mapping[str, Progress],
    history: Sequence[Event],
    silences: Sequence[Silence],
    versions: Sequence[Version] = (),
) -> list[Entry]:
    """The entries, oldest first; of the `versions` those that came with the onset."""
    found = [*_of_silences(alert, history, silences, now), *_of_events(history, progress)]
    latest = sorted(found, key=lambda entry: entry.at)[-ENTRIES:]
    return sorted([*_of_alert(alert), *_of_changes(alert, versions), *latest], key=lambda entry: entry.at)


def _of_alert(alert: Alert) -> Iterator[Entry]:
    yield Entry(at=alert.finding.onset, words=Markup("most likely onset"))
    yield Entry(at=alert.since, words=Markup("first evidence: pending"))
    if alert.at_alarm is not None:
        yield Entry(at=alert.at_alarm.at, words=Markup("alarm: the evidence reached the threshold"))
    if alert.ended_at is None:
        return
    if alert.recovering_since is not None and not alert.unwatched:
        yield Entry(at=alert.recovering_since, words=Markup("most likely start of the recovery"))
    yield Entry(at=alert.ended_at, words=escape("no longer watched" if alert.unwatched else "recovered: resolved"))


def _of_changes(alert: Alert, versions: Sequence[Version]) -> Iterator[Entry]:
    """The first answer of each version that came with the onset: more exact than the onset, which scores estimate."""
    came = {(alert.app, change.kind, change.value) for change in alert.changes or ()}
    for version in versions:
        if (version.app, version.kind, version.value) in came:
            yield Entry(at=version.first_seen, words=_worded("arrived", version))


def _of_silences(alert: Alert, history: Sequence[Event], silences: Sequence[Silence], now: float) -> Iterator[Entry]:
    """Begin and end of each silence of the time of the alert; one that is no longer listed is in the history."""
    made = {event.silence: event for event in history if event.kind == "silenced"}
    ended = {event.silence: event for event in history if event.kind == "unsilenced"}
    removed = {silence.id for silence in silences if silence.removed} | ended.keys()
    begun = [
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
    listed_ids = {silence.id for silence in silences}
    begun += [event for event in history if event.kind == "silenced" and event.silence not in listed_ids]
    for event in begun:
        chosen = made[event.silence].until if event.silence in made else None
        until = chosen or event.until or event.at
        yield Entry(at=event.at, words=_worded("silenced", event, until))
        if event.silence in removed:
            act = ended.get(event.silence)
            at, name = (event.until or until, "") if act is None else (act.at, act.by)
            yield Entry(at=at, words=_worded("by", "silence removed", name))
        else:
            yield Entry(at=until, words=Markup("silence ends"), ahead=until > now)


def _of_events(history: Sequence[Event], progress: Mapping[str, Progress]) -> Iterator[Entry]:
    for event in history:
        if event.kind in _DELIVERIES:
            words = _worded("delivery", event, progress.get(event.notifier))
            yield Entry(at=event.at, words=words, trouble=event.kind != "delivered")
        elif event.kind == "acknowledged":
            yield Entry(at=event.at, words=_worded("by", event.kind, event.by, event.comment))
        elif event.kind == "unacknowledged":
            yield Entry(at=event.at, words=_worded("by", "acknowledgement undone", event.by))
        elif event.kind == "rebaselined":
            yield Entry(at=event.at, words=Markup("baseline of the rule reset"))
        elif event.kind == "noted":
            yield Entry(at=event.at, words=_worded("by", "note", event.by, event.comment))
        elif event.kind == "assigned":
            yield Entry(at=event.at, words=_worded("assigned", event))


def notified(progress: Mapping[str, Progress], now: float) -> list[Notified]:
    """Delivery status by notifier, sorted by name; notifiers that have done nothing yet are omitted."""
    return [
        Notified(notifier=name, words=_worded("notified", delivery, now), trouble=_is_lost(delivery))
        for name, delivery in sorted(progress.items())
        if _is_used(delivery)
    ]


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


def _is_lost(progress: Progress) -> bool:
    """Whether a message did not arrive, other than for a silence."""
    unheard = progress.outcome == "unheard" and progress.attempts > 0
    return progress.failing is not None or (progress.told is not None and (progress.outcome == "given_up" or unheard))

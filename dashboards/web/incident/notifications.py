"""What became of an alert's notifications, by notifier, and which means they had. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dashboards.web.format import at, counted, listed, when
from monitors.alerting.alert_history import Event
from monitors.alerting.repeat_policy import Progress


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

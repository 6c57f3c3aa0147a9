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
    for name, one in sorted(progress.items()):
        if one.failing is not None:
            found.append(Notified(notifier=name, words=_failing(one, now) + _reached(one), trouble=True))
        elif one.told is not None:
            lost = one.outcome == "given_up" or (one.outcome == "unheard" and one.attempts > 0)
            found.append(Notified(notifier=name, words=_settled(one, now), trouble=lost))
        elif one.held is not None:
            found.append(Notified(notifier=name, words=Markup("suppressed by a silence")))
    return found


def unreached(progress: Mapping[str, Progress]) -> str:
    """A sentence that names the notifiers that "firing" never reached; "" if it reached all that were due."""
    due = {name: one for name, one in progress.items() if one.outcome != "before" and _is_used(one)}
    away = sorted(name for name, one in due.items() if one.never_reached)
    if not away:
        return ""
    return f"“firing” never reached {len(away)} of {counted(len(due), 'notifier')}: {listed(away)}."


def sent_means(history: Sequence[Event]) -> tuple[Event | None, Event | None]:
    """The first message about the drop that was delivered, and the latest one if it has other numbers."""
    sent = [one for one in history if (one.kind, one.task) == ("delivered", "firing") and one.mean_since is not None]
    if not sent:
        return None, None
    first, latest = min(sent, key=lambda one: one.first or one.at), max(sent, key=lambda one: one.at)
    same = (latest.mean_before, latest.mean_since, latest.n) == (first.mean_before, first.mean_since, first.n)
    return first, None if same else latest


def _is_used(one: Progress) -> bool:
    return one.told is not None or one.failing is not None or one.held is not None


def _failing(one: Progress, now: float) -> Markup:
    if one.held == one.failing:
        then = Markup("suppressed by a silence now")
    else:
        then = Markup("next attempt {}").format(when(one.not_before, now))
    said = Markup("“{}” not delivered: {} since {}; {}")
    return said.format(one.failing, counted(one.attempts, "attempt"), at(one.since), then)


def _settled(one: Progress, now: float) -> Markup:
    if one.outcome == "given_up":
        attempts = counted(one.attempts, "attempt")
        words = Markup("“{}” not delivered: given up after {} {}").format(one.told, attempts, when(one.at, now))
        return words + _reached(one)
    if one.outcome == "unheard":
        why = f"{counted(one.attempts, 'failed attempt')}" if one.attempts else "suppressed by a silence"
        return Markup("“{}” not sent: “firing” was never delivered ({})").format(one.told, why)
    if one.outcome == "unwanted":
        return Markup("“{}” not sent: this notifier takes no resolved alerts").format(one.told) + _reached(one)
    if one.outcome == "before":
        return Markup("not sent: the alert had ended before this notifier was added")
    words = Markup("“{}” delivered {}").format(one.told, when(one.at, now)) + _acknowledgement(one)
    return words + _reached(one) if one.told == "resolved" and one.never_reached else words


def _acknowledgement(one: Progress) -> str:
    if not one.acknowledged:
        return ""
    return ", acknowledgement given up" if one.acknowledgement_given_up else ", acknowledgement too"


def _reached(one: Progress) -> Markup:
    if one.never_reached:
        return Markup("; “firing” was never delivered")
    if one.reached_at is None:
        return Markup("")
    return Markup("; “firing” was delivered {}").format(at(one.reached_at))

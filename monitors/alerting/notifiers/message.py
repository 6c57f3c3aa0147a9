"""Texts, labels and annotations of alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal

from gaugeway.records import JUDGE_BLIND, Alert, Cause, Change
from gaugeway.signals import SIGNALS
from monitors.alerting.causes import strength_word
from monitors.alerting.causes.observations import percent
from monitors.alerting.causes.traffic import NONE
from monitors.alerting.notifiers import NO_PAGE, Links
from monitors.alerting.slices import slice_words
from monitors.alerting.stream import alert_about

WATCHDOG = "watchdog"
"""Rule of the alert that always fires."""
TEST = "notifier_test"
"""Rule of a test notification."""
ALERT_NAME, BLIND_NAME, WATCHDOG_NAME = "GaugewayQualityDrop", "GaugewayJudgeBlind", "GaugewayWatchdog"
TEST_NAME = "GaugewayTest"
NAMES = {JUDGE_BLIND: BLIND_NAME, WATCHDOG: WATCHDOG_NAME, TEST: TEST_NAME}
MAX_LABEL = 200  # internal bound: size of a message that we send
"""Characters of a label's value in a message; a longer one ends in its hash."""
# internal bound: size of a message that we send
MAX_QUESTION, MAX_ANSWER, MAX_FAULTS, MAX_WORST = 200, 300, 200, 3000
"""Characters of a worst exchange's texts in a message, and of all of them together."""
MAX_HEADLINE = 250  # internal bound: size of a message that we send
"""Characters of an alert's headline in a title."""
UNKNOWN = "insufficient data"
NOTHING_CHANGED = "No new model, prompt or release explains it"
MOST_CHANGES, ALL_OF_THEM, MAX_NAMED = 2, 0.9, 60  # internal bound: length of a headline
CAUSES: Mapping[Cause, str] = {
    "retrieval": "Retrieval: the passages got worse",
    "generation": "Generation: the passages are as good as before, the answers are not",
    "judge": "The judge changed, not the answers",
    "traffic_mix": "Traffic mix: people ask other questions",
}
_KINDS = {"prompt": "prompt version"}
_FEW = 0.01
_CHECK = ", which is no proof"
_ROLL_BACK = f"{_CHECK}. Roll it back to check"
_BESIDE = {
    "as before": "; {} did not fall under it",
    "hardly worse": "; {} hardly fell under it",
    "unclear": "; too few other answers have it to say whether they fell",
}


def sent_labels(alert: Alert) -> dict[str, str]:
    """Return the labels as sent, with client-chosen values bounded."""
    return {name: bounded(value) for name, value in labels_of(alert).items()}


def bounded(value: str) -> str:
    """Return `value`, truncated with a hash at the end if it is longer than `MAX_LABEL`.

    >>> bounded("shop"), len(bounded("x" * 100_000))
    ('shop', 200)
    """
    if len(value) <= MAX_LABEL:
        return value
    digest = _hash(value)
    return f"{value[: MAX_LABEL - len(digest) - 1]}~{digest}"


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def plain(text: str, most: int) -> str:
    r"""Return at most `most` characters of `text` on one line, without control and formatting characters.

    >>> plain("  a\n\u202eb ", 10), plain("abcdef", 4)
    ('a b', 'abc…')
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def labels_of(alert: Alert) -> dict[str, str]:
    """Return the labels of an alert; `slice` and `signal` only if it is about one."""
    labels = {
        "alertname": NAMES.get(alert.rule, ALERT_NAME),
        "metric": alert.metric,
        "app": alert.app,
        "rule": alert.rule,
    }
    labels |= {"signal": alert.metric} if alert.metric in SIGNALS else {}
    return labels | ({"slice": alert.slice} if alert.slice else {}) | {"severity": alert.severity}


def title(alerts: Sequence[Alert]) -> str:
    """Return a short heading: of one quality alert what changed, else names and numbers of alerts.

    >>> title([watchdog(0.0)])
    'Firing: GaugewayWatchdog'
    """
    if len(alerts) == 1 and alerts[0].rule not in NAMES:
        alert, words = alerts[0], plain(headline(alerts[0]), MAX_HEADLINE)
        state = "Resolved" if alert.state == "resolved" else "Update" if alert.is_update else "Firing"
        return words if alert.unwatched else f"{state}: {words}"
    firing = sum(alert.state != "resolved" for alert in alerts)
    names = ", ".join(sorted({_title_of(alert) for alert in alerts}))
    unwatched = sum(alert.unwatched for alert in alerts)
    numbers = ((firing, "firing"), (len(alerts) - firing - unwatched, "resolved"), (unwatched, "no longer watched"))
    counts = [f"{n} {word}" if len(alerts) > 1 else word for n, word in numbers if n]
    return f"{' and '.join(counts).capitalize()}: {names}"


def _title_of(alert: Alert) -> str:
    name = labels_of(alert)["alertname"]
    return f"{name} ({alert.metric})" if alert.metric in SIGNALS else name


def headline(alert: Alert) -> str:
    """Return what an alert is about in one sentence: how far the mean moved, where, and after which changes.

    Page, notifications and API show this text. A change is named only if the evidence supports it (`suspected`).
    """
    if alert.rule in NAMES:
        return "The judge is responding again" if alert.state == "resolved" else "The judge is failing"
    what = _what(alert)
    before, since = alert.mean_before, alert.mean_since
    if alert.unwatched:
        return f"{what} is no longer watched"
    if alert.state == "pending":
        return f"{what} may have changed" if alert.metric in SIGNALS else f"{what} may be degraded"
    move = f"{what} changed" if alert.metric in SIGNALS else f"{what} degraded"
    if before is not None and since is not None:
        digits = 2 if f"{before:.2f}" != f"{since:.2f}" else 3
        verb = "rose" if since > before else "fell"
        move = f"{what} {verb} from {before:.{digits}f} to {since:.{digits}f}"
    elif since is not None and alert.state != "resolved":
        move = f"{what} is {number(since)}, with no scores before"
    some = [change for change in suspected(alert) if change.kind != "source" or change.value != alert.cause_source]
    place = alert.confined_to
    if place and place not in [f"{change.kind}={change.value}" for change in some]:
        move = f"{move}, {'mostly' if alert.mostly else 'only'} {_place(place)}{',' if some else ''}"
    elif alert.cause_source is not None:
        move = f"{move} in answers from {plain(bounded(alert.cause_source), MAX_NAMED)}"
    names = [_named(change) for change in some]
    more = [f"{len(names) - MOST_CHANGES} more changes"] if len(names) > MOST_CHANGES + 1 else names[MOST_CHANGES:]
    after = f" after {listed([*names[:MOST_CHANGES], *more])}" if names else ""
    return f"{move}{after}{'; recovered' if alert.state == 'resolved' else ''}"


def _what(alert: Alert) -> str:
    part = f" ({_name(slice_words(alert.slice))})" if alert.slice else ""
    return f"{subject(alert.metric)} of {_name(alert.app)}{part}"


def suspected(alert: Alert) -> Sequence[Change]:
    """Return the changes that the evidence supports: the drop is where their answers are.

    Not those whose answers outside the part that fell are as good as before, or too few to say; nor any change of the
    app where the judge or the traffic explains the drop.
    """
    if alert.likely_cause in ("judge", "traffic_mix"):
        return ()
    return [change for change in alert.changes or () if change.elsewhere in ("", "none", "worse")]


def is_pending(alert: Alert) -> bool:
    """Return whether the cause of a firing alert is still being looked for."""
    known = alert.changes is not None or alert.cause_detail or alert.likely_cause != "unknown"
    return alert.state == "firing" and alert.rule not in NAMES and not known


def verdict(alert: Alert) -> str:
    """Return the cause in a phrase, or what is known instead; the same on the page and in messages."""
    if is_pending(alert):
        return "The cause is still being computed"
    if alert.state == "pending":
        return "The cause is looked for when this becomes an alert"
    if alert.likely_cause != "unknown":
        return CAUSES[alert.likely_cause]
    names = [_named(change) for change in suspected(alert)]
    if not names or alert.cause_source is not None:
        return "No clear cause yet"
    return f"Perhaps {' or '.join(names)}: no other cause was found"


def at_onset(alert: Alert) -> str:
    """Return what changed at the onset, and what the data say about it, in sentences; "" while that is not known."""
    if alert.changes is None or alert.state == "resolved":
        return ""
    # versions are compared within the slice, and one that is a version has no other
    known = alert.changes or alert.slice.startswith(("model=", "prompt=", "tag:"))
    some, found = suspected(alert), [] if known else [f"{NOTHING_CHANGED}."]
    together, alone = [change for change in some if change.inseparable], alert.changes
    if len(together) > 1:
        came = listed([_change(change) for change in together])
        roll_back = f"Roll back {'both' if len(together) < 3 else 'all'}, or one at a time."  # noqa: PLR2004
        found.append(f"At once, and in the same answers, {came}: the data cannot tell them apart. {roll_back}")
        alone = tuple(change for change in alert.changes if change not in together)
    for change in alone:
        note = _BESIDE.get(change.elsewhere, "").format(_others(alert))
        if change in some:
            note = _CHECK if change.kind in ("source", "documents") else _ROLL_BACK
        found.append(f"At the same time {_change(change)}{note}.")
    return " ".join(found)


def changed(alert: Alert) -> str:
    """Return what changed with the onset: "" while that has not been looked up.

    >>> from gaugeway.records import Change
    >>> changed(replace(watchdog(0.0), changes=(Change(kind="model", value="mini", replaced="large"),)))
    'model mini replaced large'
    """
    if alert.changes is None:
        return ""
    return "; ".join(map(_change, alert.changes)) or NOTHING_CHANGED


def _name(value: str) -> str:
    """Return a client-chosen name on one line, bounded."""
    return plain(bounded(value), MAX_LABEL)


def _place(name: str) -> str:
    """Return where a drop is: "in topic “refund”", "with model mini"."""
    key, _, value = name.partition("=")
    if value == NONE:
        return f"without {key.removeprefix('tag:')}"
    return f"{'in' if key == 'topic' else 'with'} {_name(slice_words(name))}"


def _others(alert: Alert) -> str:
    return "other topics" if alert.confined_to.startswith("topic=") else "other answers"


def _named(change: Change) -> str:
    name = f"{change.kind.removeprefix('tag:')} {plain(bounded(change.value), MAX_NAMED)}"
    return name if change.replaced or change.since >= ALL_OF_THEM else f"{name} ({percent(change.since)} of answers)"


def listed(words: Sequence[str]) -> str:
    """Return words joined with commas and "and".

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _change(change: Change) -> str:
    what = f"{_KINDS.get(change.kind, change.kind.removeprefix('tag:'))} {_name(change.value)}"
    if change.replaced:
        return f"{what} replaced {_name(change.replaced)}"
    if change.before < _FEW:
        return f"{what} appeared in {change.since:.0%} of the answers"
    return f"{what} grew from {change.before:.0%} to {change.since:.0%} of the answers"


def shown_state(alert: Alert) -> Literal["firing", "resolved", "unwatched"]:
    """Return the state by which messages colour an alert."""
    if alert.unwatched:
        return "unwatched"
    return "resolved" if alert.state == "resolved" else "firing"


def facts(alert: Alert) -> list[tuple[str, str]]:
    """Return (name, value) pairs to show below the summary, without empty values."""
    ci = f"{number(alert.ci[0])} to {number(alert.ci[1])}" if alert.ci is not None else UNKNOWN
    measured = alert.rule not in NAMES
    first = alert.first_cause or alert.likely_cause
    rows = [
        ("Severity", alert.severity),
        ("App", bounded(alert.app)),
        ("Slice", bounded(alert.slice)),
        ("Changed with the onset", changed(alert)),
        ("Before", number(alert.mean_before) if measured else ""),
        ("Since", number(alert.mean_since) if measured else ""),
        ("95 % interval", ci if measured else ""),
        ("Onset", rfc3339(alert.finding.onset) if measured else ""),
        ("Likely cause", alert.likely_cause.replace("_", " ")),
        ("Evidence for it", strength(alert)),
        ("Rests on", "; ".join(map(bounded, alert.cause_evidence))),
        ("Source", bounded(alert.cause_source or "")),
        ("Why", alert.cause_detail),
        ("Cause found first", first.replace("_", " ") if first != alert.likely_cause else ""),
        ("Also fell", ", ".join(bounded(slice_words(where)) for where in alert.affected)),
    ]
    return [(name, value) for name, value in rows if value]


def worst(alert: Alert) -> list[tuple[str, str]]:
    """Return the id of each worst exchange with one line of its score and, if quoting is allowed, texts and faults."""
    if not alert.examples:
        return [(sample_id, "") for sample_id in alert.worst_exchanges]
    found = []
    for example in alert.examples:
        answer = plain(example.answer, MAX_ANSWER)
        parts = [
            number(example.value),
            plain(example.question, MAX_QUESTION),
            f"→ {answer}" if answer else "",
            plain("; ".join(example.faults), MAX_FAULTS),
        ]
        found.append((example.id, " · ".join(part for part in parts if part)))
    return found


def worst_answers(alert: Alert) -> str:
    """Return the texts of the worst exchanges, one line each; empty if quoting is not allowed."""
    quoted = {example.id for example in alert.examples if example.question or example.answer or example.faults}
    lines = [f"{sample_id}: {note}" for sample_id, note in worst(alert) if sample_id in quoted]
    return "\n".join(lines)[:MAX_WORST]


def watchdog(since: float) -> Alert:
    """Return the alert that always fires: if it stops arriving, the monitors or the delivery are broken."""
    return alert_about("monitors", WATCHDOG, "none", since=since, name=_hash(WATCHDOG))


def trial(now: float) -> tuple[Alert, Alert]:
    """Return a test notification, firing and resolved: what it opens at the receiver is closed again."""
    firing = alert_about("none", TEST, "info", since=now, name=_hash(f"{TEST} {now!r}"))
    return firing, replace(firing, state="resolved", ended_at=now)


def annotations_of(alert: Alert, links: Links = NO_PAGE) -> dict[str, str]:
    """Return the annotations, on the metric's own scale; `evidence` is log10 of e-value / threshold (0 = alarm)."""
    exchanges = [links.exchange(sample_id) for sample_id in alert.worst_exchanges]
    return {
        "summary": summary(alert),
        "mean_before": number(alert.mean_before),
        "mean_since": number(alert.mean_since),
        "ci": f"{number(alert.ci[0])} to {number(alert.ci[1])}" if alert.ci is not None else UNKNOWN,
        "changed": changed(alert),
        "onset": rfc3339(alert.finding.onset),
        "evidence": f"{alert.finding.evidence_log10:.2f}",
        "likely_cause": alert.likely_cause,
        "cause_detail": alert.cause_detail,
        "cause_strength": strength(alert),
        "cause_evidence": "; ".join(map(bounded, alert.cause_evidence)),
        "cause_hop": "" if alert.cause_hop is None else str(alert.cause_hop),
        "cause_tool": bounded(alert.cause_tool or ""),
        "source": bounded(alert.cause_source or ""),
        "first_cause": alert.first_cause or "",
        "affected_slices": ",".join(map(bounded, alert.affected)),
        "worst_exchanges": ",".join(alert.worst_exchanges),
        "worst_exchange_links": ",".join(link for link in exchanges if link),
        "worst_answers": worst_answers(alert),
        "runbook": links.runbook_url,
    }


def strength(alert: Alert) -> str:
    """Return the strength of the cause in a word and as a number, "" for an unknown cause."""
    if alert.cause_strength is None:
        return ""
    return f"{strength_word(alert.cause_strength)} ({min(0.99, alert.cause_strength):.2f})"


def summary(alert: Alert) -> str:
    """Return the headline, the interval, the likely cause and what came at the same time."""
    if alert.rule == JUDGE_BLIND:
        return _judge_outage(alert)
    if alert.rule == WATCHDOG:
        return "the monitors are at work; this alert always fires, and only its silence is news"
    if alert.rule == TEST:
        return f"TEST of this notifier, sent from Gaugeway's settings at {_clock(alert.since)}: no quality has changed"
    what = _what(alert)
    if alert.unwatched:
        return (
            f"{what} is no longer watched since {rfc3339(alert.ended_at or alert.since)}: no rule covers it; it had "
            f"changed since about {_clock(alert.finding.onset)}, and whether it recovered is not known"
        )
    if alert.state == "resolved":
        ended = rfc3339(alert.ended_at) if alert.ended_at is not None else "now"
        change = "change" if alert.metric in SIGNALS else "drop"
        then = f"{what} recovered at {ended} after a {change} that began about {rfc3339(alert.finding.onset)}"
        return f"{then}; its worst answers as a data set: gaugeway dataset add NAME --alert {alert.fingerprint}"
    scores = f"{alert.finding.n} scores, too few for an interval"
    if alert.ci is not None:
        scores = f"95 % interval {number(alert.ci[0])} to {number(alert.ci[1])}, {alert.finding.n} scores"
    known = f" ({strength_word(alert.cause_strength)} evidence)" if alert.cause_strength is not None else ""
    cause = f"{verdict(alert)}{known}. {at_onset(alert)}".rstrip()
    return f"{headline(alert)} ({scores}; began about {_clock(alert.finding.onset)}). {cause}"


def subject(metric: str) -> str:
    """Return what an alert is about, for people.

    >>> subject("faithfulness"), subject("abstained")
    ('faithfulness', 'share of answers that decline to answer (abstained)')
    """
    return f"{SIGNALS[metric].meaning} ({metric})" if metric in SIGNALS else metric


def _judge_outage(alert: Alert) -> str:
    since = rfc3339(alert.since)
    if alert.ended_at is not None and alert.cause_detail:
        return f"{alert.cause_detail} since {rfc3339(alert.ended_at)}; the judge had failed since {since}"
    if alert.ended_at is not None:
        return f"judge recovered at {rfc3339(alert.ended_at)}; it had been failing since {since}"
    return f"judge failing since {since}: no judged metrics; quality alerts frozen until it recovers"


def _clock(moment: float) -> str:
    """Format a Unix time for people, UTC, to the second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def rfc3339(moment: float) -> str:
    """Format a Unix time as RFC 3339, UTC.

    >>> rfc3339(1_760_000_000.5)
    '2025-10-09T08:53:20.500Z'
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number(value: float | None) -> str:
    """Format a mean; "insufficient data" for None."""
    return f"{value:.3f}" if value is not None else UNKNOWN

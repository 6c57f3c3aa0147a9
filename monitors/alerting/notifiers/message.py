"""Texts, labels and annotations of alerts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal

from gaugeway.records import JUDGE_BLIND, Alert, Change
from gaugeway.signals import SIGNALS
from monitors.alerting.causes import strength_word
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
NOTHING_CHANGED = "no new model, prompt or release explains it"
_KINDS = {"prompt": "prompt version"}
_FEW = 0.01


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
    """Return what an alert is about in one sentence: how far the mean moved, and what changed with it."""
    if alert.rule in NAMES:
        return "The judge is responding again" if alert.state == "resolved" else "The judge is failing"
    what = _what(alert)
    before, since = alert.mean_before, alert.mean_since
    rose = before is not None and since is not None and since > before
    if alert.unwatched:
        return f"{what} is no longer watched"
    if alert.state == "resolved":
        return f"{what} {'rose' if rose else 'fell'} and recovered"
    if alert.state == "pending":
        return f"{what} may have changed" if alert.metric in SIGNALS else f"{what} may be degraded"
    if before is None or since is None:
        return f"{what} changed" if alert.metric in SIGNALS else f"{what} degraded"
    digits = 2 if f"{before:.2f}" != f"{since:.2f}" else 3
    move = f"{what} {'rose' if rose else 'fell'} from {before:.{digits}f} to {since:.{digits}f}"
    return f"{move} since {changed(alert)}" if alert.changes else move


def _what(alert: Alert) -> str:
    return f"{subject(alert.metric)} of {_name(alert.app)}" + (f" ({_name(alert.slice)})" if alert.slice else "")


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
    """Return one sentence: how far the mean moved, what changed with it, the interval and the likely cause."""
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
    move = headline(alert)
    if alert.mean_before is None and alert.mean_since is not None:
        move = f"{what} is {number(alert.mean_since)}, with no scores before"
    nothing = f"; {NOTHING_CHANGED}" if alert.changes == () else ""
    known = f" ({strength_word(alert.cause_strength)} evidence)" if alert.cause_strength is not None else ""
    cause = "" if alert.likely_cause == "unknown" else f"; look at {alert.likely_cause.replace('_', ' ')} first{known}"
    return f"{move} ({scores}; began about {_clock(alert.finding.onset)}){nothing}{cause}"


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

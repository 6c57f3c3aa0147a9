"""What a webhook receives: the body that Prometheus Alertmanager sends, version 4, with one alert in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from monitors.records import JUDGE_BLIND, Alert

ALERT_NAME, BLIND_NAME = "GaugewayQualityDrop", "GaugewayJudgeBlind"
RECEIVER = "gaugeway"
RUNBOOK = "docs/how-to/respond-to-an-alert.md"
NOT_ENDED = "0001-01-01T00:00:00Z"
"""How Alertmanager writes the end of an alert that still fires."""
UNKNOWN = "insufficient data"


def webhook_body(alert: Alert) -> dict[str, Any]:
    """The JSON object for one alert; its links to a page of ours are empty, as there is none.

    Shape: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config. Annotation values are strings.
    """
    status = "resolved" if alert.state == "resolved" else "firing"
    group = {
        "alertname": BLIND_NAME if alert.rule == JUDGE_BLIND else ALERT_NAME,
        "metric": alert.metric,
        "app": alert.app,
        "rule": alert.rule,
    }
    labels = {**group, "severity": alert.severity}
    notes = annotations_of(alert)
    return {
        "version": "4",
        "groupKey": "{}:{" + ", ".join(f"{name}={_quoted(value)}" for name, value in sorted(group.items())) + "}",
        "truncatedAlerts": 0,
        "status": status,
        "receiver": RECEIVER,
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": notes,
        "externalURL": "",
        "alerts": [
            {
                "status": status,
                "labels": labels,
                "annotations": notes,
                "startsAt": rfc3339(alert.since),
                "endsAt": rfc3339(alert.ended_at) if alert.ended_at is not None else NOT_ENDED,
                "generatorURL": "",
                "fingerprint": alert.fingerprint,
            }
        ],
    }


def annotations_of(alert: Alert) -> dict[str, str]:
    """The annotations, on the metric's own scale; `evidence` is log10 of the e-value over its threshold (0 = alarm)."""
    return {
        "summary": summary(alert),
        "mean_before": _number(alert.mean_before),
        "mean_since": _number(alert.mean_since),
        "ci": f"{_number(alert.ci[0])} to {_number(alert.ci[1])}" if alert.ci is not None else UNKNOWN,
        "onset": rfc3339(alert.finding.onset),
        "evidence": f"{alert.finding.evidence_log10:.2f}",
        "likely_cause": alert.likely_cause,
        "worst_exchanges": ",".join(alert.worst_exchanges),
        "runbook": RUNBOOK,
    }


def summary(alert: Alert) -> str:
    """One sentence for people, with the numbers and how sure they are."""
    if alert.rule == JUDGE_BLIND:
        return _blindness(alert)
    what = f"{alert.metric} of app {alert.app!r}"
    if alert.state == "resolved":
        ended = rfc3339(alert.ended_at) if alert.ended_at is not None else "now"
        return f"{what} recovered at {ended} after a drop that began about {rfc3339(alert.finding.onset)}"
    move = "changed"
    if alert.mean_before is not None and alert.mean_since is not None:
        move = "rose" if alert.mean_since > alert.mean_before else "fell"
    interval = (
        f"95 % interval {_number(alert.ci[0])} to {_number(alert.ci[1])}"
        if alert.ci is not None
        else "too few scores for an interval"
    )
    cause = "" if alert.likely_cause == "unknown" else f"; look at {alert.likely_cause.replace('_', ' ')} first"
    return (
        f"{what} {move} from {_number(alert.mean_before)} to {_number(alert.mean_since)} ({interval}, "
        f"{alert.finding.n} scores) since about {rfc3339(alert.finding.onset)}{cause}"
    )


def _blindness(alert: Alert) -> str:
    since = rfc3339(alert.since)
    if alert.ended_at is not None:
        return f"the judge answers again since {rfc3339(alert.ended_at)}; it had failed since {since}"
    return f"the judge fails since {since}: nothing is judged, and no quality alert fires or resolves until it answers"


def rfc3339(moment: float) -> str:
    """A Unix time in RFC 3339, UTC.

    >>> rfc3339(1_760_000_000.5)
    '2025-10-09T08:53:20.500Z'
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _number(value: float | None) -> str:
    return f"{value:.3f}" if value is not None else UNKNOWN


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

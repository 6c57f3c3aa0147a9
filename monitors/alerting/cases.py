"""The open alerts and the latest resolved ones, with what the engine has to remember about each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import msgspec

from gaugeway.records import JUDGE_BLIND, NOT_JUDGED, Alert
from monitors.alerting.stream import Case, judge_outage

HISTORY = 200
"""Alerts that are kept; the oldest resolved ones above this are dropped."""
_NEVER = 1e18


class Cases:
    """All cases by their alert's fingerprint.

    >>> cases = Cases()
    >>> cases.track_judge_outage(1000.0, now=1060.0), cases.track_judge_outage(1000.0, now=1120.0)
    (True, False)
    >>> cases.track_judge_outage(None, now=1180.0), cases.alerts()[0].ended_at
    (True, 1180.0)
    """

    def __init__(self) -> None:
        self.by_fingerprint: dict[str, Case] = {}

    def __iter__(self) -> Iterator[Case]:
        return iter(list(self.by_fingerprint.values()))

    def alerts(self) -> Sequence[Alert]:
        """Return the alerts, newest first."""
        return sorted((case.alert for case in self), key=lambda alert: alert.since, reverse=True)

    def earlier(self, alert: Alert) -> tuple[tuple[float, float], ...]:
        """Return the times, onset to end, of earlier alerts of the same app and metric, cut at this alert's onset.

        An alert of a slice counts for that slice only: the rest of the app was well.
        """
        onset, found = alert.finding.onset, []
        for other in (case.alert for case in self if case.alert.state != "pending"):
            same = (other.app, other.metric) == (alert.app, alert.metric) and other.slice in ("", alert.slice)
            if same and other.finding.onset < onset:
                found.append((other.finding.onset, min(onset, onset if other.ended_at is None else other.ended_at)))
        return tuple(sorted(found))

    def unresolved(self) -> dict[str, Case]:
        """Return the cases that have not ended, by fingerprint."""
        return {name: case for name, case in self.by_fingerprint.items() if case.alert.state != "resolved"}

    def load(self, state: bytes) -> None:
        """Replace the cases with a state from `dump`."""
        cases = msgspec.json.decode(state, type=list[Case])
        self.by_fingerprint = {case.alert.fingerprint: case for case in cases}

    def dump(self) -> bytes:
        """Return the state to save."""
        return msgspec.json.encode(list(self.by_fingerprint.values()))

    def close_orphans(self, tracked: Collection[str], now: float) -> None:
        """End firing alerts whose fingerprint no stream tracks (their rule was removed); drop pending ones."""
        for case in self:
            if case.alert.fingerprint in tracked or case.alert.rule == JUDGE_BLIND:
                continue
            if case.alert.state == "pending":
                del self.by_fingerprint[case.alert.fingerprint]
            elif case.alert.state == "firing":
                case.alert = replace(case.alert, state="resolved", ended_at=now, recovery=None, unwatched=True)

    def judge_outage_since(self) -> float | None:
        """Return the start of the judge's outage whose alert fires; None without one."""
        opened = self._judge_outage()
        return None if opened is None else opened.alert.since

    def track_judge_outage(self, since: float | None, now: float, *, in_use: bool = True) -> bool:
        """Open an alert for a judge that fails `since` then, or resolve it (None); return whether anything changed.

        With `in_use` False it resolves because no metric is judged any more.
        """
        opened = self._judge_outage()
        if since is None and opened is not None:
            why = "" if in_use else NOT_JUDGED
            opened.alert = replace(opened.alert, state="resolved", ended_at=now, cause_detail=why)
            return True
        if since is not None and opened is None:
            alert = judge_outage(since)
            self.by_fingerprint[alert.fingerprint] = Case(alert=alert, alarm_at=_NEVER, described_until=_NEVER)
            return True
        return False

    def _judge_outage(self) -> Case | None:
        return next((case for case in self if case.alert.rule == JUDGE_BLIND and case.alert.state == "firing"), None)

    def drop_old(self) -> Sequence[str]:
        """Drop the oldest resolved alerts above `HISTORY`; return their fingerprints."""
        resolved = [alert.fingerprint for alert in self.alerts() if alert.state == "resolved"]
        dropped = resolved[max(0, HISTORY - (len(self.by_fingerprint) - len(resolved))) :]
        for fingerprint in dropped:
            del self.by_fingerprint[fingerprint]
        return dropped

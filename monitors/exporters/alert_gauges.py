"""The watched streams as Prometheus gauges, and counts of what goes wrong with alerts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from monitors.alerting.delivery import Result
from monitors.alerting.engine import StreamStatus
from monitors.alerting.versions import Version
from monitors.exporters.instruments import Instruments
from monitors.runtime.label_cap import OVERFLOW

_VERSIONS = 100


class AlertGauges:
    """Shows the watched streams and the versions seen, and counts what goes wrong with alerts."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._slices: set[tuple[str, ...]] = set()
        self._versions: set[tuple[str, ...]] = set()

    def show_streams(self, streams: Sequence[StreamStatus]) -> None:
        """Set the gauges of every stream; a slice has one only while its alert fires."""
        firing: set[tuple[str, ...]] = set()
        for one in streams:
            app = self._instruments.cap("app", one.app)
            if app == OVERFLOW:  # under one name they would overwrite each other
                continue
            labels = (app, one.metric, one.rule)
            if one.slice:
                if one.state == "firing":
                    firing.add((*labels, one.slice))
                continue
            self._instruments.quality_alarm.labels(*labels).set(one.state == "firing")
            self._instruments.quality_evidence_log10.labels(*labels).set(one.evidence_log10)
            if one.m0 is not None:
                self._instruments.quality_baseline.labels(*labels).set(one.m0)
            else:  # it is being learned, perhaps afresh
                with contextlib.suppress(KeyError):
                    self._instruments.quality_baseline.remove(*labels)
        for new in firing:
            self._instruments.quality_slice_alarm.labels(*new).set(1)
        for gone in self._slices - firing:
            with contextlib.suppress(KeyError):
                self._instruments.quality_slice_alarm.remove(*gone)
        self._slices = firing

    def show_versions(self, versions: Sequence[Version]) -> None:
        """Show since when each of the latest versions is in the traffic."""
        shown: set[tuple[str, ...]] = set()
        for one in versions[-_VERSIONS:]:
            labels = self._instruments.cap("app", one.app), one.kind, one.value
            self._instruments.version_first_seen.labels(*labels).set(one.first_seen)
            shown.add(labels)
        for gone in self._versions - shown:
            with contextlib.suppress(KeyError):
                self._instruments.version_first_seen.remove(*gone)
        self._versions = shown

    def notified(self, notifier: str, result: Result) -> None:
        """Count what became of telling an alert."""
        self._instruments.notifications.labels(notifier, result).inc()

    def description_failed(self) -> None:
        """Count an alert whose description could not be looked up."""
        self._instruments.worker_errors.labels("describe").inc()

    def app_over_limit(self, app: str) -> None:
        """Count an app that a rule has no room for, once."""
        self._instruments.cap.count("watched_app", app)

    def low_coverage(self, metric: str, scores: int) -> None:
        """Count scores that are no evidence, because too many evaluations beside them failed."""
        self._instruments.uncovered_scores.labels(metric).inc(scores)

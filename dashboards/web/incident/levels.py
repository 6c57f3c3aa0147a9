"""Means of an alert before the onset, since, and now, each with its interval and number of scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gaugeway.records import Alert
from gaugeway.storage.stores import Query, Store
from gaugeway.storage.sums import WeightedSums
from monitors.analysis.incident.reading import incident_query, incident_span
from monitors.statistics.confidence_sequence import Level, level_of
from monitors.statistics.weighted_mean import hajek_from_sums

NOW_S, LEAST_NOW_S = 3600.0, 300.0
"""The mean "now" is of the last hour; of the last half of the time since the onset, where that is shorter."""
SHOWN_RECOVERY = 0.5
"""From this share of the evidence for a recovery on it is shown although the mean "now" has scores from before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The means of an alert. `now` is None once it ended; `now_s` is how many seconds it covers."""

    before: Level | None
    since: Level | None
    now: Level | None
    now_s: float
    before_s: float

    def current(self, alert: Alert) -> Alert:
        """The alert with these means, so that a page shows one mean since the onset, not the one last described too."""
        if self.before is None or self.since is None:
            return alert
        return replace(alert, mean_before=self.before.mean, mean_since=self.since.mean)


async def levels_of(store: Store, alert: Alert, now: float) -> Levels:
    """Read the means of an alert's app, metric and slice from sums in the store."""
    before, onset, until = incident_span(alert, now)
    now_s = max(LEAST_NOW_S, min(NOW_S, (until - onset) / 2.0))
    query = incident_query(alert, before, onset)
    over = alert.state == "resolved"
    return Levels(
        before=await mean_of(store, query),
        since=await mean_of(store, replace(query, since=onset, until=until)),
        now=None if over else await mean_of(store, replace(query, since=max(onset, now - now_s), until=now)),
        now_s=now_s,
        before_s=onset - before,
    )


def is_recovering(alert: Alert, levels: Levels, target: float | None, now: float) -> bool:
    """Whether there is a sign of a recovery that is worth showing.

    That is some evidence while the mean "now" is on the good side of the baseline or SLO (`target`), or half of the
    evidence while that mean still has scores from before the recovery began. Without scores of the last minutes, or
    with a mean on the bad side, the little evidence that chance gives would look like good news.
    """
    if alert.state != "firing" or not alert.recovery or alert.recovering_since is None or levels.now is None:
        return False
    mean = levels.now.mean
    if target is not None and (mean <= target if alert.direction == "rise" else mean >= target):
        return True
    return alert.recovery >= SHOWN_RECOVERY and now - levels.now_s < alert.recovering_since


async def mean_of(store: Store, query: Query) -> Level | None:
    """The weighted mean of a query's scores; without an interval for too few of them."""
    return level_of(hajek_from_sums(sum(await store.summary(query), WeightedSums())))

"""Names of metrics that people give: those that Gaugeway knows, and those with evaluations in the store."""

from __future__ import annotations

from collections.abc import Collection

from gaugeway.settings.options import hint
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query, Store
from monitors.metrics.registry import known, resolve


class UnknownMetricError(ValueError):
    """Nothing has this name; the message names what there is."""


async def check_metric(store: Store, name: str, *, since: float, until: float, enabled: Collection[str] = ()) -> None:
    """Raise UnknownMetricError for a name of no metric, no signal and nothing stored from `since` to `until`.

    `enabled` are the names of the metrics that run here. Of a replay's name ("faithfulness~other") the metric's counts.
    """
    plain = name.partition("~")[0]
    named = resolve(plain)
    if plain in enabled or plain in SIGNALS or (named is not None and named.target != plain):
        return
    if not await store.series(Query(since=since, until=until, metric=name, limit=1)):
        raise UnknownMetricError(f"unknown metric {name!r}{hint(name, [*enabled, *known(), *SIGNALS])}")

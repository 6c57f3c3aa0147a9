"""Alerts: the list, and the page of one alert with its chart, cause, notifications and forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import Dot, Line, Mark, timeline
from dashboards.web.format import MIN_N, ago, iso, number
from dashboards.web.site import Page, Site
from dashboards.web.trends import estimated
from dashboards.web.views.sources import source_link
from monitors.alerting.notifiers.message import NAMES, labels_of, subject
from monitors.alerting.repeat_policy import Progress
from monitors.alerting.rule_watch import ALL
from monitors.alerting.slices import OTHER
from monitors.records import Alert
from monitors.signals import SIGNALS
from monitors.statistics.confidence_sequence import closed_window
from monitors.storage.stores import Query, Store

LEAST_BEFORE_S, MOST_BEFORE_S, MOST_SINCE_S = 600.0, 86_400.0, 7 * 86_400.0
BINS, LEAST_BINS, PER_BIN, FEW = 36, 6, 30, 5
SILENCE_FOR = ((3600, "1 hour"), (14_400, "4 hours"), (86_400, "1 day"), (604_800, "7 days"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """Delivery status of an alert for one notifier; `trouble` means that delivery is failing."""

    notifier: str
    words: str
    at: float | None
    trouble: bool = False


def headline(alert: Alert) -> str:
    """One-sentence summary of an alert."""
    if alert.rule in NAMES:
        return "The judge is responding again" if alert.state == "resolved" else "The judge is failing"
    what = f"{subject(alert.metric)} of {alert.app}" + (f" ({alert.slice})" if alert.slice else "")
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
    return f"{what} {'rose' if rose else 'fell'} from {number(before)} to {number(since)}"


def history(progress: Mapping[str, Progress]) -> list[Notified]:
    """Delivery status by notifier, sorted by name; notifiers that have done nothing yet are omitted."""
    found = []
    for name, one in sorted(progress.items()):
        if one.failing is not None:
            words = f"“{one.failing}” not delivered: {one.attempts} attempts since {iso(one.since)}"
            found.append(Notified(notifier=name, words=words, at=one.not_before, trouble=True))
        elif one.told is not None:
            words = f"“{one.told}” delivered" + (", acknowledgement too" if one.acknowledged else "")
            found.append(Notified(notifier=name, words=words, at=one.at))
        elif one.held is not None:
            found.append(Notified(notifier=name, words="suppressed by a silence", at=None))
    return found


def query_of(alert: Alert, since: float, until: float) -> Query:
    """Store query for the evaluations of the alert's app, metric and slice."""
    name, _, value = alert.slice.partition("=")
    narrowed: dict[str, Any] = {}
    if alert.slice and value != OTHER:
        narrowed = {"tag": (name.removeprefix("tag:"), value)} if name.startswith("tag:") else {name: value}
    app = None if alert.app == ALL else alert.app
    return Query(since=since, until=until, metric=alert.metric, app=app, **narrowed)


def span(alert: Alert, now: float) -> tuple[float, float]:
    """Time range of the chart (Unix seconds): as long before the onset as after it, within bounds."""
    onset = alert.finding.onset
    end = min(now, onset + MOST_SINCE_S) if alert.ended_at is None else min(alert.ended_at, onset + MOST_SINCE_S)
    lasted = max(end - onset, LEAST_BEFORE_S)
    return onset - min(lasted, MOST_BEFORE_S), min(now, max(end, onset) + 0.1 * lasted)


async def dots_around(store: Store, query: Query) -> list[Dot]:
    """Means over the query's time range; the number of bins grows with the number of scores."""
    total = sum(one.n for one in await store.summary(query))
    bins = max(LEAST_BINS, min(BINS, total // PER_BIN))
    seconds = (query.until - query.since) / bins
    dots = []
    for index in range(bins):
        start = query.since + index * seconds
        part = Query(
            **{name: getattr(query, name) for name in ("metric", "app", "model", "prompt", "tag")},
            since=start,
            until=start + seconds,
        )
        for sums in await store.summary(part):
            found = estimated(sums)
            if found is not None and found.n >= FEW:
                low, high = closed_window(found) if found.n_eff >= MIN_N else (None, None)
                dots.append(Dot(at=start + seconds / 2, mean=found.mean, low=low, high=high, n=found.n))
    return dots


def chart(alert: Alert, dots: Sequence[Dot], since: float, until: float, baseline: float | None) -> Markup:
    """Timeline of the means around the onset; empty without dots."""
    if not dots:
        return Markup("")
    marks = [Mark(at=alert.finding.onset, label="onset")]
    if alert.ended_at is not None:
        marks.append(Mark(at=alert.ended_at, label="end"))
    return timeline(
        [Line(dots=dots)],
        title=f"{alert.metric} of {alert.app} around the onset",
        desc=f"Mean before {number(alert.mean_before)}, since {number(alert.mean_since)}; "
        f"onset {iso(alert.finding.onset)}",
        since=since,
        until=until,
        baseline=baseline,
        marks=marks,
    )


def alert_view_handlers(site: Site) -> list[Any]:
    """The handlers of `/alerts`."""

    @get("/alerts")
    async def alerts(request: Page) -> Template:
        now, every = site.clock(), site.engine.alerts()
        silences = await site.engine.acknowledgements.silences()
        return site.render(
            request,
            "alerts.html",
            title="Alerts",
            open_alerts=[(one, headline(one)) for one in every if one.state != "resolved"],
            over=[(one, headline(one)) for one in every if one.state == "resolved"],
            acks=site.engine.acknowledgements.acks(),
            silenced={one.fingerprint for one in every if any(s.mutes(labels_of(one), now) for s in silences)},
            silences=[(one, one.state(now), ago(one.ends, now)) for one in silences],
            letters=await site.engine.acknowledgements.undelivered(),
        )

    @get("/alerts/{fingerprint:str}")
    async def alert(request: Page, fingerprint: FromPath[str]) -> Template:
        now, found = site.clock(), found_alert(site, fingerprint)
        since, until = span(found, now)
        measured = found.rule not in NAMES
        dots = await dots_around(site.insight.store, query_of(found, since, until)) if measured else []
        streams = [one for one in site.engine.streams() if one.rule == found.rule]
        watched = [one for one in streams if one.app == found.app and one.slice == found.slice]
        baseline = watched[0].m0 if watched else None
        silences = await site.engine.acknowledgements.silences()
        return site.render(
            request,
            "alert.html",
            title=headline(found),
            alert=found,
            measured=measured,
            source_address=source_link(found.app, found.cause_source or ""),
            chart=chart(found, dots, since, until, baseline),
            baseline=baseline,
            margin=watched[0].margin if watched else 0.0,
            ack=site.engine.acknowledgements.acks().get(fingerprint),
            silences=[one for one in silences if one.mutes(labels_of(found), now)],
            history=None if site.delivery_progress is None else history(site.delivery_progress(fingerprint)),
            letters=[
                one for one in await site.engine.acknowledgements.undelivered() if one.alert.fingerprint == fingerprint
            ],
            durations=SILENCE_FOR,
            can_rebaseline=bool(streams),
            same=[
                one
                for one in site.engine.alerts()
                if one.app == found.app and one.fingerprint != fingerprint and one.state == "firing"
            ],
        )

    @get("/runbook", sync_to_thread=False)
    def runbook(request: Page) -> Template:
        return site.render(request, "runbook.html", title="What to do about an alert")

    return [alerts, alert, runbook]


def found_alert(site: Site, fingerprint: str) -> Alert:
    """The alert of that fingerprint. Raises NotFoundException."""
    found = next((one for one in site.engine.alerts() if one.fingerprint == fingerprint), None)
    if found is None:
        raise NotFoundException(f"no alert has the fingerprint {fingerprint}; those long over are not kept")
    return found

"""Alerts: the list; the page of one alert with its means, cause, suspects, answers and timeline; and its forms."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from litestar import get, post
from litestar.exceptions import HTTPException, NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect, Template
from markupsafe import Markup

from dashboards import runbooks
from dashboards.web.addresses import address_with, alert_fields
from dashboards.web.charts import Dot, Line, Mark, timeline
from dashboards.web.format import iso, number
from dashboards.web.incident.alert_answers import (
    answers_url,
    chart_of,
    examples_of,
    is_recovering,
    levels_of,
    suspects_of,
    words_of,
)
from dashboards.web.incident.timeline import notified, sent_means, timeline_of, unreached
from dashboards.web.site import Page, Site, done, operator_cookie, operator_of
from gaugeway.records import Alert
from gaugeway.runtime import audit
from gaugeway.settings.shared import Rule
from gaugeway.storage.stores import Query, Store
from monitors.alerting.acknowledgements import Ack, Matcher, Silence
from monitors.alerting.alert_history import MAX_NOTE
from monitors.alerting.engine import StreamStatus
from monitors.alerting.notifiers.message import NAMES, headline, is_pending, labels_of
from monitors.alerting.rule_watch import ALL, name_of
from monitors.analysis.incident.reading import IncidentReport, IncidentReports, incident_query, incident_span
from monitors.api.alerts import add_silence, address_of, delivered_now
from monitors.statistics.confidence_sequence import level_of
from monitors.statistics.weighted_mean import hajek_from_sums

LEAST_BEFORE_S, MOST_BEFORE_S, MOST_SINCE_S = 600.0, 86_400.0, 7 * 86_400.0  # internal bound: span of a chart
BINS, LEAST_BINS, PER_BIN, FEW = 36, 6, 30, 5
COMPARED_S = 0.1
"""How long the page waits for the comparison of bad and good answers; without it, it says that it is being made."""
MAX_BY, MAX_COMMENT = 200, 2000
GRAFANA_APP = "gaugeway-app"
"""Identifier of the dashboard of an app (`dashboards/grafana/app.json`)."""
COUNTED = 8
"""Firing alerts of the list whose bad answers are counted."""
STREAMS = 20
"""Streams named on the page that confirms a reset of their baselines."""
SILENCE_FOR = ((3600, "1 hour"), (14_400, "4 hours"), (86_400, "1 day"), (604_800, "7 days"))


def span(alert: Alert, now: float) -> tuple[float, float]:
    """Time range of the chart (Unix seconds): as long before the onset as after it, within bounds."""
    onset = alert.finding.onset
    end = min(now, onset + MOST_SINCE_S) if alert.ended_at is None else min(alert.ended_at, onset + MOST_SINCE_S)
    lasted = max(end - onset, LEAST_BEFORE_S)
    return onset - min(lasted, MOST_BEFORE_S), min(now, max(end, onset) + 0.1 * lasted)


async def dots_around(store: Store, query: Query) -> list[Dot]:
    """Means over the query's time range; the number of bins grows with the number of scores."""
    total = sum(summary.n for summary in await store.summary(query))
    bins = max(LEAST_BINS, min(BINS, total // PER_BIN))
    seconds = (query.until - query.since) / bins
    dots = []
    for index in range(bins):
        start = query.since + index * seconds
        for sums in await store.summary(replace(query, since=start, until=start + seconds)):
            found = level_of(hajek_from_sums(sums))
            if found is not None and found.n >= FEW:
                dots.append(Dot.of(start + seconds / 2, found))
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


class Unit(NamedTuple):
    """What the alerts of an app count as independent: the share of scores whose conversation is known, and how many
    scores count as one because of what nothing names; both of its least favourable rule.
    """

    app: str
    named: float
    design_effect: float


def units_of(streams: Iterable[StreamStatus]) -> list[Unit]:
    """What is counted as independent, of every app with a stream."""
    by_app: dict[str, Unit] = {}
    for stream in streams:
        if not stream.slice:
            known = by_app.get(stream.app, Unit(stream.app, stream.named, stream.design_effect))
            effect = max(known.design_effect, stream.design_effect)
            by_app[stream.app] = Unit(stream.app, min(known.named, stream.named), effect)
    return sorted(by_app.values())


def alert_view_handlers(site: Site) -> list[Any]:
    """The handlers of `/alerts` and of the runbooks."""
    reports = IncidentReports(
        site.insight.store, names=site.sources.all_names, passing=site.sources.passing, clock=site.clock
    )

    @get("/alerts")
    async def alerts(request: Page) -> Template:
        desk = site.engine.acknowledgements
        return site.render(
            request,
            "alerts.html",
            title="Alerts",
            alerts=site.engine.alerts(),
            reports=await _counted(site, reports),
            acknowledged_by=partial(acknowledged_by, site),
            assignee=desk.history.assignee,
            silence_of=desk.silence_of,
            silences=await desk.silences(),
            letters=await desk.undelivered(),
            units=units_of(site.engine.streams()),
        )

    @get("/alerts/{fingerprint:str}")
    async def alert(request: Page, fingerprint: FromPath[str]) -> Template:
        found = found_alert(site, fingerprint)
        streams = [stream for stream in site.engine.streams() if stream.rule == found.rule]
        about = [stream for stream in streams if stream.app == found.app and stream.slice == found.slice]
        slo, baseline = slo_of(found.rule, site.config.alerts.rules or ()), about[0].m0 if about else None
        measured = await _measured(site, reports, found, baseline if slo is None else slo)
        return site.render(
            request,
            "alert.html",
            title=headline(measured["current"]),
            alert=found,
            pending=is_pending(found),
            query=grafana_query(found),
            grafana=grafana_page(found, base, site.clock()) if (base := site.config.monitors.grafana_url) else "",
            trials=site.trials is not None and found.app != ALL,
            limits={"name": MAX_BY, "comment": MAX_COMMENT, "note": MAX_NOTE},
            watched=about[0] if about else None,
            baseline=baseline,
            slo=slo,
            can_rebaseline=bool(streams) and slo is None,
            **measured,
            **await _acts(site, found),
            operator=operator_of(request),
            ack=site.engine.acknowledgements.acks().get(fingerprint),
            acknowledged_by=acknowledged_by(site, found),
            durations=SILENCE_FOR,
            alerts=site.engine.alerts(),
        )

    return [alerts, alert, *runbook_handlers(site)]


def runbook_handlers(site: Site) -> list[Any]:
    """The handlers of `/runbook` and `/runbooks`."""
    texts = runbooks()

    @get("/runbook", sync_to_thread=False)
    def runbook(request: Page) -> Template:
        return site.render(request, "runbook.html", title="What to do about an alert", alerts=list(texts))

    @get("/runbooks/{name:str}", sync_to_thread=False)
    def alert_runbook(request: Page, name: FromPath[str]) -> Template:
        about = name.removesuffix(".md")
        if about not in texts:
            raise NotFoundException(f"no alert has the name {about[:100]}")
        return site.render(request, "alert_runbook.html", title=about, text=texts[about])

    return [runbook, alert_runbook]


def acknowledged_by(site: Site, alert: Alert) -> str:
    """Who acknowledged an alert, also one that has ended; "" for no one."""
    desk = site.engine.acknowledgements
    ack = desk.acks().get(alert.fingerprint)
    return ack.by if ack is not None else desk.history.acknowledged_by(alert.fingerprint)


async def _measured(site: Site, reports: IncidentReports, alert: Alert, target: float | None) -> dict[str, Any]:
    """What the page of an alert about a metric shows of its answers: means, chart, differences, examples.

    `target` is the baseline or the SLO; `current` the alert with the means that the page shows.
    """
    if alert.rule in NAMES:
        return {"measured": False, "current": alert}
    now, store = site.clock(), site.insight.store
    since, until = span(alert, now)
    series = series_of(alert, since, now)
    report = await reports.report(alert, within_s=COMPARED_S)
    worst, good = await examples_of(store, alert, now)
    suspects = suspects_of(alert, report) if report is not None else []
    subjects = await site.sources.name_clusters(alert.app, "questions", report.subjects) if report is not None else ()
    _, onset, end = incident_span(alert, now)
    levels = await levels_of(store, alert, now)
    current = levels.current(alert)
    return {
        "measured": True,
        "current": current,
        "chart": chart(current, await dots_around(store, incident_query(alert, since, until)), since, until, target),
        "series": series,
        "levels": levels,
        "recovering": is_recovering(alert, levels, target, now),
        "report": report,
        "words_of": words_of,
        "answers_url": partial(answers_url, alert, report) if report is not None else None,
        "since_onset": alert_fields(alert, onset, end if alert.state == "resolved" else None),
        "subjects": subjects,
        "suspects": suspects,
        "suspects_chart": chart_of(suspects, alert.metric),
        "worst": worst,
        "good": good,
    }


async def _acts(site: Site, alert: Alert) -> dict[str, Any]:
    """Silences, deliveries and the timeline of an alert."""
    now, desk = site.clock(), site.engine.acknowledgements
    progress = site.engine.delivery_progress(alert.fingerprint)
    labels, history = labels_of(alert), desk.history.of(alert.fingerprint)
    about = [silence for silence in await desk.silences() if silence.matches(labels)]
    first_sent, last_sent = sent_means(history)
    return {
        "silences": [silence for silence in about if silence.mutes(labels, now)],
        "notified": notified(progress, now),
        "unreached": unreached(progress),
        "first_sent": first_sent,
        "last_sent": last_sent,
        "assignee": desk.history.assignee(alert.fingerprint),
        "notes": desk.history.notes(alert.fingerprint),
        "letters": [sent for sent in await desk.undelivered() if sent.alert.fingerprint == alert.fingerprint],
        "timeline": timeline_of(
            alert, now=now, progress=progress, history=history, silences=about, versions=site.engine.versions.all()
        ),
    }


async def _counted(site: Site, reports: IncidentReports) -> dict[str, IncidentReport | None]:
    """The comparisons of the latest firing alerts by fingerprint; None for one that is still being made."""
    firing = [alert for alert in site.engine.alerts() if alert.state == "firing" and alert.rule not in NAMES]
    return {alert.fingerprint: await reports.report(alert, within_s=COMPARED_S) for alert in firing[:COUNTED]}


def grafana_query(alert: Alert) -> str:
    """The PromQL query for an alert's metric; that of the whole app for a slice."""
    labels = {"metric": alert.metric} | ({} if alert.app == ALL else {"app": alert.app})
    chosen = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())
    return f"gaugeway_quality_mean{{{chosen}}}"


def grafana_page(alert: Alert, base: str, now: float) -> str:
    """The address of an alert's app, metric and time on the shipped dashboard, in the Grafana at `base`."""
    since, until = span(alert, now)
    fields = {"var-metric": alert.metric, "from": f"{since * 1000.0:.0f}", "to": f"{until * 1000.0:.0f}"}
    return address_with(
        f"{base.rstrip('/')}/d/{GRAFANA_APP}", fields | ({} if alert.app == ALL else {"var-app": alert.app})
    )


def series_of(alert: Alert, since: float, now: float) -> str:
    """The address of the data of an alert's chart; "" for a slice or all apps, of which there is no series."""
    if alert.slice or alert.app == ALL:
        return ""
    _, until = span(alert, now)
    fields = {"app": alert.app, "metric": alert.metric, "since": iso(since)}
    if alert.ended_at is not None or now - alert.finding.onset > MOST_SINCE_S:
        fields["until"] = iso(until)
    return address_with("/api/series", fields)


def slo_of(name: str, rules: Sequence[Rule]) -> float | None:
    """The SLO of a rule by its name; None for a learned baseline."""
    named = (rule for rule in rules if name in (name_of(rule, lower_is_better=lower) for lower in (False, True)))
    return next((rule.slo for rule in named), None)


def found_alert(site: Site, fingerprint: str) -> Alert:
    """The alert of that fingerprint. Raises NotFoundException."""
    found = next((alert for alert in site.engine.alerts() if alert.fingerprint == fingerprint), None)
    if found is None:
        raise NotFoundException(f"no alert has the fingerprint {fingerprint}. Old alerts are deleted.")
    return found


def alert_form_handlers(site: Site) -> list[Any]:
    """The handlers of every form on `/alerts`."""
    acts = [*_silence_handlers(site), *_ack_handlers(site), *_handling_handlers(site)]
    return [*acts, *_rebaseline_handlers(site), _retry_handler(site)]


def silence_of(alert: Alert, *, now: float, seconds: float, by: str, comment: str) -> Silence:
    """A silence for the alert and its successors: the same rule, app, metric and slice."""
    labels = labels_of(alert)
    names = ("alertname", "rule", "app", "metric", "slice")
    return Silence(
        id=uuid.uuid4().hex,
        matchers=tuple(Matcher(name=name, op="=", value=labels.get(name, "")) for name in names),  # type: ignore[arg-type]  # its names
        starts=now,
        ends=now + seconds,
        by=by,
        comment=comment,
    )


def _silence_handlers(site: Site) -> list[Any]:
    @post("/alerts/{fingerprint:str}/silence", status_code=303)
    async def silence(request: Page, fingerprint: FromPath[str]) -> Redirect:
        given, alert, now = await site.form(request), found_alert(site, fingerprint), site.clock()
        seconds = next((s for s, _ in SILENCE_FOR if str(s) == given.get("seconds")), None)
        if seconds is None:
            raise HTTPException(status_code=400, detail="choose a duration")
        by, comment = _signed(given)
        made = silence_of(alert, now=now, seconds=seconds, by=by, comment=comment)
        await add_silence(site.engine.acknowledgements, made, request, now)
        return done(f"/alerts/{fingerprint}", "silenced", operator_cookie(site, request, by))

    @post("/silences/{silence_id:str}/remove", status_code=303)
    async def unsilence(request: Page, silence_id: FromPath[str]) -> Redirect:
        await site.form(request)
        by = operator_of(request)
        if not await site.engine.acknowledgements.unsilence(silence_id, by):
            raise NotFoundException("that silence has already ended")
        audit.tell("unsilence", by=by or None, address=address_of(request), silence=silence_id)
        return done("/alerts", "unsilenced")

    return [silence, unsilence]


def _ack_handlers(site: Site) -> list[Any]:
    @post("/alerts/{fingerprint:str}/acknowledge", status_code=303)
    async def acknowledge(request: Page, fingerprint: FromPath[str]) -> Redirect:
        by, comment = _signed(await site.form(request))
        ack = Ack(by=by, at=site.clock(), comment=comment)
        if not await site.engine.acknowledgements.acknowledge(fingerprint, ack):
            raise NotFoundException("this alert is no longer firing")
        audit.tell("ack", by=by, address=address_of(request), alert=fingerprint)
        return done(f"/alerts/{fingerprint}", "acknowledged", operator_cookie(site, request, by))

    @post("/alerts/{fingerprint:str}/unacknowledge", status_code=303)
    async def unacknowledge(request: Page, fingerprint: FromPath[str]) -> Redirect:
        await site.form(request)
        by = operator_of(request)
        await site.engine.acknowledgements.unacknowledge(found_alert(site, fingerprint).fingerprint, by)
        audit.tell("unack", by=by or None, address=address_of(request), alert=fingerprint)
        return done(f"/alerts/{fingerprint}", "unacknowledged")

    return [acknowledge, unacknowledge]


def _handling_handlers(site: Site) -> list[Any]:
    desk = site.engine.acknowledgements

    @post("/alerts/{fingerprint:str}/assign", status_code=303)
    async def assign(request: Page, fingerprint: FromPath[str]) -> Redirect:
        given, alert = await site.form(request), found_alert(site, fingerprint)
        to, by = given.get("to", "").strip(), operator_of(request)
        if len(to) > MAX_BY:
            raise HTTPException(status_code=400, detail=f"a name has up to {MAX_BY} characters")
        await desk.assign(alert.fingerprint, to, by)
        audit.tell("assign", by=by or None, address=address_of(request), alert=alert.fingerprint, to=to)
        return done(f"/alerts/{fingerprint}", "assigned" if to else "unassigned")

    @post("/alerts/{fingerprint:str}/note", status_code=303)
    async def note(request: Page, fingerprint: FromPath[str]) -> Redirect:
        given, alert = await site.form(request), found_alert(site, fingerprint)
        by, text = given.get("by", "").strip(), given.get("text", "").strip().replace("\r\n", "\n")
        if not by or len(by) > MAX_BY or not text or len(text) > MAX_NOTE:
            detail = f"a note needs a name (up to {MAX_BY} characters) and a text (up to {MAX_NOTE:,})"
            raise HTTPException(status_code=400, detail=detail)
        try:
            await desk.note(alert.fingerprint, text, by)
        except ValueError as error:
            raise HTTPException(status_code=409, detail=str(error)) from error
        audit.tell("note", by=by, address=address_of(request), alert=alert.fingerprint)
        return done(f"/alerts/{fingerprint}", "noted", operator_cookie(site, request, by))

    return [assign, note]


def _with_baseline(site: Site, fingerprint: str) -> Alert:
    """The alert, unless its rule compares with an SLO: there is no baseline to reset. Raises HTTPException."""
    alert = found_alert(site, fingerprint)
    if (slo := slo_of(alert.rule, site.config.alerts.rules or ())) is None:
        return alert
    detail = f"rule {alert.rule} compares with an SLO of {slo:g} and learns no baseline: change slo in the rule"
    raise HTTPException(status_code=409, detail=detail)


def _rebaseline_handlers(site: Site) -> list[Any]:
    @get("/alerts/{fingerprint:str}/rebaseline", sync_to_thread=False)
    def confirm(request: Page, fingerprint: FromPath[str]) -> Template:
        alert = _with_baseline(site, fingerprint)
        streams = [stream for stream in site.engine.streams() if (stream.rule, stream.app) == (alert.rule, alert.app)]
        if not streams:
            raise NotFoundException(f"rule {alert.rule} has no baseline for {alert.app}")
        title, more = f"Reset the baseline of rule {alert.rule}", len(streams[STREAMS:])
        return site.render(
            request, "reset_baseline.html", title=title, alert=alert, streams=streams[:STREAMS], more=more
        )

    @post("/alerts/{fingerprint:str}/rebaseline", status_code=303)
    async def rebaseline(request: Page, fingerprint: FromPath[str]) -> Redirect:
        await site.form(request)
        alert = _with_baseline(site, fingerprint)
        try:
            site.engine.rebaseline(alert.rule, alert.app)
        except KeyError as error:
            why = "has no baseline" if alert.rule in NAMES else "is no longer in the configuration"
            raise NotFoundException(f"rule {alert.rule} {why}") from error
        audit.tell("rebaseline", address=address_of(request), rule=alert.rule, app=alert.app)
        return done(f"/alerts/{fingerprint}", "rebaselined")

    return [confirm, rebaseline]


def _retry_handler(site: Site) -> Any:
    @post("/dead-letters/{letter_id:str}/retry", status_code=303)
    async def retry(request: Page, letter_id: FromPath[str]) -> Redirect:
        await site.form(request)
        if not await delivered_now(site.engine.acknowledgements, letter_id, request):
            raise NotFoundException("that notification has already been delivered")
        return done("/alerts", "delivered")

    return retry


def _signed(given: dict[str, str]) -> tuple[str, str]:
    """Name and comment of the form. Raises HTTPException 400 without a name or beyond the limits."""
    by, comment = given.get("by", "").strip(), given.get("comment", "").strip()
    if not by or len(by) > MAX_BY or len(comment) > MAX_COMMENT:
        raise HTTPException(
            status_code=400, detail=f"a name is required (up to {MAX_BY} characters); a comment has up to {MAX_COMMENT}"
        )
    return by, comment

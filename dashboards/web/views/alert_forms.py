"""Forms of the alert pages: silence, acknowledge, reset a baseline, retry a delivery. Each redirects back."""

from __future__ import annotations

import uuid
from typing import Any

from litestar import get, post
from litestar.exceptions import HTTPException, NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect, Template

from dashboards.web.incident.operator import operator_cookie, operator_of
from dashboards.web.site import Page, Site, done
from dashboards.web.views.alerts import SILENCE_FOR, found_alert, slo_of
from gaugeway.records import Alert
from gaugeway.runtime import audit
from monitors.alerting.acknowledgements import Ack, Matcher, Silence
from monitors.alerting.notifiers.message import NAMES, labels_of
from monitors.api.alerts import add_silence, address_of, delivered_now

MAX_BY, MAX_COMMENT = 200, 2000
STREAMS = 20
"""Streams named on the page that confirms a reset of their baselines."""


def alert_form_handlers(site: Site) -> list[Any]:
    """The handlers of every form on `/alerts`."""
    return [_silence_handler(site), *_ack_handlers(site), *_rebaseline_handlers(site), *_desk_handlers(site)]


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


def _silence_handler(site: Site) -> Any:
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

    return silence


def _ack_handlers(site: Site) -> list[Any]:
    @post("/alerts/{fingerprint:str}/acknowledge", status_code=303)
    async def acknowledge(request: Page, fingerprint: FromPath[str]) -> Redirect:
        by, comment = _signed(await site.form(request))
        known = await site.engine.acknowledgements.acknowledge(
            fingerprint, Ack(by=by, at=site.clock(), comment=comment)
        )
        if not known:
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


def _refuse_slo(site: Site, alert: Alert) -> None:
    """Raise HTTPException (409) for a rule that compares with an SLO: there is no baseline to reset."""
    slo = slo_of(alert.rule, site.config.alerts.rules or ())
    if slo is not None:
        raise HTTPException(
            status_code=409,
            detail=f"rule {alert.rule} compares with an SLO of {slo:g} and learns no baseline: change slo in the rule",
        )


def _rebaseline_handlers(site: Site) -> list[Any]:
    @get("/alerts/{fingerprint:str}/rebaseline", sync_to_thread=False)
    def confirm(request: Page, fingerprint: FromPath[str]) -> Template:
        alert = found_alert(site, fingerprint)
        _refuse_slo(site, alert)
        streams = [stream for stream in site.engine.streams() if (stream.rule, stream.app) == (alert.rule, alert.app)]
        if not streams:
            raise NotFoundException(f"rule {alert.rule} has no baseline for {alert.app}")
        return site.render(
            request,
            "reset_baseline.html",
            title=f"Reset the baseline of rule {alert.rule}",
            alert=alert,
            streams=streams[:STREAMS],
            more=len(streams[STREAMS:]),
        )

    @post("/alerts/{fingerprint:str}/rebaseline", status_code=303)
    async def rebaseline(request: Page, fingerprint: FromPath[str]) -> Redirect:
        await site.form(request)
        alert = found_alert(site, fingerprint)
        _refuse_slo(site, alert)
        try:
            site.engine.rebaseline(alert.rule, alert.app)
        except KeyError as error:
            why = "has no baseline" if alert.rule in NAMES else "is no longer in the configuration"
            raise NotFoundException(f"rule {alert.rule} {why}") from error
        audit.tell("rebaseline", address=address_of(request), rule=alert.rule, app=alert.app)
        return done(f"/alerts/{fingerprint}", "rebaselined")

    return [confirm, rebaseline]


def _desk_handlers(site: Site) -> list[Any]:
    @post("/silences/{silence_id:str}/remove", status_code=303)
    async def unsilence(request: Page, silence_id: FromPath[str]) -> Redirect:
        await site.form(request)
        by = operator_of(request)
        if not await site.engine.acknowledgements.unsilence(silence_id, by):
            raise NotFoundException("that silence has already ended")
        audit.tell("unsilence", by=by or None, address=address_of(request), silence=silence_id)
        return done("/alerts", "unsilenced")

    @post("/dead-letters/{letter_id:str}/retry", status_code=303)
    async def retry(request: Page, letter_id: FromPath[str]) -> Redirect:
        await site.form(request)
        if not await delivered_now(site.engine.acknowledgements, letter_id, request):
            raise NotFoundException("that notification has already been delivered")
        return done("/alerts", "delivered")

    return [unsilence, retry]


def _signed(given: dict[str, str]) -> tuple[str, str]:
    """Name and comment of the form. Raises HTTPException 400 without a name or beyond the limits."""
    by, comment = given.get("by", "").strip(), given.get("comment", "").strip()
    if not by or len(by) > MAX_BY or len(comment) > MAX_COMMENT:
        raise HTTPException(
            status_code=400, detail=f"a name is required (up to {MAX_BY} characters); a comment has up to {MAX_COMMENT}"
        )
    return by, comment

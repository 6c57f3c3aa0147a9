"""What `/prompts` shows: the learned templates, and a form that describes a prompt as a configuration entry."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from litestar.exceptions import HTTPException
from litestar.response import Template

from dashboards.web.site import Page, Site
from dashboards.web.views.overview import low_captures
from dashboards.web.views.prompt_form import MAX_ENTRY, Applied, applied, prefilled
from gateway.capture.stored_templates import learned_of
from gaugeway.prompts import UserTemplate
from gaugeway.prompts.user_patterns import Described, Piece, messages, toml
from gaugeway.records import Sample
from gaugeway.storage.stores import Query
from gaugeway.storage.templates import StoredTemplate
from monitors.api.templates import stored

MAX_LOOKED_AT = 20
"""Latest exchanges of an app that are searched for examples."""
_POINTS, _DAY_S, _WEEK_S = 200, 86_400.0, 7 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A learned template for display; `messages` is None if another release wrote it."""

    template: StoredTemplate
    passages: str
    messages: list[tuple[str, list[Piece]]] | None


async def render(site: Site, request: Page, app: str, given: UserTemplate | None = None) -> Template:
    """Return the page, for `app` if one is chosen, with the result of the entry `given`."""
    kept, trouble = await _stored(site)
    latest = await _latest(site, app) if app else []
    own = [template for template in kept if template.app == app]
    result: Applied | None = None
    sample = next((recent for recent in latest if recent.context_source == "none"), next(iter(latest), None))
    described = None
    if given is not None:
        described, result = Described(given), applied(given, sample)
    elif app:
        described = prefilled(app, [template for template in own if template.state != "rejected"], latest)
    return site.render(
        request,
        "prompts.html",
        title="Prompts",
        rows=[_shown(template) for template in kept],
        trouble=trouble,
        low=[capture for capture in low_captures(site.insight.captured()) if capture.without_passages],
        app=app,
        own=[_shown(template) for template in own],
        example=next((recent for recent in latest if recent.context_source == "learned"), None),
        content=site.config.capture.content,
        entry=described.entry if described is not None else None,
        most=MAX_ENTRY,
        sample=sample,
        result=result,
        toml=toml(described) if described is not None else None,
    )


async def _stored(site: Site) -> tuple[list[StoredTemplate], str]:
    """The learned templates, or the reason they cannot be read; the form works in either case."""
    try:
        return await stored(site.templates), ""
    except HTTPException as error:
        return [], str(error.detail)


async def _latest(site: Site, app: str) -> list[Sample]:
    """Latest exchanges of an app that have an answer, newest first."""
    now = site.clock()
    query = Query(since=now - _WEEK_S, until=now + _DAY_S, app=app, order="newest", limit=_POINTS)
    ids = dict.fromkeys(point.sample_id for point in await site.insight.store.series(query))
    found = [await site.insight.store.sample(sample_id) for sample_id in list(ids)[:MAX_LOOKED_AT]]
    return [exchange[0] for exchange in found if exchange is not None and exchange[0].skip_reason is None]


def _shown(template: StoredTemplate) -> Shown:
    learned = learned_of(template)
    words = str(template.split.get("words") or "").replace("\x05", "N")
    kind = str(template.split.get("kind"))
    return Shown(
        template=template,
        passages=f"{kind} {msgspec.json.encode(words).decode()}" if words else kind,
        messages=messages(learned) if learned is not None else None,
    )

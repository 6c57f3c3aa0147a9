"""Prompts: the learned templates, and a form that describes a prompt as a configuration entry.

What the page needs of the gateway's code is loaded with the first request: it takes 10 MB and a tenth of a second,
which the monitors' start would have to wait for.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from dashboards.web.site import Page, Site, done
from monitors.api.documents import decide

_PAGE, _FORM = "dashboards.web.views.prompt_page", "dashboards.web.views.prompt_page"


def prompt_handlers(site: Site) -> list[Any]:
    """The handlers of `/prompts` and its forms."""

    @get("/prompts")
    async def prompts(request: Page, app: FromQuery[str] = "") -> Template:
        return await _render(site, request, app)

    @post("/prompts/test", status_code=200)
    async def test(request: Page) -> Template:
        given = await site.form(request)
        form = await asyncio.to_thread(import_module, _FORM)
        return await _render(site, request, given.get("app", ""), form.entry_of(given))

    @post("/prompts/confirm", status_code=303)
    async def confirm(request: Page) -> Redirect:
        return await _decided(site, request, "confirmed")

    @post("/prompts/reject", status_code=303)
    async def reject(request: Page) -> Redirect:
        return await _decided(site, request, "rejected")

    return [prompts, test, confirm, reject]


async def _render(site: Site, request: Page, app: str, given: Any = None) -> Template:
    page = await asyncio.to_thread(import_module, _PAGE)
    shown: Template = await page.render(site, request, app, given)
    return shown


async def _decided(site: Site, request: Page, state: Any) -> Redirect:
    given = await site.form(request)
    await decide(site.templates, request, given.get("app", ""), given.get("version", ""), state)
    return done("/prompts", state)

"""`/api/templates` on the admin port: list, confirm and reject learned prompt templates."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.exceptions import HTTPException, NotFoundException
from litestar.params import FromPath, FromQuery

from gaugeway.runtime import audit
from gaugeway.storage.engines.failures import FAILURES
from gaugeway.storage.templates import State, StoredTemplate, Templates, only_templates
from monitors.api.alerts import address_of, same_origin


def template_handlers(kept: Templates) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/templates")
    async def templates(app: FromQuery[str | None] = None) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(template) for template in await stored(kept, app)]

    @post("/api/templates/{version:str}/confirm", guards=[same_origin], status_code=200)
    async def confirm(version: FromPath[str], app: FromQuery[str], request: Request[Any, Any, Any]) -> dict[str, str]:
        await decide(kept, request, app, version, "confirmed")
        return {"state": "confirmed"}

    @post("/api/templates/{version:str}/reject", guards=[same_origin], status_code=200)
    async def reject(version: FromPath[str], app: FromQuery[str], request: Request[Any, Any, Any]) -> dict[str, str]:
        await decide(kept, request, app, version, "rejected")
        return {"state": "rejected"}

    return [templates, confirm, reject]


async def stored(kept: Templates, app: str | None = None) -> list[StoredTemplate]:
    """Read the templates. Raises HTTPException 503 if they cannot be read."""
    try:
        return only_templates(await kept.templates(app))
    except FAILURES as error:
        raise _away(error) from error


async def decide(kept: Templates, request: Request[Any, Any, Any], app: str, version: str, state: State) -> None:
    """Confirm or reject a template and log who did. Raises HTTPException 404 or 503."""
    try:
        known = await kept.set_template_state(app, version, state)
    except FAILURES as error:
        raise _away(error) from error
    if not known:
        raise NotFoundException(f"app {app} has no template {version}")
    audit.tell(f"template_{state}", address=address_of(request), app=app, version=version)


def _away(error: Exception) -> HTTPException:
    return HTTPException(status_code=503, detail=f"the learned templates cannot be reached: {type(error).__name__}")

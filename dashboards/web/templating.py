"""Templates with their filters, static files, and security headers of the page."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from importlib.resources import files
from threading import Thread
from typing import Any
from urllib.parse import quote

from jinja2 import BaseLoader, Environment, FunctionLoader, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from litestar import Request, Response, get
from litestar.datastructures import MutableScopeHeaders
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery
from litestar.plugins.jinja import JinjaTemplateEngine
from litestar.template import TemplateConfig
from litestar.types import Message, Scope
from markupsafe import Markup
from msgspec import Struct

from dashboards.web import format as words
from dashboards.web.addresses import address_with, app_page
from monitors.alerting.notifiers import message
from monitors.alerting.slices import slice_words

POLICY = "; ".join(
    [
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'"),
        "font-src 'self'",
        *("form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"),
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
FOR_EVER = "public, max-age=31536000, immutable"
_NAMED = (
    *(words.number, words.interval, words.percent, words.part, words.count, words.counted, words.about, words.roughly),
    *(words.signed, words.usd, words.duration, words.iso, words.at, words.breakable, words.shortened),
    *(words.plain_names, words.reasons, slice_words, app_page),
    *(message.at_onset, message.headline, message.listed, message.strength, message.verdict),
)
FILTERS: dict[str, Callable[..., Any]] = {named.__name__: named for named in _NAMED}
FILTERS |= {"with_fields": address_with, "in_path": partial(quote, safe="")}
"""`value|number`, `low|interval(high)`, `share|percent`, `at|when` (UTC, and how long ago), `seconds|duration` ..."""


class Asset(Struct, frozen=True):
    """A static file; `version` is a hash of its content."""

    content: bytes
    media_type: str
    version: str


def assets() -> Mapping[str, Asset]:
    """Every file of `static/`."""
    found = {}
    for entry in (files("dashboards.web") / "static").iterdir():
        content = entry.read_bytes()
        media_type = mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
        found[entry.name] = Asset(content, media_type, blake2b(content, digest_size=8).hexdigest())
    return found


def templates(shown: Mapping[str, Asset]) -> TemplateConfig[Any]:
    """Template configuration with autoescaping."""
    pages = environment(PackageLoader("dashboards.web"), FILTERS | {"when": _when, "weekday": _weekday})
    pages.globals["asset"] = lambda name: f"/static/{name}?v={shown[name].version}"
    return TemplateConfig(instance=JinjaTemplateEngine.from_environment(pages))


def compile_beforehand(config: TemplateConfig[Any]) -> None:
    """Compile all templates in a thread, 0.35 s of a core: at load 7 the first overview takes 1.0 s instead of 2.1."""
    names, pages = PackageLoader("dashboards.web").list_templates(), config.engine_instance.engine
    Thread(target=lambda: [pages.get_template(name) for name in names], name="templates", daemon=True).start()


def environment(loader: BaseLoader, filters: Mapping[str, Any]) -> Environment:
    """A Jinja environment that escapes what is put into its templates, and fails where something is missing."""
    made = Environment(
        loader=_read_now(loader),
        auto_reload=False,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made


def _read_now(loader: BaseLoader) -> FunctionLoader:
    """Read all templates, so that none is of another release if the files are replaced."""
    outside = Environment(autoescape=True)
    found = {name: loader.get_source(outside, name) for name in loader.list_templates()}
    return FunctionLoader(found.get)


def asset_handler(shown: Mapping[str, Asset]) -> Any:
    """Serve static files: cacheable forever under the versioned URL, revalidated otherwise."""

    @get("/static/{name:str}", sync_to_thread=False)
    def asset(name: FromPath[str], request: Request[Any, Any, Any], v: FromQuery[str | None] = None) -> Response[bytes]:
        found = shown.get(name)
        if found is None:
            raise NotFoundException(f"no such file: {name}")
        tag = f'"{found.version}"'
        headers = {"etag": tag, "cache-control": FOR_EVER if v == found.version else "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(b"", status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)

    return asset


async def add_security_headers(message: Message, _: Scope) -> None:
    """Add the security headers to every response, errors included, unless the response sets its own."""
    if message["type"] == "http.response.start":
        headers = MutableScopeHeaders.from_message(message)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)


@pass_context
def _when(context: Context, at: float | None) -> Markup:
    return words.when(at, context["now"])


@pass_context
def _weekday(context: Context, at: float) -> Markup:
    return words.weekday(at, context["now"])

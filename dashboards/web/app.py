"""Assembles the views of the operator's page behind their guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litestar import Router, get
from litestar.exceptions import HTTPException
from litestar.response import Redirect
from prometheus_client import CollectorRegistry

from dashboards.web.errors import on_error, on_failure
from dashboards.web.events import event_handlers
from dashboards.web.frame_first import FrameFirst, renders
from dashboards.web.gateways import gateway_urls
from dashboards.web.login import login_handlers, page_guard
from dashboards.web.site import MAX_FORM_BYTES, Page, Site
from dashboards.web.templating import add_security_headers, asset_handler, assets, compile_beforehand
from dashboards.web.templating import templates as page_templates
from dashboards.web.toolbar import ALIASES
from dashboards.web.views.alerts import alert_form_handlers, alert_view_handlers
from dashboards.web.views.app import app_handlers
from dashboards.web.views.compare import compare_view_handlers
from dashboards.web.views.conversations import conversation_handlers
from dashboards.web.views.exchange import exchange_handlers
from dashboards.web.views.explore import explore_handlers, find_handlers
from dashboards.web.views.overview import overview_handlers
from dashboards.web.views.pipeline import pipeline_handlers
from dashboards.web.views.prompts import prompt_handlers
from dashboards.web.views.review import review_handlers
from dashboards.web.views.settings import settings_handlers
from dashboards.web.views.sources import source_view_handlers
from dashboards.web.views.topics import topic_handlers
from dashboards.web.views.trials import trial_view_handlers
from dashboards.web.views.welcome import welcome_handlers
from gaugeway.settings.shared import Config
from gaugeway.storage.engines.failures import Unsupported
from monitors.alerting.acknowledgements import NotLeaderError
from monitors.alerting.engine import AlertEngine
from monitors.api.app import Insight, Pages


@get([*ALIASES], sync_to_thread=False)
def place(request: Page) -> Redirect:
    """Lead from the address of a place to its first view, with the query."""
    query = request.url.query
    return Redirect(f"{ALIASES[request.url.path]}?{query}" if query else ALIASES[request.url.path])


VIEWS: tuple[Callable[[Site], list[Any]], ...] = (
    *(overview_handlers, app_handlers, find_handlers, alert_view_handlers, alert_form_handlers, exchange_handlers),
    *(conversation_handlers, explore_handlers, compare_view_handlers, source_view_handlers, topic_handlers),
    *(
        trial_view_handlers,
        prompt_handlers,
        pipeline_handlers,
        review_handlers,
        settings_handlers,
        welcome_handlers,
        event_handlers,
        lambda _: [place],
    ),
)


def answering_head(handlers: Sequence[Any]) -> list[Any]:
    """Let every view that renders a page answer HEAD as well: uptime checks use it. The server drops the body.

    Event streams and exports keep GET only: they would do all of their work for nothing.
    """
    for handler in handlers:
        if renders(handler):
            handler.http_methods.add("HEAD")
    return list(handlers)


def page_handlers(site: Site) -> list[Any]:
    """All handlers of the page; only the login and the static files are open to everyone."""
    answer_error = on_error(site)

    def closed(request: Page, error: NotLeaderError) -> Any:
        return answer_error(request, HTTPException(status_code=503, detail=str(error)))

    def not_offered(request: Page, error: Unsupported) -> Any:
        return answer_error(request, HTTPException(status_code=501, detail=_sentence(error)))

    answers = {
        HTTPException: answer_error,
        NotLeaderError: closed,
        Unsupported: not_offered,
        Exception: on_failure(site),
    }
    shown: dict[str, Any] = {"exception_handlers": answers}
    views = answering_head([handler for view in VIEWS for handler in view(site)])
    return [
        asset_handler(assets()),
        Router("/", route_handlers=answering_head(login_handlers(site)), request_max_body_size=MAX_FORM_BYTES, **shown),
        Router(
            "/",
            route_handlers=views,
            guards=[page_guard(site)],
            middleware=[FrameFirst(site)],
            request_max_body_size=MAX_FORM_BYTES,
            **shown,
        ),
    ]


def _sentence(error: Unsupported) -> str:
    text = str(error)
    return f"{text[0].upper()}{text[1:]}."


def operator_page(insight: Insight, engine: AlertEngine, registry: CollectorRegistry, **more: Any) -> Pages:
    """Build the operator's page (a `monitors.app.PageFactory`)."""
    config: Config = more["config"]
    urls = gateway_urls(config.monitors.gateways, config.gateway)
    made = pages(Site(insight=insight, engine=engine, registry=registry, gateways=urls, **more))
    compile_beforehand(made.templates)
    return made


def pages(site: Site) -> Pages:
    """The page as the admin app mounts it."""
    return Pages(
        handlers=page_handlers(site),
        templates=page_templates(assets()),
        entered=site.entered,
        before_send=add_security_headers,
        on_error=on_error(site),
        stop=site.stop,
        count_gateways=site.count_gateways if site.gateways else None,
    )

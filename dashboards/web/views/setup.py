"""Setup: client snippets, and the configuration without its secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from litestar import get
from litestar.response import Template

from dashboards.web.gateway_scrape import ADMIN_PORT
from dashboards.web.site import Page, Site
from monitors.config import Config, Rule

HOST, PORT = "127.0.0.1", 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A section of the configuration as (setting, value) rows."""

    name: str
    rows: tuple[tuple[str, str], ...]


def without_secrets(url: str) -> str:
    """A URL without user, password, query and fragment, which may hold secrets.

    >>> without_secrets("postgresql://me:secret@db:5432/quality?password=x")
    'postgresql://db:5432/quality'
    """
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "(not a URL)"


def tables(config: Config, metrics: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The configuration as tables, without secrets."""
    judge, alerts = config.judge, config.alerts
    rules = alerts.rules
    found = {
        "Upstreams": [_upstream(one) for one in config.upstreams] or [("default", "from the command line")],
        "Judge": [
            ("model", judge.model or "none: only metrics that need no LLM run"),
            *([("endpoint", without_secrets(judge.base_url))] if judge.base_url else []),
            ("budget", f"{judge.budget_usd_per_day:g} USD a day" if judge.budget_usd_per_day else "none"),
            ("cache", judge.cache),
        ],
        "Metrics": [
            (
                one["name"],
                f"rate {one['rate']:g}, passes {'up to' if one['lower_is_better'] else 'from'} {one['threshold']:g}",
            )
            for one in metrics
        ],
        "Alerts": [
            ("false alerts per 30 days", f"{alerts.false_alerts_per_30d:g}"),
            ("slices", ", ".join(alerts.slices) or "none"),
            ("rules", _rules(rules)),
        ]
        + [
            (
                one.name or one.metric,
                f"SLO {one.slo:g}" if one.slo is not None else f"baseline {one.baseline}",
            )
            for one in rules or ()
        ],
        "Notifiers": [
            (one.name or one.kind, f"{one.kind}; severities {', '.join(one.severities)}") for one in config.notifiers
        ]
        or [("none", "alerts go to the log only")],
        "Storage": [
            ("content", "yes" if config.capture.content else "no: hashes only"),
            ("redacted", ", ".join([*config.capture.redact, *config.capture.redact_patterns]) or "nothing"),
            ("retention", f"{config.capture.retention_days:g} days"),
            ("store", without_secrets(config.store.url) if config.store.url else "SQLite in the data directory"),
            ("queue", without_secrets(config.queue.url) if config.queue.url else "SQLite in the data directory"),
        ],
    }
    return [Table(name=name, rows=tuple(rows)) for name, rows in found.items()]


def traffic_url(gateway: Mapping[str, Any], host: str) -> str:
    """Base URL for clients: the gateway's address, or the requested host name if it listens on all interfaces."""
    address = str(gateway.get("host", HOST))
    if address in ("0.0.0.0", "::", ""):  # noqa: S104 - compared with, not bound to
        address = host
    return f"http://{f'[{address}]' if ':' in address else address}:{gateway.get('port', PORT)}/v1"


def setup_handlers(site: Site) -> list[Any]:
    """The handler of `/setup`."""

    @get("/setup")
    async def setup(request: Page) -> Template:
        config, about = site.config, await site.insight.status()
        base = traffic_url(config.gateway, request.url.hostname or HOST)
        here = config.monitors.public_url or f"http://{request.headers.get('host', '')}"
        gateways = site.gateways or (f"http://{HOST}:{ADMIN_PORT}",)
        return site.render(
            request,
            "setup.html",
            title="Setup",
            base=base,
            needs_token=config.monitors.token is not None,
            root=base.removesuffix("/v1"),
            targets=[urlsplit(one).netloc for one in (*gateways, here)],
            tables=tables(config, about["metrics"]),
            notes=about["notes"],
            version=about["version"],
        )

    return [setup]


def _rules(rules: Sequence[Rule] | None) -> str:
    if rules is None:
        return "one for every enabled metric, against a baseline learned for each app"
    return str(len(rules)) if rules else "none: no alert watches a metric"


def _upstream(one: Mapping[str, Any]) -> tuple[str, str]:
    models = ", ".join(map(str, one.get("models", ()))) or "every model"
    return str(one.get("name", "default")), f"{without_secrets(str(one.get('base_url', '')))} ({models})"

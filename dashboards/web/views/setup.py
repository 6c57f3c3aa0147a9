"""What is configured, without its secrets, and what to paste where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from litestar import get
from litestar.response import Template

from dashboards.web.gateway_scrape import ADMIN_PORT
from dashboards.web.site import Page, Site
from monitors.config import Config

HOST, PORT = "127.0.0.1", 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A part of the configuration: rows of a name and what it is set to."""

    name: str
    rows: tuple[tuple[str, str], ...]


def without_secrets(url: str) -> str:
    """A URL without user, password, query and fragment; any of them may be a secret.

    >>> without_secrets("postgresql://me:secret@db:5432/quality?password=x")
    'postgresql://db:5432/quality'
    """
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "(not a URL)"


def tables(config: Config, metrics: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The configuration as people want to see it; what may be a secret is not in it."""
    judge, alerts = config.judge, config.alerts
    rules = alerts.rules
    found = {
        "Upstreams": [_upstream(one) for one in config.upstreams] or [("default", "from the command line")],
        "Judge": [
            ("model", judge.model or "none: only metrics without an LLM run"),
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
            ("false alarms in 30 days", f"{alerts.false_alerts_per_30d:g}"),
            ("slices", ", ".join(alerts.slices) or "none"),
            ("rules", "every metric, against a learned baseline" if rules is None else str(len(rules))),
        ]
        + [
            (
                one.name or one.metric,
                f"promised mean {one.slo:g}" if one.slo is not None else f"baseline {one.baseline}",
            )
            for one in rules or ()
        ],
        "Who is told": [
            (one.name or one.kind, f"{one.kind}; severities {', '.join(one.severities)}") for one in config.notifiers
        ]
        or [("nobody", "but the log")],
        "Kept": [
            ("content", "yes" if config.capture.content else "no: hashes only"),
            ("redacted", ", ".join([*config.capture.redact, *config.capture.redact_patterns]) or "nothing"),
            ("for", f"{config.capture.retention_days:g} days"),
            ("store", without_secrets(config.store.url) if config.store.url else "SQLite in the data directory"),
            ("queue", without_secrets(config.queue.url) if config.queue.url else "SQLite in the data directory"),
        ],
    }
    return [Table(name=name, rows=tuple(rows)) for name, rows in found.items()]


def traffic_url(gateway: Mapping[str, Any], host: str) -> str:
    """The base URL that clients take: the gateway's address, or, where it listens everywhere, the name asked for."""
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


def _upstream(one: Mapping[str, Any]) -> tuple[str, str]:
    models = ", ".join(map(str, one.get("models", ()))) or "every model"
    return str(one.get("name", "default")), f"{without_secrets(str(one.get('base_url', '')))} ({models})"

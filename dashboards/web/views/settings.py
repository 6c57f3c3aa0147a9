"""Settings: the running configuration without its secrets, a test for each notifier, snippets, and the ways to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from litestar import get, post
from litestar.exceptions import NotFoundException
from litestar.response import Redirect, Template

from dashboards.web.addresses import HOST, traffic_url, without_secrets
from dashboards.web.errors import TooSoonException
from dashboards.web.gateways import ADMIN_PORT
from dashboards.web.site import TEXTS, Page, Site
from gaugeway.runtime import audit
from gaugeway.settings.loading import is_secret
from gaugeway.settings.shared import Config
from monitors.alerting.notifiers import Route
from monitors.alerting.notifiers.factory import PAUSE_S, Tested, TooSoonError
from monitors.alerting.rules import keeps_defaults
from monitors.api.alerts import address_of

SECRET = re.compile(
    r"(^|[._])(\w*key|\w*keys|\w*token|password|\w*secret|salt|\w*headers|\w*proxy|channel|sender|recipients|username)"
    r"(\[\d+\])?(\.|$)"
)
"""A name within a key whose value is never shown; numbers are (limits of tokens, for instance)."""
_RECEIVERS = re.compile(r"^(notifiers|sinks)\[")
_SHOWN_OF_RECEIVERS = frozenset(
    ("kind", "name", "severities", "apps", "send_resolved", "heartbeat", "timeout_s", "metrics", "content", "port")
)
"""What is shown of a receiver: its URL is often its only secret."""
SET = "set (not shown)"
DEFAULT, ENVIRONMENT = "default", "environment"
_MISSING = object()
_CHARACTERS = 200


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the configuration."""

    key: str
    value: str
    source: str


def rows_of(config: Config, origins: Mapping[str, str]) -> list[Row]:
    """The configuration key by key; `origins` are `config_sources.sources_of`.

    What is not in `origins` and differs from the default came from an environment variable of a standard name.
    """
    rows = []
    for key, value, default in _leaves(config, "", _MISSING):
        source = origins.get(key)
        if source is None:
            unset = default is not _MISSING and value == default
            source = DEFAULT if unset or value is None or value in ((), {}, "") else ENVIRONMENT
        rows.append(Row(key=key, value=shown(key, value, source), source=source))
    return sorted(rows, key=lambda row: (row.key.partition(".")[0].partition("[")[0], row.key))


def shown(key: str, value: Any, source: str = "") -> str:
    """A value as text; secrets, and whatever was filled in from the environment or a file, only as "set".

    >>> shown("judge.api_key", "sk-1"), shown("judge.timeout_s", 60.0), shown("store.url", "postgresql://a:b@db/q")
    ('set (not shown)', '60', 'postgresql://db/q')
    """
    if value is None or value in ((), [], {}, "") or is_secret(source):
        return SET if is_secret(source) else "none"
    if isinstance(value, bool | int | float):
        return f"{value:g}" if isinstance(value, float) else str(value).lower()
    name = key.rpartition(".")[2]
    if SECRET.search(key) or (_RECEIVERS.search(key) and name not in _SHOWN_OF_RECEIVERS):
        return SET
    if isinstance(value, list | tuple):
        return _cut(", ".join(shown(key, item) for item in value))
    text = str(value)
    return _cut(without_secrets(text) if "://" in text or "@" in text else text)


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]} …"


def _leaves(value: Any, key: str, default: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            known = getattr(default, field.name, _MISSING) if isinstance(default, type(value)) else _default(field)
            below = getattr(value, field.name)
            if field.name == "options" and getattr(value, "takes_options", False):
                for name, item in below.items():
                    yield from _leaves(item, f"{key}.{name}", _MISSING)
            else:
                yield from _leaves(below, f"{key}.{field.name}".lstrip("."), known)
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}".lstrip("."), _MISSING)
    elif isinstance(value, list | tuple) and any(isinstance(item, dict | msgspec.Struct) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}[{index}]", _MISSING)
    else:
        yield key, value, default


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return _MISSING if field.default is msgspec.NODEFAULT else field.default


_ADDRESS = re.compile(r"\S+://\S*[^\s:]:? ?|^\S+:\d+: |\b[\w.-]+\.[\w-]+:\d+\b")
"""Where an error names the receiver: `http://host:port: `, `host:port: ` of an SMTP server, or within its text."""


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """A notifier: its name, kind, the alerts it is for, and the last test of it."""

    name: str
    kind: str
    takes: str
    tested: Tested | None
    reason: str = ""
    error: str = ""


def receivers_of(config: Config, routes: Mapping[str, Route], results: Mapping[str, Tested]) -> list[Receiver]:
    """The notifiers in use, in the order of the configuration."""
    kinds = {
        notifier.name or f"{notifier.kind}-{index}": notifier.kind for index, notifier in enumerate(config.notifiers)
    }
    found = []
    for name, route in routes.items():
        tested = results.get(name)
        found.append(
            Receiver(
                name=name,
                kind=kinds.get(name, "log"),
                takes=f"{_taken('severities', route.severities)}, {_taken('apps', route.apps)}",
                tested=tested,
                reason=explained(tested.error) if tested is not None and tested.error else "",
                error=without_address(tested.error) if tested is not None else "",
            )
        )
    return found


def _taken(what: str, patterns: tuple[str, ...]) -> str:
    """Say which severities or apps a notifier gets."""
    if "*" in patterns:
        return f"all {what}"
    return f"{what} {', '.join(patterns)}" if patterns else f"no {what}"


def rules_of(config: Config) -> list[tuple[str, str]]:
    """The alert rules: name, and what they compare with."""
    shown = [
        (rule.name or rule.metric, f"SLO {rule.slo:g}" if rule.slo is not None else f"baseline {rule.baseline}")
        for rule in config.alerts.rules or ()
    ]
    if keeps_defaults(config.alerts):
        shown.append(
            ("default rules", "one for every enabled metric and signal, against a baseline learned for each app")
        )
    return shown or [("rules", "none: no alert watches a metric")]


def explained(error: str) -> str:
    """What an error of a notifier means, in a sentence; "" if it is not known.

    >>> explained("http://hooks.example: answered 404")
    'The receiver does not know this address: it may be deleted.'
    """
    return next((words for pattern, words in TEXTS["notifier_errors"].items() if re.search(pattern, error)), "")


def without_address(error: str) -> str:
    """An error of a notifier without its receiver, whose address may be its secret.

    >>> without_address("http://hooks.example:8080: answered 404"), without_address("mail.example:25: TimeoutError")
    ('answered 404', 'TimeoutError')
    """
    return _ADDRESS.sub("", error).strip()


def settings_handlers(site: Site) -> list[Any]:
    """The handlers of `/settings`."""

    @get("/settings")
    async def settings(request: Page) -> Template:
        config, about = site.config, await site.insight.status()
        base = traffic_url(config.gateway, request.url.hostname or HOST)
        here = config.monitors.public_url or f"http://{request.headers.get('host', '')}"
        gateways = site.gateways or (f"http://{HOST}:{ADMIN_PORT}",)
        rows = rows_of(config, site.origins)
        tests = site.engine.notifier_tests
        return site.render(
            request,
            "settings.html",
            title="Settings",
            base=base,
            needs_token=config.monitors.token is not None,
            root=base.removesuffix("/v1"),
            targets=[urlsplit(address).netloc for address in (*gateways, here)],
            given=[row for row in rows if row.source != DEFAULT],
            defaults=[row for row in rows if row.source == DEFAULT],
            receivers=receivers_of(config, tests.routes(), tests.results()),
            pause_s=PAUSE_S,
            metrics=about["metrics"],
            rules=rules_of(config),
            notes=about["notes"],
            version=about["version"],
            ways=TEXTS["ways"],
        )

    @post("/settings/test", status_code=303)
    async def test(request: Page) -> Redirect:
        name = (await site.form(request)).get("notifier", "")
        try:
            result = await site.engine.notifier_tests.send(name)
        except KeyError:
            raise NotFoundException(f"no notifier has the name {name[:100]}") from None
        except TooSoonError as error:
            raise TooSoonException(
                f"{name}: {error}", headers={"retry-after": f"{max(1, round(error.wait_s))}"}
            ) from error
        outcome = "failed" if result.error else "ok"
        audit.tell("test_notifier", outcome=outcome, address=address_of(request), notifier=name)
        return Redirect("/settings#notifiers", status_code=303)

    @get("/setup")
    async def moved() -> Redirect:
        return Redirect("/settings", status_code=303)

    return [settings, test, moved]

"""The configuration of `gaugeway.toml`: the gateway's tables and those it shares with the monitors."""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.http.sessions import SESSION_HEADERS
from gateway.http.url import Target
from gaugeway import settings
from gaugeway.extensions import load as load_object
from gaugeway.extensions import registered
from gaugeway.prompts import UserTemplate
from gaugeway.settings.bounds import MAX_HISTORY
from gaugeway.settings.endpoints import (
    address_problem,
    base_url_problem,
    is_own,
    is_remote,
    listener_problem,
    port_problems,
    short_warning,
)
from gaugeway.settings.loading import read_as, shared_problems
from gaugeway.settings.shared import LOOPBACK, AuditsPerDay, Count, Port, Positive, Price, Rate, SampleBy, Shared, Table

MEBIBYTE = 1024 * 1024
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+/?", re.IGNORECASE)
_TEMPLATE = UserTemplate(name="any", pattern="begin (?P<contexts>.) end")
"""A valid template, in which one part is replaced by the part to check."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HOST_NAME = re.compile(r"(?:\*\.)?[^:/?#@*\s\[\]]+|\[[0-9a-f:.]+\]", re.IGNORECASE)


class Gateway(Table, frozen=True):
    """`[gateway]`: the traffic port and the gateway's admin port. Times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: Port = 8080
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    admin_host: str = "127.0.0.1"
    admin_port: Port = 9464
    admin_token: str | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: Count = 100 * MEBIBYTE
    upstream_client: Literal["native", "httpx"] = "native"
    max_upload_bytes: Count = 1024 * MEBIBYTE
    connect_timeout_s: Positive = 5.0
    first_byte_timeout_s: Positive | None = None
    read_timeout_s: Positive = 600.0
    total_timeout_s: Positive | None = None
    client_timeout_s: Positive = 60.0
    max_pending_body_bytes: Count = 1024 * MEBIBYTE
    drain_delay_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    drain_s: Positive = 30.0


class Upstream(Table, frozen=True):
    """`[[upstreams]]`: a provider behind the gateway. Without `api_key` the client's own Authorization passes.

    `proxy` is an HTTP proxy's URL. `models` are shell patterns; `aliases` maps a model that clients ask for to the one
    this upstream is sent. `provider` is what spans call it; None: `gateway.upstreams.provider` guesses.
    """

    base_url: str
    name: str = "default"
    provider: Annotated[str, settings.in_form("^[a-z0-9_.-]{1,64}$", "lower-case letters, digits, _ . -")] | None = None
    api_key: str | None = None
    ca_file: str | None = None
    proxy: str | None = None
    models: tuple[str, ...] = ("*",)
    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    weight: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 1.0
    priority: int = 0
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


class Routing(Table, frozen=True):
    """`[routing]`: when a failed request is retried, and when a failing upstream is ejected, for `eject_s`."""

    retry_on: tuple[Annotated[int, msgspec.Meta(ge=400, le=599)], ...] = (408, 409, 429, 500, 502, 503, 504)
    eject_after: Count = 5
    eject_s: Positive = 30.0
    header: bool = False


class Capture(Table, frozen=True):
    """`[capture]`: what is sampled, how much of it is held, and what of it is kept out of every store.

    `redact` are kinds, `redact_patterns` own ones (name -> regular expression), `unredacted_apps` those left as they
    are. With `learn` the prompts of apps are learned from their requests, as long as `content` is kept; with
    `ask_judge` a judge, where there is one, marks a request of each new prompt, and audits the capture of
    `audits_per_day` exchanges of each app. A request that comes again within `resubmission_s` seconds is not judged
    twice; 0 judges all. `extractors` None: `gaugeway.prompts.default_order`. `session_headers` name the session of a
    request; `history_turns` messages before the question are kept. `sample_by` says whether exchanges or whole
    conversations are drawn, or traces as OpenTelemetry's consistent sampling does.
    """

    rate: Rate = 1.0
    salt: str = "gaugeway"
    sample_by: SampleBy = "exchange"
    errors: bool = False
    content: bool = True
    redact: tuple[str, ...] = ("secret",)
    redact_patterns: dict[str, str] = msgspec.field(default_factory=dict)
    unredacted_apps: tuple[str, ...] = ()
    templates: tuple[UserTemplate, ...] = ()
    resubmission_s: Annotated[float, msgspec.Meta(ge=0.0)] = 60.0
    session_headers: tuple[str, ...] = SESSION_HEADERS
    history_turns: Annotated[int, msgspec.Meta(ge=0, le=MAX_HISTORY)] = 6
    max_content_bytes: Count = 4 * MEBIBYTE
    extractors: tuple[str, ...] | None = None
    learn: bool = True
    ask_judge: bool = True
    audits_per_day: AuditsPerDay = 5
    include_usage: bool = False
    buffer_exchanges: Count = 10_000
    buffer_bytes: Count = 256 * MEBIBYTE
    retention_days: Positive = 30.0


class Keys(Table, frozen=True):
    """`[keys]`: the gateway's own keys (`gaugeway keys`).

    They and what was spent are in the database at `url`; without one, in a file of the data directory.
    """

    enabled: bool = False
    url: str | None = None


class AppLimits(Table, frozen=True):
    """`[limits.apps.NAME]`: the limits of one app; keys not given here come from `[limits]`, `inf` means no limit."""

    requests_per_min: Positive | None = None
    tokens_per_min: Positive | None = None
    usd_per_day: Positive | None = None
    max_concurrency: Count | None = None
    queue_s: Annotated[float, msgspec.Meta(ge=0.0)] | None = None


class Limits(Table, frozen=True):
    """`[limits]`: the limits of each app. Beyond `max_concurrency` requests wait their turn for up to `queue_s`.

    The gateways that name the same `url` share them; without one, each process counts for itself.
    """

    url: str | None = None

    requests_per_min: Positive | None = None
    tokens_per_min: Positive | None = None
    usd_per_day: Positive | None = None
    unmetered_usd: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    max_concurrency: Count | None = None
    queue_s: Annotated[float, msgspec.Meta(ge=0.0)] = 10.0
    apps: dict[str, AppLimits] = msgspec.field(default_factory=dict)


class Cache(Table, frozen=True):
    """`[cache]`: the apps (`"*"`: all) whose responses are cached for `ttl_s` seconds, in up to `max_bytes`."""

    apps: tuple[str, ...] = ()
    ttl_s: Positive = 300.0
    max_bytes: Count = 64 * MEBIBYTE


class Config(Shared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of `gaugeway.toml`."""

    gateway: Gateway = Gateway()
    upstreams: tuple[Upstream, ...] = ()
    routing: Routing = Routing()
    capture: Capture = Capture()
    keys: Keys = Keys()
    limits: Limits = Limits()
    prices: dict[str, Price] = msgspec.field(default_factory=dict)
    cache: Cache = Cache()


def load(
    path: Path | None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    upstream: str | None = None,
    judge: tuple[str | None, ...] = (None, None),
) -> Config:
    """Read the file, apply the command line's options, and check the result. Raises ConfigError.

    The parameters are those of `gaugeway.settings.loading.read_as`.
    """
    config, problems = examine(path, tables, upstream, judge)
    problems.raise_any()
    return config


def examine(
    path: Path | None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    upstream: str | None = None,
    judge: tuple[str | None, ...] = (None, None),
) -> tuple[Config, settings.Problems]:
    """Do what `load` does, but return the problems and warnings.

    A key with a problem gets its default. Raises ConfigError for a file of which nothing can be used.
    """
    config, problems = read_as(Config, path, tables, upstream, judge)
    problems.extend(_problems(config))
    return config, problems


def listeners(config: Config) -> list[tuple[str, str, int]]:
    """Return the addresses of both planes: the key of the port, host and port."""
    gateway, monitors = config.gateway, config.monitors
    return [
        ("gateway.port", gateway.host, gateway.port),
        ("gateway.admin_port", gateway.admin_host, gateway.admin_port),
        ("monitors.port", monitors.host, monitors.port),
    ]


def credential_warnings(config: Config) -> list[str]:
    """Return warnings about short tokens, and about upstreams that get no credentials."""
    tokens = {"gateway.admin_token": config.gateway.admin_token, "monitors.token": config.monitors.token}
    short = (short_warning(key, token) for key, token in tokens.items())
    return [warning for warning in short if warning is not None] + [
        f"upstreams[{index}].api_key: missing: with keys.enabled the client's credentials are removed, so requests go "
        "out without any"
        for index, upstream in enumerate(config.upstreams)
        if config.keys.enabled and not upstream.api_key and is_remote(upstream.base_url)
    ]


def _problems(config: Config) -> list[str]:
    """Return the problems that types cannot express: values that contradict each other."""
    problems = _routing_problems(config.upstreams)
    for index, upstream in enumerate(config.upstreams):
        found = _base_url_problems(upstream, config)
        problems += [f"upstreams[{index}].base_url: {problem}" for problem in found]
    for index, name in enumerate(config.capture.extractors or ()):
        try:
            load_object(name, registered("readers"))
        except ValueError as error:
            problems.append(f"capture.extractors[{index}]: {error}")
    problems += _capture_problems(config.capture)
    problems += _listener_problems(config.gateway)
    problems += _name_problems(config.gateway)
    problems += _budget_problems(config)
    problems += _judge_problems(config)
    problems += port_problems(listeners(config)[:2])
    problems += shared_problems(config)
    return problems


def _listener_problems(gateway: Gateway) -> list[str]:
    problems = []
    if (problem := listener_problem(gateway.host)) is not None:
        problems.append(f"gateway.host: {problem}")
    if (problem := listener_problem(gateway.admin_host)) is not None:
        problems.append(f"gateway.admin_host: {problem}")
    elif gateway.admin_host not in LOOPBACK and not gateway.admin_token:
        problems.append(f"gateway.admin_host: binding to {gateway.admin_host} needs a token (gateway.admin_token)")
    pending, body = gateway.max_pending_body_bytes, gateway.max_body_bytes
    if pending < body and pending != Gateway().max_pending_body_bytes:  # the default grows with the body
        problems.append(
            f"gateway.max_pending_body_bytes: {pending} is less than one body may have (gateway.max_body_bytes: {body})"
        )
    return problems


def asks_judge(config: Config) -> bool:
    """Whether the judge marks requests of new prompts: there is one, and prompts are learned."""
    capture, judge = config.capture, config.judge
    return bool(capture.ask_judge and capture.learn and capture.content and judge.base_url and judge.model)


def audits_per_day(config: Config) -> int:
    """Return of how many exchanges of an app the judge audits the capture; 0 without a judge."""
    capture, judge = config.capture, config.judge
    asks = capture.ask_judge and capture.content and judge.base_url and judge.model
    return capture.audits_per_day if asks else 0


def sampled(config: Config) -> Capture:
    """Return the sampler's settings: `ask_judge` is off where there is no judge to ask."""
    return msgspec.structs.replace(config.capture, ask_judge=asks_judge(config))


def _judge_problems(config: Config) -> list[str]:
    """Report a judge that is this gateway: its requests would be captured and judged in turn."""
    small, grounding = config.judge.small, config.judge.grounding
    problems = []
    for key, url in (
        ("judge", config.judge.base_url),
        ("judge.small", small and small.base_url),
        ("judge.grounding", grounding and grounding.base_url),
    ):
        try:
            target = Target.parse(url) if url else None
        except ValueError:
            continue  # `shared_problems` names it
        port = config.gateway.port
        if target is not None and port and port == target.port and is_own(target.host, config.gateway.host):
            problems.append(
                f"{key}.base_url: this is Gaugeway itself (gateway.port), which would judge its own judging; "
                "give the provider's address"
            )
    return problems


def _budget_problems(config: Config) -> list[str]:
    if config.prices:
        return []
    budgets = {"limits": config.limits.usd_per_day}
    budgets |= {f"limits.apps.{name}": app.usd_per_day for name, app in config.limits.apps.items()}
    return [
        f"{table}.usd_per_day: needs [prices]: without prices nothing is charged"
        for table, usd in budgets.items()
        if usd is not None and not math.isinf(usd)
    ]


def _name_problems(gateway: Gateway) -> list[str]:
    problems = []
    for index, origin in enumerate(gateway.allowed_origins):
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            problems.append(
                f"gateway.allowed_origins[{index}]: expected '*' or an origin such as https://app.example.com"
            )
    for index, host in enumerate(gateway.allowed_hosts):
        if host != "*" and not _HOST_NAME.fullmatch(host):
            problems.append(f"gateway.allowed_hosts[{index}]: expected a host without port, or *.example.com, or '*'")
    return problems


def _base_url_problems(upstream: Upstream, config: Config) -> list[str]:
    try:
        target = Target.parse(upstream.base_url)
    except ValueError as error:
        more = base_url_problem(upstream.base_url) if address_problem(upstream.base_url) is None else None
        return [str(error), *([] if more is None else [more])]
    problem = base_url_problem(upstream.base_url)
    itself = [
        f"this is Gaugeway itself ({key}), so that requests would loop"
        for key, host, port in listeners(config)
        if upstream.proxy is None and port and port == target.port and is_own(target.host, host)
    ]
    return ([] if problem is None else [problem]) + itself[:1]


def _capture_problems(capture: Capture) -> list[str]:
    problems = []
    for index, template in enumerate(capture.templates):
        problems += [f"capture.templates[{index}].{problem}" for problem in _template_problems(template)]
    for index, header in enumerate(capture.session_headers):
        if not _HEADER.fullmatch(header) or header.lower().startswith("x-gaugeway-"):
            problems.append(f"capture.session_headers[{index}]: expected the name of a header that is not x-gaugeway-*")
    return problems + _redaction_problems(capture)


def _redaction_problems(capture: Capture) -> list[str]:
    usual = Capture()
    if (capture.redact, capture.redact_patterns, capture.salt) == (usual.redact, usual.redact_patterns, usual.salt):
        return []
    from gaugeway.redaction import Redactor  # noqa: PLC0415 - only the sampler needs it otherwise

    redacted: list[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...], str]] = [
        *((f"capture.redact[{index}]", (kind,), (), "any") for index, kind in enumerate(capture.redact)),
        *(
            (f"capture.redact_patterns.{pattern[0]}", (), (pattern,), "any")
            for pattern in capture.redact_patterns.items()
        ),
        ("capture.salt", (), (), capture.salt),
    ]
    problems = []
    for key, kinds, patterns, salt in redacted:  # one by one: a redactor names its first mistake only
        try:
            Redactor(kinds, patterns, salt)
        except ValueError as error:
            problems.append(f"{key}: {error}")
    return problems


def _template_problems(template: UserTemplate) -> list[str]:
    from gaugeway.prompts.user_patterns import check  # noqa: PLC0415 - only where templates are configured

    try:
        check(template)
    except ValueError:
        problems = []
    else:
        return _separator_problems(template)
    name = template.name.strip() or "?"
    parts = {
        "name": msgspec.structs.replace(_TEMPLATE, name=template.name),
        "separator": msgspec.structs.replace(_TEMPLATE, name=name, separator=template.separator),
        "pattern": msgspec.structs.replace(_TEMPLATE, name=name, pattern=template.pattern),
    }
    for key, part in parts.items():
        try:
            check(part)
        except ValueError as error:
            problems.append(f"{key}: {error}")
    return problems + _separator_problems(template)


def _separator_problems(template: UserTemplate) -> list[str]:
    from gaugeway.prompts.user_patterns import check_separator  # noqa: PLC0415 - as above

    try:
        check_separator(template)
    except ValueError as error:
        return [f"{'separator_pattern' if template.read_as is None else 'read_as'}: {error}"]
    return []


def _routing_problems(upstreams: tuple[Upstream, ...]) -> list[str]:
    if not upstreams:
        return ["upstreams: at least one upstream is needed (--upstream URL or [[upstreams]]); none is given"]
    problems = []
    names: set[str] = set()
    for index, upstream in enumerate(upstreams):
        if upstream.name in names:
            problems.append(f"upstreams[{index}].name: {upstream.name!r} is taken; every upstream needs its own name")
        names.add(upstream.name)
        if upstream.ca_file is not None and (problem := _ca_problem(upstream.ca_file)) is not None:
            problems.append(f"upstreams[{index}].ca_file: {problem}")
        if upstream.proxy is not None and address_problem(upstream.proxy):  # not shown: it may hold a password
            problems.append(f"upstreams[{index}].proxy: expected a URL such as http://proxy.example:3128")
    if not any(upstream.weight for upstream in upstreams):
        problems.append("upstreams: the weight of at least one must be above 0")
    return problems


def _ca_problem(path: str) -> str | None:
    if not Path(path).is_file():
        return f"there is no file {path!r}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:  # ssl.SSLError is one
        return f"{path!r} is no file of certificates in PEM format"
    return None

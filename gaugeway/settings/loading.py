"""Reads and checks the configuration of the evaluation plane, and says where its values come from."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from gaugeway import settings
from gaugeway.settings import ConfigError, endpoints
from gaugeway.settings.placeholders import placeholders_in
from gaugeway.settings.shared import LOOPBACK, Config, Shared
from gaugeway.settings.shared import problems_of as grounding_problems

_EXAMPLES = ("http://127.0.0.1:9464", "https://gaugeway.example.com", "http://127.0.0.1:4318")
S = TypeVar("S", bound=Shared)
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_DISABLED = "OTEL_SDK_DISABLED"
_EXPORTER = "opentelemetry.exporter"
FILE, OPTION = "file", "option or environment"


def load(
    path: Path | None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    upstream: str | None = None,
    judge: tuple[str | None, ...] = (None, None),
) -> Config:
    """Read the configuration file for the evaluation plane. Raises ConfigError; the parameters are `read_as`'s."""
    config, problems = read_as(Config, path, tables, upstream, judge)
    problems.extend(shared_problems(config))
    problems.raise_any()
    return config


def read_as(
    kind: type[S],
    path: Path | None,
    tables: Mapping[str, Mapping[str, Any]] | None,
    upstream: str | None,
    judge: tuple[str | None, ...],
) -> tuple[S, settings.Problems]:
    """Read the file as a configuration of this kind, with what the command line gives, and with what is wrong with it.

    `tables` maps table -> key -> value (None: not given); `upstream` replaces `[[upstreams]]`; `judge` are the judge's
    model, address and kind. Raises ConfigError for a file of which nothing can be used.
    """
    problems = settings.Problems()
    raw = settings.read_into(path, problems)
    for table, values in (tables or {}).items():
        raw = _overlay(raw, table, {key: value for key, value in values.items() if value is not None})
    token = settings.environment().get("GAUGEWAY_MONITORS_TOKEN")
    monitors = raw.get("monitors", {})
    if token and isinstance(monitors, dict) and "token" not in monitors:
        raw = _overlay(raw, "monitors", {"token": token})
    if upstream is not None:
        raw = {**raw, "upstreams": [{"base_url": upstream}]}
    if any(given is not None for given in judge):
        raw = _with_judge(raw, *judge)
    return with_environment(settings.convert_into(raw, kind, problems), problems), problems


def _overlay(raw: Mapping[str, Any], table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `raw` with these values laid over one of its tables; other types stay, for `convert` to report."""
    below = raw.get(table, {})
    return {**raw, table: {**below, **values} if isinstance(below, dict) else below}


def _with_judge(
    raw: Mapping[str, Any], model: str | None, base_url: str | None, kind: str | None = None
) -> dict[str, Any]:
    """Return `raw` with the judge of the command line: `--judge`, `--judge-url` and `--judge-kind`.

    Without an address the judge is the one of `[judge]`, else the first upstream. Its key is that of `[judge]`, else
    OPENAI_API_KEY of the environment.
    """
    judge, upstreams = raw.get("judge", {}), raw.get("upstreams")
    given = {name: value for name, value in (("model", model), ("kind", kind)) if value is not None}
    if base_url is not None:
        given["base_url"] = base_url
    elif isinstance(judge, dict) and "base_url" not in judge and isinstance(upstreams, list) and upstreams:
        first = upstreams[0]
        given |= {"base_url": first["base_url"]} if isinstance(first, dict) and "base_url" in first else {}
    key = settings.environment().get("OPENAI_API_KEY")
    if key and isinstance(judge, dict) and "api_key" not in judge:
        given["api_key"] = key
    return _overlay(raw, "judge", given)


def with_environment(config: S, problems: settings.Problems) -> S:
    """Return the configuration with the endpoint of OTEL_EXPORTER_OTLP_ENDPOINT where it names none.

    An endpoint that cannot be used is left out, and `problems` gets a warning.
    """
    if config.telemetry.otlp_endpoint is not None:
        return config
    url, warning = otlp_endpoint()
    problems.warnings += [] if warning is None else [warning]
    return config if url is None else replace(config, telemetry=replace(config.telemetry, otlp_endpoint=url))


def shared_problems(shared: Shared) -> list[str]:
    """Return the problems of the monitors' tables that types alone cannot express."""
    return admin_problems(shared) + join_problems(shared) + address_problems(shared)


def address_problems(shared: Shared) -> list[str]:
    """Return the problems of model addresses, and the providers whose API key is missing."""
    judge, embeddings = shared.judge, shared.embeddings
    others = (("judge.small", judge.small), ("judge.anchor", judge.anchor))
    asked = [
        ("judge", judge.base_url, judge.api_key),
        *((table, other.base_url, other.api_key) for table, other in others if other is not None),
    ]
    if embeddings.kind == "openai":
        asked.append(("embeddings", embeddings.base_url, embeddings.api_key))
    problems = [*_url_problems(shared), *(grounding_problems(judge.grounding) if judge.grounding else [])]
    models = [("judge", judge.model), ("embeddings", embeddings.model)]
    models += [(table, other.model) for table, other in others if other is not None]
    problems += [f"{table}.model: missing: it is empty" for table, model in models if model == ""]
    for table, url, key in asked:
        if url is None:
            continue
        if not url:
            problems.append(f"{table}.base_url: missing: it is empty")
            continue
        if (problem := endpoints.base_url_problem(url)) is not None:
            problems.append(f"{table}.base_url: {problem}")
        if not key and endpoints.needs_key(url):
            hint = "; with --judge, set OPENAI_API_KEY" if table == "judge" else ""
            problems.append(f"{table}.api_key: missing: this provider refuses requests without one{hint}")
    return problems


def _url_problems(shared: Shared) -> list[str]:
    """Return the problems of URLs other than those of models."""
    monitors = shared.monitors
    named = [
        *((f"monitors.gateways[{index}]", url, _EXAMPLES[0]) for index, url in enumerate(monitors.gateways or ())),
        ("monitors.public_url", monitors.public_url, _EXAMPLES[1]),
        ("monitors.grafana_url", monitors.grafana_url, _EXAMPLES[1]),
        ("alerts.runbook_url", shared.alerts.runbook_url, _EXAMPLES[1]),
        ("telemetry.otlp_endpoint", shared.telemetry.otlp_endpoint, _EXAMPLES[2]),
    ]
    found = [(key, endpoints.address_problem(url, example)) for key, url, example in named if url is not None]
    linked = [("monitors.public_url", monitors.public_url), ("monitors.grafana_url", monitors.grafana_url)]
    found += [(key, endpoints.link_problem(url)) for key, url in linked if url is not None]
    return [f"{key}: {problem}" for key, problem in found if problem is not None]


def address_warnings(shared: Shared) -> list[str]:
    """Return warnings about unusual addresses that may be intended."""
    judge = shared.judge
    if judge.base_url is None or judge.api_key or not endpoints.is_remote(judge.base_url):
        return []
    return ["judge.api_key: missing, and judge.base_url is a host on the Internet"]


def admin_problems(shared: Shared) -> list[str]:
    """Return the problems of the admin port: a reachable one needs a token; proxies must be addresses."""
    host = shared.monitors.host
    problems = []
    if (problem := endpoints.listener_problem(host)) is not None:
        problems.append(f"monitors.host: {problem}")
    elif host not in LOOPBACK and not shared.monitors.token:
        problems.append(f"monitors.host: binding to {host} needs a token (monitors.token)")
    for index, proxy in enumerate(shared.monitors.trusted_proxies):
        try:
            ip_network(proxy)
        except ValueError as error:
            problems.append(f"monitors.trusted_proxies[{index}]: {error}")
    return problems


def join_problems(shared: Shared) -> list[str]:
    """Return the problems of `join_window_s`: waiting and evaluation must fit into a sample's lease."""
    window_s, lease_s = shared.monitors.join_window_s, shared.queue.lease_s
    if window_s < lease_s:
        return []
    return [f"monitors.join_window_s: {window_s:g} s must be shorter than queue.lease_s ({lease_s:g} s)"]


def queue_url(shared: Shared, data_dir: Path) -> str:
    """Return the queue's URL: the configured one, or the default SQLite file in `data_dir`."""
    return shared.queue.url or f"sqlite:///{data_dir.absolute() / 'queue.db'}"


def store_url(shared: Shared, data_dir: Path) -> str:
    """Return the store's URL: the configured one, or the default SQLite file in `data_dir`."""
    return shared.store.url or f"sqlite:///{data_dir.absolute() / 'store.db'}"


class Endpoint(NamedTuple):
    """The endpoint to export to; None without one, and `warning` says why one that is named is not used.

    A platform may set the variables for every container, so what cannot be used is no error: the gateway starts.
    """

    url: str | None = None
    warning: str | None = None


def otlp_endpoint(variables: Mapping[str, str] | None = None) -> Endpoint:
    """Return the endpoint that the environment names (by default this process's).

    >>> otlp_endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"})
    Endpoint(url=None, warning=None)
    >>> otlp_endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).warning
    'OTEL_EXPORTER_OTLP_ENDPOINT is not used: OTEL_EXPORTER_OTLP_PROTOCOL is not http/protobuf'
    """
    known = settings.environment() if variables is None else variables
    if not (url := known.get(ENDPOINT, "").strip()) or known.get(_DISABLED, "").strip().lower() == "true":
        return Endpoint()
    if known.get(_PROTOCOL, "").strip() not in ("", "http/protobuf"):
        return _unused(f"{_PROTOCOL} is not http/protobuf")
    if (problem := endpoints.address_problem(url, _EXAMPLES[2])) is not None:
        return _unused(problem)
    if not _has_exporter():
        return _unused("it needs the extra `otlp` (pip install 'gaugeway[otlp]')")
    return Endpoint(url)


def _unused(reason: str) -> Endpoint:
    return Endpoint(warning=f"{ENDPOINT} is not used: {reason}")


def _has_exporter() -> bool:
    try:
        return importlib.util.find_spec(f"{_EXPORTER}.otlp.proto.http") is not None
    except ImportError:  # a parent package is missing
        return False


def sources_of(path: Path | None, options: Mapping[str, object]) -> dict[str, str]:
    """Return the source of each value that is set, by its key ("judge.model", "notifiers[0].url").

    `options` are the keys that options of the command line or their environment variables set, None where they are not
    given. A value with placeholders has these as its source: it may be a secret. A file that cannot be read gives none.
    """
    found = dict(_of_file(path)) if path is not None else {}
    return found | {key: OPTION for key, value in options.items() if value is not None}


def is_secret(source: str) -> bool:
    """Return whether a value was filled in from the environment or from a file of its own.

    >>> is_secret("${JUDGE_KEY}"), is_secret("file")
    (True, False)
    """
    return source.startswith("$")


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        raw = tomllib.loads(settings.text_of(path))
    except (ConfigError, OSError, ValueError, RecursionError):
        return iter(())
    return _leaves(raw, "")


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}[{index}]")
    else:
        yield key, ", ".join(dict.fromkeys(placeholders_in(str(value)))) or FILE

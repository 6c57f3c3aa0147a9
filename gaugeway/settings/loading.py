"""Reads and checks the configuration of the evaluation plane."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from gaugeway import settings
from gaugeway.settings import endpoints, otel_environment
from gaugeway.settings.shared import LOOPBACK, Config, Shared
from gaugeway.settings.verifiers import problems_of as grounding_problems

_EXAMPLES = ("http://127.0.0.1:9464", "https://gaugeway.example.com", "http://127.0.0.1:4318")
S = TypeVar("S", bound=Shared)


def load(
    path: Path | None,
    *,
    host: str | None = None,
    port: int | None = None,
    gateway: Mapping[str, Any] | None = None,
    upstream: str | None = None,
    judge: tuple[str | None, str | None] = (None, None),
) -> Config:
    """Read the configuration file for the evaluation plane. Raises ConfigError.

    `host` and `port` beat those of `[monitors]`, and what `gateway` has the keys of `[gateway]`. `judge` are the
    judge's model and address of the command line; `upstream` is the address if neither that nor `[judge]` has one.
    """
    problems = settings.Problems()
    raw = settings.read_into(path, problems)
    raw = settings.overlay_monitors(raw, host=host, port=port)
    if given := {name: value for name, value in (gateway or {}).items() if value is not None}:
        raw = settings.overlay(raw, "gateway", given)
    if upstream is not None:
        raw = {**raw, "upstreams": [{"base_url": upstream}]}
    raw = settings.overlay_judge(raw, *judge)
    config = with_environment(settings.convert_into(raw, Config, problems), problems)
    problems.extend(shared_problems(config))
    problems.raise_any()
    return config


def with_environment(config: S, problems: settings.Problems) -> S:
    """Return the configuration with the endpoint of OTEL_EXPORTER_OTLP_ENDPOINT where it names none.

    An endpoint that cannot be used is left out, and `problems` gets a warning.
    """
    if config.telemetry.otlp_endpoint is not None:
        return config
    url, warning = otel_environment.otlp_endpoint()
    problems.warnings += [] if warning is None else [warning]
    if url is None:
        return config
    return replace(config, telemetry=replace(config.telemetry, otlp_endpoint=url))


def shared_problems(shared: Shared) -> list[str]:
    """Return the problems of the monitors' tables that types alone cannot express."""
    return admin_problems(shared) + join_problems(shared) + address_problems(shared)


def address_problems(shared: Shared) -> list[str]:
    """Return the problems of model addresses, and the providers whose API key is missing."""
    judge, small, embeddings = shared.judge, shared.judge.small, shared.embeddings
    asked = [
        ("judge", judge.base_url, judge.api_key),
        *([("judge.small", small.base_url, small.api_key)] if small else []),
    ]
    if embeddings.kind == "openai":
        asked.append(("embeddings", embeddings.base_url, embeddings.api_key))
    problems = [*_url_problems(shared), *(grounding_problems(judge.grounding) if judge.grounding else [])]
    models = [("judge", judge.model), ("judge.small", small and small.model), ("embeddings", embeddings.model)]
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
        ("alerts.runbook_url", shared.alerts.runbook_url, _EXAMPLES[1]),
        ("telemetry.otlp_endpoint", shared.telemetry.otlp_endpoint, _EXAMPLES[2]),
    ]
    found = ((key, endpoints.address_problem(url, example)) for key, url, example in named if url is not None)
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

"""Builds the exporters of `[[sinks]]`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from gaugeway.extensions import load
from gaugeway.settings import ConfigError, Problems
from gaugeway.settings.options import placed
from gaugeway.settings.shared import Shared, Sink
from monitors import exporters
from monitors.exporters import Exporter
from monitors.exporters.instruments import Instruments


def open_sinks(config: Shared, instruments: Instruments) -> list[Exporter]:
    """Build the exporters, named by kind and index so that their counts stay separate. Raises ConfigError.

    None connects before it has something to send. Phoenix gets annotations of passages only if these are exported
    as spans.
    """
    telemetry = config.telemetry
    documents = telemetry.otlp_endpoint is not None and telemetry.content
    problems = Problems()
    opened = [
        problems.attempt(functools.partial(_open, index, settings, instruments, documents=documents), f"sinks[{index}]")
        for index, settings in enumerate(config.sinks)
    ]
    problems.raise_any()
    return [exporter for exporter in opened if exporter is not None]


def _open(index: int, settings: Sink, instruments: Instruments, *, documents: bool) -> Exporter:
    try:
        kind = load(settings.kind, exporters.BUILT_IN, "kind")
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError([f"sinks[{index}].kind: {error}"]) from error
    named = {name: getattr(settings, name) for name in ("api_key", "public_key", "secret_key", "environment")}
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    problems: list[str] = []
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        taken = ", ".join(key for key in named if key in parameters) or "none of its like"
        what = settings.kind if settings.kind in exporters.BUILT_IN else "this"
        unknown = [key for key in options if key not in parameters]
        problems = [f"sinks[{index}].{key}: a {what} sink does not take it; it takes: {taken}" for key in unknown]
        options = {key: value for key, value in options.items() if key not in unknown}
    if settings.kind == "phoenix":
        options["documents"] = documents
    try:
        sink = kind(
            url=settings.url,
            observe=_observer(f"{settings.kind}-{index}", instruments),
            metrics=settings.metrics,
            content=settings.content,
            timeout_s=settings.timeout_s,
            give_up_s=settings.give_up_s,
            **options,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(problems + placed(f"sinks[{index}]", str(error), Sink.__struct_fields__)) from error
    if problems:
        raise ConfigError(problems)
    return exporters.adapted(sink)


def _observer(name: str, instruments: Instruments) -> Callable[[str, int], None]:
    def observe(result: str, scores: int) -> None:
        instruments.sink_results.labels(name, result).inc(scores)

    return observe

"""Builds the exporters of `[[sinks]]`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from gaugeway.extensions import load, registered
from gaugeway.settings import ConfigError, Problems
from gaugeway.settings.options import construct
from gaugeway.settings.shared import Shared, Sink
from monitors import exporters
from monitors.exporters import Exporter
from monitors.exporters.instruments import Instruments

GIVEN = {"timeout_s": 10.0, "give_up_s": 600.0}
"""For one request, and how long a delivery is retried, of every kind: what waits is held in memory."""
_EVERY_KIND = tuple(key for key in Sink.__struct_fields__ if key != "options")
SPANS = "documents"
"""The parameter by which an exporter learns whether passages are exported as spans."""


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
        kind = load(settings.kind, registered("exporters"), "kind")
    except ValueError as error:
        raise ConfigError([f"sinks[{index}].kind: {error}"]) from error
    given = {key: getattr(settings, key) for key in ("url", "metrics", "content")}
    given |= {**GIVEN, "observe": _observer(f"{settings.kind}-{index}", instruments), SPANS: documents}
    sink = construct(kind, f"sinks[{index}]", settings.options, given, near=_EVERY_KIND)
    return exporters.adapted(sink)


def _observer(name: str, instruments: Instruments) -> Callable[[str, int], None]:
    def observe(result: str, scores: int) -> None:
        instruments.sink_results.labels(name, result).inc(scores)

    return observe

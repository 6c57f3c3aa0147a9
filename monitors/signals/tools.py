"""Signals of an agent's tools, from what the gateway checked against the request."""

from __future__ import annotations

from collections.abc import Callable

from gaugeway.records import Sample, ToolChecks
from monitors.signals.answers import COMPLETED


def invalid(sample: Sample) -> float | None:
    """Return the share of the calls whose arguments do not fit the schema that the request gives."""
    return _share(sample, lambda checks: (checks.invalid, checks.validated))


def unknown(sample: Sample) -> float | None:
    """Return the share of the calls of a tool that the request does not offer."""
    return _share(sample, lambda checks: (checks.unknown, checks.calls if checks.offered else 0))


def repeated(sample: Sample) -> float | None:
    """Return the share of the calls that repeat one of the same turn, name and arguments alike."""
    return _share(sample, lambda checks: (checks.repeated, checks.calls))


def empty(sample: Sample) -> float | None:
    """Return whether a tool result that the response was made from is empty."""
    return _share(sample, lambda checks: (int(checks.empty_results > 0), int(checks.results > 0)))


def _share(sample: Sample, counts: Callable[[ToolChecks], tuple[int, int]]) -> float | None:
    if sample.tool_checks is None or sample.skip_reason not in COMPLETED:
        return None
    found, among = counts(sample.tool_checks)
    return min(1.0, found / among) if among else None

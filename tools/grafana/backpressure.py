"""Panels of the row Back-pressure: reduced capture and judging rates, queue size, spill file."""

from __future__ import annotations

from tools.grafana.panels import THIRD, Built, Query, lines, rate, series


def row() -> list[Built]:
    """The panels of docs/explanation/back-pressure.md."""
    return [
        lines(
            "Slow judge: rate factor",
            "Factor applied to the rates of judged metrics when the judge is slower than the traffic; 1: not reduced."
            " Scores are weighted by their actual rate.",
            "percentunit",
            Query(series("gaugeway_judge_pace_factor"), "{{instance}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Full queue: capture factor",
            "Factor applied to `capture.rate` while the queue or the gateway's buffer is more than half full.",
            "percentunit",
            Query(series("gaugeway_capture_factor"), "{{instance}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Queue size",
            "Approximate storage used by waiting samples.",
            "decbytes",
            Query(series("gaugeway_queue_bytes"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Expired and trimmed samples",
            "expired: older than a day; only metrics without a judge are computed. trimmed: dropped from a"
            " full queue and lost (Redis only).",
            "ops",
            Query(rate(series("gaugeway_queue_expired_total"), "instance"), "{{instance}} expired"),
            Query(
                f"sum by (instance) (deriv({series('gaugeway_queue_trimmed')}[$__rate_interval]))",
                "{{instance}} trimmed",
            ),
            width=THIRD,
        ),
        lines(
            "Spill file",
            "Exchanges written to the gateways' spill files (`queue.spill_bytes`), and moved back to the queue.",
            "ops",
            Query(rate(series("gaugeway_spilled_total"), "instance", "result"), "{{instance}} {{result}}"),
            width=THIRD,
        ),
        lines(
            "Gateways sharing limits",
            "Gateway processes that each one sees. 0: the shared store is unreachable and it enforces its own part.",
            "none",
            Query(series("gaugeway_limits_processes"), "{{instance}}"),
            width=THIRD,
        ),
    ]

"""Back-pressure: what is not captured, not judged, or kept elsewhere while something behind the traffic is too slow."""

from __future__ import annotations

from dashboards.grafana_src.panels import THIRD, Built, Query, lines, rate, series


def row() -> list[Built]:
    """The panels of docs/explanation/back-pressure.md."""
    return [
        lines(
            "Slow judge: rates kept",
            "By which factor the rates of judged metrics are lowered for a judge slower than the traffic; 1 is all of"
            " them. Each score counts by the rate it was chosen with.",
            "percentunit",
            Query(series("gaugeway_judge_pace_factor"), "{{instance}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Full queue: captured",
            "By which factor gateways lower `capture.rate` while the queue or their own buffer is more than half full.",
            "percentunit",
            Query(series("gaugeway_capture_factor"), "{{instance}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Size of the queue",
            "About what all that waits takes up in the engine.",
            "decbytes",
            Query(series("gaugeway_queue_bytes"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Not judged any more, trimmed",
            "expired: samples older than `queue.max_age_s`, which get the metrics without a judge. trimmed: lost, they"
            " had to make room (Redis only).",
            "ops",
            Query(rate(series("gaugeway_queue_expired_total"), "instance"), "{{instance}} expired"),
            Query(
                f"sum by (instance) (deriv({series('gaugeway_queue_trimmed')}[$__rate_interval]))",
                "{{instance}} trimmed",
            ),
            width=THIRD,
        ),
        lines(
            "File for the time without a queue",
            "Exchanges that gateways put into their file (`queue.spill_bytes`), and those that came back to the queue.",
            "ops",
            Query(rate(series("gaugeway_spilled_total"), "instance", "result"), "{{instance}} {{result}}"),
            width=THIRD,
        ),
        lines(
            "Gateways that share limits",
            "How many processes each hears of. 0: it cannot reach the shared place and keeps to its part.",
            "none",
            Query(series("gaugeway_limits_processes"), "{{instance}}"),
            width=THIRD,
        ),
    ]

"""Gateway traffic and overhead: request rates, results, latency, upstreams, tokens and capture."""

from __future__ import annotations

from tools.grafana.board import MISSING, Board, Chosen
from tools.grafana.panels import (
    GREEN,
    RED,
    THIRD,
    YELLOW,
    Built,
    Query,
    figure,
    lines,
    quantile,
    rate,
    series,
    share,
)

CALLER = ("app", "model")
_PER_HOUR = 3600


def board() -> Board:
    """The dashboard of the data plane."""
    return Board(
        uid="gaugeway-traffic",
        title="Gaugeway / Gateway traffic and overhead",
        description="Request rates, results, latency, the gateway's overhead, upstreams, tokens and capture.",
        variables=(Chosen("app", "gaugeway_requests_total"), Chosen("model", "gaugeway_requests_total")),
        rows=(
            ("Now", _now()),
            ("Requests", _requests()),
            ("Time", _time()),
            ("Upstreams", _upstreams()),
            ("Tokens and cost", _tokens()),
            ("Capture", _capture()),
        ),
        missing=MISSING["traffic"],
    )


def _now() -> list[Built]:
    requests = rate(series("gaugeway_requests_total", *CALLER))
    broken = rate(series("gaugeway_requests_total", *CALLER, ending="~upstream_error|upstream_truncated|timeout"))
    return [
        figure("Requests", "Requests per second.", "reqps", requests, [(None, GREEN)]),
        figure(
            "Upstream failures",
            "Share of requests that the upstream failed, truncated or left unanswered.",
            "percentunit",
            f"({broken} or vector(0)) / {requests}",
            [(None, GREEN), (0.01, YELLOW), (0.05, RED)],
        ),
        figure(
            "Overhead, p99",
            "99th percentile of the time the gateway takes before it forwards a request.",
            "s",
            quantile(0.99, series("gaugeway_overhead_seconds_bucket", stage="request")),
            [(None, GREEN), (0.01, YELLOW), (0.025, RED)],
        ),
        figure(
            "Ejected upstreams",
            "Upstreams that currently get no requests because they failed repeatedly.",
            "none",
            f"count({series('gaugeway_upstream_state')} == 0) or vector(0)",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Capture buffer",
            "Exchanges in memory on their way to the queue. Grows while the queue does not accept them.",
            "short",
            f"sum({series('gaugeway_handoff_waiting')})",
            [(None, GREEN), (1000, YELLOW), (8000, RED)],
        ),
        figure(
            "Lost exchanges, last hour",
            "Exchanges lost to evaluation in the last hour: the buffer was full, or parsing them failed.",
            "short",
            f"sum(increase({series('gaugeway_exchanges_total', 'app', outcome='~overflow|error')}[1h])) or vector(0)",
            [(None, GREEN), (1, RED)],
        ),
    ]


def _requests() -> list[Built]:
    name = "gaugeway_requests_total"
    return [
        lines(
            "By status",
            "Requests by the status class sent to the client; `none`: no response.",
            "reqps",
            Query(rate(series(name, *CALLER), "status_class"), "{{status_class}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Incomplete requests",
            "Requests that did not complete: client disconnected, upstream failed, or refused by the gateway.",
            "reqps",
            Query(
                rate(series(name, *CALLER, ending="~client_.*|upstream_.*|timeout|rejected"), "ending"), "{{ending}}"
            ),
            width=THIRD,
        ),
        lines(
            "By app",
            "Requests by app.",
            "reqps",
            Query(rate(series(name, *CALLER), "app"), "{{app}}"),
            width=THIRD,
        ),
        lines(
            "By model",
            "Requests by requested model.",
            "reqps",
            Query(rate(series(name, *CALLER), "model"), "{{model}}"),
            width=THIRD,
        ),
        lines(
            "By route",
            "Requests by API route.",
            "reqps",
            Query(rate(series(name, *CALLER), "route"), "{{route}}"),
            width=THIRD,
        ),
        lines(
            "Streamed",
            "Share of streamed requests.",
            "percentunit",
            Query(share(rate(series(name, *CALLER, stream="true")), rate(series(name, *CALLER))), "streamed"),
            width=THIRD,
            top=1,
        ),
    ]


def _time() -> list[Built]:
    duration = series("gaugeway_request_duration_seconds_bucket", *CALLER)
    first = series("gaugeway_time_to_first_chunk_seconds_bucket", *CALLER)
    overhead = "gaugeway_overhead_seconds_bucket"

    def percentiles(histogram: str) -> list[Query]:
        return [Query(quantile(q, histogram), f"p{100 * q:.0f}") for q in (0.5, 0.95, 0.99)]

    return [
        lines(
            "Duration",
            "From the request head to the last byte of the response.",
            "s",
            *percentiles(duration),
            width=THIRD,
        ),
        lines(
            "Time to first chunk",
            "From the request head to the first byte of a streamed body.",
            "s",
            *percentiles(first),
            width=THIRD,
        ),
        lines(
            "p95 by model",
            "95th percentile of the duration by model.",
            "s",
            Query(quantile(0.95, duration, "model"), "{{model}}"),
            width=THIRD,
        ),
        lines(
            "Request overhead",
            "Time the gateway takes between receiving a request and forwarding it.",
            "s",
            *percentiles(series(overhead, stage="request")),
            width=THIRD,
        ),
        lines(
            "Capture time",
            "Time to turn an exchange into a sample. Off the request path; it delays no request.",
            "s",
            *percentiles(series(overhead, stage="capture")),
            width=THIRD,
        ),
        lines(
            "Overhead ratio",
            "Request overhead divided by request duration.",
            "percentunit",
            Query(
                f"{rate(series('gaugeway_overhead_seconds_sum', stage='request'))}"
                f" / {rate(series('gaugeway_request_duration_seconds_sum'))}",
                "overhead",
            ),
            width=THIRD,
        ),
    ]


def _upstreams() -> list[Built]:
    return [
        lines(
            "Failures by kind",
            "Failed upstream attempts, including retried ones that no client saw.",
            "ops",
            Query(rate(series("gaugeway_upstream_errors_total"), "upstream", "kind"), "{{upstream}} {{kind}}"),
        ),
        lines(
            "State",
            "1: healthy, 0.5: being probed, 0: ejected.",
            "none",
            Query(f"min by (upstream) ({series('gaugeway_upstream_state')})", "{{upstream}}"),
            top=1,
        ),
    ]


def _tokens() -> list[Built]:
    return [
        lines(
            "Tokens per second",
            "Tokens reported by the upstream; cached tokens are included in the input.",
            "short",
            Query(rate(series("gaugeway_tokens_total", *CALLER), "type"), "{{type}}"),
            width=THIRD,
        ),
        lines(
            "Cost by model",
            "USD per hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {rate(series('gaugeway_cost_usd_total', *CALLER), 'model')}", "{{model}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Cost by app",
            "USD per hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {rate(series('gaugeway_cost_usd_total', *CALLER), 'app')}", "{{app}}"),
            width=THIRD,
            stacked="normal",
        ),
    ]


def _capture() -> list[Built]:
    return [
        lines(
            "Exchanges by outcome",
            "Every exchange has exactly one outcome. `overflow` and `error` are losses.",
            "ops",
            Query(rate(series("gaugeway_exchanges_total", "app"), "outcome"), "{{outcome}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Queue write failures",
            "Failed attempts to write samples to the queue. They are retried.",
            "ops",
            Query(rate(series("gaugeway_handoff_errors_total"), "instance"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Contexts and feedback",
            "Contexts and feedback sent to the gateway's own routes, by result.",
            "ops",
            Query(rate(series("gaugeway_supplements_received_total"), "source", "result"), "{{source}} {{result}}"),
            width=THIRD,
        ),
        lines(
            "Configuration reloads",
            "Configuration reloads by result. A rejected reload changes nothing; the log has the reason.",
            "short",
            Query(
                f"sum by (result) (increase({series('gaugeway_config_reloads_total')}[$__rate_interval]))", "{{result}}"
            ),
            width=THIRD,
        ),
        lines(
            "Label values shown as _other",
            "New apps and models in the interval beyond the limit of 100 values per label. They have no gauges.",
            "short",
            Query(
                f"sum by (job, label) (increase({series('gaugeway_label_overflow_total')}[$__rate_interval]))",
                "{{job}} {{label}}",
            ),
            width=THIRD,
        ),
        lines(
            "Running processes",
            "Processes by version.",
            "none",
            Query(f"count by (job, version) ({series('gaugeway_build_info')})", "{{job}} {{version}}"),
            width=THIRD,
        ),
    ]

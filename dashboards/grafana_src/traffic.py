"""Gateway traffic and overhead: what passes, how it ends, how long it takes, and what the gateway adds to it."""

from __future__ import annotations

from dashboards.grafana_src.board import Board, Chosen
from dashboards.grafana_src.panels import (
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
        description="What passes the gateway, how it ends, how long it takes, and what the gateway adds to it.",
        variables=(Chosen("app", "gaugeway_requests_total"), Chosen("model", "gaugeway_requests_total")),
        rows=(
            ("Now", _now()),
            ("Requests", _requests()),
            ("Time", _time()),
            ("Upstreams", _upstreams()),
            ("Tokens and cost", _tokens()),
            ("Capture", _capture()),
        ),
    )


def _now() -> list[Built]:
    requests = rate(series("gaugeway_requests_total", *CALLER))
    broken = rate(series("gaugeway_requests_total", *CALLER, ending="~upstream_error|upstream_truncated|timeout"))
    return [
        figure("Requests", "Requests a second.", "reqps", requests, [(None, GREEN)]),
        figure(
            "Broken by the upstream",
            "Share of the requests that the upstream failed, cut or left without an answer.",
            "percentunit",
            f"({broken} or vector(0)) / {requests}",
            [(None, GREEN), (0.01, YELLOW), (0.05, RED)],
        ),
        figure(
            "Overhead, p99",
            "What the gateway itself takes before a request is sent on: 99 of 100 take less.",
            "s",
            quantile(0.99, series("gaugeway_overhead_seconds_bucket", stage="request")),
            [(None, GREEN), (0.01, YELLOW), (0.025, RED)],
        ),
        figure(
            "Upstreams left out",
            "Upstreams that are not asked at the moment because they failed again and again.",
            "none",
            f"count({series('gaugeway_upstream_state')} == 0) or vector(0)",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Waiting for the queue",
            "Exchanges in memory on their way to the queue. Grows while the disk does not take them.",
            "short",
            f"sum({series('gaugeway_handoff_waiting')})",
            [(None, GREEN), (1000, YELLOW), (8000, RED)],
        ),
        figure(
            "Not captured, one hour",
            "Exchanges of the last hour that were lost to the evaluation: the buffer was full, or reading them failed.",
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
            "Requests by the class of the status that the client got; `none` got no response.",
            "reqps",
            Query(rate(series(name, *CALLER), "status_class"), "{{status_class}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "By ending",
            "How requests ended, other than completely: the client left, the upstream failed, or the gateway refused.",
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
            "Requests by the model that was asked for.",
            "reqps",
            Query(rate(series(name, *CALLER), "model"), "{{model}}"),
            width=THIRD,
        ),
        lines(
            "By route",
            "Requests by route of the API.",
            "reqps",
            Query(rate(series(name, *CALLER), "route"), "{{route}}"),
            width=THIRD,
        ),
        lines(
            "Streamed",
            "Share of the requests that were streamed.",
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
            "From the request's head to the response's last byte.",
            "s",
            *percentiles(duration),
            width=THIRD,
        ),
        lines(
            "Time to first chunk",
            "From the request's head to the first byte of a streamed body.",
            "s",
            *percentiles(first),
            width=THIRD,
        ),
        lines(
            "p95 by model",
            "95th percentile of the duration, by model.",
            "s",
            Query(quantile(0.95, duration, "model"), "{{model}}"),
            width=THIRD,
        ),
        lines(
            "Overhead before sending on",
            "What the gateway takes of its own between receiving a request and sending it on.",
            "s",
            *percentiles(series(overhead, stage="request")),
            width=THIRD,
        ),
        lines(
            "Reading exchanges",
            "What making a sample of an exchange takes. It happens off the request path and delays nobody.",
            "s",
            *percentiles(series(overhead, stage="capture")),
            width=THIRD,
        ),
        lines(
            "Overhead as a share",
            "All of the overhead before sending on, over all of the requests' duration.",
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
            "Attempts that an upstream failed, those included that were repeated and that no client saw.",
            "ops",
            Query(rate(series("gaugeway_upstream_errors_total"), "upstream", "kind"), "{{upstream}} {{kind}}"),
        ),
        lines(
            "State",
            "1 healthy, 0.5 being probed, 0 left out.",
            "none",
            Query(f"min by (upstream) ({series('gaugeway_upstream_state')})", "{{upstream}}"),
            top=1,
        ),
    ]


def _tokens() -> list[Built]:
    return [
        lines(
            "Tokens",
            "Tokens that the upstream reported; cached ones are part of the input.",
            "ops",
            Query(rate(series("gaugeway_tokens_total", *CALLER), "type"), "{{type}}"),
            width=THIRD,
        ),
        lines(
            "Cost by model",
            "USD an hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {rate(series('gaugeway_cost_usd_total', *CALLER), 'model')}", "{{model}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Cost by app",
            "USD an hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {rate(series('gaugeway_cost_usd_total', *CALLER), 'app')}", "{{app}}"),
            width=THIRD,
            stacked="normal",
        ),
    ]


def _capture() -> list[Built]:
    return [
        lines(
            "What became of exchanges",
            "Every exchange has exactly one outcome. `overflow` and `error` are losses.",
            "ops",
            Query(rate(series("gaugeway_exchanges_total", "app"), "outcome"), "{{outcome}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Hand-over failures",
            "Failed attempts to put samples into the queue. They are repeated.",
            "ops",
            Query(rate(series("gaugeway_handoff_errors_total"), "instance"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Said beside the traffic",
            "Contexts and feedback sent to the gateway's own routes, by result.",
            "ops",
            Query(rate(series("gaugeway_supplements_received_total"), "source", "result"), "{{source}} {{result}}"),
            width=THIRD,
        ),
        lines(
            "Configuration reloads",
            "Reloads of the configuration. A refused one changed nothing: the log says why.",
            "short",
            Query(
                f"sum by (result) (increase({series('gaugeway_config_reloads_total')}[$__rate_interval]))", "{{result}}"
            ),
            width=THIRD,
        ),
        lines(
            "Label values shown as _other",
            "Apps and models beyond the cap of 100 values a label, new ones in the interval. They have no gauges.",
            "short",
            Query(
                f"sum by (job, label) (increase({series('gaugeway_label_overflow_total')}[$__rate_interval]))",
                "{{job}} {{label}}",
            ),
            width=THIRD,
        ),
        lines(
            "Running",
            "Processes by version.",
            "none",
            Query(f"count by (job, version) ({series('gaugeway_build_info')})", "{{job}} {{version}}"),
            width=THIRD,
        ),
    ]

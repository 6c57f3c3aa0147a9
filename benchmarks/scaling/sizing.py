"""How many processes, rows, bytes and USD a traffic needs, from what was measured on two cores.

python benchmarks/scaling/sizing.py [--requests-per-s 200 --judged 0.1 --judge-s 2]

Without options it prints the table of docs/explanation/scaling.md. Every constant names the file it was measured in;
put your own machine's in their place. The arithmetic: Little's law for places (arrivals a second x seconds in each),
and utilisation kept at `TARGET` so that the mean wait for a core or a place stays below the time of service.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

DAY_S = 86_400.0
TARGET = 0.6
"""Utilisation planned for: with one server and random arrivals the mean wait is then at most 1.5 times the service."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What an exchange with 8 KB of passages and four judged metrics costs, on one core of the machine measured."""

    request_cpu_s: float = 0.000_23  # docs/explanation/performance.md, 32 in flight, capture off
    capture_cpu_s: float = 0.000_50  # the same: capture on less capture off
    free_cpu_s: float = 0.003_41  # results/costs.md: scored without an LLM, stored
    judged_cpu_s: float = 0.003_72  # results/costs.md: judged, less that
    tokens_in: float = 5_165.0  # the same, fused; the passages are read twice
    tokens_out: float = 2_806.0  # the same
    sample_bytes: float = 16.9 * 1024  # the same, SQLite, with the one evaluation
    judged_bytes: float = 12.9 * 1024  # the same: four evaluations with their claims
    places: int = 16  # monitors.concurrency = judge.concurrency, both set for one process
    evaluations: int = 1
    judged_evaluations: int = 4


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one row of the table says."""

    gateways: int
    monitors: int
    in_flight: float
    stored_per_s: float
    rows_per_day: float
    bytes_per_day: float
    usd_per_day: float


def need(
    requests_per_s: float,
    *,
    capture: float,
    judged: float,
    judge_s: float,
    usd_in: float,
    usd_out: float,
    m: Measured | None = None,
) -> Need:
    """What `requests_per_s` need, of which `capture` are stored and `judged` (of all) are judged in `judge_s` each.

    `usd_in` and `usd_out` are for a million tokens. A gateway process has one core, a monitors process too.
    """
    m = m or Measured()
    captured, asked = requests_per_s * capture, requests_per_s * judged
    gateway_cores = requests_per_s * m.request_cpu_s + captured * m.capture_cpu_s
    monitor_cores = captured * m.free_cpu_s + asked * m.judged_cpu_s
    in_flight = asked * judge_s
    return Need(
        gateways=math.ceil(gateway_cores / TARGET),
        monitors=math.ceil(max(monitor_cores, in_flight / m.places) / TARGET),
        in_flight=in_flight,
        stored_per_s=captured,
        rows_per_day=(captured * (1 + m.evaluations) + asked * m.judged_evaluations) * DAY_S,
        bytes_per_day=(captured * m.sample_bytes + asked * m.judged_bytes) * DAY_S,
        usd_per_day=asked * DAY_S * (m.tokens_in * usd_in + m.tokens_out * usd_out) / 1e6,
    )


SHOWN = ((1, 1.0, 1.0, 2.0), (10, 1.0, 0.1, 2.0), (10, 1.0, 1.0, 2.0), (100, 1.0, 0.1, 2.0), (100, 0.1, 0.01, 2.0))
SHOWN += ((100, 0.1, 0.1, 10.0), (1_000, 0.1, 0.01, 2.0), (1_000, 1.0, 0.1, 2.0), (10_000, 0.01, 0.001, 2.0))
HEAD = (
    "| requests/s | captured | judged | judge s | gateways | monitors | concurrent judge calls | stored/s | rows/day | "
    "GB/day | USD/day |"
)


def row(shown: tuple[float, float, float, float], usd_in: float, usd_out: float) -> str:
    """One row of the table: requests a second, shares captured and judged, seconds of the judge."""
    requests_per_s, capture, judged, judge_s = shown
    one = need(requests_per_s, capture=capture, judged=judged, judge_s=judge_s, usd_in=usd_in, usd_out=usd_out)
    cells = f"{requests_per_s:,g}", f"{capture:g}", f"{judged:g}", f"{judge_s:g}", f"{one.gateways}", f"{one.monitors}"
    more = f"{one.in_flight:,.1f}", f"{one.stored_per_s:,g}", f"{one.rows_per_day / 1e6:,.2f} M"
    return "| " + " | ".join([*cells, *more, f"{one.bytes_per_day / 1e9:,.1f}", f"{one.usd_per_day:,.0f}"]) + " |"


def table(usd_in: float, usd_out: float) -> str:
    """The table of docs/explanation/scaling.md."""
    rule = "|" + " ---: |" * (HEAD.count("|") - 1)
    return "\n".join([HEAD, rule, *(row(shown, usd_in, usd_out) for shown in SHOWN)])


def main() -> None:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--requests-per-s", type=float)
    asking.add_argument("--capture", type=float, default=1.0, help="share of requests that is stored")
    asking.add_argument("--judged", type=float, default=0.1, help="share of requests that is judged")
    asking.add_argument("--judge-s", type=float, default=2.0, help="seconds that judging one sample takes")
    asking.add_argument("--usd-in", type=float, default=0.4, help="USD for a million input tokens")
    asking.add_argument("--usd-out", type=float, default=1.6, help="USD for a million output tokens")
    o = asking.parse_args()
    if o.requests_per_s is None:
        print(table(o.usd_in, o.usd_out))
    else:
        print(f"{HEAD}\n{row((o.requests_per_s, o.capture, o.judged, o.judge_s), o.usd_in, o.usd_out)}")


if __name__ == "__main__":
    main()

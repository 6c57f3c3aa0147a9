"""Traffic with hours, weekdays and drifts, and nothing wrong with it: how often is a page sent? And how soon, when
something is wrong?

    nice -n 10 .venv/bin/python -m benchmarks.detection.seasons [--fleets 8] [--incidents 20] [--seed 20261129]

Every app is drawn by seed from families of laws: volume over the day and the week; for each signal and judged metric a
base law, one or two daily harmonics, a weekend, an AR(1) effect of the hour, and a drift over the quarter. Nothing is
set by hand for a row. The scores go through the product's references, rules, budgets and streams (buckets of five
minutes, five judged metrics with a tenth of the traffic judged, the default of one false page in 30 days for all apps
together). Writes results/seasons.md.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gaugeway.settings.shared import Alerts
from gaugeway.signals import SIGNALS
from monitors.alerting.rules import budget_parts, is_flipped, rules_of, watch_of
from monitors.alerting.stream import Stream, on_scale
from monitors.signals.references import Reference

RESULTS = Path(__file__).parent / "results" / "seasons.md"
BUCKET_S, PER_HOUR, DAY = 300.0, 12, 24
JUDGED, METRICS = 0.1, tuple(f"metric_{number}" for number in range(5))
HIGH = ("slow", "expensive")
SHARES: Mapping[str, tuple[float, float]] = {
    "abstained": (0.01, 0.05),
    "no_contexts": (0.01, 0.05),
    "language_mismatch": (0.002, 0.02),
    "truncated": (0.002, 0.01),
    "tool_invalid": (0.002, 0.02),
    "tool_unknown": (0.001, 0.005),
    "tool_repeated": (0.01, 0.05),
    "tool_empty": (0.01, 0.08),
}
"""Between which the usual share of a signal is drawn, on a logarithmic scale."""
Rng = np.random.Generator
Draw = Callable[[Rng, int, int], np.ndarray]  # generator, hour, how many
Change = Callable[[Rng, np.ndarray], np.ndarray]


class Strength(NamedTuple):
    """Between which the parts of a season are drawn, as multiples of a standard deviation."""

    daily: float
    second: float
    weekend: float
    hourly: float
    drift: float


TYPICAL, STRONG, STEADY = (
    Strength(0.3, 0.1, 0.3, 0.08, 0.1),
    Strength(0.9, 0.3, 0.9, 0.24, 0.3),
    Strength(0, 0, 0, 0, 0),
)
OF_A_METRIC = 0.4
"""Judged scores follow the hours less than latency does."""
STRENGTHS = {"steady": STEADY, "typical seasons": TYPICAL, "strong seasons": STRONG}


def season(rng: Rng, hours: int, strength: Strength) -> np.ndarray:
    """Draw by how many standard deviations each hour lies above the average."""
    at = np.arange(hours)
    phases = rng.uniform(0.0, 2.0 * math.pi, 2)
    daily = rng.uniform(0.0, strength.daily) * np.sin(2.0 * math.pi * at / DAY + phases[0])
    second = rng.uniform(0.0, strength.second) * np.sin(4.0 * math.pi * at / DAY + phases[1])
    weekend = rng.uniform(-strength.weekend, strength.weekend) * _is_weekend(at)
    drift = rng.uniform(-strength.drift, strength.drift) * np.linspace(0.0, 1.0, hours)
    return daily + second + weekend + drift + _autoregressive(rng, hours, rng.uniform(0.0, strength.hourly))


def _is_weekend(hours: np.ndarray) -> np.ndarray:
    return hours // DAY % 7 >= 5


def _autoregressive(rng: Rng, hours: int, sd: float) -> np.ndarray:
    phi = rng.uniform(0.3, 0.95)
    steps = rng.normal(0.0, sd * math.sqrt(1.0 - phi * phi), hours)
    values = np.empty(hours)
    values[0] = rng.normal(0.0, sd)
    for hour in range(1, hours):
        values[hour] = phi * values[hour - 1] + steps[hour]
    return values


def draw_of(rng: Rng, name: str, hours: int, strength: Strength) -> Draw:
    """Draw the law of a signal or metric."""
    moves = season(rng, hours, strength)
    if name in SHARES:
        low, high = SHARES[name]
        log_share = rng.uniform(math.log(low), math.log(high))
        return lambda rng, hour, n: (rng.random(n) < math.exp(log_share + moves[hour])).astype(float)
    if name in HIGH:
        sigma = rng.uniform(0.3, 0.8)
        return lambda rng, hour, n: np.exp(sigma * (rng.standard_normal(n) + moves[hour]))
    if name == "contexts_per_answer":
        most = int(rng.integers(3, 9))
        return lambda rng, hour, n: (rng.integers(max(1, most - 3), most + 1, n) + _steps(rng, moves[hour], n)).astype(
            float
        )
    if name == "retriever_score":
        return lambda rng, hour, n: 0.7 + 0.05 * (rng.standard_normal(n) + moves[hour])
    return _metric(rng, OF_A_METRIC * moves)


def _steps(rng: Rng, move: float, n: int) -> np.ndarray:
    return np.sign(move) * (rng.random(n) < abs(move))


def _metric(rng: Rng, moves: np.ndarray) -> Draw:
    """Right or wrong, a beta law, or ones, zeros and a middle."""
    mean, kind, concentration, ones = (
        rng.uniform(0.7, 0.95),
        rng.integers(3),
        rng.uniform(3.0, 15.0),
        rng.uniform(0.3, 0.6),
    )
    sd = (math.sqrt(mean * (1.0 - mean)), math.sqrt(mean * (1.0 - mean) / (concentration + 1.0)), 0.27)[kind]

    def draw(rng: Rng, hour: int, n: int) -> np.ndarray:
        now = min(0.99, mean + sd * moves[hour])
        if kind == 0:
            return (rng.random(n) < now).astype(float)
        rest = now if kind == 1 else min(0.99, max(0.01, (now - ones) / (1.0 - ones)))
        values = rng.beta(concentration * rest, concentration * (1.0 - rest), n)
        return values if kind == 1 else np.where(rng.random(n) < ones, 1.0, values)

    return draw


def volume(rng: Rng, hours: int, per_day: float) -> np.ndarray:
    """Exchanges expected in each hour."""
    at = np.arange(hours)
    daily = 1.0 + rng.uniform(0.0, 0.8) * np.sin(2.0 * math.pi * at / DAY + rng.uniform(0.0, 2.0 * math.pi))
    return per_day / DAY * daily * np.where(_is_weekend(at), rng.uniform(0.4, 1.1), 1.0)


@dataclass(slots=True)
class Source:
    """The values of one signal or metric of one app, as the monitors would compute them."""

    name: str
    draw: Draw
    usual: Reference | None

    def values(self, rng: Rng, hour: int, n: int, at: float, change: Change | None) -> list[float]:
        drawn = self.draw(rng, hour, rng.binomial(n, JUDGED) if self.name in METRICS else n)
        if change is not None:
            drawn = change(rng, drawn)
        if self.usual is None:
            return drawn.tolist()
        found = []
        for value in drawn.tolist():
            if self.usual.known:
                found.append(self.usual.high(value) if self.name in HIGH else self.usual.rank(value))
            self.usual.add(value, at)
        return found


class Alarm(NamedTuple):
    """When a stream alarmed: the hour, and how many exchanges the app had had."""

    name: str
    flipped: bool
    severity: str
    hour: int
    exchanges: int


class Fleet:
    """Watches of all rules; apps get their streams, and their shares of the budget, in turn."""

    def __init__(self) -> None:
        config = Alerts(bucket_s=BUCKET_S, slices=("app",))
        rules = rules_of(config, METRICS, SIGNALS)
        parts = budget_parts(rules, config)
        self.watches = [
            watch_of(rule, config, part=part, flipped=is_flipped(rule, lambda _: False))
            for rule, part in zip(rules, parts, strict=True)
        ]

    def streams(self, app: str) -> dict[str, list[Stream]]:
        found: dict[str, list[Stream]] = {}
        for watch in self.watches:
            stream = watch.stream(app)
            assert stream is not None
            found.setdefault(watch.rule.metric, []).append(stream)
        return found


def alarms(
    seed: Sequence[int],
    streams: Mapping[str, list[Stream]],
    *,
    per_day: float,
    days: int,
    strength: Strength,
    changes: Mapping[str, Change] | None = None,
    since: int = 0,
) -> Iterator[Alarm]:
    """Yield the alarms of one app; `changes` happen from hour `since` on."""
    rng, hours = np.random.default_rng(seed), days * DAY
    expected = volume(rng, hours, per_day)
    ranked = (*HIGH, "contexts_per_answer", "retriever_score")
    sources = [
        Source(name, draw_of(rng, name, hours, strength), Reference() if name in ranked else None) for name in streams
    ]
    exchanges = 0
    for bucket in range(hours * PER_HOUR):
        hour, start = bucket // PER_HOUR, bucket * BUCKET_S
        n = int(rng.poisson(expected[hour] / PER_HOUR))
        exchanges += n
        for source in sources:
            change = (changes or {}).get(source.name) if hour >= since else None
            values = source.values(rng, hour, n, start, change)
            for stream in streams[source.name] if values else ():
                if take(stream, start, values):
                    yield Alarm(source.name, stream.flipped, stream.severity, hour, exchanges)


def take(stream: Stream, start: float, values: list[float]) -> bool:
    """Feed a bucket; return whether an alert begins to fire."""
    fired = stream.state == "firing"
    scores = [on_scale(value, flipped=stream.flipped) for value in values]
    stream.take(stream.observed(start, BUCKET_S, scores, [1.0] * len(scores), [None] * len(scores)))
    return stream.state == "firing" and not fired


class Months(NamedTuple):
    """A fleet of apps with nothing wrong, watched for some days."""

    seed: int
    number: int
    apps: int
    per_day: float
    days: int
    kind: str


def quiet(months: Months) -> list[Alarm]:
    """The alarms of a fleet with nothing wrong."""
    fleet = Fleet()
    found: list[Alarm] = []
    for app in range(months.apps):
        streams, law = fleet.streams(f"app-{app}"), STRENGTHS[months.kind]
        seed = months.seed, months.number, app
        found += alarms(seed, streams, per_day=months.per_day, days=months.days, strength=law)
    return found


def _some(share: float, change: Change) -> Change:
    return lambda rng, x: np.where(rng.random(x.size) < share, change(rng, x), x)


def _worse(by: float) -> Change:
    """A share of the scores is lost, so that the mean falls by about `by`."""
    return lambda rng, x: np.where(rng.random(x.size) < by / max(0.1, float(x.mean() if x.size else 1.0)), 0.0, x)


INCIDENTS: Mapping[str, Mapping[str, Change]] = {
    "top-k halved": {"contexts_per_answer": lambda _, x: np.ceil(x / 2.0), "metric_0": _worse(0.05)},
    "weaker model (.10)": {"metric_0": _worse(0.10), "metric_1": _worse(0.10)},
    "index of one source broken": {
        "retriever_score": _some(0.3, lambda _, x: x - 0.15),
        "no_contexts": lambda rng, x: np.maximum(x, rng.random(x.size) < 0.05),
        "metric_2": _worse(0.08),
    },
    "provider 1.6 times as slow": {"slow": lambda _, x: 1.6 * x},
    "6 % more declines": {"abstained": lambda rng, x: np.maximum(x, rng.random(x.size) < 0.06)},
}


class Detected(NamedTuple):
    """The first alarm of an incident, if any, on something that changed or not."""

    incident: str
    per_day: float
    signal: str
    hours: float
    exchanges: int
    false_before: int


def incident(seed: int, number: int, name: str, per_day: float) -> Detected:
    """One incident between the tenth and the twentieth day of typical seasons, watched for three days."""
    rng = np.random.default_rng((seed, number, 77))
    since = int(rng.integers(10 * DAY, 20 * DAY))
    until = since // DAY + 4
    changes, before, last = INCIDENTS[name], 0, 0
    found = alarms(
        (seed, number, 78),
        Fleet().streams("app"),
        per_day=per_day,
        days=until,
        strength=TYPICAL,
        changes=changes,
        since=since,
    )
    for alarm in found:
        if alarm.hour < since:
            before, last = before + 1, alarm.exchanges
        elif alarm.name in changes:
            exchanges = round((alarm.hour - since + 1) * per_day / DAY)
            return Detected(name, per_day, alarm.name, alarm.hour - since + 1, exchanges, before)
    return Detected(name, per_day, "", math.inf, last, before)


def _incident(task: tuple[int, int, str, float]) -> Detected:
    return incident(*task)


def quiet_row(months: Months, fleets: list[list[Alarm]]) -> str:
    """False alarms per 30 days of all apps, with the Monte Carlo error of their mean."""
    days = months.days
    counts = [len(alarms) * 30.0 / days for alarms in fleets]
    pages = [sum(alarm.severity == "page" for alarm in alarms) * 30.0 / days for alarms in fleets]
    signals = [sum(alarm.name not in METRICS for alarm in alarms) * 30.0 / days for alarms in fleets]
    error = statistics.stdev(counts) / math.sqrt(len(counts)) if len(counts) > 1 else math.nan
    which = Counter(alarm.name for alarms in fleets for alarm in alarms).most_common(3)
    shown = ", ".join(f"{signal} {count}" for signal, count in which) or "-"
    cells = [months.kind, months.apps, f"{months.per_day:,.0f}", f"{len(fleets)} x {days}"]
    cells += [f"{statistics.fmean(counts):.2f} ± {error:.2f}"]
    cells += [f"{statistics.fmean(signals):.2f}", f"{statistics.fmean(pages):.2f}", shown]
    return f"| {' | '.join(map(str, cells))} |"


def incident_row(found: Sequence[Detected]) -> str:
    seen = [one for one in found if one.signal]
    first = ", ".join(f"`{name}` {count}" for name, count in Counter(one.signal for one in seen).most_common())
    hours = sorted(one.hours for one in found)
    middle, late = statistics.median(hours), hours[math.ceil(0.9 * len(hours)) - 1]
    shown = ["none" if math.isinf(value) else f"{value:.0f}" for value in (middle, late)]
    cells = [
        found[0].incident,
        f"{found[0].per_day:,.0f}",
        f"{len(seen)} of {len(found)}",
        f"{shown[0]} ({shown[1]})",
        first,
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--fleets",
        type=int,
        default=8,
        help="fleets of one app; fewer of larger ones, and those with the first rate only",
    )
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--apps", default="1,4,20")
    parser.add_argument("--per-day", default="3000,20000")
    parser.add_argument("--kinds", default=",".join(STRENGTHS))
    parser.add_argument("--incidents", type=int, default=20, help="runs of each incident")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    rates = [float(rate) for rate in asked.per_day.split(",")]
    lines = [
        "# Seasons: false alarms in quiet traffic, and incidents in the same traffic",
        f"\nseed {asked.seed}, Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}.\n",
        "| traffic | apps | a day, each | fleets x days | false alarms in 30 days | of signals | pages | most |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    print("\n".join(lines), flush=True)
    with ProcessPoolExecutor(asked.processes) as pool:
        for kind in asked.kinds.split(","):
            for apps in map(int, asked.apps.split(",")):
                for rate in rates if apps == 1 else rates[:1]:
                    fleets = range(max(2, asked.fleets // apps))
                    tasks = [Months(asked.seed, number, apps, rate, asked.days, kind) for number in fleets]
                    lines.append(quiet_row(tasks[0], list(pool.map(quiet, tasks))))
                    print(lines[-1], flush=True)
        more = [
            "\n| incident | exchanges a day | found in three days | hours: median (90 %) | first alarm |",
            "|---|--:|--:|--:|---|",
        ]
        print("\n".join(more), flush=True)
        lines += more
        for name in INCIDENTS if asked.incidents else ():
            for rate in rates:
                runs = [(asked.seed, number, name, rate) for number in range(asked.incidents)]
                lines.append(incident_row(list(pool.map(_incident, runs))))
                print(lines[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

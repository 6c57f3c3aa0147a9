"""What a soak showed: whether each series is flat, and whether everything that was sent is accounted for."""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

BLOCKS = 12
T_95 = 2.228
"""The quantile of Student's t for the slope of a line through that many points (10 degrees of freedom)."""
SHARE = 0.05
ALLOWED = {
    "RSS MiB": 8.0,
    "descriptors": 32.0,
    "threads": 2.0,
    "answers after ms": 20.0,
    "queue depth": 20.0,
    "queue age s": 2.0,
    "write-ahead log MiB": 8.0,
    "request p50 ms": 10.0,
    "request p99 ms": 50.0,
}
"""What a series may grow by over the run and still be flat, where a twentieth of its median is less than that.

A gateway keeps connections to the upstream for 55 s, so its descriptors follow the peaks of the traffic: up to one for
each of the client's 32 connections. Descriptors that are never closed are found when the traffic is over.
"""
LEFT_OPEN = 8
"""So many more descriptors may be open a minute after the traffic than before it: what the first requests open."""


@dataclass(frozen=True, kw_only=True)
class Slope:
    """The line through the medians of twelve blocks of time, per hour, with its 95 % interval."""

    per_h: float
    low: float
    high: float
    grew: float
    median: float

    def flat(self, allowed: float) -> bool:
        """Whether it grew by no more than is allowed, or by nothing that can be distinguished from noise."""
        return self.low <= 0.0 or self.grew <= max(allowed, SHARE * abs(self.median))


def slope(times_s: Sequence[float], values: Sequence[float]) -> Slope | None:
    """Fit a line. Blocks, because what is seen every 10 s is no independent observation; None for too few.

    >>> found = slope(range(0, 3600, 10), [100 + second / 360 for second in range(0, 3600, 10)])
    >>> round(found.per_h, 6), round(found.grew, 1), found.flat(20.0), found.flat(5.0)
    (10.0, 9.2, True, False)
    """
    if len(values) < 2 * BLOCKS:
        return None
    hours = np.array([np.mean(one) for one in np.array_split(np.asarray(times_s, float) / 3600.0, BLOCKS)])
    blocks = np.array([np.median(one) for one in np.array_split(np.asarray(values, float), BLOCKS)])
    spread = hours - hours.mean()
    per_h = float(spread @ blocks / (spread @ spread))
    rest = blocks - blocks.mean() - per_h * spread
    half = T_95 * math.sqrt(float(rest @ rest) / (BLOCKS - 2) / float(spread @ spread))
    median = float(np.median(values))
    return Slope(per_h=per_h, low=per_h - half, high=per_h + half, grew=per_h * float(np.ptp(hours)), median=median)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What was sent, and where it is found again; 0 while the run goes on."""

    sent: int = 0
    answered: int = 0
    requests: float = 0
    exchanges: float = 0
    outcomes: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    evaluations: int = 0
    counted: float = 0
    waiting: int = 0
    at_rest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Descriptors of each process before the traffic and a minute after it; empty for a run that was cut off."""

    def problems(self) -> list[str]:
        """What does not add up."""
        captured = self.outcomes.get("captured", 0)
        checks = {
            f"{self.sent - self.answered} requests were not answered with 200": self.answered == self.sent,
            f"{self.requests:.0f} requests counted, {self.sent} sent": self.requests == self.sent,
            f"{self.exchanges:.0f} exchanges counted, {self.sent} sent": self.exchanges == self.sent,
            f"{self.samples} samples stored, {captured:.0f} captured": self.samples == captured,
            f"{self.counted:.0f} evaluations counted, {self.evaluations} stored": self.counted == self.evaluations,
            f"{self.waiting} samples are left in the queue": self.waiting == 0,
        }
        checks |= {
            f"{name} had {before} descriptors before the traffic and has {after} after it": after <= before + LEFT_OPEN
            for name, (before, after) in self.at_rest.items()
        }
        return [problem for problem, fine in checks.items() if not fine]


def written(
    options: argparse.Namespace,
    rows: Sequence[dict[str, float]],
    totals: Totals,
    found: float | None,
    *,
    warm_up_s: float,
    others: float,
    done: str,
) -> tuple[str, bool]:
    """The page, and whether all is well.

    `others` is the share of the processors that other programs took; `done` is what was done with every exchange.
    """
    warm = [row for row in rows if row["t_s"] >= warm_up_s]
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("t_s", "sent")))
    lines, growing = [], []
    for name in names:
        line, flat = _line(name, warm)
        lines.append(line)
        growing += [] if flat else [name]
    minutes = rows[-1]["t_s"] / 60 if rows else 0.0
    problems = totals.problems() if totals.sent else ["the run goes on, or was cut off"]
    problems += [f"not flat: {name}" for name in growing]
    table = ["| | first | median | last | most | an hour | 95 % | |", "|---|---|---|---|---|---|---|---|", *lines]
    parts = [
        f"# Soak: {options.gateways} + {options.monitors} on {options.engine}",
        _head(options, minutes, found, others, done),
        f"**{'All is well.' if not problems else 'Not well: ' + '; '.join(problems) + '.'}**",
        _counts(totals),
        _METHOD.format(warm=warm_up_s / 60, blocks=BLOCKS),
        "\n".join(table),
    ]
    return "\n\n".join(parts) + "\n", not problems


_METHOD = (
    "After {warm:.1f} minutes: a line through the medians of {blocks} blocks of time, per hour, with its 95 % "
    "interval. Flat: it grew by less than a twentieth of the median (or a small number, `report.py`), or by nothing "
    "that can be distinguished from noise."
)


def _head(options: argparse.Namespace, minutes: float, found: float | None, others: float, done: str) -> str:
    day, half = dt.datetime.now(dt.UTC).date(), ""
    if found is not None:
        half = f", half of the highest rate that held for {options.step:g} s ({found:.1f})"
    command = f"--minutes {options.minutes:g} --engine {options.engine}"
    command += f" --gateways {options.gateways} --monitors {options.monitors}"
    command += " --unjudged" if options.unjudged else ""
    command += f" --rate {options.rate:g}" if found is None else " --find-maximum"
    return (
        f"`python benchmarks/fleet/soak.py {command}`, {day}: {minutes:.1f} minutes at {options.rate:.1f} requests a "
        f"second{half}; everything {done}. {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, which run engines, model, judge and client, too; other programs took "
        f"{others:.0%} of them before."
    )


def _counts(totals: Totals) -> str:
    outcomes = ", ".join(f"{name} {count:.0f}" for name, count in totals.outcomes.items() if count)
    rows = {
        "sent, answered 200": f"{totals.sent}, {totals.answered}",
        "requests, exchanges counted": f"{totals.requests:.0f}, {totals.exchanges:.0f}",
        "outcomes": outcomes,
        "samples stored": f"{totals.samples}",
        "evaluations stored, counted": f"{totals.evaluations}, {totals.counted:.0f}",
    }
    rows |= {
        f"{name}: descriptors before the traffic, a minute after it": f"{before}, {after}"
        for name, (before, after) in totals.at_rest.items()
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _line(name: str, rows: Sequence[dict[str, float]]) -> tuple[str, bool]:
    pairs = [(row["t_s"], row[name]) for row in rows if name in row]
    values = [value for _, value in pairs]
    fitted = slope([when for when, _ in pairs], values)
    allowed = ALLOWED.get(name.rpartition(": ")[2])
    flat = fitted is None or allowed is None or fitted.flat(allowed)
    said = "grows with what it keeps" if allowed is None else "flat" if flat else "**grows**"
    if not values:
        return f"| {name} | | | | | | | never seen |", True
    shown = [values[0], float(np.median(values)), values[-1], max(values)]
    line = " | ".join(f"{value:.1f}" for value in shown)
    if fitted is None:
        return f"| {name} | {line} | | | too short to say |", True
    return f"| {name} | {line} | {fitted.per_h:+.2f} | {fitted.low:+.2f} to {fitted.high:+.2f} | {said} |", flat

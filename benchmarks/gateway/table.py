"""The markdown table of a run: medians, [min-max] over the rounds, ratios to nginx and to direct."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

Result = dict[str, Any]


class View:
    """One result file, asked for a contender's numbers."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self.rows = result["contenders"]

    def values(self, name: str, phase: str, key: str) -> list[float]:
        """One value for each round in which the phase worked."""
        rounds = self._result["samples"].get(name, [])
        return [r[phase][key] for r in rounds if key in r.get(phase, {})]

    def median(self, name: str, phase: str, key: str) -> float | None:
        found = self.values(name, phase, key)
        return statistics.median(found) if found else None

    def spread(self, name: str, phase: str, key: str, scale: float = 1.0, digits: int = 0) -> str:
        """Median [min-max]."""
        found = [value / scale for value in self.values(name, phase, key)]
        if not found:
            return self._why(name, phase)
        middle = f"{statistics.median(found):,.{digits}f}"
        if len(found) == 1:
            return middle
        return f"{middle} [{min(found):,.{digits}f}-{max(found):,.{digits}f}]"

    def added(self, name: str, phase: str, key: str, scale: float = 1.0, digits: int = 0) -> str:
        """What it adds to the direct connection, round by round."""
        mine, floor = self.values(name, phase, key), self.values("direct", phase, key)
        if not mine or not floor:
            return self._why(name, phase)
        base = statistics.median(floor)
        found = [(value - base) / scale for value in mine]
        middle = f"{statistics.median(found):,.{digits}f}"
        return middle if len(found) == 1 else f"{middle} [{min(found):,.{digits}f}-{max(found):,.{digits}f}]"

    def ratio(self, name: str, other: str, phase: str, key: str, digits: int = 2) -> str:
        mine, theirs = self.median(name, phase, key), self.median(other, phase, key)
        return f"{mine / theirs:,.{digits}f}x" if mine is not None and theirs else "-"

    def foreign(self) -> float:
        """CPU that others took while we measured, in cores; the median over all phases."""
        found = [
            phase["foreign_cores"]
            for rounds in self._result["samples"].values()
            for r in rounds
            for phase in r.values()
            if "foreign_cores" in phase
        ]
        return statistics.median(found) if found else 0.0

    def _why(self, name: str, phase: str) -> str:
        if name in self._result["missing"]:
            return "missing"
        failed = any("error" in r.get(phase, {}) for r in self._result["samples"].get(name, []))
        return "failed" if failed else "-"


Column = tuple[str, Callable[[View, str], str]]


def _loop(phase: str, title: str) -> list[Column]:
    return [
        (f"{title} req/s", lambda v, n: v.spread(n, phase, "rps")),
        ("x nginx", lambda v, n: v.ratio(n, "nginx", phase, "rps")),
        ("x direct", lambda v, n: v.ratio(n, "direct", phase, "rps")),
        ("p50 ms", lambda v, n: v.spread(n, phase, "p50_us", 1000, 2)),
        ("p99 ms", lambda v, n: v.spread(n, phase, "p99_us", 1000, 2)),
        ("CPU us/req", lambda v, n: v.spread(n, phase, "cpu_us", 1, 1)),
        ("x nginx ", lambda v, n: v.ratio(n, "nginx", phase, "cpu_us", 1)),
    ]


TABLES: list[tuple[str, list[Column]]] = [
    (
        "One request at a time, 8 KB prompt",
        [
            ("p50 us", lambda v, n: v.spread(n, "seq", "p50_us")),
            ("added p50 us", lambda v, n: v.added(n, "seq", "p50_us")),
            ("p99 us", lambda v, n: v.spread(n, "seq", "p99_us")),
            ("added p99 us", lambda v, n: v.added(n, "seq", "p99_us")),
            ("p50 x nginx", lambda v, n: v.ratio(n, "nginx", "seq", "p50_us")),
            ("p50 x direct", lambda v, n: v.ratio(n, "direct", "seq", "p50_us")),
            ("CPU us/req", lambda v, n: v.spread(n, "seq", "cpu_us")),
        ],
    ),
    ("32 in flight, 8 KB prompts", _loop("c32", "c32")),
    ("64 in flight, 8 KB prompts", _loop("c64", "c64")),
    ("64 in flight, upstream takes 100 ms", _loop("delayed", "c64 + 100 ms")),
    (
        "One stream at a time, 100 chunks, one each 2 ms",
        [
            ("first chunk us", lambda v, n: v.spread(n, "stream1", "first_p50_us")),
            ("first chunk added us", lambda v, n: v.added(n, "stream1", "first_p50_us")),
            ("lag p50 us", lambda v, n: v.spread(n, "stream1", "lag_p50_us")),
            ("lag p99 us", lambda v, n: v.spread(n, "stream1", "lag_p99_us")),
            ("gap error p99 us", lambda v, n: v.spread(n, "stream1", "gap_error_p99_us")),
            ("CPU us/chunk", lambda v, n: v.spread(n, "stream1", "cpu_us", 1, 1)),
        ],
    ),
    (
        "16 streams as fast as they go",
        [
            ("chunks/s", lambda v, n: v.spread(n, "streams16", "chunks_per_s")),
            ("x nginx", lambda v, n: v.ratio(n, "nginx", "streams16", "chunks_per_s")),
            ("x direct", lambda v, n: v.ratio(n, "direct", "streams16", "chunks_per_s")),
            ("CPU us/chunk", lambda v, n: v.spread(n, "streams16", "cpu_us", 1, 1)),
            ("x nginx ", lambda v, n: v.ratio(n, "nginx", "streams16", "cpu_us", 1)),
        ],
    ),
    (
        "200 streams at once, 50 chunks/s each (10,000 chunks/s offered)",
        [
            ("chunks/s", lambda v, n: v.spread(n, "streams200", "chunks_per_s")),
            ("first chunk p50 ms", lambda v, n: v.spread(n, "streams200", "first_p50_us", 1000, 1)),
            ("lag p50 ms", lambda v, n: v.spread(n, "streams200", "lag_p50_us", 1000, 2)),
            ("lag p99 ms", lambda v, n: v.spread(n, "streams200", "lag_p99_us", 1000, 2)),
            ("CPU us/chunk", lambda v, n: v.spread(n, "streams200", "cpu_us", 1, 1)),
            ("x nginx", lambda v, n: v.ratio(n, "nginx", "streams200", "cpu_us", 1)),
        ],
    ),
    (
        "Start and memory, all processes",
        [
            ("ready s", lambda v, n: v.spread(n, "idle", "ready_s", 1, 1)),
            ("idle RSS MiB", lambda v, n: v.spread(n, "idle", "rss_mib")),
            ("idle PSS MiB", lambda v, n: v.spread(n, "idle", "pss_mib")),
            ("after RSS MiB", lambda v, n: v.spread(n, "after", "rss_mib")),
            ("after PSS MiB", lambda v, n: v.spread(n, "after", "pss_mib")),
        ],
    ),
]


def render(result: Result) -> str:
    """The whole report."""
    view = View(result)
    machine = result["machine"]
    hardware = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}"
    rounds = f"{result['rounds']} {'round' if result['rounds'] == 1 else 'rounds, medians [min-max]'}"
    foreign = f"Foreign CPU while measuring: {view.foreign():.2f} cores (median)."
    lines = [
        f"Machine: {hardware}, Python {machine['python']}. {result['placement']}",
        "",
        f"Command: `{result['command']}`; {rounds}. {foreign}",
    ]
    for title, columns in TABLES:
        lines += ["", f"### {title}", "", "| | " + " | ".join(name.strip() for name, _ in columns) + " |"]
        lines.append("|---|" + "---:|" * len(columns))
        for name, row in view.rows.items():
            label = row["label"] + (f" {row['version']}" if row["version"] not in (None, "-") else "")
            lines.append(f"| {label} | " + " | ".join(cell(view, name) for _, cell in columns) + " |")
    lines += ["", *_notes(result)]
    return "\n".join(lines) + "\n"


def _notes(result: Result) -> list[str]:
    """Why something is missing or failed, and where a backlog was still being worked off."""
    notes = [
        f"- missing: {result['contenders'][name]['label']}: {reason}" for name, reason in result["missing"].items()
    ]
    for name, rounds in result["samples"].items():
        label = result["contenders"][name]["label"]
        for phase in sorted({phase for r in rounds for phase in r if "error" in r[phase]}):
            reasons = [r[phase]["error"] for r in rounds if "error" in r.get(phase, {})]
            notes.append(f"- failed: {label}, {phase}, {len(reasons)} of {len(rounds)} rounds: {reasons[0][:300]}")
        unsettled = sorted({phase for r in rounds for phase in r if r[phase].get("settled") is False})
        if unsettled:
            notes.append(f"- {label} still worked on what it had taken in when these ended: {', '.join(unsettled)}")
        shares = [
            r["c64"]["cpu_us_by_process"] for r in rounds if len(r.get("c64", {}).get("cpu_us_by_process", {})) > 1
        ]
        if name.startswith("gaugeway") and shares:
            medians = {process: statistics.median(s.get(process, 0.0) for s in shares) for process in shares[0]}
            parts = ", ".join(f"{process} {value:,.0f}" for process, value in medians.items() if value >= 1)
            notes.append(f"- {label}, c64, CPU us/req by process: {parts}")
    return notes

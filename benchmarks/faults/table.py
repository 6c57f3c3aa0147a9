"""The rows as a table in Markdown, with the machine and the versions they come from.

    python benchmarks/faults/table.py

copies the tables of all engines into docs/explanation/faults.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[2] / "docs" / "explanation" / "faults.md"
MARK = "## Results"
TITLES = {
    "postgres": "PostgreSQL (queue and store)",
    "sqlite": "SQLite (queue and store)",
    "redis": "Redis with its append-only file (queue), PostgreSQL (store)",
}
BUSY = (
    "*Busy* is the CPU used by other programs in the two seconds before a row; rows without a figure were not checked, "
    "and their times are upper bounds. In brackets after a fault: its length in seconds, or the number of kills."
)
HEADS = (
    "fault",
    "sent",
    "failed",
    "cut by a kill",
    "slowest answer s",
    "lost (most at one kill, oldest)",
    "counted losses",
    "exchanges / evaluations doubled",
    "without a score",
    "judged again",
    "alerts notified / expected, duplicate, false",
    "notified after s",
    "recovered after s",
    "busy %",
    "",
)


def save(engine: str, row: Mapping[str, Any], order: Sequence[str], command: str) -> None:
    """Put a row among those that were saved before, also by other runs at the same time, and make the table of them."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"faults-{engine}.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        rows = json.loads(file.read() or "{}") | {row["fault"]: row}
        rows = {name: rows[name] for name in order if name in rows}
        file.truncate(0)
        file.write(json.dumps(rows, indent=1) + "\n")
        (RESULTS / f"faults-{engine}.md").write_text(page(engine, rows, command))


def page(engine: str, rows: Mapping[str, Any], command: str) -> str:
    days = sorted({row["at"].partition(" ")[0] for row in rows.values()})
    played = " to ".join(dict.fromkeys((days[0], days[-1])))
    lines = [f"# Faults under load: {TITLES[engine]}", "", f"`{command}`, {played}. {machine()} {BUSY}", ""]
    lines += [f"| {' | '.join(HEADS)} |", "|---|" + "---:|" * (len(HEADS) - 2) + "---|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows.values()]
    wrong = [name for name, row in rows.items() if not row["fine"]]
    said = f"Target missed: {', '.join(wrong)}." if wrong else "Every row meets its target."
    return "\n".join([*lines, "", f"{len(rows)} rows. {said}", ""])


def cells(row: Mapping[str, Any]) -> Sequence[str]:
    """One row of the table."""
    name = f"{row['fault']} ({row['amount']})"
    if row["died"]:
        return [name, *[""] * (len(HEADS) - 2), f"not finished: {row['died']}"]
    lost = (
        f"{row['lost']} ({row['lost_at_once']}, {row['lost_age_ms']} ms)" if row["lost_at_once"] else str(row["lost"])
    )
    alerts = f"{row['alerts_told']} / {row['alerts_expected']}, {row['alerts_doubled']}, {row['alerts_wrong']}"
    notes = [*row["notes"]]
    notes += [f"{row['passed_by']} connections refused, retried on the other gateway"] if row["passed_by"] else []
    notes += [f"{row['late']} late scores"] if row["late"] else []
    notes += [f"alerts about the judge: {row['blind']}"] if row["blind"] else []
    notes += [f"{row['left']} still waiting"] if row["left"] else []
    return [
        name,
        str(row["sent"]),
        _listed(row["failed"]),
        str(row["cut"]),
        f"{row['slowest_s']:.1f}",
        lost,
        _listed(row["counted"]),
        f"{row['twice']} / {row['doubled']}",
        _listed(row["unscored"]),
        str(row["judged_again"]),
        alerts,
        "" if row["alert_s"] is None else f"{row['alert_s']:.0f}",
        "never" if row["recovered_s"] is None else f"{row['recovered_s']:.1f}",
        f"{row['busy']:.0%}".rstrip("%") if "busy" in row else "",
        "; ".join(notes),
    ]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items()) or "0"


def machine() -> str:
    """The machine and the versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    engines = [_said("redis-server", "--version"), _said("/usr/lib/postgresql/15/bin/postgres", "--version")]
    parts = [
        f"{os.cpu_count()} x {platform.machine()}, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}",
        f"Python {sys.version.split()[0]}",
        f"gaugeway {version('gaugeway')}",
        *filter(None, engines),
    ]
    return "; ".join(parts) + "."


def busy(seconds: float = 2.0) -> float:
    """The share of all processors' time in use, from 0 to 1, over the next so many seconds."""
    before = _ticks()
    time.sleep(seconds)
    used, every = (later - earlier for later, earlier in zip(_ticks(), before, strict=True))
    return used / every if every else 0.0


def _ticks() -> tuple[int, int]:
    """Ticks in use, and all; of Linux's `cpu` line idle and iowait (the fourth and fifth) are not in use."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _said(*words: str) -> str:
    try:
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return ""
    number = next((word.removeprefix("v=") for word in said if word.removeprefix("v=")[0].isdigit()), "")
    return f"{Path(words[0]).name} {number}"


def document() -> None:
    """Put the results into the documentation."""
    pages = [RESULTS / f"faults-{engine}.md" for engine in TITLES]
    found = [page.read_text().replace("# Faults under load: ", "### ", 1) for page in pages if page.exists()]
    text = DOCS.read_text().partition(MARK)[0]
    DOCS.write_text("\n".join([f"{text}{MARK}\n", *found]).rstrip() + "\n")


if __name__ == "__main__":
    document()

"""Everything that is fuzzed, one part after the other, with one table at the end.

    python benchmarks/fuzzing/installs.py
    nice -n 19 python benchmarks/fuzzing/run.py [--minutes 10] [--only streams,queue:redis,api]

Parts: the readers (atheris: see engine.py), `queue:<engine>` and `store:<engine>` (the state machines of
tests/contracts, as long as the time lasts), `api` (see api.py). A part that finds something, or cannot run, shows its
output and makes the end code 1. What each part last did is kept in results/fuzzing.json, and laid out in
results/fuzzing.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fuzzing import installs  # noqa: E402 - the path comes first

RESULTS = HERE / "results" / "fuzzing.json"
READERS = ("streams", "extractors", "configuration", "answers", "spans")
MACHINES = (
    "queue:memory",
    "queue:sqlite",
    "queue:postgresql",
    "queue:redis",
    "store:sqlite",
    "store:postgresql",
    "store:clickhouse",
)
PARTS = (*READERS, *MACHINES, "api")
SLACK_S = 1200
"""To start on a busy machine, and to find the shortest sequence that shows a finding."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="for each part")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := sorted(set(wanted) - set(PARTS)):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(PARTS)}")
    failed = False
    for part in wanted:
        row = run(part, options.minutes)
        if row is None:
            failed = True
            print(f"{part}: did not run", flush=True)
            continue
        failed |= bool(row["findings"])
        keep(part, row)
        print(f"{part}: {row['inputs']} in {row['minutes']} min, findings: {row['findings']}", flush=True)
    return int(failed)


def run(part: str, minutes: float) -> dict | None:
    """Run one part and read what it says of itself; None when it did not run, for want of its engine for instance."""
    command, extra = _command(part, minutes)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **extra},  # noqa: TID251 - passed on
        capture_output=True,
        text=True,
        errors="replace",
        timeout=minutes * 60 + SLACK_S,
        check=False,
    )
    output = done.stdout + done.stderr
    inputs = _inputs(output)
    if done.returncode or inputs is None:
        print(output[-6000:], flush=True)
    if inputs is None:
        return None
    return {
        "inputs": inputs,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "findings": int(done.returncode != 0),
        "when": time.strftime("%Y-%m-%d"),
    }


def _command(part: str, minutes: float) -> tuple[list[str], dict[str, str]]:
    if part in READERS:
        return [str(HERE / "engine.py"), part, f"--minutes={minutes:g}"], {}
    if part == "api":
        return [str(HERE / "api.py"), f"--minutes={minutes:g}"], {}
    port, _, engine = part.partition(":")
    test = f"tests/contracts/test_{port}_machine.py"
    words = ["-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--timeout=0", test, "-k", engine]
    return words, {"GAUGEWAY_MACHINE_MINUTES": f"{minutes:g}"}


def _inputs(output: str) -> str | None:
    """How much was tried, as the part's own tool counts it; None when nothing was."""
    if match := re.search(r"number_of_executed_units: (\d+)", output):
        return f"{int(match[1]):,} inputs"
    match = re.search(r"^tried: (.+)$", output, re.MULTILINE)
    return match[1] if match else None


def keep(part: str, row: dict) -> None:
    """Put the row in its place, and lay all of them out anew."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows[part] = row
    RESULTS.write_text(json.dumps({name: rows[name] for name in PARTS if name in rows}, indent=1) + "\n")
    lines = [
        "# What fuzzing found",
        "",
        f"`python benchmarks/fuzzing/run.py`: Python {platform.python_version()}, {platform.machine()}, hypothesis",
        f"{version('hypothesis')}, schemathesis {version('schemathesis')}, {installs.PACKAGE.replace('==', ' ')},",
        "2 cores that had other work.",
        "Each row is the last run of its part, which a finding ends; a part without a row has not run. The minutes",
        "include the start, which takes long on a busy machine.",
        "",
        "| part | tried | minutes | findings | date |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {one['inputs']} | {one['minutes']:g} | {one['findings']} | {one['when']} |"
        for name in PARTS
        if (one := rows.get(name)) is not None
    ]
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())

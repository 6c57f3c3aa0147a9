"""The same scripted verdicts for ragas, deepeval and Gaugeway: equal to 1e-9, or different on purpose and for a reason.

python benchmarks/parity/run.py [--out DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import installs
import ours
import stub
from cases import EPSILON, build

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-9
NEARLY = 1e-8  # what an epsilon in a denominator can do
TIMEOUT_S = 900
QUIET = {
    "RAGAS_DO_NOT_TRACK": "true",
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "PATH": "/usr/bin:/bin",
    "DEEPEVAL_RETRY_MAX_ATTEMPTS": "1",
    "DEEPEVAL_PER_ATTEMPT_TIMEOUT_SECONDS_OVERRIDE": "600",
    "DEEPEVAL_PER_TASK_TIMEOUT_SECONDS_OVERRIDE": "600",
}


def in_peer(name: str, task: dict[str, Any]) -> Any:
    """Run a peer's script in its environment, in a directory it may litter; the last line is its answer."""
    home = installs.PEERS / name
    done = subprocess.run(
        [str(installs.python(name)), str(HERE / f"peer_{name}.py")],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=home,
        env=QUIET | {"HOME": str(home)},
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def on_our_scale(case: dict[str, Any], value: float | str) -> float | str:
    """In 4.3 deepeval turned hallucination round in 4.3."""
    return 1.0 - value if case["metric"] == "hallucination" and isinstance(value, float) else value


def verdict(case: dict[str, Any], found: float | str, peer: float | str) -> str:
    """`equal`, `intended`, or what is wrong."""
    both = isinstance(found, float) and isinstance(peer, float)
    equal = both and abs(found - peer) <= TOLERANCE
    if case["intended"] is None:
        return "equal" if equal else "DIFFERENT"
    if equal:
        return "NO LONGER DIFFERENT"
    if case["intended"] == EPSILON and not (both and abs(found - peer) <= NEARLY):
        return "DIFFERENT"
    return "intended"


def shown(value: float | str) -> str:
    return f"{value:.10f}".rstrip("0").rstrip(".") if isinstance(value, float) else value[:46]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: all cases, then the reasons."""
    lines = ["| case | ours | peer | |", "|---|---|---|---|"]
    for row in rows:
        note = row["verdict"] + (f": {row['intended']}" if row["intended"] else "")
        lines.append(f"| {row['case']} | {shown(row['ours'])} | {shown(row['peer'])} | {note} |")
    total = {word: sum(row["verdict"] == word for row in rows) for word in sorted({row["verdict"] for row in rows})}
    versions = f"ragas {installs.version('ragas', 'ragas')}, deepeval {installs.version('deepeval', 'deepeval')}"
    summary = ", ".join(f"{count} {word}" for word, count in total.items())
    return "\n".join([f"{len(rows)} cases against {versions}: {summary}", "", *lines])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    out = parser.parse_args().out
    cases = build()
    with stub.serving(cases) as url:
        modes = {mode: asyncio.run(ours.compare(cases, url, mode)) for mode in ("fused", "separate")}
        peers: dict[str, float | str] = {}
        for name in ("ragas", "deepeval"):
            chosen = {case: one for case, one in cases.items() if one["peer"] == name}
            peers |= in_peer(name, {"url": url, "cases": chosen})
    rows = []
    for name, case in cases.items():
        found, apart = modes["fused"][name], modes["separate"][name]
        peer = on_our_scale(case, peers[name])
        row = {"case": name, "ours": found, "peer": peer, "intended": case["intended"] or case["what"]}
        rows.append(row | {"verdict": verdict(case, found, peer) if found == apart else f"MODES DIFFER: {apart}"})
    text = table(rows)
    print(text)
    out.mkdir(parents=True, exist_ok=True)
    (out / "parity.md").write_text(text + "\n")
    (out / "parity.json").write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["verdict"] not in ("equal", "intended") for row in rows))


if __name__ == "__main__":
    sys.exit(main())

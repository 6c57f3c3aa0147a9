"""The fidelity matrix: what each contender changes on the way, as raw bytes at both ends.

    python benchmarks/gateway/fidelity.py [--only nginx,gaugeway-on,...]

Writes results/fidelity.md and results/fidelity.json (every cell with its reason).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import installs
import machine
import peers
from rows import ROWS, Outcome, Probe
from wire import Recorder

ROW_S = 45.0
NOT_BY_ITSELF = {"gaugeway-serve", "gaugeway-trial"}  # the same data plane as gaugeway-on


async def examine(contender: peers.Contender, client: str | None) -> dict[str, Any]:
    """Every row of one contender."""
    async with Recorder() as upstream:
        running = peers.Running(contender, upstream.port, upstream_client=client)
        try:
            await asyncio.to_thread(running.__enter__)
        except peers.Missing as error:
            return {"missing": str(error)}
        try:
            probe = Probe(contender, running.port, upstream)
            found = {}
            for name, row in ROWS.items():
                try:
                    async with asyncio.timeout(ROW_S):
                        outcome = await row(probe)
                except (OSError, ValueError, LookupError, EOFError, asyncio.LimitOverrunError) as error:
                    outcome = Outcome("fail", f"{type(error).__name__}: {error}")
                found[name] = {"result": outcome.result, "reason": outcome.reason}
            upstream.reset()
            return {"rows": found}
        finally:
            await asyncio.to_thread(running.__exit__)


def render(result: dict[str, Any]) -> str:
    """The matrix, then why each cell that is not a pass is none."""
    columns = list(result["contenders"].values())
    names = [c["label"] + (f" {c['version']}" if c["version"] not in {None, "-"} else "") for c in columns]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(columns)]
    for row in ROWS:
        cells = [c["rows"][row]["result"] if "rows" in c else "missing" for c in columns]
        lines.append(f"| {row} | " + " | ".join("**fail**" if cell == "fail" else cell for cell in cells) + " |")
    passed = [sum(r["result"] == "pass" for r in c["rows"].values()) if "rows" in c else "-" for c in columns]
    lines.append(f"| passes of {len(ROWS)} | " + " | ".join(map(str, passed)) + " |")
    lines += ["", f"Command: `{result['command']}`", ""]
    lines += [f"- missing: {c['label']}: {c['missing']}" for c in columns if "missing" in c]
    return "\n".join(lines) + "\n"


async def run(chosen: list[peers.Contender], client: str | None) -> dict[str, Any]:
    contenders: dict[str, Any] = {}
    for contender in chosen:
        found = await examine(contender, client)
        contenders[contender.name] = {"label": contender.label, "version": contender.version()} | found
        print(f"{contender.label}:", found.get("missing", ""), flush=True)
        for row, cell in found.get("rows", {}).items():
            if cell["result"] != "pass":
                print(f"  {cell['result']:<12} {row}: {cell['reason']}", flush=True)
    return {"command": shlex.join(["python", *sys.argv]), "contenders": contenders}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"comma-separated; of {', '.join(peers.CONTENDERS)}")
    parser.add_argument("--upstream-client", help="[gateway] upstream_client for Gaugeway (default: its own default)")
    parser.add_argument("--out", type=Path, default=installs.HERE / "results" / "fidelity", help="without its suffix")
    arguments = parser.parse_args()
    machine.clean_up_on_sigterm()
    chosen = [c for c in peers.select(arguments.only) if arguments.only or c.name not in NOT_BY_ITSELF]
    result = asyncio.run(run(chosen, arguments.upstream_client))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    report = render(result)
    arguments.out.with_suffix(".md").write_text(report)
    print(f"\n{report}{arguments.out.with_suffix('.md')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

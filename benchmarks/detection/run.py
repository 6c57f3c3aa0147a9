"""The whole detection benchmark; its tables go into docs/explanation/detection.md.

.venv/bin/python benchmarks/detection/installs.py       # river, for ADWIN; without it that line is left out
.venv/bin/python benchmarks/detection/run.py --quick    # prints small ones, a minute of processor time
.venv/bin/python benchmarks/detection/run.py            # writes, ten minutes of processor time
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

import baselines
import conditions
import null_and_drops
import numpy as np
import wallclock

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/detection.md"


def put(page: str, name: str, text: str) -> str:
    """The page with `text` between the two marks of that name. Raises ValueError when it has no such marks."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"no marks for {name!r}")
    return before + begin + text + end + after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small runs, printed, nothing written")
    full = not parser.parse_args().quick
    found = null_and_drops.measure(full=full)
    texts = {"detectors": null_and_drops.table(found)}
    problems = null_and_drops.misses(found)
    for name, script in {"conditions": conditions, "baselines": baselines}.items():
        texts[name], more = script.tables(full=full)
        problems += more
    texts["wall clock"] = wallclock.table(full=full)
    versions = f"Python {platform.python_version()}, numpy {np.__version__}, seed {null_and_drops.SEED}"
    if full:
        page = PAGE.read_text("utf-8")
        for name, text in texts.items():
            page = put(page, name, text)
        PAGE.write_text(page, "utf-8")
    print("\n\n".join([versions, *texts.values(), *(f"NOT MET: {problem}" for problem in problems)]))
    return int(bool(problems) and full)


if __name__ == "__main__":
    sys.exit(main())

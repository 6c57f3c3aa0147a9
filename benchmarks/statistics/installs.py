"""Puts glide-py, whose intervals `few_labels.py` compares, into its own environment under `.peers/` (150 MB).

It needs Python 3.12 or newer, which has to be on the PATH.

    python benchmarks/statistics/installs.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

PEERS = Path(__file__).resolve().parent / ".peers"
PACKAGES = {"glide": ("glide-py==0.11.0",)}
PYTHONS = ("python3.14", "python3.13", "python3.12")


def install(name: str) -> str:
    """Install one environment, unless it is there; say what happened."""
    home = PEERS / name
    if installing.is_there(home):
        return "there already"
    newer = next(filter(_runs, PYTHONS), None)
    if newer is None:
        return f"MISSING: none of {', '.join(PYTHONS)} is on the PATH"
    (_, *arguments), *others = installing.steps(home, PACKAGES[name])
    reason = installing.run(home, [[newer, *arguments], *others])
    if reason is not None:
        return f"MISSING: {reason}"
    (home / installing.DONE).touch()
    return "installed"


def _runs(python: str) -> bool:
    """Whether a command is a Python that starts: a version manager's placeholder may not."""
    found = shutil.which(python)
    return found is not None and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    return installing.each(names or list(PACKAGES), install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

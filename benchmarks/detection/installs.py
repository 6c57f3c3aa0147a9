"""Puts river, whose ADWIN is compared, into its own environment under `.peers/` (160 MB with scipy).

python benchmarks/detection/installs.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

PEERS = Path(__file__).resolve().parent / ".peers"
PACKAGES = {"river": ("river==0.26.1",)}


def find() -> bool:
    """Make river importable, after everything that is installed here; False when it is not there."""
    if not installing.is_there(PEERS / "river"):
        return False
    (packages,) = (PEERS / "river").glob("lib/python*/site-packages")
    sys.path.append(str(packages))
    return True


def install(name: str) -> str:
    """Install one environment, unless it is there; say what happened."""
    return installing.install(PEERS / name, PACKAGES[name])


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    return installing.each(names or list(PACKAGES), install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Puts each library that is compared into its own environment under `.peers/`.

python benchmarks/parity/installs.py [NAME ...]     # ragas, deepeval, ranking; about 1.5 GB
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

PEERS = Path(__file__).resolve().parent / ".peers"
PACKAGES = {
    "ragas": ("ragas==0.4.3", "langchain-community<0.4"),
    "deepeval": ("deepeval==4.3.1",),
    "ranking": ("scikit-learn>=1.7", "ranx>=0.3.21"),
}


def python(name: str) -> Path:
    """The interpreter of one environment. Raises SystemExit when it is not there."""
    return installing.require(PEERS / name, "bin/python")


def version(name: str, package: str) -> str:
    """The version of a package in an environment."""
    return installing.version(PEERS / name, package) or "missing"


def install(name: str) -> str:
    """Install one environment, unless it is there; say what happened."""
    return installing.install(PEERS / name, PACKAGES[name])


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    return installing.each(names or list(PACKAGES), install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

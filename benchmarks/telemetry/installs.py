"""Puts each consumer of telemetry into its own environment under `.peers/`.

python benchmarks/telemetry/installs.py [NAME ...]     # phoenix, mlflow; about 1.5 GB
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

PEERS = Path(__file__).resolve().parent / ".peers"
PACKAGES = {
    "phoenix": ("arize-phoenix==20.26.1",),
    "mlflow": ("mlflow==3.18.0",),
}


def binary(name: str, script: str) -> Path:
    """A command of one environment. Raises SystemExit when it is not there."""
    return installing.require(PEERS / name, f"bin/{script}")


def version(name: str) -> str:
    """The version of a consumer."""
    return PACKAGES[name][0].partition("==")[2]


def install(name: str) -> str:
    """Install one environment, unless it is there; say what happened."""
    return installing.install(PEERS / name, PACKAGES[name])


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    return installing.each(names or list(PACKAGES), install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

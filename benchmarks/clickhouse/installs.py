"""Puts ClickHouse's engine, as the library chdb, into its own environment under `.peers/` (about 900 MB).

python benchmarks/clickhouse/installs.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

PEERS = Path(__file__).resolve().parent / ".peers"
PACKAGES = {"chdb": ("chdb==4.4.0", "lz4>=4.4.5")}


def version() -> str:
    """The version of the engine."""
    return installing.version(PEERS / "chdb", "chdb-core") or "missing"


def install(name: str) -> str:
    """Install one environment, unless it is there; say what happened."""
    return installing.install(PEERS / name, PACKAGES[name])


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    return installing.each(names or list(PACKAGES), install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Puts atheris, the coverage-guided fuzzer, into its own environment under `.peers/` (70 MB).

python benchmarks/fuzzing/installs.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).resolve().parent / ".peers"
HOME = PEERS / "atheris"
DONE = HOME / "installed"  # written last: an install that was interrupted does not count
PACKAGE = "atheris==3.0.0"


def find() -> bool:
    """Make atheris importable, after everything that is installed here; False when it is not there."""
    if not DONE.is_file():
        return False
    (packages,) = HOME.glob("lib/python*/site-packages")
    sys.path.append(str(packages))
    return True


def main() -> int:
    """Install it, unless it is there."""
    if not DONE.is_file():
        pip = [str(HOME / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        for step in ([sys.executable, "-m", "venv", "--clear", str(HOME)], pip):
            subprocess.run(["nice", "-n", "10", *step], check=True, timeout=900)
        DONE.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())

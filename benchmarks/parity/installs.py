"""Puts each library that is compared into its own environment under `.peers/`.

python benchmarks/parity/installs.py [NAME ...]     # ragas, deepeval, ranking; about 1.5 GB
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

PEERS = Path(__file__).resolve().parent / ".peers"
DONE = "installed"  # written last: an install that was interrupted does not count
TIMEOUT_S = 1500
PACKAGES = {
    "ragas": ("ragas==0.4.3", "langchain-community<0.4"),
    "deepeval": ("deepeval==4.3.1",),
    "ranking": ("scikit-learn>=1.7", "ranx>=0.3.21"),
}


def python(name: str) -> Path:
    """The interpreter of one environment. Raises SystemExit when it is not there."""
    if not (PEERS / name / DONE).is_file():
        raise SystemExit(f"{name} is not installed: python benchmarks/parity/installs.py {name}")
    return PEERS / name / "bin/python"


def version(name: str, package: str) -> str:
    """The version of a package in an environment."""
    (found,) = (PEERS / name).glob(f"lib/python*/site-packages/{package.replace('-', '_')}-*.dist-info")
    return found.name.removesuffix(".dist-info").rpartition("-")[2]


def install(name: str) -> str:
    """Install one environment at low priority, unless it is there; say what happened."""
    home = PEERS / name
    if (home / DONE).is_file():
        return "there already"
    home.mkdir(parents=True, exist_ok=True)
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for step in ([sys.executable, "-m", "venv", "--clear", str(home)], [*pip, *PACKAGES[name]]):
        done = subprocess.run(
            ["nice", "-n", "10", *step], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            return f"MISSING: {' / '.join((done.stderr or done.stdout).strip().splitlines()[-3:])[:600]}"
    (home / DONE).touch()
    return "installed"


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    outcomes = []
    for name in names or list(PACKAGES):
        begun = time.monotonic()
        outcomes.append(install(name))
        print(f"{name:<10} {outcomes[-1]}  ({time.monotonic() - begun:.0f} s)", flush=True)
    return int(any(one.startswith("MISSING") for one in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

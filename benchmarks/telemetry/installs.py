"""Puts each consumer of telemetry into its own environment under `.peers/`.

python benchmarks/telemetry/installs.py [NAME ...]     # phoenix, mlflow; about 1.5 GB
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
    "phoenix": ("arize-phoenix==20.26.1",),
    "mlflow": ("mlflow==3.17.2",),
}


def binary(name: str, script: str) -> Path:
    """A command of one environment. Raises SystemExit when it is not there."""
    if not (PEERS / name / DONE).is_file():
        raise SystemExit(f"{name} is not installed: python benchmarks/telemetry/installs.py {name}")
    return PEERS / name / "bin" / script


def version(name: str) -> str:
    """The version of a consumer."""
    return PACKAGES[name][0].partition("==")[2]


def install(name: str) -> str:
    """Install one environment at low priority, unless it is there; say what happened."""
    home = PEERS / name
    if (home / DONE).is_file():
        return "there already"
    home.mkdir(parents=True, exist_ok=True)
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for step in ([sys.executable, "-m", "venv", "--clear", str(home)], [*pip, *PACKAGES[name]]):
        done = subprocess.run(
            ["nice", "-n", "19", *step], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
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

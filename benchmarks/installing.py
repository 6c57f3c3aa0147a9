"""Environments of what is compared or tested against, one each: none has to fit the others' requirements, or ours."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

DONE = "installed"  # written last: an install that was interrupted does not count
TIMEOUT_S = 1500


def is_there(home: Path) -> bool:
    """Whether an environment was installed to its end."""
    return (home / DONE).is_file()


def require(home: Path, path: str) -> Path:
    """A file of an environment. Raises SystemExit when the environment is not there."""
    if not is_there(home):
        raise SystemExit(f"{home.name} is not installed: python {_script(home)} {home.name}")
    return home / path


def version(home: Path, package: str) -> str | None:
    """The version of a package in an environment, or None."""
    named = package.replace("-", "_")
    found = sorted(home.glob(f"lib/python*/site-packages/{named}-*.dist-info"))
    return found[0].name.removeprefix(f"{named}-").removesuffix(".dist-info") if found else None


def steps(home: Path, packages: Iterable[str]) -> list[list[str]]:
    """The commands that make a Python environment with these packages."""
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", "--clear", str(home)], [*pip, *packages]]


def run(home: Path, commands: Iterable[Sequence[str]]) -> str | None:
    """Run commands in `home` at low priority, one after the other; return why one failed, or None."""
    home.mkdir(parents=True, exist_ok=True)
    for command in commands:
        shown = " ".join(command)[:120]
        try:
            done = subprocess.run(
                ["nice", "-n", "19", *command], cwd=home, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{shown}: not done after {TIMEOUT_S} s"
        if done.returncode:
            tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
            return f"{shown}: exit {done.returncode}: {' / '.join(tail)[:600]}"
    return None


def install(home: Path, packages: Iterable[str]) -> str:
    """Make one environment, unless it is there; say what happened."""
    if is_there(home):
        return "there already"
    reason = run(home, steps(home, packages))
    if reason is not None:
        return f"MISSING: {reason}"
    (home / DONE).touch()
    return "installed"


def each(names: Sequence[str], attempt: Callable[[str], str]) -> int:
    """Install these, one at a time; say what became of each, and return 1 if one is missing."""
    outcomes = []
    for name in names:
        begun = time.monotonic()
        outcomes.append(attempt(name))
        print(f"{name:<12} {outcomes[-1]}  ({time.monotonic() - begun:.0f} s)", flush=True)
    return int(any(one.startswith("MISSING") for one in outcomes))


def _script(home: Path) -> str:
    """The script that installs an environment, whose home is `benchmarks/KIND/.peers/NAME`."""
    return "/".join((*home.parts[-4:-2], "installs.py"))

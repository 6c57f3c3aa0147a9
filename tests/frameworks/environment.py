"""Environments of the frameworks under test, one each: none has to fit the others' requirements, or ours.

`python tests/frameworks/environment.py` makes what is missing under `.venv-frameworks/`; names as arguments limit it.
"""

from __future__ import annotations

import subprocess
import sys
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1] / ".venv-frameworks"
REQUIREMENTS = HERE / "requirements"
FRAMEWORKS = tuple(sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))
DONE = "installed.txt"  # a copy of the requirements, written last: neither half an install nor an old one counts
_SETUP = f"run `{Path(sys.executable).name} tests/frameworks/environment.py`"


def interpreter(framework: str) -> Path:
    """The Python of a framework's environment."""
    return HOME / framework / "bin/python"


def missing(framework: str) -> str | None:
    """Why a framework cannot be run here, or None."""
    done = HOME / framework / DONE
    if not done.is_file():
        return f"{framework} is not installed: {_SETUP}"
    if done.read_text("utf-8") != _requirements(framework):
        return f"{framework} is installed in another version than its requirements say: {_SETUP}"
    return None


def require(framework: str, *, strict: bool) -> Path:
    """The Python to run a framework with; without it the test is skipped, or fails where `strict` promises it."""
    reason = missing(framework)
    if reason is not None:
        (pytest.fail if strict else pytest.skip)(reason)
    return interpreter(framework)


def install(framework: str) -> None:
    """Make one environment anew."""
    home = HOME / framework
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n", "utf-8")
    # A copied interpreter can still be open for writing in a child of the other thread: then it cannot be started.
    venv.create(home, clear=True, with_pip=True, symlinks=True)
    pip = [str(interpreter(framework)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS / f"{framework}.txt")], check=True)
    (home / DONE).write_text(_requirements(framework), "utf-8")


def _requirements(framework: str) -> str:
    return (REQUIREMENTS / f"{framework}.txt").read_text("utf-8")


def _megabytes(directory: Path) -> float:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if not path.is_symlink()) / 1e6


def main(names: list[str]) -> int:
    """Install what is missing, two at a time; say how long each took and how large it is."""
    with ThreadPoolExecutor(2) as pool:
        for told in pool.map(_told, names or FRAMEWORKS):
            print(told, flush=True)  # noqa: T201
    return 0


def _told(framework: str) -> str:
    begun = time.monotonic()
    if missing(framework) is not None:
        install(framework)
    return f"{framework:<14} {time.monotonic() - begun:5.0f} s {_megabytes(HOME / framework):6.0f} MB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""New interpreters that run modules of this project."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from monitors.runtime.settings import child_environment

_ROOT = Path(__file__).parents[2]


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module like `python -m`, but imports nothing from the working directory.

    A file there could hide one of this project or of the standard library.
    """
    return sys.executable, "-P", "-m", module, *arguments


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for such a command: it loads the code that this process runs, a source tree's as well."""
    given = child_environment(extra or {})
    if _ROOT.name in ("site-packages", "dist-packages"):  # found anyway, and after the standard library
        return given
    return given | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), given.get("PYTHONPATH"))))}

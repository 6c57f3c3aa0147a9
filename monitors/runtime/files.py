"""Checks that configured files can be written; leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path


def directory_problem(directory: Path) -> str | None:
    """Say why nothing can be written to a directory, which need not exist yet."""
    there = directory.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".gaugeway-"):
            return None
    except OSError as error:
        return error.strerror

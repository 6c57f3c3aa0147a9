"""Reads the word lists, patterns and numbers that stand in files beside the modules."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from typing import Any


def table(package: str, name: str) -> Any:
    """Return the contents of a package's JSON or TOML file."""
    content = resources.files(package).joinpath(name).read_text("utf-8")
    return json.loads(content) if name.endswith(".json") else tomllib.loads(content)

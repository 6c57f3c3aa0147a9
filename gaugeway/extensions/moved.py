"""Import paths of extensions written before a module moved: they work, and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def moved(old: str, new: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that moved from `old` to `new`."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(import_module(new), name)
        warnings.warn(f"{old} moved: import {name} from {new}", DeprecationWarning, stacklevel=2)
        return value

    return find

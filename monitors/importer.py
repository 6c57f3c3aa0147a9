"""The whole plug-in system: a short name of ours, or an import string `package.module:Name`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load(name: str, built_in: Mapping[str, str]) -> Any:
    """Return the object that `name` stands for: a key of `built_in` (short name -> import string) or an import string.

    Raises ValueError that says what is wrong and which short names exist.
    """
    target = built_in.get(name, name)
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise ValueError(
            f"{name!r} is neither one of {', '.join(sorted(built_in))} nor of the form 'package.module:Name'"
        )
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{name!r}: no module named {error.name!r}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise ValueError(f"{name!r}: module {module_name!r} has no {attribute!r}") from error

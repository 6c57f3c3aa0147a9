"""What schemathesis runs before each request (see schemathesis.toml)."""

from __future__ import annotations

import random

import schemathesis


@schemathesis.hook
def before_call(_context, case, _kwargs) -> None:
    """Let each request come from another address: guessing at the token from one ends in 429, as it should."""
    case.headers = {**(case.headers or {}), "X-Forwarded-For": _address()}


def _address() -> str:
    return "10." + ".".join(str(random.randrange(256)) for _ in range(3))

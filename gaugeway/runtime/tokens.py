"""How good the token of an admin port is. Apart from `auth`, as configurations are checked without a web server."""

from __future__ import annotations

ATTEMPTS, ATTEMPTS_S = 5, 300.0
"""Wrong tokens from one network that are answered with 401 before the answer is 429, and the window they count in."""
LONG_TOKEN, LEAST_DISTINCT = 16, 8
"""Characters, and different characters, from which on a token cannot be found by trying."""
CHECK_S, MAX_CHECK_WAIT_S = 2.0, 4.0
"""Time between two checks of a short token for one network after too many wrong ones, and how long one may wait."""


def is_long(token: str) -> bool:
    """Whether a token is long enough to withstand guessing, if it is random.

    >>> is_long("hunter2"), is_long("a" * 40), is_long("0f3c9a7be1d24586")
    (False, False, True)
    """
    return len(token) >= LONG_TOKEN and len(set(token)) >= LEAST_DISTINCT


def short_warning(key: str, token: str | None) -> str | None:
    """Return a warning when the token of the configuration key `key` is short."""
    if token is None or is_long(token):
        return None
    return (
        f"{key}: is short: after {ATTEMPTS} wrong tokens from an address, tokens from there are checked only every "
        f"{CHECK_S:.0f} s, the correct one too; use at least {LONG_TOKEN} random characters (openssl rand -hex 32)"
    )

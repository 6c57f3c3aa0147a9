"""The comparison of admin tokens: guessing is slow, and wrong tokens do not lock out the right one."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable

from monitors.runtime.attempts import ATTEMPTS, CHECK_S, LONG_TOKEN, Attempts, TooManyGuessesError, is_long

MAX_HELD = 64
"""Requests of one process that wait for the check of a short token."""
_log = logging.getLogger("gaugeway")


class TokenCheck:
    """Compares tokens with the right one in constant time.

    Clients behind one NAT or proxy share an address, so the right token must pass whatever others send from there:

    * A long token is always compared. Its length protects it: 16 random characters withstand guessing at any rate the
      port can answer. Wrong tokens after the first five in five minutes are answered with 429 and not audited.
    * A short token could be found that way. After five wrong tokens the network gets one check every 2 s, for right and
      wrong tokens alike: a request waits up to 4 s for its check, or is refused unchecked.
    """

    def __init__(
        self,
        token: str | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._digest = _digest(token) if token is not None else None
        self._attempts = Attempts(paced=token is not None and not is_long(token))
        self._clock = clock
        self._sleep = sleep
        self._held = 0

    async def passes(self, given: str, address: str) -> bool:
        """Whether `given`, sent from `address`, is the token. Raises TooManyGuessesError."""
        if (wait_s := self._attempts.reserve(address, self._clock())) > 0:
            await self._wait(wait_s)
        if self._digest is not None and hmac.compare_digest(_digest(given), self._digest):
            return True
        self._attempts.failed(address, self._clock())
        return False

    async def _wait(self, wait_s: float) -> None:
        if self._held >= MAX_HELD:
            raise TooManyGuessesError(wait_s)
        self._held += 1
        try:
            await self._sleep(wait_s)
        finally:
            self._held -= 1


def warn_if_short(key: str, token: str | None) -> None:
    """Log a warning when the token of the configuration key `key` is short."""
    if token is not None and not is_long(token):
        _log.warning(
            "%s is short: after %d wrong tokens from an address, tokens from there are checked only every %.0f s, the "
            "right one too; use at least %d random characters (openssl rand -hex 32)",
            *(key, ATTEMPTS, CHECK_S, LONG_TOKEN),
        )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

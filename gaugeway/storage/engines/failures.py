"""How queues and stores fail: `EngineError` (unusable now, retry later) or `RefusedError` (never takes this value)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec


class EngineError(ConnectionError):
    """The engine cannot be used now: unreachable, locked, full, read-only, too new. The same operation may work later.

    The message names the engine, without user and password.
    """


class SchemaError(EngineError):
    """A newer release wrote the tables, or they belong to something else: upgrade, or use another database."""


class RefusedError(ValueError):
    """The engine never takes this value, so a retry is pointless.

    The message names the engine's error and quotes nothing of the value.
    """


class Unsupported(RefusedError):
    """The engine does not offer this operation, with no value. The page says so in its place."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this storage does not offer {what}")


FAILURES = EngineError, RefusedError
"""Everything that an operation of a queue, store, key store, limit store, template store or leader may raise."""

VALUE_ERRORS = ValueError, TypeError, OverflowError, RecursionError
"""What encoders and drivers raise for a value before it reaches the engine (`UnicodeError` is a ValueError)."""


def encoded(value: Any) -> bytes:
    """Return `value` as JSON. Raises RefusedError for one that JSON or UTF-8 cannot express.

    >>> encoded({"a": 1})
    b'{"a":1}'
    """
    try:
        return msgspec.json.encode(value)
    except VALUE_ERRORS as error:
        raise RefusedError(type(error).__name__) from error


def engine_failed(error: Exception) -> bool:
    """Whether the engine is at fault, so that a retry may succeed.

    >>> engine_failed(EngineError("disk full")), engine_failed(RefusedError("too long")), engine_failed(KeyError("x"))
    (True, False, False)
    """
    return isinstance(error, EngineError)


def refused(error: Exception) -> bool:
    """Whether the value is at fault, so that no retry can succeed. An unknown error may be either: False.

    >>> refused(RefusedError("too long")), refused(EngineError("disk full")), refused(KeyError("x"))
    (True, False, False)
    """
    return isinstance(error, RefusedError)


def reason_of(error: Exception) -> str:
    """The reason to log or store. Only our own message is known to quote no content.

    >>> reason_of(RefusedError("54000: index row too long")), reason_of(ValueError("secret"))
    ('54000: index row too long', 'ValueError')
    """
    return str(error) if isinstance(error, RefusedError) else type(error).__name__


T = TypeVar("T")
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 0.1, 5.0  # internal bound: time between our own attempts


class Circuit:
    """While an engine is unreachable, lets one call at a time try it; all other calls fail at once.

    The waits between tries grow from 0.1 s to 5 s. Each is drawn at random from the upper half of its range, so that
    many processes do not reconnect at the same moment. `name` is the engine's, for messages; `clock` is monotonic (s).
    """

    def __init__(
        self, name: str, *, draw: Callable[[], float] = random.random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.closed = False
        self._draw = draw
        self._clock = clock
        self._trial = asyncio.Lock()
        self._failures = 0
        self._retry_at = 0.0

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Call `attempt`, which reports `succeeded` or `failed`. Raises EngineError while it is too early for a try."""
        if self.closed:
            return await attempt()
        async with self._trial:
            if (wait := self._retry_at - self._clock()) > 0:
                raise EngineError(f"{self.name}: unreachable; next try in {wait:.1f} s")
            return await attempt()

    def succeeded(self) -> None:
        """The engine answered: let all calls through."""
        self.closed, self._failures, self._retry_at = True, 0, 0.0

    def failed(self) -> None:
        """The engine did not answer: make the next try wait."""
        longest = min(_MAX_BACK_OFF_S, _FIRST_BACK_OFF_S * 2 ** min(self._failures, 10))
        self.closed = False
        self._failures += 1
        self._retry_at = self._clock() + longest * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """The connections were closed on purpose: the next call opens them."""
        self.closed = False

"""What queues and stores raise: whether the engine failed, or refuses what it was given."""

from __future__ import annotations

import sqlite3


class EngineError(ConnectionError):
    """The engine cannot be reached, or fails by itself: the same operation may succeed later."""


class RefusedError(ValueError):
    """The engine refuses the value it was given, and would refuse it again.

    The message names the engine's error and quotes nothing of the value.
    """


FAILURES = sqlite3.Error, OSError, ValueError
"""What an operation of any engine may raise, EngineError (an OSError) and RefusedError (a ValueError) too."""

_SQLITE_REFUSALS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)
_VALUES = ValueError, TypeError, OverflowError, RecursionError
"""What encoders and drivers raise for a value before it reaches the engine (`UnicodeError` is a ValueError)."""


def engine_failed(error: Exception) -> bool:
    """Whether an engine complains about itself, as opposed to the value it was given.

    >>> engine_failed(OSError("disk full")), engine_failed(RefusedError("too long")), engine_failed(KeyError("x"))
    (True, False, False)
    """
    return isinstance(error, (sqlite3.Error, OSError)) and not isinstance(error, (*_SQLITE_REFUSALS, RefusedError))


def refused(error: Exception) -> bool:
    """Whether the value is at fault: to offer the same one again is in vain. An unknown error is not such a one.

    >>> refused(OverflowError("int too big")), refused(OSError("disk full")), refused(KeyError("x"))
    (True, False, False)
    """
    return isinstance(error, (*_SQLITE_REFUSALS, *_VALUES)) and not isinstance(error, OSError)


def reason_of(error: Exception) -> str:
    """The reason for people. Only our own message is known to quote no content.

    >>> reason_of(RefusedError("54000: index row too long")), reason_of(ValueError("secret"))
    ('54000: index row too long', 'ValueError')
    """
    return str(error) if isinstance(error, RefusedError) else type(error).__name__

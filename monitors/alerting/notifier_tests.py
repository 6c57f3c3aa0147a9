"""Test notifications: one marked message to one notifier, on request, with the result in words."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitors.alerting.notifiers import NotDeliveredError, Notifier, Route
from monitors.alerting.notifiers.message import trial

PAUSE_S = 30.0
"""Between two tests of one notifier."""
TIMEOUT_S = 30.0
_ERROR_CHARACTERS = 500


class TooSoonError(Exception):
    """The notifier was tested a moment ago; the next test may be sent in `wait_s` seconds."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"tested a moment ago: the next test may be sent in {math.ceil(wait_s)} s")
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """The result of the last test of a notifier: when (Unix seconds), and the error, "" if it was delivered."""

    at: float
    error: str = ""


class NotifierTests:
    """Sends test notifications, whatever severities and apps a notifier is for. The results are kept in memory."""

    def __init__(self, notifiers: Mapping[str, Notifier], clock: Callable[[], float]) -> None:
        self._notifiers = notifiers
        self._clock = clock
        self._results: dict[str, Tested] = {}
        self._started: dict[str, float] = {}

    def routes(self) -> Mapping[str, Route]:
        """Return the notifiers in use, with what they are for."""
        return {name: notifier.route for name, notifier in self._notifiers.items()}

    def results(self) -> Mapping[str, Tested]:
        """Return the last result of each notifier that was tested since this process started."""
        return self._results

    async def send(self, name: str) -> Tested:
        """Send a test notification, and its end to a receiver that opens incidents; return the result.

        Raises KeyError for an unknown notifier, TooSoonError within `PAUSE_S` of the last test.
        """
        notifier, now = self._notifiers[name], self._clock()
        wait_s = self._started.get(name, -math.inf) + PAUSE_S - now
        if wait_s > 0.0:
            raise TooSoonError(wait_s)
        self._started[name] = now
        self._results[name] = found = Tested(at=now, error=await _failure(notifier, now))
        return found


async def _failure(notifier: Notifier, now: float) -> str:
    """Send, and return what failed, in words."""
    firing, resolved = trial(now)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await notifier.notify(firing)
            if notifier.opens_incidents:
                await notifier.notify(resolved)
    except NotDeliveredError as error:
        return str(error)[:_ERROR_CHARACTERS]  # has no secret
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001 - a notifier may raise anything; all of it means "not delivered"
        return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]
    return ""

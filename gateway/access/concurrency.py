"""FIFO concurrency limiter."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Future
from collections import deque
from contextlib import suppress


class ConcurrencyLimiter:
    """Admits at most `limit` holders at once (None: no limit); the others wait in FIFO order. For one event loop."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._waiting: deque[Future[bool]] = deque()
        self.inside = 0

    @property
    def waiting(self) -> int:
        """How many are waiting."""
        return len(self._waiting)

    async def enter(self, wait_s: float) -> bool:
        """Return True once admitted, False when that takes longer than `wait_s` seconds."""
        if self.enter_at_once():
            return True
        if wait_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        turn: Future[bool] = loop.create_future()
        self._waiting.append(turn)
        timer = loop.call_later(wait_s, self._give_up, turn)
        try:
            return await turn
        except CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._waiting.remove(turn)
            elif turn.result():  # admitted in the same iteration in which the client left
                self.leave()
            raise
        finally:
            timer.cancel()

    def enter_at_once(self) -> bool:
        """Return True once inside, False when a place is not free now or others wait for it."""
        free = self._is_free() and not self._waiting
        self.inside += free
        return free

    def leave(self) -> None:
        """Leave, and admit the next one."""
        self.inside -= 1
        self._let_in()

    def resize(self, limit: int | None) -> None:
        """Change the limit."""
        self._limit = limit
        self._let_in()

    def _is_free(self) -> bool:
        return self._limit is None or self.inside < self._limit

    def _let_in(self) -> None:
        while self._waiting and self._is_free():
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled: the client has left
                self.inside += 1
                turn.set_result(True)

    def _give_up(self, turn: Future[bool]) -> None:
        if not turn.done():
            self._waiting.remove(turn)
            turn.set_result(False)

"""Background tasks whose exceptions are logged."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger("gaugeway")
_PERSISTS = 3
"""From this failure in a row on, that of a task which is tried again is an error."""
_failures: dict[str, int] = {}


def spawn(coroutine: Coroutine[Any, Any, T], *, name: str, is_retried: bool = False) -> asyncio.Task[T]:
    """Start `coroutine` as a task; an exception that ends it is logged under `name`.

    With `is_retried` a later task of that name does the work again: the exception is a warning unless it persists.
    The caller keeps the returned task: the event loop itself holds only a weak reference.
    """
    task = asyncio.create_task(coroutine, name=name)  # noqa: TID251 - the one place that may
    task.add_done_callback(_report_retried if is_retried else _report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("background task %s ended: %s: %s", task.get_name(), type(error).__name__, error)


def _report_retried(task: asyncio.Task[Any]) -> None:
    name = task.get_name()
    if task.cancelled():
        return
    if (error := task.exception()) is None:
        _failures.pop(name, None)
        return
    _failures[name] = _failures.get(name, 0) + 1
    level = logging.ERROR if _failures[name] >= _PERSISTS else logging.WARNING
    _log.log(level, "background task %s failed, trying again: %s: %s", name, type(error).__name__, error)


async def happens_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for `event`, at most `seconds` (None: forever); return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def repeat(
    seconds: float,
    action: Callable[[], Awaitable[object]],
    failed: Callable[[], None],
    *,
    longest_s: float = math.inf,
    is_urgent: Callable[[], bool] = lambda: False,
) -> None:
    """Repeat `action`; count each failure and log the first of consecutive ones.

    A slow action runs less often, so that it takes at most a tenth of the time; but no pause exceeds `longest_s`, and
    none `seconds` while the next round is urgent.
    """
    logged = False
    while True:
        begin = time.monotonic()
        try:
            await action()
            logged = False
        except Exception as error:  # noqa: BLE001 - an engine may raise anything; the next round tries again; counted by `failed`
            failed()
            if not logged:
                _log.warning("%s failed, retrying: %s: %s", _name(), type(error).__name__, error)
            logged = True
        pause = 0.0 if is_urgent() else min(longest_s, 9 * (time.monotonic() - begin))
        await asyncio.sleep(max(seconds, pause))


def _name() -> str:
    task = asyncio.current_task()
    return task.get_name() if task else "a task"

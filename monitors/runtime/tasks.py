"""Background tasks whose exceptions are logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
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

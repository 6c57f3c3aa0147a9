"""Background tasks whose exceptions are logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger("gaugeway")


def spawn(coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Start `coroutine` as a task; an exception that ends it is logged under `name`.

    The caller keeps the returned task: the event loop itself holds only a weak reference.
    """
    task = asyncio.create_task(coroutine, name=name)  # noqa: TID251 - the one place that may
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("background task %s ended: %s: %s", task.get_name(), type(error).__name__, error)


async def happens_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for `event`, at most `seconds` (None: forever); return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True

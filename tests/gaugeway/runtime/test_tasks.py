"""Failures of background tasks in the log."""

import asyncio
import math

import pytest

from gaugeway.runtime.tasks import repeat, spawn


async def test_a_failure_of_a_task_that_is_tried_again_is_an_error_only_if_it_persists(caplog):
    async def fail():
        raise OSError("database is locked")

    async def succeed():
        pass

    for work in (fail, succeed, fail, fail, fail):
        await asyncio.wait([spawn(work(), name="tried again", is_retried=True)])
        await asyncio.sleep(0)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "WARNING", "ERROR"]


@pytest.mark.parametrize(
    ("longest_s", "urgent", "paused"), [(math.inf, False, 18.0), (15.0, False, 15.0), (15.0, True, 0.25)]
)
def test_a_slow_action_pauses_in_proportion_unless_the_next_round_is_urgent(monkeypatch, longest_s, urgent, paused):
    now, pauses = [0.0], []

    async def slow():
        now[0] += 2.0

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr("gaugeway.runtime.tasks.time.monotonic", lambda: now[0])
    monkeypatch.setattr("gaugeway.runtime.tasks.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(repeat(0.25, slow, lambda: None, longest_s=longest_s, is_urgent=lambda: urgent))
    assert pauses == [paused] * 3

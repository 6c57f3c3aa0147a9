"""Failures of background tasks in the log."""

import asyncio

from monitors.runtime.tasks import spawn


def test_a_failure_of_a_task_that_is_tried_again_is_an_error_only_if_it_persists(caplog):
    async def fail():
        raise OSError("database is locked")

    async def succeed():
        pass

    async def main():
        for work in (fail, succeed, fail, fail, fail):
            await asyncio.wait([spawn(work(), name="tried again", is_retried=True)])
            await asyncio.sleep(0)

    asyncio.run(main())
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "WARNING", "ERROR"]

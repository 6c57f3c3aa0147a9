"""Where the store cannot elect a leader the queue's database does, and keeps what the leader saves."""

import asyncio

import pytest

from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.leader import Alone, DeposedError, stand
from tests.support.postgres import postgres

STORE = "clickhouse://u:p@127.0.0.1:1/d"


async def test_one_of_two_leads_what_was_saved_earlier_is_loaded_and_only_the_leader_saves(tmp_path):
    queue = postgres().database()

    earlier = SQLiteStore(tmp_path / "store.db")
    await earlier.save({"moved": b"1", "alerts": b"old"})
    (one, ledger), (two, other) = (stand(STORE, earlier, 0.2, queue) for _ in range(2))
    one.start()
    async with asyncio.timeout(60):
        await one.changed()
    two.start()
    assert one.is_leader()
    await ledger.save({"alerts": b"new"})
    assert await other.load() == {"moved": b"1", "alerts": b"new"}
    with pytest.raises(DeposedError):
        await other.save({"alerts": b"x"})
    assert await earlier.load() == {"moved": b"1", "alerts": b"old"}
    taken = asyncio.gather(two.changed(), asyncio.sleep(0))
    await one.aclose()
    async with asyncio.timeout(60):
        await taken
    assert two.is_leader()
    await two.aclose()
    await earlier.aclose()


@pytest.mark.parametrize("queue", ["redis://127.0.0.1:1/0", "sqlite:////tmp/none/queue.db", ""])
def test_without_a_lock_anywhere_this_process_leads_and_says_that_it_must_be_the_only_one(caplog, queue):
    own = object()
    leader, ledger = stand(STORE, own, 0.2, queue)
    assert isinstance(leader, Alone)
    assert ledger is own
    assert "exactly one monitors process" in caplog.text

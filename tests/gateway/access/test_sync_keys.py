"""The key file as it is on disk, and the background task between it and the gate."""

import asyncio
import logging
import sqlite3
import stat
from contextlib import closing

import pytest

from gateway.access.account import OverLimit
from gateway.access.gate import Gate, Holder
from gateway.access.sync import KeySync
from gateway.config import Limits
from gateway.http.errors import Rejection
from gaugeway.storage.keys import Quota, digest, open_keys
from tests.gateway.access.test_limits import Clock

NOW = 1_800_000_000.0


def bearer(secret):
    return [(b"authorization", b"Bearer " + secret.encode())]


class Bench:
    """A gate that asks for keys, and the keeper of its file. The background task only runs when it is started."""

    def __init__(self, path, limits=None, **gate):
        self.path = path
        self.store = open_keys(None, path.parent, busy_timeout_s=0.05)
        self.clock = Clock(NOW)
        self.gate = Gate(limits or Limits(), clock=self.clock, wall=self.clock, **{"needs_key": True} | gate)
        self.keeper = KeySync(self.store, self.gate, every_s=0.02)

    async def admits(self, secret):
        try:
            permit = await self.gate.admit(bearer(secret), "gpt-4o", None)
        except Rejection as rejection:
            return rejection.status
        permit.release()
        return permit.app

    async def come_to(self, answer, secret):
        async with asyncio.timeout(60):
            while await self.admits(secret) != answer:  # noqa: ASYNC110 - a file has no event to wait for
                await asyncio.sleep(0.01)


def test_a_key_is_kept_as_a_hash_and_its_secret_nowhere(tmp_path):
    async def scenario():
        store = open_keys(None, tmp_path / "data")
        quota = Quota(requests_per_min=60, usd_per_day=1.5)
        key, secret = await store.create(app="shop", now=NOW, models=("gpt-*", "o3"), expires_at=NOW + 60, quota=quota)
        assert secret.startswith("gw-")
        assert len(secret) == 3 + 43
        assert await store.keys() == [key]
        assert key.digest == digest(secret.encode())
        assert key.quota == quota
        await store.aclose()
        return secret

    secret = asyncio.run(scenario())
    for file in (tmp_path / "data").iterdir():
        assert secret.encode() not in file.read_bytes()
    assert stat.S_IMODE((tmp_path / "data" / "keys.db").stat().st_mode) == 0o600


def test_a_running_gate_learns_of_new_and_revoked_keys(tmp_path):
    async def scenario():
        bench = Bench(tmp_path / "keys.db")
        bench.keeper.start()
        await bench.keeper.first_attempt()
        assert await bench.admits("gw-unknown") == 401
        other = open_keys(None, tmp_path)  # as the command line does it
        key, secret = await other.create(app="shop", now=NOW)
        await bench.come_to("shop", secret)
        assert await other.revoke(key.id, NOW)
        await bench.come_to(401, secret)
        assert not await other.revoke("key_unknown", NOW)
        await other.aclose()
        await bench.keeper.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", ["removed", "locked", "overwritten"])
def test_a_file_that_cannot_be_used_leaves_the_keys_as_they_were(tmp_path, caplog, damage):
    async def scenario():
        bench = Bench(tmp_path / "keys.db")
        _, secret = await bench.store.create(app="shop", now=NOW)
        assert await bench.keeper.sync()
        await bench.store.aclose()
        held = sqlite3.connect(tmp_path / "keys.db", isolation_level=None)
        with closing(held), caplog.at_level(logging.WARNING):
            if damage == "locked":
                held.execute("PRAGMA locking_mode=EXCLUSIVE")
                held.execute("BEGIN EXCLUSIVE")
            elif damage == "removed":
                (tmp_path / "keys.db").unlink()
            else:
                (tmp_path / "keys.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
            bench.gate.charge(Holder(None, "shop"), 1, 1, 0.5)
            assert not await bench.keeper.sync()
            assert not await bench.keeper.sync()
            assert await bench.admits(secret) == "shop"
            assert bench.gate.unsaved() == {(bench.gate.today(), "app:shop"): 0.5}
            assert len(caplog.records) == 1
            assert secret not in caplog.text
            assert (tmp_path / "keys.db").exists() == (damage != "removed")
        if damage == "locked":
            assert await bench.keeper.sync()
            assert bench.gate.unsaved() == {}
        await bench.keeper.aclose()

    asyncio.run(scenario())


def test_before_the_keys_were_ever_read_requests_are_answered_503(tmp_path):
    async def scenario():
        (tmp_path / "keys.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
        bench = Bench(tmp_path / "keys.db")
        bench.keeper.start()
        await bench.keeper.first_attempt()
        assert await bench.admits("gw-any") == 503
        (tmp_path / "keys.db").unlink()
        await bench.come_to(401, "gw-any")
        await bench.keeper.aclose()

    asyncio.run(scenario())


def test_the_day_s_spending_survives_a_restart(tmp_path):
    limits = Limits(usd_per_day=1.0)

    async def spend():
        bench = Bench(tmp_path / "keys.db", limits, needs_key=False)
        bench.keeper.start()
        await bench.keeper.first_attempt()
        permit = await bench.gate.admit([], None, "shop")
        bench.gate.charge(permit, 10, 10, 1.0)
        await bench.keeper.aclose()

    async def restart():
        bench = Bench(tmp_path / "keys.db", limits, needs_key=False)
        bench.keeper.start()
        await bench.keeper.first_attempt()
        with pytest.raises(OverLimit):
            await bench.gate.admit([], None, "shop")
        await bench.gate.admit([], None, "other")
        bench.clock.now += 86400
        await bench.gate.admit([], None, "shop")
        await bench.keeper.aclose()

    asyncio.run(spend())
    asyncio.run(restart())


def test_several_workers_share_one_budget_and_count_every_cent_once(tmp_path):
    async def scenario():
        benches = [Bench(tmp_path / "keys.db", Limits(usd_per_day=1.0), needs_key=False, workers=3) for _ in range(3)]
        for bench in benches:
            assert await bench.keeper.sync()
            bench.gate.charge(Holder(None, "shop"), 1, 1, 0.25)
        for bench in [*benches, *benches]:
            assert await bench.keeper.sync()
            (await bench.gate.admit([], None, "shop")).release()  # 0.75 together
        benches[0].gate.charge(Holder(None, "shop"), 1, 1, 0.25)
        for bench in benches:
            assert await bench.keeper.sync()
            with pytest.raises(OverLimit):
                await bench.gate.admit([], None, "shop")
        today = benches[0].gate.today()
        assert await benches[0].store.spend({}, today) == {(today, "app:shop"): pytest.approx(1.0)}
        for bench in benches:
            await bench.keeper.aclose()

    asyncio.run(scenario())

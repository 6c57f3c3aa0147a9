"""What every store of keys promises, sentence by sentence of the port, and what the gate gets to see of it."""

import asyncio
import logging

import pytest

from gateway.access.account import OverLimit
from gateway.access.gate import Gate, Holder
from gateway.access.sync import KeySync
from gateway.config import Limits
from gateway.http.errors import Rejection
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.keys import Quota, digest, open_keys
from tests.gateway.access.test_limits import Clock
from tests.support.postgres import own_server, postgres

NOW = 1_800_000_000.0
TODAY = 20_000


class Bench:
    """Opens a store of its own, any number of times."""

    def __init__(self, url, directory):
        self.url, self.directory = url, directory

    def open(self):
        return open_keys(self.url, self.directory)

    def run(self, scenario, count=1):
        async def main():
            stores = [self.open() for _ in range(count)]
            try:
                await scenario(*stores)
            finally:
                for store in stores:
                    await store.aclose()

        asyncio.run(main())


@pytest.fixture(params=["sqlite", "postgresql"])
def bench(request, tmp_path):
    return Bench(postgres().database() if request.param == "postgresql" else None, tmp_path / "data")


class Gateway:
    """A gate and the keeper of its keys."""

    def __init__(self, store, limits=None, *, needs_key=True):
        self.clock = Clock(NOW)
        self.gate = Gate(limits or Limits(), needs_key=needs_key, clock=self.clock, wall=self.clock)
        self.keeper = KeySync(store, self.gate, every_s=0.02)

    async def admits(self, secret):
        try:
            permit = await self.gate.admit([(b"api-key", secret.encode())], "gpt-4o", None)
        except Rejection as rejection:
            return rejection.status
        permit.release()
        return permit.app

    async def come_to(self, answer, secret):
        async with asyncio.timeout(60):
            while await self.admits(secret) != answer:  # noqa: ASYNC110 - a store has no event to wait for
                await asyncio.sleep(0.01)


def test_a_key_comes_out_as_it_went_in_and_its_secret_is_nowhere(bench):
    async def scenario(store, other):
        quota = Quota(requests_per_min=60, usd_per_day=1.5)
        key, secret = await store.create(
            app="shöp", now=NOW, models=("gpt-*", "o3"), expires_at=NOW + 60.25, quota=quota
        )
        assert await other.keys() == [key]
        assert key.digest == digest(secret.encode())
        assert secret not in repr(await other.keys())

    bench.run(scenario, 2)


def test_no_two_keys_are_alike_and_the_oldest_comes_first(bench):
    async def scenario(store):
        made = [await store.create(app="shop", now=NOW - number) for number in range(20)]
        assert len({one.secret for one in made}) == len({one.key.id for one in made}) == 20
        assert await store.keys() == [one.key for one in made[::-1]]

    bench.run(scenario)


def test_revoking_twice_keeps_the_first_time_and_an_unknown_key_is_told(bench):
    async def scenario(store):
        key, _ = await store.create(app="shop", now=NOW)
        assert await store.revoke(key.id, NOW + 1)
        assert await store.revoke(key.id, NOW + 2)
        assert (await store.keys())[0].revoked_at == NOW + 1
        assert not await store.revoke("key_unknown", NOW)

    bench.run(scenario)


def test_without_a_change_no_key_is_read_again(bench):
    async def scenario(store, other):
        revision, keys = await store.changed(None)
        assert keys == []
        key, _ = await other.create(app="shop", now=NOW)
        revision, keys = await store.changed(revision)
        assert keys == [key]
        await other.spend({(TODAY, "app:shop"): 1.0}, TODAY)
        assert await store.changed(revision) == (revision, None)
        await other.revoke(key.id, NOW)
        assert (await store.changed(revision))[1][0].revoked_at == NOW

    bench.run(scenario, 2)


def test_spending_of_all_processes_adds_up_whatever_the_names(bench):
    odd = "app:" + "ü" * 5000
    first = {(TODAY, "app:shop"): 1.0, (TODAY, "key:key_1"): 0.5, (TODAY, odd): 2.0, (TODAY - 1, "app:shop"): 9.0}

    async def scenario(store, other):
        assert await store.spend(first, TODAY) == {at: usd for at, usd in first.items() if at[0] == TODAY}
        await asyncio.gather(*(one.spend({(TODAY, "app:shop"): 0.25}, TODAY) for one in (store, other) * 4))
        assert (await store.spend({(TODAY, odd): 1.0}, TODAY))[TODAY, odd] == 3.0
        known = await other.spend({}, TODAY)
        assert (known[TODAY, "app:shop"], known[TODAY, "key:key_1"]) == (3.0, 0.5)

    bench.run(scenario, 2)


def test_old_spending_is_forgotten(bench):
    async def scenario(store, other):
        await store.spend({(100, "app:shop"): 1.0}, 100)
        await other.spend({(136, "app:shop"): 2.0}, 136)
        assert await store.spend({}, 100) == {}
        assert await store.spend({}, 136) == {(136, "app:shop"): 2.0}

    bench.run(scenario, 2)


def test_a_running_gate_learns_of_new_and_revoked_keys(bench):
    async def scenario(store, admin):
        gateway = Gateway(store)
        gateway.keeper.start()
        await gateway.keeper.first_attempt()
        assert await gateway.admits("gw-unknown") == 401
        key, secret = await admin.create(app="shop", now=NOW)
        await gateway.come_to("shop", secret)
        assert await admin.revoke(key.id, NOW)
        await gateway.come_to(401, secret)
        await gateway.keeper.aclose()

    bench.run(scenario, 2)


def test_several_gates_share_one_budget_and_count_every_cent_once(bench):
    async def scenario(*stores):
        gateways = [Gateway(store, Limits(usd_per_day=1.0), needs_key=False) for store in stores]
        for one in gateways:
            assert await one.keeper.sync()
            one.gate.charge(Holder(None, "shop"), 1, 1, 0.25)
        for one in [*gateways, *gateways]:
            assert await one.keeper.sync()
            (await one.gate.admit([], None, "shop")).release()  # 0.75 together
        gateways[0].gate.charge(Holder(None, "shop"), 1, 1, 0.25)
        for one in gateways:
            assert await one.keeper.sync()
            with pytest.raises(OverLimit):
                await one.gate.admit([], None, "shop")
        today = gateways[0].gate.today()
        assert await stores[0].spend({}, today) == {(today, "app:shop"): pytest.approx(1.0)}

    bench.run(scenario, 3)


@pytest.mark.full
def test_a_database_that_goes_away_leaves_keys_as_they_were_and_gets_the_spending_later(caplog):
    server = own_server()

    async def scenario():
        store = open_keys(server.database(), None)
        gateway = Gateway(store)
        _, secret = await store.create(app="shop", now=NOW)
        gateway.keeper.start()
        await gateway.keeper.first_attempt()
        server.stop()
        gateway.gate.charge(Holder(None, "shop"), 1, 1, 0.5)
        with caplog.at_level(logging.WARNING):
            while await gateway.keeper.sync():
                pass
            assert not await gateway.keeper.sync()
        assert len(caplog.records) == 1
        assert "secret" not in caplog.text
        assert await gateway.admits(secret) == "shop"
        server.start()
        async with asyncio.timeout(60):
            while gateway.gate.unsaved():  # noqa: ASYNC110 - a gate has no event for it
                await asyncio.sleep(0.05)
        assert (await store.spend({}, gateway.gate.today()))[gateway.gate.today(), "app:shop"] == 0.5
        await gateway.keeper.aclose()

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()


@pytest.mark.full
def test_before_the_database_was_ever_reached_requests_are_answered_503_and_nobody_waits_for_it():
    server = own_server()
    url = server.database()
    server.stop()

    async def scenario():
        gateway = Gateway(open_keys(url, None))
        async with asyncio.timeout(60):
            gateway.keeper.start()
            await gateway.keeper.first_attempt()
        assert await gateway.admits("gw-any") == 503
        server.start()
        await gateway.come_to(401, "gw-any")
        await gateway.keeper.aclose()

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()


@pytest.mark.full
def test_tables_that_vanish_are_a_failure_and_no_empty_list():
    url = postgres().database()

    async def scenario(store):
        gateway = Gateway(store)
        _, secret = await store.create(app="shop", now=NOW)
        assert await gateway.keeper.sync()
        postgres().ask(url, "DROP SCHEMA gaugeway CASCADE")
        assert not await gateway.keeper.sync()
        assert await gateway.admits(secret) == "shop"
        with pytest.raises(EngineError):
            await store.keys()

    Bench(url, None).run(scenario)


def test_a_wrong_url_is_not_quoted():
    for wrong in ("mysql://user:secret@host/x", "postgresql://user:sec#ret@host/x", "sec"):
        with pytest.raises(ValueError, match=r"expected|unsupported|no scheme") as caught:
            open_keys(wrong, None)
        assert "sec" not in str(caught.value)

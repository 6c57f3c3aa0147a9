"""What every place does in which gateways share their limits, sentence by sentence of the port, on real engines."""

import asyncio
import re
import time

import pytest

from gaugeway.storage.documents import Draw, open_limits
from tests.support.postgres import own_server, postgres
from tests.support.redis import own_redis, redis_server


@pytest.fixture(scope="module")
def cluster():
    server = own_redis(cluster=True)
    yield server
    server.destroy()


@pytest.fixture(params=["redis", "cluster", "postgresql"])
def url(request):
    if request.param == "postgresql":
        return postgres().database()
    if request.param == "cluster":
        return request.getfixturevalue("cluster").url(cluster="true")
    return redis_server().url()


def run(url, scenario, count=2):
    async def main():
        places = [open_limits(url) for _ in range(count)]
        try:
            await scenario(*places)
        finally:
            for place in places:
                await place.aclose()

    asyncio.run(main())


def draw(used, *, level=60.0, per_min=60.0, subject="app:shop", kind="requests"):
    return Draw(subject=subject, kind=kind, per_min=per_min, used=used, level=level)


def about(level, within=60):
    """A level that was set less than a minute ago, when a place refills by one each second."""
    return pytest.approx(level + within / 2, abs=within / 2 + 0.001)


def test_what_one_drew_the_other_hears(url):
    async def scenario(one, other):
        assert (await one.exchange([draw(1000)])).levels == [about(-940)]
        assert (await other.exchange([draw(500)])).levels == [about(-1440)]
        assert (await one.exchange([draw(0)])).levels == [about(-1440)]

    run(url, scenario)


def test_a_debt_is_told_as_such_and_is_paid_back_by_the_place_s_own_clock(url):
    async def scenario(one, other):
        begin = time.monotonic()
        (level,) = (await one.exchange([draw(1_000_000, per_min=600, level=600)])).levels
        drawn = time.monotonic()
        assert -999_400 <= level <= -999_400 + 10 * (drawn - begin) + 2
        await asyncio.sleep(0.3)
        asked = time.monotonic()
        (level,) = (await other.exchange([draw(0, per_min=600, level=600)])).levels
        assert -999_400 + 10 * (asked - drawn) - 2 <= level <= -999_400 + 10 * (time.monotonic() - begin) + 2

    run(url, scenario)


def test_there_is_never_more_than_the_burst(url):
    async def scenario(one):
        await one.exchange([draw(1, per_min=6000, level=6000)])
        await asyncio.sleep(0.05)
        assert (await one.exchange([draw(0, per_min=6000, level=6000)])).levels == [6000]

    run(url, scenario, 1)


def test_a_bucket_that_is_not_known_begins_where_the_first_who_tells_takes_it_to_be(url):
    async def scenario(one, other):
        assert (await one.exchange([draw(300, level=-2000)])).levels == [about(-2300)]
        assert (await other.exchange([draw(400, level=60)])).levels == [about(-2700)]

    run(url, scenario)


def test_buckets_are_told_apart_and_come_back_in_order_whatever_their_names(url):
    async def scenario(one):
        odd = ["app:\0", "app:{x}", "app:" + "y" * 9000, "app:\ud800", "app:ü", "key:key_1", "app:a", "app:'; --"]
        draws = [draw(number * 100, subject=name, kind=kind) for number, name in enumerate(odd) for kind in ("b", "a")]
        heard = await one.exchange(draws)
        assert heard.levels == [about(60 - one.used) for one in draws]
        heard = await one.exchange(draws[::-1])
        assert heard.levels == [about(60 - 2 * one.used) for one in draws[::-1]]

    run(url, scenario, 1)


def test_rates_below_one_and_huge_ones_are_kept(url):
    async def scenario(one):
        draws = [draw(1, per_min=0.01, level=1.0, subject="app:a"), draw(5, per_min=1e9, level=1e9, subject="app:b")]
        assert (await one.exchange(draws)).levels == [about(0), about(1e9 - 5, 10)]

    run(url, scenario, 1)


def test_the_processes_are_counted_and_who_leaves_is_not(url):
    async def scenario(one, other):
        assert await one.exchange([]) is not None
        assert (await other.exchange([])).processes == 2
        assert (await one.exchange([draw(1)])).processes == 2
        await other.aclose()
        assert (await one.exchange([])).processes == 1

    run(url, scenario)


def test_draws_at_the_same_moment_all_count(url):
    async def scenario(*places):
        names = [f"app:{number}" for number in range(30)]

        async def tell(place, order):
            for _ in range(5):
                await place.exchange([draw(100, subject=name, level=60) for name in order])

        await asyncio.gather(*(tell(place, names[::step]) for place, step in zip(places, (1, -1, 1, -1), strict=True)))
        heard = await places[0].exchange([draw(0, subject=name) for name in names])
        assert heard.levels == [about(-1940)] * 30

    run(url, scenario, 4)


def test_every_scheme_has_its_adapter_and_a_wrong_url_is_not_quoted():
    for scheme in ("postgres", "postgresql", "redis", "rediss", "valkey", "valkeys"):
        open_limits(f"{scheme}://host/{'db' if scheme.startswith('postgres') else '0'}")
    for wrong in ("mysql://user:secret@host/x", "postgresql://u:sec#ret@host/x", "redis://u:sec/ret@host/x"):
        with pytest.raises(ValueError, match=r"expected|unsupported") as caught:
            open_limits(wrong)
        assert "sec" not in str(caught.value)


def test_redis_keeps_one_hash_tag_no_secret_and_nothing_for_ever():
    server = own_redis()

    async def scenario(one):
        await one.exchange([draw(30, per_min=60), draw(2, subject="key:key_12ab", kind="tokens")])

    try:

        async def main():
            place = open_limits(server.url(prefix="mine"))
            await scenario(place)
            keys = {key.decode() for key in server.ask("KEYS", "*")}
            assert keys == {
                "{mine:limits}:processes",
                "{mine:limits}:requests:app:shop",
                "{mine:limits}:tokens:key:key_12ab",
            }
            assert 0 < server.ask("PTTL", "{mine:limits}:processes") <= 10_000
            assert 85_000 < server.ask("PTTL", "{mine:limits}:requests:app:shop") <= 90_000
            await place.aclose()
            assert "{mine:limits}:processes" not in {key.decode() for key in server.ask("KEYS", "*")}

        asyncio.run(main())
    finally:
        server.destroy()


def test_postgresql_forgets_full_buckets_and_processes_that_are_gone(monkeypatch):
    monkeypatch.setattr("gaugeway.storage.engines.postgres.documents._TIDY_EVERY_S", 0.0)
    url = postgres().database()

    async def scenario(one):
        await one.exchange([draw(1, subject="app:old"), draw(1)])
        postgres().ask(url, "UPDATE limit_levels SET at = at - interval '5 min' WHERE subject = 'app:old' RETURNING 1")
        postgres().ask(url, "INSERT INTO limit_processes VALUES ('old', now() - interval '5 min') RETURNING 1")
        assert (await one.exchange([draw(1)])).processes == 1
        assert postgres().ask(url, "SELECT subject FROM limit_levels") == [("app:shop",)]
        ((left,),) = postgres().ask(url, "SELECT id FROM limit_processes")
        assert left != "old"

    run(url, scenario, 1)


@pytest.mark.parametrize("engine", ["redis", "postgresql"])
def test_an_engine_that_is_gone_is_an_os_error_and_found_again_when_it_is_back(engine):
    server = own_redis() if engine == "redis" else own_server()
    url = server.url() if engine == "redis" else server.database()

    async def scenario(one):
        await one.exchange([draw(5)])
        server.stop()
        with pytest.raises(OSError, match=re.escape(f"127.0.0.1:{server.port}")) as caught:
            await one.exchange([draw(5)])
        assert "secret" not in str(caught.value)
        server.start()
        async with asyncio.timeout(60):
            while True:
                try:
                    heard = await one.exchange([draw(5)])
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        assert heard.processes == 1

    try:
        run(url, scenario, 1)
    finally:
        server.destroy()

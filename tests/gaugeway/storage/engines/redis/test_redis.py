"""Redis beyond the contract: losing it, a full queue, full memory, the keys of a cluster, secrets, many processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import trustme
from redis.crc import key_slot

from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.redis import connection as engine_module
from gaugeway.storage.engines.redis.connection import Engine, read_url
from gaugeway.storage.engines.redis.queue import DEPTH, RedisQueue, Shard
from gaugeway.storage.queues import Depth, from_url
from tests.support.redis import own_redis, redis_server

NOTHING = Depth(ready=0, leased=0, dead=0, oldest_started_at=None)


def sample(sample_id="a", started_at=1.0, **fields):
    return Sample(id=str(sample_id), started_at=started_at, **fields)


def samples(*numbers):
    return [sample(number, float(number)) for number in numbers]


def supplement(supplement_id, received_at=1.0):
    return Supplement(id=str(supplement_id), received_at=received_at, source="contexts", key="k")


def ids(leases):
    return [lease.sample.id for lease in leases]


def queue_of(url, lease_s=60.0, max_attempts=3):
    return contextlib.aclosing(RedisQueue.from_url(url, lease_s, max_attempts))


@contextlib.contextmanager
def server(**options):
    own = own_redis(**options)
    try:
        yield own
    finally:
        own.destroy()


def keys_left(url):
    """The keys of the queue that still hold something, and how much."""
    prefix = read_url(url).prefix
    found = {}
    for key in redis_server().ask("KEYS", f"{{{prefix}:*"):
        kind = redis_server().ask("TYPE", key).decode()
        found[key.decode().partition("}:")[2]] = redis_server().ask(
            {"stream": "XLEN", "hash": "HLEN", "zset": "ZCARD"}[kind], key
        )
    return {name: size for name, size in found.items() if size}


# --- where it is, and who may know ---


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://me:secret@db.example:6380/2", "redis://db.example:6380/2"),
        ("rediss://:secret@db.example?ssl_ca_certs=/ca.pem", "rediss://db.example"),
        ("valkey:///", "valkey://localhost"),
        ("valkeys://db.example:6380?shards=4&max_waiting=10&prefix=a", "valkeys://db.example:6380"),
    ],
)
def test_an_engine_is_named_without_user_password_and_options(url, name):
    assert read_url(url).name == name
    assert isinstance(from_url(url, 60.0, 3), RedisQueue)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://me:se/cret@db/0", "expected redis://"),
        ("redis://me:se#cret@db/0", "expected redis://"),
        ("redis://me:secret@db:x/0", "expected redis://"),
        ("redis://me:secret@db/first", "expected redis://"),
        ("redis://me:secret@db/?shards=0", "shards is a whole number from 1 to 1024"),
        ("redis://me:secret@db/?max_waiting=-1", "max_waiting is a whole number"),
        ("redis://me:secret@db/?prefix={a}", "prefix is made of"),
        (
            "redis://me:secret@db/?shard=4",
            "no option 'shard'.*known: cluster, max_waiting, prefix, shards, ssl_ca_certs",
        ),
        ("redis://me:secret@db/?cluster=yes", "cluster is true or false"),
        ("redis://me:secret@db/1?cluster=true", "no database but 0"),
        ("redis://me:secret@db/?ssl_ca_certs=/ca.pem", "ssl_ca_certs needs rediss://"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_quoting_it(url, said):
    with pytest.raises(ValueError, match=said) as refusal:
        from_url(url, 60.0, 3)
    assert "cret" not in str(refusal.value)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey"])
@pytest.mark.parametrize("options", ["", "?cluster=true"])
async def test_an_engine_that_is_not_there_is_told_without_the_password(scheme, options):
    async with queue_of(f"{scheme}://me:secret@127.0.0.1:9/0{options}") as queue:
        with pytest.raises(EngineError) as told:
            await queue.put([sample()])
        assert str(told.value).startswith(f"{scheme}://127.0.0.1:9/0: ")
        assert "secret" not in repr(told.value)


def test_a_password_opens_and_a_wrong_one_is_not_repeated():
    with server() as own:
        own.ask("CONFIG", "SET", "requirepass", "right-one")

        async def scenario():
            for password, opens in (("right-one", True), ("wrong-one", False)):
                async with queue_of(f"redis://:{password}@127.0.0.1:{own.port}") as queue:
                    if opens:
                        await queue.put([sample()])
                        continue
                    with pytest.raises(EngineError, match="password") as told:
                        await queue.put([sample()])
                    assert "wrong-one" not in repr(told.value)

        asyncio.run(scenario())


def test_tls_is_verified(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with server(tls=(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")) as own:

        async def scenario():
            known = f"rediss://:secret@127.0.0.1:{own.tls_port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}"
            own.ask("CONFIG", "SET", "requirepass", "secret")
            async with queue_of(known) as queue:
                await queue.put([sample()])
                assert ids(await queue.lease(1)) == ["a"]
            for url in (f"rediss://:secret@127.0.0.1:{own.tls_port}", known.replace("127.0.0.1", "localhost")):
                async with queue_of(url) as queue:
                    with pytest.raises(EngineError, match=r"(?i)certificate|hostname") as told:
                        await queue.depth()
                    assert "secret" not in repr(told.value)

        asyncio.run(scenario())


@pytest.mark.parametrize("cluster", [False, True])
def test_the_rights_that_the_guide_grants_are_enough(cluster, caplog):
    guide = (Path(__file__).parents[5] / "docs" / "how-to" / "run-with-redis.md").read_text("utf-8")
    rights = re.search(r"^user gaugeway on >PASSWORD (.*)$", guide, re.MULTILINE)[1].split()
    if cluster:
        rights += re.findall(r"\+\w+", re.search(r"^With `cluster=true` also `(.*)`", guide, re.MULTILINE)[1])
    with server(cluster=cluster, options={"maxmemory-policy": "allkeys-lru"}) as own:
        own.ask("ACL", "SETUSER", "gaugeway", "on", ">pw", *rights)
        url = f"redis://gaugeway:pw@127.0.0.1:{own.port}/0?max_waiting=5{'&cluster=true' if cluster else ''}"

        async def scenario():
            async with queue_of(url, lease_s=0.05, max_attempts=1) as queue:
                await queue.put(samples(*range(8)))
                await queue.supply([supplement(1)])
                assert len(await queue.lease(3)) == 3
                assert len(await queue.take(3)) == 1
                await asyncio.sleep(0.1)
                assert (await queue.depth()).dead == 3
                await queue.ack(["4"])
                await queue.ack_supplies(["1"])
                assert await queue.prune(1e9) == 4

        with caplog.at_level(logging.WARNING, "gaugeway"):
            asyncio.run(scenario())
        assert own.ask("ACL", "LOG") == []
    assert cluster or "set noeviction" in caplog.text


# --- losing it ---


async def test_while_the_engine_is_gone_one_call_at_a_time_knocks_and_the_others_fail_at_once():
    knocks = []

    async def hang_up(_, writer):
        knocks.append(time.monotonic())
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    engine = Engine(read_url(f"redis://127.0.0.1:{port}"), draw=lambda: 1.0)
    refused = []

    async def keep_asking():
        while time.monotonic() < end:
            with pytest.raises(EngineError) as told:
                await engine.run(engine_module.Script("return 1"), [], [])
            refused.append(str(told.value))
            await asyncio.sleep(0.01)

    end = time.monotonic() + 1.2
    await asyncio.gather(*(keep_asking() for _ in range(20)))
    listener.close()
    await engine.aclose()
    # Waits of 0.1, 0.2, 0.4 and 0.8 s: four knocks in 1.2 s, however many ask.
    assert 3 <= len(knocks) <= 5
    gaps = [later - earlier for earlier, later in pairwise(knocks)]
    assert gaps == sorted(gaps)
    assert len(refused) > 20 * len(knocks)


def test_a_killed_engine_that_logs_its_writes_forgets_nothing_that_it_took():
    with server(durable=True) as own:
        url = own.url()

        async def scenario():
            async with queue_of(url, lease_s=1.0, max_attempts=2) as queue:
                await queue.put(samples(*range(200)))
                await queue.supply([supplement("s")])
                held = await queue.lease(20)
                await queue.ack(ids(held)[:5])
                own.stop()
                with pytest.raises(EngineError):
                    await queue.put(samples(999))
                own.start()
                await asyncio.sleep(0.2)
                assert await queue.depth() == Depth(ready=180, leased=15, dead=0, oldest_started_at=5.0)
                await queue.put(samples(*range(100, 201)))  # again, as one does who got no answer
                await asyncio.sleep(1.0)
                again = await queue.lease(300)
                assert [(one.sample.id, one.attempt) for one in again] == [
                    *((str(number), 2) for number in range(5, 20)),
                    *((str(number), 1) for number in range(20, 201)),
                ]
                assert [one.id for one in await queue.take(9)] == ["s"]
                await asyncio.sleep(1.1)
                assert (await queue.depth()).dead == 15

        asyncio.run(scenario())


def test_an_engine_that_forgot_everything_is_used_as_a_new_one():
    with server() as own:

        async def scenario():
            async with queue_of(own.url()) as queue:
                await queue.put(samples(1, 2))
                await queue.lease(1)
                own.stop(signal.SIGTERM)
                own.start()
                assert await queue.depth() == NOTHING
                assert not await queue.lease(5)
                await queue.put(samples(1, 2, 3))
                assert ids(await queue.lease(5)) == ["1", "2", "3"]

        asyncio.run(scenario())


async def test_connections_that_were_ended_are_replaced_at_the_next_call():
    async with queue_of(redis_server().url()) as queue:
        await queue.put(samples(1))
        redis_server().ask("CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(0.05)
        assert (await queue.depth()).ready == 1


def test_an_engine_that_does_not_answer_is_given_up_on(monkeypatch):
    monkeypatch.setattr(engine_module, "COMMAND_S", 0.3)
    with server() as own:

        async def scenario():
            async with queue_of(own.url()) as queue:
                await queue.put(samples(1))
                own.send(signal.SIGSTOP)
                began = time.monotonic()
                with pytest.raises(EngineError):
                    await queue.put(samples(2))
                assert time.monotonic() - began < 1.5
                own.send(signal.SIGCONT)
                await asyncio.sleep(0.3)
                await queue.put(samples(2))  # whether or not the first one arrived
                assert ids(await queue.lease(5)) == ["1", "2"]

        asyncio.run(scenario())


def test_one_that_became_a_replica_is_left_for_whom_the_name_stands_for_next():
    with server() as own:

        async def scenario():
            async with queue_of(own.url()) as queue:
                await queue.put(samples(1))
                assert len(own.ask("CLIENT", "LIST").splitlines()) > 1
                own.ask("REPLICAOF", "127.0.0.1", "9")
                with pytest.raises(EngineError, match=r"(?i)read.?only"):
                    await queue.put(samples(2))
                async with asyncio.timeout(60):
                    while len(own.ask("CLIENT", "LIST").splitlines()) > 1:  # noqa: ASYNC110 - besides the one who asks
                        await asyncio.sleep(0.01)
                own.ask("REPLICAOF", "NO", "ONE")
                await asyncio.sleep(0.2)
                await queue.put(samples(2))
                assert (await queue.depth()).ready == 2

        asyncio.run(scenario())


# --- bounds ---


async def test_beyond_the_bound_the_oldest_go_and_are_counted_whether_or_not_anybody_looked_at_them(caplog):
    url = redis_server().url(max_waiting=10)

    with caplog.at_level(logging.WARNING, "gaugeway"):
        async with queue_of(url) as queue:
            await queue.put(samples(*range(8)))
            held = await queue.lease(3)
            await queue.put(samples(*range(8, 14)))
            assert await queue.depth() == Depth(ready=10, leased=0, dead=0, oldest_started_at=4.0, trimmed=4)
            await queue.ack(ids(held))  # they went while they were held, and had been evaluated after all
            await queue.put(samples(0))  # one that went may come again, and another goes
            assert ids(await queue.lease(99)) == [str(number) for number in [*range(5, 14), 0]]
            await queue.ack([str(number) for number in range(14)])
            assert await queue.depth() == Depth(ready=0, leased=0, dead=0, oldest_started_at=None, trimmed=5)
    assert [one.message for one in caplog.records] == [
        "queue full: dropped the 4 oldest samples unevaluated (last: samples)"
    ]
    assert keys_left(url) == {"counts": 1}


async def test_more_at_once_than_may_wait_leaves_the_youngest():
    async with queue_of(redis_server().url(max_waiting=3)) as queue:
        await queue.put(samples(*range(500)))
        assert ids(await queue.lease(9)) == ["497", "498", "499"]
        assert (await queue.depth()).trimmed == 497


async def test_dead_letters_and_supplements_are_bounded_too():
    url = redis_server().url(max_waiting=3)
    async with queue_of(url, lease_s=0.01, max_attempts=1) as queue:
        for number in range(5):
            await queue.put(samples(number))
            assert ids(await queue.lease(1)) == [str(number)]
            await asyncio.sleep(0.02)
        assert await queue.depth() == Depth(ready=0, leased=0, dead=3, oldest_started_at=None, trimmed=2)
    async with queue_of(url, lease_s=60.0) as queue:
        await queue.supply([supplement(number) for number in range(5)])
        assert [one.id for one in await queue.take(9)] == ["2", "3", "4"]


def test_an_engine_without_memory_takes_nothing_half_and_still_hands_out_what_it_has():
    with server(options={"maxmemory-policy": "noeviction"}) as own:
        large = [sample(number, response="x" * 10_000) for number in range(50)]

        async def scenario():
            async with queue_of(own.url(), lease_s=0.1, max_attempts=1) as queue:
                await queue.put(large[:20])
                assert ids(await queue.lease(1)) == ["0"]
                await asyncio.sleep(0.15)  # its attempts are used up, and there is no memory to set it aside
                own.ask("CONFIG", "SET", "maxmemory", "1")
                with pytest.raises(EngineError, match="maxmemory"):
                    await queue.put(large[20:])
                assert ids(await queue.lease(5)) == ["1", "2", "3", "4", "5"]
                await queue.ack(["1", "2", "3", "4", "5"])
                depth = await queue.depth()
                assert (depth.ready, depth.dead) == (15, 0)
                own.ask("CONFIG", "SET", "maxmemory", "0")
                await queue.put(large[20:])
                depth = await queue.depth()
                assert (depth.ready, depth.dead) == (44, 1)

        asyncio.run(scenario())


@pytest.mark.parametrize(("policy", "warnings"), [("allkeys-lru", 1), ("noeviction", 0), ("volatile-lru", 0)])
def test_an_engine_that_forgets_when_memory_is_short_is_warned_of_once(policy, warnings, caplog):
    with server(options={"maxmemory-policy": policy}) as own:

        async def scenario():
            async with queue_of(own.url()) as queue:
                await queue.depth()
                await queue.depth()

        with caplog.at_level(logging.WARNING, "gaugeway"):
            asyncio.run(scenario())
    assert len([one for one in caplog.records if "noeviction" in one.message]) == warnings


@contextlib.asynccontextmanager
async def engine_of_release(release):
    """An engine that says it is of this release, and answers every script with 1."""
    hello = b"%1\r\n$5\r\nproto\r\n:3\r\n"

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                count = int((await reader.readuntil(b"\r\n"))[1:])
                words = []
                for _ in range(count):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                facts = f"redis_version:{release}\r\n".encode()
                bulk = b"$%d\r\n%s\r\n" % (len(facts), facts)
                writer.write({b"INFO": bulk, b"EVALSHA": b":1\r\n", b"HELLO": hello}.get(words[0], b"+OK\r\n"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        engine = Engine(read_url(f"redis://:secret@127.0.0.1:{port}"))
        try:
            yield engine
        finally:
            await engine.aclose()


@pytest.mark.parametrize("release", ["5.0.7", "6.0.16"])
async def test_a_release_that_is_too_old_is_refused_in_words(release):
    async with engine_of_release(release) as engine:
        said = f"^redis://127.0.0.1:[0-9]+: needs release 6.2 or later, this is {release}$"
        with pytest.raises(EngineError, match=said):
            await engine.run(DEPTH, (), ())


@pytest.mark.parametrize("release", ["6.2.0", "10.0.0"])
async def test_a_release_that_is_new_enough_is_used(release):
    async with engine_of_release(release) as engine:
        assert await engine.run(DEPTH, (), ()) == 1


# --- a cluster ---


def test_all_keys_of_a_shard_are_in_one_slot_and_shards_are_not():
    slots = [{key_slot(key.encode()) for key in Shard("gaugeway", number).keys} for number in range(16)]
    assert all(len(some) == 1 for some in slots)
    assert len(set.union(*slots)) == 16


@pytest.mark.parametrize("options", [{}, {"cluster": "true"}], ids=["client of one node", "client of a cluster"])
def test_a_cluster_accepts_every_command_of_a_queue_in_shards(options):
    """The engine itself refuses what touches two slots, and a script that uses a key it was not told of."""
    with server(cluster=True) as own:

        async def scenario():
            async with queue_of(own.url(shards=5, **options), lease_s=0.2, max_attempts=1) as queue:
                await queue.put([*samples(*range(100)), *samples(*range(50))])
                await queue.supply([supplement(number) for number in range(30)])
                assert await queue.depth() == Depth(ready=100, leased=0, dead=0, oldest_started_at=0.0)
                held = [*await queue.lease(40), *await queue.lease(99)]
                assert sorted(ids(held), key=int) == [str(number) for number in range(100)]
                await queue.ack(ids(held)[:60])
                taken = await queue.take(99)
                assert len(taken) == 30
                await queue.ack_supplies([one.id for one in taken])
                await asyncio.sleep(0.25)
                assert not await queue.lease(99)
                assert (await queue.depth()).dead == 40
                assert await queue.prune(1000.0) == 40
                assert await queue.depth() == NOTHING
                assert not await queue.take(9)

        asyncio.run(scenario())


def shards_of(url, count):
    return [Shard(read_url(url).prefix, number) for number in range(count)]


def waiting(shard):
    """The ids of the samples in a shard."""
    return {one.decode() for one in redis_server().ask("HKEYS", shard.waiting[1])}


async def test_no_shard_waits_for_the_others_to_be_empty():
    url = redis_server().url(shards=4)

    async with queue_of(url) as queue:
        await queue.put(samples(*range(400)))
        held = [waiting(shard) for shard in shards_of(url, 4)]
        assert min(map(len, held)) > 60
        first = [ids(await queue.lease(10)) for _ in range(4)]
        assert all(any(one in some for leased in first for one in leased) for some in held)


async def test_a_shard_that_fails_takes_nothing_of_what_the_others_give():
    url = redis_server().url(shards=3)

    async with queue_of(url) as queue:
        await queue.put(samples(*range(90)))
        broken = shards_of(url, 3)[1]
        mine = len(waiting(broken))
        assert 0 < mine < 90
        redis_server().ask("SET", broken.waiting[0], "no stream")
        assert len(await queue.lease(99)) == 90 - mine
        with pytest.raises(EngineError, match="wrong kind"):
            await queue.lease(99)


# --- what is in it ---


async def test_what_cannot_be_read_is_set_aside_with_the_reason_and_the_others_are_handed_out():
    url = redis_server().url()

    def raw(entries):
        return [(entry, [part for pair in fields.items() for part in pair]) for entry, fields in entries]

    async with queue_of(url) as queue:
        await queue.put(samples(1, 2, 3))
        await queue.supply([supplement(1), supplement(2)])
        (tag,) = shards_of(url, 1)
        for stream, ids_key, since in (tag.waiting, tag.supplies):
            for name, body in (
                ("odd", b"\xff{"),
                ("other", b'{"id":"x","started_at":1,"received_at":1,"source":""}'),
            ):
                entry = redis_server().ask("XADD", stream, "*", "id", name, "at", "9", "body", body)
                redis_server().ask("HSET", ids_key, name, entry)
                redis_server().ask("ZADD", since, "9", name)
        redis_server().ask("XADD", tag.waiting[0], "*", "foreign", "entry")
        assert ids(await queue.lease(3)) == ["1", "2", "3"]
        assert not await queue.lease(9)
        assert (await queue.depth()).dead == 3
        reasons = [fields[9].decode() for _, fields in raw(redis_server().ask("XRANGE", tag.dead[0], "-", "+"))]
        assert all(one.startswith("unreadable: ") for one in reasons)
        assert "the payload belongs to another sample" in reasons[1]
        assert [one.id for one in await queue.take(9)] == ["1", "2"]
        await queue.ack(["1", "2", "3", "odd", "other", "entry"])
        await queue.ack_supplies(["1", "2"])
    assert keys_left(url) == {}


async def test_what_is_old_and_not_held_is_pruned_in_batches_and_what_is_held_stays():
    url = redis_server().url()

    async with queue_of(url, max_attempts=1) as queue:
        await queue.put(samples(*range(1300)))
        held = ids(await queue.lease(700))
        await queue.supply([supplement(number, float(number)) for number in range(10)])
        assert await queue.prune(1200.0) == 500
        assert await queue.depth() == Depth(ready=100, leased=700, dead=0, oldest_started_at=0.0)
        assert await queue.prune(1200.0) == 0
        assert not await queue.take(9)
        await queue.ack(held)
        assert await queue.prune(1e12) == 100
    assert keys_left(url) == {}


async def test_leases_are_ended_by_the_engines_clock():
    async with queue_of(redis_server().url(), lease_s=0.3) as queue:
        await queue.put(samples(1))
        assert ids(await queue.lease(1)) == ["1"]
        assert not await queue.lease(1)
        await asyncio.sleep(0.35)
        (again,) = await queue.lease(1)
        assert again.attempt == 2


async def test_however_many_leases_end_at_once_all_are_handed_out_again_and_set_aside():
    async with queue_of(redis_server().url(), lease_s=0.5, max_attempts=2) as queue:
        await queue.put(samples(*range(250)))
        for attempt in (1, 2):
            leases = await queue.lease(999)
            assert [(one.sample.id, one.attempt) for one in leases] == [(str(n), attempt) for n in range(250)]
            await asyncio.sleep(0.55)
        await queue.put(samples(250))
        assert ids(await queue.lease(999)) == ["250"]
        assert (await queue.depth()).dead == 250


WORKER = """
import asyncio, sys
from gaugeway.storage.engines.redis.queue import RedisQueue

async def main():
    queue = RedisQueue.from_url(sys.argv[1], float(sys.argv[2]), 5)
    idle = 0
    while idle < 40:
        leases = await queue.lease(7)
        idle = 0 if leases else idle + 1
        for lease in leases:
            print(lease.sample.id, lease.attempt, flush=True)
        await asyncio.sleep(0.01)
        await queue.ack([lease.sample.id for lease in leases])
    await queue.aclose()

asyncio.run(main())
"""


def worker(url, lease_s=60.0):
    return subprocess.Popen([sys.executable, "-c", WORKER, url, str(lease_s)], stdout=subprocess.PIPE, text=True)


def fill(url, count):
    async def filled():
        async with queue_of(url) as queue:
            await queue.put(samples(*range(count)))

    asyncio.run(filled())


def test_two_processes_never_get_the_same_sample():
    url = redis_server().url()
    fill(url, 2000)
    workers = [worker(url) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in workers]
    assert [process.returncode for process in workers] == [0, 0]
    assert min(map(len, outputs)) > 100
    assert sorted(line for output in outputs for line in output) == sorted(f"{number} 1" for number in range(2000))
    assert keys_left(url) == {}


def test_what_a_killed_process_held_goes_to_another_when_its_lease_ends():
    url = redis_server().url()
    fill(url, 300)
    first = worker(url, 0.3)
    for _ in range(50):
        assert first.stdout.readline()
    first.kill()
    first.communicate()
    output, _ = worker(url, 0.3).communicate(timeout=60)
    again = [line for line in output.splitlines() if line.endswith(" 2")]
    assert len(again) <= 7
    assert keys_left(url) == {}

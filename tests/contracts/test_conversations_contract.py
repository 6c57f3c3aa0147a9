"""Joining exchanges to conversations through each store: by any process, in any order of arrival."""

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Evaluation, Links, Sample, Score, ToolCall
from gaugeway.storage.conversations import KEPT_S, MOST_CANDIDATES, WINDOW_S, Lookup, Move, linked
from gaugeway.storage.erase import Subject
from gaugeway.storage.stores import Query, from_url
from monitors.evaluation.conversations import ConversationJoiner
from monitors.evaluation.persist import Persistence, WorkerObserver
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres

LONG = 500
NOW = 1_000_000.0


@pytest.fixture(params=["sqlite", "postgresql", "clickhouse"])
def run(request, tmp_path):
    engines = {"postgresql": postgres, "clickhouse": clickhouse}
    url = f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else engines[request.param]().database()

    def run(scenario, stores=1):
        async def main():
            opened = [from_url(url) for _ in range(stores)]
            try:
                return await scenario(*opened)
            finally:
                for store in opened:
                    await store.aclose()

        return asyncio.run(main())

    return run


def exchange(name, follows=None, *gives, at=0.0, length=LONG, sample=None, **links):
    """An exchange that begins `at` seconds after NOW and takes one second."""
    fields = {"id": name, "started_at": NOW + at, "duration_s": 1.0} | (sample or {})
    return Sample(**fields, links=Links(follows=follows, gives=gives, length=length, **links))


def joiner(store):
    counts = {}
    observer = WorkerObserver()
    observer.linked = lambda result, n: counts.update({result: counts.get(result, 0) + n})
    persistence = Persistence(MemoryQueue(), store, on_error=lambda _: None, stopping=asyncio.Event())
    made = ConversationJoiner(store, persistence, observer)
    made.counts = counts
    return made


async def places(store, names):
    return {one.id: tuple(one.place[:3]) for one in await store.links(list(names))}


def conversation(turns=4):
    """A conversation whose texts are all its own."""
    said = [exchange("0", None, "t:0", at=0.0)]
    said += [exchange(str(n), f"t:{n - 1}", f"t:{n}", at=10.0 * n, turn=n + 1) for n in range(1, turns)]
    return said


def test_links_are_kept_once_and_found_by_key_and_time(run):
    async def scenario(store):
        ones = [linked(exchange(str(n), None, "t:x", at=float(n))) for n in range(5)]
        await store.link(ones)
        await store.link([replace(ones[0], calls=7)])
        assert sorted(await store.links(["0", "1", "none"]), key=lambda one: one.id) == ones[:2]
        key, other = Lookup("default", "g:t:x", NOW + 1.0, NOW + 3.0), Lookup("other", "g:t:x", 0.0, 1e12)
        found = await store.linked([key, other, key])
        assert [one.id for one in found[key]] == ["3", "2", "1"]
        assert list(found[other]) == []
        assert await store.linked([]) == {}

    run(scenario)


def test_no_more_are_found_than_one_too_many(run):
    async def scenario(store):
        await store.link([linked(exchange(f"{n:03}", None, "t:x", at=float(n))) for n in range(MOST_CANDIDATES + 20)])
        lookup = Lookup("default", "g:t:x", 0.0, 1e12)
        found = (await store.linked([lookup]))[lookup]
        assert [one.id for one in found] == [f"{n:03}" for n in range(MOST_CANDIDATES + 19, 18, -1)]

    run(scenario)


def test_an_exchange_is_moved_with_its_sample_and_scores_unless_it_was_moved_meanwhile(run):
    async def scenario(store):
        sample = replace(exchange("a", None, "t:x"), links=None, cluster="u:1 q:2", conversation="a", turn=1, hop=1)
        one = linked(exchange("a", None, "t:x", sample={"cluster": "u:1 q:2"}))
        await store.link([one])
        await store.add(sample, [Evaluation(sample_id="a", metric="m", version="1", outcome=Score(0.5))])
        moved = replace(one, place=one.place._replace(conversation="c", turn=3, hop=2, before="b"), named=True)
        assert list(await store.place([Move(moved, None)])) == []
        found = await store.sample("a")
        assert (found[0].conversation, found[0].turn, found[0].hop) == ("c", 3, 2)
        assert [evaluation.outcome for evaluation in found[1]] == [Score(0.5)]
        (point,) = await store.series(Query(since=0.0, until=1e12))
        assert point.cluster == "s:c u:1 q:2"
        assert list(await store.links(["a"])) == [moved]
        again = replace(moved, place=moved.place._replace(conversation="d", before="e"))
        assert list(await store.place([Move(again, None)])) == ["a"]
        assert list(await store.links(["a"])) == [moved]
        assert list(await store.place([Move(again, "b")])) == []
        assert (await store.sample("a"))[0].conversation == "d"

    run(scenario)


def test_old_links_are_pruned(run):
    async def scenario(store):
        old, young = exchange("old", None, "t:x"), exchange("young", None, "t:x")
        now = time.time()
        old, young = (replace(one, started_at=at) for one, at in ((old, now - KEPT_S - 2 * WINDOW_S), (young, now)))
        await store.link([linked(old), linked(young)])
        await store.prune(0.0)
        assert [one.id for one in await store.links(["old", "young"])] == ["young"]
        lookup = Lookup("default", "g:t:x", 0.0, 1e12)
        assert [one.id for one in (await store.linked([lookup]))[lookup]] == ["young"]

    run(scenario)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::3])
def test_exchanges_are_joined_whatever_their_order_of_arrival(run, order):
    async def scenario(store):
        one = joiner(store)
        for index in order:
            await one.join([conversation()[index]])
        assert await places(store, "0123") == {str(n): ("0", n + 1, 1) for n in range(4)}

    run(scenario)


def test_one_batch_is_joined_as_well(run):
    async def scenario(store):
        found = await joiner(store).join(conversation())
        assert [(one.conversation, one.turn, one.hop) for one in found] == [("0", n + 1, 1) for n in range(4)]
        assert [one.cluster for one in found] == ["s:0"] * 4

    run(scenario)


def test_several_processes_join_what_arrives_at_the_same_moment(run):
    async def scenario(*stores):
        chains = [
            [
                exchange(f"{c}.{n}", f"t:{c}.{n - 1}" if n else None, f"t:{c}.{n}", at=10.0 * n, turn=n + 1)
                for n in range(6)
            ]
            for c in range(8)
        ]
        joiners = [joiner(store) for store in stores]
        work = [one for chain in zip(*chains, strict=True) for one in chain]
        await asyncio.gather(*(joiners[index % len(joiners)].join([one]) for index, one in enumerate(reversed(work))))
        found = await places(stores[0], [one.id for one in work])
        assert found == {f"{c}.{n}": (f"{c}.0", n + 1, 1) for c in range(8) for n in range(6)}

    run(scenario, stores=3)


def test_what_is_forgotten_is_found_under_no_key_any_more(run):
    async def scenario(store):
        for name, session in (("hers", "s-1"), ("his", "s-2")):
            await store.link([linked(exchange(name, None, "t:x"))])
            await store.add(replace(exchange(name, None, sample={"session": session}), links=None), [])
        await store.forget(Subject(session="s-1"))
        lookup = Lookup("default", "g:t:x", 0.0, 1e12)
        assert [one.id for one in (await store.linked([lookup]))[lookup]] == ["his"]

    run(scenario)


def test_the_samples_of_a_conversation_come_in_order(run):
    async def scenario(store):
        for number in (2, 0, 1):
            sample = exchange(str(number), None, at=float(number), sample={"conversation": "c", "turn": 1, "hop": 1})
            await store.add(replace(sample, links=None), [])
        await store.add(replace(exchange("other", None, sample={"conversation": "d"}), links=None), [])
        assert [one.id for one in await store.conversation("c")] == ["0", "1", "2"]
        assert [one.id for one in await store.conversation("c", 2)] == ["1", "2"]
        assert list(await store.conversation("none")) == []

    run(scenario)


def test_silent_conversations_are_those_without_a_later_sample(run):
    async def scenario(store):
        for name, conversation, at in (
            ("0", "over", 0.0),
            ("1", "over", 100.0),
            ("2", "goes on", 90.0),
            ("3", "goes on", 300.0),
            ("4", "earlier", -50.0),
            ("5", "the next day", 86_400.0),
            ("6", None, 100.0),
        ):
            sample = exchange(name, None, at=at, sample={"conversation": conversation})
            await store.add(replace(sample, links=None), [])
        assert list(await store.silent(NOW, NOW + 200.0)) == ["over"]
        assert sorted(await store.silent(NOW - 100.0, NOW + 200.0)) == ["earlier", "over"]
        assert list(await store.silent(NOW, NOW + 100.0)) == []
        assert sorted(await store.silent(NOW + 200.0, NOW + 90_000.0)) == ["goes on", "the next day"]

    run(scenario)


def test_a_sample_that_is_delivered_again_stays_where_it_is(run):
    async def scenario(store):
        one = joiner(store)
        for sample in (*conversation(), conversation()[2], conversation()[0]):
            await one.join([sample])
        assert await places(store, "0123") == {str(n): ("0", n + 1, 1) for n in range(4)}

    run(scenario)


def test_the_first_answer_gets_the_name_of_the_conversation_once_it_goes_on(run):
    async def scenario(store):
        one = joiner(store)
        (first,) = await one.join([conversation()[0]])
        assert (first.conversation, first.cluster) == ("0", None)
        await store.add(first, [Evaluation(sample_id="0", metric="m", version="1", outcome=Score(0.5))])
        await one.join([conversation()[1]])
        (point,) = await store.series(Query(since=0.0, until=1e12))
        assert point.cluster == "s:0"
        assert (await one.current([first]))[0].cluster == "s:0"

    run(scenario)


def test_a_late_twin_takes_back_a_join_that_is_no_longer_certain(run):
    async def scenario(store):
        one = joiner(store)
        await one.join([exchange("a", None, "t:canned", at=0.0), exchange("y", "t:canned", "t:y", at=20.0, turn=2)])
        await one.join([exchange("z", "t:y", "t:z", at=30.0, turn=3)])
        assert await places(store, "ayz") == {"a": ("a", 1, 1), "y": ("a", 2, 1), "z": ("a", 3, 1)}
        await one.join([exchange("b", None, "t:canned", at=5.0)])
        assert await places(store, "abyz") == {"a": ("a", 1, 1), "b": ("b", 1, 1), "y": ("y", 2, 1), "z": ("y", 3, 1)}

    run(scenario)


def test_an_answer_that_is_asked_for_again_is_another_one_of_the_same_turn(run):
    async def scenario(store):
        first, second = conversation(2)
        again = exchange("1b", "t:0", "t:1b", at=15.0, turn=2)
        for sample in (first, second, again, exchange("2", "t:1b", "t:2", at=20.0, turn=3)):
            await joiner(store).join([sample])
        found = await places(store, ["0", "1", "1b", "2"])
        assert found == {"0": ("0", 1, 1), "1": ("0", 2, 1), "1b": ("0", 2, 1), "2": ("0", 3, 1)}

    run(scenario)


def test_apps_are_never_joined(run):
    async def scenario(store):
        one = joiner(store)
        await one.join([exchange("a", None, "t:0", sample={"app": "shop"})])
        (found,) = await one.join([exchange("b", "t:0", "t:1", at=10.0, turn=2, sample={"app": "rival"})])
        assert (found.conversation, one.counts) == ("b", {"first": 1, "missing": 1})

    run(scenario)


def test_tool_loops_are_hops_of_one_turn_and_sub_agents_are_inside(run):
    async def scenario(store):
        trace = {"trace_id": "t" * 32, "prompt": "agent"}
        call = (ToolCall(name="ask", arguments="{}"),)
        a1 = exchange("a1", None, "c:1", sample={**trace, "calls": call}, arguments=("q:sub",))
        b1 = exchange("b1", None, "c:2", at=2.0, asked=("q:sub",), sample={**trace, "prompt": "sub", "calls": call})
        b2 = exchange("b2", "c:2", "t:2", at=4.0, length=10_000, within_turn=True, hop=2, sample=trace)
        a2 = exchange("a2", "c:1", "t:3", at=6.0, length=10_000, within_turn=True, hop=2, sample=trace)
        expected = {"a1": ("a1", 1, 1), "b1": ("a1", 1, 2), "b2": ("a1", 1, 3), "a2": ("a1", 1, 2)}
        for order in ([a1, b1, b2, a2], [a2, b2, b1, a1], [b1, a1, a2, b2]):
            one = joiner(store)
            renamed = [replace(sample, app=str(order.index(a1))) for sample in order]
            ids = {sample.id: f"{sample.app}{sample.id}" for sample in renamed}
            for sample in renamed:
                await one.join([replace(sample, id=ids[sample.id])])
            found = await places(store, ids.values())
            assert {name: (found[new][0][1:], *found[new][1:]) for name, new in ids.items()} == expected

    run(scenario)

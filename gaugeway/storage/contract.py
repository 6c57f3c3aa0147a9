"""What every storage engine promises, as pytest classes: subclass them, and give a fixture `url` of an empty storage.

@pytest.fixture
def url(tmp_path):
    return f"mine://{tmp_path}"

class TestStore(StoreContract): ...
class TestQueue(QueueContract): ...
class TestDocuments(DocumentsContract): ...
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped, Supplement
from gaugeway.storage import queues, stores
from gaugeway.storage.documents import Draw
from gaugeway.storage.engine import adapter
from gaugeway.storage.engines.failures import RefusedError
from gaugeway.storage.erase import Subject
from gaugeway.storage.keys import Keys
from gaugeway.storage.stores import Query
from gaugeway.storage.templates import StoredTemplate, Templates

EVER = Query(since=0.0, until=1e12)
LEASE_S = 0.2


def run(opened: Any, scenario: Callable[[Any], Awaitable[None]]) -> None:
    """Run a scenario with what was opened, and close it."""

    async def main() -> None:
        async with contextlib.aclosing(opened):
            await scenario(opened)

    asyncio.run(main())


def sample(name: str, started_at: float = 1.0, **fields: Any) -> Sample:
    """A sample with an answer."""
    return Sample(id=name, started_at=started_at, response="Yes.", **fields)


def evaluation(name: str, outcome: Score | Skipped | Failed, metric: str = "faithfulness") -> Evaluation:
    """An evaluation of the sample with this id."""
    return Evaluation(sample_id=name, metric=metric, version="1", outcome=outcome)


def said_of_another() -> list[Supplement]:
    """Supplements about the exchange "kept"; two name the key "k" or the trace "t" besides."""
    beside: dict[str, dict[str, Any]] = {
        "another": {"trace_id": "u", "key": "l"},
        "by key": {"key": "k"},
        "by trace": {"trace_id": "t"},
        "none": {},
    }
    return [
        Supplement(id=name, received_at=2.0, source="feedback", exchange_id="kept", **ids)
        for name, ids in beside.items()
    ]


class StoreContract:
    """What a store promises."""

    def test_what_is_added_is_new_once_and_read_as_it_was(self, url: str) -> None:
        async def scenario(store: stores.EngineStore) -> None:
            some = [evaluation("a", Score(0.5, "why", ({"n": 1},))), evaluation("a", Failed("timeout"), "other")]
            assert await store.add(sample("a", session="s"), some) == some
            assert await store.add(sample("a", session="s"), some) == []
            found = await store.sample("a")
            assert found is not None
            assert found[0] == sample("a", session="s")
            assert list(found[1]) == some
            assert await store.sample("b") is None

        run(stores.from_url(url), scenario)

    def test_an_outcome_takes_the_place_of_a_skip(self, url: str) -> None:
        async def scenario(store: stores.EngineStore) -> None:
            await store.add(sample("a"), [evaluation("a", Skipped("no_contexts"))])
            for outcome in (Score(0.5), Skipped("no_contexts"), Score(0.9)):
                await store.add(sample("a"), [evaluation("a", outcome)])
            assert [(point.outcome, point.value) for point in await store.series(EVER)] == [("score", 0.5)]

        run(stores.from_url(url), scenario)

    def test_an_evaluation_of_another_sample_is_refused_and_nothing_is_stored(self, url: str) -> None:
        async def scenario(store: stores.EngineStore) -> None:
            (refused,) = await store.add_each([(sample("a"), [evaluation("b", Score(0.5))])])
            assert isinstance(refused, RefusedError)
            assert await store.sample("a") is None

        run(stores.from_url(url), scenario)

    def test_a_query_selects_and_orders_points(self, url: str) -> None:
        async def names(store: stores.EngineStore, **query: Any) -> list[str]:
            return [point.sample_id for point in await store.series(Query(**{"since": 0.0, "until": 1e12} | query))]

        async def scenario(store: stores.EngineStore) -> None:
            for place, name in enumerate("abcd"):
                shown = sample(
                    name, place + 1.0, app="ab"[place % 2], model="m", question=f"Why {name}?", tags={"t": name}
                )
                await store.add(shown, [evaluation(name, Score([0.9, 0.1, 0.5, 0.7][place]))])
            assert await names(store) == ["a", "b", "c", "d"]
            assert await names(store, order="newest", limit=3) == ["d", "c", "b"]
            assert await names(store, order="lowest") == ["b", "c", "d", "a"]
            assert await names(store, order="highest", limit=1) == ["a"]
            assert await names(store, since=2.0, until=4.0) == ["b", "c"]
            assert await names(store, app="a") == ["a", "c"]
            assert await names(store, metric="none") == await names(store, without=("faithfulness",)) == []
            assert await names(store, least=0.5, most=0.7) == ["c", "d"]
            assert await names(store, tag=("t", "d")) == await names(store, text="WHY D") == ["d"]

        run(stores.from_url(url), scenario)

    def test_sums_and_outcomes_count_every_evaluation_once(self, url: str) -> None:
        async def scenario(store: stores.EngineStore) -> None:
            await store.add(sample("a"), [evaluation("a", Score(0.5)), evaluation("a", Failed("timeout"), "other")])
            await store.add(sample("b"), [evaluation("b", Score(1.0)), evaluation("b", Skipped("why"), "other")])
            found = {summary.metric: summary for summary in await store.summary(EVER)}
            assert (found["faithfulness"].n, found["faithfulness"].wx, found["faithfulness"].w2x2) == (2, 1.5, 1.25)
            assert found["other"].failed == 1
            counted = {(count.metric, count.outcome, count.reason): count.n for count in await store.outcomes(EVER)}
            assert counted == {
                ("faithfulness", "score", ""): 2,
                ("other", "failed", "timeout"): 1,
                ("other", "skipped", "why"): 1,
                ("", "score", ""): 2,
            }
            (paired,) = [sums for sums in await store.paired(EVER, "faithfulness") if sums.metric == "other"]
            assert paired.missing == 2

        run(stores.from_url(url), scenario)

    def test_what_is_said_about_a_sample_finds_it_and_labels_its_scores(self, url: str) -> None:
        async def scenario(store: stores.EngineStore) -> None:
            known = sample("a", trace_id="t", app="shop", question="Why?")
            await store.add(known, [evaluation("a", Score(0.25))])
            said = Supplement(id="s", received_at=2.0, source="feedback", trace_id="t", rating=1.0, app="shop")
            other = Supplement(id="o", received_at=3.0, source="feedback", trace_id="t", rating=0.0, app="rival")
            assert await store.supplement([said, other]) == [known]
            assert list(await store.supplements_of(known)) == [said]
            assert [(label.value, label.rating) for label in await store.ratings(EVER)] == [(0.25, 1.0)]
            assert await store.questions(["a", "none"]) == {"a": "Why?"}

        run(stores.from_url(url), scenario)

    def test_what_is_old_or_about_a_person_is_deleted(self, url: str) -> None:
        day = 86_400.0

        async def scenario(store: stores.EngineStore) -> None:
            for name, at in (("old", 1.0), ("mine", 5 * day), ("kept", 6 * day)):
                await store.add(sample(name, at, session=name), [evaluation(name, Score(0.5))])
            assert await store.prune(2 * day) == 1
            counts = {"samples": 1, "evaluations": 1, "supplements": 0}
            assert await store.forget(Subject(session="mine"), dry_run=True) == counts
            assert await store.forget(Subject(session="mine")) == counts
            assert [point.sample_id for point in await store.series(EVER)] == ["kept"]

        run(stores.from_url(url), scenario)

    def test_what_names_a_person_by_any_id_is_deleted(self, url: str) -> None:
        """A supplement is joined by the first id it names, and erased by each."""

        async def scenario(store: stores.EngineStore) -> None:
            await store.add(sample("mine", session="mine", trace_id="t", context_key="k"), [])
            await store.add(sample("kept", trace_id="u", context_key="l"), [])
            await store.supplement(said_of_another())
            counts = {"samples": 1, "evaluations": 0, "supplements": 2}
            assert await store.forget(Subject(session="mine"), dry_run=True) == counts
            assert await store.forget(Subject(session="mine")) == counts
            assert [name for name, _ in await store.said("", 10)] == ["another", "none"]

        run(stores.from_url(url), scenario)

    def test_states_are_saved_together_and_a_store_can_be_copied(self, url: str) -> None:
        async def scenario(store: stores.EngineStore) -> None:
            await store.save({"a": b"1", "b": b"\0"})
            await store.save({"a": b"2"})
            assert await store.load() == {"a": b"2", "b": b"\0"}
            for name in "abc":
                await store.add(sample(name), [evaluation(name, Score(0.5))])
            first = await store.ids("", 2)
            assert [*first, *await store.ids(first[-1], 2)] == ["a", "b", "c"]
            assert await store.holds(["a", "none"]) == {"a": 1}
            said = Supplement(id="s", received_at=2.0, source="feedback", exchange_id="a", rating=1.0)
            await store.supplement([said])
            assert list(await store.said("", 10)) == [("s", said)]

        run(stores.from_url(url), scenario)


class QueueContract:
    """What a queue promises."""

    def test_a_sample_is_handed_out_until_it_is_acknowledged(self, url: str) -> None:
        async def scenario(queue: queues.Queue) -> None:
            await queue.put([sample("a"), sample("b", 2.0)])
            await queue.put([sample("a", 9.0)])
            assert [lease.sample for lease in await queue.lease(1)] == [sample("a")]
            assert [lease.sample.id for lease in await queue.lease(9)] == ["b"]
            assert list(await queue.lease(9)) == []
            await queue.ack(["a"])
            await asyncio.sleep(2 * LEASE_S)
            assert [(lease.sample.id, lease.attempt) for lease in await queue.lease(9)] == [("b", 2)]

        run(queues.from_url(url, LEASE_S, 3), scenario)

    def test_after_its_attempts_a_sample_is_set_aside(self, url: str) -> None:
        async def scenario(queue: queues.Queue) -> None:
            await queue.put([sample("a"), sample("b", 2.0)])
            await queue.set_aside("b", "why")
            assert len(await queue.lease(9)) == 1
            await asyncio.sleep(2 * LEASE_S)
            depth = await queue.depth()
            assert (depth.ready, depth.leased, depth.dead, depth.oldest_started_at) == (0, 0, 2, None)

        run(queues.from_url(url, LEASE_S, 1), scenario)

    def test_supplements_are_taken_and_acknowledged(self, url: str) -> None:
        async def scenario(queue: queues.Queue) -> None:
            said = [Supplement(id=name, received_at=1.0, source="feedback", key="k", rating=1.0) for name in "ab"]
            await queue.supply(said)
            assert list(await queue.take(9)) == said
            await queue.ack_supplies(["a"])
            await asyncio.sleep(2 * LEASE_S)
            assert [supplement.id for supplement in await queue.take(9)] == ["b"]

        run(queues.from_url(url, LEASE_S, 3), scenario)

    def test_what_is_old_or_about_a_person_is_deleted_from_the_queue(self, url: str) -> None:
        async def scenario(queue: queues.Queue) -> None:
            await queue.put([sample("old"), sample("mine", 10.0, session="mine"), sample("kept", 11.0)])
            assert await queue.prune(5.0) == 1
            counts = {"queued samples": 1, "dead letters": 0, "queued supplements": 0}
            assert await queue.forget(Subject(session="mine")) == counts
            assert [lease.sample.id for lease in await queue.lease(9)] == ["kept"]

        run(queues.from_url(url, LEASE_S, 3), scenario)

    def test_what_names_a_person_by_any_id_is_deleted_from_the_queue(self, url: str) -> None:
        async def scenario(queue: queues.Queue) -> None:
            await queue.put([sample("mine", session="mine", trace_id="t", context_key="k")])
            await queue.supply(said_of_another())
            counts = {"queued samples": 1, "dead letters": 0, "queued supplements": 2}
            assert await queue.forget(Subject(session="mine")) == counts
            assert {supplement.id for supplement in await queue.take(9)} == {"another", "none"}

        run(queues.from_url(url, LEASE_S, 3), scenario)


class DocumentsContract:
    """What documents promise; a subclass leaves out what the engine does not keep by `keeps`."""

    keeps: frozenset[str] = frozenset({"keys", "limits", "templates"})

    def test_keys_are_read_again_only_after_a_change(self, url: str) -> None:
        async def scenario(keys: Keys) -> None:
            key, _ = await keys.create(app="shop", now=1.0)
            revision, found = await keys.changed(None)
            assert found == [key]
            assert await keys.changed(revision) == (revision, None)
            assert await keys.revoke(key.id, 2.0)
            assert not await keys.revoke("none", 2.0)
            assert [key.revoked_at for key in await keys.keys()] == [2.0]

        if "keys" in self.keeps:
            run(Keys(adapter(url, "keys").from_url(url)), scenario)

    def test_spending_adds_up(self, url: str) -> None:
        async def scenario(keys: Keys) -> None:
            await keys.spend({(7, "app:a"): 1.0, (6, "app:a"): 9.0}, 7)
            assert await keys.spend({(7, "app:a"): 0.5}, 7) == {(7, "app:a"): 1.5}

        if "keys" in self.keeps:
            run(Keys(adapter(url, "keys").from_url(url)), scenario)

    def test_templates_keep_what_a_person_decided(self, url: str) -> None:
        made = StoredTemplate(
            app="a", version="v", kind="k", literals=("x", "y"), slots=("q",), split={}, seen=1, learned_at=1.0
        )

        async def scenario(templates: Templates) -> None:
            await templates.put_template(made)
            assert await templates.set_template_state("a", "v", "confirmed")
            await templates.put_template(made)
            assert [template.state for template in await templates.templates()] == ["confirmed"]
            assert await templates.drop_templates([("a", "v")]) == 0
            assert await templates.drop_templates([("a", "v")], learned_only=False) == 1
            assert await templates.templates() == []

        if "templates" in self.keeps:
            run(Templates(adapter(url, "templates").from_url(url)), scenario)

    def test_levels_of_limits_are_shared(self, url: str) -> None:
        draw = Draw(subject="app:a", kind="requests", per_min=0.01, used=1000.0, level=60.0)

        async def scenario(one: Any) -> None:
            async with contextlib.aclosing(adapter(url, "limits").from_url(url)) as other:
                first, second = await one.exchange([draw]), await other.exchange([draw])
                assert (first.processes, second.processes) == (1, 2)
                assert [round(level) for level in (*first.levels, *second.levels)] == [-999, -1999]

        if "limits" in self.keeps:
            run(adapter(url, "limits").from_url(url), scenario)

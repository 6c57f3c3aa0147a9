"""Signals in every store: however an engine writes them, they are read like the scores of any other metric."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace

import pytest

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped, Supplement
from gaugeway.signals import SIGNALS
from gaugeway.storage.copy import move_store
from gaugeway.storage.erase import Subject
from gaugeway.storage.stores import Point, Query, from_url
from gaugeway.storage.stores.rollup_windows import HOUR_S, hundredths
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres

EVER = Query(since=0.0, until=1e12)
DAY_S = 86_400.0
KINDS = ("abstained", "retriever_score", "slow", "faithfulness", "tool_unknown")
VALUES = {"abstained": (0.0, 0.0, 0.0, 1.0), "slow": (0.0, 1.0), "tool_unknown": (0.0, 0.0, 0.5, 1.0)}


@pytest.fixture(params=["sqlite", "postgresql", "clickhouse"])
def run(request, tmp_path):
    engines = {"postgresql": postgres, "clickhouse": clickhouse}
    url = f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else engines[request.param]().database()

    def run(scenario):
        async def main():
            store = from_url(url)
            try:
                await scenario(store)
            finally:
                await store.aclose()

        asyncio.run(main())

    return run


def sample(name, started_at=1.0, **fields):
    return Sample(id=name, started_at=started_at, **{"app": "shop", "model": "m-1", **fields})


def made(name, metric, value, **fields):
    fields = {"version": "2", "rate": 0.5, "weight": 1.0, **fields}
    return Evaluation(sample_id=name, metric=metric, outcome=Score(value), **fields)


async def fill(store, count=120, days=3.0):
    """Exchanges of two apps over some days; returns (sample, evaluation) of all, in the order of time."""
    draw, found = random.Random(5), []
    for number in range(count):
        about = {"app": draw.choice(["shop", "desk"]), "model": draw.choice(["m-1", "m-2"])}
        about |= {"tags": {"tenant": draw.choice("ab")}} if draw.random() < 0.7 else {}
        one = sample(f"x{number:03}", DAY_S + days * DAY_S * number / count, **about)
        some = [
            made(one.id, metric, draw.choice(VALUES.get(metric) or (draw.random(),)), rate=1.0)
            for metric in KINDS
            if draw.random() < 0.8
        ]
        assert list(await store.add(one, some)) == some
        found += [(one, evaluation) for evaluation in some]
    return found


def told(points):
    return sorted((one.sample_id, one.metric, one.value) for one in points)


def test_signals_come_out_as_they_went_in(run):
    values = {name: number / 16 for number, name in enumerate(SIGNALS)}
    some = [made("a", name, value) for name, value in values.items()]
    metric = made("a", "faithfulness", 0.25, version="7", judge="j", seconds=0.5, rate=0.25)

    async def scenario(store):
        assert list(await store.add(sample("a"), [metric, *some])) == [metric, *some]
        found = await store.sample("a")
        assert found[0] == sample("a")
        assert {one.metric: one for one in found[1]} == {one.metric: one for one in (metric, *some)}
        assert len(found[1]) == len(some) + 1
        assert await store.holds(["a"]) == {"a": len(some) + 1}

    run(scenario)


def test_a_signal_is_a_point_like_any_other(run):
    about = {"prompt": "f00d", "tags": {"tenant": "a"}, "cluster": "u:1"}

    async def scenario(store):
        await store.add(sample("a", 7.0, **about), [made("a", "abstained", 1.0, weight=0.5)])
        assert list(await store.series(EVER)) == [
            Point(
                sample_id="a",
                started_at=7.0,
                app="shop",
                model="m-1",
                metric="abstained",
                outcome="score",
                value=1.0,
                reason="",
                rate=0.5,
                version="2",
                weight=0.5,
                **about,
            )
        ]

    run(scenario)


@pytest.mark.parametrize(
    "others",
    [
        [Evaluation(sample_id="a", metric="slow", version="2", outcome=Skipped("why"))],
        [Evaluation(sample_id="a", metric="slow", version="2", outcome=Failed("why", "because"))],
        [Evaluation(sample_id="a", metric="slow", version="2", outcome=Score(0.5, "why", ({"claim": "c"},)))],
        [made("a", "slow", 0.5, judge="j"), made("a", "truncated", 0.5, seconds=1.0)],
        [made("a", "slow", 0.5, version="3"), made("a", "abstained", 0.25, version="3")],
        [made("a", "slow", 0.5, rate=0.25), made("a", "truncated", 0.5, weight=None)],
        [made("a", "a_signal_of_later", 0.5)],
    ],
)
def test_what_differs_from_the_other_signals_of_an_exchange_is_kept_as_it_is(run, others):
    some = [made("a", "abstained", 1.0), *others, made("a", "expensive", 0.0)]

    async def scenario(store):
        assert list(await store.add(sample("a"), some)) == some
        found = await store.sample("a")
        assert sorted(map(repr, found[1])) == sorted(map(repr, some))
        assert len(await store.series(EVER)) == len(some)

    run(scenario)


def test_signals_are_stored_once(run):
    first, second = made("a", "abstained", 1.0), made("a", "slow", 1.0)

    async def scenario(store):
        assert list(await store.add(sample("a"), [first, made("a", "abstained", 0.0)])) == [first]
        assert list(await store.add(sample("a"), [made("a", "abstained", 0.0), second])) == [second]
        assert list(await store.add(sample("a"), [first, second])) == []
        newer = made("a", "abstained", 0.0, version="3")
        assert list(await store.add(sample("a"), [newer])) == [newer]
        assert list(await store.add(sample("a"), [newer, first])) == []
        assert told(await store.series(EVER)) == [("a", "abstained", 0.0), ("a", "abstained", 1.0), ("a", "slow", 1.0)]

    run(scenario)


def test_a_skip_of_a_signal_gives_way_to_its_value(run):
    skipped = Evaluation(sample_id="a", metric="slow", version="2", outcome=Skipped("why"))
    value, other = made("a", "slow", 1.0), made("a", "abstained", 0.0)

    async def scenario(store):
        await store.add(sample("a"), [skipped])
        assert list(await store.add(sample("a"), [value, other])) == [value, other]
        assert told(await store.series(EVER)) == [("a", "abstained", 0.0), ("a", "slow", 1.0)]

    run(scenario)


@pytest.mark.full
@pytest.mark.parametrize("order", ["oldest", "newest", "lowest", "highest"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"metric": "abstained"},
        {"metric": "retriever_score", "app": "desk"},
        {"metric": "tool_unknown", "least": 0.5},
        {"metric": "tool_unknown", "most": 0.0},
        {"metric": "slow", "tag": ("tenant", "a")},
        {"metric": "slow", "model": "m-2", "outcome": "score"},
        {"metric": "slow", "outcome": "skipped"},
        {"without": ("abstained", "slow")},
        {"without": tuple(SIGNALS)},
        {"app": "shop", "least": 0.9},
        {"since": 2 * DAY_S, "until": 2 * DAY_S + HOUR_S},
    ],
)
def test_a_series_has_the_signals_in_its_order(run, order, fields):
    query = replace(EVER, **fields)

    def matches(one, evaluation):
        value = evaluation.outcome.value
        return (
            query.since <= one.started_at < query.until
            and query.metric in (None, evaluation.metric)
            and evaluation.metric not in query.without
            and query.app in (None, one.app)
            and query.model in (None, one.model)
            and query.outcome in (None, "score")
            and (query.least or 0.0) <= value <= (1.0 if query.most is None else query.most)
            and (query.tag is None or one.tags.get(query.tag[0]) == query.tag[1])
        )

    key = {
        "oldest": lambda at, _: at,
        "newest": lambda at, _: -at,
        "lowest": lambda at, value: (value, at),
        "highest": lambda at, value: (-value, at),
    }[order]

    async def scenario(store):
        every = [pair for pair in await fill(store) if matches(*pair)]
        expected = sorted(key(one.started_at, evaluation.outcome.value) for one, evaluation in every)
        for limit in (None, 0, 7, 1000):
            points = await store.series(replace(query, order=order, limit=limit))
            assert [key(one.started_at, one.value) for one in points] == expected[:limit]
        assert told(points) == sorted((one.id, found.metric, found.outcome.value) for one, found in every)

    run(scenario)


@pytest.mark.full
@pytest.mark.parametrize("fields", [{}, {"metric": "abstained"}, {"app": "desk"}])
@pytest.mark.parametrize("by", ["", "model", "tag:tenant"])
def test_sums_are_those_of_the_points(run, fields, by):
    async def scenario(store):
        await fill(store)
        query = replace(EVER, **fields)
        points = await store.series(query)
        for _ in range(2):  # the second time from what was kept
            part = {"": lambda _: "", "model": lambda one: one.model}.get(by, lambda one: one.tags.get("tenant", ""))
            expected = {}
            for one in points:
                sums = expected.setdefault((one.app, one.metric, part(one)), [0, 0.0])
                sums[0], sums[1] = sums[0] + 1, sums[1] + one.value
            found = {(one.app, one.metric, one.slice): [one.n, one.wx] for one in await store.summary(query, by)}
            assert found == {key: pytest.approx(sums) for key, sums in expected.items()}

    run(scenario)


def test_scores_and_histograms_have_the_signals(run):
    async def scenario(store):
        await fill(store)
        points = await store.series(EVER)
        for metric in (None, "abstained", "retriever_score"):
            query = replace(EVER, metric=metric)
            added, spread = await store.scored(query), await store.spread(query, "model")
            if added is not None:
                count = {}
                for one in (one for one in points if metric in (None, one.metric)):
                    count[one.app, one.metric] = count.get((one.app, one.metric), 0) + 1
                assert {(one.app, one.metric): one.n for one in added} == count
            if spread is not None:
                mine = [one.value for one in points if metric in (None, one.metric)]
                assert sum(one.n for one in spread.parts) == len(mine)
                bins = [row for one in spread.parts for row in hundredths([one.bins]).tolist()]
                assert sum(x for _, _, x in bins) == pytest.approx(sum(mine))

    run(scenario)


def test_a_signal_of_a_past_hour_changes_the_sums_of_it(run):
    async def scenario(store):
        await fill(store)
        query = replace(EVER, metric="abstained", app="shop")
        (before,) = await store.summary(query)
        await store.add(sample("late", DAY_S + 60.0), [made("late", "abstained", 1.0, rate=1.0)])
        (after,) = await store.summary(query)
        assert (after.n, after.wx) == (before.n + 1, before.wx + 1.0)
        await store.summary(EVER)
        await store.add(sample("later", DAY_S + 61.0), [made("later", "abstained", 1.0, rate=1.0)])
        assert sum(one.n for one in await store.summary(EVER) if one.metric == "abstained" and one.app == "shop") == (
            before.n + 2
        )

    run(scenario)


def test_signals_alone_are_summed_up_as_well(run):
    async def scenario(store):
        await store.add(sample("a", DAY_S), [made("a", "abstained", 1.0)])
        await store.add(sample("b", 3 * DAY_S), [made("b", "abstained", 0.0)])
        (found,) = await store.summary(EVER)
        assert (found.n, found.w, found.wx) == (2, 4.0, 2.0)

    run(scenario)


@pytest.mark.parametrize("cheap", ["grounding", "abstained"])
def test_scores_are_paired_with_and_beside_signals(run, cheap):
    async def scenario(store):
        for number in range(4):
            name = f"x{number}"
            dear = Evaluation(sample_id=name, metric="dear", version="1", outcome=Score(number / 4), rate=0.25)
            beside = made(name, cheap, float(number % 2), rate=0.5)
            await store.add(sample(name, 10.0 + number), [dear, beside, made(name, "slow", 1.0)])
        query = Query(since=0.0, until=100.0, without=("slow",))
        (found,) = await store.paired(query, cheap)
        assert (found.metric, found.sums.n, found.alone, found.missing) == ("dear", 4, 0, 0)
        assert (found.sums.n_all, found.sums.f) == (4, 2.0)
        assert found.sums.uyf == pytest.approx(2.0 * (0.25 + 0.75))
        both = {one.metric: one.sums.n for one in await store.paired(replace(query, without=()), cheap)}
        assert both == {"dear": 4, "slow": 4}

    run(scenario)


def test_what_people_say_of_an_answer_comes_with_its_signals(run):
    async def scenario(store):
        for name in "ab":
            await store.add(sample(name, 9.0), [made(name, "faithfulness", 0.75), made(name, "abstained", 0.0)])
        said = [
            Supplement(id=str(at), received_at=50.0 + at, source="feedback", exchange_id=name, rating=rating)
            for at, (name, rating) in enumerate((("b", 1.0), ("a", 0.0), ("gone", 1.0)))
        ]
        await store.supplement(said)
        every = [
            ("a", "abstained", 0.0),
            ("a", "faithfulness", 0.75),
            ("b", "abstained", 0.0),
            ("b", "faithfulness", 0.75),
        ]
        found = await store.ratings(EVER)
        assert sorted((one.sample_id, one.metric, one.value) for one in found) == every
        assert [one.sample_id for one in found] == ["b", "b", "a", "a"]
        (one,) = await store.ratings(replace(EVER, metric="abstained", limit=1))
        assert (one.sample_id, one.metric, one.rating, one.rate) == ("b", "abstained", 1.0, 0.5)
        assert {one.metric for one in await store.ratings(replace(EVER, without=("abstained",)))} == {"faithfulness"}

    run(scenario)


def test_pruning_and_forgetting_take_the_signals_along(run):
    now = time.time() // DAY_S * DAY_S

    async def scenario(store):
        for name, at, session in (("old", now - 9 * DAY_S, "x"), ("hers", now, "s-1"), ("his", now, "s-2")):
            some = [made(name, "abstained", 1.0), made(name, "slow", 0.0), made(name, "faithfulness", 0.5)]
            await store.add(sample(name, at, session=session), some)
        assert await store.prune(now - 5 * DAY_S) == 1
        assert {one.sample_id for one in await store.series(EVER)} == {"hers", "his"}
        gone = await store.forget(Subject(session="s-1"), dry_run=True)
        assert (gone["samples"], gone["evaluations"]) == (1, 3)
        assert await store.forget(Subject(session="s-1")) == gone
        assert told(await store.series(EVER)) == [
            ("his", "abstained", 1.0),
            ("his", "faithfulness", 0.5),
            ("his", "slow", 0.0),
        ]

    run(scenario)


def test_signals_move_to_another_engine(run, tmp_path):
    async def scenario(store):
        found = await fill(store, count=40)
        target = from_url(f"sqlite:///{tmp_path}/target.db")
        try:
            moved = await move_store(store, target, origin="x")
            assert moved.evaluations == len(found)
            assert told(await target.series(EVER)) == told(await store.series(EVER))
        finally:
            await target.aclose()

    run(scenario)

"""What every store and every ledger promises, sentence by sentence of the ports."""

import asyncio
import random
from dataclasses import replace

import numpy as np
import pytest

from gaugeway.records import (
    CaptureInfo,
    Context,
    Evaluation,
    Failed,
    Message,
    PromptPart,
    Sample,
    Score,
    Skipped,
    Supplement,
    ToolCall,
    Usage,
)
from gaugeway.storage.engines.failures import RefusedError
from gaugeway.storage.stores import Point, Query, Summary, from_url
from monitors.statistics.control_variate import sums
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres

EVER = {"since": 0.0, "until": 1e12}
DAY_S = 86_400.0


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


def sample(sample_id, started_at=1.0, **fields):
    return Sample(id=sample_id, started_at=started_at, **fields)


def evaluation(sample_id, metric="faithfulness", outcome=None, version="1", **fields):
    return Evaluation(sample_id=sample_id, metric=metric, version=version, outcome=outcome or Score(0.5), **fields)


async def fill(store, *rows):
    """Add one sample with one evaluation for each (id, started_at, app, metric, outcome)."""
    for sample_id, started_at, app, metric, outcome in rows:
        await store.add(sample(sample_id, started_at, app=app), [evaluation(sample_id, metric, outcome)])


def ids(points):
    return [point.sample_id for point in points]


def test_several_samples_are_added_as_each_alone(run):
    async def scenario(store):
        known = sample("known")
        await store.add(known, [evaluation("known", "a")])
        some = [
            (sample("new"), [evaluation("new", "a"), evaluation("new", "slow", Score(1.0))]),
            (known, [evaluation("known", "a"), evaluation("known", "b")]),
            (sample("bare"), []),
        ]
        added = await store.add_each(some)
        assert [[one.metric for one in new] for new in added] == [["a", "slow"], ["b"], []]
        assert await store.add_each(some) == [[], [], []], "what is there is not new"
        for one, _ in some:
            assert (await store.sample(one.id))[0] == one
        assert {one.metric for one in (await store.sample("known"))[1]} == {"a", "b"}

    run(scenario)


@pytest.mark.parametrize(
    "refused",
    [
        (sample("bad", question="\ud83d"), []),
        (sample("bad"), [evaluation("other")]),
        (sample("bad"), [evaluation("bad", outcome=Score(0.5, "", ({"n": np.float32(0.5)},)))]),
    ],
)
def test_of_several_samples_one_that_is_refused_leaves_the_others(run, refused):
    async def scenario(store):
        first, last = ((sample(name), [evaluation(name)]) for name in ("first", "last"))
        added = await store.add_each([first, refused, last])
        assert isinstance(added[1], RefusedError)
        assert [added[0], added[2]] == [first[1], last[1]]
        assert [await store.sample(name) is None for name in ("first", "bad", "last")] == [False, True, False]

    run(scenario)


def test_supplements_of_several_samples_are_those_of_each(run):
    async def scenario(store):
        some = [sample("a", context_key="k"), sample("b", trace_id="t"), sample("c")]
        assert [list(one) for one in await store.supplements_of_each(some)] == [[], [], []]
        said = [
            Supplement(id="1", received_at=1.0, source="contexts", key="k"),
            Supplement(id="2", received_at=2.0, source="feedback", trace_id="t", rating=1.0),
            Supplement(id="3", received_at=3.0, source="feedback", exchange_id="a", rating=0.0),
        ]
        await store.supplement(said)
        found = await store.supplements_of_each(some)
        assert [[one.id for one in each] for each in found] == [["1", "3"], ["2"], []]
        assert [list(each) for each in found] == [list(await store.supplements_of(one)) for one in some]

    run(scenario)


def test_a_sample_and_its_evaluations_come_out_as_they_went_in(run):
    whole = sample(
        "a",
        started_at=12.5,
        app="shop",
        model="gpt",
        question="naïve \U0001f600?",
        contexts=(Context(text="one", id="1", score=0.5, source="wiki"), Context(text="two")),
        context_source="tools",
        response="yes",
        tags={"tenant": "x"},
        rate=0.25,
        usage=Usage(input_tokens=1),
        duration_s=0.5,
        capture=CaptureInfo(
            source="tools",
            marker="search",
            confidence=0.75,
            reason="naïve \U0001f600",
            parts=(
                PromptPart(role="system", kind="instructions", start=0, end=9, text="Be naïve."),
                PromptPart(role="user", kind="question", start=2, end=9, message=1),
                PromptPart(role="tool", kind="passage", start=0, end=3, message=3, passage=0),
            ),
            cut=True,
            shortened=True,
        ),
        conversation="c",
        turn=3,
        hop=2,
        history=(Message(role="user", text="naïve \U0001f600"), Message(role="assistant", text="yes")),
        calls=(ToolCall(name="search", arguments='{"q": "é"}'),),
    )
    evaluations = [
        evaluation("a", "z", Score(0.25, "two of eight", ({"claim": "é", "ok": True}, {"n": 2})), judge="gpt@1"),
        evaluation("a", "m", Skipped("no_contexts"), seconds=0.5),
        evaluation("a", "b", Failed("timeout", "the judge said nothing"), cost_usd=0.01, rate=0.1),
        evaluation("a", "b", Score(1.0), version="2"),
    ]

    async def scenario(store):
        assert list(await store.add(whole, evaluations)) == evaluations
        found = await store.sample("a")
        assert found is not None
        assert found[0] == whole
        assert list(found[1]) == evaluations

    run(scenario)


def test_a_sample_without_evaluations_is_stored_too(run):
    async def scenario(store):
        assert list(await store.add(sample("a"), [])) == []
        assert await store.sample("a") == (sample("a"), [])

    run(scenario)


def test_a_sample_that_is_not_there_is_none(run):
    async def scenario(store):
        assert await store.sample("a") is None

    run(scenario)


def test_questions_are_returned_for_those_that_have_one(run):
    async def scenario(store):
        await store.add(sample("a", question="Why?"), [])
        await store.add(sample("b"), [])
        await store.add(sample("c", question="Wie \u00fcbel? \U0001f600"), [])
        assert await store.questions(["a", "b", "c", "nobody", "a"]) == {"a": "Why?", "c": "Wie \u00fcbel? \U0001f600"}
        assert await store.questions([]) == {}

    run(scenario)


def test_adding_twice_returns_nothing_new_and_changes_nothing(run):
    async def scenario(store):
        await store.add(sample("a", response="first"), [evaluation("a", outcome=Score(0.1))])
        assert list(await store.add(sample("a", response="second"), [evaluation("a", outcome=Score(0.9))])) == []
        assert await store.sample("a") == (sample("a", response="first"), [evaluation("a", outcome=Score(0.1))])
        assert len(await store.series(Query(**EVER))) == 1

    run(scenario)


def test_only_evaluations_that_were_not_there_before_are_returned(run):
    old, new, other_version = evaluation("a", "old"), evaluation("a", "new"), evaluation("a", "old", version="2")

    async def scenario(store):
        await store.add(sample("a"), [old])
        assert list(await store.add(sample("a"), [new, old, other_version])) == [new, other_version]

    run(scenario)


def test_of_equal_identities_in_one_call_the_first_is_kept(run):
    first, other, second = (
        evaluation("a", outcome=Score(0.1)),
        evaluation("a", "b"),
        evaluation("a", outcome=Score(0.9)),
    )

    async def scenario(store):
        assert list(await store.add(sample("a"), [first, other, second])) == [first, other]
        assert await store.sample("a") == (sample("a"), [first, other])

    run(scenario)


def test_an_evaluation_of_another_sample_is_refused_and_nothing_is_stored(run):
    async def scenario(store):
        with pytest.raises(ValueError, match="another sample"):
            await store.add(sample("a"), [evaluation("a"), evaluation("b")])
        assert await store.sample("a") is None

    run(scenario)


def test_a_point_is_the_evaluation_laid_flat(run):
    async def scenario(store):
        await store.add(
            sample("a", 7.0, app="shop", model="gpt", prompt="f00d", tags={"tenant": "a"}),
            [
                evaluation("a", "one", Score(0.25, "a long explanation"), rate=0.1, weight=0.5, judge="j"),
                evaluation("a", "two", Skipped("no_contexts")),
                evaluation("a", "three", Failed("timeout", "60 s")),
            ],
        )
        common = {"sample_id": "a", "started_at": 7.0, "app": "shop", "model": "gpt", "version": "1"}
        common |= {"prompt": "f00d", "tags": {"tenant": "a"}}
        assert list(await store.series(Query(**EVER))) == [
            Point(**common, metric="one", outcome="score", value=0.25, reason="", rate=0.1, weight=0.5, judge="j"),
            Point(**common, metric="two", outcome="skipped", value=None, reason="no_contexts", rate=1.0),
            Point(**common, metric="three", outcome="failed", value=None, reason="timeout", rate=1.0),
        ]

    run(scenario)


def test_a_series_begins_at_since_and_ends_before_until(run):
    async def scenario(store):
        await fill(store, *((str(at), float(at), "x", "m", Score(0.5)) for at in range(5)))
        assert ids(await store.series(Query(since=1.0, until=3.0))) == ["1", "2"]

    run(scenario)


@pytest.mark.parametrize(
    ("without", "expected"),
    [((), ["b", "c", "m"]), (("m",), ["b", "c"]), (("c", "m"), ["b"]), (("other",), ["b", "c", "m"])],
)
def test_a_series_leaves_out_the_metrics_that_it_is_to_be_without(run, without, expected):
    async def scenario(store):
        await store.add(sample("a", 1.0), [evaluation("a", metric=name) for name in ("b", "c", "m")])
        points = await store.series(Query(**EVER, without=without))
        assert sorted(point.metric for point in points) == expected

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "gpt-a"}, ["a", "d"]),
        ({"prompt": "p2"}, ["b"]),
        ({"tag": ("tenant", "x")}, ["a", "b"]),
        ({"tag": ("tenant", "y")}, []),
        ({"tag": ("x", "tenant")}, []),
        ({"outcome": "failed"}, ["d"]),
        ({"least": 0.5}, ["b", "c"]),
        ({"least": 0.5, "most": 0.5}, ["b"]),
        ({"most": 0.4, "tag": ("tenant", "x")}, ["a"]),
        ({"text": "REFUND"}, ["a", "b"]),
        ({"text": "50%_"}, ["b"]),
        ({"text": "5%d"}, []),
        ({"text": "\\"}, ["c"]),
    ],
)
def test_a_series_is_narrowed_by_everything_that_is_given(run, fields, expected):
    rows = [
        (sample("a", 1.0, model="gpt-a", tags={"tenant": "x"}, question="How about a Refund?"), Score(0.1)),
        (sample("b", 2.0, prompt="p2", tags={"tenant": "x"}, response="a refund of 50%_"), Score(0.5)),
        (sample("c", 3.0, question="a \\ b"), Score(0.9)),
        (sample("d", 4.0, model="gpt-a"), Failed("timeout")),
    ]

    async def scenario(store):
        for one, outcome in rows:
            await store.add(one, [evaluation(one.id, outcome=outcome)])
        assert ids(await store.series(Query(**EVER, **fields))) == expected

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["a", "b", "c", "d"]),
        ({"metric": "m"}, ["a", "c"]),
        ({"app": "x"}, ["a", "b"]),
        ({"metric": "n", "app": "y"}, ["d"]),
        ({"metric": "unknown"}, []),
        ({"app": "'; DROP TABLE evaluations; --"}, []),
    ],
)
def test_a_series_is_of_one_metric_or_all_and_of_one_app_or_all(run, fields, expected):
    async def scenario(store):
        await fill(
            store,
            ("a", 1.0, "x", "m", Score(0.5)),
            ("b", 2.0, "x", "n", Score(0.5)),
            ("c", 3.0, "y", "m", Score(0.5)),
            ("d", 4.0, "y", "n", Score(0.5)),
        )
        assert ids(await store.series(Query(**EVER, **fields))) == expected

    run(scenario)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("oldest", ["early", "middle", "skipped", "late"]),
        ("newest", ["late", "skipped", "middle", "early"]),
        ("lowest", ["middle", "late", "early"]),
        ("highest", ["early", "late", "middle"]),
    ],
)
def test_a_series_is_ordered_by_time_or_scores_by_value(run, order, expected):
    async def scenario(store):
        await fill(
            store,
            ("late", 4.0, "x", "m", Score(0.5)),
            ("early", 1.0, "x", "m", Score(0.9)),
            ("skipped", 3.0, "x", "m", Skipped("no_contexts")),
            ("middle", 2.0, "x", "m", Score(0.1)),
        )
        assert ids(await store.series(Query(**EVER, order=order))) == expected

    run(scenario)


@pytest.mark.parametrize(("limit", "expected"), [(None, 4), (0, 0), (2, 2), (9, 4)])
def test_a_limit_keeps_the_first_of_the_order(run, limit, expected):
    async def scenario(store):
        await fill(store, *((str(at), float(at), "x", "m", Score(0.5)) for at in range(4)))
        points = await store.series(Query(**EVER, order="newest", limit=limit))
        assert ids(points) == ["3", "2", "1", "0"][:expected]

    run(scenario)


def test_a_number_of_numpy_is_stored_as_a_number(run):
    async def scenario(store):
        await store.add(sample("a"), [evaluation("a", "m", Score(np.float32(0.5)), rate=np.float32(0.25))])
        (point,) = await store.series(Query(**EVER))
        assert (point.value, point.rate) == (0.5, 0.25)

    run(scenario)


def test_a_summary_adds_up_the_points_of_each_app_and_metric(run):
    outcomes = [(Score(0.5), 0.1), (Score(0.75), 0.5), (Score(1.0), 0.5), (Failed("timeout"), 0.5), (Skipped("x"), 1.0)]

    async def scenario(store):
        for at, (outcome, rate) in enumerate(outcomes):
            for metric in ("m", "n"):
                name = f"{metric}{at}"
                await store.add(sample(name, float(at), app="shop"), [evaluation(name, metric, outcome, rate=rate)])
        await fill(store, ("z", 1.0, "other", "m", Failed("timeout")))
        summaries = {(one.app, one.metric): one for one in await store.summary(Query(**EVER, order="lowest", limit=1))}
        assert set(summaries) == {("shop", "m"), ("shop", "n"), ("other", "m")}
        found = summaries["shop", "m"]
        assert (found.n, found.failed) == (3, 1)
        assert [found.w, found.wx, found.w2, found.w2x, found.w2x2] == pytest.approx(
            [14.0, 8.5, 108.0, 57.0, 25.0 + 4.0 * 0.75**2 + 4.0], rel=1e-12
        )
        assert summaries["other", "m"] == Summary(
            app="other", metric="m", n=0, failed=1, w=0.0, wx=0.0, w2=0.0, w2x=0.0, w2x2=0.0
        )

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"since": 1.0, "until": 3.0}, {("x", "n"): 1, ("y", "m"): 1}),
        ({"metric": "m"}, {("x", "m"): 1, ("y", "m"): 1}),
        ({"app": "x"}, {("x", "m"): 1, ("x", "n"): 1}),
        ({"metric": "unknown"}, {}),
    ],
)
def test_a_summary_is_of_the_points_that_a_query_asks_for(run, fields, expected):
    async def scenario(store):
        await fill(
            store,
            ("a", 0.0, "x", "m", Score(0.5)),
            ("b", 1.0, "x", "n", Score(0.5)),
            ("c", 2.0, "y", "m", Score(0.5)),
        )
        found = await store.summary(Query(**{**EVER, **fields}))
        assert {(one.app, one.metric): one.n for one in found} == expected

    run(scenario)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("model", {"m1": (2, 1.0), "m2": (1, 0.0)}),
        ("prompt", {"p": (1, 1.0), "": (2, 0.0)}),
        ("tag:tenant", {"x": (1, 0.0), "": (2, 1.0)}),
        ('tag:a"b', {"1": (1, 0.0), "": (2, 1.0)}),
    ],
)
def test_a_summary_is_cut_into_slices(run, by, expected):
    rows = [
        (sample("a", model="m1", prompt="p"), Score(1.0)),
        (sample("b", model="m1", tags={"tenant": "x", 'a"b': "1"}), Score(0.0)),
        (sample("c", model="m2"), Score(0.0)),
    ]

    async def scenario(store):
        for one, outcome in rows:
            await store.add(one, [evaluation(one.id, outcome=outcome)])
        found = {one.slice: (one.n, one.wx) for one in await store.summary(Query(**EVER), by)}
        assert found == expected
        assert {one.slice for one in await store.summary(Query(**EVER))} == {""}

    run(scenario)


def test_scores_are_added_up_beside_those_of_a_cheap_metric(run):
    rng = np.random.default_rng(1)
    cheap, dear = rng.random(200).round(3), rng.random(200).round(3)
    judged = rng.random(200) < 0.3
    rates = np.where(np.arange(200) % 2, 0.2, 0.4)

    async def scenario(store):
        async def add(k):
            some = [evaluation(f"x{k}", "cheap", Score(float(cheap[k])), rate=0.8)]
            if judged[k]:
                some.append(evaluation(f"x{k}", "dear", Score(float(dear[k])), rate=float(rates[k])))
            await store.add(sample(f"x{k}", 1.0, app="shop"), some)

        await asyncio.gather(*map(add, range(200)))
        lonely = [evaluation("alone", "dear", Score(0.5)), evaluation("alone", "cheap", Skipped("no_contexts"))]
        await store.add(sample("alone", 1.0, app="shop"), lonely)
        await store.add(sample("gone", 1.0, app="shop"), [evaluation("gone", "dear", Failed("timeout"))])
        await store.add(sample("old", 0.0, app="shop"), [evaluation("old", "dear"), evaluation("old", "cheap")])
        (found,) = await store.paired(Query(since=0.5, until=9.0), "cheap")
        expected = sums(cheap, np.where(judged, dear, np.nan), rates / 0.8)
        assert (found.app, found.metric, found.alone, found.missing) == ("shop", "dear", 1, 1)
        for name in expected.__slots__:
            assert getattr(found.sums, name) == pytest.approx(getattr(expected, name), rel=1e-9), name

    run(scenario)


def test_pruning_removes_what_started_before_and_counts_samples(run):
    async def scenario(store):
        for at in range(4):
            await store.add(sample(str(at), at * DAY_S), [evaluation(str(at), "m"), evaluation(str(at), "n")])
        assert await store.prune(2 * DAY_S) == 2
        assert await store.sample("1") is None
        assert await store.sample("2") is not None
        assert ids(await store.series(Query(**EVER))) == ["2", "2", "3", "3"]

    run(scenario)


def test_pruning_goes_on_beyond_one_batch(run):
    async def scenario(store):
        await asyncio.gather(*(store.add(sample(str(at), float(at % 7)), []) for at in range(1_200)))
        assert await store.prune(DAY_S) == 1_200
        assert await store.prune(DAY_S) == 0

    run(scenario)


def test_a_sample_that_was_pruned_may_come_again(run):
    async def scenario(store):
        await store.add(sample("a"), [evaluation("a")])
        await store.prune(DAY_S)
        assert list(await store.add(sample("a"), [evaluation("a")])) == [evaluation("a")]

    run(scenario)


def supplement(supplement_id, received_at=1.0, **fields):
    return Supplement(id=supplement_id, received_at=received_at, **{"source": "contexts", **fields})


def names(supplements):
    return [one.id for one in supplements]


def test_a_supplement_returns_the_stored_samples_that_it_concerns_by_its_most_exact_name(run):
    async def scenario(store):
        await store.add(sample("late", 3.0, trace_id="t"), [])
        await store.add(sample("early", 2.0, trace_id="t"), [])
        await store.add(sample("keyed", 1.0, context_key="k", trace_id="t"), [])
        await store.add(sample("other", 1.0, context_key="o", trace_id="u"), [])
        for fields, expected in [
            ({"exchange_id": "late"}, ["late"]),
            ({"key": "k"}, ["keyed"]),
            ({"trace_id": "t"}, ["keyed", "early", "late"]),
            ({"exchange_id": "other", "key": "k", "trace_id": "t"}, ["other"]),
            ({"key": "k", "trace_id": "u"}, ["keyed"]),
            ({"key": "unknown", "trace_id": "t"}, []),
            ({"exchange_id": "unknown"}, []),
            ({}, []),
        ]:
            found = await store.supplement([supplement(str(fields), **fields)])
            assert [one.id for one in found] == expected, fields
            assert list(found) == [(await store.sample(one.id))[0] for one in found]

    run(scenario)


def test_supplements_together_return_each_sample_once(run):
    async def scenario(store):
        await store.add(sample("a", context_key="k", trace_id="t"), [])
        found = await store.supplement(
            [supplement("1", key="k"), supplement("2", trace_id="t"), supplement("3", key="k")]
        )
        assert [one.id for one in found] == ["a"]
        assert list(await store.supplement([])) == []

    run(scenario)


def test_a_supplement_stored_twice_changes_nothing_and_returns_the_samples_again(run):
    async def scenario(store):
        await store.add(sample("a", context_key="k"), [])
        for label in ("first", "second"):
            assert [one.id for one in await store.supplement([supplement("1", key="k", label=label)])] == ["a"]
        assert [one.label for one in await store.supplements_of(sample("a", context_key="k"))] == ["first"]

    run(scenario)


def test_the_supplements_of_a_sample_are_found_before_it_is_stored_in_the_order_received(run):
    whole = supplement(
        "3",
        2.5,
        source="feedback",
        exchange_id="a",
        contexts=(Context(text="é", id="1", score=0.5, source="wiki"),),
        reference="r",
        rating=0.0,
        comment="c",
    )

    async def scenario(store):
        await store.supplement([supplement("4", 4.0, key="k"), supplement("1", 3.0, trace_id="t"), whole])
        await store.supplement([supplement("2", 3.0, trace_id="t"), supplement("x", key="x"), supplement("y")])
        found = await store.supplements_of(sample("a", context_key="k", trace_id="t"))
        assert names(found) == ["3", "1", "2", "4"]
        assert found[0] == whole
        assert names(await store.supplements_of(sample("b", trace_id="t"))) == ["1", "2"]
        assert names(await store.supplements_of(sample("b"))) == []

    run(scenario)


def test_a_trace_without_an_end_returns_its_latest_samples_only(run):
    async def scenario(store):
        await asyncio.gather(*(store.add(sample(f"{at:03}", float(at), trace_id="t"), []) for at in range(120)))
        found = await store.supplement([supplement("1", trace_id="t")])
        assert [one.id for one in found] == [f"{at:03}" for at in range(20, 120)]

    run(scenario)


def test_pruning_removes_old_supplements_too(run):
    async def scenario(store):
        await store.supplement([supplement(str(at), float(at), key="k") for at in range(1_100)])
        assert await store.prune(1_090.0) == 0
        assert names(await store.supplements_of(sample("a", context_key="k"))) == [
            str(at) for at in range(1_090, 1_100)
        ]

    run(scenario)


JOINED = {"contexts": (Context(text="c"),), "context_source": "contexts_api"}


def test_a_sample_whose_gaps_were_filled_takes_the_place_of_the_stored_one_and_outcomes_that_of_skips(run):
    bare, joined = sample("a", response="r"), sample("a", response="r", reference="ref", question="q", **JOINED)

    async def scenario(store):
        await store.add(
            bare,
            [
                evaluation("a", "skipped", Skipped("no_contexts")),
                evaluation("a", "failing", Skipped("no_contexts")),
                evaluation("a", "scored", Score(0.25)),
                evaluation("a", "failed", Failed("timeout")),
            ],
        )
        offered = [
            evaluation("a", "skipped", Score(0.5, "why", ({"n": 1},)), judge="j", seconds=2.0, cost_usd=0.1, rate=0.5),
            evaluation("a", "failing", Failed("timeout")),
            evaluation("a", "scored", Score(0.75)),
            evaluation("a", "failed", Score(0.75)),
            evaluation("a", "skipped", Score(0.9), version="2"),
        ]
        assert list(await store.add(joined, offered)) == [offered[0], offered[1], offered[4]]
        assert list(await store.add(joined, offered)) == []
        found = await store.sample("a")
        assert found[0] == joined
        assert {(one.metric, one.version): one for one in found[1]} == {
            ("skipped", "1"): offered[0],
            ("failing", "1"): offered[1],
            ("scored", "1"): evaluation("a", "scored", Score(0.25)),
            ("failed", "1"): evaluation("a", "failed", Failed("timeout")),
            ("skipped", "2"): offered[4],
        }
        (point,) = await store.series(Query(**EVER, metric="skipped", order="lowest", limit=1))
        assert (point.outcome, point.value, point.rate, point.reason) == ("score", 0.5, 0.5, "")

    run(scenario)


def test_a_skip_does_not_take_the_place_of_anything(run):
    async def scenario(store):
        await store.add(sample("a"), [evaluation("a", outcome=Skipped("no_contexts"))])
        assert list(await store.add(sample("a", **JOINED), [evaluation("a", outcome=Skipped("no_claims"))])) == []
        await store.add(sample("a", **JOINED), [evaluation("a", outcome=Score(0.5))])
        assert list(await store.add(sample("a", **JOINED), [evaluation("a", outcome=Skipped("no_claims"))])) == []
        assert [one.outcome for one in (await store.sample("a"))[1]] == [Score(0.5)]

    run(scenario)


@pytest.mark.parametrize(
    "other",
    [
        {"response": "another"},
        {"question": "another", **JOINED},
        {"question": None, **JOINED},
        {"reference": "another", **JOINED},
        {"contexts": (Context(text="another"),), "context_source": "spans", "app": "another"},
        {"tags": {"a": "b"}, **JOINED},
    ],
)
def test_a_sample_that_differs_in_what_was_there_replaces_neither_the_stored_one_nor_its_skips(run, other):
    stored = {"response": "r", "question": "q", "reference": "ref"}

    async def scenario(store):
        await store.add(sample("a", **stored), [evaluation("a", outcome=Skipped("no_contexts"))])
        assert list(await store.add(sample("a", **{**stored, **other}), [evaluation("a", outcome=Score(0.5))])) == []
        assert await store.sample("a") == (sample("a", **stored), [evaluation("a", outcome=Skipped("no_contexts"))])

    run(scenario)


def test_contexts_once_stored_are_never_replaced(run):
    async def scenario(store):
        await store.add(sample("a", **JOINED), [])
        for other in ({}, {"contexts": (Context(text="d"),), "context_source": "feedback"}):
            await store.add(sample("a", **other), [])
            assert (await store.sample("a"))[0] == sample("a", **JOINED)

    run(scenario)


async def rate(store, *said):
    """Add supplements from feedback, received one second after the other."""
    await store.supplement(
        [supplement(f"s{at}", 50.0 + at, source="feedback", **fields) for at, fields in enumerate(said)]
    )


def told(rated):
    return [(one.sample_id, one.metric, one.value, one.rating, one.source) for one in rated]


def test_scores_come_with_what_people_said_of_the_same_answer_in_the_order_they_said_it(run):
    async def scenario(store):
        for name, outcome in (("a", Score(0.9)), ("b", Score(0.2)), ("c", Failed("timeout")), ("d", Score(0.4))):
            await store.add(sample(name, 9.0, app="shop"), [evaluation(name, outcome=outcome, rate=0.5)])
        await rate(
            store,
            {"exchange_id": "b", "rating": 0.25},
            {"exchange_id": "a", "label": "Pass"},
            {"exchange_id": "c", "rating": 1.0},
            {"exchange_id": "d", "label": "interesting"},
            {"exchange_id": "d", "comment": "no rating"},
            {"exchange_id": "gone", "rating": 1.0},
            {"exchange_id": "a", "label": "other:fail"},
        )
        found = await store.ratings(Query(**EVER))
        assert told(found) == [("b", "faithfulness", 0.2, 0.25, "rating"), ("a", "faithfulness", 0.9, 1.0, "rating")]
        assert (found[0].app, found[0].rate, found[0].received_at) == ("shop", 0.5, 50.0)
        assert told(await store.ratings(Query(since=0.0, until=9.0))) == []
        assert told(await store.ratings(Query(**EVER, metric="other"))) == []
        assert len(await store.ratings(Query(**EVER, app="shop", limit=1))) == 1
        late = 5 * 86_400.0
        await store.supplement([supplement("late", late, source="feedback", exchange_id="a", rating=0.5)])
        assert [
            (one.sample_id, one.rating) for one in await store.ratings(Query(**EVER)) if one.received_at == late
        ] == [("a", 0.5)]

    run(scenario)


def test_what_was_said_of_a_trace_or_a_key_is_about_its_last_exchange(run):
    async def scenario(store):
        for name, at, fields in (
            ("first", 8.0, {"trace_id": "t"}),
            ("last", 9.0, {"trace_id": "t"}),
            ("keyed", 9.0, {"context_key": "k"}),
        ):
            await store.add(sample(name, at, **fields), [evaluation(name)])
        await rate(store, {"trace_id": "t", "rating": 0.0}, {"key": "k", "rating": 1.0})
        found = await store.ratings(Query(**EVER))
        assert [(one.sample_id, one.rating) for one in found] == [("last", 0.0), ("keyed", 1.0)]

    run(scenario)


def test_a_reference_by_feedback_speaks_through_the_correctness_that_it_made_known(run):
    async def scenario(store):
        await store.add(sample("a"), [evaluation("a"), evaluation("a", "answer_correctness", Score(0.75))])
        await store.add(sample("b"), [evaluation("b")])
        await rate(store, {"exchange_id": "a", "reference": "so"}, {"exchange_id": "b", "reference": "so"})
        assert told(await store.ratings(Query(**EVER))) == [("a", "faithfulness", 0.5, 0.75, "reference")]
        await rate(store, *[{}] * 2, {"exchange_id": "b", "rating": 1.0, "comment": "\0", "reference": "\0"})
        assert told(await store.ratings(Query(**EVER)))[1:] == [("b", "faithfulness", 0.5, 1.0, "rating")]

    run(scenario)


def test_a_ledger_begins_empty(run):
    async def scenario(store):
        assert await store.load() == {}
        await store.save({})
        assert await store.load() == {}

    run(scenario)


def test_saved_states_are_loaded_and_replace_those_of_the_same_name(run):
    async def scenario(store):
        await store.save({"detector/a": b"\x00\xff", "detector/b": b"old"})
        await store.save({"detector/b": b"new", "alerts": b""})
        assert await store.load() == {"detector/a": b"\x00\xff", "detector/b": b"new", "alerts": b""}

    run(scenario)


def test_states_are_saved_together_or_not_at_all(run):
    async def scenario(store):
        with pytest.raises(RefusedError):
            await store.save({"a": b"1", "b": object()})
        assert await store.load() == {}

    run(scenario)


def test_pruning_leaves_the_states_alone(run):
    async def scenario(store):
        await store.save({"a": b"1"})
        await store.prune(1e12)
        assert await store.load() == {"a": b"1"}

    run(scenario)


def test_closing_twice_is_harmless(run):
    async def scenario(store):
        await store.add(sample("a"), [])
        await store.sample("a")
        await store.aclose()
        await store.aclose()

    run(scenario)


@pytest.mark.parametrize("order", ["lowest", "highest"])
def test_the_first_places_of_a_long_time_are_those_of_all_metrics_together(run, order):
    async def scenario(store):
        draw = random.Random(3)
        for number in range(60):
            made = [evaluation(f"x{number}", metric, Score(draw.randrange(9) / 8)) for metric in ("one", "other")]
            await store.add(sample(f"x{number}", 10_000.0 * number), made)
        everything = await store.series(Query(since=0.0, until=1e6, order=order))
        first = await store.series(Query(since=0.0, until=1e6, order=order, limit=25))
        assert [(one.value, one.started_at) for one in first] == [(one.value, one.started_at) for one in everything][
            :25
        ]
        assert {one.metric for one in first} == {"one", "other"}

    run(scenario)


def test_supplements_without_end_are_read_up_to_a_bound_the_earliest_first(run):
    async def scenario(store):
        for at in range(20):
            await store.supplement([supplement(f"{at:02}", float(at), key="k", reference="x" * 1_000_000)])
        found = await store.supplements_of(sample("a", context_key="k"))
        assert names(found) == [f"{at:02}" for at in range(len(found))]
        assert 12 < len(found) < 17  # 16 MB

    run(scenario)


def said_by(app, number, **address):
    return Supplement(id=f"{app}-{number}", received_at=1.0, source="feedback", rating=1.0, app=app, **address)


@pytest.mark.parametrize("address", [{"exchange_id": "a"}, {"key": "k"}, {"trace_id": "t"}])
def test_what_one_app_says_joins_its_own_exchanges_and_those_of_no_other(run, address):
    async def scenario(store):
        ours = sample("a", app="shop", context_key="k", trace_id="t")
        await store.add(ours, [evaluation("a")])
        assert await store.supplement([said_by("rival", 1, **address)]) == []
        assert await store.supplement([said_by("shop", 1, **address)]) == [ours]
        anybody = said_by(None, 1, **address)
        assert await store.supplement([anybody]) == [ours]
        assert {one.app for one in await store.supplements_of(ours)} == {"shop", None}
        found = await store.ratings(Query(**EVER))
        assert len(found) == 2

    run(scenario)


@pytest.mark.full
def test_another_app_cannot_crowd_out_what_an_app_says_about_its_own(run):
    """A thousand supplements and a hundred exchanges are all that is read: others do not count towards them."""

    async def scenario(store):
        ours = sample("a", app="shop", context_key="k")
        await store.add(ours, [evaluation("a")])
        await store.supplement([said_by("rival", number, key="k") for number in range(1001)])
        for number in range(101):
            name = f"r{number}"
            await store.add(sample(name, 2.0 + number, app="rival", context_key="k"), [evaluation(name)])
        assert await store.supplement([said_by("shop", 1, key="k")]) == [ours]
        assert [one.app for one in await store.supplements_of(ours)] == ["shop"]
        found = await store.ratings(Query(**EVER, app="shop"))
        assert [(one.sample_id, one.rating) for one in found] == [("a", 1.0)], (
            "the last exchange of the app, not of all"
        )

    run(scenario)


@pytest.mark.parametrize("by", ["trace_id", "context_key", "session", "response_id"])
def test_samples_are_found_by_an_id_within_a_time_the_newest_first(run, by):
    """By the whole value of this field alone, whatever quotation marks and wildcards it or a text has."""
    odd = 'a"b%_\\é'

    async def scenario(store):
        for number in range(5):
            await store.add(sample(f"s{number}", 10.0 * number, **{by: odd}), [])
        await store.add(sample("longer", 20.0, **{by: f"{odd}x"}), [])
        others = {"trace_id", "context_key", "session", "response_id"} - {by}
        await store.add(sample("other", 20.0, question=f'"{by}":"{odd}"', **dict.fromkeys(others, odd)), [])
        found = await store.addressed(by, odd, 10.0, 40.0)
        assert [one.id for one in found] == ["s3", "s2", "s1"]
        assert getattr(found[0], by) == odd
        assert await store.addressed(by, odd, 41.0, 1e6) == []
        assert await store.addressed(by, "nobody", **EVER) == []

    run(scenario)


def test_exchanges_are_selected_by_the_id_or_source_of_a_passage(run):
    def got(sample_id, *contexts):
        return sample(sample_id, app="shop", contexts=contexts)

    samples = [
        got("id", Context(text="a", id="faq.md"), Context(text="b", id="other.md")),
        got("source", Context(text="a", id="17", source=" faq.md ")),
        got("text", Context(text='faq.md {"id":"faq.md"}', id="x")),
        got("longer", Context(text="a", id="faq.md.old")),
        got("none"),
        got("odd", Context(text="a", id='it\'s "odd" é \U0001f600 %_')),
    ]

    async def scenario(store):
        for at, one in enumerate(samples):
            value = Score(0.2 + at / 10)
            await store.add(replace(one, started_at=float(at + 1)), [evaluation(one.id, outcome=value)])
        query = Query(**EVER, metric="faithfulness", app="shop", source="faq.md")
        assert ids(await store.series(query)) == ["id", "source"]
        assert ids(await store.series(replace(query, order="highest", limit=5))) == ["source", "id"]
        assert ids(await store.series(replace(query, most=0.25))) == ["id"]
        assert ids(await store.series(replace(query, source='it\'s "odd" é \U0001f600 %_'))) == ["odd"]
        assert ids(await store.series(replace(query, source="nothing"))) == []
        assert [one.n for one in await store.summary(query)] == [2]

    run(scenario)


def test_at_most_a_hundred_samples_are_found_by_an_id(run):
    async def scenario(store):
        for number in range(103):
            await store.add(sample(f"s{number:03}", float(number), session="long"), [])
        found = await store.addressed("session", "long", **EVER)
        assert [one.id for one in found] == [f"s{number:03}" for number in range(102, 2, -1)]

    run(scenario)


def test_exchanges_are_selected_by_session(run):
    async def scenario(store):
        for at, session in enumerate(("s-1", "s-2", "s-1", None, "S-1")):
            one = sample(str(at), float(at + 1), session=session)
            await store.add(one, [evaluation(one.id)])
        query = Query(**EVER, session="s-1")
        assert ids(await store.series(query)) == ["0", "2"]
        assert ids(await store.series(replace(query, session="'; DROP TABLE samples; --"))) == []
        assert [one.n for one in await store.summary(replace(query, metric="faithfulness"))] == [2]

    run(scenario)


def test_samples_are_read_many_at_once(run):
    async def scenario(store):
        some = [sample(str(at), float(at), question=f"é {at}?", contexts=(Context(text="c"),)) for at in range(300)]
        for one in some:
            await store.add(one, [])
        found = await store.samples([one.id for one in some[:250]] + ["unknown"])
        assert found == {one.id: one for one in some[:250]}
        assert await store.samples([]) == {}

    run(scenario)


def test_outcomes_count_evaluations_and_each_exchange_once(run):
    async def scenario(store):
        now = 1_760_000_400.0
        await store.add(
            sample("a", now, app="shop"),
            [
                evaluation("a"),
                evaluation("a", "other", Failed("timeout", "x")),
                evaluation("a", "abstained", Score(1.0)),
            ],
        )
        await store.add(sample("b", now, app="shop"), [evaluation("b", outcome=Skipped("no_contexts"))])
        await store.add(
            sample("c", now, app="desk"),
            [evaluation("c", outcome=Skipped("no_contexts")), evaluation("c", "other", Failed("timeout"))],
        )
        await store.add(sample("d", now, app="desk"), [evaluation("d", "abstained", Score(0.0))])
        await store.add(sample("e", now, app="desk"), [])
        await store.add(sample("conversation-1", now, app="desk"), [evaluation("conversation-1", "outcome")])
        await store.add(sample("f", now + 10 * DAY_S, app="desk"), [evaluation("f")])
        for _ in range(2):  # from the rows, then from what was kept
            found = await store.outcomes(Query(since=now - DAY_S, until=now + DAY_S))
            rows = {(one.app, one.metric, one.outcome, one.reason): one.n for one in found}
            assert rows == {
                ("shop", "faithfulness", "score", ""): 1,
                ("shop", "other", "failed", "timeout"): 1,
                ("shop", "faithfulness", "skipped", "no_contexts"): 1,
                ("desk", "faithfulness", "skipped", "no_contexts"): 1,
                ("desk", "other", "failed", "timeout"): 1,
                ("desk", "outcome", "score", ""): 1,
                ("shop", "", "score", ""): 1,
                ("shop", "", "skipped", "no_contexts"): 1,
                ("desk", "", "failed", "timeout"): 1,
                ("desk", "", "none", ""): 2,
            }
        found = await store.outcomes(Query(since=now - DAY_S, until=now + DAY_S, app="shop", metric="ignored"))
        assert {one.app for one in found} == {"shop"}
        assert sum(one.n for one in found if not one.metric) == 2

    run(scenario)


def test_a_person_s_last_label_counts_and_can_be_withdrawn(run):
    async def scenario(store):
        now = 1_760_000_400.0
        await store.add(sample("a", now), [evaluation("a")])
        await store.add(sample("b", now), [evaluation("b")])

        def said(name, at, exchange, label, by="Sam"):
            return Supplement(
                id=name,
                received_at=now + at,
                source="feedback",
                exchange_id=exchange,
                label=label,
                by=by,
                app="default",
            )

        await store.supplement(
            [
                said("1", 1.0, "a", "faithfulness:pass"),
                said("2", 2.0, "a", "faithfulness:fail"),
                said("3", 3.0, "a", "faithfulness:pass", "Ana"),
                said("4", 4.0, "b", "faithfulness:pass"),
                said("5", 5.0, "b", "faithfulness:withdrawn"),
            ]
        )
        found = await store.ratings(Query(since=now - DAY_S, until=now + DAY_S))
        assert [(one.sample_id, one.by, one.rating) for one in found] == [("a", "Sam", 0.0), ("a", "Ana", 1.0)]

    run(scenario)


def test_spend_is_summed_by_app_and_metric_over_every_outcome(run):
    """A failed evaluation was paid for as well; only scores count as answers."""

    async def scenario(store):
        now = 1_760_000_400.0
        for number, (app, at) in enumerate(
            (("shop", now), ("shop", now + 60.0), ("desk", now), ("shop", now + 7200.0))
        ):
            made = sample(str(number), at, app=app)
            rows = [
                evaluation(made.id, cost_usd=0.25),
                evaluation(made.id, "faithfulness~anchor", Failed("timeout"), cost_usd=0.5, rate=0.1),
                evaluation(made.id, "free"),
                evaluation(made.id, "abstained", Score(1.0)),
            ]
            await store.add(made, rows)
        spent = {(one.app, one.metric): one[2:] for one in await store.spent(Query(since=now, until=now + 3600.0))}
        assert spent == {
            ("shop", "faithfulness"): (0.5, 2),
            ("shop", "faithfulness~anchor"): (1.0, 0),
            ("shop", "free"): (0.0, 2),
            ("desk", "faithfulness"): (0.25, 1),
            ("desk", "faithfulness~anchor"): (0.5, 0),
            ("desk", "free"): (0.0, 1),
        }
        assert {one.app for one in await store.spent(Query(since=now, until=now + 3600.0, app="desk"))} == {"desk"}
        assert list(await store.spent(Query(since=0.0, until=1.0))) == []

    run(scenario)

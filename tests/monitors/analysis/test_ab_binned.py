"""Versions compared by counts kept in a store: what is said is what the scores themselves say."""

import asyncio
import random

import pytest

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.redaction import Redactor
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query, Spreads, Store
from gaugeway.storage.stores.hashing_store import HashingStore
from monitors.analysis.ab_binned import Parts
from monitors.analysis.ab_compare import Sides, compare
from monitors.analysis.ab_query import UnknownVersionError, VersionQuery, read

DAY = 86_400.0
T0 = 1_700_000_000.0 // DAY * DAY
COUNT = 1_200
WHOLE = Query(since=T0, until=T0 + 4 * DAY)


async def fill(store, *, new=0.6, count=COUNT, judges=("one",), metric="faithfulness", rates=(1.0, 0.5)):
    draw = random.Random(1)
    for number in range(count):
        model = ("old", "new")[number % 2]
        at = T0 + 3 * DAY * number / count
        mean = 0.9 if model == "old" else new
        one = Sample(id=f"{metric}{number}", started_at=at, app="shop", model=model, question=f"q{number}")
        value = draw.betavariate(9 * mean, 9 * (1 - mean))
        made = {"judge": draw.choice(judges), "rate": draw.choice(rates)}
        await store.add(one, [Evaluation(sample_id=one.id, metric=metric, version="1", outcome=Score(value), **made)])


def wanted(**fields):
    given = {"by": "model", "a": "old", "b": "new", "since": T0, "until": T0 + 4 * DAY}
    return VersionQuery(**(given | fields))


def both(tmp_path, *, asked=(), **filled):
    """What is read as counts, and what is read one by one."""

    async def main():
        store = SQLiteStore(tmp_path / "store.db")
        await fill(store, **filled)
        found = [await read(store, wanted(few=few, **dict(asked))) for few in (0, None)]
        await store.aclose()
        return found

    counted, exact = asyncio.run(main())
    assert (counted.partial, exact.partial) == (False, False)
    assert all(isinstance(one, Parts) for one in counted.everything)
    assert all(isinstance(one, Sides) for one in exact.everything)
    return counted.everything, exact.everything


def close(found, expected):
    assert (found.app, found.metric) == (expected.app, expected.metric)
    for name in ("champion", "challenger"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.n == other.n
        assert one.mean == pytest.approx(other.mean)
        # the design effect is estimated from hours here, from blocks of scores there
        assert [one.ci_low, one.ci_high] == pytest.approx([other.ci_low, other.ci_high], abs=0.15)
    assert found.difference == pytest.approx(expected.difference)
    assert found.left_out == expected.left_out


@pytest.mark.full
@pytest.mark.parametrize(
    ("new", "said"), [(0.6, "roll back"), (0.97, "ship"), (0.9, "not enough data")], ids=["worse", "better", "equal"]
)
def test_counts_say_what_the_scores_say(tmp_path, new, said):
    counted, exact = both(tmp_path, new=new)
    for flipped, turned in ((False, {}), (True, {"roll back": "ship", "ship": "roll back"})):
        options = {"lower_is_better": lambda _, flipped=flipped: flipped}
        (found,), (expected,) = compare(counted, **options), compare(exact, **options)
        close(found, expected)
        assert found.decision == expected.decision == turned.get(said, said)
        assert found.pairs is None


def test_only_what_one_judge_said_of_both_is_compared(tmp_path):
    counted, exact = both(tmp_path, judges=("one", "two", "two"))
    (found,), (expected,) = compare(counted), compare(exact)
    close(found, expected)
    assert COUNT / 4 < found.left_out < COUNT / 2


@pytest.mark.parametrize("metrics", [("faithfulness",), ("faithfulness", "other"), ()])
def test_metrics_are_those_that_were_named(tmp_path, metrics):
    counted, exact = both(tmp_path, count=40, asked={"metrics": metrics})
    (found,), (expected,) = compare(counted), compare(exact)
    close(found, expected)


async def test_few_scores_are_read_one_by_one_for_their_questions_and_many_are_not(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    await fill(store, count=60)
    found = [await read(store, wanted(few=few)) for few in (59, 60)]
    await store.aclose()
    assert [type(one.everything[0]) for one in found] == [Parts, Sides]


async def test_a_version_without_a_score_is_named_with_those_that_are_there(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    await fill(store, count=20)
    try:
        with pytest.raises(UnknownVersionError, match="only part of it could be read in 0 s"):
            await read(store, wanted(few=10, within_s=0.0))
        with pytest.raises(UnknownVersionError, match=r"in this period; available: new, old$"):
            await read(store, wanted(b="newer", few=10))
    finally:
        await store.aclose()


async def test_a_store_that_is_told_no_texts_counts_where_the_one_behind_it_does(tmp_path):
    class Plain(Store):
        """A store that cannot count."""

        def __init__(self, store):
            self.series = store.series

    store = SQLiteStore(tmp_path / "store.db")
    await fill(store, count=60)
    found = []
    for one in (store, Plain(store)):
        hashing = HashingStore(one, Redactor((), (), "k"), window_s=60.0)
        found.append((await read(hashing, wanted(few=0))).everything)
    few = await read(Plain(store), wanted(few=0, most=10, reading_s=60.0))
    with pytest.raises(UnknownVersionError, match="only part of it could be read in -1 s"):
        await read(Plain(store), wanted(few=0, most=10, reading_s=-1.0))
    await store.aclose()
    ((counted,), (read_,)) = found
    assert (type(counted), type(read_)) == (Parts, Sides)
    close(*(compare([one])[0] for one in (counted, read_)))
    assert few.partial
    assert [len(few.everything[0].champion), len(few.everything[0].challenger)] == [10, 10]


async def test_what_is_counted_in_part_is_said_to_be_partial(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    await fill(store)
    first = await store.spread(WHOLE, "model", 0.0)
    while not (later := await store.spread(WHOLE, "model", 60.0)).complete:
        pass
    await store.aclose()
    assert isinstance(first, Spreads)
    assert not first.complete
    assert sum(one.n for one in first.parts) < sum(one.n for one in later.parts) == COUNT

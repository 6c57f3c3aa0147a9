"""The lowest and highest scores of a long time come from an index of their own, and are the same as without it."""

import random
import sqlite3
from dataclasses import replace

import pytest

from gaugeway.records import Evaluation, Failed, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query

T0, DAY = 1_700_000_000.0, 86_400.0
MONTH = Query(since=T0, until=T0 + 30 * DAY, order="lowest", limit=20)


async def fill(store):
    draw = random.Random(1)
    for number in range(300):
        one = Sample(id=f"x{number}", started_at=T0 + draw.random() * 30 * DAY, app=draw.choice(["shop", "desk"]))
        made = [
            Evaluation(sample_id=one.id, metric=metric, version="1", outcome=Score(round(draw.random(), 1)))
            for metric in ("faithfulness", "hallucination")
        ]
        await store.add(one, [*made, Evaluation(sample_id=one.id, metric="m", version="1", outcome=Failed("timeout"))])


@pytest.mark.full
@pytest.mark.parametrize("order", ["lowest", "highest"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"metric": "faithfulness"}, {"app": "desk"}, {"metric": "hallucination", "app": "shop", "least": 0.3}],
)
async def test_a_long_time_by_value(tmp_path, order, fields):
    query = replace(MONTH, order=order, **fields)

    store = SQLiteStore(tmp_path / "store.db")
    try:
        await fill(store)
        by_time = await store.series(replace(query, order="oldest", limit=10_000))
        values = [one for one in by_time if one.value is not None]
        values.sort(key=lambda one: one.value if order == "lowest" else -one.value)  # of equal ones the oldest first
        found, expected = await store.series(query), values[:20]
    finally:
        await store.aclose()
    assert len(found) == 20
    assert [(one.value, one.started_at) for one in found] == [(one.value, one.started_at) for one in expected]


async def test_nothing_by_value_in_an_empty_store(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    try:
        assert list(await store.series(MONTH)) == []
    finally:
        await store.aclose()


async def test_the_lowest_are_found_in_the_index_before_any_row_is_read(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    await fill(store)
    await store.aclose()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT sample_id FROM evaluations INDEXED BY evaluations_value WHERE metric = 'm' "
            "AND started_at >= 0.0 AND started_at < 9e9 AND outcome = 'score' ORDER BY value, started_at, rowid LIMIT 5"
        ).fetchall()
    assert "evaluations_value (metric=?)" in plan[0][3]
    assert not any(row[3] == "USE TEMP B-TREE FOR ORDER BY" for row in plan)

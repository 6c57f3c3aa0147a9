"""Points as they are read from an engine's rows."""

import json

import pytest

from gaugeway.storage.stores.rows import points


def row(number=0, *, tags="{}", cluster=None, weight=None, prompt="p"):
    """A row whose texts are objects of their own, as an engine gives them."""
    known = json.loads(json.dumps(["app", "gpt-x", "faithfulness", "score", 0.5, "", 1.0, "3", "judge-1", prompt]))
    return (f"id-{number}", 10.0 + number, *known, weight, cluster, tags)


def test_equal_texts_are_one_object():
    found = points(row(number, tags=json.dumps({"plan": "gold"})) for number in range(3))
    assert [one.sample_id for one in found] == ["id-0", "id-1", "id-2"]
    for name in ("app", "model", "metric", "outcome", "version", "judge", "prompt", "tags"):
        assert len({id(getattr(one, name)) for one in found}) == 1, name


def test_what_the_points_of_one_exchange_share_is_one_object():
    found = points(row(number // 3, cluster=f"s:{number // 6}", weight=0.5) for number in range(12))
    assert [(one.sample_id, one.started_at, one.cluster) for one in found] == [
        (f"id-{number // 3}", 10.0 + number // 3, f"s:{number // 6}") for number in range(12)
    ]
    for first in range(0, 12, 3):
        for name in ("sample_id", "started_at", "cluster"):
            assert len({id(getattr(one, name)) for one in found[first : first + 3]}) == 1, name
    for name in ("rate", "weight"):
        assert len({id(getattr(one, name)) for one in found}) == 1, name


def test_exchanges_that_differ_in_one_thing_keep_it():
    same = row(cluster="s:1")
    found = points([same, (same[0], 11.0, *same[2:]), (*same[:13], "s:2", same[14]), ("id-1", *same[1:])])
    assert [(one.sample_id, one.started_at, one.cluster) for one in found] == [
        ("id-0", 10.0, "s:1"),
        ("id-0", 11.0, "s:1"),
        ("id-0", 10.0, "s:2"),
        ("id-1", 10.0, "s:1"),
    ]


def test_each_point_keeps_its_own_tags():
    said = [{"plan": "gold"}, {"plan": "free"}, {}, {"plan": "gold", "größe": "☕"}]
    assert [one.tags for one in points(row(tags=json.dumps(one)) for one in said)] == said


@pytest.mark.parametrize("tags", [None, 7, b"{}", "", "nonsense", "[]", '{"plan": 1}', '"\ud800"'])
def test_tags_that_somebody_else_wrote_count_for_none(tags):
    odd, fine = points([row(tags=tags), row(tags='{"plan": "gold"}')])
    assert odd.tags == {}
    assert fine.tags == {"plan": "gold"}


@pytest.mark.parametrize(("weight", "read"), [(0.25, 0.25), (0.0, None), (1.5, None), ("1", None), (None, None)])
def test_a_weight_is_in_0_1(weight, read):
    (one,) = points([row(weight=weight, cluster=b"s:1")])
    assert (one.weight, one.cluster) == (read, None)

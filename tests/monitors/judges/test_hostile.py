"""A judge that misbehaves in every way: no wrong score, every failure under its reason, and it recovers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gaugeway.records import Failed, Score
from tests.support.hostile_judge import FAULTS, Bench, HostileJudge, samples

pytestmark = pytest.mark.full

COUNT = 24


def scores(run):
    return {(one.sample_id, one.metric): one.outcome for one in run.evaluations}


async def rounds(server, mode, *, count=COUNT, **options):
    """A round while the server is hostile, and one more after it came to its senses."""
    bench = Bench(server.url, mode=mode, **options)
    hostile = await bench.round(samples(count))
    server.sane()
    after = await bench.round([replace(one, id=f"after-{one.id}") for one in samples(count)])
    await bench.aclose()
    return hostile, after


@pytest.mark.parametrize("mode", ["fused", "separate"])
def test_a_hostile_judge_gives_no_wrong_score_and_every_failure_its_reason(mode):
    with HostileJudge(faults=()) as server:
        clean, _ = asyncio.run(rounds(server, mode))
    right = scores(clean)
    assert len(right) == 4 * COUNT
    assert all(isinstance(one, Score) for one in right.values())
    assert len({(key[1], one.value) for key, one in right.items()}) > 8, "the samples differ"
    with HostileJudge(rate=0.1) as server:
        hostile, after = asyncio.run(rounds(server, mode))
    assert set(FAULTS) <= set(server.seen), "all of them happened"
    found = scores(hostile)
    assert set(found) == set(right)
    for key, outcome in found.items():
        if isinstance(outcome, Score):
            assert outcome.value == right[key].value, key
        else:
            assert isinstance(outcome, Failed), key
            assert outcome.error in ("unreadable", "truncated", "timeout", "rate_limited", "deadline")
    seen = server.seen
    assert seen.total() - seen["fine"] > seen["fine"] - after.calls, "most answers were spoiled"
    assert sum(isinstance(one, Score) for one in found.values()) > 0.3 * len(found), "and many scores came through"
    # Every answer that was spoiled beyond use is counted, under what was wrong with it.
    assert hostile.unusable["empty"] == seen["empty"]
    assert hostile.unusable["no_completion"] == seen["html"]
    assert hostile.unusable["no_json"] + hostile.unusable["truncated"] + hostile.unusable["wrong_shape"] >= (
        seen["malformed"] + seen["truncated"]
    )
    late = hostile.kinds["timeout"] - seen["stalled"]  # on a busy machine, an answer may come after its time
    assert late >= 0
    assert hostile.kinds["rate_limited"] <= seen["rate_limited"] <= hostile.kinds["rate_limited"] + late
    # And when it is over it is over.
    assert not after.blind
    assert set(after.kinds) <= {"timeout"}, "half a second may be too short for a busy machine, which is asked again"
    assert {key: one.value for key, one in scores(after).items()} == {
        (f"after-{key[0]}", key[1]): one.value for key, one in right.items()
    }


def test_after_a_storm_of_429_the_places_come_back():
    with HostileJudge(faults=("rate_limited",), rate=1.0, storms=0) as server:
        hostile, after = asyncio.run(rounds(server, "fused", count=12, timeout_s=5.0))
    assert all(isinstance(one.outcome, Failed) for one in hostile.evaluations)
    assert {one.outcome.error for one in hostile.evaluations} <= {"rate_limited", "blind"}
    assert hostile.limit == 1
    assert hostile.kinds["rate_limited"] == server.seen["rate_limited"]
    if hostile.blind:
        assert all(one.outcome.error == "blind" for one in after.evaluations), "it is not asked for a while"
    with HostileJudge(faults=("rate_limited",), rate=0.3) as server:
        _, after = asyncio.run(rounds(server, "fused", count=30, timeout_s=5.0))
    assert all(isinstance(one.outcome, Score) for one in after.evaluations)
    assert after.limit >= 6

"""What the ClickHouse store does before anything reaches the engine: batches, what they add, and the URL."""

import asyncio

import pytest

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped
from gaugeway.storage.engines.clickhouse.batching import Gathering
from gaugeway.storage.engines.clickhouse.store import There, additions, wanted
from gaugeway.storage.engines.failures import EngineError, RefusedError

JOINED = {"contexts": (Context(text="c"),), "context_source": "contexts_api"}
OUTCOME, REVISION = 6, -1


def sample(name="a", **fields):
    return Sample(**({"id": name, "started_at": 90_000.0} | fields))


def evaluation(outcome, metric="m", name="a"):
    return Evaluation(sample_id=name, metric=metric, version="1", outcome=outcome)


def test_a_batch_is_what_its_calls_make_one_after_the_other():
    score, skip, other = evaluation(Score(0.5)), evaluation(Skipped("x")), evaluation(Score(0.5), "n")
    calls = [
        wanted(sample(), [skip]),
        wanted(sample(), [score]),
        wanted(sample(), [evaluation(Score(0.9)), other]),
        wanted(sample(response="another"), [evaluation(Score(0.1), "k")]),
    ]
    made = additions(calls, {}, 100)
    assert made.answers == [[skip], [score], [other], [evaluation(Score(0.1), "k")]]
    assert len(made.samples) == 1
    assert [row[OUTCOME] for row in made.evaluations] == ["skipped", "score", "score", "score"]


def test_what_is_stored_stays_and_a_fuller_sample_takes_its_place():
    stored = sample()
    there = {("a", 1): There(stored, 90_000.0, 0, {("m", "1"): "skipped", ("n", "1"): "score"})}
    failed, late = evaluation(Failed("timeout")), evaluation(Score(0.5), "n")
    made = additions([wanted(sample(**JOINED), [failed, late])], there, 1)
    assert made.answers == [[failed]]
    assert made.samples[0][REVISION] > there["a", 1].revision
    assert there["a", 1].outcomes["m", "1"] == "skipped"
    assert additions([wanted(stored, [late])], there, 1).samples == []


def test_the_revision_lets_an_outcome_win_over_a_skip_and_the_first_over_the_others():
    rows = [
        additions([wanted(sample(), [evaluation(outcome)])], {}, position).evaluations[0]
        for position, outcome in ((1, Skipped("x")), (3, Score(0.1)), (2, Failed("y")), (4, Skipped("x")))
    ]
    order = sorted(range(4), key=lambda index: rows[index][REVISION], reverse=True)
    assert order == [2, 1, 0, 3]
    assert all(0 < row[REVISION] < 2**64 for row in rows)


def test_two_new_samples_at_once_the_fuller_one_has_the_higher_revision():
    bare, full = (additions([wanted(one, [])], {}, 1).samples[0] for one in (sample(), sample(**JOINED)))
    assert bare[REVISION] < full[REVISION]


def test_an_evaluation_keeps_the_moment_that_its_sample_is_stored_under():
    there = {("a", 1): There(sample(), 90_000.0, 0)}
    (row,) = additions([wanted(sample(started_at=90_001.0), [evaluation(Score(0.5))])], there, 1).evaluations
    assert row[3] == 90_000.0


@pytest.mark.parametrize(
    "call",
    [
        (sample(), [evaluation(Score(0.5), name="b")]),
        (sample(started_at=1e300), []),
        (sample(question="\ud800"), []),
        (sample(), [evaluation(Score(0.5, "\ud800"))]),
    ],
)
def test_what_cannot_be_inserted_is_refused_before_it_is_in_a_batch(call):
    with pytest.raises(RefusedError, match=r"another sample|valid time|UnicodeEncodeError"):
        wanted(*call)


def gathering(scenario, **options):
    batches = []

    async def work(requests):
        batches.append(list(requests))
        await asyncio.sleep(0.01)
        if "bad" in requests:
            raise EngineError("gone")
        if "refused" in requests:
            raise RefusedError("too long")
        return [request.upper() for request in requests]

    async def run():
        await scenario(Gathering(work, **({"linger_s": 0.001} | options)))

    asyncio.run(run())
    return batches


def test_who_asks_at_the_same_moment_is_answered_together_each_with_the_own_answer():
    async def scenario(gathering):
        assert await asyncio.gather(*map(gathering.ask, "abc")) == ["A", "B", "C"]
        first = asyncio.ensure_future(gathering.ask("d"))
        await asyncio.sleep(0.005)
        assert await asyncio.gather(*map(gathering.ask, "ef")) == ["E", "F"]
        assert await first == "D"
        await gathering.finish()

    assert gathering(scenario) == [["a", "b", "c"], ["d"], ["e", "f"]]


def test_a_batch_has_an_upper_limit():
    async def scenario(gathering):
        await asyncio.gather(*map(gathering.ask, "abcde"))

    assert gathering(scenario, most=2) == [["a", "b"], ["c", "d"], ["e"]]


def test_a_failure_is_told_to_everybody_in_the_batch_and_to_nobody_else():
    async def scenario(gathering):
        found = await asyncio.gather(gathering.ask("a"), gathering.ask("bad"), return_exceptions=True)
        assert [type(one) for one in found] == [EngineError, EngineError]
        assert await gathering.ask("a") == "A"

    gathering(scenario)


def test_who_gives_up_waiting_takes_nobody_along():
    async def scenario(gathering):
        impatient, patient = asyncio.ensure_future(gathering.ask("a")), asyncio.ensure_future(gathering.ask("b"))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == "B"
        assert impatient.cancelled()

    gathering(scenario)


def test_a_url_says_where_and_is_named_without_its_secret():
    clickhouse = pytest.importorskip("gaugeway.storage.engines.clickhouse.connection")
    found = clickhouse.read_url("clickhouses://u:p%2F%23@ch.internal/gw?linger_ms=5&ca_cert=/etc/ca.pem")
    assert (found.host, found.port, found.database, found.user, found.password) == (
        "ch.internal",
        8443,
        "gw",
        "u",
        "p/#",
    )
    assert (found.secure, found.linger_s, found.tls) == (True, 0.005, (("ca_cert", "/etc/ca.pem"),))
    assert found.name == "clickhouses://ch.internal:8443/gw"
    assert "p/#" not in repr(found)
    assert clickhouse.read_url("clickhouse://h/d").port == 8123


@pytest.mark.parametrize(
    "url",
    [
        "clickhouse://u:secret@h",
        "clickhouse:///d",
        "clickhouse://u:secret@h:x/d",
        "clickhouse://u:sec#ret@h/d",
        "clickhouse://u:secret@h/d-b",
        "clickhouse://u:secret@h/d?linger_ms=-1",
        "clickhouse://u:secret@h/d?linger_ms=1001",
        "clickhouse://u:secret@h/d?verify=false",
        "clickhouse://u:secret@h/d?ca_cert=/x",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_quoted(url):
    clickhouse = pytest.importorskip("gaugeway.storage.engines.clickhouse.connection")
    with pytest.raises(ValueError, match=r"expected|option") as caught:
        clickhouse.read_url(url)
    assert "secret" not in str(caught.value)


def test_a_request_that_the_engine_refuses_fails_alone_and_the_rest_of_its_batch_is_answered():
    async def scenario(gathering):
        asked = [gathering.ask(one) for one in ("a", "refused", "b")]
        first, bad, last = await asyncio.gather(*asked, return_exceptions=True)
        assert (first, type(bad), last) == ("A", RefusedError, "B")

    assert gathering(scenario) == [["a", "refused", "b"], ["a"], ["refused"], ["b"]]

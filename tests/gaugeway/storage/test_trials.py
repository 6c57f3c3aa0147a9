"""What an engine keeps of trials: processes share their bounds, and nothing outlives what it was kept for."""

import asyncio
import sys
from collections import Counter
from itertools import product

import msgspec
import pytest

from gaugeway.settings.shared import Price
from gaugeway.storage import trials as module
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.erase import Subject
from gaugeway.storage.trials import (
    MAX_ANSWERS,
    MAX_TRIALS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    WAITS_S,
    Answer,
    Arm,
    Kept,
    Trial,
    Trials,
    UnknownTrialError,
    open_trials,
    sealer,
)
from tests.support.postgres import postgres

ARM = Arm(base_url="http://127.0.0.1:9/v1", api_key="${KEY}", price=Price(input=1.0, output=2.0))
KEPT = Kept(route="chat_completions", body='{"messages":[]}')


def trial(name="t", **more):
    given = {"app": "shop", "arms": (ARM,), "send": "redacted", "primary": "m", "usd": 1.0, "judge_usd": 1.0}
    return Trial(name=name, **{**given, "until": 1e10, **more})


def answer(exchange, state="answered", arm="candidate", **more):
    given = {"at": 1.0, "usd": 0.01, "judge_usd": 0.01, "facts": {"scores": {"m": [0.5, 1.0]}}}
    return Answer(arm=arm, exchange=exchange, state=state, **given | more)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path / 'store.db'}" if request.param == "sqlite" else postgres().database()


@pytest.fixture
def kept(url):
    return open_trials(url)


async def test_a_trial_is_read_as_it_was_started_and_only_once(kept):
    arm = msgspec.structs.replace(ARM, params={"temperature": 0, "stop": None}, max_contexts=2, model="b")
    given = trial(arms=(arm,), metrics=("x",), started_at=5.0, by="ana")
    await kept.start(given)
    with pytest.raises(ValueError, match="there is a trial t already"):
        await kept.start(trial(usd=9.0))
    stored = await kept.get("t")
    assert (stored.trial, stored.state, stored.why, stored.left_out) == (given, "running", "", {})
    with pytest.raises(UnknownTrialError, match="no trial other"):
        await kept.get("other")
    await kept.aclose()


async def test_the_newest_come_first_and_there_is_room_for_so_many(kept):
    for number in range(MAX_TRIALS):
        await kept.start(trial(f"t{number}", started_at=float(number)))
    with pytest.raises(ValueError, match="no room"):
        await kept.start(trial("more"))
    assert [stored.trial.name for stored in await kept.all()][:2] == ["t49", "t48"]
    await kept.aclose()


async def test_an_unchanged_list_is_not_read_again(kept):
    await kept.start(trial())
    revision, found = await kept.changed(None)
    assert len(found) == 1
    assert await kept.changed(revision) == (revision, None)
    await kept.end("t", "stopped", 9.0)
    _, found = await kept.changed(revision)
    assert [(stored.state, stored.why, stored.changed_at) for stored in found] == [("ended", "stopped", 9.0)]
    await kept.aclose()


async def test_what_waits_is_deleted_with_the_end_and_nothing_is_kept_after_it(kept):
    await kept.start(trial())
    await kept.start(trial("other"))
    assert await kept.keep([("t", "x", KEPT)], 1.0) == [True]
    assert await kept.keep([("other", "x", KEPT)], 1.0) == [True]
    assert await kept.end("t", "time", 2.0)
    assert not await kept.end("t", "stopped", 3.0)
    late = [("t", "y", KEPT), ("never", "y", KEPT)]  # of a gateway that has not read yet that the trial ended
    assert await kept.keep(late, 4.0) == [False, False]
    _, waiting = await kept.waiting(None)
    assert waiting == {("other", "x"): (1.0, KEPT)}
    assert (await kept.get("t")).why == "time"
    await kept.aclose()


async def test_what_waits_is_read_once_and_dropped(kept):
    await kept.start(trial())
    assert (await kept.waiting(None))[1] == {}
    sealed = Kept(route="messages", body="gAAA", headers={"anthropic-version": "1"}, sealed=True)
    await kept.keep([("t", "x", sealed)], 1.0)
    revision, waiting = await kept.waiting(None)
    assert waiting == {("t", "x"): (1.0, sealed)}
    assert await kept.waiting(revision) == (revision, None)
    await kept.drop([("t", "x"), ("t", "unknown")])
    assert (await kept.waiting(revision))[1] == {}
    await kept.aclose()


async def test_so_many_requests_wait_and_the_old_ones_make_room(tmp_path):
    kept = Trials(SQLiteDocuments(tmp_path))
    await kept.start(trial())
    for number in range(MAX_WAITING):
        assert await kept.keep([("t", f"x{number}", KEPT)], float(number)) == [True]
    assert await kept.keep([("t", "more", KEPT)], 500.0) == [False]
    assert await kept.keep([("t", "later", KEPT)], WAITS_S + 9.5) == [True]
    _, waiting = await kept.waiting(None)
    assert len(waiting) == MAX_WAITING - 9
    assert ("t", "x9") not in waiting
    assert ("t", "x10") in waiting
    await kept.aclose()


async def test_of_requests_kept_at_once_those_fit_that_have_room(kept):
    await kept.start(trial())
    many = [("t", f"x{number}", KEPT) for number in range(MAX_WAITING + 2)]
    assert await kept.keep([*many[:3], ("never", "y", KEPT)], 1.0) == [True, True, True, False]
    assert await kept.keep(many[3:], 1.0) == [True] * (MAX_WAITING - 3) + [False, False]
    await kept.aclose()


async def test_so_many_bytes_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 1000)
    assert MAX_WAITING_BYTES > MAX_WAITING
    kept = Trials(SQLiteDocuments(tmp_path))
    await kept.start(trial())
    wide = Kept(route="r", body="ж" * 300)  # two bytes each
    assert await kept.keep([("t", "x", wide)], 1.0) == [True]
    assert await kept.keep([("t", "y", wide)], 1.0) == [False]
    assert await kept.keep([("t", "z", Kept(route="r", body="a" * 200))], 1.0) == [True]
    await kept.aclose()


async def test_an_exchange_is_claimed_once_for_each_arm(kept):
    given = trial()
    assert await kept.claim(given, "candidate", "x", 0.1, 1.0) == "claimed"
    assert await kept.claim(given, "candidate", "x", 0.1, 1.0) == "taken"
    await kept.settle("t", answer("x"))
    assert await kept.claim(given, "candidate", "x", 0.1, 1.0) == "taken"
    assert await kept.claim(given, "other", "x", 0.1, 1.0) == "claimed"
    await kept.aclose()


async def test_what_others_reserved_is_waited_for_and_what_is_spent_is_spent(kept):
    given = trial(usd=0.25, judge_usd=10.0)
    assert await kept.claim(given, "candidate", "x", 0.2, 1.0) == "claimed"
    assert await kept.claim(given, "candidate", "y", 0.1, 1.0) == "wait"
    await kept.settle("t", answer("x", usd=0.05, judge_usd=0.01))
    assert await kept.claim(given, "candidate", "y", 0.1, 1.0) == "claimed"
    await kept.settle("t", answer("y", usd=0.1))
    assert await kept.claim(given, "candidate", "z", 0.11, 1.0) == "spent"
    assert await kept.claim(given, "candidate", "z", 0.09, 1.0) == "claimed"
    await kept.release("t", "candidate", "z")
    assert await kept.claim(given, "candidate", "z", 0.1, 1.0) == "claimed"
    await kept.aclose()


async def test_the_first_judgement_shows_what_one_costs(kept):
    given = trial(judge_usd=1.0)
    assert await kept.claim(given, "candidate", "a", 0.0, 1.0) == "claimed"
    assert await kept.claim(given, "candidate", "b", 0.0, 1.0) == "wait"
    await kept.settle("t", answer("a", judge_usd=0.2))
    assert [await kept.claim(given, "candidate", name, 0.0, 1.0) for name in "bcde"] == [*["claimed"] * 3, "wait"]
    for name in "bcd":
        await kept.settle("t", answer(name, judge_usd=0.2))
    assert await kept.claim(given, "candidate", "e", 0.0, 1.0) == "judge_spent"
    await kept.aclose()


async def test_a_judge_that_costs_nothing_lets_calls_run_side_by_side(kept):
    given = trial(judge_usd=1.0, parallel=4)
    assert await kept.claim(given, "candidate", "a", 0.0, 1.0) == "claimed"
    await kept.settle("t", answer("a", judge_usd=0.0))
    assert [await kept.claim(given, "candidate", name, 0.0, 1.0) for name in "bcdef"] == [*["claimed"] * 4, "wait"]
    await kept.aclose()


async def test_a_trial_is_full_at_its_last_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ANSWERS", 2)
    assert MAX_ANSWERS > 2
    kept, given = Trials(SQLiteDocuments(tmp_path)), trial()
    for name in "ab":
        assert await kept.claim(given, "candidate", name, 0.0, 1.0) == "claimed"
        await kept.settle("t", answer(name))
    assert await kept.claim(given, "candidate", "c", 0.0, 1.0) == "full"
    await kept.aclose()


async def test_a_hundred_tasks_never_reserve_more_than_the_bound(kept, url):
    given = trial(usd=1.0, judge_usd=100.0)
    other = open_trials(url)
    await kept.claim(given, "candidate", "first", 0.0, 0.0)
    await kept.settle("t", answer("first", usd=0.0, judge_usd=0.001))
    places = product((kept, other), range(50))
    said = await asyncio.gather(*(where.claim(given, "candidate", f"x{n}", 0.03, 1.0) for where, n in places))
    counts = Counter(said)
    answers = [one for one in await kept.answers("t") if one.state == "sending"]
    assert sum(one.usd for one in answers) <= 1.0
    assert (counts["claimed"], len(answers)) == (33, 33)
    assert counts["taken"] + counts["wait"] == 67
    await kept.aclose()
    await other.aclose()


CLAIMS = """
import asyncio, sys
from gaugeway.storage.trials import open_trials
from tests.gaugeway.storage.test_trials import trial

async def main():
    kept = open_trials(sys.argv[1])
    print(*[await kept.claim(trial(usd=0.5, judge_usd=100.0), "candidate", f"x{n}", 0.05, 1.0) for n in range(20)])
    await kept.leave_out({"t": __import__("collections").Counter(route=1)})
    await kept.aclose()

asyncio.run(main())
"""


async def test_of_two_processes_one_gets_an_exchange_and_both_count(kept, url):
    await kept.start(trial())
    await kept.claim(trial(), "candidate", "first", 0.0, 0.0)
    await kept.settle("t", answer("first", usd=0.0, judge_usd=0.001))
    pipe = asyncio.subprocess.PIPE
    line = (sys.executable, "-c", CLAIMS, url)
    running = [await asyncio.create_subprocess_exec(*line, stdout=pipe, stderr=pipe) for _ in range(2)]
    said = [await process.communicate() for process in running]
    words = [out.decode().split() for out, _ in said]
    assert [len(one) for one in words] == [20, 20], said
    assert sum(one.count("claimed") for one in words) == 10
    for first, second in zip(*words, strict=True):
        assert (first, second) != ("claimed", "claimed")
    assert sum(one.usd for one in await kept.answers("t")) <= 0.5
    assert (await kept.get("t")).left_out == {"route": 2}
    await kept.aclose()


async def test_left_out_exchanges_are_counted_from_everywhere_and_only_once(kept, url):
    await kept.start(trial())
    others = [kept, open_trials(url)]
    counts = [{"t": Counter(route=2, too_large=1), "gone": Counter(route=1)} for _ in others]
    await asyncio.gather(*(where.leave_out(given) for where, given in zip(others, counts, strict=True)))
    assert (await kept.get("t")).left_out == {"route": 4, "too_large": 2}
    assert not any(reasons for given in counts for reasons in given.values())
    await kept.leave_out(counts[0])
    assert (await kept.get("t")).left_out == {"route": 4, "too_large": 2}
    for where in others:
        await where.aclose()


async def test_what_cannot_be_counted_now_is_counted_later(tmp_path, monkeypatch):
    kept, counts = Trials(SQLiteDocuments(tmp_path)), {"t": Counter(route=2)}
    await kept.start(trial())

    async def away(*_):
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteDocuments, "update", away)
        with pytest.raises(OSError, match=r"^$"):
            await kept.leave_out(counts)
    await kept.leave_out(counts)
    assert (await kept.get("t")).left_out == {"route": 2}
    await kept.aclose()


async def test_answers_are_read_in_the_order_in_which_they_became_complete(kept):
    for name, at in (("b", 3.0), ("a", 3.0), ("c", 1.0)):
        await kept.claim(trial(), "candidate", name, 0.0, 0.0)
        await kept.settle("t", answer(name, at=at, judge_usd=0.0))
    assert [one.exchange for one in await kept.answers("t")] == ["c", "a", "b"]
    assert (await kept.answers("t"))[0] == answer("c", at=1.0, judge_usd=0.0)
    assert await kept.answers("other") == []
    await kept.aclose()


async def test_nothing_of_a_removed_trial_stays_or_comes_back(kept):
    await kept.start(trial())
    await kept.start(trial("other"))
    await kept.claim(trial(), "candidate", "x", 0.1, 1.0)
    await kept.claim(trial("other"), "candidate", "x", 0.1, 1.0)
    await kept.keep([("t", "x", KEPT)], 1.0)
    assert await kept.remove("t")
    assert not await kept.remove("t")
    await kept.settle("t", answer("x"))  # of a call that was under way
    assert await kept.answers("t") == []
    assert (await kept.waiting(None))[1] == {}
    assert len(await kept.answers("other")) == 1
    assert [stored.trial.name for stored in await kept.all()] == ["other"]
    await kept.aclose()


async def test_requests_about_a_person_are_forgotten(kept):
    await kept.start(trial())
    await kept.start(trial("other", app="help"))
    named = Kept(route="r", body='{"prompt":"Ana Lopez"}')
    sealed = Kept(route="r", body="gAAA", sealed=True)
    for name, exchange, request in (("t", "a", named), ("t", "b", KEPT), ("t", "c", sealed), ("other", "a", named)):
        await kept.keep([(name, exchange, request)], 1.0)
    assert await kept.forget(Subject(app="help"), dry_run=True) == 1
    assert await kept.forget(Subject(app="shop", match="ana lopez"), dry_run=True) == 2
    assert await kept.forget(Subject(match="ana lopez")) == 3
    assert set((await kept.waiting(None))[1]) == {("t", "b")}
    await kept.aclose()


async def test_a_definition_of_a_newer_release_is_left_alone(tmp_path):
    kept = Trials(SQLiteDocuments(tmp_path))
    await kept.start(trial())
    await kept.start(trial("newer"))
    documents = SQLiteDocuments(tmp_path)
    _, rows = await documents.changed(module.TRIALS, None)
    newer = next(row for row in rows if row[0] == "newer")
    changed = (*newer[:-1], newer[-1].replace('"app":', '"unheard_of":1,"app":'))
    await documents.update(module.TRIALS, lambda _: module.Changes(put=[changed]))
    assert [stored.trial.name for stored in await kept.all()] == ["t"]
    for where in (kept, documents):
        await where.aclose()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "Upper"}, "name: 'Upper'"),
        ({"name": "x" * 41}, "name: "),
        ({"arms": (ARM, ARM)}, "arms: each needs a name of its own"),
        ({"arms": (msgspec.structs.replace(ARM, name="a b"),)}, "arms: each needs a name of its own"),
        ({"until": 0.0}, "until: lies in the past"),
    ],
)
def test_a_problem_begins_with_its_field(given, problem):
    (said,) = trial(**given).problems()
    assert said.startswith(problem)
    assert trial().problems() == []


def test_a_seal_needs_a_key_and_opens_with_the_same_one(monkeypatch):
    monkeypatch.delenv("GAUGEWAY_TRIALS_KEY", raising=False)
    assert sealer() is None
    monkeypatch.setenv("GAUGEWAY_TRIALS_KEY", "one")
    sealed = sealer().encrypt(b"secret")
    assert b"secret" not in sealed
    assert sealer().decrypt(sealed) == b"secret"
    monkeypatch.setenv("GAUGEWAY_TRIALS_KEY", "two")
    with pytest.raises(Exception, match=r"^$"):
        sealer().decrypt(sealed)


def test_an_engine_that_keeps_no_trials_is_named():
    with pytest.raises(ValueError, match="clickhouse"):
        open_trials("clickhouse://u:p@127.0.0.1:1/d")

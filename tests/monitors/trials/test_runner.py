"""Trials run over real stores against real servers: what is paired, what counts against a candidate, when one ends."""

import asyncio
import json
from itertools import pairwise

import pytest

from gaugeway.records import Context, Score
from gaugeway.storage.trials import WAITS_S, Answer, Kept
from monitors.metrics.registry import Catalogue
from monitors.trials import runner as module
from tests.gaugeway.storage.test_trials import trial
from tests.support.llm_server import LLMServer, Reply
from tests.support.trials import CALL_USD, Bench, Spoken, arm

SECRET = "GAUGEWAY_TRIALS_KEY"


async def test_both_answers_are_judged_and_paired(tmp_path):
    with LLMServer(Reply(content="0.75")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1, 2, tags={"plan": "pro"}, cost_usd=0.5)
            await bench.run(ticks=8)
            answers = await bench.answers()
            stored = [await bench.store.sample(name) for name in ("x1", "x2")]
            _, waiting = await bench.trials.waiting(None)
        requests = server.requests
    assert [(one.state, one.facts["scores"]["spoken"]) for one in answers] == [("answered", [0.5, 0.75])] * 2
    assert {one.exchange for one in answers} == {"x1", "x2"}
    assert [one.usd for one in answers] == [pytest.approx(CALL_USD)] * 2
    assert answers[0].facts["numbers"]["usd"] == [0.5, pytest.approx(CALL_USD)]
    assert answers[0].facts["facets"]["tag:plan"] == "pro"
    assert requests[0].headers["authorization"] == "Bearer key of ${CANDIDATE}"
    # the live scores are those of the worker; the candidate's are kept with the exchange
    assert bench.metrics[0].scored == {"trial:t": 2}
    names = {(one.metric, one.outcome.value) for one in stored[0][1]}
    assert names == {("spoken", 0.5), ("spoken~trial:t.candidate", 0.75)}
    assert waiting == {}


async def test_a_live_answer_without_a_score_is_judged_after_a_while(tmp_path):
    with LLMServer(Reply(content="0.75")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1, judged=False)
            await bench.run(ticks=5)
            assert await bench.answers() == []
            bench.now += 60.0
            await bench.run()
            (one,) = await bench.answers()
    assert one.facts["scores"]["spoken"] == [0.5, 0.75]
    assert bench.metrics[0].scored == {"trial:t": 2}


async def test_an_unscored_answer_is_counted_and_is_no_pair(tmp_path):
    with LLMServer(Reply(content="unscored")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1)
            await bench.run()
            (one,) = await bench.answers()
    assert (one.state, one.facts["unscored"]) == ("answered", {"spoken": "unreadable"})
    assert "spoken" not in one.facts["scores"]
    assert one.facts["scores"]["answered"] == [1.0, 1.0]


async def test_an_answer_that_cannot_be_read_is_paid_for_and_says_nothing_of_its_quality(tmp_path):
    with LLMServer(Reply(body=b"data: {}")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1)
            await bench.run()
            (one,) = await bench.answers()
    assert (one.state, one.facts["scores"]) == ("failed:unreadable", {})
    assert one.usd > CALL_USD


@pytest.mark.parametrize(
    ("reply", "state", "usd"),
    [
        (Reply(status=400), "failed:http_400", 0.0),
        (Reply(status=302, headers={"location": "http://127.0.0.1:9/"}), "failed:http_302", 0.0),
        (Reply(content="0.5", finish_reason="length"), "no_answer:truncated_response", CALL_USD),
        (Reply(refusal="No."), "no_answer:refusal", CALL_USD),
        (Reply(content=""), "no_answer:empty_response", CALL_USD),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_a_candidate_does_not_answer_counts_against_it(tmp_path, reply, state, usd):
    with LLMServer(reply) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1)
            await bench.run()
            (one,) = await bench.answers()
            results = await bench.results()
    assert (one.state, one.facts["scores"]) == (state, {"answered": [1.0, 0.0]})
    assert one.usd > CALL_USD if usd is None else one.usd == pytest.approx(usd)
    answered = next(row for row in results["candidate"].metrics if row.metric == "answered")
    assert (answered.n, answered.candidate) == (1, 0.0)


async def test_a_failure_has_no_times_or_tokens_to_compare(tmp_path):
    with LLMServer(Reply(status=400)) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1)
            await bench.run()
            (one,) = await bench.answers()
    assert one.facts["numbers"] == {}


async def test_several_candidates_get_the_same_questions(tmp_path):
    with LLMServer(Reply(content="0.75")) as one, LLMServer(Reply(content="0.25")) as two:
        async with Bench(tmp_path, one.url) as bench:
            await bench.start(arms=(arm(one.url, "one"), arm(two.url, "two", model="other")))
            await bench.add(1, 2, 3)
            await bench.run(ticks=20)
            answers = await bench.answers()
    pairs = {(answer.arm, answer.exchange): answer.facts["scores"]["spoken"] for answer in answers}
    assert len(pairs) == 6
    assert {pair[1] for (name, _), pair in pairs.items() if name == "one"} == {0.75}
    assert {pair[1] for (name, _), pair in pairs.items() if name == "two"} == {0.25}
    assert {request.body.get("model") for request in two.requests} == {"other"}


async def test_a_trial_ends_in_time(tmp_path):
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start(until=10_005.0)
            await bench.add(1)
            bench.held = "queue"
            await bench.run(ticks=7)
            stored = await bench.trials.get("t")
            _, waiting = await bench.trials.waiting(None)
    assert (stored.state, stored.why, waiting, server.requests) == ("ended", "time", {}, [])


async def test_a_trial_ends_when_its_money_is_spent_and_never_spends_more(tmp_path):
    with LLMServer(Reply(content="0.5", tokens=(90, 4000))) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start(usd=0.05)
            await bench.add(*range(30))
            await bench.run(ticks=40)
            stored, answers = await bench.trials.get("t"), await bench.answers()
    assert (stored.state, stored.why) == ("ended", "spent")
    assert 0.04 < sum(one.usd for one in answers) <= 0.05


async def test_a_trial_ends_when_judging_has_spent_its_money(tmp_path):
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url, Spoken(usd=0.1)) as bench:
            await bench.start(judge_usd=0.45)
            await bench.add(*range(30))
            await bench.run(ticks=60)
            stored, answers = await bench.trials.get("t"), await bench.answers()
    assert (stored.state, stored.why) == ("ended", "judge_spent")
    assert sum(one.judge_usd for one in answers) == pytest.approx(0.4)


async def test_a_trial_ends_when_it_is_decided(tmp_path):
    with LLMServer(Reply(content="0.0")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(*range(120), response="1.0")
            await bench.run(ticks=12, step_s=5.0)
            stored = await bench.trials.get("t")
            results = await bench.results()
    assert (stored.state, stored.why) == ("ended", "decided")
    assert results["candidate"].verdict == "do not ship"


async def test_questions_after_the_first_hundred_belong_to_the_topics_learned_from_those(tmp_path):
    about = (
        "how do I return an order and get a refund",
        "which adapter charges the laptop battery",
        "when does the museum open on holidays",
    )
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            for number in range(300):
                await bench.add(number, response="0.5", question=f"{about[number % 3]} {number}?")
            await bench.run(ticks=30, step_s=5.0)
            answers = await bench.trials.answers("t")
    topics = [answer.facts["facets"].get("topic") for answer in answers]
    assert topics[:100] == [None] * 100
    labelled = [answer for answer in answers[100:] if "topic" in answer.facts["facets"]]
    assert len(labelled) >= 10
    known = [answer for answer in labelled if answer.facts["facets"]["topic"] != "unlike before"]
    by_subject = {(int(answer.exchange[1:]) % 3, answer.facts["facets"]["topic"]) for answer in known}
    assert len(by_subject) == len({topic for _, topic in by_subject}) > 1
    for subject, topic in by_subject:
        assert {*topic.split(" (")[0].split(", ")} <= {*about[subject].split()}


@pytest.mark.parametrize(("before", "why"), [("1.0", "worse"), ("0.0", "not_worse")])
async def test_after_a_switch_the_version_before_shows_whether_answers_got_worse(tmp_path, before, why):
    with LLMServer(Reply(content=before)) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start(watch=True)
            await bench.add(*range(120), response="0.5")
            await bench.run(ticks=12, step_s=5.0)
            stored = await bench.trials.get("t")
            results = await bench.results()
    assert (stored.state, stored.why) == ("ended", why)
    primary = next(row for row in results["candidate"].metrics if row.role == "primary")
    assert (primary.live, primary.candidate) == (0.5, float(before))
    assert primary.difference == float(before) - 0.5
    assert primary.low <= primary.difference <= primary.high
    assert [shown.why for shown in bench.shown[-1]] == [why]


async def test_a_candidate_that_only_fails_ends_the_trial(tmp_path):
    with LLMServer(Reply(status=401)) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start(margin=0.9)
            await bench.add(*range(40))
            await bench.run(ticks=40, step_s=5.0)
            stored, answers = await bench.trials.get("t"), await bench.answers()
    assert (stored.state, stored.why) == ("ended", "candidate_fails")
    assert sum(one.usd for one in answers) == 0.0


async def test_many_calls_that_are_refused_at_once_are_one_failure(tmp_path):
    with LLMServer(Reply(content="0.5"), Reply(status=429, delay_s=1.0)) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(99)
            await bench.run(ticks=2)  # from now on it is known what judging costs
            await bench.add(*range(40))
            await bench.run(ticks=3, step_s=0.1)
            stored = await bench.trials.get("t")
            assert len(await bench.answers()) == 1
    assert stored.state == "running"
    assert len(server.requests) > 25


async def test_who_is_busy_is_asked_later_and_more_slowly(tmp_path):
    replies = [Reply(status=429, headers={"retry-after": "30"}), Reply(content="0.5")]
    with LLMServer(*replies) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start(parallel=1)
            await bench.add(1)
            await bench.run(ticks=20)
            assert (len(server.requests), await bench.answers()) == (1, [])
            await bench.run(ticks=20)
            assert len(server.requests) == 2
            (one,) = await bench.answers()
    assert one.state == "answered"


async def test_no_more_run_at_once_and_in_a_second_than_may(tmp_path):
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start(parallel=3)
            await bench.start("slow", per_second=0.5)
            await bench.add(*range(9))
            await bench.add(*range(9), name="slow")
            counts = []
            for _ in range(20):
                await bench.run()
                counts.append([len(await bench.answers(name)) for name in ("t", "slow")])
    together = [later[0] - earlier[0] for earlier, later in pairwise(counts)]
    assert max(together) == 3
    assert counts[-1][1] <= 10
    assert max(later[1] - earlier[1] for earlier, later in pairwise(counts)) == 1


async def test_a_claim_of_a_process_that_is_gone_counts_as_lost_with_its_money(tmp_path):
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            trial = (await bench.trials.get("t")).trial
            assert await bench.trials.claim(trial, "candidate", "x9", 0.25, bench.now) == "claimed"
            await bench.run(ticks=2, step_s=trial.timeout_s + 1000.0)
            assert await bench.states() == {"sending": 1}
            await bench.run(ticks=2, step_s=1000.0)
            (one,) = await bench.answers()
    assert (one.state, one.usd, one.judge_usd, one.facts) == ("lost", 0.25, 0.0, {})


async def test_calls_under_way_are_lost_when_the_process_ends(tmp_path):
    with LLMServer(Reply(delay_s=30.0)) as server:
        bench = Bench(tmp_path, server.url)
        async with bench:
            await bench.start()
            await bench.add(1)
            await bench.runner.tick()
            async with asyncio.timeout(30):
                while not server.requests:  # noqa: ASYNC110 - the server is a thread
                    await asyncio.sleep(0.01)
            await bench.runner.aclose()
            (one,) = await bench.answers()
            await bench.trials.aclose()
    assert one.state == "lost"
    assert one.usd > 0.0


async def test_a_store_that_fails_while_an_answer_is_kept_leaves_no_claim_behind(tmp_path, monkeypatch):
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1)

            async def away(*_):
                raise OSError

            with monkeypatch.context() as patch:
                patch.setattr(bench.store, "add", away)
                await bench.run()
            (one,) = await bench.answers()
    assert (one.state, one.usd) == ("lost", pytest.approx(CALL_USD))


async def test_a_stopped_trial_finishes_what_it_paid_for(tmp_path):
    with LLMServer(Reply(content="0.5", delay_s=0.3)) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1)
            await bench.runner.tick()
            async with asyncio.timeout(30):
                while not server.requests:  # noqa: ASYNC110 - the server is a thread
                    await asyncio.sleep(0.01)
            await bench.trials.end("t", "stopped", bench.now)
            await bench.runner.tick()
            async with asyncio.timeout(30):
                while await bench.states() != {"answered": 1}:  # noqa: ASYNC110 - what the store keeps sets no event
                    await asyncio.sleep(0.01)


async def test_while_it_must_wait_nothing_is_sent(tmp_path):
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            bench.held = "judge"
            await bench.start()
            await bench.add(1)
            await bench.run(ticks=3)
            assert server.requests == []
            bench.held = ""
            await bench.run()
            assert len(server.requests) == 1


async def test_what_cannot_be_tried_is_counted(tmp_path, monkeypatch):
    monkeypatch.delenv(SECRET, raising=False)
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1, body=json.dumps({"messages": [], "n": 2}))
            await bench.trials.keep([("t", "never", Kept(route="completions", body="{}"))], bench.now)
            await bench.add(2)
            await bench.trials.keep([("t", "x2", Kept(route="completions", body="gAAA", sealed=True))], bench.now)
            await bench.run(ticks=3)
            bench.now += 900.0
            await bench.run(ticks=3)
            left, (_, waiting) = (await bench.trials.get("t")).left_out, await bench.trials.waiting(None)
    assert (left, waiting) == ({"several_choices": 1, "no_key": 1, "never_stored": 1}, {})


async def test_a_request_that_waited_too_long_is_not_sent(tmp_path):
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start()
            await bench.add(1)
            bench.now += WAITS_S + 1.0
            await bench.run(ticks=2)
            left = (await bench.trials.get("t")).left_out
    assert (left, server.requests) == ({"too_late": 1}, [])


@pytest.mark.parametrize("key", ["the same", "another"])
async def test_a_sealed_request_opens_with_the_key_and_one_of_another_key_stops_nothing(tmp_path, monkeypatch, key):
    monkeypatch.setenv(SECRET, "the same")
    sealed = module.sealer().encrypt(b'{"messages":[{"role":"user","content":"Why?"}]}').decode()
    monkeypatch.setenv(SECRET, key)
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url) as bench:
            await bench.start(send="original")
            await bench.add(1, 2)
            kept = Kept(route="chat_completions", body=sealed, sealed=True)
            await bench.trials.keep([("t", "x1", kept)], bench.now)
            await bench.run(ticks=8)
            exchanges = {one.exchange for one in await bench.answers()}
            left = (await bench.trials.get("t")).left_out
    assert exchanges == ({"x1", "x2"} if key == "the same" else {"x2"})
    assert left == ({} if key == "the same" else {"no_key": 1})


async def test_the_candidates_answer_is_redacted_before_it_is_judged_and_kept(tmp_path):
    def redact(sample):
        return module.changed(sample, response=sample.response.replace("0.7511", "0.25"))

    with LLMServer(Reply(content="0.7511")) as server:
        async with Bench(tmp_path, server.url, redact=redact) as bench:
            await bench.start()
            await bench.add(1)
            await bench.run()
            (one,) = await bench.answers()
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert one.facts["scores"]["spoken"] == [0.5, 0.25]
    assert b"0.7511" not in kept


async def test_the_candidate_is_judged_with_the_passages_that_it_got(tmp_path):
    class Passages(Spoken):
        async def score(self, sample):
            return Score(len(sample.contexts) / 10)

    contexts = tuple(Context(text=f"The {name} stands at the old gate.") for name in ("tower", "lamp", "winch"))
    listed = "\n".join(f"[{n}] {context.text}" for n, context in enumerate(contexts, 1))
    body = {"messages": [{"role": "user", "content": f"Sources:\n{listed}\n\nQuestion: Why 1?"}]}
    with LLMServer(Reply(content="0.5")) as server:
        async with Bench(tmp_path, server.url, Passages()) as bench:
            await bench.start(arms=(arm(server.url, max_contexts=2),))
            await bench.add(1, response="0.3", body=json.dumps(body), contexts=contexts)
            await bench.run()
            (one,) = await bench.answers()
    assert one.facts["scores"]["spoken"] == [0.3, 0.2]
    assert "winch" not in server.requests[0].text


async def test_trials_of_the_configuration_start_once_and_a_wrong_one_is_said(tmp_path, caplog):
    async with Bench(tmp_path, "http://127.0.0.1:9") as bench:
        calls = []

        async def wanted():
            calls.append(1)
            raise ValueError("send: say")

        bench.runner.wanted = wanted
        await bench.run(ticks=3)
    assert (len(calls), "trials: send: say" in caplog.text) == (1, True)


def test_results_are_those_of_the_answers():
    facts = {"scores": {"spoken": [0.5, 1.0]}}
    given = {"state": "answered", "at": 1.0, "usd": 0.0, "judge_usd": 0.0, "facts": facts}
    answers = [Answer(arm=name, exchange=f"x{n}", **given) for n, name in enumerate(("one", "two", "two"))]
    arms = (arm("http://127.0.0.1:9", "one"), arm("http://127.0.0.1:9", "two"))
    results = module.results_of(trial(arms=arms, primary="spoken"), answers, Catalogue(enabled=()))
    assert {name: result.metrics[0].n for name, result in results.items()} == {"one": 1, "two": 2}

"""Conversations become samples of their own once they are over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Message, Sample
from gaugeway.sampling import MetricSampler
from gaugeway.settings.bounds import MAX_HISTORY_TEXT, MAX_TRANSCRIPT, bounded_sample
from monitors.evaluation.transcripts import TranscriptMaker, transcript_of
from tests.support.clock import Clock
from tests.support.stores import store_in

SILENCE_S = 900.0


def answer(turn=1, conversation="c", **fields):
    given = {
        "id": f"{conversation}-{turn}",
        "started_at": 1000.0 + 60.0 * turn,
        "app": "shop",
        "question": f"question {turn}",
        "response": f"answer {turn}",
        "turn": turn,
        "conversation": conversation,
    }
    return Sample(**(given | fields))


def made(*exchanges):
    return transcript_of("c", exchanges, silence_s=SILENCE_S)


def said(sample):
    return [one.text for one in sample.transcript]


def test_a_transcript_holds_questions_and_answers_in_order():
    one = made(answer(1), answer(2, cluster="s:c u:7", cost_usd=0.25))
    assert said(one) == ["question 1", "answer 1", "question 2", "answer 2"]
    assert [message.role for message in one.transcript] == ["user", "assistant"] * 2
    assert (one.app, one.conversation, one.cluster, one.cost_usd) == ("shop", "c", "s:c u:7", 0.25)
    assert one.started_at == answer(2).started_at + SILENCE_S
    assert (one.skip_reason, one.question, one.response) == (None, None, "")


def test_steps_on_the_way_to_an_answer_are_left_out_and_failures_are_named():
    steps = [answer(1, id=reason, skip_reason=reason) for reason in ("tool_call", "hop", "auxiliary", "resubmission")]
    failed = answer(2, response="", skip_reason="upstream_error")
    cached = answer(3, skip_reason="cache_hit")
    assert said(made(*steps, answer(1), failed, cached)) == [
        "question 1",
        "answer 1",
        "question 2",
        "[no answer: upstream_error]",
        "question 3",
        "answer 3",
    ]
    assert made(*steps) is None


@pytest.mark.parametrize(
    ("exchanges", "skipped"),
    [
        ([answer(1), answer(2)], None),
        ([answer(1, rate=0.5), answer(2, rate=0.5)], "incomplete"),
        ([answer(1, rate=0.5, sampled_whole=True), answer(2, rate=0.5, sampled_whole=True)], None),
        ([answer(1, rate=0.5, sampled_whole=True), answer(2, rate=0.5)], "incomplete"),
        ([answer(3)], "incomplete"),
        ([answer(2, history=(Message(role="user", text="earlier"),))], None),
    ],
)
def test_a_conversation_that_is_not_known_whole_is_skipped(exchanges, skipped):
    one = made(*exchanges)
    assert one.skip_reason == skipped
    assert one.rate == exchanges[0].rate


def test_of_a_turn_that_was_answered_again_only_the_last_branch_counts():
    edited = answer(2, id="edited", question="question 2b", response="answer 2b")
    found = made(answer(1), answer(2), answer(3), edited, answer(3, id="last", question="question 3b"))
    assert said(found) == ["question 1", "answer 1", "question 2b", "answer 2b", "question 3b", "answer 3"]


def test_a_conversation_that_goes_on_is_the_same_cluster():
    assert made(answer(1, cluster="q:1")).cluster == "s:c q:1"
    assert made(answer(1), answer(2, cluster="s:c q:2")).cluster == "s:c q:2"
    assert made(answer(1)).cluster == "s:c"


def test_exchanges_of_a_session_without_history_follow_each_other():
    found = made(answer(1), answer(1, id="next", question="another"), answer(1, id="third", question="one more"))
    assert said(found)[::2] == ["question 1", "another", "one more"]


def test_earlier_messages_come_from_the_history_of_the_first_exchange():
    history = (Message(role="user", text="earlier"), Message(role="assistant", text="said"))
    assert said(made(answer(2, history=history))) == ["earlier", "said", "question 2", "answer 2"]


def test_a_long_conversation_is_bounded():
    long = made(*(answer(turn, response="x" * 10_000) for turn in range(1, 120)))
    assert len(long.transcript) == MAX_TRANSCRIPT
    assert said(long)[0] == "question 1"
    assert said(long)[-2] == "question 119"
    assert max(map(len, said(long))) == MAX_HISTORY_TEXT
    assert bounded_sample(long).transcript == long.transcript


def maker(store, queue, clock, *, chosen=lambda _: True, oldest=None):
    async def waits():
        return oldest

    return TranscriptMaker(store, queue, silence_s=SILENCE_S, chosen=chosen, oldest=waits, clock=clock)


async def test_a_conversation_is_queued_once_after_the_silence_and_again_if_it_goes_on(tmp_path):
    async with store_in(tmp_path) as store:
        queue, clock = MemoryQueue(), Clock(0.0)
        one = maker(store, queue, clock)
        for sample in (answer(1), answer(2), answer(1, "d", skip_reason="tool_call")):
            await store.add(sample, [])
        clock.now = answer(2).started_at + SILENCE_S
        assert await one.tick() == 0
        clock.now += 1.0
        assert await one.tick() == 1
        assert await one.tick() == 0
        (lease,) = await queue.lease(5)
        assert said(lease.sample) == ["question 1", "answer 1", "question 2", "answer 2"]
        await store.add(lease.sample, [])
        await queue.ack([lease.sample.id])
        clock.now += 2 * SILENCE_S
        assert await one.tick() == 0
        assert await maker(store, queue, clock).tick() == 0  # a process that starts later sees that it is scored
        await store.add(answer(3, started_at=clock.now), [])
        clock.now += SILENCE_S + 1.0
        assert await one.tick() == 1
        assert len(said((await queue.lease(5))[0].sample)) == 6


async def test_a_sample_that_still_waits_holds_back_conversations_as_old_as_it_is(tmp_path):
    async with store_in(tmp_path) as store:
        clock, queue = Clock(0.0), MemoryQueue()
        await store.add(answer(1), [])
        clock.now = answer(1).started_at + SILENCE_S + 100.0
        assert await maker(store, queue, clock, oldest=answer(1).started_at + 10.0).tick() == 0
        assert await maker(store, queue, clock).tick() == 1


async def test_conversations_are_drawn_whole_and_by_the_same_hash_as_their_scores(tmp_path):
    async with store_in(tmp_path) as store:
        sampler, clock, queue = MetricSampler("salt"), Clock(0.0), MemoryQueue(max_attempts=1)
        for number in range(200):
            await store.add(answer(1, f"c{number}"), [])
        clock.now = answer(1).started_at + SILENCE_S + 1.0
        one = maker(store, queue, clock, chosen=lambda sample: sampler.keeps(sample, 0.25))
        queued = await one.tick()
        assert 25 < queued < 80
        samples = [lease.sample for lease in await queue.lease(200)]
        assert all(sampler.keeps(sample, 0.25) for sample in samples)
        assert sampler.joint(replace(samples[0], rate=0.5), 0.25) == pytest.approx(0.125)

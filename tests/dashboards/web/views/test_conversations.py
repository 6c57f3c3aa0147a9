"""Conversations: a row for each that ended, its transcript, and nothing that a user wrote is markup."""

from __future__ import annotations

import asyncio
import time

from monitors.config import Config, Judge, Metric
from monitors.records import Evaluation, Message, Sample, Score, Skipped
from tests.support.pages import EVIL, world

CONFIG = Config(
    judge=Judge(base_url="http://127.0.0.1:1/v1", model="judge-1"),
    metrics={name: Metric() for name in ("goal_met", "gave_up", "turns_to_resolution")},
)


def run(path, scenario, **options):
    async def main():
        async with world(path, **options) as made:
            return await scenario(made)

    return asyncio.run(main())


def conversation(number=0, opening="Where is my order?", **about):
    transcript = (
        Message(role="user", text=opening),
        Message(role="assistant", text="On its way."),
        Message(role="user", text="When?"),
        Message(role="assistant", text="On Monday."),
    )
    fields = {"id": f"conversation-{number:02}", "started_at": time.time() - 60 - number, "app": "shop", "model": "m"}
    return Sample(**(fields | {"conversation": f"c{number}", "transcript": transcript} | about))


def scores(sample, **values):
    made = {name: Score(value, "because") for name, value in values.items()}
    made.setdefault("turns_to_resolution", Skipped("not_resolved"))
    return [Evaluation(sample_id=sample.id, metric=name, version="1", outcome=one) for name, one in made.items()]


def test_conversations_are_listed_with_their_scores(tmp_path):
    async def scenario(w):
        for number in range(60):
            sample = conversation(number, app="shop" if number % 2 else "bank")
            await w.store.add(sample, scores(sample, goal_met=number / 100, gave_up=1.0))
        return await w.page("/conversations"), await w.page("/conversations?app=bank&metric=goal_met&most=0.1")

    everything, some = run(tmp_path, scenario, config=CONFIG)
    assert "50 conversations, newest first" in everything.words
    assert "skipped: not resolved" in everything.words
    assert any(one.get("rel") == "next" for one in everything.all("a"))
    assert "6 conversations" in some.words
    links = [one["href"] for one in some.all("a") if one.get("href", "").startswith("/conversations/")]
    assert links == [f"/conversations/conversation-{number:02}" for number in range(0, 11, 2)]


def test_a_conversation_shows_transcript_scores_and_exchanges(tmp_path):
    async def scenario(w):
        sample = conversation(opening=EVIL)
        await w.store.add(sample, scores(sample, goal_met=1.0, turns_to_resolution=0.5))
        exchange = Sample(
            id="x-1", started_at=time.time() - 90, app="shop", question="When?", response="On Monday.", turn=2,
            conversation="c0",
        )  # fmt: skip
        await w.store.add(exchange, [])
        gone = (await w.client.get("/conversations/x-1")).status_code
        return await w.page("/conversations/conversation-00"), await w.page("/exchanges/x-1"), gone

    page, exchange, gone = run(tmp_path, scenario, config=CONFIG)
    assert list(page.all("img")) == []
    for words in ("On its way.", "On Monday.", "goal_met", "0.50", "because"):
        assert words in page.words
    assert "/exchanges/x-1" in [one.get("href") for one in page.all("a")]
    assert "On its way." not in exchange.words
    assert gone == 404


def test_without_such_a_metric_the_page_says_how_to_enable_one(tmp_path):
    async def scenario(w):
        return await w.page("/conversations")

    assert "[metrics.goal_met]" in run(tmp_path, scenario).words


def test_explore_shows_a_conversation_by_its_first_question(tmp_path):
    async def scenario(w):
        sample = conversation()
        await w.store.add(sample, scores(sample, goal_met=0.0))
        exported = (await w.client.get("/explore/export?since=1h")).text
        return await w.page("/explore?metric=goal_met"), exported

    page, exported = run(tmp_path, scenario, config=CONFIG)
    assert "Where is my order?" in page.words
    assert exported == ""

"""Conversations: a row for each that ended, its transcript, and nothing that a user wrote is markup."""

from __future__ import annotations

import time

from dashboards.web.views import conversations as conversation_reading
from gaugeway.records import Evaluation, Message, Sample, Score, Skipped
from gaugeway.settings.shared import Config, Judge, Metric
from tests.support.pages import EVIL, world

CONFIG = Config(
    judge=Judge(base_url="http://127.0.0.1:1/v1", model="judge-1"),
    metrics={name: Metric() for name in ("goal_met", "gave_up", "turns_to_resolution")},
)


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


async def test_conversations_are_listed_with_their_scores(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        for number in range(60):
            sample = conversation(number, app="shop" if number % 2 else "bank")
            await w.store.add(sample, scores(sample, goal_met=number / 100, gave_up=1.0))
        everything, some = (
            await w.page("/conversations"),
            await w.page("/conversations?app=bank&metric=goal_met&most=0.1"),
        )
    assert "50 conversations, newest first" in everything.words
    assert "skipped: not resolved" in everything.words
    assert any(one.get("rel") == "next" for one in everything.all("a"))
    assert "6 conversations" in some.words
    links = [one["href"] for one in some.all("a") if one.get("href", "").startswith("/conversations/")]
    assert links == [f"/conversations/conversation-{number:02}" for number in range(0, 11, 2)]


async def test_a_conversation_shows_transcript_scores_and_exchanges(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        sample = conversation(opening=EVIL)
        await w.store.add(sample, scores(sample, goal_met=1.0, turns_to_resolution=0.5))
        exchange = Sample(
            id="x-1", started_at=time.time() - 90, app="shop", question="When?", response="On Monday.", turn=2,
            conversation="c0",
        )  # fmt: skip
        await w.store.add(exchange, [])
        gone = (await w.client.get("/conversations/x-1")).status_code
        page, exchange = await w.page("/conversations/conversation-00"), await w.page("/exchanges/x-1")
    assert list(page.all("img")) == []
    for words in ("On its way.", "On Monday.", "goal_met", "0.50", "because"):
        assert words in page.words
    assert "/exchanges/x-1" in [one.get("href") for one in page.all("a")]
    assert "On its way." not in exchange.words
    assert gone == 404


async def test_without_such_a_metric_the_page_says_how_to_enable_one(tmp_path):
    async with world(tmp_path) as w:
        assert "[metrics.goal_met]" in (await w.page("/conversations")).words


async def test_explore_shows_a_conversation_by_its_first_question(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        sample = conversation()
        await w.store.add(sample, scores(sample, goal_met=0.0))
        exported = (await w.client.get("/explore/export?since=1h")).text
        page = await w.page("/explore?metric=goal_met")
    assert "Where is my order?" in page.words
    assert exported == ""


async def talk(w):
    """Two conversations of sessions, one without a session, and single exchanges of two apps."""
    now = time.time()
    for n in range(3):
        about = {"session": "s-1", "conversation": "c-1", "turn": n + 1, "at": now - 300.0 + n}
        await w.add(0.9 - 0.3 * n, id=f"a{n}", question=f"Refund {n}?", response=f"Answer {n}.", **about)
    await w.add(0.8, id="b0", question=EVIL, session=EVIL, conversation="c-2", turn=1, at=now - 200.0, app="bank")
    for n in range(2):
        await w.add(0.7, id=f"d{n}", question=f"Follow-up {n}?", conversation="d0", turn=n + 1, at=now - 100.0 + n)
    for n in range(4):
        await w.add(0.5, id=f"e{n}", question="Alone?", conversation=f"e{n}", turn=1, at=now - 50.0)


async def test_conversations_are_listed_from_exchanges_where_none_is_scored(tmp_path):
    async with world(tmp_path) as w:
        await talk(w)
        page = await w.page("/conversations?since=1h")
        links = [one["href"] for one in page.all("a") if one["href"].startswith("/conversations/")]
        others = ("since=1h&app=bank", "since=2025-01-01&until=2025-01-02")
        others = [await w.page(f"/conversations?{one}") for one in others]
        opened, (bank, before) = [(one, await w.page(one)) for one in links], others
    assert "3 conversations in 10 exchanges" in page.words
    assert "4 single exchanges only in Explore" in page.words
    assert "Refund 0? ✗ faithfulness 0.30 fail 3 answered s-1 shop" in page.words
    assert [one for one, _ in opened] == [
        "/conversations/d0?app=shop",
        "/conversations/c-2?app=bank",
        "/conversations/c-1?app=shop",
    ]
    follow_up, hostile, refund = (one for _, one in opened)
    assert "Turn 1" in follow_up.words
    assert "Follow-up 1?" in follow_up.words
    for n in range(3):
        assert f"Refund {n}?" in refund.words
        assert f"Answer {n}." in refund.words
    assert "✗ faithfulness 0.30 fail" in refund.words
    for one in (page, hostile):
        assert EVIL in one.text
        assert not one.all("img")
    assert "1 conversation in 1 exchange" in bank.words
    assert "No exchange matches." in before.words


async def test_beside_conversations_with_scores_all_can_be_listed(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        await talk(w)
        sample = conversation()
        await w.store.add(sample, scores(sample, goal_met=0.2))
        scored = await w.page("/conversations?since=1h")
        link = next(one["href"] for one in scored.all("a") if "list=all" in one["href"])
        everything = await w.page(link)
    assert "1 conversation, newest first" in scored.words
    assert "3 conversations in" in everything.words
    assert everything.form("/conversations")["list"] == "all"


async def test_conversations_are_read_page_after_page(tmp_path, monkeypatch):
    monkeypatch.setattr(conversation_reading, "MAX_POINTS", 5)

    async with world(tmp_path) as w:
        now = time.time()
        for n in range(12):
            await w.add(0.5, id=f"x{n}", session=f"s-{n:02}", conversation=f"c-{n:02}", turn=1, at=now - 60.0 - n)
        page, keys = await w.page("/conversations?since=1h"), []
        for _ in range(9):
            keys += [one["href"] for one in page.all("a") if one["href"].startswith("/conversations/")]
            onward = [one["href"] for one in page.all("a") if one.get("rel") == "next"]
            if not onward:
                break
            page = await w.page(onward[0])
    assert keys == [f"/conversations/c-{n:02}?app=shop" for n in range(12)]

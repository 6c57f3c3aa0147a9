"""`/api/conversations`, over a socket."""

import time

import pytest

from gaugeway.records import Score, Skipped
from tests.support.pages import world


async def talk(w, *, app="shop", key="c-1", session="s-1", turns=3, worst=0.2, at=None):
    """A conversation of some turns; the second one has the worst score."""
    for turn in range(1, turns + 1):
        await w.add(
            Score(worst if turn == 2 else 0.9),
            at=(time.time() - 600.0 if at is None else at) + turn,
            app=app,
            conversation=key,
            session=session,
            turn=turn,
            question=f"Question {turn}?",
        )


async def test_conversations_are_listed_with_their_opening_and_worst_score(tmp_path):
    async with world(tmp_path) as w:
        await talk(w)
        await talk(w, app="desk", key="c-2", session=None, turns=2, at=time.time() - 300.0)
        await w.add(0.9)  # nothing continued it
        latest, earlier = (await w.client.get("/api/conversations")).json()
        assert (latest["key"], latest["app"], latest["turns"], latest["exchanges"]) == ("c-2", "desk", 2, 2)
        assert (earlier["key"], earlier["session"], earlier["opening"]) == ("c-1", "s-1", "Question 1?")
        assert earlier["worst"]["value"] == pytest.approx(0.2)
        assert [one["key"] for one in (await w.client.get("/api/conversations?app=shop")).json()] == ["c-1"]
        assert len((await w.client.get("/api/conversations?limit=1")).json()) == 1
        assert (await w.client.get("/api/conversations?limit=0")).status_code == 400


async def test_a_conversation_is_read_in_the_order_of_its_turns(tmp_path):
    async with world(tmp_path) as w:
        await talk(w)
        turns = (await w.client.get("/api/conversations/c-1")).json()
        assert [(turn["turn"], turn["question"]) for turn in turns] == [(n, f"Question {n}?") for n in (1, 2, 3)]
        assert (await w.client.get("/api/conversations/c-1?app=desk")).status_code == 404
        assert (await w.client.get("/api/conversations/unknown")).status_code == 404


async def test_a_conversation_without_a_score_has_no_worst_one(tmp_path):
    async with world(tmp_path) as w:
        for turn in (1, 2):
            await w.add(Skipped("no_contexts"), conversation="c-1", turn=turn)
        (only,) = (await w.client.get("/api/conversations")).json()
        assert (only["worst"], only["turns"]) == (None, 2)

"""Topics: rows of clusters with their examples, what an app has none of, and nothing that a question says is markup."""

from __future__ import annotations

import time

from gaugeway.records import Context, Score
from tests.support.pages import EVIL, world

REFUNDS = ["refund deadline of a saver ticket", "saver ticket refund after the deadline", "refund for saver tickets?"]
CABINS = ["accessible cabin with a wheelchair", "is a wheelchair cabin free", "accessible cabins for wheelchairs"]


async def fill(w, app="shop"):
    """Refunds fail, in the last hours and with one prompt; cabins do not."""
    now = time.time()
    for number in range(60):
        failed = {"claim": "Saver tickets are refunded after the deadline.", "verdict": "not_mentioned"}
        at = now - 3600.0 * (6 - number / 10) - 60.0
        question = f"{REFUNDS[number % 3]} {EVIL if number == 59 else ''}"
        bad = Score(0.2 if number > 20 else 0.9, "1 claim", (failed,) if number > 20 else ())
        prompt = "2-bad" if number > 20 else "2-good"
        await w.add(bad, at=at, app=app, question=question, prompt=prompt, tags={"release": "42"})
        contexts = (Context(text="It is so.", id="a"),)
        await w.add(0.9, at=at, app=app, question=CABINS[number % 3], contexts=contexts, prompt="2-good")
    await w.look()


async def test_a_row_says_what_fails_how_much_of_it_and_what_differs_and_opens_to_its_examples(tmp_path):
    async with world(tmp_path) as w:
        await fill(w)
        page = await w.page("/topics?app=shop")
    assert "39 of 120 answers fail faithfulness" in page.words
    assert "100 %" in page.words
    assert "prompt 2-bad 100 % vs 0 %" in page.words
    assert "good answers to like questions" in page.words
    links = [link["href"] for link in page.all("a") if link["href"].startswith("/exchanges/")]
    assert len(links) == 15  # five of the failing answers, five of each subject of the questions
    assert "Saver tickets are refunded after the deadline." in page.words
    assert "120 questions." in page.words
    assert "65 % without a good answer" in page.words
    assert len(page.all("details")) > 3
    assert not page.all("img")


async def test_an_app_without_answers_and_a_wrong_period_are_named(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.9)
        await w.look()
        one, other, wrong = (
            await w.page("/topics?app=shop"),
            await w.page("/topics?app=bank"),
            await w.page("/topics?since=never", 400),
        )
    assert "No answer failed in this period." in one.words
    assert "Fewer than five conversations are about the same subject." in one.words
    assert "No question of this app was evaluated in this period." in other.words
    assert "since: " in wrong.words


async def test_the_page_says_what_the_bad_answers_are_about(tmp_path, monkeypatch):
    monkeypatch.setattr("dashboards.web.views.alerts.COMPARED_S", 60.0)
    async with world(tmp_path) as w:
        now = time.time()
        for index in range(320):
            late, kind = index >= 200, index % 2 == 0
            value = 0.3 if late and kind else 0.95 if index % 10 else 0.8
            question = f"{'saver ticket refund deadline' if kind else 'accessible wheelchair cabin'} {EVIL}"
            await w.add(value, at=now - 7200.0 * (1 - index / 320), question=question)
        await w.look()
        alert = next(alert for alert in w.engine.alerts() if alert.state == "firing")
        page = await w.page(f"/alerts/{alert.fingerprint}")
    assert "of the bad answers:" in page.words
    assert "100 % of the bad answers: " in page.words
    assert "of the good ones" in page.words
    assert not page.all("img")

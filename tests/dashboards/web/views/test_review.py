"""Review: answers are drawn at random and labelled without their scores; a label is feedback and can be undone."""

from __future__ import annotations

import contextlib
import re
import time

import pytest

from gaugeway.records import Context, Evaluation, Sample, Score, Supplement
from gaugeway.settings.shared import Config, Judge
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import LabelledScore, Query
from gaugeway.storage.stores.ratings import effective
from monitors.analysis.human_labels import MAX_DRAWN, Draw, ReviewDraws, drawn, labelled
from tests.support.pages import EVIL, world

JUDGE = Config(judge=Judge(base_url="http://127.0.0.1:1/v1", model="judge-1"))
HERE = "/review?app=shop&metric=faithfulness"


@contextlib.asynccontextmanager
async def judging_world(path, **options):
    async with world(path, config=JUDGE, **options) as made:
        yield made


async def fill(w, count=12, app="shop", **fields):
    for number in range(count):
        sample = Sample(
            id=f"{app}{number}",
            started_at=w.site.clock() - 60.0 - number,
            app=app,
            question=f"Question {number}?",
            response=f"Response {number}.",
            contexts=(Context(text=f"Passage {number}."),),
            context_source="tools",
            **fields,
        )
        value = 0.91 if number % 3 else 0.13
        one = Evaluation(
            sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(value, "SECRET"), judge="judge-1"
        )
        await w.store.add(sample, [one])


async def stored(w):
    """What the worker does: labels go from the queue to the store."""
    some = await w.queue.take(100)
    await w.store.supplement(some)
    await w.queue.ack_supplies([one.id for one in some])
    return some


async def named(w, by="Sam"):
    await w.send(HERE, "/review/name", by=by)
    return w.client.cookies.get("gaugeway_reviewer")


async def label(w, page, word):
    """Send the form of a shown page; return the page it leads to."""
    answer = await w.post("/review/label", page.form("/review/label") | {"label": word})
    return await w.page(answer.headers["location"])


def shown(page):
    return page.form("/review/label")["id"]


async def test_it_asks_for_a_name_first_and_remembers_it(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w)
        first = await w.page(HERE)
        cookie = await named(w, "Ana María  Ö.")
        later = await w.page(HERE)
    assert "Your name" in first.words
    assert re.search(r"Response \d+\.", first.words), "the first answer is there at once"
    assert not [one for one in first.all("form") if one.get("action") == "/review/label"]
    assert cookie == "Ana%20Mar%C3%ADa%20%C3%96."
    assert "as Ana María Ö." in later.words


async def test_the_scores_are_hidden_until_the_label_is_given(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w)
        await named(w)
        before = await w.page(HERE)
        after = await label(w, before, "pass")
    assert "Response" in before.words
    for hidden in ("0.91", "0.13", "SECRET", "/exchanges/"):
        assert hidden not in before.text
        assert not any(hidden in one.get("href", "") for one in before.all("a"))
    assert "Your last label: pass. The score was 0." in after.words
    assert any(one["href"] == f"/exchanges/{shown(before)}" for one in after.all("a"))
    assert shown(after) != shown(before)


async def test_a_label_is_stored_as_feedback_of_its_app_metric_and_person(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w)
        await named(w)
        page = await w.page(HERE)
        await label(w, page, "fail")
        exchange, (one,) = shown(page), await stored(w)
    assert (one.exchange_id, one.app, one.label, one.by) == (exchange, "shop", "faithfulness:fail", "Sam")
    assert (one.source, one.rating) == ("feedback", None)


async def test_the_order_is_that_of_the_random_draw_and_labelled_ones_are_left_out(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w)
        await named(w)
        page, seen = await w.page(HERE), []
        for number in range(12):
            seen.append(shown(page))
            page = await label(w, page, "pass" if number % 2 else "fail")
            await stored(w)
        last, again = page, await w.page(HERE)
    assert seen == drawn([f"shop{number}" for number in range(12)], 12)
    assert "All drawn answers have a label." in last.words
    assert "12 labels" in again.words
    assert "Labels by Sam (12)." in again.words
    assert "Corrected" in again.words


async def test_a_skipped_answer_is_not_stored_and_comes_again_at_the_end(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w, 3)
        await named(w)
        page = await w.page(HERE)
        first = shown(page)
        page = await label(w, page, "skip")
        for _ in range(2):
            assert shown(page) != first
            page = await label(w, page, "pass")
        last, some = shown(page), await stored(w)
    assert last == first
    assert len(some) == 2


async def test_undo_withdraws_the_label_and_shows_the_answer_again(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w)
        await named(w)
        page = await w.page(HERE)
        after = await label(w, page, "pass")
        await stored(w)
        answer = await w.post("/review/undo", after.form("/review/undo"))
        again = await w.page(answer.headers["location"])
        await stored(w)
        query = Query(since=0.0, until=time.time() + 1.0, app="shop", metric="faithfulness")
        first, second, page, ratings = shown(page), shown(again), again, await w.store.ratings(query)
    assert second == first
    assert "Label withdrawn." in page.words
    assert ratings == []


async def test_a_label_of_another_app_or_metric_is_refused(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w, 2)
        await fill(w, 2, app="desk")
        await named(w)
        form = (await w.page(HERE)).form("/review/label") | {"label": "pass"}
        await w.post("/review/label", form | {"id": "desk0"}, status=400)
        await w.post("/review/label", form | {"metric": "answer_relevancy"}, status=400)
        await w.post("/review/label", form | {"id": "nothing"}, status=404)
        await w.post("/review/label", form | {"label": "maybe"}, status=400)
        await w.post("/review/label", form | {"csrf": "x"}, status=403)
        await w.page(f"{HERE}&at=desk0", status=404)
        await w.page("/review?half_width=2", status=400)
        assert list(await stored(w)) == []


async def test_without_scores_there_is_nothing_to_review(tmp_path):
    async with judging_world(tmp_path) as w:
        page = await w.page("/review")
    assert "nothing to review" in page.words


async def test_what_clients_wrote_is_escaped(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w, 2, app=EVIL, session=EVIL)
        await w.send("/review", "/review/name", by=EVIL[:90])
        page = await w.page("/review")
    assert not page.all("img")
    assert "alert(1)" in page.text


def rating(sample_id, value, by="", metric="faithfulness"):
    return LabelledScore(
        sample_id=sample_id, app="a", metric=metric, value=0.5, rate=1.0, rating=value, received_at=0.0, by=by
    )


def test_the_last_label_of_a_person_counts_and_labels_without_a_name_all_do():
    nan = float("nan")
    some = [
        rating("x", 1.0, "Sam"),
        rating("x", 0.0, "Ana"),
        rating("x", 0.0, "Sam"),
        rating("x", 1.0),
        rating("x", 1.0),
    ]
    assert [(one.by, one.rating) for one in effective(some)] == [("Ana", 0.0), ("Sam", 0.0), ("", 1.0), ("", 1.0)]
    assert effective([rating("x", 1.0, "Sam"), rating("x", nan, "Sam")]) == []
    again = effective([rating("x", 1.0, "Sam"), rating("x", nan, "Sam"), rating("x", 0.0, "Sam")])
    assert [one.rating for one in again] == [0.0]
    assert len(effective([rating("x", 1.0, "Sam"), rating("x", nan, "Sam", metric="other")])) == 1


async def test_the_labels_of_the_page_correct_the_mean(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    now = time.time()
    for number in range(200):
        sample = Sample(id=f"x{number}", started_at=now - 60.0, app="shop")
        one = Evaluation(
            sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(0.9 if number % 4 else 0.2)
        )
        await store.add(sample, [one])
    draw = await ReviewDraws(store).draw("shop", "faithfulness", 10.0)
    words = {name: "fail" if int(name[1:]) % 4 == 0 else "pass" for name in draw.ids[:120]}
    said = [
        Supplement(
            id=f"s{name}",
            received_at=now,
            source="feedback",
            exchange_id=name,
            label=f"faithfulness:{word}",
            by="Sam",
            app="shop",
        )
        for name, word in words.items()
    ]
    await store.supplement(said)
    query = Query(since=now - 3600.0, until=now + 1.0, app="shop", metric="faithfulness")
    (found,) = await labelled(store, query)
    await store.aclose()
    assert draw.complete
    assert len(draw.ids) == draw.answers == 200
    assert found.labels == 120
    assert found.kappa.value == 1.0
    assert found.ci_low < 0.75 < found.ci_high


def test_a_draw_is_bounded_and_goes_round():
    ids = drawn([f"x{number}" for number in range(10)], 10)
    draw = Draw(ids=ids, answers=10, complete=True)
    assert list(draw.following("", ())) == ids
    assert list(draw.following(ids[7], {ids[8]})) == [ids[9], *ids[:7]]
    assert MAX_DRAWN >= 1000


@pytest.mark.parametrize("word", ["pass", "fail"])
async def test_the_cli_counts_labels_of_the_page(tmp_path, word):
    """`gaugeway labels --output` leaves out what was labelled on the page: both draw in one order."""

    async with judging_world(tmp_path) as w:
        await fill(w, 12)
        await named(w)
        page = await w.page(HERE)
        await label(w, page, word)
        await stored(w)
        query = Query(since=0.0, until=time.time() + 1.0, app="shop", metric="faithfulness")
        first, rated = shown(page), [one.sample_id for one in await w.store.ratings(query)]
    assert rated == [first] == drawn([f"shop{number}" for number in range(12)], 1)


async def test_the_judge_is_checked_on_the_labelled_answers_when_asked(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w, 60, session=EVIL)
        said = [
            Supplement(
                id=f"l{at}", received_at=w.site.clock(), source="feedback", exchange_id=f"shop{at}", label="fail"
            )
            for at in range(60)
        ]
        await w.store.supplement(said)
        before = await w.page(HERE)
        page = await w.page(f"{HERE}&check=1")
    assert "Check the judge" in before.words
    assert "Judge and people" not in before.words
    assert "60 labelled answers, judged by judge-1" in page.words
    points = [tag for tag, attributes in page.elements if attributes.get("class") == "point"]
    assert points == ["circle", "circle"]  # scores of .13 and of .91
    assert not list(page.misaligned())
    assert "calibration error 0.65" in page.words
    assert page.words.count("people: fail") == 10
    assert "SECRET" in page.words  # the reason of the judge, for answers that have a label


async def test_without_labels_there_is_nothing_to_check(tmp_path):
    async with judging_world(tmp_path) as w:
        await fill(w)
        page = await w.page(f"{HERE}&check=1")
    assert "No labelled answer has a score." in page.words

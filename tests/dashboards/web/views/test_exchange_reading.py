"""An exchange is read beside its passages, and within the list, the conversation and the failures it belongs to."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dashboards.web.incident.exchange_summary import spans_of
from dashboards.web.incident.neighbours import list_fields
from gaugeway.records import Context, Evaluation, Message, Sample, Score, Skipped
from tests.support.pages import EVIL, world


def address(sample_id, **fields):
    return f"/exchanges/{sample_id}?{urlencode({'list': urlencode(fields)})}"


def steps(page):
    """Ids of the previous and the next exchange, and the address of the list."""
    found = {one.get("rel"): one["href"] for one in page.all("a") if one.get("rel") in ("prev", "next")}
    ids = {rel: urlsplit(one).path.removeprefix("/exchanges/") for rel, one in found.items()}
    return ids.get("prev"), ids.get("next")


async def walk(w, start, rel, **fields):
    """Follow the links of one direction to the end."""
    found, here = [start], address(start, **fields)
    while True:
        page = await w.page(here)
        here = next((one["href"] for one in page.all("a") if one.get("rel") == rel), None)
        if here is None:
            return found
        found.append(urlsplit(here).path.removeprefix("/exchanges/"))
        assert len(found) < 100


@pytest.mark.full
@pytest.mark.parametrize("order", ["newest", "lowest", "highest"])
@pytest.mark.parametrize("alike", [1, 5])
async def test_previous_and_next_walk_through_the_whole_list_in_its_order(tmp_path, order, alike):
    """Also where several have the same time and score."""

    async with world(tmp_path) as w:
        now = time.time()
        for n in range(20):
            about = {"id": f"e{n}", "question": f"How long are {n}?"}
            await w.add((n * 7 % 20 // alike) / 20, at=now - 60.0 - n // alike, **about)
        fields = {"metric": "faithfulness", "order": order, "since": "1h"}
        page = await w.page(f"/explore?{urlencode(fields)}")
        listed = [
            urlsplit(one["href"]).path.removeprefix("/exchanges/")
            for one in page.all("a")
            if one.get("href", "").startswith("/exchanges/")
        ]
        onward, back = await walk(w, listed[0], "next", **fields), await walk(w, listed[-1], "prev", **fields)
    assert len(listed) == 20
    if alike == 1:
        assert onward == listed
        assert back == listed[::-1]
    else:  # those of equal score and time may swap places, and none is left out
        assert sorted(onward) == sorted(back) == sorted(listed)


async def test_the_filters_of_the_list_hold_for_its_neighbours(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for n in range(12):
            source = Context(text="t", id="faq.md" if n % 3 == 0 else "other.md")
            await w.add(0.1 * (n % 2), at=now - 60.0 - n, id=f"e{n}", contexts=(source,), model=f"m-{n % 2}")
        fields = {"metric": "faithfulness", "source": "faq.md", "since": "1h"}
        page = await w.page(address("e3", **fields))
        lists = [
            one["href"] for one in page.all("a") if one["href"].startswith("/explore?") and "source" in one["href"]
        ]
        found, by_value = steps(page), steps(await w.page(address("e6", **fields, model="m-0", order="lowest")))
    assert found == ("e0", "e6")
    assert by_value in (("e0", None), (None, "e0"))
    assert parse_qs(urlsplit(lists[0]).query) == {"metric": ["faithfulness"], "source": ["faq.md"], "since": ["1h"]}


@pytest.mark.full
@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        "a" * 5000,
        "&" * 1000,
        "since=yesterday&order=lowest",
        "topic=x",
        "source=text%3A12",
        EVIL,
        "%00=%ff",
        "least=9",
    ],
)
async def test_any_list_is_harmless(tmp_path, text):
    async with world(tmp_path) as w:
        await w.add(0.5, id="x")
        page = await w.page(f"/exchanges/x?{urlencode({'list': text})}")
    assert all("src" in one for one in page.all("script"))
    assert not page.all("img")
    assert steps(page) == (None, None)


def test_fields_of_a_list_that_is_too_long_are_left_out():
    assert list_fields("app=shop&metric=m") == {"app": "shop", "metric": "m"}
    assert list_fields("a=" + "x" * 2000) == {}


async def test_sentences_claims_and_passages_lead_to_each_other(tmp_path):
    evidence = (
        {"claim": "Returned within 30 days.", "verdict": "supported", "contexts": [0], "quote": "within 30 days"},
        {"claim": "Cards expire.", "verdict": "contradicted", "contexts": [1], "quote": "never expire"},
    )
    sample = Sample(
        id="x",
        started_at=time.time() - 60,
        question="May I return it?",
        response="It is returned within 30 days. Cards expire.",
        contexts=(Context(text="Free within 30 days."), Context(text="Gift cards never expire.")),
    )
    made = Evaluation(sample_id="x", metric="faithfulness", version="1", outcome=Score(0.5, "", evidence), judge="j")

    async with world(tmp_path) as w:
        await w.store.add(sample, [made])
        page = await w.page("/exchanges/x")
    ids = [one["id"] for _, one in page.elements if "id" in one]
    links = {one["href"][1:] for one in page.all("a") if one["href"].startswith("#")}
    assert len(ids) == len(set(ids))
    assert {"claim-1", "claim-2", "said-1", "said-2", "quote-1", "quote-2"} <= links <= {*ids}
    marks = [(one["class"], one["data-claims"]) for one in page.all("mark")]
    assert marks == [("claim supported", "1"), ("claim contradicted", "2"), ("quoted", "1"), ("quoted", "2")]
    claims = [(one["data-claims"], one["data-passages"]) for one in page.all("li") if "data-claims" in one]
    assert claims == [("1", "1"), ("2", "2")]


async def test_the_title_is_the_question_and_is_not_repeated(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.95, id="short", question="How long?")
        await w.add(0.95, id="long", question="How long? " * 100)
        short, long = await w.page("/exchanges/short"), await w.page("/exchanges/long")
    assert short.words.count("How long?") == 2  # the tab's title, and the heading
    assert "question" not in [one.get("id") for one in short.all("h2")]
    assert "question" in [one.get("id") for one in long.all("h2")]


def test_durations_of_retriever_model_and_judge_are_drawn():
    sample = Sample(id="x", started_at=0.0, model="m-1", duration_s=2.0, retrieval_s=0.5)
    outcomes = [("faithfulness", Score(0.5), 3.0), ("skipped", Skipped("refusal"), 1.0), ("abstained", Score(0.0), 1.0)]
    made = [
        Evaluation(sample_id="x", metric=metric, version="1", outcome=outcome, seconds=seconds, judge="j")
        for metric, outcome, seconds in outcomes
    ]
    spans = spans_of(sample, made)
    assert [(one.kind, one.start, one.seconds) for one in spans] == [
        ("retriever", -0.5, 0.5),
        ("model", 0.0, 2.0),
        ("judge", 2.0, 3.0),
    ]
    assert spans_of(Sample(id="x", started_at=0.0), []) == []


async def test_the_waterfall_has_a_row_for_each_step_on_one_scale(tmp_path):
    async with world(tmp_path) as w:
        sample = Sample(id="x", started_at=time.time(), model="m-1", duration_s=2.0, retrieval_s=0.5)
        made = {"version": "1", "judge": "j", "seconds": 2.5, "outcome": Score(1.0)}
        await w.store.add(sample, [Evaluation(sample_id="x", metric="faithfulness", **made)])
        page = await w.page("/exchanges/x")
    assert "retriever 500 ms model m-1 2 s faithfulness by j 2.5 s" in page.words
    bars = [(one["x"], one["width"]) for one in page.all("rect") if one.get("height") == "10"]
    assert bars == [("0.0", "10.0"), ("10.0", "40.0"), ("50.0", "50.0")]


async def test_failures_of_the_same_question_are_one_row_with_a_link_to_each(tmp_path):
    async with world(tmp_path) as w:
        for n in range(4):
            await w.add(0.4 - n / 10, id=f"bad{n}", question=("a refund, please", "A refund please?")[n % 2])
        await w.add(0.2, id="x", question="Please, a refund")
        page = await w.page("/exchanges/x")
    assert "A refund please? 4 like this" in page.words
    links = [urlsplit(one["href"]).path for one in page.all("a") if leads_to_exchange(one)]
    assert links == [f"/exchanges/bad{n}" for n in (3, 2, 1, 0)]


def leads_to_exchange(link):
    """Whether a link leads to an exchange, other than the page's links to itself."""
    return link["href"].startswith("/exchanges/") and link.get("id") not in ("copy-link", "reload")


async def test_failures_with_like_questions_are_listed(tmp_path):
    async with world(tmp_path) as w:
        questions = [f"How do I get a refund for order {n}?" for n in range(5)]
        questions += [f"Which charger has laptop {n}?" for n in range(5)] + ["When is the shop open?"] * 3
        for n, question in enumerate(questions):
            await w.add(0.1, id=f"bad{n}", question=question)
        await w.add(0.9, id="good", question="Is there a refund for my order?")
        await w.add(0.1, id="elsewhere", question="A refund for an order?", app="other")
        await w.add(0.2, id="x", question="I want a refund for my order")
        page, good = await w.page("/exchanges/x"), await w.page("/exchanges/good")
    links = {urlsplit(one["href"]).path for one in page.all("a") if leads_to_exchange(one)}
    assert links == {f"/exchanges/bad{n}" for n in range(5)}
    assert "Similar failures" in page.words
    assert "Similar failures" not in good.words


async def test_similar_failures_are_of_the_metric_of_the_list_one_comes_from(tmp_path):
    async with world(tmp_path) as w:
        for n, metric in enumerate(("faithfulness", "answer_relevancy") * 2):
            await w.add(0.1, id=f"bad{n}", metric=metric, question=f"Refund for order {n}?")
        sample = await w.add(0.1, id="x", question="A refund for my order?")
        other = Evaluation(sample_id="x", metric="answer_relevancy", version="1", outcome=Score(0.2))
        await w.store.add(sample, [other])
        here = [address("x", metric=one) for one in ("faithfulness", "answer_relevancy")]
        pages = [await w.page(one) for one in here]
    for page, metric, ids in zip(pages, ("faithfulness", "answer_relevancy"), ("02", "13"), strict=True):
        assert f"that fail {metric}, with similar questions" in page.words
        assert "Similarity" in page.words
        links = {urlsplit(one["href"]).path for one in page.all("a") if leads_to_exchange(one)}
        assert {f"/exchanges/bad{n}" for n in ids} <= links


async def test_a_conversation_is_shown_with_questions_and_answers(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for n in range(3):
            await w.add(
                0.95,
                at=now - 60 + n,
                id=f"t{n}",
                question=f"Question {n}?",
                response=f"Answer {n}.",
                conversation="c",
                turn=n + 1,
            )
        page = await w.page("/exchanges/t1")
    for n in range(3):
        assert f"Question {n}? Answer {n}." in page.words
    links = [one["href"] for one in page.all("a") if leads_to_exchange(one)]
    assert links == ["/exchanges/t0", "/exchanges/t2"]


async def test_nothing_of_the_data_becomes_markup(tmp_path):
    evidence = ({"claim": EVIL, "verdict": "contradicted", "contexts": [0], "quote": EVIL},)

    async with world(tmp_path) as w:
        for n in range(4):
            await w.add(
                Score(0.1, EVIL, evidence),
                id=f"x{n}",
                question=f"{EVIL} refund for the order",
                response=f"{EVIL}. {EVIL}.",
                contexts=(Context(text=EVIL, id=EVIL, source=EVIL),),
                conversation=EVIL,
                history=(Message(role="user", text=EVIL),),
                model=EVIL,
                duration_s=1.0,
                retrieval_s=1.0,
            )
        page = await w.page(address("x1", app="shop", metric="faithfulness", text=EVIL))
    assert all("src" in one for one in page.all("script"))
    assert not page.all("img")
    assert not [one for _, one in page.elements if "onerror" in one]
    assert "Similar failures" in page.words
    assert "Back to the list" in page.words

"""One exchange: every claim with its verdict in words and its passage, whatever the texts are and however long."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from dashboards.web.incident.exchange_text import MARKED, SHOWN, find, patterns, read, segmented
from dashboards.web.views.exchange import is_hashed, line_of, supplement_of
from gaugeway.records import (
    CaptureInfo,
    Context,
    Evaluation,
    Failed,
    PromptPart,
    Sample,
    Score,
    Skipped,
    Supplement,
    ToolCall,
    Usage,
)
from tests.support.pages import EVIL, JUDGED, SCRIPTS, world

PASSAGES = (
    Context(
        text="Returns are free within 30 days. Shipping takes\n two  days.", id="h1", score=0.82, source="handbook"
    ),
    Context(text="Gift cards never expire.", id="h2"),
)
RESPONSE = "You can return it within 30 days. Gift cards expire after a year. We also sell bicycles in Bergen."
EVIDENCE = (
    {
        "claim": "It can be returned within 30 days.",
        "verdict": "supported",
        "contexts": [0],
        "quote": "free within 30 days",
    },
    {
        "claim": "Gift cards expire after a year.",
        "verdict": "contradicted",
        "contexts": [1],
        "quote": "gift cards NEVER expire",
    },
    {"claim": "Bicycles are sold in Bergen.", "verdict": "not_mentioned", "contexts": [], "quote": ""},
)


def judged(evidence=EVIDENCE, metric="faithfulness", judge="some-judge"):
    outcome = Score(1 / 3, "1 of 3 claims is supported", evidence)
    return Evaluation(
        sample_id="x", metric=metric, version="2:ab", outcome=outcome, judge=judge, seconds=1.25, cost_usd=0.0031
    )


def stored(**about):
    fields = {"id": "x", "app": "shop", "model": "m-1", "question": "May I return it?", "response": RESPONSE}
    fields |= {"started_at": time.time() - 60, "contexts": PASSAGES, "context_source": "tools"}
    return Sample(**fields | about)


def shown(path, sample, evaluations, address="/exchanges/x"):
    async def main():
        async with world(path) as w:
            await w.store.add(sample, evaluations)
            return await w.page(address)

    return asyncio.run(main())


def test_each_claim_is_marked_in_words_and_leads_to_the_quote_in_its_passage(tmp_path):
    page = shown(tmp_path, stored(), [judged()])
    marks = [one["class"] for one in page.all("mark")]
    assert marks == ["claim supported", "claim contradicted", "claim not_mentioned", "quoted", "quoted"]
    assert "✓ supported It can be returned within 30 days." in page.words
    assert "✗ contradicted Gift cards expire after a year." in page.words
    assert "? not mentioned Bicycles are sold in Bergen." in page.words
    ids = [one["id"] for _, one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))
    links = [one["href"][1:] for one in page.all("a") if one["href"].startswith("#")]
    assert {"claim-1", "claim-2", "claim-3", "quote-1", "quote-2"} <= set(links) <= set(ids)
    assert "in passage 2" in page.words


def test_passages_scores_and_facts_are_there(tmp_path):
    sample = stored(
        prompt="p-7f", trace_id="a" * 32, tags={"tenant": "t 1"}, usage=Usage(input_tokens=50), duration_s=2.0, rate=0.1
    )
    others = [
        Evaluation(sample_id="x", metric="context_recall", version="1", outcome=Skipped("no_reference")),
        Evaluation(sample_id="x", metric="answer_relevancy", version="1", outcome=Failed("timeout", "after 60 s")),
    ]
    page = shown(tmp_path, sample, [judged(), *others])
    for words in (
        "id h1 · source handbook · score 0.82",
        "0.33 1 of 3 claims is supported",
        "some-judge 0.0031 USD 1.2 s",
        "skipped no reference",
        "✗ failed timeout",
        "after 60 s",
        "Prompt version p-7f",
        "Sampling probability 0.1",
        "Tokens 50 input",
    ):
        assert words in page.words, words
    assert any(one["href"] == "/explore?app=shop&tag=tenant%3Dt+1" for one in page.all("a"))


async def test_an_unknown_exchange_is_not_found(tmp_path):
    async with world(tmp_path) as w:
        assert (
            "No exchange with the id nothing. It may have expired." in (await w.page("/exchanges/nothing", 404)).words
        )


def test_an_exchange_without_anything_is_shown(tmp_path):
    sample = Sample(id="x", started_at=time.time())
    page = shown(tmp_path, sample, [])
    assert "(not found)" in page.words
    assert "No passages were found in the request" in page.words
    assert "No metric was computed for this exchange." in page.words


def test_verdicts_of_another_metric_are_marked_when_asked_for(tmp_path):
    lexical = (
        {
            "sentence": "We also sell bicycles in Bergen.",
            "context": 1,
            "unsupported_numbers": [],
            "unsupported_names": ["Bergen"],
        },
    )
    some = [judged(lexical, "lexical_groundedness", None), judged()]
    page = shown(tmp_path, stored(), some, "/exchanges/x?claims=lexical_groundedness")
    assert [one["class"] for one in page.all("mark")] == ["claim not_mentioned"]
    by_itself = shown(tmp_path, stored(id="x"), some)
    assert len(by_itself.all("mark")) == 5


def test_claims_of_the_reference_are_marked_in_the_reference(tmp_path):
    evidence = (
        {"claim": "Shipping takes two days.", "verdict": "supported", "contexts": [0], "quote": "takes two days"},
    )
    page = shown(tmp_path, stored(reference="Shipping takes two days."), [judged(evidence, "context_recall")])
    assert [one["class"] for one in page.all("mark")] == ["quoted", "claim supported"]


PARTS = (
    PromptPart(role="system", kind="instructions", start=0, end=9, text="Be brief."),
    PromptPart(role="user", kind="instructions", start=0, end=8, message=3, text="Excerpt:"),
    PromptPart(role="user", kind="passage", start=9, end=33, message=3, passage=1),
    PromptPart(role="user", kind="question", start=34, end=50, message=3),
)
FOUND = CaptureInfo(source="tools", marker="search_docs", confidence=0.75, reason="a tool's name", parts=PARTS)


def test_the_prompt_says_in_words_what_is_what(tmp_path):
    page = shown(tmp_path, stored(capture=FOUND), [])
    for words in (
        "Question and passages found by tools (search_docs), confidence 0.75: a tool's name.",
        "2 messages, 57 characters",
        "System message Instructions Be brief. 2 other messages, not shown",
        "User message Instructions Excerpt: Passage 2 Gift cards never expire. Question May I return it?",
        "Not found verbatim in the prompt (JSON-encoded, sent separately, or taken from the response): passage 1.",
    ):
        assert words in page.words, words
    assert "passage-2" in {one["href"][1:] for one in page.all("a") if one["href"].startswith("#")}
    assert [one.get("class") for one in page.all("details") if "open" in one] == ["card prompt"]


def test_a_long_prompt_is_closed_and_cut_until_all_of_it_is_asked_for(tmp_path):
    long = PromptPart(role="system", kind="instructions", start=0, end=30_000, text="rule " * 6_000)
    sample = stored(capture=replace(FOUND, parts=(long, *PARTS[1:]), shortened=True, cut=True))
    page = shown(tmp_path, sample, [])
    assert not [one for one in page.all("details") if "open" in one]
    assert "28,000 more characters" in page.words
    assert "The prompt is long: only part of its instructions is stored." in page.words
    assert "Too many or too long passages" in page.words
    assert "more characters" not in shown(tmp_path / "all", sample, [], "/exchanges/x?all=1").words


def test_contexts_that_came_beside_the_exchange_are_not_shown_in_its_prompt(tmp_path):
    page = shown(tmp_path, stored(capture=FOUND, context_source="contexts_api"), [])
    assert "were sent separately (contexts_api); the passages in the prompt are not stored." in page.words
    assert "Passage 2 24 characters, not stored" in page.words
    assert "Question 16 characters, not stored" in page.words


def test_an_exchange_of_an_older_release_has_no_prompt(tmp_path):
    assert "prompt-h" not in [one.get("id") for one in shown(tmp_path, stored(), []).all("h2")]


async def test_nothing_of_the_data_becomes_markup(tmp_path):
    evidence = ({"claim": EVIL, "verdict": "supported", "contexts": [0, 99, "1", None], "quote": EVIL},)
    sample = stored(
        question=EVIL,
        response=f"{EVIL}. {EVIL}.",
        reference=EVIL,
        app=EVIL,
        model=EVIL,
        prompt=EVIL,
        tags={EVIL: EVIL},
        session=EVIL,
        trace_id=EVIL,
        contexts=(Context(text=EVIL, id=EVIL, source=EVIL),),
        context_source=EVIL,
        capture=CaptureInfo(
            source=EVIL,
            marker=EVIL,
            reason=EVIL,
            confidence=1.0,
            parts=(
                PromptPart(role=EVIL, kind="instructions", start=0, end=9, text=EVIL),
                PromptPart(role=EVIL, kind="passage", start=0, end=9, message=1, passage=0),
                PromptPart(role=EVIL, kind="question", start=9, end=19, message=1),
            ),
        ),
    )
    bad = Evaluation(sample_id="x", metric=EVIL, version=EVIL, outcome=Failed(EVIL, EVIL), judge=EVIL)

    async with world(tmp_path) as w:
        await w.store.add(sample, [judged(evidence), bad])
        said = {"rating": 0.0, "label": EVIL, "comment": EVIL, "reference": EVIL}
        await w.store.supplement([Supplement(id="1", received_at=1.0, source=EVIL, exchange_id="x", **said)])
        page = await w.page("/exchanges/x")
    assert [one.get("src", "").split("?")[0] for one in page.all("script")] == [*SCRIPTS, "/static/reading.js"]
    assert not page.all("img")
    assert not [one for _, one in page.elements if "onerror" in one]
    assert not [one["href"] for one in page.all("a") if one["href"].startswith("javascript")]


@pytest.mark.full
@pytest.mark.parametrize(
    "text",
    ["word " * 40_000, "a.\n" * 66_000, "This is a sentence. " * 10_000, "\n" * 200_000, "a" * 200_000, "." * 200_000],
    ids=["words", "short sentences", "sentences", "blank lines", "one word", "full stops"],
)
async def test_200_kb_do_no_harm(tmp_path, text):
    many = tuple(
        {"claim": f"{text[:300]} {n}", "verdict": "supported", "contexts": [0], "quote": text[:5000]}
        for n in range(300)
    )
    sample = stored(response=text, reference=text, contexts=(Context(text=text), *PASSAGES * 100))

    async with world(tmp_path) as w:
        await w.store.add(sample, [judged(many)])
        start = time.process_time()
        short = await w.client.get("/exchanges/x")
        took = time.process_time() - start
        whole = await w.client.get("/exchanges/x?all=1")
    assert (short.status_code, whole.status_code) == (200, 200)
    assert took < 3.0
    assert len(short.text) < 1_000_000
    assert f"{len(text) - SHOWN:,}" in short.text
    assert len(whole.text) > 3 * len(text)


def test_all_of_a_long_response_is_there_when_asked_for():
    text = "".join(f"Sentence number {n}. " for n in range(20_000))
    whole = read(text, "", PASSAGES, [], everything=True).response
    assert "".join(one.text for one in whole.sentences) == text
    assert len(whole.sentences) == 2
    assert len(whole.sentences[1].text) == len(text) - MARKED


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("free within 30 days", "free within 30 days"),
        ("shipping takes two days", "Shipping takes\n two  days"),
        ("Returns are free ... shipping takes two days", "Returns are free"),
        ("hipping takes", None),
        ("", None),
        ("...", None),
        ("( [ . * ? \\", None),
    ],
)
def test_a_quote_is_found_by_its_words(quote, found):
    spans = find(patterns(quote), PASSAGES[0].text)
    assert (PASSAGES[0].text[slice(*spans[0])] if spans else None) == found


def test_segments_are_the_text_again():
    text = "abcdefghij"
    found = segmented(text, [(0, 2, 1), (1, 4, 2), (4, 5, 3), (9, 10, 4), (9, 10, 4)])
    assert "".join(one.text for one in found) == text
    assert [one.claims for one in found] == [(1, 2), (3,), (), (4,)]


async def test_a_rating_goes_to_the_queue_as_feedback_does(tmp_path):
    async with world(tmp_path) as w:
        await w.store.add(stored(), [])
        form = {"rating": "0", "label": " wrong ", "comment": "One\r\nTwo", "reference": "Within 30 days."}
        answer = await w.send("/exchanges/x", "/exchanges/x/feedback", **form)
        taken = await w.queue.take(10)
    assert answer.headers["location"] == "/exchanges/x?done=saved"
    (one,) = taken
    assert (one.source, one.exchange_id, one.rating, one.label) == ("feedback", "x", 0.0, "wrong")
    assert (one.comment, one.reference, one.key, one.contexts) == ("One\nTwo", "Within 30 days.", None, None)
    assert abs(one.received_at - time.time()) < 60


@pytest.mark.parametrize(
    "fields", [{}, {"rating": "7"}, {"label": "l" * 201}, {"comment": "c" * 2001}, {"comment": "  "}]
)
async def test_feedback_that_says_nothing_or_too_much_is_refused(tmp_path, fields):
    async with world(tmp_path) as w:
        await w.store.add(stored(), [])
        csrf = (await w.page("/exchanges/x")).form("/exchanges/x/feedback")["csrf"]
        await w.post("/exchanges/x/feedback", {"csrf": csrf, **fields}, 400)
        assert (await w.queue.take(10)) == []


async def test_feedback_without_the_forms_key_or_from_elsewhere_is_refused(tmp_path):
    async with world(tmp_path) as w:
        await w.store.add(stored(), [])
        csrf = (await w.page("/exchanges/x")).form("/exchanges/x/feedback")["csrf"]
        await w.post("/exchanges/x/feedback", {"rating": "1"}, 403)
        await w.post("/exchanges/x/feedback", {"rating": "1", "csrf": csrf}, 403, origin="https://evil.example")
        assert (await w.queue.take(10)) == []


async def test_what_was_said_is_shown(tmp_path):
    async with world(tmp_path) as w:
        await w.store.add(stored(), [])
        made = supplement_of("x", {"rating": "1", "comment": "Well said."}, time.time())
        await w.store.supplement([made])
        words = (await w.page("/exchanges/x")).words
    assert "feedback Rating 1.00 (1 is good)" in words
    assert "Comment Well said." in words


def test_hashes_are_called_what_they_are(tmp_path):
    hashed = stored(question="blake2b:12", response="blake2b:ab")
    assert is_hashed(hashed)
    assert not is_hashed(stored())
    assert "Texts are not stored" in shown(tmp_path, hashed, []).words


def test_long_evidence_is_cut():
    line = line_of(judged(tuple({"claim": "c" * 1000} for _ in range(10))))
    assert len(line.evidence) < 5200
    assert line.evidence.endswith("(6 more items)")
    assert len(line_of(judged(({"claim": "c" * 100_000},))).evidence) < 4100


async def test_the_exchanges_of_a_conversation_are_listed_in_order(tmp_path):
    at = time.time()

    async with world(tmp_path) as w:
        about = {"conversation": "c", "app": "shop", "response": "So."}
        samples = [
            Sample(id="b", started_at=at, question="And then?", turn=2, hop=1, **about),
            Sample(
                id="a",
                started_at=at - 5,
                question="First <b>?",
                turn=1,
                hop=1,
                skip_reason="tool_call",
                calls=(ToolCall(name="search"),),
                **about,
            ),
            Sample(id="other", started_at=at, question="Mine?", **(about | {"app": "bank"})),
            Sample(id="alone", started_at=at, question="Alone?", app="shop", response="So."),
        ]
        for one in samples:
            await w.store.add(one, [])
        page = await w.page("/exchanges/b")
        listed = page.words[page.words.index("turn 1 · hop 1") :]
        assert listed.index("search()") < listed.index("And then?")
        assert "tool call" in listed
        assert ("a", {"href": "/exchanges/a"}) in page.elements
        assert "Mine?" not in page.text
        assert "steps-h" not in [one.get("id") for one in (await w.page("/exchanges/alone")).all("h2")]


async def test_a_single_score_has_the_judges_error_where_enough_answers_were_judged_twice(tmp_path):
    async with world(tmp_path, config=JUDGED) as w:
        for name, judge in (("known", "j"), ("other", "k"), ("none", None)):
            await w.add(0.4, judge=judge, id=name)
        w.judged_twice(29)
        assert " ± " not in (await w.page("/exchanges/known")).words
        w.judged_twice(30)
        assert "0.40 ± 0.20" in (await w.page("/exchanges/known")).words
        assert "0.40 ± 0.20" in (await w.page("/exchanges/known/preview")).words
        listed = (await w.page("/explore?metric=faithfulness&since=24h")).words
        assert listed.count("0.40 ± 0.20") == 1
        for other in ("other", "none"):
            assert " ± " not in (await w.page(f"/exchanges/{other}")).words
        found = (await w.client.get("/api/exchanges/known")).json()["evaluations"]
        assert [one["half_width"] for one in found] == [pytest.approx(0.196, abs=1e-3)]
        rows = (await w.client.get("/api/exchanges?metric=faithfulness")).json()
        assert {one["sample_id"]: one["half_width"] for one in rows} == {
            "known": pytest.approx(0.196, abs=1e-3),
            "other": None,
            "none": None,
        }
        (repeats,) = (await w.client.get("/api/status")).json()["judge_repeats"]
        assert repeats["sd"] == {
            "value": pytest.approx(0.1),
            "low": repeats["sd"]["low"],
            "high": repeats["sd"]["high"],
            "n": 30,
        }
        assert repeats["flipped"]["value"] == 0.5


async def test_the_worst_answers_of_an_alert_have_the_judges_error(tmp_path):
    async with world(tmp_path, config=JUDGED) as w:
        now = time.time()
        for index in range(320):
            await w.add(0.9 if index < 200 else 0.3, at=now - 22.5 * (320 - index), judge="j")
        await w.look()
        (alert, *_) = w.engine.alerts()
        w.judged_twice(40)
        assert "0.30 ± 0.20" in (await w.page(f"/alerts/{alert.fingerprint}")).words


async def test_an_exchange_is_added_to_a_data_set_by_a_form_without_a_script(tmp_path):
    async with world(tmp_path) as w:
        await w.store.add(stored(), [judged()])
        answer = await w.send("/exchanges/x", "/datasets", name="incidents")
        assert answer.headers["location"] == "/exchanges/x?done=kept"
        assert "Added to the data set" in (await w.page("/exchanges/x?done=kept")).text
        made, (record,) = await w.datasets.read("incidents")
        assert (made.version, record["id"], record["user_input"]) == (1, "x", "May I return it?")
        again = await w.send("/exchanges/x", "/datasets", name="incidents")
        assert again.headers["location"] == "/exchanges/x?done=kept_already"
        await w.post("/datasets", {"exchanges": "x", "name": "incidents"}, 403)
        form = (await w.page("/exchanges/x")).form("/datasets")
        await w.post("/datasets", form | {"name": "Not a name"}, 400)
        await w.post("/datasets", form | {"exchanges": "gone"}, 400)
        await w.post("/datasets", form | {"exchanges": ""}, 400)
        await w.post("/datasets", form | {"alert": "gone"}, 404)
        assert (await w.datasets.read("incidents"))[0] == made


async def test_where_only_hashes_are_stored_there_is_no_form_and_nothing_is_added(tmp_path):
    async with world(tmp_path) as w:
        await w.store.add(stored(question="blake2b:1", response="blake2b:2"), [])
        page = await w.page("/exchanges/x")
        assert "/datasets" not in page.text
        form = page.form("/exchanges/x/feedback")
        answer = await w.post("/datasets", {"csrf": form["csrf"], "exchanges": "x", "name": "incidents"}, 400)
        assert "capture.content is false" in answer.text

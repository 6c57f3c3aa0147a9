"""Welcome: three steps that tick once request, passages and a judged score are seen, and what to do if not."""

from __future__ import annotations

import asyncio

from dashboards.web.gateways import Series
from dashboards.web.views.welcome import failed_requests, judge_snippet
from gaugeway.records import Context, Evaluation, Failed, Sample, Score
from gaugeway.settings.loading import OPTION
from gaugeway.settings.shared import Config, Judge
from tests.support.pages import EVIL, world

JUDGE = Config(judge=Judge(base_url="http://127.0.0.1:1/v1", model="judge-1"))


def ticks(page):
    return {one["id"]: one["data-done"] for one in page.all("div") if "data-done" in one}


async def judged(w, count=1, **fields):
    """Store exchanges with a score of the judge."""
    for number in range(count):
        sample = Sample(
            id=f"j{number}",
            started_at=w.site.clock() - 60.0,
            app="shop",
            question="How long?",
            response="Two years.",
            contexts=(Context(text="Two years."),),
            context_source="tools",
            **fields,
        )
        one = Evaluation(sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(0.75), judge="judge-1")
        await w.store.add(sample, [one])


async def test_nothing_is_ticked_at_first_and_all_that_is_needed_is_there(tmp_path):
    async with world(tmp_path) as w:
        page = await w.page("/welcome")
    assert set(ticks(page).values()) == {"false"}
    assert 'client = OpenAI(base_url="http://127.0.0.1:8080/v1")' in page.text
    assert "Waiting for the first request" in page.words
    assert "Waiting for the first answer" in page.words
    assert "No judge is configured" in page.words
    assert 'api_key = "${OPENAI_API_KEY}"' in page.text
    assert "gaugeway serve --upstream https://api.openai.com/v1 --judge gpt-6-luna" in page.words
    assert "0 of 3 steps done" in page.words


async def test_the_toml_to_paste_is_taken(tmp_path, monkeypatch):
    from gateway.config import load

    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    async with world(tmp_path) as w:
        page = await w.page("/welcome")
    path = tmp_path / "gaugeway.toml"
    path.write_text(page.text[page.text.index("[[upstreams]]") : page.text.index("Then restart")])
    config = load(path)
    assert config.judge.model == "gpt-6-luna"
    assert config.upstreams[0].base_url == config.judge.base_url == "https://api.openai.com/v1"


async def test_a_file_with_upstreams_is_only_added_to(tmp_path):
    async with world(tmp_path, config=Config(upstreams=({"base_url": "https://llm.example/v1"},))) as w:
        w.site.origins = {"upstreams[0].base_url": "file"}
        page = await w.page("/welcome")
    assert "Add to gaugeway.toml" in page.words
    assert "[[upstreams]]" not in page.text
    assert 'base_url = "https://llm.example/v1"' in page.text


async def test_it_is_the_front_page_until_enough_scores_exist(tmp_path):
    async with world(tmp_path, first_scores=3) as w:
        first = await w.client.get("/", headers={"accept": "text/html"})
        by_hand = await w.client.get("/?by=", headers={"accept": "text/html"})
        await judged(w, 3)
        for _ in range(100):  # the count is kept for a second or more
            await asyncio.sleep(0.2)
            if (await w.client.get("/", headers={"accept": "text/html"})).status_code == 200:
                break
        later, welcome = await w.page("/"), await w.page("/welcome")
    assert (first.status_code, first.headers["location"]) == (302, "/welcome")
    assert by_hand.status_code == 200
    assert "Overview" in later.words
    assert "Welcome" in welcome.words


async def test_passages_and_the_first_judged_score_tick_their_steps(tmp_path):
    async with world(tmp_path, config=JUDGE) as w:
        w.answered(4, source="tools")
        w.answered(1)
        await judged(w)
        page = await w.page("/welcome")
    assert ticks(page) == {"request-state": "true", "passages-state": "true", "judge-state": "true"}
    assert "Passages found in 4 of 5 answers" in page.words
    assert "First judged score: faithfulness 0.75" in page.words
    assert "question found, 1 passage found by 'tools'" in page.words
    assert {"href": "/exchanges/j0"} in page.all("a")


async def test_an_app_without_passages_is_told_what_to_do(tmp_path):
    async with world(tmp_path) as w:
        w.answered(3, app=EVIL)
        page = await w.page("/welcome")
    assert ticks(page)["passages-state"] == "false"
    assert "No passages found in any of 3 answers" in page.words
    assert any(one["href"].startswith("/prompts?app=%3Cscript") for one in page.all("a"))
    assert "alert(1)" not in [one.get("src") for one in page.all("script")]


async def test_a_judge_that_fails_is_named_with_its_error(tmp_path):
    async with world(tmp_path, config=JUDGE) as w:
        w.instruments.failed("judge-1", "authentication")
        page = await w.page("/welcome")
    assert "Failed: The judge does not answer" in page.words
    assert any("bad" in one["class"].split() for one in page.all("p") if "tick" in one.get("class", "").split())
    assert "judge-1: authentication (1)" in page.words


async def test_a_judge_that_has_not_been_asked_says_how_many_answers_it_takes(tmp_path):
    async with world(tmp_path, config=JUDGE) as w:
        w.site.origins = {"judge.model": "file"}
        page = await w.page("/welcome")
    assert "Judge configured; waiting for an answer to judge" in page.words
    assert "metrics are judged on 10 % of answers, so expect the first score after about 10." in page.words
    assert "To judge every answer, set rate = 1.0 under each metric in gaugeway.toml." in page.words


async def test_a_judge_whose_answers_cannot_be_read_is_not_called_healthy(tmp_path):
    async with world(tmp_path, config=JUDGE) as w:
        for _ in range(2):
            await w.add(Failed("unreadable"))
            w.instruments.judged("judge-1", 0.1, 10, 1, 0.0)
            w.instruments.failed("judge-1", "unreadable")
        page = await w.page("/welcome")
    assert "2 of 2 answers could not be judged (unreadable): the model does not return" in page.words
    assert "use another judge.model" in page.words
    assert "waiting for the first score" not in page.words


def test_requests_that_the_gateway_rejected_did_not_fail_at_the_provider():
    seen = [
        ("gaugeway_requests_total", {"status_class": "2xx", "ending": "complete"}, 1.0),
        ("gaugeway_requests_total", {"status_class": "4xx", "ending": "complete"}, 1.0),
        ("gaugeway_requests_total", {"status_class": "4xx", "ending": "rejected"}, 5.0),
    ]
    assert (failed_requests(Series(seen)), failed_requests(Series())) == (1.0, 0.0)


async def test_a_gateway_that_cannot_be_read_is_named(tmp_path):
    async with world(tmp_path) as w:
        w.site.gateways = ("http://127.0.0.1:1",)
        page = await w.page("/welcome")
    assert "The gateway's counters at http://127.0.0.1:1 cannot be read (ConnectError" in page.words


def test_a_judge_on_this_machine_needs_no_key_and_no_secret_of_the_upstream_is_shown():
    assert judge_snippet([{"base_url": "http://127.0.0.1:11434/v1"}], {}).variable == ""
    assert judge_snippet([{"base_url": "https://me:secret@llm.example/v1"}], {}).base_url == "https://llm.example/v1"


async def test_without_a_file_it_says_how_to_write_one(tmp_path):
    async with world(tmp_path, config=JUDGE) as w:
        w.site.origins = {"judge.model": OPTION}
        w.answered(1, app="shop")
        page = await w.page("/welcome")
    options = "--upstream https://api.openai.com/v1 --judge judge-1 --judge-url http://127.0.0.1:1/v1 --rate 1.0"
    words = f"To judge every answer, run gaugeway init {options}, which writes a gaugeway.toml, and restart."
    assert words in page.words
    assert "No passages found in the only answer of app shop." in page.words
    assert "the Overview becomes the front page" in page.words

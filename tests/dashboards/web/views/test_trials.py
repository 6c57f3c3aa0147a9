"""Trials: a list, a form that names where requests go before it starts, and a verdict with what it rests on."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from dashboards.web.views.trials import by_field
from gaugeway.records import Evaluation, Score
from gaugeway.settings.shared import Config
from gaugeway.storage.trials import Answer
from tests.support.pages import EVIL, world

METRIC = "lexical_groundedness"
KEY = "sk-page-secret-4711"
CONFIG = Config(
    upstreams=(
        {"base_url": "https://user:hidden@live.example/v1"},
        {"name": "other", "base_url": "https://api.other.example/v1", "api_key": KEY},
    ),
    prices={"known-*": {"input": 0.4, "output": 1.6}},
)
GIVEN = {
    "name": "smaller",
    "app": "shop",
    "upstream": "other",
    "model": "known-1",
    "primary": METRIC,
    "send": "redacted",
    "usd": "5",
    "margin": "0.02",
    "days": "14",
}


def stone(number):
    return "".join(chr(97 + int(digit)) for digit in f"{number:03d}") + "stone"


async def begun(w, **more):
    """Check and start a trial with the form."""
    await w.send("/trials/new", "/trials#check", 200, **GIVEN | more)
    return await w.send("/trials/new", "/trials#check", **GIVEN | {"confirmed": "api.other.example"} | more)


async def answered(w, count, gain, *, name="smaller", spread=0.1, **about):
    """Have the candidate answer so many exchanges; its scores are better by `gain`."""
    draw, now = random.Random(7), time.time()
    for number in range(count):
        exchange = f"{name}-{number}"
        live = draw.uniform(0.5, 0.9)
        candidate = min(1.0, max(0.0, live + gain + draw.uniform(-spread, spread)))
        await w.add(Score(live), id=exchange, metric=METRIC, question=f"Where is the {stone(number)}?", **about)
        said = {"trial": name, "arm": "candidate", "answer": f"Behind gate {number}."}
        evaluation = Evaluation(
            sample_id=exchange,
            metric=f"{METRIC}~trial:{name}.candidate",
            version="1",
            outcome=Score(candidate, "", ({"covered": 1}, said)),
        )
        await w.store.add((await w.store.sample(exchange))[0], [evaluation])
        facts = {
            "scores": {METRIC: [live, candidate], "answered": [1.0, 1.0]},
            "numbers": {"seconds": [2.0 + live, 1.0 + live], "usd": [0.002, 0.001]},
            "facets": {"source": "old-manual.md" if number % 2 else "faq.md"},
            "cluster": f"c{number}",
            "rate": 1.0,
        }
        done = {"at": now + number, "usd": 0.001, "judge_usd": 0.0005, "facts": facts}
        await settled(w, name, Answer(arm="candidate", exchange=exchange, state="answered", **done))


async def settled(w, name, answer):
    claimed = await w.trials.claim((await w.trials.get(name)).trial, answer.arm, answer.exchange, 0.0, answer.at)
    assert claimed == "claimed"
    await w.trials.settle(name, answer)


async def test_there_is_no_trial_at_first_and_the_list_is_in_the_navigation(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        page = await w.page("/trials")
    assert "No trial yet." in page.words
    assert {"/trials", "/trials/new"} <= {link.get("href") for link in page.all("a")}


async def test_the_form_names_the_host_before_anything_starts_and_shows_no_secret(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        form = await w.page("/trials/new?app=shop&model=known-1&upstream=other&max_contexts=2&drop_source=old.md")
        checked = (await w.send("/trials/new", "/trials#check", 200, **GIVEN, judge_usd="1")).text
        none = await w.trials.all()
        started = await w.send("/trials/new", "/trials#check", **GIVEN, confirmed="api.other.example")
        page = await w.page(started.headers["location"])
        stored = (await w.trials.get("smaller")).trial
        again = (await w.send("/trials/new", "/trials#check", 400, **GIVEN, confirmed="api.other.example")).text
    fields = {field["name"]: field.get("value") for field in form.all("input")}
    assert [fields[name] for name in ("app", "model", "max_contexts", "drop_source")] == [
        "shop",
        "known-1",
        "2",
        "old.md",
    ]
    assert "other: api.other.example" in form.words
    assert "default: live.example" in form.words
    assert "empty: from [prices], 0.4" in form.words
    assert [option.get("value") for option in form.all("option") if "selected" in option] == ["other"]
    assert [radio for radio in form.all("input") if radio.get("type") == "radio" and "checked" in radio] == []
    assert none == []
    assert "Questions of shop will go to api.other.example" in checked
    assert "At most 5.00 USD for answers and 1.00 USD for judging" in checked
    assert started.headers["location"] == "/trials/smaller"
    assert "Not decided yet" in page.words
    assert (stored.arms[0].api_key, stored.arms[0].price.output) == ("upstream:other", 1.6)
    assert "there is a trial smaller already" in again
    assert not [text for text in (str(form.elements), checked, again, page.text) if KEY in text or "hidden@" in text]


@pytest.mark.parametrize(
    ("field", "given", "why"),
    [
        ("send", {"send": ""}, "say &#39;redacted&#39; or &#39;original&#39;"),
        ("usd", {"usd": "much"}, "&#39;much&#39; is not a number"),
        ("usd", {"usd": "-1"}, "must be &gt; 0.0"),
        ("days", {"days": "nan"}, "&#39;nan&#39; is not a number"),
        ("days", {"days": "-1"}, "lies in the past"),
        ("margin", {"margin": "1"}, "must be &lt; 1.0"),
        ("name", {"name": "My Trial"}, "at most 40 characters"),
        ("name", {"name": "new"}, "choose another name"),
        ("price_input", {"model": "unknown"}, "needed, as the trial is bounded in USD"),
        ("price_output", {"price_input": "1"}, "is needed beside the other price"),
        ("upstream", {"upstream": "nowhere"}, "is not in [[upstreams]]"),
        ("upstream", {"upstream": "default"}, "a candidate needs a key of its own"),
        ("primary", {"primary": "taste"}, "no metric &#39;taste&#39; scores answers here"),
        ("system_prompt", {"system_prompt": "x" * 20_001}, "has 20,001 characters; at most 20,000 are allowed"),
        ("max_contexts", {"max_contexts": "1.5"}, "Expected `int"),
    ],
)
async def test_an_error_stands_at_its_field_and_what_was_typed_is_kept(tmp_path, field, given, why):
    async with world(tmp_path, config=CONFIG) as w:
        answer = await w.send("/trials/new", "/trials#check", 400, **GIVEN | {"system_prompt": EVIL} | given)
        assert await w.trials.all() == []
    assert f'<a href="#{field}">' in answer.text
    assert why in answer.text
    assert EVIL not in answer.text
    assert 'value="shop"' in answer.text
    assert ("&lt;script&gt;alert(1)" in answer.text) == ("system_prompt" not in given)


async def test_where_requests_go_is_asked_again_if_it_changed_since_it_was_shown(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        answer = await w.send("/trials/new", "/trials#check", 200, **GIVEN, confirmed="elsewhere.example")
        assert await w.trials.all() == []
    assert "Start: send questions to api.other.example" in answer.text


@pytest.mark.parametrize(
    ("gain", "headline", "words", "decision"),
    [
        (-0.3, "Do not ship: the answers to the questions of shop get worse", "Answers are worse", "✗ worse"),
        (0.2, "Ship candidate: its answers to the questions of shop are better", "Answers are better", "✓ better"),
    ],
)
async def test_a_verdict_is_the_headline_with_what_it_rests_on(tmp_path, gain, headline, words, decision):
    async with world(tmp_path, config=CONFIG) as w:
        await begun(w)
        await answered(w, 300, gain)
        await w.trials.end("smaller", "decided", time.time())
        page, listed = await w.page("/trials/smaller"), await w.page("/trials")
    assert headline in page.words
    assert words in page.words
    assert decision in page.words
    assert "At most 5 % risk of a wrong verdict, however often you look." in page.words
    assert "From 300 questions in 300 conversations" in page.words
    assert "ended: decided" in page.words
    assert "0.30 USD of at most 5.00 USD" in page.words.replace("0.3000", "0.30")
    assert [
        svg
        for svg in page.all("svg")
        if svg.get("aria-label", "").startswith(f"{METRIC}: candidate - live {gain:+.1f}"[:-1])
    ]
    assert not [form for form in page.all("form") if form.get("action") == "/trials/smaller/stop"]
    assert ("Answers that the candidate lost" in page.words) == (gain < 0)
    assert "decided" in listed.words


async def test_what_is_not_decided_says_how_many_more_and_a_person_can_stop_it(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        await begun(w)
        await answered(w, 40, 0.0, spread=0.3)
        lost = {"at": time.time(), "usd": 0.002, "judge_usd": 0.0}
        facts = {"scores": {"answered": [1.0, 0.0]}, "unscored": {METRIC: "no_claims"}}
        await settled(w, "smaller", Answer(arm="candidate", exchange="z", state="failed:timeout", facts=facts, **lost))
        await w.trials.leave_out({"smaller": Counter(redacted=3, server_state=1)})
        page = await w.page("/trials/smaller")
        listed = await w.page("/trials")
        report = await w.site.trials.report("smaller")
        assert await w.site.trials.report("smaller") is report  # made again only once something has changed
        stopped = await w.send("/trials/smaller", "/trials/smaller/stop")
        after = await w.page(stopped.headers["location"])
    assert "more questions needed" in page.words
    assert "40 of about " in page.words
    assert "40 answered; 1 failed: timeout" in page.words
    assert f"Not scored, and in no number above: 1 by {METRIC}: no claims" in page.words
    assert "3 exchanges: redaction would change the request" in page.words
    assert "1 exchange: depends on what the provider keeps of the conversation" in page.words
    assert "running" in listed.words
    assert "Stopped: nothing more is sent." in after.words
    assert "ended: stopped by a person" in after.words
    assert "The trial ended before that." in after.words
    assert "The trial ended before that." not in page.words


async def test_before_any_answer_nothing_is_shown_as_zero(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        await begun(w)
        page = await w.page("/trials/smaller")
    assert "Not enough answers to decide." in page.words
    assert "no pair scored" in page.words
    assert "abstention may stop a ship; 0 is best" in page.words
    rows = [
        row for table in page.tables for row in table if row and METRIC.replace("_", "") in row[0][3].replace("_", "")
    ]
    assert [cell[3].strip() for cell in rows[0]][1:] == [
        "-",
        "no pair scored",
        "",
        "-",
        "-",
        "0",
        "-",
        "-",
    ]


async def test_lost_answers_link_to_their_exchange_and_go_into_a_data_set(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        await begun(w)
        await answered(w, 60, -0.2)
        page = await w.page("/trials/smaller")
        links = [link["href"] for link in page.all("a") if link.get("href", "").endswith("#answers")]
        exchange = await w.page(links[0].removesuffix("#answers"))
        kept = await w.send("/trials/smaller", "/datasets", name="lost")
        made, records = await w.datasets.read("lost")
    assert len(links) == 20
    assert "Answers of candidates" in exchange.words
    assert f"Behind gate {links[0].rpartition('-')[2].removesuffix('#answers')}." in exchange.words
    assert "candidate of trial smaller" in exchange.words
    assert "(live 0." in exchange.words
    assert kept.headers["location"] == "/trials/smaller?done=kept"
    assert (made.name, len(records)) == ("lost", 20)


async def test_each_candidate_of_a_trial_has_its_own_part(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        arms = [{"name": name, "upstream": "other", "model": f"known-{name}"} for name in ("candidate", "second")]
        given = {"name": "both", "app": "shop", "primary": METRIC, "send": "redacted", "usd": 5.0, "arms": arms}
        await w.trials.start(w.site.trials.check(given))
        await answered(w, 60, -0.3, name="both")
        page = await w.page("/trials/both")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert "Candidate: model = known-candidate" in page.words
    assert "Second: model = known-second" in page.words
    assert "Answers are worse" in page.words
    assert "Not enough answers to decide." in page.words
    assert "Keep the 20 lost answers" in page.words


async def test_what_a_trial_names_is_escaped(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        arms = [{"upstream": "other", "model": f"known-{EVIL}", "drop_source": EVIL}]
        given = {"name": "evil", "app": EVIL, "primary": METRIC, "send": "redacted", "usd": 5.0, "arms": arms}
        await w.trials.start(w.site.trials.check(given, EVIL))
        await answered(w, 60, -0.3, name="evil", app=EVIL)
        texts = [await w.client.get(path, headers={"accept": "text/html"}) for path in ("/trials", "/trials/evil")]
    assert [text.status_code for text in texts] == [200, 200]
    assert not [text for text in texts if "<script>alert" in text.text or "<img" in text.text]


async def test_unknown_trials_are_not_found_and_a_store_without_trials_says_so(tmp_path):
    async with world(tmp_path, config=CONFIG) as w:
        await w.page("/trials/nope", status=404)
        w.site.trials = None
        page = await w.page("/trials", status=501)
    assert "This storage does not offer trials." in page.words


def test_problems_of_one_field_stand_together():
    assert by_field(["arms.a.api_key: x", "arms.a.base_url: y", "other"]) == {"upstream": "x; y", "": "other"}

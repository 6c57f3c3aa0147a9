"""Sources: the table, one source with its worst answers, the links that lead there, and nothing they say is markup."""

from __future__ import annotations

from gaugeway.records import Context, Evaluation, Sample, Score, Usage
from monitors.analysis.retrieval import source_reading
from tests.support.pages import EVIL, world


async def fill(w, name="old.md", n=120):
    """A sixth of the exchanges get a bad source."""
    for number in range(n):
        bad = number % 6 == 0
        contexts = (Context(text="It is so.", id=f"doc-{number % 7}"), *([Context(text="No.", id=name)] if bad else []))
        await w.add(0.2 if bad else 0.9 + 0.1 * (number % 2), contexts=contexts, context_source="explicit")
    await w.look()


async def test_the_table_names_the_source_that_lowers_scores_and_leads_to_its_worst_answers(tmp_path):
    async with world(tmp_path) as w:
        await fill(w)
        every = await w.page("/sources")
        one = await w.page("/sources?app=shop&source=old.md")
        other = await w.page("/sources?app=bank")
        exchange = await w.page(next(a["href"] for a in one.all("a") if a["href"].startswith("/exchanges/")))
    assert "8 sources in 120 exchanges" in every.words
    assert every.words.count("lowers faithfulness") == 1
    assert "In bad answers In good answers old.md ▼ lowers faithfulness" in every.words
    assert "old.md ▼ lowers faithfulness -0.76 -0.81 to -0.71 0.20 0.96 20 100 % 0 % doc" in every.words
    assert "Citations are unknown: no judge named the passages" in every.words
    assert "/sources?app=shop&since=24h&source=old.md" in [a["href"] for a in every.all("a")]
    assert "Worst answers with this source" in one.words
    assert sum(a["href"].startswith("/exchanges/") for a in one.all("a")) == 5
    assert "No scored exchange of this app has passages" in other.words
    assert "/sources?app=shop&source=old.md" in [a["href"] for a in exchange.all("a")]


async def test_citations_are_shown_where_a_judge_found_them(tmp_path):
    async with world(tmp_path) as w:
        sample = await w.add(0.5, contexts=(Context(text="It is so.", id="a"),), context_source="explicit")
        evidence = ({"verdict": "supported", "contexts": [0]},)
        again = Evaluation(sample_id=sample.id, metric="faithfulness", version="2", outcome=Score(0.5, "", evidence))
        await w.store.add(sample, [again])
        await w.look()
        page = await w.page("/sources?app=shop")
    assert "1 source in 1 exchange" in page.words
    assert "1 of 1 " in page.words
    assert "Citations are unknown" not in page.words


async def test_an_alert_leads_to_its_source(tmp_path):
    async with world(tmp_path) as w:
        fields = {"contexts": (Context(text="It is so.", id="doc-1"),), "context_source": "explicit"}
        await w.drop(**fields)
        alert = next(one for one in w.engine.alerts() if one.state == "firing")
        case = w.engine._cases.by_fingerprint[alert.fingerprint]  # noqa: SLF001 - a cause that a simulated drop has not
        case.alert = type(alert)(
            **{name: getattr(alert, name) for name in alert.__dataclass_fields__} | {"cause_source": "old & new.md"}
        )
        page = await w.page(f"/alerts/{alert.fingerprint}")
    assert "Source: old & new.md" in page.words
    assert "/sources?app=shop&source=old+%26+new.md" in [a["href"] for a in page.all("a")]


async def test_bad_selections_are_refused_and_names_are_no_markup(tmp_path):
    async with world(tmp_path) as w:
        await fill(w, EVIL)
        for path in ("/sources?since=never", "/sources?since=400d"):
            assert "since: " in (await w.page(path, 400)).words
        words = (await w.page("/sources?since=2999-01-01", 400)).words
        assert "The start of the time range must be before its end." in words
        page, unknown = await w.page("/sources"), await w.page("/sources?source=unknown")
    assert EVIL[:10] in page.words
    assert not page.all("img")
    assert "No scored exchange of this app used this source" in unknown.words


async def test_without_scores_there_is_nothing_to_choose(tmp_path):
    async with world(tmp_path) as w:
        await w.plane.estimate()
        assert "No app has scores yet." in (await w.page("/sources")).words


async def test_a_sample_is_named_as_in_the_report(tmp_path):
    async with world(tmp_path) as w:
        sample = Sample(id="s", started_at=0.0, app="shop", contexts=(Context(text="x"), Context(text="", id="a")))
        hashed, named = w.site.sources.names(sample)
    assert (hashed[:5], named) == ("text:", "a")


async def test_an_unknown_metric_is_named_on_both_pages(tmp_path):
    async with world(tmp_path) as w:
        await fill(w, n=12)
        pages = [await w.page(f"/{name}?app=shop&metric=bogus", status=400) for name in ("sources", "topics")]
    for page in pages:
        assert "metric: unknown metric 'bogus'; known: " in page.words


async def test_the_pages_say_what_is_left_to_read_and_when_a_period_has_too_much(tmp_path, monkeypatch):
    async with world(tmp_path) as w:
        await fill(w, n=24)
        monkeypatch.setattr(source_reading, "IN_A_ROW", 10)
        monkeypatch.setattr("dashboards.web.views.sources.BUDGET_S", 0.0)
        left = await w.page("/sources?app=shop")
        monkeypatch.setattr(source_reading, "MAX_EXCHANGES", 12)
        full = await w.page("/topics?app=shop&since=23h")
    assert "Based on 10 exchanges of this period, not all of them. Reload to read 14 more, or choose" in left.words
    assert "Based on 12 exchanges of this period, not all of them. That is as many as are read at once" in full.words


async def test_charts_say_in_words_when_a_source_was_used(tmp_path):
    async with world(tmp_path) as w:
        await fill(w, n=24)
        assert "0.20; 4 uses, all in the latest twelfth." in (await w.page("/sources?app=shop&source=old.md")).text


async def test_a_past_period_has_its_own_report_and_the_picker_keeps_the_selection(tmp_path):
    def add(w, name, ago_s):
        contexts = (Context(text="It is so.", id=name),)
        return w.add(0.9, at=w.site.clock() - ago_s, contexts=contexts, context_source="explicit")

    async with world(tmp_path) as w:
        for _ in range(3):
            await add(w, "new.md", 60.0)
            await add(w, "old.md", 3 * 86_400.0)
        await w.look()
        now = await w.page("/sources?app=shop&order=uses")
        before = await w.page("/sources?app=shop&order=uses&since=4d&until=2d")
        topics = await w.page("/topics?app=shop&since=4d&until=3d")
    assert "new.md" in now.words
    assert "old.md" not in now.words
    assert "old.md" in before.words
    assert "new.md" not in before.words
    links = [a["href"] for a in before.all("a")]
    assert "/sources?app=shop&order=uses&since=7d" in links
    assert "/sources?app=shop&since=4d&until=2d&source=old.md" in links
    assert "No question of this app was evaluated" not in topics.words


async def test_the_costs_of_passages_are_shown_with_what_is_estimated_and_unknown(tmp_path):
    async with world(tmp_path) as w:
        await fill(w, EVIL, n=24)
        page, topics = await w.page("/sources?app=shop"), await w.page("/topics?app=shop")
        one = await w.page("/sources?app=shop&source=doc-1")
    assert "What the context costs" in page.words
    assert "24 answers with passages, usually 1 each. Tokens: 0 measured, 24 estimated from characters" in page.words
    assert "What answers rest on is unknown" in page.words
    assert "Position 1 24 2" in page.words
    assert "Leave out doc-1 unknown 0" in page.words
    assert "Start a trial without doc-1" in page.words
    assert "/trials/new?app=shop&drop_source=doc-1" in [link["href"] for link in page.all("a")]
    assert not page.all("img")
    assert "What the context costs" not in topics.words
    assert "What the context costs" not in one.words


async def test_savings_below_one_percent_of_the_prompt_are_one_line(tmp_path):
    large, small = (Context(text="It is so. " * 40, id="large"), Context(text="So.", id="small"))
    async with world(tmp_path) as w:
        for app, contexts in (("shop", (large, small)), ("desk", (small,))):
            for _ in range(3):
                usage = Usage(input_tokens=1000)
                await w.add(0.5, contexts=contexts, context_source="explicit", app=app, usage=usage)
        await w.look()
        shop, desk = await w.page("/sources?app=shop"), await w.page("/sources?app=desk")
    assert "Leave out large 10 % 100 Start a trial without large 2 smaller ones What fewer" in shop.words
    assert "1 passage instead of 2 < 1 % 1 Start a trial with 1 passage Leave out small < 1 %" in shop.words
    assert "Fewer passages would save No saving above 1 % of the prompt" in desk.words
    assert " n 3" not in shop.words


async def test_claims_and_shared_words_are_named_as_what_the_shares_rest_on(tmp_path):
    contexts = (Context(text="It is so.", id="a"), Context(text="It is not so.", id="b"))
    judged = {"claim": "It is so.", "verdict": "supported", "contexts": [0]}
    shared = {"sentence": "It is so.", "score": 1.0, "context": 0}
    async with world(tmp_path) as w:
        for app, metric, item in (("shop", "faithfulness", judged), ("desk", "lexical_groundedness", shared)):
            sample = await w.add(0.5, contexts=contexts, context_source="explicit", app=app)
            score = Score(0.5, "", (item,))
            await w.store.add(sample, [Evaluation(sample_id=sample.id, metric=metric, version="2", outcome=score)])
        await w.look()
        shop, desk = await w.page("/sources?app=shop"), await w.page("/sources?app=desk")
    assert "What answers rest on: claims that a judge found supported in 1 answer." in shop.words
    assert "only words shared with passages in 1 answer; no judge looked" in desk.words

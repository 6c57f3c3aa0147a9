"""What passages cost by position, source and k, what answers rest on, in words, over HTTP, and against the truth."""

from __future__ import annotations

import contextlib
import json
import random

import httpx
import pytest
from litestar import Litestar

from gaugeway.records import CaptureInfo, Context, Evaluation, PromptPart, Sample, Score, Usage
from gaugeway.settings.shared import Price
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.analysis.retrieval.context_cost import (
    MAX_COSTED_SOURCES,
    MAX_POSITIONS,
    TOKENS_PER_CHARACTER,
    FinishedTrial,
    context_costs,
    with_trials,
)
from monitors.analysis.retrieval.passage_use import PassageUse, Support
from monitors.analysis.retrieval.source_reading import SourceReports
from monitors.analysis.retrieval.sources import RetrievedExchange, Scope
from monitors.api import openapi
from monitors.api.reports import source_handlers
from tests.support.running import serving

NOW = 1_760_000_000.0
SCOPE = Scope(app="shop", metric="faithfulness", since=NOW - 86_400.0, until=NOW)
USD = 2e-6
TRIAL = FinishedTrial(
    name="fewer",
    candidate="max_contexts=1",
    metric="faithfulness",
    difference=-0.004,
    ci_low=-0.015,
    ci_high=0.007,
    error=0.05,
)


def exchange(number, sizes, *cited, names=None, rate=1.0, cluster=None, **about):
    """An answer whose prompt has these passages and 100 characters more, at 4 characters a token.

    Each of `cited` is a claim with the passages it cites; one that is None leaves it unknown.
    """
    claims = None if None in cited else Support(tuple(frozenset(places) for places in cited), rate)
    seen = sum(sizes) + 100
    use = {"seen": seen, "whole": True, "input_tokens": seen // 4, "usd_per_token": (USD,) * len(sizes)}
    return RetrievedExchange(
        id=f"x{number}",
        started_at=NOW,
        model="m",
        rate=rate,
        cluster=cluster,
        passages=names or tuple(f"doc-{place}" for place in range(len(sizes))),
        use=PassageUse(**{"characters": tuple(sizes), "claims": claims} | use | about),
    )


def costs(*exchanges):
    return context_costs(exchanges, SCOPE)


def advised(report, candidate):
    return next(advice for advice in report.advice if advice.candidate == candidate)


def test_each_position_has_its_tokens_price_and_the_answers_that_rest_on_it():
    report = costs(*(exchange(n, (200, 100), [0], *([[1]] if n < 5 else [])) for n in range(20)))
    first, second = report.positions
    assert (first.name, first.answers, first.tokens.value, first.tokens.n) == ("1", 20, 50.0, 20)
    assert (first.prompt_share.value, first.usd_per_1000.value) == (0.5, pytest.approx(1000 * 50 * USD))
    assert (first.rests_on.value, second.rests_on.value) == (1.0, 0.25)
    assert 0.05 < second.rests_on.ci_low < 0.25 < second.rests_on.ci_high < 0.6
    assert (report.basis, report.judged, report.measured, report.estimated) == ("claims", 20, 20, 0)


def test_claims_that_rest_on_kept_passages_too_are_told_apart():
    (keep_one,) = costs(*(exchange(n, (40, 40), [0, 1]) for n in range(9)), exchange(9, (40, 40), [1])).advice[:1]
    assert keep_one.candidate == "max_contexts=1"
    assert (keep_one.saved.rests_on.value, keep_one.saved.rests_only_on.value) == (1.0, 0.1)


def test_advice_is_about_all_answers_whatever_the_number_of_their_passages():
    report = costs(*(exchange(n, (100,) * (3 if n % 2 else 1), [0]) for n in range(10)), exchange(10, (100,) * 3, [0]))
    assert (report.usual_k, report.most_k) == (3, 3)
    assert [advice.candidate for advice in report.advice[:2]] == ["max_contexts=2", "max_contexts=1"]
    saved = advised(report, "max_contexts=1").saved
    assert (saved.answers, report.positions[1].answers) == (11, 6)
    assert saved.tokens.value == pytest.approx(6 * 50 / 11)
    assert saved.prompt_share.value == pytest.approx(6 * 50 / (6 * 100 + 5 * 50))


def test_means_and_shares_weigh_by_the_sampling_rate():
    rare = [exchange(n, (400,), [0], rate=0.25) for n in range(4)]
    (position,) = costs(*rare, *(exchange(n, (100,), rate=1.0) for n in range(4, 20))).positions
    assert position.tokens.value == pytest.approx(62.5)
    assert position.rests_on.value == pytest.approx(0.5)


def test_answers_of_a_conversation_count_less():
    def width(cluster):
        answers = [exchange(n, (100,), *([[0]] if n // 8 % 2 else []), cluster=cluster(n)) for n in range(80)]
        share = costs(*answers).positions[0].rests_on
        return share.ci_high - share.ci_low

    assert width(lambda n: f"s:{n // 8}") > 2.0 * width(lambda n: f"s:{n}")


def test_a_share_of_none_has_the_interval_of_its_conversations():
    alike = costs(*(exchange(n, (100,), cluster=f"s:{n // 8}") for n in range(80))).positions[0]
    apart = costs(*(exchange(n, (100,), cluster=f"s:{n}") for n in range(80))).positions[0]
    assert alike.rests_on.value == apart.rests_on.value == 0.0
    assert alike.rests_on.ci_high > 4.0 * apart.rests_on.ci_high


def test_a_source_counts_all_its_passages_and_those_without_a_name_are_no_source():
    names = ("faq.md", "text:3f9a", "faq.md")
    report = costs(*(exchange(n, (100, 100, 200), [2], names=names) for n in range(5)))
    (source,) = report.sources
    assert (source.name, source.answers, source.tokens.value, source.rests_on.value) == ("faq.md", 5, 75.0, 1.0)
    assert (report.unnamed, report.other_sources) == (5, 0)
    bare = costs(*(exchange(n, (100,), names=("text:3f9a",)) for n in range(5)))
    assert (bare.sources, bare.advice, bare.unnamed) == ((), (), 5)


def test_the_sources_with_most_characters_are_listed():
    report = costs(*(exchange(n, (10 + n,), names=(f"doc-{n}.md",)) for n in range(MAX_COSTED_SOURCES + 3)))
    assert (len(report.sources), report.other_sources) == (MAX_COSTED_SOURCES, 3)
    assert report.sources[0].name == f"doc-{MAX_COSTED_SOURCES + 2}.md"
    assert report.advice[0].candidate == f"drop_source={report.sources[0].name}"


def test_without_reported_tokens_those_of_other_answers_are_taken_and_called_estimated():
    unreported = [exchange(n, (200, 200), input_tokens=None, whole=n % 2 == 0) for n in range(4)]
    report = costs(*unreported, exchange(4, (200, 200), input_tokens=250))
    assert (report.measured, report.estimated) == (1, 4)
    assert report.positions[0].tokens.value == 100.0
    assert report.positions[0].prompt_share.n == 3
    assert "(partly estimated, 100 [" in report.advice[0].text
    alone = costs(*unreported)
    assert alone.positions[0].tokens.value == 200 * TOKENS_PER_CHARACTER
    assert "(estimated, 50 [" in alone.advice[0].text


def test_an_estimate_never_exceeds_the_reported_tokens():
    report = costs(*(exchange(n, (4000, 4000), whole=False, input_tokens=100) for n in range(3)))
    assert [position.tokens.value for position in report.positions] == [50.0, 50.0]
    assert report.advice[0].saved.prompt_share.value == 0.5


def test_what_is_unknown_is_none_and_named():
    report = costs(*(exchange(n, (9, 9), None, characters=None, usd_per_token=None) for n in range(4)))
    (position, _), advice = report.positions, report.advice[0]
    assert (report.measured, report.estimated, report.basis, report.judged) == (0, 0, None, 0)
    assert (position.answers, position.tokens, position.prompt_share) == (4, None, None)
    assert (position.usd_per_1000, position.rests_on, position.rests_only_on) == (None, None, None)
    assert "saves an unknown number of tokens" in advice.text
    assert "It is unknown how many answers rested on passage 2" in advice.text


def test_a_model_without_a_price_has_tokens_but_no_usd():
    report = costs(*(exchange(n, (9, 9), usd_per_token=None) for n in range(4)), exchange(4, (9, 9)))
    assert (report.positions[0].tokens.n, report.positions[0].usd_per_1000.n) == (5, 1)
    assert "USD unknown: the model has no price" in costs(exchange(1, (9, 9), usd_per_token=None)).advice[0].text


def test_shared_words_count_only_where_no_judge_looked():
    words = Support((frozenset({1}),), 1.0)
    lexical = [exchange(n, (9, 9), None, sentences=words) for n in range(4)]
    report = costs(*lexical)
    assert (report.basis, report.judged, report.positions[1].rests_on.value) == ("words", 4, 1.0)
    assert "by shared words alone" in report.advice[0].text
    mixed = costs(*lexical, exchange(4, (9, 9), [0]))
    assert (mixed.basis, mixed.judged, mixed.positions[1].rests_on.value) == ("claims", 1, 0.0)


def test_no_answer_one_answer_and_one_passage_are_reported():
    nothing = costs()
    assert (nothing.answers, nothing.usual_k, nothing.positions, nothing.advice) == (0, 0, (), ())
    (position,) = costs(exchange(1, (40,), [0])).positions
    assert (position.tokens.value, position.tokens.ci_low) == (10.0, None)
    assert position.rests_on.ci_high - position.rests_on.ci_low > 0.9
    empty = costs(exchange(1, (0,), seen=0, input_tokens=None))
    assert (empty.positions[0].tokens.value, empty.positions[0].prompt_share) == (0.0, None)


def test_of_many_passages_some_candidates_and_positions_are_shown():
    report = costs(*(exchange(n, (40,) * (MAX_POSITIONS + 9)) for n in range(3)))
    assert (report.most_k, len(report.positions)) == (MAX_POSITIONS + 9, MAX_POSITIONS)
    ks = [int(advice.candidate[13:]) for advice in report.advice if advice.candidate.startswith("max_contexts=")]
    assert (ks[0], ks[-1], len(ks)) == (MAX_POSITIONS + 8, 1, 8)


def test_advice_says_what_was_not_tried_and_how_to_try_it():
    report = costs(*(exchange(n, (100,) * 3, [0], names=("a.md", "b.md", "it's & old.md")) for n in range(30)))
    keep_one, without = advised(report, "max_contexts=1"), advised(report, "drop_source=it's & old.md")
    assert keep_one.text == (
        "k 3 -> 1 saves 50.0 % [50.0 to 50.0] of the prompt (50 [50 to 50] tokens an answer; 0.1000 [0.1000 to 0.1000] "
        "USD per 1,000 answers). 0.0 % [0.0 to 13.9] of 30 answers rested on passages 2-3, by the claims that a judge "
        "found supported; 0.0 % [0.0 to 13.9] had a claim that rested on nothing else. Not tried yet: start a trial."
    )
    assert keep_one.command == (
        "gaugeway trial start contexts-1 --app shop --candidate max_contexts=1"
        " --primary faithfulness --send redacted --usd 5"
    )
    assert keep_one.link == "/trials/new?app=shop&max_contexts=1"
    assert without.text.startswith("Leaving out it's & old.md saves 25.0 %")
    assert without.command.startswith("gaugeway trial start without-it-s-old-md --app shop --candidate 'drop_source=")
    assert without.link == "/trials/new?app=shop&drop_source=it%27s+%26+old.md"


def test_a_finished_trial_takes_the_place_of_not_tried_yet():
    report = with_trials(costs(*(exchange(n, (100,) * 3, [0]) for n in range(30))), [TRIAL])
    tried = "Tried in fewer: faithfulness changed by -0.004 [-0.015 to +0.007], error probability 5%."
    assert advised(report, "max_contexts=1").text.endswith(tried)
    assert advised(report, "max_contexts=1").trial == TRIAL
    assert advised(report, "max_contexts=2").text.endswith("Not tried yet: start a trial.")


def answers_of(seed, share):
    """Answers of 40 conversations, seen at different rates, that rest on passages 1 to 3.

    In a share of the conversations they rest on one of 4 to 10, too. 1,750 characters of 4 to 10 are expected.
    """
    draw, found = random.Random(seed), []
    for conversation in range(40):
        late, rate, beginning = draw.random() < share, draw.choice((0.25, 0.5, 1.0)), draw.randint(200, 800)
        for _ in range(draw.randint(1, 6)):
            sizes = (beginning,) * 3 + tuple(draw.randint(100, 400) for _ in range(7))
            cited = [[draw.randrange(3)], *([[draw.randrange(3, 10)]] if late else [])]
            if draw.random() < rate:
                cluster = f"s:{conversation}"
                found.append(exchange(len(found), sizes, *cited, names=("a",) * 10, rate=rate, cluster=cluster))
    return found


@pytest.mark.parametrize(
    ("share", "seeds"), [(0.0, range(30)), (0.05, range(50, 110)), (0.1, range(150, 210)), (0.4, range(250, 310))]
)
def test_intervals_cover_the_truth(share, seeds):
    covered, priced = 0, 0
    for seed in seeds:
        saved = advised(costs(*answers_of(seed, share)), "max_contexts=3").saved
        covered += saved.rests_on.ci_low <= share <= saved.rests_on.ci_high
        priced += saved.tokens.ci_low <= 1750 / 4 <= saved.tokens.ci_high
    assert covered >= 0.93 * len(seeds)
    assert priced >= 0.9 * len(seeds)


def stored(number):
    passages = [Context(text="a" * 300, source="a.md"), Context(text="b" * 300, source="b.md")]
    stretches = [(0, 300, 0), (300, 600, 1), (600, 700, None)]
    parts = [
        PromptPart(
            role="user", kind="question" if passage is None else "passage", start=start, end=end, passage=passage
        )
        for start, end, passage in stretches
    ]
    sample = Sample(
        id=f"s{number}",
        started_at=NOW - 60.0 * number,
        app="shop",
        model="m-1",
        question="How long?",
        contexts=tuple(passages),
        context_source="tags",
        capture=CaptureInfo(source="tags", parts=tuple(parts)),
        usage=Usage(input_tokens=175, output_tokens=9, cached_tokens=75),
    )
    evidence = ({"claim": "It is so.", "verdict": "supported", "contexts": [0]},)
    return sample, [
        Evaluation(sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(0.9, "", evidence), rate=0.5)
    ]


@contextlib.asynccontextmanager
async def client_of(path, some, **options):
    store = SQLiteStore(path / "store.db")
    try:
        for one in some:
            await store.add(*one)
        reports = SourceReports(store, salt="s", clock=lambda: NOW, **options)
        app = Litestar(source_handlers(reports), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        await store.aclose()


async def test_the_api_reports_at_the_configured_prices_and_as_described(tmp_path):
    prices = {"m-*": Price(input=2.0, output=8.0, cached=0.5)}
    async with client_of(tmp_path, map(stored, range(1, 7)), prices=prices) as client:
        answer = await client.get("/api/context-costs", params={"app": "shop"})
        wrong, nameless = [
            await client.get("/api/context-costs", params=params) for params in ({"app": "shop", "metric": "bogus"}, {})
        ]
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert (report["answers"], report["measured"], report["basis"], report["complete"]) == (6, 6, "claims", True)
    first, second = report["positions"]
    assert (first["tokens"]["value"], second["tokens"]["value"]) == (75.0, 75.0)
    # the cache held the 75 tokens that the prompt begins with
    assert first["usd_per_1000"]["value"] == pytest.approx(1000 * 75 * 0.5e-6)
    assert second["usd_per_1000"]["value"] == pytest.approx(1000 * 75 * 2e-6)
    assert [source["name"] for source in report["sources"]] == ["a.md", "b.md"]
    assert [advice["candidate"] for advice in report["advice"]] == [
        *("max_contexts=1", "drop_source=a.md", "drop_source=b.md"),
    ]
    assert (wrong.status_code, nameless.status_code) == (400, 400)
    schemas = openapi.document(source_handlers(None))["components"]["schemas"]
    assert report.keys() == schemas["ContextCostReport"]["properties"].keys()
    assert report["advice"][0].keys() == schemas["Advice"]["properties"].keys()
    assert first.keys() == schemas["PassageCost"]["properties"].keys()
    assert first["tokens"].keys() == schemas["Amount"]["properties"].keys()
    assert "NaN" not in json.dumps(report)


async def test_without_prices_usd_is_unknown(tmp_path):
    async with client_of(tmp_path, [stored(1)]) as client:
        report = (await client.get("/api/context-costs", params={"app": "shop"})).json()
    assert report["positions"][0]["usd_per_1000"] is None
    assert report["positions"][0]["tokens"]["value"] == 75.0


def test_evidence_of_a_rarer_metric_weighs_by_its_own_rate():
    """Costs are from all answers that were read; of what they rest on, a judge saw fewer."""
    often = [exchange(n, (40,), claims=Support((frozenset({0}),), 0.2)) for n in range(4)]
    always = [exchange(n, (40,), claims=Support((), 1.0)) for n in range(4, 24)]
    (position,) = costs(*often, *always).positions
    assert position.rests_on.value == pytest.approx(0.5)
    assert (position.tokens.value, position.tokens.n) == (10.0, 24)

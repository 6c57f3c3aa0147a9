"""What a report says of each source: uses, shares, citations, effect; what is read for it, and over HTTP."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import httpx
import pytest
from litestar import Litestar

from gaugeway.records import Context, Evaluation, Sample, Score, Skipped
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.analysis.human_labels import Passing
from monitors.analysis.retrieval import source_reading
from monitors.analysis.retrieval.source_reading import SourceReports
from monitors.analysis.retrieval.sources import MAX_SOURCES, RetrievedExchange, Scope, reported
from monitors.api import openapi
from monitors.api.reports import ordered, source_handlers
from tests.support.running import serving

NOW = 1_760_000_000.0
HOUR = 3600.0
SCOPE = Scope(app="shop", metric="faithfulness", since=NOW - 12 * HOUR, until=NOW)


def exchange(number, *passages, score=0.9, **about):
    fields = {"started_at": NOW - HOUR, "model": "m", "rate": 1.0, "passed": None if score is None else score >= 0.7}
    return RetrievedExchange(id=f"x{number}", passages=passages, score=score, **(fields | about))


def of(report, name):
    return next(one for one in report.sources if one.name == name)


def test_each_source_has_its_uses_citations_and_contradictions():
    report = reported(
        [
            exchange(1, "a", "b", cited=frozenset({0}), contradicted=frozenset({1})),
            exchange(2, "a", "a", cited=frozenset({1}), contradicted=frozenset()),
            exchange(3, "a", cited=frozenset(), contradicted=frozenset()),
            exchange(4, "b", "", score=None, contradicted=frozenset()),
            exchange(5, "", score=None),
        ],
        SCOPE,
    )
    assert (report.read, report.with_passages, report.scored, report.judged) == (5, 4, 3, 3)
    a, b = report.sources
    assert (a.name, a.uses, a.judged, a.cited, a.never_used, a.checked, a.contradicted) == ("a", 3, 3, 2, 1, 3, 0)
    assert (b.name, b.uses, b.judged, b.cited, b.never_used, b.checked, b.contradicted) == ("b", 2, 1, 0, 0, 2, 1)
    assert a.share.ratio == pytest.approx(0.75)


def test_what_the_passages_come_from_is_a_source_too_with_the_citations_of_its_passages():
    report = reported(
        [
            exchange(1, "faq-1", "rules-1", origins=("faq.md", ""), cited=frozenset({0}), contradicted=frozenset()),
            exchange(2, "faq-2", "faq-3", origins=("faq.md", "faq.md"), cited=frozenset(), contradicted=frozenset({1})),
        ],
        SCOPE,
    )
    assert {source.name: source.uses for source in report.sources} == {
        "faq.md": 2,
        "faq-1": 1,
        "faq-2": 1,
        "faq-3": 1,
        "rules-1": 1,
    }
    file = of(report, "faq.md")
    assert (file.cited, file.never_used, file.contradicted) == (1, 0, 1)


def test_without_a_judge_of_claims_citations_are_unknown_and_not_zero():
    (source,) = reported([exchange(1, "a")], SCOPE).sources
    assert (source.judged, source.cited, source.never_used, source.contradicted) == (0, None, None, None)


def test_shares_of_bad_and_good_answers_are_weighted_by_the_sampling_rate():
    report = reported(
        [
            exchange(1, "a", score=0.2),
            exchange(2, "b", score=0.2, rate=0.25),
            exchange(3, "a"),
            exchange(4, "b"),
            exchange(5, "b", score=None),
        ],
        SCOPE,
    )
    assert report.bad == 2
    assert (of(report, "a").in_bad.ratio, of(report, "b").in_bad.ratio) == (pytest.approx(0.2), pytest.approx(0.8))
    assert of(report, "a").in_good.ratio == pytest.approx(0.5)
    assert of(report, "a").in_bad.ci_low < 0.2 < of(report, "a").in_bad.ci_high
    assert of(report, "a").in_bad.n == 2


def test_numbers_have_six_decimals_and_intervals_end_at_0_and_1():
    """Wilson's interval of 0 of 7 otherwise begins at 1e-17."""
    report = reported([exchange(number, "a", score=0.1 * (number % 7), rate=1 / 3) for number in range(49)], SCOPE)
    (source,) = report.sources
    assert (source.in_bad.ratio, source.in_bad.ci_high) == (1.0, 1.0)
    found = reported([*(exchange(number, "a") for number in range(7)), exchange(8, "b", score=0.2)], SCOPE)
    assert (of(found, "b").in_good.ratio, of(found, "b").in_good.ci_low) == (0.0, 0.0)
    numbers = [number for share in (source.share, source.in_bad) for number in (share.ci_low, share.ci_high)]
    numbers += [part.mean for part in source.trend if part.mean is not None]
    assert numbers == [round(number, 6) for number in numbers]


def traffic(bad="bad", *, n=600, sources=50, flipped=False):
    """The bad source is in a tenth of the exchanges, and lowers the score by .5."""
    rng = random.Random(1)
    for number in range(n):
        names = {f"doc-{rng.randrange(sources)}" for _ in range(3)} | ({bad} if rng.random() < 0.1 else set())
        quality = min(1.0, max(0.0, rng.gauss(0.4 if bad in names else 0.9, 0.1)))
        yield exchange(number, *sorted(names), score=quality, started_at=NOW - 12 * HOUR * (1 - number / n))


@pytest.mark.parametrize("flipped", [False, True])
def test_the_source_that_lowers_scores_is_named_with_its_effect_on_the_metrics_own_scale(flipped):
    report = reported(list(traffic()), Scope(**{**_fields(SCOPE), "lower_is_better": flipped}))
    assert [one.name for one in report.sources if one.named] == ["bad"]
    bad = of(report, "bad")
    assert bad.evidence_log10 > 4.0
    assert bad.effect == pytest.approx(0.5 if flipped else -0.5, abs=0.08)
    assert bad.effect_ci_low < bad.effect < bad.effect_ci_high
    assert bad.mean_with == pytest.approx(0.6 if flipped else 0.4, abs=0.08)
    assert bad.in_bad.ratio > 0.7
    assert bad.in_good.ratio < 0.2
    assert len(bad.worst_exchanges) == 5
    assert sum(part.uses for part in bad.trend) == bad.uses
    assert bad.trend[0].since == SCOPE.since


def test_a_new_source_is_not_blamed_for_what_happened_to_all_answers_at_the_time():
    def some():
        for number in range(600):
            late = number >= 300
            names = ["new" if late else "old", f"doc-{number % 40}"]
            score = (0.5 if late else 0.9) + 0.1 * (number % 7) / 7
            yield exchange(number, *names, score=score, started_at=NOW - 12 * HOUR * (1 - number / 600))

    assert [one.name for one in reported(list(some()), SCOPE).sources if one.named] == []


def test_the_rarest_sources_beyond_the_bound_are_counted_together():
    some = [exchange(number, f"doc-{number}", "all") for number in range(MAX_SOURCES + 9)]
    report = reported(some, SCOPE)
    assert len(report.sources) == MAX_SOURCES
    assert (report.other_sources, report.other_uses) == (10, 10)
    assert report.sources[0].name == "all"


def _fields(scope):
    return {name: getattr(scope, name) for name in scope.__dataclass_fields__}


def stored(number, *contexts, value=0.9, metric="faithfulness", **about):
    sample = Sample(
        id=f"s{number}",
        started_at=NOW - 60.0 * number,
        app="shop",
        question=f"How long is the warranty, {number}?",
        contexts=contexts,
        context_source="explicit",
        **about,
    )
    outcome = (
        value if isinstance(value, Skipped) else Score(value, evidence=({"verdict": "supported", "contexts": [0]},))
    )
    return sample, [Evaluation(sample_id=sample.id, metric=metric, version="1", outcome=outcome)]


@contextlib.asynccontextmanager
async def reports_of(path, some, **options):
    store = SQLiteStore(path / "store.db")
    try:
        for one in some:
            await store.add(*one)
        yield SourceReports(store, salt="s", clock=lambda: NOW, **options)
    finally:
        await store.aclose()


GOOD = Context(text="Two years.", id="warranty.md")
BARE = Context(text="Two years.")


async def test_exchanges_are_read_with_ids_hashes_and_citations(tmp_path):
    async with reports_of(
        tmp_path, [stored(1, GOOD), stored(2, GOOD, BARE, value=0.2), stored(3, value=Skipped("no_contexts"))]
    ) as some:
        shop, bank = (await some.read("shop")).sources, (await some.read("bank")).sources
    assert (shop.metric, shop.read, shop.with_passages, shop.scored, shop.bad, shop.complete) == (
        *("faithfulness", 3, 2, 2, 1),
        True,
    )
    assert [one.name[:5] for one in shop.sources] == ["warra", "text:"]
    assert (shop.sources[0].cited, shop.sources[1].never_used) == (2, 1)
    assert (bank.read, bank.sources) == (0, ())


async def test_where_no_judge_scores_the_lexical_metric_is_used_and_thresholds_are_the_configured_ones(tmp_path):
    async with reports_of(
        tmp_path,
        [stored(1, GOOD, metric="lexical_groundedness", value=0.6)],
        passing=lambda _: Passing(threshold=0.5, flipped=False),
    ) as some:
        found = (await some.read("shop")).sources
    assert (found.metric, found.scored, found.bad) == ("lexical_groundedness", 1, 0)


async def test_what_was_read_within_the_budget_is_reported_as_incomplete_and_the_next_report_reads_the_rest(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(source_reading, "IN_A_ROW", 10)

    async with reports_of(tmp_path, [stored(number, GOOD) for number in range(1, 26)]) as some:
        first = (await some.read("shop", budget_s=0.0)).sources
        for _ in range(2):
            last = (await some.read("shop", budget_s=0.0)).sources
    assert (first.read, first.complete, first.pending) == (10, False, 15)
    assert (last.read, last.complete, last.pending) == (25, True, 0)


async def test_of_busy_apps_the_latest_exchanges_of_each_part_of_the_window_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(source_reading, "MAX_EXCHANGES", 24)

    async with reports_of(tmp_path, [stored(number / 6, GOOD) for number in range(120)]) as some:
        found = (await some.read("shop", since_s=1200.0)).sources
    assert (found.read, found.complete, found.pending) == (24, False, 0)
    assert [part.uses for part in found.sources[0].trend] == [2] * 12


@pytest.mark.parametrize(
    ("minutes", "read", "complete"),
    [
        ([0.05 * number for number in range(30)], 24, False),
        ([0.05 * number for number in range(24)], 24, True),
        ([*(0.05 * number for number in range(30)), 25.0, *(50.0 + 0.01 * number for number in range(9))], 24, False),
    ],
)
async def test_what_a_part_of_the_window_does_not_use_goes_to_the_others(
    tmp_path, monkeypatch, minutes, read, complete
):
    monkeypatch.setattr(source_reading, "MAX_EXCHANGES", 24)

    async with reports_of(tmp_path, [stored(number + 0.001, GOOD) for number in minutes]) as some:
        found = (await some.read("shop", since_s=3600.0)).sources
    assert (found.read, found.complete, found.pending) == (read, complete, 0)
    assert found.sources[0].trend[1].uses == sum(50.0 <= one < 55.0 for one in minutes)


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_the_clearest_loss_stands_first_equal_ones_by_name_and_what_has_no_comparison_last(lower_is_better):
    (made,) = reported([exchange(1, "a")], SCOPE).sources
    sign = -1.0 if lower_is_better else 1.0

    def source(name, effect, half=1.0, **about):
        low, high = (None, None) if effect is None else (sign * effect - half, sign * effect + half)
        effect = None if effect is None else sign * effect
        return replace(made, name=name, effect=effect, effect_ci_low=low, effect_ci_high=high, **about)

    sources = [
        source("unknown", None, evidence_log10=5.0),
        source("d", -0.011, evidence_log10=0.1),
        source("gain", 0.3, 0.1),
        source("c", -0.009, evidence_log10=0.2),
        source("loss of few", -0.3),
        source("may lower", -0.1, 0.05),
        source("lowers", -0.05, 0.01, named=True, evidence_log10=3.0),
        source("lowers clearly", -0.02, 0.01, named=True, evidence_log10=4.0),
    ]
    report = replace(reported([exchange(1, "a")], SCOPE), sources=tuple(sources), lower_is_better=lower_is_better)
    names = [one.name for one in ordered(report, "named")]
    assert names == ["lowers clearly", "lowers", "may lower", "loss of few", "c", "d", "gain", "unknown"]


async def test_the_api_returns_a_page_of_sources_in_the_order_wanted(tmp_path):
    some = [stored(number, GOOD, *([BARE] if number % 2 else [])) for number in range(1, 9)]

    async with reports_of(tmp_path, some) as made:
        app = Litestar(source_handlers(made), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            asked = [
                {"app": "shop", "order": "uses", "limit": 1},
                {"app": "shop", "source": "warranty.md"},
                {},
                {"app": "shop", "order": "size"},
            ]
            by_use, one, nameless, wrong = [await client.get("/api/sources", params=one) for one in asked]
    assert by_use.status_code == 200, by_use.text
    assert (by_use.json()["total_sources"], len(by_use.json()["sources"])) == (2, 1)
    assert [source["name"] for source in one.json()["sources"]] == ["warranty.md"]
    assert (nameless.status_code, wrong.status_code) == (400, 400)
    schema = openapi.document(source_handlers(None))
    described = schema["components"]["schemas"]
    assert by_use.json().keys() == described["SourceReport"]["properties"].keys() | {"total_sources"}
    assert by_use.json()["sources"][0].keys() == described["Source"]["properties"].keys()


async def test_an_unknown_metric_is_an_error_that_names_the_known_ones_unless_something_is_stored_for_it(tmp_path):
    wanted = ["bogus", "faithfulnes", "own", "mine", "hallucination", "faithfulness~other", "abstained", "precision@5"]

    some = [stored(1, GOOD), stored(2, GOOD, metric="own")]
    async with reports_of(tmp_path, some, enabled=["mine"]) as made:
        app = Litestar(source_handlers(made), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            answers = [
                await client.get(f"/api/{name}", params={"app": "shop", "metric": metric})
                for name in ("sources", "topics")
                for metric in wanted
            ]
    assert [one.status_code for one in answers] == [400, 400, 200, 200, 200, 200, 200, 200] * 2
    assert answers[0].json()["detail"].startswith("metric: unknown metric 'bogus'; known: mine, answer_relevancy, ")
    assert answers[1].json()["detail"] == "metric: unknown metric 'faithfulnes'; did you mean 'faithfulness'?"


async def test_topics_are_made_of_the_same_reading(tmp_path):
    some = [
        *(stored(number, GOOD, value=0.9) for number in range(1, 31)),
        *(empty(number, f"Which adapter charges laptop model {number}?") for number in range(31, 61)),
    ]

    async with reports_of(tmp_path, some) as made:
        app = Litestar(source_handlers(made), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            found = (await client.get("/api/topics", params={"app": "shop"})).json()
    assert (found["questions"], found["gaps"], found["complete"]) == (60, 30, True)
    worst = found["topics"][0]
    assert {"adapter", "laptop"} & set(worst["topic"].replace(",", "").split())
    assert worst["no_passages"] == worst["gaps"] >= 10
    schemas = openapi.document(source_handlers(None))["components"]["schemas"]
    assert found.keys() == schemas["GapReport"]["properties"].keys()
    assert worst.keys() == schemas["TopicGaps"]["properties"].keys()


async def test_clusters_are_made_of_the_same_reading(tmp_path):
    failed = ({"claim": "Refunds take a week.", "verdict": "contradicted"},)
    some = [
        *(asked(number, "refund deadline of saver tickets", Score(0.2, "", failed)) for number in range(1, 21)),
        *(asked(number, "wheelchair cabin " + 100_000 * "accessible ", Score(0.9)) for number in range(21, 41)),
        *(asked(number, "blake2b:00ff00ff", Score(0.1)) for number in range(41, 51)),
    ]

    async with reports_of(tmp_path, some) as made:
        app = Litestar(source_handlers(made), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def get(**given):
                asking = {"app": "shop", "since": "2025-10-01", "until": "2025-10-10"} | given
                answer = await client.get("/api/clusters", params=asking)
                return answer.status_code, answer.json()

            _, found = await get(kind="failures")
            _, questions = await get(kind="questions")
            _, declines = await get(kind="declines")
            wrong = [
                await get(**given)
                for given in (
                    {"kind": "all"},
                    {"kind": "failures", "metric": "bogus"},
                    {"kind": "failures", "since": "x"},
                )
            ]
            long = await get(kind="failures", since="2025-01-01")
    assert (found["n"], found["clustered"], found["read"], len(found["clusters"])) == (30, 20, 50, 1)
    cluster = found["clusters"][0]
    assert cluster["name"] == ", ".join(cluster["keywords"][:3])
    assert {"refund", "deadline", "saver"} & set(cluster["keywords"])
    assert (cluster["n"], cluster["share"]["ratio"], cluster["examples"][0]["claim"]) == (
        20,
        1.0,
        "Refunds take a week.",
    )
    assert [other["n"] for other in questions["clusters"]] == [20, 20]
    assert max(len(example["question"]) for other in questions["clusters"] for example in other["examples"]) == 300
    assert (declines["n"], declines["clusters"]) == (0, [])
    assert [status for status, _ in (*wrong, long)] == [400] * 4
    schemas = openapi.document(source_handlers(None))["components"]["schemas"]
    assert found.keys() == schemas["ClusterReport"]["properties"].keys()
    assert cluster.keys() == schemas["AnswerCluster"]["properties"].keys()


def asked(number, question, outcome):
    sample, evaluations = stored(number, GOOD)
    return replace(sample, question=question), [replace(evaluations[0], outcome=outcome)]


def empty(number, question):
    sample, evaluations = stored(number, value=Skipped("no_contexts"))
    return replace(sample, question=question), evaluations

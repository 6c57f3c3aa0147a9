"""People's labels beside the judge's scores: the correction, the agreement, the plan, and how they are shown."""

import asyncio
import json
import re
import time

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from litestar import Litestar
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from gaugeway.cli.main import main
from gaugeway.records import Supplement
from gaugeway.redaction import Redactor
from gaugeway.settings.shared import Metric
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import LabelledScore, Point, Query, Store
from gaugeway.storage.stores.hashing_store import HashingStore
from monitors.analysis.human_labels import default_passing, drawn, label, labelled, passings, sums_of
from monitors.api.reports import label_handlers
from monitors.exporters.instruments import Instruments
from monitors.metrics.registry import build
from tests.support.running import serving
from tests.support.scored import One, fill

NOBODY = Redactor((), (), "k")


def points(values, metric="faithfulness", **fields):
    common = {"app": "shop", "model": "m", "metric": metric, "outcome": "score", "reason": "", "rate": 1.0, **fields}
    return [Point(sample_id=f"s{at}", started_at=float(at), value=float(x), **common) for at, x in enumerate(values)]


def ratings(chosen, values, metric="faithfulness", **fields):
    common = {"app": "shop", "metric": metric, "value": 0.0, "rate": 1.0, "received_at": 1.0, **fields}
    return [LabelledScore(sample_id=f"s{at}", rating=float(x), **common) for at, x in zip(chosen, values, strict=True)]


def a_strict_judge(seed, n=3000):
    """85 % of the answers are good, and the judge fails 20 % of those."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.85
    return rng, truth, np.where(truth & (rng.random(n) < 0.2), 0.0, truth * 1.0)


def rows(points, rated, **options):
    """The labels of these answers, each beside the score of its answer."""
    scores = {point.sample_id: point.value for point in points}
    known = [replace(labelled_score, value=scores[labelled_score.sample_id]) for labelled_score in rated]
    return label(known, sums_of(points), **{"passing": default_passing, **options})


def one(points, rated, **options):
    (row,) = rows(points, rated, **options)
    return row


def test_labels_correct_a_strict_judge_and_the_raw_mean_stays_beside():
    covered = 0
    for seed in range(20):
        rng, truth, judge = a_strict_judge(seed)
        chosen = rng.choice(3000, 200, replace=False)
        row = one(points(judge), ratings(chosen, truth[chosen]))
        assert row.raw == pytest.approx(judge.mean())
        assert row.corrected_mean > row.raw + 0.08
        assert row.saving > 1.2
        assert not row.notes
        covered += row.ci_low <= truth.mean() <= row.ci_high
    assert covered >= 17


def test_agreement_is_told_with_intervals():
    rng, truth, judge = a_strict_judge(1)
    chosen = rng.choice(3000, 400, replace=False)
    row = one(points(judge), ratings(chosen, truth[chosen]))
    assert row.sensitivity.low < 0.8 < row.sensitivity.high
    assert row.specificity.value == 1.0
    assert 0.3 < row.kappa.low < row.kappa.value < row.kappa.high < 0.8


def test_where_0_is_best_a_good_rating_is_a_low_score():
    rng, truth, judge = a_strict_judge(2)
    chosen = rng.choice(3000, 300, replace=False)
    row = one(points(1.0 - judge, "hallucination"), ratings(chosen, truth[chosen], "hallucination"))
    assert row.corrected_mean == pytest.approx(1.0 - truth.mean(), abs=0.06)
    assert row.specificity.value == 1.0


def test_a_threshold_of_the_configuration_decides_what_passes():
    scores, said = [0.4] * 30 + [0.9] * 30, [0.0] * 30 + [1.0] * 30
    name = "lexical_groundedness"
    catalogue = build({name: Metric(threshold=0.3)}, None, None)
    low = one(points(scores, name), ratings(range(60), said, name), passing=passings(catalogue))
    usual = one(points(scores, name), ratings(range(60), said, name))
    assert (low.specificity.value, usual.specificity.value) == (0.0, 1.0)


@pytest.mark.parametrize("count", [0, 9])
def test_with_few_labels_there_is_no_corrected_mean_but_a_plan(count):
    _, truth, judge = a_strict_judge(3, 5000)
    row = one(points(judge), ratings(range(count), truth[:count]), half_width=0.05)
    assert (row.corrected_mean, row.ci_low, row.labels) == (None, None, count)
    assert row.needed == 385


def test_a_good_judge_needs_fewer_labels_and_too_few_answers_are_named():
    rng, truth, judge = a_strict_judge(4, 5000)
    chosen = rng.choice(5000, 300, replace=False)
    good = one(points(truth * 1.0), ratings(chosen, truth[chosen]))
    weak = one(points(rng.random(5000)), ratings(chosen, truth[chosen]))
    assert good.needed == 100 < weak.needed
    short = one(points(judge[:300]), [])
    assert (short.needed, "too few" in short.notes[0]) == (None, True)


def test_labels_of_the_worst_answers_are_called_no_random_sample():
    _, truth, judge = a_strict_judge(5)
    worst = np.argsort(judge)[:150]
    row = one(points(judge), ratings(worst, truth[worst]))
    assert "not a random sample" in row.notes[0]


def test_several_labels_of_one_answer_count_as_one():
    row = one(points([0.5] * 20), ratings([0] * 4, [1, 1, 0, 0]))
    assert (row.labels, row.people) == (1, 0.5)


def test_references_are_kept_apart_from_ratings():
    rated = [*ratings(range(12), [1.0] * 12), *ratings(range(15), [0.25] * 15, source="reference")]
    found = rows(points([0.5] * 40), rated)
    assert [(row.source, row.labels, row.people) for row in found] == [("rating", 12, 1.0), ("reference", 15, 0.25)]


def test_changed_rates_are_noted():
    row = one([*points([0.5] * 20), *points([0.5], rate=0.1)], [])
    assert any("rates changed" in note for note in row.notes)


def test_a_draw_is_the_same_every_time_and_a_larger_one_goes_on():
    names = [f"s{at}" for at in range(100)]
    assert drawn(names[::-1], 30)[:10] == drawn(names, 10)
    assert abs(np.mean([names.index(name) for name in drawn(names, 40)]) - 50) < 15


def test_the_gauges_come_and_go_with_the_labels():
    registry = CollectorRegistry()
    instruments = Instruments(registry, version="0")
    rng, truth, judge = a_strict_judge(6)
    chosen = rng.choice(3000, 100, replace=False)
    row = one(points(judge), ratings(chosen, truth[chosen]))
    instruments.show_labels([row])
    where = {"app": "shop", "metric": "faithfulness"}
    assert registry.get_sample_value("gaugeway_labels", where) == 100
    assert registry.get_sample_value("gaugeway_quality_corrected_mean", where) == row.corrected_mean
    assert registry.get_sample_value("gaugeway_quality_corrected_ci_low", where) == row.ci_low
    assert registry.get_sample_value("gaugeway_judge_agreement_kappa", where) == row.kappa.value
    instruments.show_labels([one(points(judge), ratings([1], [1.0]))])
    assert registry.get_sample_value("gaugeway_labels", where) == 1
    assert registry.get_sample_value("gaugeway_quality_corrected_mean", where) is None
    instruments.show_labels([])
    assert registry.get_sample_value("gaugeway_labels", where) is None


@pytest.fixture
def store(tmp_path):
    """400 answers, every fifth of them labelled by feedback, half of these by the word pass or fail."""
    rng, truth, judge = a_strict_judge(7, 400)
    del rng
    scores = [
        One(f"s{at}", x, 5000.0 - at, fields={"question": f"q{at}", "response": "because"})
        for at, x in enumerate(judge)
    ]
    words = {True: {"label": "pass"}, False: {"label": "fail"}}
    said = [
        Supplement(
            id=f"f{at}",
            received_at=1e12,
            source="feedback",
            exchange_id=f"s{at}",
            **(words[bool(truth[at])] if at % 2 else {"rating": float(truth[at])}),
        )
        for at in range(0, 400, 5)
    ]
    fill(tmp_path / "store.db", scores, said)
    return tmp_path


def run(store, *arguments):
    return CliRunner().invoke(main, ["labels", "--data-dir", str(store), *arguments])


def test_the_command_shows_both_means_and_draws_what_to_label(store):
    target = store / "to-label.jsonl"
    shown = run(store, "--metric", "faithfulness", "--half-width", ".08", "--draw", "50", "--output", str(target))
    assert shown.exit_code == 0, shown.output
    assert "shop" in shown.output
    table = shown.stdout.splitlines()
    assert max(map(len, table)) <= 80
    assert any(re.search(r"corrected +0\.\d{3} +0\.\d{3} to [01]\.\d{3}", line) for line in table), shown.output
    assert any(re.search(r"scores +400", line) for line in table)
    (row,) = json.loads(run(store, "--half-width", ".08", "--format", "json").stdout)
    assert (row["scores"], row["labels"]) == (400, 80)
    assert row["ci_low"] < row["corrected_mean"] < row["ci_high"]
    assert row["needed"] >= 100
    records = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(records) == 50
    assert all(record["response"] == "because" and "scores" not in record for record in records)
    assert not {record["id"] for record in records} & {f"s{at}" for at in range(0, 400, 5)}


def test_the_command_plans_before_there_is_any_label(tmp_path):
    fill(tmp_path / "store.db", [One(f"s{at}", 0.5, 60.0) for at in range(30)])
    assert run(tmp_path).exit_code == 2
    (row,) = json.loads(run(tmp_path, "--metric", "faithfulness", "--half-width", "0.4", "--format", "json").stdout)
    assert (row["labels"], row["needed"]) == (0, 100)


@pytest.mark.parametrize("arguments", [["--draw", "5"], ["--output", "x.jsonl"], ["--since", "lately"]])
def test_bad_input_is_refused(store, arguments):
    assert run(store, *arguments).exit_code == 2


def test_the_api_shows_labels_of_a_window(store):
    async def scenario():
        opened = SQLiteStore(store / "store.db")
        app = Litestar(label_handlers(opened), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            everything = await client.get("/api/labels", params={"half_width": 0.1})
            other = await client.get("/api/labels", params={"app": "other"})
            wrong = await client.get("/api/labels", params={"half_width": 0})
        await opened.aclose()
        return everything, other, wrong

    everything, other, wrong = asyncio.run(scenario())
    (row,) = everything.json()
    assert (row["metric"], row["labels"], row["half_width"]) == ("faithfulness", 80, 0.1)
    assert row["kappa"]["low"] < row["kappa"]["high"]
    assert (other.json(), wrong.status_code) == ([], 400)


def test_a_store_that_is_told_no_texts_adds_up_where_the_one_behind_it_does(store):
    class Plain(Store):
        """A store that cannot add up."""

        def __init__(self, store):
            self.series, self.ratings = store.series, store.ratings

    class Silent(SQLiteStore):
        """Reads nothing score by score."""

        async def series(self, query):
            raise AssertionError(query)

    async def scenario():
        opened = Silent(store / "store.db")
        reading = SQLiteStore(store / "store.db")
        now = time.time()
        whole = Query(since=now - 86_400.0, until=now)
        some = (
            opened,
            HashingStore(opened, NOBODY, window_s=60.0),
            HashingStore(Plain(reading), NOBODY, window_s=60.0),
        )
        found = [await labelled(one, whole) for one in some]
        for one in (opened, reading):
            await one.aclose()
        return found

    first, *others = asyncio.run(scenario())
    assert [(one.metric, one.scores, one.labels) for one in first] == [("faithfulness", 400, 80)]
    for (other,) in others:
        assert other.corrected_mean == pytest.approx(first[0].corrected_mean)
        assert (other.scores, other.kappa) == (first[0].scores, first[0].kappa)

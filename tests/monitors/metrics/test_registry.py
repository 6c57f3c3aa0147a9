"""Which metrics run under which configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from gaugeway.records import Score
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Metric
from monitors.judges.scripted import Scripted
from monitors.metrics import lower_is_better
from monitors.metrics.registry import build, names, on_by_default

JUDGE = Scripted({}, model="judge-1")
EMBEDDINGS = object()
VERIFIER = SimpleNamespace(model="verifier-1", version="1")
PAGES = Path(__file__).parents[3] / "docs/reference/metrics"


class Tone:
    """A metric of somebody's own."""

    version = "1"

    def __init__(self, words=(), *, name="tone", strict: bool = False):
        self.name, self.words, self.strict = name, words, strict

    async def score(self, sample):
        return Score(1.0)


class Asking(Tone):
    """One that asks the judge."""

    def __init__(self, judge, *, name="asking"):
        super().__init__(name=name)
        self.judge = judge.model


def other_judge():
    return Scripted({}, model="judge-2")


@pytest.fixture
def module(monkeypatch):
    module = ModuleType("somebodys_metrics")
    module.Tone, module.Asking, module.other_judge, module.number = Tone, Asking, other_judge, 3
    monkeypatch.setitem(sys.modules, "somebodys_metrics", module)
    return module.__name__


def rates(catalogue):
    return {one.metric.name: one.rate for one in catalogue.enabled}


def test_without_a_judge_only_the_lexical_metric_runs_and_says_so():
    catalogue = build({}, None, None, "fused")
    assert rates(catalogue) == {"lexical_groundedness": 1.0}
    assert catalogue.notes == ("no judge configured ([judge]): only lexical_groundedness runs",)


@pytest.mark.parametrize("mode", ["fused", "separate"])
def test_with_a_judge_every_built_in_metric_runs_the_asking_ones_on_a_tenth(mode):
    catalogue = build({}, JUDGE, EMBEDDINGS, mode, verifier=VERIFIER)
    free = ("lexical_groundedness", "grounding")
    assert rates(catalogue) == {name: 1.0 if name in free else 0.1 for name in filter(on_by_default, names())}
    assert catalogue.notes == ()
    assert {one.objective for one in catalogue.enabled} == {None}
    assert {one.threshold for one in catalogue.enabled if one.metric.name != "hallucination"} == {0.7}
    assert {one.threshold for one in catalogue.enabled if one.metric.name == "hallucination"} == {0.3}


def test_grounding_needs_a_verifier_and_no_judge():
    assert "grounding" not in rates(build({}, JUDGE, EMBEDDINGS, "fused"))
    assert set(rates(build({}, None, None, verifier=VERIFIER))) == {"grounding", "lexical_groundedness"}
    asked = build({"grounding": Metric()}, JUDGE, None)
    assert "grounding needs a verifier, and none is configured: it does not run" in asked.notes


def test_the_mode_shows_in_the_version():
    versions = [
        next(one.metric.version for one in build({}, JUDGE, None, mode).enabled if one.metric.name == "faithfulness")
        for mode in ("fused", "separate")
    ]
    assert versions[0] != versions[1]


def test_a_table_overrides_and_the_others_stay():
    settings = {"faithfulness": Metric(rate=0.5, threshold=0.9, objective=0.8), "hallucination": Metric(enabled=False)}
    catalogue = build(settings, JUDGE, EMBEDDINGS, "fused")
    assert "hallucination" not in rates(catalogue)
    assert rates(catalogue)["context_relevancy"] == 0.1
    chosen = next(one for one in catalogue.enabled if one.metric.name == "faithfulness")
    assert (chosen.rate, chosen.threshold, chosen.objective) == (0.5, 0.9, 0.8)


def test_a_metric_asked_for_that_cannot_run_is_not_dropped_in_silence():
    catalogue = build({"faithfulness": Metric()}, None, None, "fused")
    assert "faithfulness needs a judge, and none is configured: it does not run" in catalogue.notes
    assert rates(catalogue) == {"lexical_groundedness": 1.0}


def test_without_embeddings_answer_relevancy_goes_by_statements_and_says_so():
    catalogue = build({}, JUDGE, None, "fused")
    assert catalogue.notes == ('answer_relevancy uses method "statements": no [embeddings] configured',)
    chosen = {"answer_relevancy": Metric(options={"method": "statements"})}
    assert build(chosen, JUDGE, None, "fused").notes == ()


def test_options_reach_the_metric():
    plain, lenient = (
        next(
            one.metric.version
            for one in build({"faithfulness": Metric(options=options)}, JUDGE, None, "fused").enabled
            if one.metric.name == "faithfulness"
        )
        for options in ({}, {"contradiction_only": True})
    )
    assert lenient == f"{plain}-contradiction_only"


def test_an_import_string_is_a_metric_too(module):
    settings = {f"{module}:Tone": Metric(options={"words": ["please"], "strict": True})}
    catalogue = build(settings, None, None, "fused")
    tone = catalogue.enabled[-1]
    assert (tone.rate, tone.metric.words, tone.metric.strict) == (1.0, ["please"], True)
    assert catalogue.notes == ("no judge configured ([judge]): only lexical_groundedness and tone run",)


def test_a_metric_that_names_the_judge_is_given_it(module):
    settings = {f"{module}:Asking": Metric()}
    asking = build(settings, JUDGE, None, "fused").enabled[-1]
    assert (asking.rate, asking.metric.judge) == (0.1, "judge-1")
    assert any("Asking needs a judge" in note for note in build(settings, None, None, "fused").notes)


def test_a_metric_may_have_a_judge_of_its_own(module):
    settings = {"faithfulness": Metric(options={"judge": f"{module}:other_judge"}), "hallucination": Metric()}
    judges = {one.metric.name: one.metric.judge for one in build(settings, JUDGE, None, "fused").enabled}
    assert (judges["faithfulness"], judges["hallucination"]) == ("judge-2", "judge-1")
    assert len(build({"faithfulness": Metric(options={"judge": "llm"})}, JUDGE, None, "fused").enabled) == 5


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"faithfullness": {}}, "metrics.faithfullness: unknown metric; did you mean 'faithfulness'?"),
        ({"zzz": {}}, "metrics.zzz: unknown metric; known: answer_relevancy"),
        (
            {"faithfulness": {"contradicton_only": True}},
            "metrics.faithfulness.contradicton_only: unknown option; did you mean 'contradiction_only'?",
        ),
        ({"precision@": {}}, "metrics.precision@: unknown metric; did you mean 'precision@K'?"),
        ({"precision@0": {}}, "metrics.precision@0: unknown metric; did you mean 'precision@K'?"),
        ({"geval:": {}}, "metrics.geval:: unknown metric; did you mean 'geval:NAME'?"),
        ({"recall@5": {"k": 3}}, "metrics.recall@5.k: unknown option; known: enabled, rate, threshold, objective"),
        (
            {"precision@5": {"divide_by": "five"}},
            "metrics.precision@5.divide_by: Invalid enum value 'five'; expected one of ",
        ),
        (
            {"faithfulness": {"treshold": 0.5}},
            "metrics.faithfulness.treshold: unknown option; did you mean 'threshold'?",
        ),
        ({"geval:tone": {"name": "x", "criteria": "c"}}, "metrics.geval:tone.name: unknown option"),
        ({"geval:tone": {"steps_dir": "/tmp", "criteria": "c"}}, "metrics.geval:tone.steps_dir: unknown option"),
        ({"geval:tone": {}}, "metrics.geval:tone: needs criteria, or steps, or both"),
        ({"geval:tone": {"criteria": "c", "scale": [1]}}, "metrics.geval:tone.scale: Expected `array` of length 2"),
        ({"geval:tone": {"criteria": "c", "params": ["answer"]}}, "metrics.geval:tone.params: Invalid enum value"),
        ({"geval:tone": {"criteria": "c", "samples": 0}}, "metrics.geval:tone.samples: Expected `int` >= 1"),
        ({"answer_similarity": {"threshold": 1.5}}, "metrics.answer_similarity.threshold: Expected `float` <= 1.0"),
        (
            {"hallucination": {"x": 1}},
            "metrics.hallucination.x: unknown option; known: history, enabled, rate, threshold, objective",
        ),
        (
            {"faithfulness": {"contradiction_only": "yes"}},
            "metrics.faithfulness.contradiction_only: Expected `bool`, got `str`",
        ),
        (
            {"context_relevancy": {"method": "triple_judge"}},
            "metrics.context_relevancy.method: Invalid enum value 'triple_judge'",
        ),
        ({"hallucination": {"verdicts": 1}}, "metrics.hallucination.verdicts: unknown option"),
        ({"hallucination": {"judge": "nowhere:Judge"}}, "metrics.hallucination.judge: 'nowhere:Judge': no module"),
        ({"nowhere.at.all:Metric": {}}, "metrics.nowhere.at.all:Metric: 'nowhere.at.all:Metric': no module"),
        ({"somebodys_metrics:Missing": {}}, "has no 'Missing'"),
        ({"somebodys_metrics:number": {}}, "is no class or function that makes a metric"),
        ({"somebodys_metrics:Tone": {"tone": 1}}, "metrics.somebodys_metrics:Tone.tone: unknown option"),
        ({"somebodys_metrics:Tone": {"name": "faithfulness"}}, "another metric has the name 'faithfulness' already"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_a_way_out(module, settings, problem):
    tables = {name: Metric(options=options) for name, options in settings.items()}
    with pytest.raises(ConfigError) as caught:
        build(tables, JUDGE, EMBEDDINGS, "fused")
    assert len(caught.value.problems) == 1
    assert problem in caught.value.problems[0]


def test_all_mistakes_are_told_at_once():
    settings = {"faithful": Metric(), "hallucination": Metric(options={"a": 1, "b": 2})}
    with pytest.raises(ConfigError) as caught:
        build(settings, None, None, "fused")
    assert len(caught.value.problems) == 3


def test_what_needs_a_reference_runs_only_where_it_is_asked_for():
    assert all(map(on_by_default, rates(build({}, JUDGE, EMBEDDINGS))))
    ranked = {"precision@5", "recall@5", "hit@1", "ndcg@10", "precision@10"}
    wanted = {*ranked, *(name for name in names() if not on_by_default(name))}
    found = rates(build({name: Metric() for name in wanted}, JUDGE, EMBEDDINGS))
    assert wanted <= found.keys()
    free = {*ranked, "mrr", "asked_again"}
    assert {name: found[name] for name in wanted} == {name: 1.0 if name in free else 0.1 for name in wanted}


def test_retrieval_metrics_run_without_a_judge():
    assert "ndcg@10" in rates(build({"ndcg@10": Metric()}, None, None))


def test_a_geval_goes_by_its_name_and_takes_its_options_from_the_table(tmp_path):
    options = {
        "criteria": "The response is polite.",
        "steps": ["Read it."],
        "params": ["question", "response", "contexts"],
        "scale": [1, 5],
        "rubric": {"1": "rude"},
    }
    settings = {"geval:tone": Metric(options=options), "geval:length": Metric(options={"criteria": "Short."})}
    catalogue = build(settings, JUDGE, EMBEDDINGS, steps_dir=tmp_path)
    assert {"geval:tone": 0.1, "geval:length": 0.1}.items() <= rates(catalogue).items()
    assert any("geval:tone needs a judge" in note for note in build(settings, None, None).notes)


def test_without_embeddings_what_compares_meanings_does_not_run_and_says_so():
    settings = {"answer_similarity": Metric(), "answer_correctness": Metric(), "context_recall": Metric()}
    catalogue = build(settings, JUDGE, None)
    assert not {"answer_similarity", "answer_correctness"} & rates(catalogue).keys()
    for name in ("answer_similarity", "answer_correctness"):
        assert f"{name} needs embeddings, and none are configured: it does not run" in catalogue.notes
    claims_only = {"answer_correctness": Metric(options={"weight": 1.0})}
    assert "answer_correctness" in rates(build(claims_only, JUDGE, None))


def test_metrics_whose_best_value_is_0_have_a_threshold_of_their_own():
    settings = {
        "noise_sensitivity": Metric(),
        "geval:rude": Metric(options={"criteria": "Rudeness.", "lower_is_better": True}),
    }
    found = {one.metric.name: one for one in build(settings, JUDGE, EMBEDDINGS).enabled}
    low = {name for name, one in found.items() if lower_is_better(one.metric)}
    assert low == {"hallucination", "noise_sensitivity", "geval:rude"}
    assert {found[name].threshold for name in low} == {0.3}


@pytest.mark.parametrize("name", [*names(), "geval", "precision", "recall", "hit", "ndcg", "latency"])
def test_every_metric_has_its_page(name):
    page = (PAGES / f"{name}.md").read_text()
    for part in ("## Formula", "## When it misleads", "## Cost", "## Options", "## Outcomes"):
        assert part in page, part
    assert f"({name}.md)" in (PAGES / "README.md").read_text()


def test_the_note_on_a_missing_judge_names_what_else_is_computed():
    assert build({}, None, None, others=("signals",)).notes == (
        "no judge configured ([judge]): only lexical_groundedness and signals run",
    )
    off = {"lexical_groundedness": Metric(enabled=False)}
    assert build(off, None, None, others=("signals",)).notes == (
        "no judge configured ([judge]): no metric runs, only signals",
    )

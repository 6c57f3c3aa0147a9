"""Both answers of an exchange are judged alike, and what is not known is not made up."""

import asyncio
from dataclasses import replace

import pytest

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped, Usage
from monitors.judges.scripted import Scripted
from monitors.metrics.registry import Catalogue, Enabled
from monitors.trials import judging
from monitors.trials.preference import PREFERENCE, Preference
from tests.gaugeway.storage.test_trials import ARM, trial
from tests.support.llm_server import LLMServer
from tests.support.trials import Spoken, arm

HERE = "http://127.0.0.1:9"


class Conversations(Spoken):
    of_conversations = True


class Retrieval(Spoken):
    measures = "retrieval"


class Low(Spoken):
    lower_is_better = True


def catalogue(*metrics):
    return Catalogue(enabled=tuple(Enabled(metric=metric, rate=1.0, threshold=0.5) for metric in metrics))


def sample(response="0.5", **more):
    return Sample(id="x", started_at=1.0, **{"question": "How long?", "response": response, "app": "shop"} | more)


def known(outcome, metric="spoken", version="1", judge="j"):
    return Evaluation(sample_id="x", metric=metric, version=version, judge=judge, outcome=outcome, cost_usd=9.0)


async def judged(metric, *evaluations, about=None, live="0.5", candidate="0.75", preference=None):
    about = about or trial(primary="spoken")
    judges = ({metric.name: metric}, preference)
    return await judging.judge(about, judges, (sample(live), evaluations), sample(candidate), timeout_s=5.0)


async def test_a_live_score_is_used_again_and_paid_once():
    metric = Spoken(usd=0.25)
    found = await judged(metric, known(Score(0.125)))
    assert (found.scores, found.usd, metric.scored) == ({"spoken": (0.125, 0.75)}, 0.25, {"trial:t": 1})


@pytest.mark.parametrize(
    "stored",
    [
        known(Score(0.1), version="2"),
        known(Score(0.1), judge="other"),
        known(Score(0.1), metric="x"),
        known(Failed("unreadable")),
        known(Skipped("budget")),
    ],
)
async def test_a_live_answer_is_judged_anew_where_its_score_is_of_something_else_or_none(stored):
    metric = Spoken(usd=0.25)
    found = await judged(metric, stored)
    assert (found.scores, found.usd, metric.scored) == ({"spoken": (0.5, 0.75)}, 0.5, {"trial:t": 2})


@pytest.mark.parametrize(("live", "candidate"), [("unscored", "0.5"), ("0.5", "unscored"), ("unscored", "unscored")])
async def test_without_both_scores_there_is_no_pair_but_a_reason(live, candidate):
    found = await judged(Spoken(), live=live, candidate=candidate)
    assert (found.scores, found.unscored) == ({}, {"spoken": "unreadable"})


def by_number(prompt):
    return {"reason": "", "better": "first" if prompt.user.index("0.75") < prompt.user.index("0.5") else "second"}


async def test_a_preference_is_a_pair_with_equality():
    about = trial(primary=PREFERENCE)
    found = await judged(Spoken(), about=about, preference=Preference(Scripted(by_number)))
    assert found.scores == {"spoken": (0.5, 0.75), PREFERENCE: (0.5, 1.0)}
    failed = await judged(Spoken(), about=about, preference=Preference(Scripted({})))
    assert failed.unscored == {PREFERENCE: "bad_request"}
    unasked = await judged(Spoken(), preference=Preference(Scripted({})))
    assert unasked.unscored == {}


def test_the_metrics_are_those_named_or_all_that_judge_answers():
    free, low = Spoken("free", judge=None), Low("low")
    every = catalogue(Spoken(), low, free, Conversations("talks"), Retrieval("passages"))
    assert set(judging.metrics_of(trial(primary="spoken", metrics=("free",)), every)) == {"spoken", "free"}
    assert set(judging.metrics_of(trial(primary="spoken"), every)) == {"spoken", "low"}
    assert set(judging.metrics_of(trial(primary="free"), every)) == {"spoken", "low", "free"}
    fewer = trial(primary="spoken", arms=(arm(HERE, max_contexts=1),))
    assert set(judging.metrics_of(fewer, every)) == {"spoken", "low", "passages"}
    falls = judging.falls_of(every)
    assert [falls(name) for name in ("low", "spoken", "unheard_of")] == [True, False, False]


def test_what_cannot_be_judged_is_said_with_its_field():
    every = catalogue(Spoken(), Conversations("talks"))
    assert judging.problems_of(trial(primary="spoken"), every, has_judge=False) == []
    wrong = trial(primary=PREFERENCE, metrics=("talks", "spoken"))
    said = judging.problems_of(wrong, every, has_judge=False)
    assert [problem.partition(":")[0] for problem in said] == ["primary", "metrics"]
    assert "there are spoken" in said[0]
    assert len(judging.problems_of(wrong, every, has_judge=True)) == 1


def facts(live, candidate, body=None, why=None):
    return judging.facts_of(live, candidate, body or {}, why)


def test_what_needs_no_judge_is_compared():
    usage = Usage(input_tokens=10, output_tokens=5)
    live = sample(
        duration_s=2.0, usage=usage, cost_usd=0.1, tags={f"t{n}": "v" for n in range(9)}, cluster="c", rate=0.5
    )
    made = facts(replace(live, contexts=(Context(text="a", source="a.md"),)), sample("I don't know.", duration_s=1.0))
    assert made["scores"] == {"answered": (1.0, 1.0), "abstention": (0.0, 1.0)}
    assert made["numbers"] == {"seconds": (2.0, 1.0)}
    assert made["facets"].pop("language") in ("en", "unknown")
    assert made["facets"] == {"source": "a.md"} | {f"tag:t{n}": "v" for n in range(5)}
    assert (made["cluster"], made["rate"]) == ("c", 0.5)
    both = facts(live, replace(live, usage=Usage(input_tokens=20, output_tokens=1), cost_usd=0.0))
    assert both["numbers"]["input_tokens"] == (10, 20)
    assert both["numbers"]["usd"] == (0.1, 0.0)


def test_no_answer_has_nothing_to_compare():
    made = facts(sample(), sample(""), why="refusal")
    assert made["scores"] == {"answered": (1.0, 0.0)}


SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
CHAT_FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}
RESPONSES_FORM = {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}


@pytest.mark.parametrize("body", [CHAT_FORM, RESPONSES_FORM])
@pytest.mark.parametrize(("answer", "fits"), [('{"a": 1}', 1.0), ('{"a": "1"}', 0.0), ("{}", 0.0), ("So.", 0.0)])
def test_an_answer_fits_the_schema_or_not(body, answer, fits):
    assert facts(sample('{"a": 7}'), sample(answer), body)["scores"]["format"] == (1.0, fits)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "verbose"},
        {"text": None},
        {"response_format": "json"},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": 7}},
    ],
)
def test_without_a_schema_no_form_is_compared(body):
    assert "format" not in facts(sample(), sample(), body)["scores"]


async def test_a_schema_that_a_client_sent_fetches_nothing():
    with LLMServer(lists_models=True) as server:
        schema = {"$ref": f"{server.url}/schema.json"}
        body = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
        made = await asyncio.to_thread(facts, sample("{}"), sample("{}"), body)
        assert ("format" in made["scores"], server.requests) == (False, [])


def test_a_candidates_score_is_stored_under_its_own_name_with_the_answer():
    made = known(Score(0.5, "so", ({"a": 1},)))
    stored = judging.labelled(replace(made, sample_id="other"), trial(), "candidate", sample(), {"answer": "So."})
    assert (stored.metric, stored.sample_id) == ("spoken~trial:t.candidate", "x")
    assert stored.outcome == Score(0.5, "so", ({"a": 1}, {"answer": "So."}))
    failed = judging.labelled(known(Failed("unreadable")), trial(), "candidate", sample(), {})
    assert failed.outcome == Failed("unreadable")


def test_a_result_holds_every_metric_from_the_start_and_pairs_in_their_order():
    given = [
        (f"x{n}", float(n), {"scores": {"spoken": (0.5, 0.5)}, "numbers": {"seconds": (1.0, 2.0)}}) for n in range(3)
    ]
    result = judging.result_of(trial(primary="spoken", metrics=("other",), arms=(ARM,)), given, lambda _: False)
    rows = {row.metric: row for row in result.metrics}
    assert set(rows) >= {"spoken", "other", "answered", "abstention", "format", "seconds", "usd"}
    assert (rows["spoken"].role, rows["spoken"].n, rows["other"].n, rows["seconds"].n) == ("primary", 3, 0, 3)

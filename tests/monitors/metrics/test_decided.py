"""Metrics by decisions: one request an exchange, the LLM's meaning and range, refusals, verdicts, and two tiers."""

from __future__ import annotations

import asyncio
import json
import random
from statistics import fmean

import pytest
from prometheus_client import CollectorRegistry

from gaugeway.records import Context, Message, Sample, Score, Skipped
from gaugeway.settings import ConfigError
from gaugeway.settings import shared as config
from monitors.evaluation.evaluator import evaluate, is_judged
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges import JudgeError
from monitors.metrics import lower_is_better
from monitors.metrics.registry import build, zero_is_best
from tests.support.decision_server import DecisionServer, llm_verbatim, texts_in, verbatim
from tests.support.llm_server import LLMServer, Reply

RUBRIC = {"criteria": "Is the response polite?", "rubric": {"1": "rude", "5": "warm"}}
SAMPLE = Sample(
    id="1",
    started_at=0.0,
    question="How long do lamps last?",
    response="The lamp lasts 9 hours. It is not red. Is that enough? Rain is fine.",
    contexts=(Context(text="The lamp lasts 9 hours. How long: 9."), Context(text="Birds sing. Rain is fine.")),
)


def judging(server, *, anchor=None, paced=True, **settings):
    """The judge of a configuration whose decisions are `server`, and whose LLM is `anchor`."""
    llm = None if anchor is None else config.Endpoint(base_url=anchor.url, model="gpt-5")
    table = {"kind": "decisions", "max_retries": 0, "model": "gpt-6-luna", "anchor": llm, "price_in": 0.1, **settings}
    return open_judge(
        config.Judge(base_url=server.url, **table), Instruments(CollectorRegistry(), version=""), paced=paced
    )


def metrics_of(setup, **tables):
    enabled = {name.replace("__", ":"): config.Metric(options=options) for name, options in tables.items()}
    return build(enabled, setup.judge, None)


def score(setup, catalogue, sample, *names):
    """Score one sample by these metrics side by side; the outcome, or the JudgeError, of each."""

    async def run():
        wanted = [catalogue.by_name[name] for name in names]
        found = await asyncio.gather(*(metric.score(sample) for metric in wanted), return_exceptions=True)
        await setup.judge.aclose()
        return found

    return asyncio.run(run())


def by_decisions(decide, sample, *names, settings=None, **tables):
    with DecisionServer(decide) as server:
        setup = judging(server, **settings or {})
        found = score(setup, metrics_of(setup, **tables), sample, *names)
    return found, server.requests


def chances(**given):
    """Decide by the names of questions; what is not given as `verbatim` does."""
    return lambda name, options, texts: given[name] if name in given else verbatim(name, options, texts)


FOUR = ("faithfulness", "hallucination", "answer_relevancy", "context_relevancy")


@pytest.mark.parametrize("kind", ["decisions", "systemone"])
def test_metrics_share_one_request_about_an_exchange(kind):
    names = (*FOUR, "geval:polite", "context_utilization")
    tables = {"geval__polite": RUBRIC, "context_utilization": {}}
    found, requests = by_decisions(verbatim, SAMPLE, *names, settings={"kind": kind}, **tables)
    assert len(requests) == 1
    values = [outcome.value for outcome in found]
    assert values == pytest.approx([2 / 3, 0.5, 1.0, 0.5, 1.0, 1.0])


def test_a_question_in_the_response_claims_nothing_and_the_model_sees_it():
    _, (request,) = by_decisions(verbatim, SAMPLE, "faithfulness")
    asked = [question["name"] for question in request.body["questions"]]
    assert [name for name in asked if name[1:].isdigit()] == ["s0", "s1", "s3"]
    texts = texts_in(request.body["input"][1]["content"])
    assert texts["sentence"][2] == "Is that enough?"
    assert texts["context"][1] == "Birds sing. Rain is fine."


def test_a_score_is_the_mean_probability_and_its_evidence_shows_sentence_and_probability():
    support = {"supported": 0.7, "contradicted": 0.1, "not_mentioned": 0.2}
    against = {"supported": 0.2, "contradicted": 0.5, "not_mentioned": 0.3}
    (found,), _ = by_decisions(chances(s0=support, s1=against, s3=support), SAMPLE, "faithfulness")
    assert found.value == pytest.approx(fmean([0.7, 0.2, 0.7]))
    first, second, _ = found.evidence
    assert (first["claim"], first["probability"], first["verdict"]) == ("The lamp lasts 9 hours.", 0.7, "supported")
    assert SAMPLE.response[second["start"] : second["end"]] == second["claim"] == "It is not red."
    assert (second["probabilities"], second["verdict"]) == (against, "contradicted")


def test_passages_show_their_probability_and_relevancy_is_their_mean():
    (relevancy, contradicted), _ = by_decisions(
        chances(relevant0=0.9, relevant1=0.4, contradicted0=0.25), SAMPLE, "context_relevancy", "hallucination"
    )
    assert (relevancy.value, contradicted.value) == pytest.approx((0.65, 0.125))
    assert [(piece["context"], piece["ratio"]) for piece in relevancy.evidence] == [(0, 0.9), (1, 0.4)]
    assert contradicted.evidence[0] == {"context": 0, "probability": 0.25}


def test_an_answer_that_declines_is_not_relevant():
    (found,), _ = by_decisions(chances(addresses=0.9, commits=0.5), SAMPLE, "answer_relevancy")
    assert found.value == pytest.approx(0.45)


def test_a_rubric_is_asked_as_a_scale_with_its_meanings():
    levels = {"1": 0.0, "2": 0.0, "3": 0.5, "4": 0.0, "5": 0.5}
    (found,), (request,) = by_decisions(
        lambda name, *rest: levels if name == "geval:polite" else verbatim(name, *rest),
        SAMPLE,
        "geval:polite",
        geval__polite=RUBRIC,
    )
    assert found.value == pytest.approx(0.75)
    (question,) = (each for each in request.body["questions"] if each["type"] == "score")
    assert question["levels"][0] == {"label": "1", "description": "rude"}
    assert "Is the response polite?" in question["instructions"]


def test_a_conversation_is_asked_about_as_a_whole():
    transcript = (Message(role="user", text="How?"), Message(role="assistant", text="No idea."))
    sample = Sample(id="2", started_at=0.0, transcript=transcript)
    goal = {"met": 0.2, "partly_met": 0.4, "not_met": 0.4}
    found, (request,) = by_decisions(
        chances(goal=goal, gave_up=0.8), sample, "goal_met", "gave_up", "faithfulness", goal_met={}, gave_up={}
    )
    assert [outcome.value for outcome in found[:2]] == pytest.approx([0.4, 0.8])
    assert found[2] == Skipped("no_response")
    assert [question["name"] for question in request.body["questions"]] == ["goal", "gave_up"]


@pytest.mark.parametrize(("refused", "scored"), [((), 2 / 3), (("s1",), 1.0), (("s1", "s3"), None)])
def test_a_refused_sentence_is_left_out_until_too_few_are_left(refused, scored):
    (found, other), _ = by_decisions(
        lambda name, *rest: None if name in refused else verbatim(name, *rest),
        SAMPLE,
        "faithfulness",
        "context_relevancy",
    )
    assert other.value == 0.5, "other metrics of the same request have their answers"
    if scored is None:
        assert isinstance(found, JudgeError)
        assert (found.kind, found.detail) == ("refused", "2 of 3 questions were not answered")
    else:
        assert found.value == pytest.approx(scored)
        assert ("1 of 3 not answered" in found.reason) == (len(refused) == 1)


@pytest.mark.parametrize(
    ("supported", "options", "value"),
    [
        (0.66, {}, 1.0),
        (0.64, {}, 0.0),
        (0.36, {"contradiction_only": True}, 1.0),
        (0.34, {"contradiction_only": True}, 0.0),
    ],
)
def test_thresholds_turn_probabilities_into_verdicts(supported, options, value):
    answer = {"supported": supported, "contradicted": 1.0 - supported, "not_mentioned": 0.0}
    decide = chances(s0=answer, s1=answer, s3=answer, relevant0=0.5, relevant1=0.49)
    names = ("faithfulness", "context_relevancy")
    found, _ = by_decisions(decide, SAMPLE, *names, settings={"mode": "verdicts"}, faithfulness=options)
    assert [outcome.value for outcome in found] == [value, 0.5]


def test_a_long_response_is_asked_about_in_several_requests_and_a_longer_one_is_skipped():
    long = SAMPLE.response[:23] + " It is red." * 450
    (found,), requests = by_decisions(verbatim, Sample(**{**fields(SAMPLE), "response": long}), "faithfulness")
    assert [len(request.body["questions"]) for request in requests] == [400, 57]
    assert found.value == pytest.approx(1 / 451)
    (found,), requests = by_decisions(
        verbatim, Sample(**{**fields(SAMPLE), "response": "It is red. " * 1001}), "faithfulness"
    )
    assert (found, requests) == (Skipped("too_long"), [])


def fields(sample):
    return {"id": sample.id, "started_at": 0.0, "question": sample.question, "contexts": sample.contexts}


def test_nothing_is_asked_about_a_sample_without_texts():
    found, requests = by_decisions(verbatim, Sample(id="1", started_at=0.0), *FOUR)
    assert found == [Skipped("no_response"), Skipped("no_response"), Skipped("no_response"), Skipped("no_question")]
    assert requests == []


def test_what_cannot_be_asked_is_named_with_the_setting_that_would_compute_it():
    with DecisionServer() as server:
        catalogue = metrics_of(judging(server), noise_sensitivity={})
        assert "noise_sensitivity" not in catalogue.by_name
        (note,) = catalogue.notes
        assert note.startswith("noise_sensitivity cannot be asked")
        assert all(setting in note for setting in ("judge.kind", "[judge.anchor]"))
        with_anchor = metrics_of(judging(server, anchor=server), noise_sensitivity={})
        assert with_anchor.by_name["noise_sensitivity"].judge == "gpt-5"


def test_a_wrong_rubric_is_a_problem_of_the_configuration():
    with DecisionServer() as server, pytest.raises(ConfigError, match="needs criteria"):
        metrics_of(judging(server), geval__empty={"criteria": ""})


def test_the_version_names_the_api_the_criterion_and_the_verdicts():
    with DecisionServer() as server:
        versions = [
            metrics_of(judging(server, **settings), geval__polite=options).by_name[name].version
            for settings, options, name in [
                ({}, RUBRIC, "faithfulness"),
                ({"kind": "systemone"}, RUBRIC, "faithfulness"),
                ({"mode": "verdicts"}, RUBRIC, "faithfulness"),
                ({}, RUBRIC, "geval:polite"),
                ({}, {"criteria": "Is it short?"}, "geval:polite"),
            ]
        ]
    assert len(set(versions)) == len(versions)


def exchanges(count):
    """Draw answers whose truth is known: each sentence stands in a passage, is denied by it, or is not in it."""
    rng = random.Random(42)
    for number in range(count):
        key = rng.choice(["lamps", "bikes", "tents"])
        facts = [
            f"Item {number}-{place} of the {key} weighs {rng.randint(2, 9)} kg." for place in range(rng.randint(2, 5))
        ]
        kept = [fact for fact in facts if rng.random() < 0.7]
        denied = rng.random() < 0.3
        sentences = [*facts[:-1], facts[-1].replace("weighs", "does not weigh")] if denied else facts
        passages = (
            Context(text=" ".join(kept) or "Nothing."),
            Context(text=f"About {rng.choice(['lamps', 'birds'])}."),
        )
        yield Sample(
            id=str(number),
            started_at=0.0,
            question=f"What do you know of {key}?",
            response=" ".join(sentences),
            contexts=passages,
        )


def test_means_equal_those_of_an_llm_judge_that_sees_the_same_truth():
    means = []
    with DecisionServer() as decisions, LLMServer(llm_verbatim) as server:
        for setup in (judging(decisions), judging(server, kind="llm")):
            catalogue = build({}, setup.judge, None)

            async def run(setup=setup, catalogue=catalogue):
                rows = [[await catalogue.by_name[name].score(sample) for name in FOUR] for sample in exchanges(60)]
                await setup.judge.aclose()
                return rows

            rows = asyncio.run(run())
            means.append([fmean(row[place].value for row in rows) for place in range(len(FOUR))])
    assert means[0] == pytest.approx(means[1])
    assert 0.4 < means[0][0] < 0.9, "the truths differ"
    assert len(decisions.requests) == 60
    assert len(server.requests) == 120


def test_with_an_anchor_decisions_judge_all_traffic_and_the_llm_a_sample_of_it():
    with DecisionServer() as decisions, LLMServer(llm_verbatim) as server:
        setup = judging(decisions, anchor=server)
        catalogue = build({"hallucination": config.Metric(rate=0.05, objective=0.9)}, setup.judge, None)
        enabled = {each.metric.name: each for each in catalogue.enabled}
        names = ["faithfulness", "faithfulness~anchor", "faithfulness~disagreement"]
        decided, anchor, apart = score(setup, catalogue, SAMPLE, *names)
    rates = {name: (each.rate, each.objective) for name, each in enabled.items() if name.startswith("hallucination")}
    assert rates == {
        "hallucination": (1.0, 0.9),
        "hallucination~anchor": (0.05, None),
        "hallucination~disagreement": (0.05, None),
    }
    assert [enabled[name].metric.judge for name in names] == ["gpt-6-luna", "gpt-5", "gpt-5"]
    assert all(is_judged(enabled[name].metric) for name in names)
    assert apart.value == pytest.approx((decided.value - anchor.value + 1.0) / 2.0)
    assert (len(decisions.requests), len(server.requests)) == (1, 1), "both tiers' answers are shared"
    assert lower_is_better(enabled["hallucination~anchor"].metric)
    assert zero_is_best("hallucination~anchor")
    assert not lower_is_better(enabled["hallucination~disagreement"].metric)
    assert not zero_is_best("hallucination~disagreement")


def test_a_sample_that_one_judge_did_not_score_has_no_disagreement():
    with DecisionServer() as decisions, LLMServer(Reply(content={"noncommittal": False, "claims": []})) as server:
        setup = judging(decisions, anchor=server)
        (found,) = score(setup, build({}, setup.judge, None), SAMPLE, "faithfulness~disagreement")
    assert found == Skipped("one_judge_only")


def test_a_data_set_is_judged_by_one_tier():
    with DecisionServer() as server:
        catalogue = build({}, judging(server, anchor=server, paced=False).judge, None)
    assert not any("~" in name for name in catalogue.by_name)


def test_each_metric_is_charged_for_its_own_calls_and_the_shared_request_once():
    with DecisionServer(tokens=(2000, 10, 0)) as server:
        setup = judging(server)
        catalogue = build({}, setup.judge, None)

        async def run():
            found = await asyncio.gather(
                *(evaluate(catalogue.by_name[name], SAMPLE, rate=1.0, clock=lambda: 0.0) for name in FOUR)
            )
            await setup.judge.aclose()
            return found

        found = asyncio.run(run())
    assert all(isinstance(evaluation.outcome, Score) for evaluation in found)
    assert sum(evaluation.cost_usd for evaluation in found) == pytest.approx(2000 * 0.1 / 1e6)
    assert json.dumps([evaluation.outcome.evidence for evaluation in found])

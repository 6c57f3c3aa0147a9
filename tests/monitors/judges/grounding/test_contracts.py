"""Every kind of verifier against a server that speaks its published contract."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gaugeway.records import Score, Skipped
from tests.support.grounding import ALSO_TRUE, FALSE, KINDS, PASSAGES, TRUE, Opened, run, sample, table
from tests.support.llm_server import LLMServer, Reply
from tests.support.verifier_server import HIGH, LOW, VerifierServer

SURE = {
    "lettucedetect chat": (1.0, 0.0),
    "lettucedetect spans": (1.0, 1.0 - HIGH),
    "lettucedetect tokens": (1.0 - LOW, 1.0 - HIGH),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_sentence_gets_its_support_and_the_answer_the_mean(name):
    supported, unsupported = SURE.get(name, (HIGH, LOW))
    with VerifierServer() as server:
        (found,) = run(Opened(table(name, server.url)), sample(f"{TRUE} {FALSE} {ALSO_TRUE} Shall I go on?"))
    score = found.outcome
    assert isinstance(score, Score), score
    assert score.value == pytest.approx((2 * supported + unsupported) / 3)
    assert [one["claim"] for one in score.evidence] == [TRUE, FALSE, ALSO_TRUE]
    assert [one["score"] for one in score.evidence] == pytest.approx([supported, unsupported, supported])
    assert [one["verdict"] == "supported" for one in score.evidence] == [True, False, True]
    assert score.reason.startswith("2 of 3 sentences are supported")
    assert found.judge == KINDS[name][1].get("model", KINDS[name][1]["kind"])


@pytest.mark.parametrize("name", [one for one in KINDS if one.startswith("lettucedetect")])
def test_the_unsupported_spans_are_places_in_the_answer(name):
    answer = f"{TRUE} {FALSE}"
    with VerifierServer() as server:
        (found,) = run(Opened(table(name, server.url)), sample(answer))
    good, bad = found.outcome.evidence
    assert not good["spans"]
    assert {answer[one["start"] : one["end"]] == one["text"] for one in bad["spans"]} == {True}
    assert " ".join(one["text"].strip() for one in bad["spans"])[:6] == FALSE[:6]
    assert bad["verdict"] == ("contradicted" if name == "lettucedetect chat" else "not_mentioned")
    types = {(one.get("category"), one.get("subcategory")) for one in bad["spans"]}
    assert types == {("contradiction", "numerical") if name == "lettucedetect chat" else (None, None)}


def test_types_that_a_server_adds_to_its_spans_are_in_the_evidence():
    """What `HallucinationDetector(..., taxonomy_head=...).predict(..., output_format="spans")` of 0.2.3 returns."""
    typed = {"category": "fabricated_reference", "subcategory": "entity"}

    def answer(request):
        at = request.body["answer"].index(FALSE)
        span = {"start": at, "end": at + len(FALSE), "text": FALSE, "hallucination_score": 0.9, **typed}
        return Reply(body=json.dumps({"predictions": [span]}).encode())

    with LLMServer(answer, api_path="") as server:
        (found,) = run(Opened(table("lettucedetect spans", server.url)), sample(f"{TRUE} {FALSE}"))
    (span,) = found.outcome.evidence[1]["spans"]
    assert {key: span[key] for key in typed} == typed
    assert found.outcome.evidence[1]["verdict"] == "not_mentioned"


def test_the_requests_are_those_of_the_contracts():
    bodies = {}
    for name in KINDS:
        with VerifierServer() as server:
            run(Opened(table(name, server.url, api_key="key-123")), sample(TRUE))
        (request,) = server.requests
        bodies[name] = request.body
        assert request.headers["authorization"] == "Bearer key-123"
    document = "\n".join(PASSAGES)
    assert bodies["classify predict"] == {"inputs": [[document, TRUE]], "raw_scores": False, "truncate": False}
    assert bodies["classify classify"]["input"] == [
        f"<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {document}\n\nHypothesis: {TRUE}"
    ]
    asked = {"contexts": list(PASSAGES), "question": "Who built the mill?", "answer": TRUE}
    assert bodies["lettucedetect spans"] == bodies["lettucedetect tokens"] == asked
    system, user = (one["content"] for one in bodies["minicheck"]["messages"])
    assert system.endswith('by responding with either "Yes" or "No".')
    assert user == f"Document: {document}\nClaim: {TRUE}"
    assert bodies["minicheck"]["logprobs"] is True
    system, user = (one["content"] for one in bodies["lettucedetect chat"]["messages"])
    assert system.endswith('If nothing is unsupported, reply {"hallucinated_spans": []}.')
    assert user.startswith("Briefly answer the following question:\nWho built the mill?\nBear in mind that ")
    assert f"following 2 passages:\npassage 1: {PASSAGES[0]}\npassage 2: {PASSAGES[1]}\nIn case" in user
    assert user.endswith(f"\noutput:\n\nAnswer to verify:\n{TRUE}")


def test_pairs_that_wait_together_are_one_request_and_none_is_too_large():
    answers = [
        sample(f"{TRUE} {FALSE} {ALSO_TRUE}", id=str(one), passages=(f"{PASSAGES[0]} {one}",)) for one in range(25)
    ]
    with VerifierServer() as server:
        found = run(Opened(table("classify predict", server.url, batch_size=32)), *answers)
    assert all(isinstance(one.outcome, Score) for one in found)
    sizes = [len(request.body["inputs"]) for request in server.requests]
    assert sum(sizes) == 75
    assert max(sizes) <= 32
    assert len(sizes) <= 4


def test_apps_are_not_mixed_in_a_batch_and_each_pays_for_its_own():
    answers = [sample(id=str(one), app=("shop", "bank")[one % 2], passages=(f"{TRUE} {one}",)) for one in range(10)]
    opened = None
    with VerifierServer() as server:
        opened = Opened(table("classify predict", server.url, price_in=2.0))
        found = run(opened, *answers)
    assert [len(request.body["inputs"]) for request in server.requests] == [10, 10]
    for app in ("shop", "bank"):
        assert opened.count("evaluation_tokens_total", app=app, metric="grounding", type="input") == 1000
        assert opened.count("evaluation_cost_usd_total", app=app, metric="grounding") == pytest.approx(0.002)
    assert sum(one.cost_usd for one in found) == pytest.approx(0.004)
    assert opened.count("judge_cost_usd_total", judge_model="classify") == pytest.approx(0.004)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_known_is_not_asked_again(name):
    with VerifierServer() as server:
        opened = Opened(table(name, server.url))
        first, again = run(opened, sample(id="1"), sample(id="2"), at_once=False)
        assert first.outcome == again.outcome
        asked = len(server.requests)
    model = opened.verifier.model
    assert opened.count("judge_cache_lookups_total", judge_model=model, result="hit") >= 1
    with VerifierServer() as other:
        run(Opened(table(name, other.url)), sample(id="1"))
        assert len(other.requests) == asked


def test_the_answers_outlive_the_process_in_the_file_of_the_judge(tmp_path):
    with VerifierServer() as server:
        keys = table("classify predict", server.url)
        (first,) = run(Opened(keys, cache="file", answers=tmp_path / "answers.db"), sample())
        (again,) = run(Opened(keys, cache="file", answers=tmp_path / "answers.db"), sample())
        assert first.outcome == again.outcome
        assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["classify predict", "minicheck"])
def test_a_document_that_is_too_long_is_cut_in_half_and_the_better_half_counts(name):
    passages = tuple(f"{'word ' * 200}end {one}." for one in range(3)) + PASSAGES
    with VerifierServer() as server:
        keys = {"max_document_chars": 50_000} if name == "classify predict" else {"max_document_chars": 1_200}
        (found,) = run(Opened(table(name, server.url, **keys)), sample(passages=passages))
    assert found.outcome.value == pytest.approx((HIGH + LOW) / 2)
    assert len(server.requests) > 1


def test_questions_alone_missing_texts_and_too_many_sentences_are_skipped():
    many = " ".join(f"This is sentence number {one}." for one in range(201))
    with VerifierServer() as server:
        found = run(
            Opened(table("classify predict", server.url)),
            sample("Shall I go on with that?"),
            sample(""),
            sample(passages=()),
            sample(many),
            sample("x" * 60_001),
            replace(sample(), skip_reason="tool_call"),
        )
        assert not server.requests
    assert [one.outcome for one in found] == [
        Skipped("no_claims"),
        Skipped("no_response"),
        Skipped("no_contexts"),
        Skipped("too_long"),
        Skipped("too_long"),
        Skipped("tool_call"),
    ]


@pytest.mark.parametrize(
    ("labels", "label", "right"),
    [
        (("LABEL_0", "LABEL_1"), None, True),
        (("not_entailment", "entailment"), None, True),
        (("bad", "good"), "good", True),
        (("bad", "good"), None, False),
        (("bad", "good"), "fine", False),
    ],
)
def test_the_label_that_means_supported_is_known_or_named(labels, label, right):
    with VerifierServer(labels) as server:
        (found,) = run(Opened(table("classify predict", server.url, label=label)), sample())
    if right:
        assert found.outcome.value == pytest.approx((HIGH + LOW) / 2)
    else:
        assert found.outcome.error == "unreadable"
        assert "judge.grounding.label" in found.outcome.detail


def test_half_a_surrogate_pair_is_sent_as_a_question_mark():
    answer = f"{TRUE} \ud800 stands here alone."
    with VerifierServer() as server:
        for name in KINDS:
            (found,) = run(Opened(table(name, server.url)), sample(answer))
            assert isinstance(found.outcome, Score), (name, found.outcome)
    assert "\\ud800" not in json.dumps([request.body for request in server.requests])

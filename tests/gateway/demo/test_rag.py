"""The demo's RAG app: its retrieval is real, and a wrong rebuild of its index breaks the answers."""

from __future__ import annotations

import asyncio
import io
import socket
from statistics import mean

import pytest
from click.testing import CliRunner
from rich.console import Console

from gateway.cli.main import MIN_DEMO_S, main
from gateway.contexts.templates import TemplateExtractor
from gateway.demo import model_answer as answering
from gateway.demo import model_judge as judging
from gateway.demo import model_text as texts
from gateway.demo import rag, run, servers, view
from gateway.demo.model import Model, serving
from gateway.exchange import Request, Response


def answer_all(index):
    """Answer every question without HTTP; return the judge's mean faithfulness and context relevancy."""
    faithfulness, relevancy = [], []
    for one in rag.questions():
        passages = [document.text for document in index.search(one.question)]
        prompt = rag.PROMPT.format(question=one.question, context="\n\n".join(passages))
        response = answering.answer(answering.read([("user", prompt)]), slips=True)
        verdicts = [judging.verdict(claim, dict(enumerate(passages))) for claim in judging.claims_of(response)]
        faithfulness.append(mean(found.kind == "supported" for found in verdicts))
        statements = [sentence for passage in passages for sentence in texts.sentences(passage)]
        relevancy.append(mean(texts.about(one.question, sentence) >= judging.RELEVANT for sentence in statements))
    return mean(faithfulness), mean(relevancy)


def test_the_handbook_is_whole_and_every_question_has_its_document():
    documents, questions = rag.handbook(), rag.questions()
    ids = {document.id for document in documents}
    assert len(ids) == len(documents) >= 30
    assert len({one.question for one in questions}) == len(questions) >= 45
    assert {one.document for one in questions} <= ids
    assert all(3 <= len(texts.sentences(document.text)) <= 5 for document in documents)
    assert not any("\n" in document.text for document in documents)


def test_retrieval_finds_the_right_document_for_nine_questions_in_ten():
    index = rag.Index(rag.handbook())
    hits = [one.document in [found.id for found in index.search(one.question)] for one in rag.questions()]
    assert mean(hits) >= 0.9


def test_a_wrong_rebuild_finds_wrong_documents():
    index = rag.Index(rag.handbook())
    index.rebuild_wrongly()
    hits = [one.document in [found.id for found in index.search(one.question)] for one in rag.questions()]
    assert mean(hits) <= 0.1


def test_answers_are_faithful_with_the_right_index_and_invented_with_the_wrong_one():
    index = rag.Index(rag.handbook())
    healthy = answer_all(index)
    index.rebuild_wrongly()
    broken = answer_all(index)
    assert healthy[0] >= 0.9
    assert broken[0] <= 0.3
    assert broken[1] < healthy[1] / 3


def test_the_gateway_recognises_the_prompt_and_its_passages():
    index = rag.Index(rag.handbook())
    passages = [document.text for document in index.search("Why does Mars look red?")]
    prompt = rag.PROMPT.format(question="Why does Mars look red?", context="\n\n".join(passages))
    request = Request(route="chat_completions", headers={}, body={"messages": [{"role": "user", "content": prompt}]})
    found = TemplateExtractor().extract(request, Response(status=200, body={}))
    assert found is not None
    assert (found.source, found.question) == ("langchain", "Why does Mars look red?")
    assert [context.text for context in found.contexts] == passages


def test_the_app_asks_over_http_and_streams_every_other_answer():
    model = Model()

    async def ask():
        async with serving(model) as base_url:
            app = rag.RagApp(rag.Index(rag.handbook()), base_url)
            try:
                return [await app.ask("Why does Mars look red?") for _ in range(2)]
            finally:
                await app.aclose()

    whole, streamed = asyncio.run(ask())
    assert (whole.streamed, streamed.streamed) == (False, True)
    assert whole.text == streamed.text
    assert "rust" in whole.text
    assert [entry.header("x-gaugeway-app") for entry in model.log] == ["handbook", "handbook"]


def test_free_ports_are_all_different():
    assert len(set(servers.free_ports(5))) == 5


ALERT = {
    "status": "firing",
    "labels": {"alertname": run.ALERT, "metric": run.METRIC, "rule": "r", "severity": "page"},
    "annotations": {"summary": "It fell.", "likely_cause": "retrieval", "onset": "2026-01-01T00:00:02Z"},
}


def test_the_receiver_wakes_up_for_the_right_alert_only():
    other = {**ALERT, "labels": {**ALERT["labels"], "metric": "hallucination"}}

    async def post():
        from httpx import AsyncClient

        receiver = run.Receiver()
        async with servers.in_loop(receiver) as address, AsyncClient(trust_env=False) as client:
            await client.post(address, json={"alerts": [other, {**ALERT, "status": "resolved"}]})
            before = receiver.fired.is_set()
            await client.post(address, content=b"no json")
            await client.post(address, json={"alerts": [ALERT]})
            return before, receiver.fired.is_set(), receiver.firing()

    assert asyncio.run(post()) == (False, True, ALERT)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_view_shows_scores_alert_and_worst_answers(terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, no_color=False, _environ={"TERM": "xterm-256color"})
    progress = view.Progress(phase="alert fired", asked=7, broken_at=1_767_225_601.0, alert=ALERT)
    row = {"metric": "faithfulness", "mean": 0.9, "ci_low": 0.8, "ci_high": 1.0, "n": 130, "coverage_ratio": 1.0}
    progress.metrics = [{**row, "state": "firing"}, {**row, "metric": "hallucination", "mean": None, "state": "ok"}]
    progress.worst = [view.Wrong("Who [red]?", "Nobody.", "A passage.", {"faithfulness": 0.0})]
    shown = view.view_for(console)
    shown.show(progress)
    shown.close()
    for line in view.alert_lines(progress):
        console.print(line, markup=False)
    text = out.getvalue()
    assert isinstance(shown, view.Screen) == terminal
    for expected in ("0.90 [0.80, 1.00]", "not enough yet", "1.0 s after the index", "Who [red]?", "retrieval"):
        assert expected in text


def test_the_demo_fails_with_a_reason_when_its_port_is_taken():
    out = io.StringIO()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert asyncio.run(run.run_demo(20.0, taken.getsockname()[1], Console(file=out, width=200))) == 1
        assert f"port {taken.getsockname()[1]} is in use" in out.getvalue()


def test_the_demo_fails_with_a_reason_when_there_is_no_time_for_it():
    out = io.StringIO()
    assert asyncio.run(run.run_demo(1.0, None, Console(file=out, width=200))) == 1
    assert "The demo failed" in out.getvalue()


def test_a_demo_that_is_too_short_is_refused_with_the_shortest():
    result = CliRunner().invoke(main, ["demo", "--seconds", "30"])
    assert result.exit_code == 2
    assert f"30.0 is not in the range x>={MIN_DEMO_S}" in result.output

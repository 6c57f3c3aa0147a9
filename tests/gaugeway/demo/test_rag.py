"""The demo's RAG app: its retrieval is real, and a wrong rebuild of its index breaks the answers."""

from __future__ import annotations

import asyncio
import io
import socket
import subprocess
from pathlib import Path
from statistics import mean

import pytest
from click.testing import CliRunner
from rich.console import Console

from gaugeway.cli.main import MIN_DEMO_S, main
from gaugeway.demo import model_judge as judging
from gaugeway.demo import model_reply as answering
from gaugeway.demo import model_text as texts
from gaugeway.demo import rag, run, servers, view
from gaugeway.demo.model import serving
from gaugeway.exchange import Request, Response
from gaugeway.prompts.templates import TemplateExtractor
from tests.support.scripted_model import Model

ROOT = Path(__file__).parents[3]


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


async def test_the_app_asks_over_http_and_streams_every_other_answer():
    model = Model()

    async with serving(model) as base_url:
        app = rag.RagApp(rag.Index(rag.handbook()), base_url)
        try:
            whole, streamed = [await app.ask("Why does Mars look red?") for _ in range(2)]
        finally:
            await app.aclose()
    assert (whole.streamed, streamed.streamed) == (False, True)
    assert whole.text == streamed.text
    assert "rust" in whole.text
    assert [entry.header("x-gaugeway-app") for entry in model.log] == ["handbook", "handbook"]


def test_free_ports_are_all_different():
    assert len(set(servers.free_ports(5))) == 5


ALERT = {
    "status": "firing",
    "labels": {"alertname": run.ALERT, "metric": run.METRIC, "rule": "r", "severity": "page"},
    "annotations": {"summary": "It fell."},
}


async def test_the_receiver_wakes_up_for_the_right_alert_only():
    other = {**ALERT, "labels": {**ALERT["labels"], "metric": "hallucination"}}

    from httpx import AsyncClient

    receiver = run.Receiver()
    async with servers.in_loop(receiver) as address, AsyncClient(trust_env=False) as client:
        await client.post(address, json={"alerts": [other, {**ALERT, "status": "resolved"}]})
        before = receiver.fired.is_set()
        await client.post(address, content=b"no json")
        await client.post(address, json={"alerts": [ALERT]})
        assert (before, receiver.fired.is_set(), receiver.firing()) == (False, True, ALERT)


def points(values, *, since, metric="faithfulness"):
    """Evaluations as the API returns them, one a second from `since` on; None has no score."""
    return [
        {
            "metric": metric,
            "sample_id": f"{since + second}",
            "started_at": float(since + second),
            "outcome": "failed" if value is None else "score",
            "value": value,
            "reason": "timeout" if value is None else "",
            "rate": 1.0,
        }
        for second, value in enumerate(values)
    ]


def test_the_newest_scores_fall_beside_those_of_the_healthy_index():
    scores = view.Scores()
    scores.take(points([1.0] * 40 + [None] * 2, since=1000))
    assert (scores.newest().n, scores.newest().mean) == (view.NEWEST, 1.0)
    scores.broken_at = 2000.0
    means = []
    for second in range(view.NEWEST):
        scores.take(points([0.0], since=2000 + second))
        means.append(scores.newest().mean)
        assert (scores.baseline().n, scores.baseline().mean) == (40, 1.0)
    assert means == sorted(means, reverse=True)
    assert (means[14], means[-1]) == (pytest.approx(0.5), 0.0)
    assert (scores.since_break(), len(scores.scored()), scores.unscored()) == (30, 70, {"failed: timeout": 2})
    before = str(scores.newest())
    scores.take([*points([1.0] * 5, since=2000), *points([1.0] * 5, since=900)])
    assert str(scores.newest()) == before, "a score read again, or late of an older question, moves nothing"


def test_fewer_than_ten_scores_have_no_mean():
    scores = view.Scores()
    scores.take(points([1.0] * 9, since=1000))
    assert (str(scores.newest()), scores.newest().n) == ("not enough yet", 9)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_view_shows_rows_alert_and_worst_answers(terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, no_color=False, _environ={"TERM": "xterm-256color"})
    progress = view.Progress(phase="alert fired", asked=75, alert=ALERT, alert_after=5, alert_after_s=7.0)
    progress.scores.take([*points([1.0] * 40, since=1000), *points([0.0] * 15, since=2000)])
    progress.scores.take(points([0.25] * 12, since=2000, metric="context_relevancy"))
    progress.scores.broken_at = 2000.0
    progress.described = {"likely_cause": "retrieval", "cause_detail": "It [b]fell[/b].", "finding": {"onset": 2001.0}}
    progress.described["since"] = 2007.0
    progress.worst = [view.Wrong("Who [red]?", "Nobody.", "A passage.", {"faithfulness": 0.0})]
    shown = view.View(console)
    shown.show(progress)
    progress.scores.take(points([0.0] * 15, since=2020))
    shown.show(progress)
    shown.close()
    for line in view.alert_lines(progress):
        console.print(line, markup=False, highlight=False)
    text = out.getvalue()
    assert (shown.picture is not None) == terminal
    rows = [line for line in text.splitlines() if "  75 " in line]
    assert [row for row in rows if "0.50 [0" in row and "1.00 [0" in row and "0.25 [0" in row], text
    assert [row for row in rows if "0.00 [0" in row], "a row follows after a few more scores"
    for expected in ("It fell.", "fired 7.0 s and 5 scored answers", "1.0 s after the index", "Who [red]?"):
        assert expected in text
    assert "likely cause: retrieval. It [b]fell[/b]." in text


def test_the_demo_fails_with_a_reason_when_its_port_is_taken():
    out = io.StringIO()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert asyncio.run(run.run_demo(20.0, taken.getsockname()[1], Console(file=out, width=200))) == 1
        assert f"port {taken.getsockname()[1]} is in use" in out.getvalue()


def test_a_demo_that_runs_out_of_seconds_says_how_far_it_got_and_that_nothing_failed():
    out = io.StringIO()
    assert asyncio.run(run.run_demo(0.1, None, Console(file=out, width=200))) == 1
    text = out.getvalue()
    assert "stopped after 0.1 s, as --seconds says, before its end, with 0 of 120 scores of the healthy index" in text
    assert "failed:" not in text


@pytest.mark.parametrize("seconds", ["30", "-1", "nan"])
def test_a_demo_that_is_too_short_is_refused_with_the_shortest(seconds):
    result = CliRunner().invoke(main, ["demo", "--seconds", seconds])
    assert result.exit_code == 2
    assert f"an idle machine needs up to {MIN_DEMO_S} s, a busy one more" in result.output


@pytest.mark.parametrize(("given", "command"), [([], "gaugeway demo"), (["SECONDS=90"], "gaugeway demo --seconds 90")])
def test_make_demo_takes_seconds(given, command):
    make = ["make", "--dry-run", "--always-make", "-C", str(ROOT), "demo", *given]
    lines = subprocess.run(make, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.strip() for line in lines if "gaugeway demo" in line] == [f".venv/bin/{command}"]

"""The commands as users run them, over a real endpoint that answers by the rules of the example judge."""

import asyncio
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gaugeway.cli import evaluate as offline_cli
from gaugeway.records import CaptureInfo, Context, Evaluation, Failed, PromptPart, Sample, Score, Skipped
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.offline import Run
from tests.support.llm_server import LLMServer, Reply
from tests.support.rules_server import by_rules, rules_server

ROOT = Path(__file__).parents[3]
DATA = ROOT / "examples" / "data" / "finance.jsonl"
ALL = 18


@pytest.fixture
def llm():
    with rules_server() as one:
        yield one


@pytest.fixture
def config(llm, tmp_path):
    path = tmp_path / "gaugeway.toml"
    path.write_text(
        f"""
        [judge]
        base_url = "{llm.url}"
        model = "stub"
        price_in = 1.0
        price_out = 10.0
        [embeddings]
        base_url = "{llm.url}"
        model = "vectors"
        """
    )
    return path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def invoke(command, *arguments):
    return CliRunner().invoke(command, [str(one) for one in arguments])


def evaluate(*arguments):
    return invoke(offline_cli.evaluate, *arguments)


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def judged(llm):
    return sum("messages" in request.body for request in llm.requests)


@pytest.mark.full
def test_every_metric_over_the_example_data_set(llm, config, tmp_path):
    outputs = [tmp_path / f"report{suffix}" for suffix in (".html", ".md", ".json", ".xml")]
    result = evaluate(DATA, "--config", config, "--metrics", "all", *(f"--output={path}" for path in outputs))
    assert result.exit_code == 0, result.output
    run = Run.load(outputs[2])
    assert len(run.rows) >= 40
    assert len(run.measures) >= ALL - 1
    names = ("asked_again", "tool_use", "goal_met", "gave_up", "turns_to_resolution")
    of_conversations = {one.metric: one for one in run.summary if one.metric in names}
    assert {name: dict(one.skipped) for name, one in of_conversations.items()} == {
        "asked_again": {"no_history": len(run.rows)},
        "tool_use": {"no_tool_calls": len(run.rows)},
        **{name: {"no_transcript": len(run.rows)} for name in ("goal_met", "gave_up", "turns_to_resolution")},
    }
    for one in run.summary:
        if one.metric in of_conversations:
            continue
        assert one.n >= 10, one
        assert not one.failed, one
        assert 0.0 <= one.low <= one.mean <= one.high <= 1.0
        assert one.metric in result.output
    assert run.paid_usd == pytest.approx(judged(llm) * (1000 * 1e-6 + 100 * 10e-6))
    assert all(path.stat().st_size > 2000 for path in outputs)


def test_a_second_run_asks_for_nothing_and_a_third_for_what_was_added(llm, config, tmp_path):
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    data = write(tmp_path / "data.jsonl", *rows[:10])
    arguments = (data, "--config", config, "--metrics", "faithfulness", "--output", tmp_path / "run.json")
    assert evaluate(*arguments).exit_code == 0
    assert judged(llm) == 10
    first = Run.load(tmp_path / "run.json")
    again = evaluate(*arguments)
    assert judged(llm) == 10
    assert "0.0000 USD paid, 10 evaluations reused from earlier runs" in again.output
    second = Run.load(tmp_path / "run.json")
    assert second.rows == first.rows
    write(data, *rows[:12])
    assert evaluate(*arguments).exit_code == 0
    assert judged(llm) == 12
    assert evaluate(*arguments, "--fresh").exit_code == 0
    assert judged(llm) == 24
    assert (tmp_path / ".gaugeway" / "runs" / "data.db").exists()


def test_floors_decide_the_exit_code(config, tmp_path):
    result = evaluate(
        DATA,
        "--config",
        config,
        "--metrics",
        "faithfulness,hallucination",
        "--fail-under",
        "faithfulness=0.5,hallucination=0.15",
        "--output",
        tmp_path / "a.xml",
    )
    assert result.exit_code == 0, result.output
    mean = 0.76
    result = evaluate(DATA, "--config", config, "--metrics", "faithfulness", "--fail-under", f"faithfulness={mean}")
    assert result.exit_code == 1
    assert "missed  faithfulness 0.76: the lower 95 % bound is 0.6" in result.output


def test_the_metrics_are_those_of_the_configuration_unless_named(config, tmp_path):
    config.write_text(config.read_text() + "\n[metrics.hallucination]\nenabled = false\n[metrics.mrr]\n")
    assert evaluate(DATA, "--config", config, "--output", "run.json", "--limit", 3).exit_code == 0
    names = [one.name for one in Run.load(tmp_path / "run.json").measures]
    assert names == ["answer_relevancy", "context_relevancy", "faithfulness", "lexical_groundedness", "mrr"]


def test_without_a_judge_only_what_needs_none_runs(tmp_path):
    result = evaluate(DATA, "--judge", "none", "--output", "run.json")
    assert result.exit_code == 0
    assert [one.name for one in Run.load(tmp_path / "run.json").measures] == ["lexical_groundedness"]
    assert "no judge configured" in result.output


def test_judge_and_metric_by_import_string(tmp_path):
    arguments = ("--judge", "examples.rules:RuleJudge", "--metrics", "faithfulness,examples.custom_metric:Brevity")
    assert evaluate(DATA, *arguments, "--output", "run.json").exit_code == 0
    assert [(one.name, one.judge) for one in Run.load(tmp_path / "run.json").measures] == [
        ("faithfulness", "rules"),
        ("brevity", None),
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing.jsonl"], "No such file"),
        (
            [DATA, "--metrics", "faithfulnes", "--judge", "none"],
            "--metrics: faithfulnes: unknown metric; did you mean 'faithfulness'?",
        ),
        ([DATA, "--metrics", "faithfulness", "--judge", "none"], "--metrics: faithfulness needs a judge"),
        ([DATA, "--metrics", "answer_similarity", "--judge", "none"], "answer_similarity needs embeddings"),
        ([DATA, "--judge", "llm"], "none is configured"),
        ([DATA, "--judge", "gpt-5"], "--judge-url: missing: gpt-5 has no address in [judge], and there is no upstream"),
        ([DATA, "--judge-url", "http://127.0.0.1:1/v1"], "--judge: missing: --judge-url is the address of a judge"),
        ([DATA, "--judge", "examples.rules:Nobody"], "has no 'Nobody'"),
        ([DATA, "--judge", "none", "--fail-under", "faithfulness=0.8"], "'faithfulness' is not computed"),
        ([DATA, "--fail-under", "faithfulness"], "expected metric=number"),
        ([DATA, "--output", "report.pdf"], "expected a file name ending in .html"),
        ([DATA, "--compare-with", "old.json"], "No such file"),
        ([DATA, "--compare-with", DATA], "finance.jsonl: "),
        ([DATA, "--config", "nothing.toml"], "No such file"),
    ],
)
def test_bad_input_is_told_and_exits_with_2(arguments, problem):
    result = evaluate(*arguments)
    assert result.exit_code == 2, result.output
    assert result.output.startswith("gaugeway: ")
    assert problem in result.output


def test_every_bad_line_is_told(tmp_path):
    data = write(tmp_path / "data.jsonl", {"answer": 1}, {"answer": "a"}, {"answer": "a", "contexts": "b"})
    result = evaluate(data, "--judge", "none")
    assert result.exit_code == 2
    assert result.output.splitlines() == [
        f"gaugeway: {data}:1: answer: expected a text, got a number",
        f"gaugeway: {data}:3: contexts: expected a list of texts, got a text",
    ]


def test_a_failing_judge_is_counted_by_reason_and_never_a_zero(tmp_path):
    with LLMServer(Reply(content="no JSON at all")) as llm:
        config = tmp_path / "gaugeway.toml"
        config.write_text(f'[judge]\nbase_url = "{llm.url}"\nmodel = "stub"\n')
        arguments = ("--config", config, "--metrics", "faithfulness", "--limit", 3)
        result = evaluate(DATA, *arguments, "--output", "run.json", "--fail-under", "faithfulness=0.0")
    assert result.exit_code == 1
    summary = Run.load(tmp_path / "run.json").summary[0]
    assert (summary.mean, summary.failed) == (None, {"unreadable": 3})


def test_two_runs_are_compared(config, tmp_path):
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    worse = [{**row, "response": "Nobody has ever heard of such a thing."} for row in rows]
    data, other = write(tmp_path / "a.jsonl", *rows), write(tmp_path / "b.jsonl", *worse)
    arguments = ("--config", config, "--metrics", "faithfulness")
    assert evaluate(data, *arguments, "--output", "a.json").exit_code == 0
    result = evaluate(other, *arguments, "--output", "b.json", "--compare-with", "a.json")
    assert result.exit_code == 0
    assert "worse" in result.output
    assert evaluate(other, *arguments, "--compare-with", "a.json", "--fail-if-worse").exit_code == 1
    compared = invoke(offline_cli.compare_runs, "a.json", "b.json", "--output", "c.md")
    assert compared.exit_code == 0
    assert "worse" in (tmp_path / "c.md").read_text()
    assert invoke(offline_cli.compare_runs, "a.json", "b.json", "--fail-if-worse").exit_code == 1
    assert invoke(offline_cli.compare_runs, "b.json", "a.json", "--fail-if-worse").exit_code == 0
    same = invoke(offline_cli.compare_runs, "a.json", "a.json")
    assert "no sample's score differs" in same.output
    assert invoke(offline_cli.compare_runs, "a.json", data).exit_code == 2


@pytest.mark.full
def test_as_a_process_a_pipe_gets_the_table_and_no_bar(tmp_path):
    code = "from gaugeway.cli.evaluate import evaluate; evaluate()"
    ran = subprocess.run(
        [sys.executable, "-c", code, DATA, "--judge", "none"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "lexical_groundedness" in ran.stdout
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


# A shell starts a background job with SIGINT ignored, and the tests' own children inherit that.
INTERRUPTIBLE = """
import signal
from gaugeway.cli.evaluate import evaluate
from tests.support.rules_server import by_rules, rules_server
signal.signal(signal.SIGINT, signal.default_int_handler)
evaluate()
"""


@pytest.mark.full
def test_stopped_half_way_it_goes_on_from_there(tmp_path):
    numbers, holding = itertools.count(), True

    def answers(request):
        # Later answers never come until the process is gone: how far it gets does not depend on its speed.
        return replace(by_rules(request), delay_s=300.0 if holding and next(numbers) >= 8 else 0.0)

    with LLMServer(answers) as llm:
        config = tmp_path / "gaugeway.toml"
        config.write_text(f'[judge]\nbase_url = "{llm.url}"\nmodel = "stub"\n')
        command = [
            sys.executable,
            "-c",
            INTERRUPTIBLE,
            DATA,
            "--config",
            config,
        ]
        options = [*command, "--metrics", "faithfulness", "--concurrency", "2"]
        with subprocess.Popen(
            options,
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            deadline = time.monotonic() + 60
            while judged(llm) < 10 and time.monotonic() < deadline:
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            said, _ = running.communicate(timeout=120)
        assert running.returncode == 130
        assert said == "gaugeway: interrupted; finished work is saved, run the same command to continue\n"
        before = judged(llm)
        assert before >= 10
        holding = False
        result = evaluate(DATA, "--config", config, "--metrics", "faithfulness")
        assert result.exit_code == 0
        known = int(re.search(r"(\d+) evaluations reused", result.output)[1])
        assert known >= 4
        assert judged(llm) - before == 42 - known


# --- captured exchanges

PART = PromptPart(role="system", kind="instructions", start=0, end=9, text="Be brief.")


def captured(tmp_path):
    """A data directory with twelve exchanges: six good, five bad ones, and one that holds no answer."""
    now = time.time()

    async def fill():
        store = SQLiteStore(tmp_path / "data" / "store.db")
        for number in range(12):
            text = "The warranty is two years." if number < 6 else "The warranty is nine years."
            sample = Sample(
                id=f"x{number}",
                started_at=now - 60 * number,
                app="shop",
                question="How long is the warranty?",
                contexts=(
                    Context(text="The warranty is two years.", id="p1"),
                    Context(text="Bulbs are excluded.", id="p2"),
                ),
                context_source="explicit",
                capture=CaptureInfo(source="explicit", confidence=1.0, parts=(PART,)),
                response=text,
                tags={"lang": "en"},
                skip_reason="tool_call" if number == 11 else None,
                rate=0.5,
            )
            outcomes = [
                Evaluation(
                    sample_id=sample.id, metric="lexical_groundedness", version="0", outcome=Score(1 - number / 20)
                ),
                Evaluation(
                    sample_id=sample.id,
                    metric="faithfulness",
                    version="0",
                    judge="old",
                    rate=0.05,
                    outcome=Score(0.5, "old", ({"claim": "c", "verdict": "supported"},)),
                ),
                Evaluation(
                    sample_id=sample.id,
                    metric="hallucination",
                    version="0",
                    judge="old",
                    outcome=Failed("timeout", "d")
                    if number == 1
                    else Skipped("no_contexts")
                    if number == 2
                    else Score(0.9 if number == 3 else 0.0),
                ),
            ]
            await store.add(sample, outcomes)
        await store.aclose()

    asyncio.run(fill())
    return tmp_path / "data"


def stored(data_dir, sample_id):
    async def read():
        store = SQLiteStore(data_dir / "store.db")
        try:
            return await store.sample(sample_id)
        finally:
            await store.aclose()

    return asyncio.run(read())


def test_an_export_is_read_by_evaluate_with_the_same_texts(tmp_path):
    data = captured(tmp_path)
    result = invoke(offline_cli.export, tmp_path / "out.jsonl", "--data-dir", data)
    assert result.exit_code == 0, result.output
    assert "11 exchanges written, 1 without an answer left out" in result.output
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"x{number}" for number in reversed(range(11))]
    assert rows[-1]["retrieved_contexts"] == ["The warranty is two years.", "Bulbs are excluded."]
    assert rows[-1]["retrieved_context_ids"] == ["p1", "p2"]
    assert rows[-1]["scores"]["faithfulness"] == {
        "value": 0.5,
        "reason": "old",
        "version": "0",
        "judge": "old",
        "rate": 0.05,
    }
    assert (rows[-1]["capture"]["source"], rows[-1]["capture"]["parts"][0]["text"]) == ("explicit", "Be brief.")
    assert rows[-2]["scores"]["hallucination"]["failed"] == "timeout"
    assert rows[-3]["scores"]["hallucination"]["skipped"] == "no_contexts"
    evaluated = evaluate(tmp_path / "out.jsonl", "--judge", "none", "--output", "run.json")
    assert (evaluated.exit_code, "is not used" in evaluated.output) == (0, False)
    sample = Run.load(tmp_path / "run.json").rows[-1].sample
    original, _ = stored(data, "x0")
    assert (sample.id, sample.question, sample.response, sample.tags, sample.app) == (
        original.id,
        original.question,
        original.response,
        original.tags,
        original.app,
    )


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--worst", "2", "--metric", "lexical_groundedness"], ["x10", "x9"]),
        (["--worst", "1", "--metric", "hallucination"], ["x3"]),
        (["--worst", "1"], ["x3"]),
        (["--since", "150s"], ["x2", "x1", "x0"]),
        (["--metric", "answer_relevancy~other"], []),
    ],
)
def test_an_export_of_the_worst_or_the_latest(tmp_path, options, ids):
    result = invoke(offline_cli.export, tmp_path / "out.jsonl", "--data-dir", captured(tmp_path), *options)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ids


def test_an_export_by_an_unknown_metric_names_the_known_ones_and_writes_nothing(tmp_path):
    result = invoke(offline_cli.export, tmp_path / "out.jsonl", "--data-dir", captured(tmp_path), "--metric", "bogus")
    assert result.exit_code == 2
    assert "--metric: unknown metric 'bogus'; known: answer_relevancy, " in " ".join(result.output.split())
    assert not (tmp_path / "out.jsonl").exists()


def test_a_replay_adds_scores_and_touches_none(tmp_path):
    data = captured(tmp_path)
    before = stored(data, "x7")
    arguments = (
        "--data-dir",
        data,
        "--metrics",
        "faithfulness,lexical_groundedness",
        "--judge",
        "examples.rules:RuleJudge",
    )
    result = invoke(offline_cli.replay, *arguments)
    assert result.exit_code == 0, result.output
    assert "the judge changed: old before, rules after" in result.output
    sample, after = stored(data, "x7")
    assert (sample, list(after[:3])) == (before[0], list(before[1]))
    assert {(one.metric, one.judge) for one in after[3:]} == {
        ("faithfulness~rules", "rules"),
        ("lexical_groundedness~replay", None),
    }
    new = next(one for one in after if one.metric == "faithfulness~rules")
    assert new.outcome.value == 0.0
    assert new.rate == 0.5
    assert stored(data, "x2")[1][3].outcome.value == 1.0
    assert len(stored(data, "x11")[1]) == 3


def test_a_second_replay_asks_for_nothing(llm, config, tmp_path):
    data = captured(tmp_path)
    arguments = ("--data-dir", data, "--metrics", "faithfulness", "--config", config)
    assert invoke(offline_cli.replay, *arguments).exit_code == 0
    assert judged(llm) == 11
    again = invoke(offline_cli.replay, *arguments)
    assert judged(llm) == 11
    assert "11 evaluations reused from earlier runs" in again.output
    assert invoke(offline_cli.replay, *arguments, "--label", "second opinion").exit_code == 0
    assert judged(llm) == 22
    assert {one.metric for one in stored(data, "x0")[1]} >= {"faithfulness~stub", "faithfulness~second opinion"}


def test_a_label_holds_one_version_of_a_metric(llm, config, tmp_path):
    data = captured(tmp_path)
    arguments = ("--data-dir", data, "--metrics", "faithfulness", "--config", config, "--label", "x")
    assert invoke(offline_cli.replay, *arguments).exit_code == 0
    config.write_text(config.read_text() + "\n[metrics.faithfulness]\ncontradiction_only = true\n")
    result = invoke(offline_cli.replay, *arguments)
    assert result.exit_code == 2
    assert "choose another --label" in result.output


def test_a_failed_replay_is_tried_again(tmp_path):
    data = captured(tmp_path)
    with LLMServer(Reply(content="no JSON at all")) as llm:
        config = tmp_path / "broken.toml"
        config.write_text(f'[judge]\nbase_url = "{llm.url}"\nmodel = "stub"\n')
        result = invoke(offline_cli.replay, "--data-dir", data, "--metrics", "faithfulness", "--config", config)
    assert "11 unreadable" in result.output
    assert len(stored(data, "x0")[1]) == 3


def test_the_live_series_do_not_see_a_replay(tmp_path):
    from gaugeway.storage.stores import Query

    data = captured(tmp_path)

    async def live():
        store = SQLiteStore(data / "store.db")
        try:
            query = Query(since=0.0, until=time.time() + 1, metric="faithfulness")
            return [one.n for one in await store.summary(query)], len(await store.series(query))
        finally:
            await store.aclose()

    before = asyncio.run(live())
    arguments = ("--data-dir", data, "--metrics", "faithfulness", "--judge", "examples.rules:RuleJudge")
    assert invoke(offline_cli.replay, *arguments).exit_code == 0
    assert asyncio.run(live()) == before


@pytest.mark.parametrize("command", [offline_cli.replay, offline_cli.export])
def test_there_must_be_something_captured_and_readable(command, tmp_path):
    target = [tmp_path / "out.jsonl"] if command is offline_cli.export else ["--judge", "none"]
    result = invoke(command, *target, "--data-dir", tmp_path / "empty")
    assert result.exit_code == 2
    assert "nothing was captured here" in result.output
    assert not (tmp_path / "empty").exists()
    config = tmp_path / "hashes.toml"
    config.write_text("[capture]\ncontent = false\n")
    result = invoke(command, *target, "--data-dir", captured(tmp_path), "--config", config)
    assert result.exit_code == 2
    assert "hashes" in result.output
    assert invoke(command, *target, "--data-dir", tmp_path / "data", "--since", "yesterday").exit_code == 2


def test_fields_of_other_names_are_mapped(llm, config, tmp_path):
    data = write(tmp_path / "data.jsonl", {"query": "How long?", "said": "Two years.", "docs": ["Two years."]})
    mapped = ("--map", "question=query", "--map", "response=said", "--map=contexts=docs")
    rows = tmp_path / "rows.jsonl"
    result = evaluate(data, "--judge", "none", *mapped, "--output", rows)
    assert result.exit_code == 0, result.output
    (record,) = [json.loads(line) for line in rows.read_text().splitlines()]
    assert (record["user_input"], record["retrieved_contexts"]) == ("How long?", ["Two years."])
    assert record["scores"]["lexical_groundedness"]["value"] > 0.8


def test_a_mapped_name_that_is_not_in_the_file_is_an_error(tmp_path):
    data = tmp_path / "t.csv"
    data.write_text("query,answer,gold\nWho?,Ann.,\n")
    result = evaluate(data, "--judge", "none", "--map", "user_input=nosuch")
    assert result.exit_code == 2
    assert "--map user_input=nosuch: no record has 'nosuch', only 'query', 'answer'" in result.output
    result = evaluate(data, "--judge", "none", "--map", "user_input=query", "--map", "reference=gold")
    assert result.exit_code == 0, result.output  # the column is there, though empty
    assert "1 sample in" in result.output
    assert "no judge configured ([judge]): only" in result.output


@pytest.mark.parametrize(
    ("mapped", "said"),
    [
        ("query", "--map: expected FIELD=NAME, for example user_input=query, got 'query'"),
        ("questoin=query", "--map: 'questoin' is not a field; the fields are user_input, response,"),
        ("response=other", "--map response=other: no record has 'other', only 'query'"),
    ],
)
def test_a_mapping_that_cannot_be_used_is_an_error(tmp_path, mapped, said):
    data = write(tmp_path / "data.jsonl", {"query": "How long?"})
    result = evaluate(data, "--judge", "none", "--map", mapped)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_a_record_that_names_its_metrics_is_scored_by_no_other(tmp_path):
    text = {"response": "Two years.", "retrieved_contexts": ["Two years."]}
    write(
        tmp_path / "d.jsonl",
        {"id": "all", **text},
        {"id": "named", **text, "only_metrics": ["lexical_groundedness"]},
        {"id": "other", **text, "only_metrics": ["geval:tone"]},
        {"id": "none", **text, "only_metrics": []},
    )
    result = evaluate("d.jsonl", "--output", "run.json", "--output", "rows.jsonl", "--output", "rows.csv")
    assert result.exit_code == 0, result.output
    run = Run.load("run.json")
    assert [row.score("lexical_groundedness") for row in run.rows] == [1.0, 1.0, None, None]
    (summary,) = run.summary
    assert (summary.n, dict(summary.skipped)) == (2, {"not_selected": 2})
    assert run.notes[-1] == "only_metrics of some records names geval:tone, not computed in this run"
    for rows in ("rows.jsonl", "rows.csv"):
        assert evaluate(rows, "--output", f"{rows}.json").exit_code == 0
        assert Run.load(f"{rows}.json").summary[0].n == 2
    write(tmp_path / "bad.jsonl", {**text, "only_metrics": "faithfulness"})
    assert "bad.jsonl:1: only_metrics: expected a list of names of metrics, got a text" in evaluate("bad.jsonl").output


def test_its_own_csv_is_read_back_without_a_note_on_its_columns(tmp_path):
    write(tmp_path / "d.jsonl", {"response": "Two years.", "retrieved_contexts": ["Two years."], "Reson": "x"})
    assert evaluate("d.jsonl", "--output", "rows.csv").exit_code == 0
    again = evaluate("rows.csv")
    assert (again.exit_code, "is not used" in again.output) == (0, False), again.output


@pytest.mark.parametrize("model", ["stub", "qwen2.5:7b", "llama3:latest"])
def test_a_model_of_the_command_line_judges_without_a_configuration(llm, tmp_path, model):
    options = ("--judge", model, "--judge-url", llm.url, "--metrics", "faithfulness", "--limit", "2")
    evaluated = evaluate(DATA, *options, "--output", tmp_path / "run.json")
    assert evaluated.exit_code == 0, evaluated.output
    assert {request.body["model"] for request in llm.requests} == {model}
    assert {row.evaluations["faithfulness"].judge for row in Run.load(tmp_path / "run.json").rows} == {model}


def test_a_model_of_the_command_line_has_the_address_of_the_configuration(llm, config, tmp_path):
    options = ("--judge", "other", "--metrics", "faithfulness", "--limit", "1", "--config", config)
    assert evaluate(DATA, *options).exit_code == 0
    assert {request.body["model"] for request in llm.requests} == {"other"}

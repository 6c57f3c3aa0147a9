"""The commands as users run them, over a real endpoint that answers by the rules of the example judge."""

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

from gaugeway.cli import evaluate as offline_cli
from monitors.offline import Run
from tests.support.commands import invoke
from tests.support.llm_server import LLMServer, Reply
from tests.support.rules_server import by_rules, judged

ROOT = Path(__file__).parents[3]
DATA = ROOT / "examples" / "data" / "finance.jsonl"
ALL = 18


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def evaluate(*arguments):
    return invoke(offline_cli.evaluate, *arguments)


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


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
from tests.support.commands import invoke
from tests.support.rules_server import by_rules, judged, rules_server
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

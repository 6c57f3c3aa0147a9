"""`gaugeway import` as users run it: what it writes is what `gaugeway evaluate` reads."""

import json
import re
import tomllib

import pytest
from click.testing import CliRunner

from gaugeway.cli.main import main
from gaugeway.settings.loading import load
from monitors.judges.scripted import Scripted
from monitors.metrics.registry import build
from monitors.offline import Run
from tests.monitors.offline.imports.test_exports import CALL
from tests.monitors.offline.imports.test_openai_evals import COSINE, LABEL, PYTHON, SCORE, an_eval, write
from tests.support.llm_server import LLMServer, Reply
from tests.support.rules_server import Vectors, by_rules


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_an_eval_and_its_items_are_evaluated_with_the_metrics_it_became(tmp_path):
    write(tmp_path / "support.json", an_eval(SCORE, LABEL, COSINE, PYTHON))
    item = {"question": "How long?", "reference_answer": "Two years."}
    write(
        tmp_path / "items.jsonl", *({"item": item, "sample": {"output_text": text}} for text in ("Two years.", "No."))
    )
    result = run("import", "openai-evals", "support.json", "items.jsonl")
    assert result.exit_code == 1, result.output
    assert "wrote support.gaugeway.jsonl: 2 records" in result.output
    assert "not imported: python 'Code': runs Python code" in result.output
    assert "1 not imported" in result.output
    command = re.search(r"next: gaugeway (.*)", result.output)[1].split()
    vectors = Vectors(known=[1.0])
    with LLMServer(lambda request: Reply() if "input" in request.body else by_rules(request), vectors=vectors) as llm:
        with (tmp_path / "support.gaugeway.toml").open("a") as file:
            file.write(f'\n[judge]\nbase_url = "{llm.url}"\nmodel = "stub"\n')
            file.write(f'[embeddings]\nbase_url = "{llm.url}"\nmodel = "vectors"\n')
        done = run(*command, "--output", "run.json")
    assert done.exit_code == 0, done.output
    summary = {one.metric: one for one in Run.load("run.json").summary}
    assert set(summary) == {"geval:Close_to_the_reference", "geval:Tone", "answer_similarity"}
    assert {one.n for one in summary.values()} == {2}, done.output
    prompts = [request.body["messages"][0]["content"] for request in llm.requests if "messages" in request.body]
    assert any("Reference: <reference>" in prompt for prompt in prompts)


HOSTILE = 'a "quote" \\ ]] \n[judge]\x7f\x01 ${HOME} ${file:/etc/passwd} \U0001f600'


def test_no_text_of_an_import_is_anything_but_text_in_the_configuration(tmp_path):
    message = [{"role": "user", "content": f"{HOSTILE} {{{{sample.output_text}}}}"}]
    labels = {"labels": [HOSTILE, "b"], "passing_labels": ["b"]}
    graders = [{**LABEL, **labels, "name": HOSTILE, "model": HOSTILE, "input": message}, {**SCORE, "input": message}]
    write(tmp_path / "e.json", an_eval(*graders))
    result = run("import", "openai-evals", "e.json", "--config", "new/out.toml")
    assert result.exit_code == 0, result.output
    raw = tomllib.loads((tmp_path / "new" / "out.toml").read_text())
    assert set(raw) == {"metrics"}
    settings = load(tmp_path / "new" / "out.toml")
    table = settings.metrics["geval:Close_to_the_reference"].options
    assert table["criteria"].startswith(HOSTILE.replace("${", "$ {"))
    catalogue = build(settings.metrics, Scripted({}, model="j"), None)
    assert len([one for one in catalogue.enabled if one.metric.name.startswith("geval:")]) == 2


def test_a_promptfoo_configuration(tmp_path):
    (tmp_path / "promptfooconfig.yaml").write_text(
        "prompts: ['{{query}}']\ntests:\n  - vars: {query: Who?}\n    assert: [{type: llm-rubric, value: is kind}]\n"
    )
    result = run("import", "promptfoo", "promptfooconfig.yaml", "--out", "d.jsonl", "--config", "c.toml")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "d.jsonl").read_text()) == {"user_input": "Who?"}
    assert tomllib.loads((tmp_path / "c.toml").read_text())["metrics"]["geval:llm-rubric"]["criteria"] == "is kind"
    again = run("import", "promptfoo", "promptfooconfig.yaml", "--out", "d.jsonl", "--config", "c.toml")
    assert (again.exit_code, "d.jsonl: exists already; --force overwrites it" in again.output) == (2, True)
    assert run("import", "promptfoo", "promptfooconfig.yaml", "--out", "d.jsonl", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("tests: [", "a.yaml", "gaugeway: a.yaml:2: not YAML"),
        ("", "a.txt", "expected a file name ending in .jsonl"),
        ("tests: [{vars: {a: 1}}]", "a.yaml", "there is nothing to import"),
        (None, "a.yaml", "No such file"),
    ],
)
def test_bad_input_writes_nothing(tmp_path, content, name, said):
    if content is not None:
        (tmp_path / name).write_text(content)
    result = run("import", "promptfoo", name)
    assert (result.exit_code, said in result.output) == (2, True), result.output
    assert [path.name for path in tmp_path.iterdir()] == ([name] if content is not None else [])


def test_nothing_to_import_says_what_there_was_and_why_it_is_not_imported(tmp_path):
    source = {"type": "file_id", "id": "file-1"}
    write(tmp_path / "run.json", {"id": "run-1", "data_source": {"type": "jsonl", "source": source}})
    result = run("import", "openai-evals", "run.json")
    assert (result.exit_code, "there is nothing to import" in result.output) == (2, True), result.output
    assert "not imported: data of run 'run-1': is in the file 'file-1': download and import it" in result.output
    (tmp_path / "a.yaml").write_text("prompts: [x]\ntests: file://gen.py:make\n")
    result = run("import", "promptfoo", "a.yaml")
    assert result.exit_code == 2
    assert "not imported: tests in file://gen.py:make: is code, and no code is run" in result.output


@pytest.mark.parametrize(
    ("graders", "needed", "tables"),
    [
        ([SCORE], "a judge", ["judge"]),
        ([COSINE], "embeddings", ["embeddings"]),
        ([SCORE, COSINE], "a judge and embeddings", ["judge", "embeddings"]),
    ],
)
def test_the_configuration_says_what_its_metrics_need(tmp_path, graders, needed, tables):
    write(tmp_path / "e.json", an_eval(*graders))
    assert run("import", "openai-evals", "e.json", "--config", "c.toml").exit_code == 0
    text = (tmp_path / "c.toml").read_text()
    assert text.startswith(f"# Metrics imported from e.json. They need {needed}:\n")
    commented = text.partition("\n\n")[0].splitlines()[1:]
    assert list(tomllib.loads("\n".join(line.removeprefix("#") for line in commented))) == tables


def test_a_mapped_name_that_is_not_in_the_data_is_an_error_and_in_part_of_it_a_note(tmp_path):
    write(tmp_path / "d.jsonl", {"item": {"ticket_text": "It burns.", "n": 1}}, {"item": {"ticket_text": "It is wet."}})
    result = run("import", "openai-evals", "d.jsonl", "--map", "user_input=ticket_tex")
    assert result.exit_code == 2
    assert "--map user_input=ticket_tex: no record has 'ticket_tex', only 'ticket_text', 'n'" in result.output
    assert "did you mean 'ticket_text'?" in result.output
    result = run("import", "openai-evals", "d.jsonl", "--map", "user_input=ticket_text", "--map", "reference=n")
    assert result.exit_code == 0
    assert "note: --map reference=n: 1 of 2 records have 'n'" in result.output
    (tmp_path / "a.yaml").write_text("prompts: [x]\ntests: [{vars: {question: Who?}}]\n")
    result = run("import", "promptfoo", "a.yaml", "--map", "reference=gold")
    assert (result.exit_code, "no record has 'gold', only 'question'" in result.output) == (2, True), result.output


def test_a_grader_with_an_unknown_field_names_the_option_that_maps_it_also_without_data(tmp_path):
    message = [{"role": "user", "content": "Is {{sample.output_text}} kind, for {{item.ticket}}?"}]
    write(tmp_path / "e.json", an_eval(SCORE, {**LABEL, "input": message}))
    result = run("import", "openai-evals", "e.json")
    assert result.exit_code == 1
    assert "reference, response; --map FIELD=NAME says which field it is" in result.output
    write(tmp_path / "g.json", {**LABEL, "input": message})
    result = run("import", "openai-evals", "g.json", "--map", "user_input=ticket")
    assert (result.exit_code, "geval:Tone" in result.output) == (0, True), result.output


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.offline.imports.sources.MAX_ROWS", 3)
    write(tmp_path / "items.jsonl", *({"item": {"question": f"{n}"}} for n in range(4)))
    result = run("import", "openai-evals", "items.jsonl")
    assert (result.exit_code, "more than 3 records; split the file" in result.output) == (2, True), result.output
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(257 * 1024**2)
    result = run("import", "openai-evals", "big.json")
    assert (result.exit_code, "big.json: larger than 256 MiB" in result.output) == (2, True), result.output


@pytest.mark.parametrize("option", ["--out", "--config"])
@pytest.mark.parametrize("through", ["itself", "a symbolic link", "a hard link"])
def test_no_file_that_is_imported_is_overwritten(tmp_path, option, through):
    read = tmp_path / "e.jsonl"
    write(read, {"item": {"question": "Who?"}})
    write(tmp_path / "graders.json", an_eval(SCORE))
    before, to = read.read_text(), read if through == "itself" else tmp_path / "link.jsonl"
    if through == "a symbolic link":
        to.symlink_to(read)
    elif through == "a hard link":
        to.hardlink_to(read)
    result = run("import", "openai-evals", "graders.json", "e.jsonl", option, to, "--force")
    assert (result.exit_code, "is one of the files that are imported" in result.output) == (2, True), result.output
    assert read.read_text() == before


@pytest.mark.parametrize("tool", ["langfuse", "langsmith", "helicone"])
def test_no_export_is_overwritten(tmp_path, tool):
    row = {"langsmith": {"inputs": {"question": "?"}}, "langfuse": {"input": "?", "id": "1"}}.get(tool, CALL)
    write(tmp_path / "dest.jsonl", row)
    before = (tmp_path / "dest.jsonl").read_text()
    result = run("import", tool, "dest.jsonl", "--out", "./dest.jsonl", "--force")
    assert (result.exit_code, (tmp_path / "dest.jsonl").read_text()) == (2, before), result.output


def test_no_file_that_a_configuration_names_is_overwritten(tmp_path):
    (tmp_path / "c.yaml").write_text("prompts: [x]\ntests: file://tests.json\n")
    (tmp_path / "tests.json").write_text('[{"vars": {"question": "Who?"}}]')
    result = run("import", "promptfoo", "c.yaml", "--out", "tests.json", "--force")
    assert (result.exit_code, "tests.json: is one of the files" in result.output) == (2, True), result.output
    assert json.loads((tmp_path / "tests.json").read_text()) == [{"vars": {"question": "Who?"}}]


def test_requests_of_helicone_are_evaluated(tmp_path):
    write(tmp_path / "output.jsonl", CALL)
    result = run("import", "helicone", "output.jsonl", "--out", "d.jsonl")
    assert (result.exit_code, "next: gaugeway evaluate d.jsonl" in result.output) == (0, True), result.output
    done = run("evaluate", "d.jsonl", "--judge", "none", "--output", "run.json")
    assert done.exit_code == 0, done.output
    (summary,) = Run.load("run.json").summary
    assert (summary.metric, summary.n) == ("lexical_groundedness", 1)
    (tmp_path / "broken.jsonl").write_text('{"id": 1}\n{"id":\n')
    broken = run("import", "langfuse", "broken.jsonl")
    assert (broken.exit_code, "broken.jsonl:2: " in broken.output) == (2, True)


def test_every_import_leaves_out_a_record_that_cannot_be_evaluated_with_its_place(tmp_path):
    write(tmp_path / "d.jsonl", *({"item": {"id": name, "question": "Who?"}} for name in "aba"))
    result = run("import", "openai-evals", "d.jsonl")
    assert (result.exit_code, "wrote d.gaugeway.jsonl: 2 records" in result.output) == (1, True), result.output
    assert "not imported: d.jsonl:3: id: 'a' is a duplicate" in result.output
    tests = "".join(f"  - vars: {{id: {name}, question: Who?}}\n" for name in "aba")
    (tmp_path / "c.yaml").write_text(f"prompts: [x]\ntests:\n{tests}")
    result = run("import", "promptfoo", "c.yaml")
    assert (result.exit_code, "wrote c.gaugeway.jsonl: 2 records" in result.output) == (1, True), result.output
    assert "not imported: c.yaml:5: tests[2]: id: 'a' is a duplicate" in result.output

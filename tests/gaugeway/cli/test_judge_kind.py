"""`--judge-kind`: a decision judge without a configuration file."""

import json

import pytest

from gaugeway.cli import evaluate as offline_cli
from gaugeway.cli.plane import given_keys, given_tables
from gaugeway.settings.loading import load
from monitors.offline import Run
from tests.support.commands import invoke
from tests.support.decision_server import DecisionServer

ROWS = [
    {
        "user_input": f"Where is {k}?",
        "response": "It is here. It is red.",
        "retrieved_contexts": ["It is here."],
        "id": k,
    }
    for k in ("a", "b", "c")
]


@pytest.mark.parametrize("kind", ["decisions", "systemone"])
def test_a_data_set_is_scored_by_decisions(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with DecisionServer() as server:
        judge = ("--judge", "gpt-6-luna", "--judge-url", server.url, "--judge-kind", kind)
        result = invoke(offline_cli.evaluate, "data.jsonl", "--metrics", "faithfulness", *judge, "--output", "r.json")
        assert result.exit_code == 0, result.output
        paths = [request.path for request in server.requests]
    assert paths == [f"/v1/{kind}"] * 3
    run = Run.load(tmp_path / "r.json")
    assert [row.score("faithfulness") for row in run.rows] == [0.5] * 3


def test_the_kind_of_the_command_line_is_laid_over_the_file(tmp_path):
    path = tmp_path / "gaugeway.toml"
    path.write_text('[judge]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "gpt-6-luna"\nkind = "systemone"\n')
    assert load(path).judge.kind == "systemone"
    assert load(path, judge=(None, None, "decisions")).judge.kind == "decisions"
    names = (
        "upstream",
        "judge",
        "judge_url",
        "host",
        "port",
        "workers",
        "admin_port",
        "monitors_host",
        "monitors_port",
    )
    options = dict.fromkeys(names) | {"judge_kind": "decisions"}
    assert load(path, *given_tables(options)).judge.kind == "decisions"
    assert given_keys(options)["judge.kind"] == "decisions"

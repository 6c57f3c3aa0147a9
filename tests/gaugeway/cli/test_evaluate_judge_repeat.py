"""`gaugeway evaluate --judge-repeat`: what its reports say of a judge that does not repeat itself."""

import json
from pathlib import Path

import pytest

from gaugeway.cli import evaluate as offline_cli
from monitors.offline import Run
from tests.support.commands import invoke
from tests.support.llm_server import LLMServer, Reply, error
from tests.support.moody_judge import Moody, verdicts

PASSAGE = "The parcel leaves the depot in Leipzig on Monday."
SAID = "faithfulness: same answer, judged twice: ± 0.69 (sd 0.354, 0.333 to 0.402)"
FLIPS = "100 % flip across the threshold (91 to 100 %); n = 40 pairs"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "user_input": f"Where is {k}?",
            "response": "It leaves Leipzig.",
            "retrieved_contexts": [PASSAGE],
            "id": f"r{k}",
        }
        for k in range(40)
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluated(llm, *more, repeat=None):
    wanted = ("--metrics", "faithfulness", "--judge", "j", "--judge-url", llm.url)
    given = () if repeat is None else ("--judge-repeat", repeat)
    return invoke(offline_cli.evaluate, "data.jsonl", *wanted, *given, *more)


def test_every_report_says_how_far_two_judgements_of_the_same_answer_differ():
    outputs = [part for name in ("r.html", "r.md", "r.json") for part in ("--output", name)]
    with LLMServer(Moody()) as llm:
        result = evaluated(llm, *outputs, repeat=1)
        assert result.exit_code == 0, result.output
        assert len(llm.requests) == 80
        again = evaluated(llm, repeat=1)
        assert len(llm.requests) == 80, "the second judgement is cached, too"
    for said in (result.output, again.output):
        assert f"{SAID}; {FLIPS}" in " ".join(said.split())
    html, markdown, run = (Path(f"r.{suffix}").read_text() for suffix in ("html", "md", "json"))
    assert f"{SAID}; {FLIPS}." in html
    assert "same answer, judged twice: ± 0.69" in markdown
    (found,) = json.loads(run)["judge_repeats"]
    assert (found["metric"], found["judge"], found["sd"]["n"], found["half_width"]) == (
        *("faithfulness", "j", 40),
        pytest.approx(0.693, abs=1e-3),
    )
    (summary,) = json.loads(run)["summary"]
    assert (summary["mean"], summary["n"]) == (1.0, 40), "the first score counts alone"
    loaded = Run.load("r.json")
    assert loaded.judge_repeats["faithfulness"].sd.n == 40
    assert loaded.to_dict()["judge_repeats"] == json.loads(run)["judge_repeats"]


def test_a_low_score_has_the_judges_error_beside_it():
    with LLMServer(Moody(Reply(content=verdicts(1)), first=2)) as llm:
        result = evaluated(llm, "--output", "r.html", "--output", "r.md", repeat=1)
    assert result.exit_code == 0, result.output
    assert "<strong>0.500 ± 0.35</strong>" in Path("r.html").read_text()
    assert "0.500 ± 0.35" in Path("r.md").read_text()


def test_the_configured_share_holds_without_the_option_and_0_switches_it_off(tmp_path):
    with LLMServer(Moody()) as llm:
        config = f'[judge]\nbase_url = "{llm.url}"\nmodel = "j"\nrepeat = 1.0\n'
        (tmp_path / "gaugeway.toml").write_text(config)
        common = ("data.jsonl", "--metrics", "faithfulness", "--config", "gaugeway.toml")
        assert SAID in " ".join(invoke(offline_cli.evaluate, *common).output.split())
        off = invoke(offline_cli.evaluate, *common, "--fresh", "--judge-repeat", 0)
        assert off.exit_code == 0
        assert "judged twice" not in off.output
        assert len(llm.requests) == 120
        assert invoke(offline_cli.evaluate, *common, "--judge-repeat", 1.5).exit_code == 2


def test_second_judgements_that_fail_are_counted_and_fail_nothing():
    with LLMServer(Moody(error(400, "no"))) as llm:
        result = evaluated(llm, "--fail-under", "faithfulness=0.8", repeat=1)
    assert result.exit_code == 0, result.output
    assert "second judgements without a score: 40 bad_request" in result.output
    assert "judged twice" not in result.output

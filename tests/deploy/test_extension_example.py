"""The example of a package of extensions is installed beside the product, and both of its extensions work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaugeway.settings import child_environment

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "extension"
ANSWERS = [
    {"question": "How long?", "answer": "Two years [a] [b].", "contexts": ["Two years.", "2 a."]},
    {"question": "How much?", "answer": "Nothing.", "contexts": ["It is free.", "No fee."]},
]
TOML = """
[metrics.citation]
most = 1

[[notifiers]]
kind = "journal"
path = "alerts.jsonl"

[monitors]
public_url = "https://quality.example"
"""
NOTIFY = """
import asyncio, pathlib, time
from gaugeway.settings.loading import load
from monitors.alerting.notifiers.factory import NotifierTests
from monitors.alerting.notifiers.factory import open_notifiers

tests = NotifierTests(open_notifiers(load(pathlib.Path("gaugeway.toml"))), time.time)
print(asyncio.run(tests.send("journal-0")).error)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where the package is installed, together with what it is used on."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    source = tmp_path_factory.mktemp("source") / "extension"  # the build writes into its folder
    subprocess.run(["cp", "-r", EXAMPLE, source], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--no-index", "--target", target, source], check=True)
    (target / "gaugeway.toml").write_text(TOML, "utf-8")
    for row in ANSWERS:
        row["contexts"] = [{"id": name, "text": text} for name, text in zip("ab", row["contexts"], strict=True)]
    (target / "answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ANSWERS), "utf-8")
    return target


def run(folder, *arguments):
    environment = child_environment({"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"})
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.full
def test_the_metric_scores_a_data_set_beside_the_built_in_ones(installed):
    done = run(
        *(installed, "-m", "gaugeway", "evaluate", "answers.jsonl", "--config", "gaugeway.toml"),
        *("--judge", "none", "--output", "report.json"),
    )
    assert done.returncode == 0, done.stderr
    summaries = json.loads((installed / "report.json").read_text())["summary"]
    means = {summary["metric"]: summary["mean"] for summary in summaries}
    assert means.keys() == {"citation", "lexical_groundedness"}
    assert means["citation"] == 0.5


@pytest.mark.full
def test_the_notifier_gets_a_notification_with_what_it_takes_of_the_configuration(installed):
    done = run(installed, "-c", NOTIFY)
    assert (done.stdout, done.stderr) == ("\n", "")
    lines = [json.loads(line) for line in (installed / "alerts.jsonl").read_text().splitlines()]
    assert [line["state"] for line in lines] == ["firing", "resolved"]
    assert lines[0]["page"] == "https://quality.example"


@pytest.mark.full
def test_a_wrong_key_of_either_is_named(installed):
    (installed / "wrong.toml").write_text(TOML.replace("most", "mots").replace("path", "pth"), "utf-8")
    done = run(
        *(installed, "-m", "gaugeway", "check", "--config", "wrong.toml", "--upstream", "http://127.0.0.1:9000/v1")
    )
    assert done.returncode == 2
    assert "metrics.citation.mots: unknown option; did you mean 'most'?" in done.stderr + done.stdout
    assert "notifiers[0].pth: unknown option; did you mean 'path'?" in done.stderr + done.stdout
    assert "notifiers[0].path: required" in done.stderr + done.stdout

"""`gaugeway dataset` and `evaluate --dataset` on a store as the product fills it."""

import asyncio
import contextlib
import json
import time

import msgspec
import pytest
from click.testing import CliRunner

from gaugeway.cli.main import main
from gaugeway.records import Alert, Context, Evaluation, Finding, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.templates import StoredTemplate, open_templates
from monitors.alerting.stream import Case
from monitors.offline import Run
from tests.support.postgres import postgres

QUESTIONS = {
    "bad": ("How long is the warranty?", "Bananas contain potassium.", 0.1),
    "worse": ("Who repairs the kettle?", "Nobody can know that.", 0.0),
    "good": ("When are you open?", "The shop is open on Mondays.", 1.0),
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command in a directory with three captured exchanges, and an alert about them."""
    monkeypatch.chdir(tmp_path)
    now = time.time()

    async def fill():
        async with contextlib.aclosing(SQLiteStore(tmp_path / "data" / "store.db")) as store:
            for name, (question, response, score) in QUESTIONS.items():
                about = {"question": question, "response": response, "app": "shop", "context_source": "explicit"}
                passages = (Context(text="The shop is open on Mondays. The warranty is two years."),)
                sample = Sample(id=name, started_at=now - 60.0, contexts=passages, session="s-1", **about)
                made = Evaluation(sample_id=name, metric="faithfulness", version="1", outcome=Score(score))
                await store.add(sample, [made])
            finding = Finding(evidence_log10=1.0, baseline=0.9, onset=now - 100.0, n=3)
            about = {"rule": "r", "metric": "faithfulness", "app": "shop", "severity": "page", "direction": "drop"}
            alert = Alert(fingerprint="fp", state="firing", since=now - 90.0, finding=finding, **about)
            case = Case(alert=alert)
            await store.save({"alerts/cases": msgspec.json.encode([case])})

    (tmp_path / "data").mkdir()
    asyncio.run(fill())

    def run(*words, code=0):
        result = CliRunner().invoke(main, [*map(str, words), "--data-dir", str(tmp_path / "data")])
        assert result.exit_code == code, result.output
        return result

    return run


def test_add_list_show_export_and_remove(run, tmp_path, caplog):
    caplog.set_level("INFO", "gaugeway.audit")
    added = run("dataset", "add", "incident", "--alert", "fp")
    assert ": 2 rows; 2 added, 0 replaced, 0 known" in added.stdout
    assert added.stdout.startswith("incident@1 (")
    more = run("dataset", "add", "incident", "--exchange", "good", "--exchange", "bad", "--exchange", "gone")
    assert "3 rows; 1 added, 0 replaced, 1 known, 0 too many, 1 left out" in more.stdout
    heading, line = run("dataset", "list").stdout.splitlines()
    assert heading.split() == ["NAME", "VERSION", "HASH", "ROWS", "CHANGED", "APPS"]
    assert line.split()[:2] == ["incident", "2"]
    assert run("dataset", "list", "--app", "nobody").stdout == "no data sets\n"
    shown = json.loads(run("dataset", "show", "incident@1").stdout)
    assert [record["id"] for record in shown["records"]] == ["worse", "bad"]
    assert shown["records"][0]["provenance"]["alert"] == "fp"
    run("dataset", "export", "incident", tmp_path / "set.jsonl")
    assert len((tmp_path / "set.jsonl").read_text().splitlines()) == 3
    golden = json.loads(run("dataset", "export", "incident", "-", "--format", "deepeval").stdout)
    assert [row["input"] for row in golden][-1] == "When are you open?"
    assert "removed 1 row of incident" in run("dataset", "remove", "incident", "--id", "bad").stdout
    assert json.loads(run("dataset", "show", "incident").stdout)["rows"] == 2
    assert run("dataset", "remove", "incident").stdout == "removed incident\n"
    actions = [record.getMessage().split()[0] for record in caplog.records if record.name == "gaugeway.audit"]
    assert actions == ["dataset_add"] * 2 + ["dataset_remove"] * 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["add", "x"], "give exchanges, an alert, labelled, an app or a metric"),
        (["add", "x", "--below", "0.5"], "below and above need a metric"),
        (["add", "x", "--alert", "other"], "no alert has the fingerprint other"),
        (["add", "A b", "--exchange", "bad"], "no name of a data set"),
        (["add", "x", "--metric", "faithfulness", "--since", "noon"], "expected a span"),
        (["show", "x"], "there is no data set x"),
        (["remove", "x"], "there is no data set x"),
    ],
)
def test_what_cannot_be_done_is_said(run, words, problem):
    assert problem in run("dataset", *words, code=2).stderr


def test_a_filter_takes_the_worst_first(run):
    run("dataset", "add", "low", "--app", "shop", "--metric", "faithfulness", "--below", "0.5", "--limit", "1")
    shown = json.loads(run("dataset", "show", "low").stdout)
    assert [record["id"] for record in shown["records"]] == ["worse"]


def test_evaluate_scores_the_recorded_answers_or_new_ones(run, tmp_path):
    run("dataset", "add", "incident", "--exchange", "bad", "--exchange", "good")
    words = ("evaluate", "--dataset", "incident@1", "--judge", "none", "--output", "run.json")
    run(*words)
    first = Run.load(tmp_path / "run.json")
    assert first.source.startswith("incident@1 (")
    assert {row.sample.id: row.score("lexical_groundedness") for row in first.rows} == {"bad": 0.0, "good": 1.0}
    answers = tmp_path / "answers.jsonl"
    rows = [{"id": "bad", "response": "The warranty is two years."}, {"id": "good", "response": "On Mondays."}]
    answers.write_text("\n".join(map(json.dumps, rows)))
    run(*words, answers)
    second = Run.load(tmp_path / "run.json")
    assert {row.score("lexical_groundedness") for row in second.rows} == {1.0}
    assert [row.sample.question for row in second.rows] == [QUESTIONS["bad"][0], QUESTIONS["good"][0]]
    answers.write_text(json.dumps(rows[0]))
    assert "no answer with the id good, a row of incident@1" in run(*words, answers, code=2).stderr
    assert "give a FILE or --dataset" in run("evaluate", "--judge", "none", code=2).stderr
    assert "there is no data set other" in run("evaluate", "--dataset", "other", code=2).stderr


def test_a_person_is_forgotten_in_data_sets_too(run):
    run("dataset", "add", "incident", "--exchange", "bad")
    assert "data set rows: 1" in run("forget", "--session", "s-1").stdout
    assert json.loads(run("dataset", "show", "incident").stdout)["records"] == []


def test_data_sets_and_learned_prompts_move_with_the_store(run, tmp_path):
    run("dataset", "add", "incident", "--exchange", "bad")

    async def ask(url, use):
        async with contextlib.aclosing(open_templates(url)) as kept:
            return await use(kept)

    about = {"kind": "chat:u", "literals": ("a",), "slots": (), "split": {}, "seen": 9, "learned_at": 1.0}
    template = StoredTemplate(app="shop", version="v", state="confirmed", **about)
    asyncio.run(ask(f"sqlite:///{tmp_path}/data/store.db", lambda kept: kept.put_template(template)))
    target = postgres().database()
    moved = CliRunner().invoke(main, ["move", "--from", f"sqlite:///{tmp_path}/data/store.db", "--to", target])
    assert moved.exit_code == 0, moved.output
    assert "1 learned prompts" in moved.stdout
    assert asyncio.run(ask(target, lambda kept: kept.templates())) == [template]
    assert "2 rows and versions of data sets" in moved.stdout
    (tmp_path / "moved.toml").write_text(f'[[upstreams]]\nbase_url = "http://127.0.0.1:9"\n[store]\nurl = "{target}"\n')
    shown = run("dataset", "show", "incident", "--config", tmp_path / "moved.toml")
    assert json.loads(shown.stdout)["records"][0]["id"] == "bad"

"""`gaugeway trial` on a store as the product fills it; exit codes are a promise to CI."""

import asyncio
import contextlib
import json

import pytest
from click.testing import CliRunner

from gaugeway.cli.main import main
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.trials import Trials
from tests.gaugeway.storage.test_trials import KEPT, answer

METRIC = "lexical_groundedness"
CONFIG = """
[[upstreams]]
base_url = "http://127.0.0.1:9/v1"

[[upstreams]]
name = "other"
base_url = "http://127.0.0.1:8/v1"
api_key = "sk-other-4711"

[prices."candidate-*"]
input = 1.0
output = 10.0
"""
START = ("--app", "shop", "--primary", METRIC, "--metrics", METRIC, "--send", "redacted", "--usd", "5")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "gaugeway.toml").write_text(CONFIG)

    def run(*words, code=0, stdin=None):
        options = ["--config", str(tmp_path / "gaugeway.toml"), "--data-dir", str(tmp_path)]
        result = CliRunner().invoke(main, ["trial", *map(str, words), *options], input=stdin)
        assert result.exit_code == code, result.output
        return result.output

    return run


def start(run, name="t", *more, candidate=("upstream=other", "model=candidate-1"), **how):
    given = [word for text in candidate for word in ("--candidate", text)]
    return run("start", name, *START, *given, *(more or ("--yes",)), **how)


def stored(folder, work):
    """Do something with the trials of a folder."""

    async def done():
        async with contextlib.aclosing(Trials(SQLiteDocuments(folder))) as trials:
            return await work(trials)

    return asyncio.run(done())


def pairs(folder, live, candidate, count=300):
    """Settle so many answers, as a runner would."""

    async def settle(trials):
        trial = (await trials.get("t")).trial
        for number in range(count):
            name, scores = f"x{number}", {METRIC: [live(number), candidate(number)], "answered": [1.0, 1.0]}
            await trials.claim(trial, "candidate", name, 0.0, 0.0)
            await trials.settle("t", answer(name, at=float(number), judge_usd=0.0, facts={"scores": scores}))

    stored(folder, settle)


def test_start_list_show_stop_and_remove(run, tmp_path, caplog):
    caplog.set_level("INFO", "gaugeway.audit")
    said = start(run)
    assert "requests of shop go to http://127.0.0.1:8/v1" in said
    assert "model = candidate-1" in said
    made = stored(tmp_path, lambda trials: trials.get("t")).trial
    assert (made.arms[0].api_key, made.arms[0].price.output, made.usd, made.judge_usd) == ("upstream:other", 10.0, 5, 5)
    assert made.by
    stored(tmp_path, lambda trials: trials.keep([("t", "x", KEPT)], made.started_at))
    assert run("list").splitlines()[1].split()[:3] == ["t", "shop", "running"]
    assert run("show", "t").startswith("# Not decided yet")
    assert json.loads(run("show", "t", "--format", "json"))["waiting"] == 1
    run("stop", "t")
    assert "no trial t runs" in run("stop", "t", code=2)
    assert json.loads(run("show", "t", "--format", "json"))["why"] == "stopped"
    run("remove", "t")
    assert "there is no trial t" in run("remove", "t", code=2)
    assert "no trials" in run("list")
    assert "there is no trial t" in run("show", "t", code=2)
    for action in ("trial_start", "trial_stop", "trial_remove"):
        assert action in caplog.text
    assert "4711" not in caplog.text


def test_nothing_starts_without_consent(run, tmp_path):
    start(run, "t", "--margin", "0.05", stdin="n\n", code=1)
    assert stored(tmp_path, lambda trials: trials.all()) == []
    start(run, "t", "--margin", "0.05", stdin="y\n")
    assert stored(tmp_path, lambda trials: trials.get("t")).trial.margin == 0.05


def test_candidates_are_written_as_keys_and_values(run, tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_KEY", "sk")
    (tmp_path / "prompt.txt").write_text("Be brief.")
    candidate = (
        *("name=one", "upstream=other", "model=candidate-1", "params.temperature=0", 'params.stop=["x"]'),
        *("params.seed=7", "max_contexts=3", "drop_source=a.md", f"system_prompt={tmp_path / 'prompt.txt'}"),
        *("name=two", "base_url=http://127.0.0.1:7/v1", "api_key=${OWN_KEY}", "price.input=1", "price.output=2.5"),
    )
    start(run, candidate=candidate)
    one, two = stored(tmp_path, lambda trials: trials.get("t")).trial.arms
    assert one.params == {"temperature": 0, "stop": ["x"], "seed": 7}
    assert (one.name, one.max_contexts, one.drop_source, one.system_prompt) == ("one", 3, "a.md", "Be brief.")
    assert (two.name, two.base_url, two.api_key, two.price.output) == (
        "two",
        "http://127.0.0.1:7/v1",
        "${OWN_KEY}",
        2.5,
    )


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (("model",), "expected KEY=VALUE"),
        (("model=unpriced",), "arms.price"),
        (("upstream=gone",), "arms.upstream"),
        (("tools.x=1", "model=candidate-1"), "only params and price"),
        (("model=candidate-1", "base_url=http://127.0.0.1:7/v1", "api_key=sk-plain"), "must not be stored"),
        (("model=candidate-1", "max_contexts=few"), "max_contexts"),
        (("model=candidate-1", "unheard_of=1"), "unheard_of"),
        (("model=candidate-1", "system_prompt=/nowhere/prompt.txt"), "/nowhere/prompt.txt"),
        (("upstream=live", "model=candidate-1"), "arms.upstream"),
        (("model=candidate-1",), "api_key"),
    ],
)
def test_what_is_wrong_is_said_and_starts_nothing(run, tmp_path, candidate, said):
    assert said in start(run, candidate=candidate, code=2)
    assert stored(tmp_path, lambda trials: trials.all()) == []


@pytest.mark.parametrize(
    ("scores", "code", "said"),
    [
        ((lambda n: n % 2 / 2, lambda n: 0.5 + n % 2 / 2), 0, "Ship candidate"),
        ((lambda n: 0.5 + n % 2 / 2, lambda n: n % 2 / 2), 1, "Do not ship"),
    ],
    ids=["ship", "do not ship"],
)
def test_a_gate_ends_with_the_verdicts_code_and_writes_reports(run, tmp_path, scores, code, said):
    start(run)
    pairs(tmp_path, *scores)
    files = [tmp_path / f"gate{suffix}" for suffix in (".json", ".md", ".html", ".xml")]
    output = [word for path in files for word in ("--output", path)]
    assert said in run("gate", "t", *output, code=code)
    assert all(path.stat().st_size > 100 for path in files)


def test_a_gate_does_not_wait_for_ever(run, tmp_path):
    start(run)
    assert "Not decided yet" in run("gate", "t", "--timeout", "1s", code=2)
    run("stop", "t")
    assert "Not decided: the trial ended (stopped)" in run("gate", "t", "--timeout", "1h", code=2)
    assert "there is no trial gone" in run("gate", "gone", code=2)
    assert "a report ends in" in run("gate", "t", "--output", tmp_path / "a.pdf", code=2)
    assert run("gate", "t", "--timeout", "soon", code=2)

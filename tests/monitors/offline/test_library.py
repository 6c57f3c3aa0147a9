"""`from monitors import evaluate`, the test helper, and the examples, as others use them."""

import asyncio
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import monitors
from examples import rules
from examples.custom_metric import Brevity
from gaugeway.records import Score
from gaugeway.settings import ConfigError
from gaugeway.settings import shared as config
from gaugeway.settings.shared import GroundingVerifier
from monitors import evaluate
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.offline import DataError, Progress, Run, evaluate_async
from monitors.testing import gaugeway_case
from tests.support.llm_server import LLMServer, Reply
from tests.support.verifier_server import HIGH, LOW, VerifierServer

ROOT = Path(__file__).parents[3]
DATA = [
    {"question": "How long?", "answer": "The warranty is two years.", "contexts": ["The warranty is two years."]},
    {"question": "Who pays?", "answer": "The moon pays in cheese.", "contexts": ["Returns are free."]},
]


def test_dicts_without_a_judge():
    run = evaluate(DATA)
    assert isinstance(run, Run)
    assert [one.metric for one in run.summary] == ["lexical_groundedness"]
    good, bad = run.scores("lexical_groundedness")
    assert good > 0.8
    assert bad < 0.4
    assert run.worst("lexical_groundedness", 1)[0].sample.question == "Who pays?"
    assert run.to_dict()["summary"][0]["n"] == 2
    assert "<title>Evaluation of data</title>" in run.to_html()
    assert str(run).startswith("2 samples\nlexical_groundedness: 0.")


def test_objects_through_renamed_fields_and_generators():
    @dataclass
    class Turn:
        asked: str
        said: str
        found: list[str]

    turns = (Turn(one["question"], one["answer"], one["contexts"]) for one in DATA)
    fields = {"user_input": "asked", "response": "said", "retrieved_contexts": "found"}
    assert evaluate(turns, fields=fields).scores("lexical_groundedness") == evaluate(DATA).scores(
        "lexical_groundedness"
    )


def test_own_metric_and_judge_as_objects():
    run = evaluate(DATA, metrics=["faithfulness", Brevity(words=1)], judge=rules.RuleJudge())
    assert run.scores("faithfulness") == [1.0, 0.0]
    assert run.scores("brevity") == [0.2, 0.2]
    assert [one.judge for one in run.measures] == ["rules", None]


def test_own_metric_and_judge_by_import_string_with_options():
    metrics = {"examples.custom_metric:Brevity": {"words": 10}, "faithfulness": {"contradiction_only": True}}
    run = evaluate(DATA, metrics=metrics, judge="examples.rules:RuleJudge")
    assert run.scores("brevity") == [1.0, 1.0]
    assert run.scores("faithfulness") == [1.0, 1.0]


def test_own_embeddings():
    run = evaluate(
        [{"answer": "two years", "reference": "two years"}],
        metrics=["answer_similarity"],
        embeddings=rules.WordVectors(),
    )
    assert run.scores("answer_similarity") == [pytest.approx(1.0)]


def test_a_model_behind_an_endpoint():
    answer = {"noncommittal": False, "claims": []}
    with LLMServer(Reply(content=answer)) as llm:
        judge = config.Judge(base_url=llm.url, model="stub", price_in=1.0)
        run = evaluate(DATA, metrics=["faithfulness"], judge=judge)
    assert run.summary[0].skipped == {"no_claims": 2}
    assert run.paid_usd == pytest.approx(2 * 10e-6)


def test_a_verifier_behind_an_endpoint_needs_no_judge():
    with VerifierServer() as server:
        grounding = GroundingVerifier(kind="classify", base_url=server.url, price_in=1.0)
        run = evaluate(DATA, metrics=["grounding"], judge=config.Judge(grounding=grounding))
        assert run.scores("grounding") == pytest.approx([HIGH, LOW])
        assert run.paid_usd == pytest.approx(2 * 100e-6)
        asked = len(server.requests)
        assert [one.metric for one in evaluate(DATA, judge="none").summary] == ["lexical_groundedness"]
        assert len(server.requests) == asked


def test_a_failed_metric_is_neither_zero_nor_an_exception():
    run = evaluate(DATA, metrics=["faithfulness"], judge=Scripted(lambda _: JudgeError("timeout", "60 s")))
    assert run.summary[0].mean is None
    assert run.summary[0].failed == {"timeout": 2}
    assert "no score (0 skipped, 2 failed)" in str(run)


def test_progress_and_run_file(tmp_path):
    seen = []

    def note(now: Progress):
        seen.append((now.done, now.total, now.reused))

    evaluate(DATA, run_file=tmp_path / "run.db", on_progress=note)
    evaluate(DATA, run_file=tmp_path / "run.db", on_progress=note)
    assert seen == [(1, 2, 0), (2, 2, 0), (1, 2, 1), (2, 2, 2)]


def test_inside_a_running_loop_as_in_a_notebook():
    async def cell():
        return evaluate(DATA), await evaluate_async(DATA)

    one, other = asyncio.run(cell())
    assert one.scores("lexical_groundedness") == other.scores("lexical_groundedness")

    async def failing():
        evaluate([])

    with pytest.raises(DataError, match="no record"):
        asyncio.run(failing())


def test_a_mapped_name_that_no_record_has_is_an_error_and_one_that_some_have_a_note():
    data = [{"query": "Who?", "answer": "Ann."}, {"question": "What?", "answer": "It."}]
    with pytest.raises(DataError) as caught:
        evaluate(data, metrics=["lexical_groundedness"], fields={"question": "qery"})
    assert caught.value.problems == [
        "fields question=qery: no record has 'qery', only 'query', 'answer', 'question'; did you mean 'query'?"
    ]
    run = evaluate(data, metrics=["lexical_groundedness"], fields={"question": "query"})
    assert "'query', the name of user_input, is in 1 of 2 records" in run.notes
    run = evaluate(data, metrics=["lexical_groundedness"], fields={"reference": "gold"}, limit=1)
    assert "'gold', the name of reference, is in 0 of 1 records" in run.notes


def test_records_that_cannot_be_read_are_told_by_number():
    with pytest.raises(DataError) as caught:
        evaluate([DATA[0], {"answer": 3}, None])
    assert caught.value.problems == [
        "record 2: answer: expected a text, got a number",
        "record 3: expected an object with fields, got null",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"metrics": ["faithfulness"]}, "needs a judge"),
        ({"metrics": [object()]}, "object is not a metric: it has no name"),
        ({"metrics": [Brevity(), Brevity(words=1)]}, "two metrics have the same name"),
        ({"metrics": {"faithfulness": {"strict": True}}, "judge": rules.RuleJudge()}, "unknown option"),
        ({"judge": "examples.rules:Nobody"}, "has no 'Nobody'"),
        ({"metrics": []}, "there is no metric"),
    ],
)
def test_what_cannot_be_evaluated_is_told(arguments, problem):
    with pytest.raises(ConfigError, match=problem):
        evaluate(DATA, **arguments)


def test_the_package_has_no_other_public_name():
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        _ = monitors.evalute


def test_importing_the_package_loads_nothing():
    code = (
        "import sys, monitors; sys.exit(any(name.startswith(('monitors.', 'numpy', 'rich')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# --- the test helper


def test_a_good_case_passes_and_gives_its_scores():
    case = gaugeway_case(
        question="How long?",
        response=DATA[0]["answer"],
        contexts=DATA[0]["contexts"],
        metrics=["lexical_groundedness", "faithfulness", "hallucination"],
        judge=rules.RuleJudge(),
    )
    assert case.scores["faithfulness"] == 1.0
    assert case.scores["hallucination"] == 0.0
    assert case.reasons["faithfulness"] == "1 of 1 claims are supported by the contexts"


def failing(**arguments):
    with pytest.raises(AssertionError) as caught:
        gaugeway_case(**{"question": "How long?", "contexts": ["The warranty is two years."], **arguments})
    return str(caught.value)


def test_a_bad_case_says_what_is_wrong_and_shows_the_claims():
    message = failing(
        response="The warranty is two years. Cats bark.",
        metrics=["faithfulness"],
        fail_under=0.9,
        judge=rules.RuleJudge(),
    )
    assert message.splitlines()[0] == "faithfulness is 0.500, below 0.9: 1 of 2 claims are supported by the contexts"
    assert "faithfulness: not_mentioned: Cats bark." in message
    assert "context 0: The warranty is two years." in message


def test_where_zero_is_best_the_floor_is_the_most_that_is_allowed():
    message = failing(
        response="The warranty is 9 years.",
        contexts=["The warranty is 2 years."],
        metrics=["hallucination"],
        fail_under={"hallucination": 0.1},
        judge=rules.RuleJudge(),
    )
    assert message.startswith("hallucination is 1.000, above 0.1")


@pytest.mark.parametrize(
    ("judge", "arguments", "word"),
    [
        (Scripted(lambda _: JudgeError("timeout", "60 s")), {}, "failed (timeout: 60 s)"),
        (rules.RuleJudge(), {"contexts": []}, "skipped (no_contexts)"),
    ],
)
def test_what_was_not_measured_is_not_fine(judge, arguments, word):
    message = failing(response="Two years.", metrics=["faithfulness"], fail_under=0.0, judge=judge, **arguments)
    assert message.startswith(f"faithfulness has no score: {word}")


def test_a_floor_for_a_metric_that_does_not_run_is_a_mistake():
    with pytest.raises(ValueError, match="'faith' is not among the metrics"):
        gaugeway_case(response="x", contexts=["x"], fail_under={"faith": 0.5})


@pytest.mark.full
def test_pytest_shows_the_line_of_the_test_and_the_message(tmp_path):
    test = tmp_path / "test_app.py"
    test.write_text(
        "from monitors.testing import gaugeway_case\n\n"
        "def test_answer():\n"
        "    gaugeway_case(response='Cats bark.', contexts=['Dogs bark at 9 pm.'], fail_under=0.9)\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        tmp_path,
        test,
    ]
    ran = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert re.search(r"E\s+AssertionError: lexical_groundedness is 0\.\d+, below 0\.9", ran.stdout)
    assert ">       gaugeway_case(" in ran.stdout or ">   " in ran.stdout
    assert "def gaugeway_case" not in ran.stdout


# --- the examples


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("evaluate_objects", "worst: You pay the postage yourself."),
        ("custom_metric", "brevity: 0."),
        ("custom_judge", "faithfulness: 0."),
    ],
)
def test_the_examples_run(name, words):
    command = [sys.executable, "-m", f"examples.{name}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert words in ran.stdout


@pytest.mark.full
def test_the_example_of_a_teams_tests_passes():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_rag_app.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout


def test_a_score_out_of_range_is_a_failure_of_its_metric():
    class Broken:
        name, version = "broken", "1"

        async def score(self, sample):
            return Score(float("nan"))

    assert evaluate(DATA, metrics=[Broken()]).summary[0].failed == {"invalid_score": 2}


def test_rows_as_a_data_frame():
    pandas = pytest.importorskip("pandas")
    data = [*DATA, {"question": "Nothing found?", "answer": "No."}]
    frame = evaluate(data).to_pandas()
    assert len(frame) == 3
    assert frame["lexical_groundedness"].dtype == "float64"
    assert frame["lexical_groundedness"].mean() == pytest.approx(evaluate(data).summary[0].mean)
    assert pandas.isna(frame["lexical_groundedness"][2])
    assert list(frame["lexical_groundedness.outcome"]) == ["scored", "scored", "skipped"]
    assert frame["lexical_groundedness.reason"][2] == "no_contexts"
    assert frame["retrieved_contexts"][0] == ["The warranty is two years."]
    assert frame["user_input"][1] == "Who pays?"


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        evaluate(DATA).to_pandas()

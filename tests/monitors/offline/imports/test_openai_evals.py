"""Evals, runs and items as OpenAI's API returns them, and the registry of openai/evals."""

import json
import textwrap

import pytest

from monitors.offline.data_errors import DataError
from monitors.offline.imports.openai_evals import load

SCORE = {
    "type": "score_model",
    "name": "Close to the reference",
    "model": "gpt-5-mini",
    "range": [0, 1],
    "pass_threshold": 0.6,
    "input": [
        {
            "role": "user",
            "content": [
                {
                    "type": "input_text",
                    "text": "Score how close the answers are.\nReference: {{item.reference_answer}}\n"
                    "Answer: {{ sample.output_text }}",
                }
            ],
        }
    ],
}
LABEL = {
    "type": "label_model",
    "name": "Tone",
    "model": "gpt-5-mini",
    "labels": ["polite", "neutral", "rude"],
    "passing_labels": ["polite", "neutral"],
    "input": [
        {"role": "developer", "content": "Label the tone of the answer to {{item.question}}."},
        {"role": "user", "content": {"type": "input_text", "text": "{{sample.output_text}}"}},
    ],
}
MATCH = {
    "type": "string_check",
    "name": "Match",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.correct }}",
    "operation": "eq",
}
COSINE = {
    "type": "text_similarity",
    "name": "Similar",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference_answer}}",
    "evaluation_metric": "cosine",
    "pass_threshold": 0.8,
}
PYTHON = {"type": "python", "name": "Code", "source": "def grade(sample, item): return 1.0", "image_tag": "2025-05-08"}
ITEM = {"question": "How long?", "reference_answer": "Two years."}


def an_eval(*graders, properties=("question", "reference_answer")):
    item = {"type": "object", "properties": {name: {"type": "string"} for name in properties}}
    schema = {"type": "object", "properties": {"item": item, "sample": {"type": "object"}}}
    return {
        "object": "eval",
        "id": "eval_1",
        "name": "support",
        "data_source_config": {"type": "custom", "schema": schema},
        "testing_criteria": list(graders),
        "created_at": 1743092076,
    }


def write(path, *values):
    text = "".join(json.dumps(one) + "\n" for one in values) if path.suffix == ".jsonl" else json.dumps(values[0])
    path.write_text(text)
    return path


@pytest.fixture
def import_(tmp_path):
    def run(*values, mapped=None, more=()):
        path = write(tmp_path / ("a.jsonl" if len(values) > 1 else "a.json"), *values)
        return load([path, *more], mapped or {})

    return run


def reasons(imported):
    return dict(imported.unmapped.keys())


def test_a_grader_that_scores_is_a_geval_metric(import_):
    made = import_(an_eval(SCORE))
    assert made.unmapped == {}
    assert made.models == ["gpt-5-mini"]
    table = made.metrics["geval:Close_to_the_reference"]
    assert table["params"] == ["reference", "response"]
    assert table["scale"] == [0, 10]
    assert table["threshold"] == 0.6
    assert table["criteria"].startswith("Score how close the answers are.\nReference: <reference>\nAnswer: <response>")
    assert "Here 0 is 0 and 1 is 10" in table["criteria"]


@pytest.mark.parametrize(
    ("range_", "threshold", "scale", "wanted"),
    [([1, 5], 4, [1, 5], 0.75), ([0, 10], 7, [0, 10], 0.7), ([0, 100], 50, [0, 10], 0.5), ([-1, 1], 0, [0, 10], 0.5)],
)
def test_a_range_of_whole_numbers_is_the_scale_and_any_other_is_rescaled(import_, range_, threshold, scale, wanted):
    (table,) = import_(an_eval({**SCORE, "range": range_, "pass_threshold": threshold})).metrics.values()
    assert (table["scale"], table["threshold"]) == (scale, wanted)
    assert ("Scores above run from" in table["criteria"]) == (range_ != scale)


def test_a_grader_that_labels_is_a_geval_metric_with_a_rubric(import_):
    (table,) = import_(an_eval(LABEL)).metrics.values()
    assert table["scale"] == [0, 1]
    assert table["rubric"] == {"0": "rude", "1": "polite, neutral"}
    assert table["params"] == ["question", "response"]
    assert "Label the tone of the answer to <question>.\n\n<response>" in table["criteria"]
    assert table["threshold"] == 0.5


def test_what_does_not_map_is_named_with_the_reason(import_):
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}
    made = import_(
        an_eval(
            MATCH,
            PYTHON,
            {**COSINE, "evaluation_metric": "bleu"},
            {**SCORE, "name": "Seen", "input": [image]},
            {
                **SCORE,
                "name": "Stocked",
                "input": [{"role": "user", "content": "{{item.stock}}: {{sample.output_text}}"}],
            },
            {**SCORE, "name": "Tools", "input": [{"role": "user", "content": "{{sample.output_tools}}"}]},
        )
    )
    assert made.metrics == {}
    why = reasons(made)
    assert "compares text (eq)" in why["string_check 'Match'"]
    assert "runs Python code" in why["python 'Code'"]
    assert "measures bleu" in why["text_similarity 'Similar'"]
    assert "input_image" in why["score_model 'Seen'"]
    assert "{{item.stock}}" in why["score_model 'Stocked'"]
    assert "{{sample.output_tools}}" in why["score_model 'Tools'"]


def test_cosine_is_answer_similarity_and_the_graders_of_a_multi_grader_are_separate(import_):
    multi = {
        "type": "multi",
        "name": "Both",
        "graders": {"close": SCORE, "similar": COSINE},
        "calculate_output": "0.5 * close + 0.5 * similar",
    }
    made = import_(an_eval(multi))
    assert set(made.metrics) == {"geval:Close_to_the_reference", "answer_similarity"}
    assert made.metrics["answer_similarity"] == {"threshold": 0.8}
    assert list(made.unmapped) == [("multi 'Both'", reasons(made)["multi 'Both'"])]
    assert "calculate_output" in reasons(made)["multi 'Both'"]


def test_output_items_have_question_history_response_reference_and_scores(import_):
    item = {
        "object": "eval.run.output_item",
        "id": "outputitem_1",
        "run_id": "evalrun_1",
        "status": "pass",
        "datasource_item_id": 5,
        "datasource_item": {"topic": "returns", "ground_truth": "Two years."},
        "results": [{"name": "Match", "sample": None, "passed": True, "score": 1.0}],
        "sample": {
            "input": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hi!"},
                {"role": "user", "content": "How long is the warranty?"},
            ],
            "output": [{"role": "assistant", "content": "Two years."}],
            "model": "gpt-5-mini",
        },
    }
    failed = {**item, "datasource_item_id": 6, "sample": {"error": {"code": "x"}, "input": [], "output": []}}
    made = import_({"object": "list", "data": [item, {**item, "datasource_item": {"topic": "b"}}, failed]})
    record = made.records[0]
    assert record["user_input"] == "How long is the warranty?"
    assert record["history"] == [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
    assert (record["response"], record["reference"], record["model"]) == ("Two years.", "Two years.", "gpt-5-mini")
    assert record["tags"] == {"topic": "returns", "run_id": "evalrun_1", "status": "pass", "openai.Match": "1.0"}
    assert "an output item has no output, only an error" in made.notes
    assert made.unmapped == {("a record", "has no question, no response and no contexts"): 1}


def test_a_template_names_the_reference_and_the_mapping_wins(import_, tmp_path):
    items = write(tmp_path / "items.jsonl", {"item": {"ticket": "Printer?", "correct": "Hardware", "gold": "HW"}})
    names = ("ticket", "correct", "gold")
    asked = {"user_input": "ticket"}
    (record,) = import_(an_eval(MATCH, properties=names), more=[items], mapped=asked).records
    assert (record["user_input"], record["reference"], record["tags"]) == ("Printer?", "Hardware", {"gold": "HW"})
    (record,) = import_(an_eval(MATCH, properties=names), more=[items], mapped=asked | {"reference": "gold"}).records
    assert (record["reference"], record["tags"]["correct"]) == ("HW", "Hardware")


def test_items_of_a_run_and_their_samples(import_):
    run = {
        "object": "eval.run",
        "id": "evalrun_1",
        "data_source": {
            "type": "completions",
            "input_messages": {"type": "template", "template": [{"role": "user", "content": "{{item.ask}}"}]},
            "source": {
                "type": "file_content",
                "content": [{"item": {"ask": "Who?", "lang": "en"}, "sample": {"output_text": "Ann."}}],
            },
        },
    }
    in_a_file = {"id": "evalrun_2", "data_source": {"type": "jsonl", "source": {"type": "file_id", "id": "file-1"}}}
    made = import_([run, in_a_file])
    assert made.records == [{"user_input": "Who?", "response": "Ann.", "tags": {"lang": "en"}}]
    assert "'file-1'" in reasons(made)["data of run 'evalrun_2'"]


def test_contexts_are_lists_of_texts_and_long_values_are_no_tags(import_):
    item = {"query": "Who?", "documents": [{"text": "Ann."}, "Bob.", {"n": 1}], "notes": "x" * 300, "n": 3}
    made = import_({"item": item})
    assert made.records[0]["retrieved_contexts"] == ["Ann.", "Bob.", '{"n": 1}']
    assert made.records[0]["tags"] == {"n": "3"}
    assert [what for what, _ in made.unmapped] == ["field 'notes'"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"x": 1}, "a.json: expected an eval (testing_criteria), a run"),
        ({"item": 3}, "a.json: item: expected an object, got a number"),
        (an_eval({"type": 3, "name": "x"}), "a.json: testing_criteria[0].type: expected a text, got a number"),
        (an_eval({**SCORE, "input": 3}), "a.json: testing_criteria[0]: not a score_model grader: "),
        (an_eval({"type": "label_model", "name": "x"}), "not a label_model grader: input is missing"),
        (an_eval({**SCORE, "range": [1]}), "not a score_model grader: "),
        ([1], "a.json: [0]: expected an object, got a number"),
        ("x", "a.json: expected an object or a list of objects, got a text"),
    ],
)
def test_a_malformed_file_is_an_error_with_its_field(import_, value, problem):
    with pytest.raises(DataError) as caught:
        import_(value)
    assert problem in caught.value.problems[0]


def test_a_bad_line_is_named(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text('{"item": {"question": "a"}}\n\n{"item": []}\n')
    with pytest.raises(DataError) as caught:
        load([path], {})
    assert caught.value.problems == [f"{path}:3: item: expected an object, got a list"]
    path.write_text('{"item": {"question": "a"}}\n{"item": \n')
    with pytest.raises(DataError) as caught:
        load([path], {})
    assert caught.value.problems[0].startswith(f"{path}:2: not JSON: ")


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ({"output_text": {"answer": "Two"}}, {"response in sample.output_text": "expected a text, got an object"}),
        ({"output_text": 3}, {"response in sample.output_text": "expected a text, got a number"}),
        ({"output": [{"role": "assistant", "content": None}]}, {"response in sample.output": "has no text"}),
        ({"choices": [{"message": {"tool_calls": []}}]}, {"response in sample.choices": "has no text"}),
        ({"output_text": {"answer": "x"}, "output": [{"role": "assistant", "content": "Two."}]}, {}),
        ({"output_text": ""}, {}),
        ({}, {}),
        (None, {}),
    ],
)
@pytest.mark.parametrize("name", ["item", "datasource_item"])
def test_an_output_that_is_not_read_is_named(import_, name, sample, expected):
    made = import_({name: ITEM, "sample": sample})
    assert reasons(made) == expected
    assert [one["user_input"] for one in made.records] == ["How long?"]


REGISTRY = """
qa-match:
  id: qa-match.dev.v0
  metrics: [accuracy]
qa-match.dev.v0:
  class: evals.elsuite.basic.match:Match
  args:
    samples_jsonl: qa/samples.jsonl
qa-fact.dev.v0:
  class: evals.elsuite.modelgraded.classify:ModelBasedClassify
  args:
    samples_jsonl: qa/samples.jsonl
    modelgraded_spec: fact
qa-closed.dev.v0:
  class: evals.elsuite.modelgraded.classify:ModelBasedClassify
  args:
    samples_jsonl: qa/samples.jsonl
    modelgraded_spec: closed
    modelgraded_spec_args:
      criteria: "correctness: is the answer correct?"
qa-all.dev.v0:
  class: evals.elsuite.modelgraded.classify:ModelBasedClassify
  args:
    samples_jsonl: ../../../secret.jsonl
    modelgraded_spec: closed
"""
CLOSED = """
prompt: |-
  [Task]: {input}
  [Submission]: {completion}
  [Criterion]: {criteria}
choice_scores: {"Y": 1.0, "N": 0.0}
choice_strings: 'YN'
args:
  criteria:
    relevance: "relevance: is it to the point?"
    concise: "conciseness: is it short?"
input_outputs: {input: completion}
"""


@pytest.fixture
def registry(tmp_path):
    root = tmp_path / "registry"
    for folder in ("evals", "data/qa", "modelgraded"):
        (root / folder).mkdir(parents=True)
    (root / "evals" / "qa.yaml").write_text(REGISTRY)
    (root / "modelgraded" / "closed.yaml").write_text(CLOSED)
    (tmp_path / "secret.jsonl").write_text('{"input": "secret", "ideal": "x"}\n')
    messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Who?"}]
    write(
        root / "data" / "qa" / "samples.jsonl",
        {"input": messages, "ideal": ["Ann", "Ann Lee"]},
        {"input": "Q", "ideal": "A"},
    )
    return root


def test_the_registry_of_openai_evals(registry):
    made = load([registry / "evals" / "qa.yaml"], {})
    assert [one["user_input"] for one in made.records] == ["Who?", "Q"]
    assert made.records[0]["reference"] == "Any one of these is correct:\n- Ann\n- Ann Lee"
    assert set(made.metrics) == {
        "geval:factuality",
        "geval:qa-closed.dev.v0",
        "geval:closed-relevance",
        "geval:closed-concise",
    }
    table = made.metrics["geval:qa-closed.dev.v0"]
    assert "[Task]: <question>\n[Submission]: <response>\n[Criterion]: correctness:" in table["criteria"]
    assert table["rubric"] == {"0": "N", "1": "Y"}
    why = reasons(made)
    assert "compares texts" in why["Match of qa-match.dev.v0"]
    assert "import it alone" in why["samples of qa-all.dev.v0"]
    assert len(why) == 2


def test_a_spec_with_a_likert_scale_and_one_without_scores(registry):
    path = registry / "modelgraded" / "humor.yaml"
    path.write_text("prompt: 'Funny?\n\n  {completion}'\nchoice_strings: '12345'\nchoice_scores: from_strings\n")
    (table,) = load([path], {}).metrics.values()
    assert table["scale"] == [1, 5]
    assert table["rubric"] == {str(n): str(n) for n in range(1, 6)}
    path.write_text("prompt: 'Which? {completion}'\nchoice_strings: 'AB'\n")
    made = load([path], {})
    assert "choice_scores" in reasons(made)["model-graded spec humor"]


def keyed(name, spec):
    """Return a spec under its name, as today's registry has them."""
    return f"{name}:\n" + textwrap.indent(spec.strip(), "  ") + "\n"


def test_specs_that_a_file_holds_by_name(registry):
    evals, specs = registry / "evals" / "qa.yaml", registry / "modelgraded"
    flat = load([evals], {}).metrics
    (specs / "closed.yaml").write_text(keyed("closed", CLOSED))
    assert load([evals], {}).metrics == flat
    assert set(load([specs / "closed.yaml"], {}).metrics) == {"geval:closed-relevance", "geval:closed-concise"}
    (specs / "closed.yaml").unlink()
    (specs / "broken.yaml").write_text("closed: [")
    assert "'closed' is not in the registry" in reasons(load([evals], {}))["ModelBasedClassify of qa-all.dev.v0"]
    humor = "prompt: 'Funny? {completion}'\nchoice_strings: '12345'\nchoice_scores: from_strings"
    (specs / "many.yaml").write_text(keyed("humor", humor) + keyed("closed", CLOSED) + "odd: {prompt: x}\n")
    assert load([evals], {}).metrics == flat
    made = load([specs / "many.yaml"], {})
    assert set(made.metrics) == {"geval:humor", "geval:closed-relevance", "geval:closed-concise"}
    assert reasons(made) == {"entry odd": "has neither a class and args nor prompt and choice_strings"}


def test_the_spec_fact_alone_is_factuality(registry):
    path = registry / "modelgraded" / "fact.yaml"
    path.write_text(keyed("fact", "prompt: '{input} {ideal} {completion}'\nchoice_strings: ABCDE"))
    made = load([path], {})
    assert (list(made.metrics), made.unmapped) == (["geval:factuality"], {})


def test_a_single_text_that_is_left_is_the_question(import_):
    made = import_({"item": {"ticket_text": "My printer burns.", "correct_label": "Hardware", "n": 3}})
    assert made.records == [{"user_input": "My printer burns.", "reference": "Hardware", "tags": {"n": "3"}}]
    assert any("'ticket_text' is taken as the question" in note for note in made.notes)
    made = import_({"item": {"a": "one", "b": "two"}})
    assert made.records == []
    assert reasons(made) == {"a record": "has no question, no response and no contexts"}


def test_a_threshold_outside_the_range_is_not_used(import_):
    made = import_(an_eval({**SCORE, "range": None, "pass_threshold": 3}))
    assert "threshold" not in made.metrics["geval:Close_to_the_reference"]
    assert list(made.notes) == ["pass_threshold 3 is outside the range from 0 to 1, and not used"]


def test_what_a_grader_compares_with_is_the_reference_whatever_its_name(import_, tmp_path):
    items = write(tmp_path / "items.jsonl", {"item": {"question": "Who?", "answer": "Ann"}})
    grader = {**COSINE, "reference": "{{item.answer}}"}
    made = import_(an_eval(grader, properties=("question", "answer")), more=[items])
    assert made.records == [{"user_input": "Who?", "reference": "Ann"}]
    assert made.metrics == {"answer_similarity": {"threshold": 0.8}}


def test_items_in_a_csv(tmp_path):
    (tmp_path / "items.csv").write_text('question,answer,area\n"Who, then?",Ann,people\n')
    made = load([tmp_path / "items.csv"], {})
    assert made.records == [{"user_input": "Who, then?", "response": "Ann", "tags": {"area": "people"}}]


def test_a_grader_of_an_unknown_type_is_named_and_the_others_are_imported(import_):
    made = import_(an_eval(SCORE, {"type": "endpoint", "name": "Ours", "url": "https://a.example"}))
    assert list(made.metrics) == ["geval:Close_to_the_reference"]
    assert made.unmapped == {("endpoint 'Ours'", reasons(made)["endpoint 'Ours'"]): 1}
    assert "is no type of grader that is known" in reasons(made)["endpoint 'Ours'"]


def test_a_page_that_is_not_the_last_says_that_others_are_missing(import_):
    page = {"object": "list", "data": [{"item": {"question": "a"}}], "has_more": True, "last_id": "x"}
    assert "has_more" in reasons(import_(page))["the pages after a.json"]
    assert import_({**page, "has_more": False}).unmapped == {}


@pytest.mark.parametrize(
    ("grader", "why"),
    [
        ({**LABEL, "passing_labels": []}, "it has no passing label"),
        ({**SCORE, "range": [0.5, 0.1]}, "its range 0.5 to 0.1 is empty: the minimum is above the maximum"),
        ({**SCORE, "range": [0.5, 0.5]}, "its range 0.5 to 0.5 is empty: the minimum equals the maximum"),
    ],
)
def test_a_grader_that_cannot_pass_says_why(import_, grader, why):
    assert list(reasons(import_(an_eval(grader))).values()) == [why]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl", b'{"item": {}}\n{"item": {"q": "M\xfcller"}}\n', ":2: not UTF-8: invalid start byte 0xfc"),
        ("a.json", b'{"item":\n {"q": "M\xfcller"}}\n', ":2: not UTF-8: invalid start byte 0xfc"),
        ("a.jsonl", b'{"item": {}}\n{"item": {"n": NaN}}\n', ":2: not JSON: NaN is no JSON number, write null"),
        ("a.json", b'[{"item": {}},\n\n{"item": {"n": -Infinity}}]\n', ":3: not JSON: -Infinity is no JSON number"),
    ],
)
def test_what_is_not_utf_8_or_json_is_named_with_its_line(tmp_path, name, content, problem):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load([tmp_path / name], {})
    assert caught.value.problems[0].startswith(f"{tmp_path / name}{problem}")

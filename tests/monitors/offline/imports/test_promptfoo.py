"""Configurations of promptfoo with the files they name, and results of its runs."""

import itertools
import json

import pytest

from monitors.offline.data_errors import DataError
from monitors.offline.imports.promptfoo import load

CONFIG = """
# a comment
description: support
prompts:
  - 'Answer {{question}} from {{context}}'
providers:
  - openai:gpt-5-mini
defaultTest:
  vars:
    lang: en
  assert:
    - type: llm-rubric
      value: The answer is polite and about {{question}}
      metric: Tone
      threshold: 0.7
    - type: context-faithfulness
      threshold: 0.9
    - type: not-contains
      value: AI language model
tests:
  - description: warranty
    vars:
      question: How long is the warranty?
      context: The warranty is two years.
    assert:
      - type: factuality
        value: It is {{lang}}.
    metadata:
      area: returns
  - vars:
      question: [Who pays?, Who sends?]
      context: file://docs/returns.md
    assert:
      - type: equals
        value: The customer.
      - type: javascript
        value: output.length < 100
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "project" / "docs").mkdir(parents=True)
    (tmp_path / "project" / "docs" / "returns.md").write_text("Returns are free.")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "project"


@pytest.fixture
def import_(folder):
    def run(content, name="promptfooconfig.yaml", mapped=None):
        path = folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return load(path, mapped or {})

    return run


def reasons(imported):
    return dict(imported.unmapped.keys())


def test_a_configuration_is_a_data_set_and_metrics(import_):
    made = import_(CONFIG)
    first, second, third = made.records
    assert first["user_input"] == "How long is the warranty?"
    assert first["retrieved_contexts"] == ["The warranty is two years."]
    assert first["reference"] == "It is en."
    assert first["tags"] == {"lang": "en", "area": "returns", "description": "warranty"}
    assert (second["user_input"], third["user_input"]) == ("Who pays?", "Who sends?")
    assert second["retrieved_contexts"] == ["Returns are free."]
    assert second["reference"] == "The customer."
    assert made.metrics["geval:Tone"] == {
        "criteria": "The answer is polite and about <question>",
        "params": ["question", "response"],
        "threshold": 0.7,
    }
    assert made.metrics["faithfulness"] == {"threshold": 0.9}
    assert made.metrics["geval:factuality"]["params"] == ["question", "reference", "response"]
    assert made.unmapped == {
        ("assertion not-contains", reasons(made)["assertion not-contains"]): 3,
        ("assertion equals", reasons(made)["assertion equals"]): 2,
        ("assertion javascript", reasons(made)["assertion javascript"]): 2,
    }
    assert any("there are no answers" in note for note in made.notes)


RESULT = {
    "promptIdx": 0,
    "testIdx": 0,
    "testCase": {
        "description": "warranty",
        "vars": {"question": "How long?"},
        "assert": [{"type": "answer-relevance"}, {"type": "context-recall", "value": "Two years", "threshold": 0.5}],
        "metadata": {"area": "returns"},
    },
    "provider": {"id": "openai:gpt-5-mini", "label": ""},
    "prompt": {"raw": "Answer How long?", "label": "plain"},
    "vars": {"question": "How long?", "context": ["Two years.", "Free."]},
    "response": {"output": "Two years.", "tokenUsage": {}},
    "success": True,
    "score": 0.5,
    "latencyMs": 1500,
    "gradingResult": {"pass": True, "score": 0.5, "componentResults": []},
}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"evalId": "e", "results": {"version": 3, "results": [RESULT], "stats": {}}, "config": {}}, "r.json"),
        ({"results": [RESULT]}, "r.json"),
        (json.dumps(RESULT) + "\n", "r.jsonl"),
    ],
)
def test_results_have_the_answers(import_, content, name):
    made = import_(content, name)
    assert made.records == [
        {
            "user_input": "How long?",
            "retrieved_contexts": ["Two years.", "Free."],
            "response": "Two years.",
            "reference": "Two years",
            "model": "openai:gpt-5-mini",
            "duration_s": 1.5,
            "tags": {
                "area": "returns",
                "description": "warranty",
                "prompt": "plain",
                "promptfoo.success": "true",
                "promptfoo.score": "0.5",
            },
        }
    ]
    assert made.metrics == {"answer_relevancy": {}, "context_recall": {"threshold": 0.5}}
    assert (made.unmapped, made.notes) == ({}, {})


def test_results_without_output_keep_their_question_and_are_noted(import_):
    failed = {**RESULT, "response": None, "error": "timeout"}
    structured = {**RESULT, "response": {"output": {"a": 1}}}
    made = import_({"results": [failed, structured]}, "r.json")
    assert "response" not in made.records[0]
    assert made.records[1]["response"] == '{"a": 1}'
    assert made.notes == {"1 result has no output, only an error": 1}


def test_rubrics_of_single_tests_are_their_references(import_):
    made = import_(
        """
tests:
  - vars: {q: Who?}
    assert:
      - {type: llm-rubric, value: 'names {{q}}'}
      - {type: g-eval, value: [is short, is kind]}
  - vars: {q: What?}
    assert:
      - {type: similar, value: It., threshold: 0.8}
      - {type: llm-rubric, value: says what}
""",
        mapped={"user_input": "q"},
    )
    assert [(one["user_input"], one["reference"], one["only_metrics"]) for one in made.records] == [
        ("Who?", "- names Who?\n- - is short\n- is kind", ["geval:rubric"]),
        ("What?", "It.", ["answer_similarity"]),
        ("What?", "says what", ["geval:rubric"]),
    ]
    assert set(made.metrics) == {"geval:rubric", "answer_similarity"}
    assert made.metrics["geval:rubric"]["criteria"] == "<response> meets every requirement in <reference>."
    assert made.unmapped == {}
    assert made.notes["a test with a reference and a rubric of its own is two records"] == 1


def test_tests_in_files(import_, folder):
    (folder / "more.csv").write_text(
        'question,__expected,__expected2,__metadata:area\n"Who, then?","similar(0.9):Ann",is-json,people\nWhat?,42,,\n'
    )
    (folder / "a.yaml").write_text("- vars: {question: Where?}\n  assert: [{type: contains, value: x}]\n")
    made = import_(
        "prompts: [x]\ntests:\n  - file://more.csv\n  - file://*.yaml\n  - file://gen.py\n", "conf.json5.yml"
    )
    questions = [one["user_input"] for one in made.records]
    assert questions == ["Who, then?", "What?", "Where?"]
    assert (made.records[0]["reference"], made.records[0]["tags"]) == ("Ann", {"area": "people"})
    assert made.records[1]["reference"] == "42"
    assert made.metrics == {"answer_similarity": {"threshold": 0.9}}
    assert reasons(made)["tests in file://gen.py"] == "is code, and no code is run"


@pytest.mark.parametrize("name", ["file://../secret.txt", "file:///etc/hostname", "https://example.org/x.yaml"])
def test_files_outside_the_folder_are_not_read(import_, folder, name):
    made = import_(f"tests:\n  - vars: {{question: Q, context: '{name}'}}\n")
    assert "secret" not in json.dumps(made.records)
    if name.startswith("file://"):
        assert made.records == [{"user_input": "Q"}]
        assert list(reasons(made)) == [f"a variable in {name}"]


@pytest.mark.parametrize("given", ["{q: 'file:///etc/hostname'}", "file://gone.yaml", "{other: x}"])
def test_a_prompt_without_the_value_of_its_variable_is_no_question(import_, given):
    made = import_(f"prompts: ['{{{{q}}}}']\ntests:\n  - vars: {given}\n  - vars: {{q: Who?}}\n")
    assert [record["user_input"] for record in made.records] == ["Who?"]
    assert reasons(made)["a record"] == "has no question, no response and no contexts"


def test_a_link_out_of_the_folder_is_not_followed(import_, folder):
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    made = import_("tests:\n  - vars: {question: Q, context: 'file://link.txt'}\n")
    assert made.records == [{"user_input": "Q"}]


_TEN = ", ".join(["x"] * 10)
_EXPANDING = f"a: &a [{_TEN}]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in itertools.pairwise("abcdefgh")
)
_COMBINED = "tests:\n  - vars:\n" + "".join(f"      v{n}: [{_TEN}]\n" for n in range(6))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tests:\n  - vars: [1]\n", "promptfooconfig.yaml:2: tests[0].vars: expected an object, got a list"),
        ("tests:\n  - assert:\n      - value: x\n", ":3: tests[0].assert[0].type: expected a text, got null"),
        ("tests:\n  - 3\n", ":2: tests[0]: expected a test or the name of a file, got a number"),
        ("tests: [\n", "not YAML: "),
        ("hello: x\n", "promptfooconfig.yaml:1: expected tests and prompts"),
        ("", "is empty"),
        ("a: &a [*a]\ntests: []\n", "an alias contains itself"),
        ("- " * 200 + "x\n", ":1: nested more than 100 deep"),
        (_EXPANDING, "more than 1,000,000 values, with aliases expanded"),
        (_COMBINED, "its lists have more than 100,000 combinations"),
        ("tests: []\nprompts: [x]\n", "has no test and no result"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_line_and_field(import_, text, problem):
    with pytest.raises(DataError) as caught:
        import_(text)
    assert problem in caught.value.problems[0]


def test_code_in_yaml_is_not_run(import_):
    with pytest.raises(DataError, match="not YAML"):
        import_("tests: !!python/object/apply:os.system ['touch pwned']\n")


def test_a_rubric_of_a_variable_is_filled_for_each_test(import_):
    made = import_(
        """
defaultTest: {assert: [{type: llm-rubric, value: 'obeys {{rule}}'}, {type: factuality, value: '{{gold | upper}}'}]}
tests: [{vars: {question: A?, rule: be kind}}, {vars: {question: B?, rule: be brief}}]
"""
    )
    assert [one["reference"] for one in made.records] == ["obeys be kind", "obeys be brief"]
    assert list(made.metrics) == ["geval:rubric"]
    assert made.unmapped == {
        ("assertion factuality", "its value uses {{gold}}, which is no variable, or has a filter"): 2
    }


def test_facts_of_one_test_are_one_reference_and_other_references_exclude_each_other(import_):
    made = import_(
        """
tests:
  - vars: {query: Who?, context: Ann.}
    assert:
      - {type: factuality, value: It is Ann.}
      - {type: context-recall, value: Ann is meant., threshold: 0.9}
      - {type: similar, value: Ann}
"""
    )
    assert made.records[0]["reference"] == "It is Ann.\nAnn is meant."
    assert set(made.metrics) == {"geval:factuality", "context_recall"}
    assert made.unmapped == {("assertion similar", "its test has another reference already"): 1}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file://gen.py:make", "is code, and no code is run"),
        ("file://gen.mjs", "is code, and no code is run"),
        ("exec:./make_tests", "is code, and no code is run"),
        ("https://example.com/tests.csv", "is not a local file, and nothing is downloaded"),
        ("file://tests.xlsx", "is in a file of another kind than .yaml, .yml, .json, .jsonl, .csv"),
        ("file://none.csv", "does not exist or is outside the configuration's folder"),
        ("file://../none.csv", "does not exist or is outside the configuration's folder"),
    ],
)
def test_tests_that_are_not_read_are_named_with_the_reason(import_, folder, name, why):
    for file in ("gen.py", "gen.mjs", "make_tests", "tests.xlsx"):
        (folder / file).write_text("x")
    assert reasons(import_(f"prompts: [x]\ntests: '{name}'\n")) == {f"tests in {name}": why}


def test_a_record_is_scored_only_by_the_metrics_of_its_own_assertions(import_):
    made = import_(
        """
defaultTest:
  vars: {product: Orla}
  assert: [{type: llm-rubric, value: 'is polite & mentions {{product}}'}]
tests:
  - vars: {question: How long?, ground_truth: 24 months}
    assert: [{type: factuality, value: '{{ground_truth}}'}]
  - vars: {question: Who pays?}
    assert: [{type: equals, value: The customer.}]
  - vars: {question: Who sends?}
    assert: [{type: llm-rubric, value: names the sender}]
"""
    )
    assert made.metrics["geval:llm-rubric"] == {
        "criteria": "is polite & mentions Orla",
        "params": ["question", "response"],
    }
    assert [(one["user_input"], one.get("reference"), one["only_metrics"]) for one in made.records] == [
        ("How long?", "24 months", ["geval:llm-rubric", "geval:factuality"]),
        ("Who pays?", "The customer.", ["geval:llm-rubric"]),
        ("Who sends?", "names the sender", ["geval:llm-rubric", "geval:rubric"]),
    ]
    assert set(made.unmapped) == {("assertion equals", reasons(made)["assertion equals"])}
    assert any("only_metrics" in note for note in made.notes)


def test_a_test_without_an_imported_assertion_is_scored_by_none_and_that_is_noted(import_):
    made = import_(
        "tests: [{vars: {question: A?}, assert: [{type: answer-relevance}]},"
        " {vars: {question: B?}}, {vars: {question: C?}}]"
    )
    assert [one["only_metrics"] for one in made.records] == [["answer_relevancy"], [], []]
    assert made.notes["a record has no assertion that is imported: no metric scores it"] == 2


def test_records_with_the_same_assertions_name_no_metrics(import_):
    made = import_(
        "defaultTest: {assert: [{type: answer-relevance}]}\ntests: [{vars: {question: A?}}, {vars: {question: B?}}]"
    )
    assert all("only_metrics" not in one for one in made.records)


def test_the_rubric_of_a_record_with_an_id_has_an_id_of_its_own_and_no_second_duration(import_):
    test = {
        "vars": {"id": "7", "question": "Q?", "reference": "R"},
        "assert": [{"type": "llm-rubric", "value": "is {{x}}"}],
    }
    test["vars"]["x"] = "kind"
    other = {"vars": {"id": "8", "question": "Q2?", "x": "short"}, "assert": test["assert"]}
    made = import_({"results": [{**RESULT, "testCase": one, "vars": one["vars"]} for one in (test, other)]}, "r.json")
    assert [(one["id"], one["reference"], one.get("duration_s"), one["only_metrics"]) for one in made.records] == [
        ("7", "R", 1.5, []),
        ("7-rubric", "is kind", None, ["geval:rubric"]),
        ("8", "is short", 1.5, ["geval:rubric"]),
    ]

"""A record becomes a sample, whatever names its fields have; what is wrong is told by field."""

from dataclasses import dataclass, replace

import pytest

from gaugeway.records import Context, Sample
from monitors.offline.data_errors import DataError
from monitors.offline.dataset_fields import Reader, content_key

OURS = {
    "id": "a",
    "user_input": "Who?",
    "response": "Ann.",
    "retrieved_contexts": ["Ann did it.", "Bob did not."],
    "retrieved_context_ids": ["p1", 7],
    "reference": "Ann",
    "reference_contexts": ["Ann did it."],
    "reference_context_ids": ["p1"],
    "tags": {"lang": "en", "n": 3},
}


def problems(record):
    with pytest.raises(DataError) as caught:
        Reader().sample(record)
    return caught.value.problems


def test_every_field_of_the_contract_arrives():
    sample = Reader().sample(OURS)
    assert sample == Sample(
        id="a",
        started_at=0.0,
        question="Who?",
        response="Ann.",
        contexts=(Context(text="Ann did it.", id="p1"), Context(text="Bob did not.", id="7")),
        context_source="data_set",
        reference="Ann",
        reference_contexts=("Ann did it.",),
        reference_context_ids=("p1",),
        tags={"lang": "en", "n": "3"},
    )


@pytest.mark.parametrize(
    "names",
    [
        ("question", "answer", "contexts", "ground_truth"),
        ("input", "actual_output", "retrieval_context", "expected_output"),
    ],
)
def test_the_names_of_other_tools_mean_the_same(names):
    other = dict(zip(names, ("Who?", "Ann.", ["Ann did it."], "Ann"), strict=True))
    ours = dict(zip(("user_input", "response", "retrieved_contexts", "reference"), other.values(), strict=True))
    assert Reader().sample(other) == Reader().sample(ours)


def test_two_names_of_one_field_must_agree():
    assert Reader().sample({"question": "Who?", "input": "Who?", "answer": "x"}).question == "Who?"
    assert problems({"question": "Who?", "input": "What?", "answer": "x"}) == [
        "input: conflicts with question, another name of the same field"
    ]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({**OURS, "response": 3}, "response: expected a text, got a number"),
        ({**OURS, "retrieved_contexts": "one text"}, "retrieved_contexts: expected a list of texts, got a text"),
        ({**OURS, "reference_contexts": ["a", None]}, "reference_contexts: [1] expected a text, got null"),
        ({**OURS, "retrieved_contexts": [{"body": "x"}, "b"]}, "retrieved_contexts: [0] expected a text, or an object"),
        ({**OURS, "retrieved_context_ids": ["p1"]}, "retrieved_context_ids: 1 ids for 2 contexts"),
        ({**OURS, "tags": "a"}, "tags: expected an object or a list of texts, got a text"),
        ({**OURS, "id": True}, "id: expected a name or a number, got true or false"),
        ({**OURS, "id": " "}, "id: expected a name or a number, got a text"),
        ({"id": "a", "reference": "x"}, "no field with content"),
        (["a", "b"], "expected an object with fields, got a list"),
        (3, "expected an object with fields, got a number"),
        ("text", "expected an object with fields, got a text"),
    ],
)
def test_what_is_wrong_is_told_by_field(record, problem):
    found = problems(record)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_all_problems_of_a_record_are_told_at_once():
    assert len(problems({"user_input": 1, "response": 2, "tags": 3})) == 3


def test_null_and_nan_are_no_value():
    sample = Reader().sample({"question": "Who?", "answer": "Ann.", "reference": None, "contexts": float("nan")})
    assert sample.reference is None
    assert (sample.contexts, sample.context_source) == ((), "none")


def test_retrieval_that_found_nothing_is_not_the_same_as_no_retrieval():
    assert Reader().sample({"answer": "x", "contexts": []}).context_source == "data_set"
    assert Reader().sample({"answer": "x"}).context_source == "none"


def test_ids_alone_are_contexts_without_text():
    sample = Reader().sample({"question": "Who?", "retrieved_context_ids": ["p1", "p2"]})
    assert [(one.text, one.id) for one in sample.contexts] == [("", "p1"), ("", "p2")]


def test_an_id_is_used_once():
    reader = Reader()
    reader.sample(OURS)
    with pytest.raises(DataError, match="id: 'a' is a duplicate"):
        reader.sample(OURS)


def test_without_an_id_the_question_names_the_sample_in_every_run():
    one, two = Reader(), Reader()
    first = one.sample({"question": "Who?", "answer": "Ann."})
    again = one.sample({"question": "Who?", "answer": "Bob."})
    assert two.sample({"question": "Who?", "answer": "something else"}).id == first.id
    assert again.id == f"{first.id}-2"


def test_a_misspelt_field_is_told_with_the_one_that_may_be_meant():
    reader = Reader()
    reader.sample({"answer": "x", "retreived_contexts": ["a"], "scores": {}})
    (note,) = reader.notes()
    assert note.startswith("field 'retreived_contexts' (1 record) is not used; did you mean 'retrieved_contexts'? ")
    assert note.endswith("? fields retrieved_contexts=retreived_contexts reads it")


def test_objects_are_records_too():
    @dataclass
    class Turn:
        question: str
        answer: str

    class Loose:
        input = "Who?"
        actual_output = "Ann."

    expected = Reader().sample({"question": "Who?", "answer": "Ann."})
    assert Reader().sample(Turn("Who?", "Ann.")) == expected
    assert Reader().sample(Loose()) == expected
    assert Reader().sample(expected) is expected


def test_fields_can_be_renamed():
    reader = Reader({"user_input": "asked", "response": "said"})
    assert reader.sample({"asked": "Who?", "said": "Ann."}).question == "Who?"
    with pytest.raises(ValueError, match="'respons' is not a field"):
        Reader({"respons": "said"})


@pytest.mark.parametrize(
    "change",
    [
        {"response": "Bob."},
        {"question": "What?"},
        {"reference": None},
        {"contexts": (Context(text="Ann did it.", id="p1"),)},
        {"contexts": (Context(text="Ann did it.", id="p2"), Context(text="Bob did not.", id="7"))},
        {"tags": {}},
        {"reference_context_ids": ()},
    ],
)
def test_the_content_key_sees_what_a_metric_sees(change):
    sample = Reader().sample(OURS)
    assert content_key(replace(sample, **change)) != content_key(sample)


def test_the_content_key_does_not_see_who_asked_when():
    sample = Reader().sample(OURS)
    assert content_key(replace(sample, id="b", started_at=9.0, rate=0.5, trace_id="t")) == content_key(sample)


def test_half_a_surrogate_pair_becomes_a_question_mark():
    sample = Reader().sample({"answer": "a\ud800", "contexts": [{"text": "b\udc00"}], "tags": {"k": "\ud800"}})
    assert (sample.response, sample.contexts[0].text, sample.tags) == ("a?", "b?", {"k": "?"})


def test_a_plain_list_of_tags_is_taken_too():
    assert Reader().sample({"answer": "x", "tags": ["slow", "new"]}).tags == {"slow": "true", "new": "true"}


def test_samples_have_different_ids_too():
    reader = Reader()
    reader.sample(Sample(id="a", started_at=0.0))
    with pytest.raises(DataError, match="is a duplicate"):
        reader.sample(Sample(id="a", started_at=0.0))


def test_a_field_can_be_renamed_by_any_of_its_names_and_the_mapped_one_is_used():
    reader = Reader({"question": "asked", "ground_truth": "gold"})
    sample = reader.sample({"asked": "Who?", "question": "a form", "gold": "Ann", "reference": "Bob", "answer": "Ann."})
    assert (sample.question, sample.reference) == ("Who?", "Ann")
    assert reader.sample({"question": "only here", "reference": "x"}).question == "only here"
    with pytest.raises(ValueError, match="'user_input' is mapped twice"):
        Reader({"question": "a", "user_input": "b"})


@pytest.mark.parametrize(
    ("given", "reference"), [(["Ann"], "Ann"), (["Ann", "Ann Lee"], "Ann\nAnn Lee"), ([], None), ("Ann", "Ann")]
)
def test_ground_truths_of_old_ragas_are_the_reference(given, reference):
    assert Reader().sample({"question": "Who?", "ground_truths": given}).reference == reference


def test_ground_truths_hold_texts_only():
    assert problems({"question": "Who?", "ground_truths": [1]}) == ["ground_truths: [0] expected a text, got a number"]
    assert problems({"question": "Who?", "ground_truths": ["A"], "reference": "B"}) == [
        "reference: conflicts with ground_truths, another name of the same field"
    ]


def test_a_record_without_content_says_which_option_reads_its_fields():
    with pytest.raises(DataError, match=r"it has 'frage', 'antwort': --map user_input=frage reads one of them"):
        Reader(option="--map").sample({"frage": "Why?", "antwort": "So.", "id": "1"})
    reader = Reader(option="--map")
    reader.sample({"question": "Why?", "notes": "x"})
    assert reader.notes() == ["field 'notes' (1 record) is not used; --map FIELD=notes reads it"]

"""What a passage is called, and which passages claims rest on."""

from __future__ import annotations

import pytest

from gaugeway.records import Context, Evaluation, Sample, Score, Skipped
from gaugeway.text.passage_identity import LONGEST_NAME, passage_names, passage_origins
from monitors.metrics.judged.passage_verdicts import passage_verdicts


def named(*contexts, source="known", app="shop", salt="s"):
    return passage_names(Sample(id="x", started_at=0.0, app=app, contexts=contexts, context_source=source), salt=salt)


def test_an_id_comes_before_a_source_and_a_source_before_the_hash_of_a_text():
    found = named(
        Context(text="a", id="chunk-7", source="faq.md"),
        Context(text="b", source="faq.md"),
        Context(text="two  words"),
        Context(text=" "),
    )
    assert found[:2] == ("chunk-7", "faq.md")
    assert found[2].startswith("text:")
    assert found[3] == ""


def test_a_passage_with_an_id_has_its_source_as_origin_and_one_named_by_its_source_has_none():
    contexts = (
        Context(text="a", id="chunk-7", source=" faq.md "),
        Context(text="b", source="faq.md"),
        Context(text="c", id="faq.md", source="faq.md"),
        Context(text="d", id="chunk-8"),
        Context(text="e", id="chunk-9", source="text:3f9a"),
    )
    sample = Sample(id="x", started_at=0.0, app="shop", contexts=contexts, context_source="known")
    assert passage_origins(sample, salt="s") == ("faq.md", "", "", "", "id:text:3f9a")


def test_the_hash_of_a_text_depends_on_salt_and_app_and_not_on_spaces():
    (one,) = named(Context(text="two  words"))
    assert (one,) == named(Context(text="two words\n"))
    assert (one,) != named(Context(text="two words"), salt="other")
    assert (one,) != named(Context(text="two words"), app="bank")


def test_ids_that_only_count_the_passages_are_passed_over_unless_the_app_sent_them():
    numbered = [Context(text="a", id="1", source="a.md"), Context(text="b", id="2"), Context(text="c", id="1")]
    found = named(*numbered)
    assert found[0] == "a.md"
    assert [one[:5] for one in found[1:]] == ["text:", "text:"]
    assert named(*numbered, source="explicit") == ("1", "2", "1")
    assert named(Context(text="a", id="17"), Context(text="b", id="4")) == ("17", "4")


def test_an_id_that_looks_like_the_hash_of_a_text_is_not_taken_for_it():
    (hashed,) = named(Context(text="Two years."))
    names = named(
        Context(text="a", id=hashed), Context(text="b", source=f" {hashed}"), Context(text="c", id=f"id:{hashed}")
    )
    assert names == (f"id:{hashed}", f"id:{hashed}", f"id:id:{hashed}")


def test_a_long_name_is_cut_and_stays_distinct():
    one, other = named(Context(text="", id="x" * 500 + "1"), Context(text="", id="x" * 500 + "2"))
    assert len(one) == len(other) == LONGEST_NAME
    assert one != other


def evaluation(metric, *items, outcome=None):
    found = Score(0.5, evidence=items) if outcome is None else outcome
    return Evaluation(sample_id="x", metric=metric, version="1", outcome=found)


def test_claims_say_which_passages_they_rest_on_and_contradict():
    found = passage_verdicts(
        [
            evaluation(
                "faithfulness",
                {"standalone_question": "?"},
                {"verdict": "supported", "contexts": [0, 2]},
                {"verdict": "contradicted", "context": 1, "contexts": [1]},
                {"verdict": "not_mentioned", "contexts": []},
            ),
            evaluation("hallucination", {"context": 3, "contradicted": True}, {"context": 0, "contradicted": False}),
        ]
    )
    assert (found.cited, found.contradicted, found.any_contradiction) == ({0, 2}, {1, 3}, True)


@pytest.mark.parametrize("some", [[], [evaluation("lexical_groundedness")], [evaluation("hallucination")]])
def test_without_a_judge_of_claims_nothing_is_known(some):
    assert passage_verdicts([*some, evaluation("faithfulness", outcome=Skipped("no_claims"))]) is None


def test_hallucination_alone_does_not_say_what_is_cited():
    found = passage_verdicts([evaluation("hallucination", {"context": 0, "contradicted": False})])
    assert (found.cited, found.contradicted, found.any_contradiction) == (None, frozenset(), False)

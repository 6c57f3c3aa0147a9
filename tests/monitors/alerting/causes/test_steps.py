"""The step of an agent that retrieves worse: named where one fell and the others did not, never on noise."""

import numpy as np

from monitors.alerting.causes.observations import Explanation
from monitors.alerting.causes.steps import Retrieved, Step, fallen_step

FAQ, DOCS, WIKI = Step(1, "search_faq"), Step(2, "search_docs"), Step(3, "search_wiki")


def exchanges(n, seed, **means):
    """`n` exchanges whose passages of a step are relevant with the given probability, four passages each."""
    rng = np.random.default_rng(seed)
    steps = {"faq": FAQ, "docs": DOCS, "wiki": WIKI}
    return [
        Retrieved(relevance={steps[name]: rng.binomial(4, mean) / 4 for name, mean in means.items()}, rate=1.0)
        for _ in range(n)
    ]


def test_the_step_that_fell_alone_is_named_with_its_figures():
    found = fallen_step(exchanges(100, 1, faq=0.8, docs=0.8, wiki=0.7), exchanges(30, 2, faq=0.8, docs=0.1, wiki=0.7))
    assert found.step == DOCS
    assert found.before > 0.7
    assert found.since < 0.2
    assert found.sentence().startswith("The passages of hop 2, tool search_docs became less relevant, 0.")
    assert found.sentence().endswith("(n 100 before, 30 since); those of other hops did not.")


def test_a_step_that_fell_alone_decides_what_was_left_open():
    found = fallen_step(exchanges(100, 1, faq=0.8, docs=0.8), exchanges(30, 2, faq=0.8, docs=0.1))
    said = found.explain(Explanation(cause="unknown", detail="A judge may be stricter."))
    assert (said.cause, said.strength) == ("retrieval", 0.8)
    assert said.detail.startswith("The passages of hop 2")
    kept = found.explain(Explanation(cause="retrieval", detail="Fell.", strength=0.97, evidence=("a",)))
    assert (kept.cause, kept.strength, kept.evidence) == ("retrieval", 0.97, ("a",))


def test_steps_that_fell_less_are_not_said_to_have_stayed():
    found = fallen_step(exchanges(600, 1, faq=0.8, docs=0.8), exchanges(600, 2, faq=0.7, docs=0.1))
    assert (found.step, found.alone) == (DOCS, False)
    assert found.sentence().endswith("those of other hops did too, by less than half as much.")
    assert found.explain(Explanation(cause="unknown", detail="")).evidence == (f"relevance of {DOCS} fell most",)


def test_two_that_fell_alike_are_not_told_apart():
    assert fallen_step(exchanges(100, 1, faq=0.8, docs=0.8), exchanges(60, 2, faq=0.2, docs=0.1)) is None


def test_one_step_is_all_of_the_retrieval():
    assert fallen_step(exchanges(100, 1, docs=0.8), exchanges(60, 2, docs=0.1)) is None


def test_a_step_that_is_new_or_rare_is_not_compared():
    before, since = exchanges(100, 1, faq=0.8), exchanges(60, 2, faq=0.8, docs=0.1)
    assert fallen_step(before, since) is None
    since = [*exchanges(60, 2, faq=0.8), *exchanges(6, 3, docs=0.0)]
    assert fallen_step(exchanges(100, 1, faq=0.8, docs=0.8), since) is None


def test_nothing_is_named_where_nothing_fell():
    named = sum(
        fallen_step(
            exchanges(100, 2 * n, faq=0.7, docs=0.7, wiki=0.7), exchanges(40, 2 * n + 1, faq=0.7, docs=0.7, wiki=0.7)
        )
        is not None
        for n in range(400)
    )
    assert named <= 12
    print(f"{named} of 400")  # noqa: T201


def test_a_step_without_a_number_or_without_a_name_is_still_described():
    assert str(Step(2, None)) == "hop 2"
    assert str(Step(None, "search")) == "tool search"

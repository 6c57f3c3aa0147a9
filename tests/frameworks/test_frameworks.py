"""What real frameworks retrieve is what Gaugeway captures, behind nothing but another base URL.

Every mode of `modes` runs in the framework's own environment, over two corpora; what is known not to work is in `GAPS`
there, and a test for it that passes fails.
"""

import os

import pytest

from tests.frameworks import environment, harness
from tests.frameworks.modes import GAPS, MODES

ALL = [(framework, mode) for framework, modes in MODES.items() for mode in modes]


def every_mode(check):
    gaps = GAPS[check]
    return pytest.mark.parametrize(
        ("framework", "mode"),
        [
            pytest.param(*one, id="-".join(one), marks=pytest.mark.xfail(reason=gaps[one]) if one in gaps else ())
            for one in ALL
        ],
    )


@pytest.fixture(scope="session")
def outcome(request):
    """(framework, mode, corpus) -> what came of it; a framework's modes run together when the first is asked for."""
    ran = request.config.stash.setdefault(harness.RAN, {})
    strict = os.environ.get("CI") == "true"  # noqa: TID251 - a test's own switch

    def of(framework, mode, corpus="lines"):
        environment.require(framework, strict=strict)
        if framework not in ran:
            ran[framework] = harness.outcomes(framework, MODES[framework])
        return ran[framework][mode, corpus]

    return of


@every_mode("question")
def test_the_question_is_captured_with_an_answer_to_judge(outcome, framework, mode):
    answers = outcome(framework, mode).answers
    assert [(call.sample.question, call.sample.skip_reason) for call in answers] == [
        (call.expected["question"], None) for call in answers
    ]


@every_mode("passages")
def test_the_passages_are_captured_to_the_letter(outcome, framework, mode):
    answers = outcome(framework, mode).answers
    assert answers
    assert all(call.exact for call in answers), [(call.expected["passages"], call.sample.contexts) for call in answers]


@every_mode("paragraphs")
def test_passages_that_contain_blank_lines_are_captured_to_the_letter(outcome, framework, mode):
    assert all(call.exact for call in outcome(framework, mode, "paragraphs").answers)


@every_mode("whole text")
def test_the_text_is_whole_however_it_was_cut(outcome, framework, mode):
    for corpus in ("lines", "paragraphs"):
        assert all(call.whole for call in outcome(framework, mode, corpus).answers)


@every_mode("other calls")
def test_calls_that_are_no_answers_are_kept_apart(outcome, framework, mode):
    calls = outcome(framework, mode).auxiliaries
    assert [call.sample.skip_reason for call in calls if not call.apart] == []


def test_every_known_gap_is_a_mode():
    assert {one for gaps in GAPS.values() for one in gaps} <= set(ALL)
    assert set(MODES) == set(environment.FRAMEWORKS)

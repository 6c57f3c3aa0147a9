"""A preference is asked for in both orders, so that an answer gains nothing from its place."""

import pytest

from gaugeway.records import Context, Sample
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.trials.preference import PREFERENCE, Preference

GOOD, BAD = "The gate is open from nine.", "Bananas."


def sample(response=GOOD, **more):
    return Sample(id="x", started_at=1.0, question="When is it open?", response=response, **more)


def judge(choose):
    """A judge that chooses by what stands first and second."""

    def answer(prompt):
        first, second = prompt.user.index("first"), prompt.user.index("second")
        assert first < second
        return {"reason": "So.", "better": choose(prompt.user)}

    return Scripted(answer, model="j")


def by_content(text):
    return "first" if text.index(GOOD) < text.index(BAD) else "second"


@pytest.mark.parametrize(
    ("choose", "value"),
    [
        (by_content, 1.0),
        (lambda text: {"first": "second", "second": "first"}[by_content(text)], 0.0),
        (lambda _: "first", 0.5),
        (lambda _: "second", 0.5),
        (lambda _: "equal", 0.5),
        (lambda text: "first" if by_content(text) == "first" else "equal", 0.5),
    ],
    ids=["better", "worse", "always the first", "always the second", "equal", "half sure"],
)
async def test_an_answer_is_better_where_both_orders_say_so(choose, value):
    metric = Preference(judge(choose)).against(BAD)
    assert (await metric.score(sample())).value == value


async def test_it_is_asked_twice_with_the_passages_and_says_what_was_said():
    asked = judge(by_content)
    metric = Preference(asked).against(BAD)
    score = await metric.score(sample(contexts=(Context(text="Open from nine to five."),)))
    assert len(asked.asked) == 2
    assert all("Open from nine to five." in prompt.user for prompt in asked.asked)
    assert score.evidence == ({"candidate_first": "first", "candidate_second": "second"},)
    assert score.reason == "So."


async def test_the_same_answer_needs_no_judge():
    asked = judge(by_content)
    score = await Preference(asked).against(f" {GOOD}\n").score(sample())
    assert (score.value, asked.asked) == (0.5, [])


async def test_a_judge_that_gives_no_verdict_raises():
    with pytest.raises(JudgeError):
        await Preference(Scripted({PREFERENCE: {"reason": "", "better": "both"}})).against(BAD).score(sample())


def test_another_answer_makes_another_metric_of_the_same_version():
    one = Preference(judge(by_content))
    other = one.against(BAD)
    assert (one.other, other.other, other.version, other.judge) == ("", BAD, one.version, "j")

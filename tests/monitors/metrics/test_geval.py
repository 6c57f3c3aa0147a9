"""G-Eval: steps written once, scores weighted by probability, and never a raw integer in silence."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from gaugeway.records import Context, Sample, Skipped
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.metrics.geval import GEval

STEPS = ["Read the response.", "Look for rude words."]
SAMPLE = Sample(
    id="s",
    started_at=0.0,
    question="May I?",
    response="No, sorry.",
    contexts=(Context(text="Nobody may."),),
    reference="No.",
)


class Scored(Scripted):
    """A scripted judge with log-probabilities."""

    def __init__(self, *found, answers=None):
        super().__init__(answers or {}, model="judge-1")
        self.found = list(found)
        self.choices = []

    async def ask_scored(self, prompt, choices):
        self.asked.append(prompt)
        self.choices.append(list(choices))
        one = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(one, Exception):
            raise one
        return one


def geval(judge, **options):
    given = {"name": "tone", "criteria": "The response is polite.", "steps": STEPS} | options
    return GEval(judge, **given)


def score(metric, sample=SAMPLE):
    return asyncio.run(metric.score(sample))


@pytest.mark.parametrize(
    ("found", "mean"),
    [
        ({"5": 1.0}, 5.0),
        ({"1": 1.0}, 1.0),
        ({"4": 0.6, "5": 0.4}, 4.4),
        ({"4": 0.6, "5": 0.2, "7": 0.1, "Sure": 0.1}, (4 * 0.6 + 5 * 0.2) / 0.8),
        ({"3": 0.5, " 3": 0.25, "2\n": 0.25}, 2.75),
        ({"1": 0.2, "2": 0.2, "3": 0.2, "4": 0.2, "5": 0.2}, 3.0),
    ],
)
def test_the_score_is_weighted_by_the_tokens_probabilities(found, mean):
    judge = Scored(found)
    result = score(geval(judge))
    assert result.value == pytest.approx((mean - 1) / 4, abs=1e-12)
    assert result.evidence[0]["method"] == "logprobs"
    assert sum(result.evidence[0]["probabilities"].values()) == pytest.approx(1.0)
    assert judge.choices == [["1", "2", "3", "4", "5"]]
    assert [prompt.task for prompt in judge.asked] == ["geval_score"]


@pytest.mark.parametrize(
    "found",
    [{"15": 0.9, "5": 0.1}, {"Sure": 0.6, "4": 0.4}, {}, {"0": 1.0}, {"4": float("nan")}, {"4": -0.5}, {"4": 7.0}],
)
def test_what_is_no_score_is_asked_for_once_more_and_then_fails(found):
    judge = Scored(found)
    with pytest.raises(JudgeError) as caught:
        score(geval(judge))
    assert (caught.value.kind, len(judge.asked)) == ("unreadable", 2)
    assert score(geval(Scored(found, {"5": 1.0}))).value == 1.0


def test_without_log_probabilities_several_answers_are_averaged_and_the_evidence_says_so():
    for plain in (False, True):
        replies = iter([5, 4, 4, 3, 4])
        answers = {"geval_form": lambda _, replies=replies: {"score": next(replies)}}
        judge = Scripted(answers) if plain else Scored(None, answers=answers)
        result = score(geval(judge))
        assert result.value == pytest.approx((4.0 - 1) / 4)
        assert (result.evidence[0]["method"], result.evidence[0]["scores"]) == ("sampling", [5, 4, 4, 3, 4])
        assert "by sampling" in result.reason
    assert len({prompt.user for prompt in judge.asked}) == len(judge.asked)


@pytest.mark.parametrize("wrong", [15, 0, -1, 3.5, "4", None, float("nan")])
def test_a_sampled_score_outside_the_scale_is_no_score(wrong):
    judge = Scripted({"geval_form": {"score": wrong}})
    with pytest.raises(JudgeError) as caught:
        score(geval(judge, samples=1))
    assert caught.value.kind == "unreadable"


def test_a_sample_that_fails_is_not_left_out_of_the_mean():
    replies = iter([{"score": 5}, JudgeError("timeout"), {"score": 5}])
    with pytest.raises(JudgeError) as caught:
        score(geval(Scripted({"geval_form": lambda _: next(replies)}), samples=3))
    assert caught.value.kind == "timeout"


def test_another_scale_and_the_direction_are_options():
    metric = geval(Scored({"10": 1.0}), scale=(0, 10), lower_is_better=True)
    assert (score(metric).value, metric.lower_is_better, metric.name) == (1.0, True, "geval:tone")
    assert score(geval(Scored({"0": 1.0}), scale=(0, 10))).value == 0.0


def test_the_judge_is_told_the_criterion_the_steps_and_the_rubric_outside_the_data():
    judge = Scored({"3": 1.0})
    rubric = {"1-2": "rude", "5": "warm STEPS"}
    score(geval(judge, rubric=rubric, params=["response", "question", "contexts", "reference"]))
    prompt = judge.asked[0]
    assert "The criterion:\n\nThe response is polite.\n" in prompt.system
    assert "1. Read the response.\n2. Look for rude words.\n" in prompt.system
    assert "- 1-2: rude\n- 5: warm STEPS\n" in prompt.system
    assert "a whole number from 1 to 5" in prompt.system
    assert not any(word in prompt.system for word in ("CRITERION", "TEXTS", "LOWEST", "HIGHEST", "RUBRIC", "NONCE"))
    for text in ("May I?", "No, sorry.", "Nobody may.", "No."):
        assert f">\n{text}\n</data-" in prompt.user
    assert "May I?" not in prompt.system


def test_only_the_texts_asked_for_are_shown():
    judge = Scored({"3": 1.0})
    score(geval(judge, params=["response"]))
    assert "No, sorry." in judge.asked[0].user
    assert "May I?" not in judge.asked[0].user


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("question", {"question": " "}),
        ("response", {"response": ""}),
        ("contexts", {"contexts": ()}),
        ("reference", {"reference": None}),
    ],
)
def test_a_text_that_is_missing_is_skipped_where_it_is_needed(text, changes):
    metric = geval(Scored({"3": 1.0}), params=[text])
    assert score(metric, replace(SAMPLE, **changes)) == Skipped(f"no_{text}")


async def test_the_steps_are_written_once_for_all_samples():
    judge = Scored({"3": 1.0}, answers={"geval_steps": {"steps": ["Look.", " ", "Judge."]}})
    metric = geval(judge, steps=())

    results = await asyncio.gather(*(metric.score(SAMPLE) for _ in range(5)))
    assert [prompt.task for prompt in judge.asked].count("geval_steps") == 1
    assert all(one.evidence[0]["steps"] == ["Look.", "Judge."] for one in results)
    assert "1. Look.\n2. Judge.\n" in judge.asked[-1].system
    steps_prompt = next(prompt for prompt in judge.asked if prompt.task == "geval_steps")
    assert "The response is polite." in steps_prompt.user
    assert "1 to 5" in steps_prompt.user


def test_the_steps_outlive_the_process_under_the_criterions_hash(tmp_path):
    def judge():
        return Scored({"3": 1.0}, answers={"geval_steps": {"steps": ["Look."]}})

    first, second, other = judge(), judge(), judge()
    score(geval(first, steps=(), steps_dir=tmp_path / "geval"))
    score(geval(second, steps=(), steps_dir=tmp_path / "geval"))
    assert [prompt.task for prompt in second.asked] == ["geval_score"]
    (kept,) = (tmp_path / "geval").iterdir()
    assert json.loads(kept.read_text()) == {"steps": ["Look."]}
    score(geval(other, steps=(), criteria="The response is short.", steps_dir=tmp_path / "geval"))
    assert [prompt.task for prompt in other.asked] == ["geval_steps", "geval_score"]
    kept.write_text("no JSON")
    again = judge()
    score(geval(again, steps=(), steps_dir=tmp_path / "geval"))
    assert [prompt.task for prompt in again.asked] == ["geval_steps", "geval_score"]


def test_no_steps_twice_is_no_score_and_is_not_remembered():
    replies = iter([[], [" "], ["Look."]])
    judge = Scored({"3": 1.0}, answers={"geval_steps": lambda _: {"steps": next(replies)}})
    metric = geval(judge, steps=())
    with pytest.raises(JudgeError) as caught:
        score(metric)
    assert caught.value.kind == "unreadable"
    assert score(metric).value == 0.5


def test_whatever_could_change_a_score_changes_the_version():
    changes = [
        {},
        {"criteria": "Other."},
        {"steps": ["Other."]},
        {"steps": ()},
        {"scale": (1, 10)},
        {"params": ["response"]},
        {"rubric": {"1": "bad"}},
        {"samples": 3},
    ]
    assert len({geval(Scripted({}), **one).version for one in changes}) == len(changes)
    assert geval(Scripted({})).version == geval(Scripted({})).version


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"criteria": " ", "steps": ()}, "needs criteria"),
        ({"steps": ["a", " "]}, "a step is empty"),
        ({"params": []}, "params names"),
        ({"params": ["response", "response"]}, "params names"),
        ({"scale": (5, 1)}, "scale is"),
        ({"scale": (3, 3)}, "scale is"),
        ({"scale": (1, 100)}, "scale is"),
        ({"rubric": {"6": "x"}}, "rubric: '6'"),
        ({"rubric": {"2-1": "x"}}, "rubric: '2-1'"),
        ({"rubric": {"good": "x"}}, "rubric: 'good'"),
    ],
)
def test_a_criterion_that_cannot_be_used_is_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        geval(Scripted({}), **options)

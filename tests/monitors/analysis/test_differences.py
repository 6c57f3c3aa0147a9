"""What bad answers have in common: found where it is there, and not where it is chance."""

from __future__ import annotations

import random

import pytest

from monitors.analysis.incident.differences import Answer, Cutoff, Trait, compared, cutoff_of, level

RELEASE, SOURCE, MODEL = Trait("tag:release", "42"), Trait("source", "faq.md"), Trait("model", "m-1")


def answers(n, *, draw, score, traits):
    return [
        Answer(id=f"{draw.random()}", started_at=float(k), rate=0.5, value=score(draw), traits=tuple(traits(draw)))
        for k in range(n)
    ]


def incident(seed=1, n=400):
    """Answers with `faq.md` are bad from the onset on; nine tenths of them have release 42, as half of the others."""
    draw = random.Random(seed)
    some = []
    for k in range(n):
        bad = draw.random() < 0.3
        traits = [MODEL, *([SOURCE] if bad else []), *([RELEASE] if draw.random() < (0.9 if bad else 0.5) else [])]
        score = draw.uniform(0.0, 0.4) if bad else draw.uniform(0.7, 1.0)
        some.append(Answer(id=f"a{k}", started_at=float(k), rate=1.0, value=score, traits=tuple(traits)))
    return some


def before(seed=2, n=200):
    return answers(n, draw=random.Random(seed), score=lambda d: d.uniform(0.7, 1.0), traits=lambda d: [MODEL, SOURCE])


def test_the_value_that_bad_answers_share_is_named_and_what_only_goes_along_with_it_says_so():
    found = compared(incident(), before(), Cutoff(value=0.5))
    by_trait = {one.trait: one for one in found.differences}
    assert found.differences[0].trait == SOURCE
    assert by_trait[SOURCE].alone
    assert not found.across_questions
    assert by_trait[SOURCE].in_bad.ratio == 1.0
    assert by_trait[SOURCE].in_good.ratio == 0.0
    assert by_trait[SOURCE].n == by_trait[SOURCE].bad == found.bad
    assert not by_trait[RELEASE].alone
    assert MODEL not in by_trait  # all answers have it


def test_levels_compare_before_and_since_with_and_without_the_suspects():
    found = compared(incident(), before(), Cutoff(value=0.5))
    source = found.differences[0]
    assert source.before.mean == pytest.approx(0.85, abs=0.02)
    assert source.since.mean == pytest.approx(0.2, abs=0.03)
    assert source.since.low < source.since.mean < source.since.high
    assert found.others[0] is None  # all answers before have the source
    assert found.others[1].mean == pytest.approx(0.85, abs=0.02)
    assert found.everything[1].n == 400


@pytest.mark.full
def test_of_many_values_that_mean_nothing_few_are_named():
    """60 tags of 5 values each, independent of the scores: at most 5 % of comparisons may name any."""
    wrong = 0
    for seed in range(40):
        draw = random.Random(seed)
        some = answers(
            200,
            draw=draw,
            score=lambda d: d.choice([0.2, 0.9]),
            traits=lambda d: [Trait(f"tag:t{k}", str(d.randrange(5))) for k in range(60)],
        )
        wrong += bool(compared(some, [], Cutoff(value=0.5)).differences)
    assert wrong <= 4


def few_questions(*, spoilt, poor_before=()):
    """Answers to four recurring questions; since the onset those to `spoilt` got a new source and are bad."""
    sides = []
    for side in (0, 1):
        some = []
        for k in range(80):
            topic = ("warranty", "shipping", "returns", "lamp")[k % 4]
            new = side == 1 and topic in spoilt
            traits = (MODEL, Trait("topic", topic), Trait("source", "old-wiki#3" if new else f"{topic}#1"))
            score = 0.0 if new or topic in poor_before else 1.0
            cluster = f"s:{side}-{k} q:{topic}"
            some.append(
                Answer(id=f"{side}-{k}", started_at=1.0 * k, rate=1.0, value=score, traits=traits, cluster=cluster)
            )
        sides.append(some)
    return sides


def test_a_source_that_comes_with_whole_questions_is_named_and_marked():
    old, new = few_questions(spoilt=("warranty", "shipping"))
    found = compared(new, old, Cutoff(value=0.5))
    assert found.differences[0].trait == Trait("source", "old-wiki#3")
    assert found.differences[0].alone
    assert found.across_questions
    assert {one.trait.value for one in found.differences[1:]} == {"warranty", "shipping"}
    assert not any(one.alone for one in found.differences[1:])


def test_a_source_of_questions_that_were_always_answered_badly_is_not_named():
    old, new = few_questions(spoilt=("warranty", "shipping"), poor_before=("warranty", "shipping"))
    found = compared(new, old, Cutoff(value=0.5))
    assert found.differences == ()
    assert not found.across_questions


def test_metrics_whose_best_value_is_0_are_bad_when_high():
    some = [
        Answer(id=one.id, started_at=one.started_at, rate=1.0, value=1.0 - one.value, traits=one.traits)
        for one in incident()
    ]
    found = compared(some, [], Cutoff(value=0.5, flipped=True))
    assert found.differences[0].trait == SOURCE
    assert found.differences[0].since.mean == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("score", [0.1, 0.9])
def test_where_all_answers_are_bad_or_none_is_nothing_differs(score):
    some = answers(50, draw=random.Random(1), score=lambda d: score, traits=lambda d: [Trait("model", d.choice("ab"))])
    found = compared(some, [], Cutoff(value=0.5))
    assert (found.differences, found.n) == ((), 50)
    assert found.bad in (0, 50)


def test_without_answers_there_is_nothing_to_say():
    found = compared([], [], Cutoff(value=0.5))
    assert (found.n, found.bad, found.tested, found.everything) == (0, 0, 0, (None, None))
    assert level([]) is None


def test_a_sessions_answers_count_once_for_a_value():
    """40 bad answers of one session are one piece of evidence, not 40."""
    draw = random.Random(3)
    good = answers(200, draw=draw, score=lambda d: d.choice([0.2, 0.9]), traits=lambda d: [MODEL])
    one_session = [
        Answer(id=f"s{k}", started_at=300.0 + k, rate=1.0, value=0.1, traits=(RELEASE,), cluster="s:same")
        for k in range(40)
    ]
    alone = [
        Answer(id=f"s{k}", started_at=300.0 + k, rate=1.0, value=0.1, traits=(RELEASE,), cluster=f"s:{k}")
        for k in range(40)
    ]
    assert [one.trait for one in compared([*good, *alone], [], Cutoff(value=0.5)).differences] == [RELEASE]
    assert compared([*good, *one_session], [], Cutoff(value=0.5)).differences == ()


def test_the_cutoff_is_the_threshold_where_it_separates_the_answers():
    mixed = [0.2] * 20 + [0.9] * 20
    usual = cutoff_of(mixed, threshold=0.5, flipped=False, before=0.9, since=0.5)
    assert usual.threshold
    assert not usual.is_bad(0.5)
    assert usual.is_bad(0.499)
    low_is_good = cutoff_of(mixed, threshold=0.5, flipped=True, before=0.1, since=0.5)
    assert not low_is_good.is_bad(0.5)
    assert low_is_good.is_bad(0.501)


def test_elsewhere_it_lies_between_the_means():
    found = cutoff_of([0.7, 0.9] * 20, threshold=0.5, flipped=False, before=0.9, since=0.8)
    assert (found.value, found.threshold, found.flipped) == (0.85, False, False)
    rising = cutoff_of([0.1, 0.3] * 20, threshold=0.5, flipped=True, before=0.1, since=0.2)
    assert (rising.value, rising.flipped) == (0.15, True)
    assert cutoff_of([0.7] * 40, threshold=0.5, flipped=False, before=None, since=0.7).threshold


def test_a_release_that_all_answers_since_the_onset_come_from_is_a_change():
    draw = random.Random(4)
    old = answers(200, draw=draw, score=lambda d: d.uniform(0.7, 1.0), traits=lambda d: [MODEL, Trait("prompt", "p1")])
    new = answers(
        200,
        draw=draw,
        score=lambda d: d.uniform(0.2, 0.9),
        traits=lambda d: [MODEL, Trait("prompt", "p2"), Trait("tag:day", d.choice("ab"))],
    )
    found = compared(new, old, Cutoff(value=0.5))
    assert found.differences == ()
    change = next(one for one in found.changes if one.trait == Trait("prompt", "p2"))
    assert (change.before.ratio, change.since.ratio, change.n) == (0.0, 1.0, 200)
    assert change.bad == found.bad
    assert change.without is None
    assert Trait("prompt", "p1") not in {one.trait for one in found.changes}
    assert MODEL not in {one.trait for one in found.changes}


@pytest.mark.full
def test_where_nothing_changes_no_value_grew():
    def traits(draw):
        return [Trait(f"tag:t{k}", str(draw.randrange(4))) for k in range(30)]

    wrong = 0
    for seed in range(30):
        draw = random.Random(seed)
        sides = [answers(150, draw=draw, score=lambda d: d.random(), traits=traits) for _ in range(2)]
        wrong += bool(compared(*sides, Cutoff(value=0.5)).changes)
    assert wrong <= 3

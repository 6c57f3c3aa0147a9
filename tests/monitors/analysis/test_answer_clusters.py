"""Clusters of answers: shares with conversations as units, what is new and what differs, and hostile texts."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.detection.answer_clusters import SCOPE, SINCE, UNTIL, World, members_of, quality
from monitors.analysis.answer_clusters import (
    MAX_CLUSTERS,
    ClusteredAnswer,
    bad_subjects,
    clusters_of,
    share_by_conversation,
)
from monitors.statistics.agreement import wilson
from monitors.statistics.attribution import ScoredAnswer, contrast, log_e_overlap, retrievals_of


def answer(number, question="saver ticket refund deadline", **about):
    fields = {"id": f"x{number}", "started_at": SINCE + 60.0 * number, "rate": 1.0, "is_bad": True}
    return ClusteredAnswer(**(fields | {"question": question} | about))


def of(answers, kind="failures"):
    return clusters_of(answers, kind, SCOPE)


def planted(world, noise=60, late=0.0):
    return [(kind, late if kind == 2 else 0.0) for kind in range(3) for _ in range(30)] + [(-1, 0.0)] * noise


def test_planted_kinds_of_failure_are_clusters_of_their_own():
    world = World(1)
    answers = world.answers(planted(world), 300)
    report = of(answers)
    recall, purity, _, holding = quality(report, answers, (30, 30, 30))
    assert min(recall) > 0.8
    assert min(purity) > 0.8
    assert holding == 3
    assert (report.n, report.clustered, report.read) == (150, 150, 450)
    assert report.alone == 150 - sum(cluster.n for cluster in report.clusters)
    assert not any(cluster.new or cluster.differs for cluster in report.clusters)


def test_a_phrase_that_a_judge_gives_for_every_answer_joins_nothing():
    same = [replace(asked, claim="the response is not supported") for asked in World(1).answers(planted(World(1)), 300)]
    alone = [replace(asked, claim="") for asked in same]
    assert max(map(len, members_of(same))) <= 40
    assert len(of(same).clusters) >= len(of(alone).clusters) - 2


def test_a_kind_that_appears_is_new_and_since_when():
    world = World(2)
    answers = world.answers(planted(world, late=0.75), 300)
    report = of(answers)
    new = [(ids, cluster.new) for ids, cluster in zip(members_of(answers), report.clusters, strict=True)]
    marked = [(ids, fresh) for ids, fresh in new if fresh is not None]
    assert len(marked) == 1
    ids, fresh = marked[0]
    assert sum(name.startswith("2:") for name in ids) > 0.8 * len(ids)
    assert 0.6 < (fresh.since - SINCE) / (UNTIL - SINCE) < 0.85
    assert fresh.before < 0.1 < fresh.now
    assert fresh.evidence_log10 > 1.0


def test_the_order_of_answers_does_not_change_the_report():
    world = World(3)
    answers = world.answers(planted(world, late=0.5), 100)
    assert of(answers) == of(answers[::-1])


def test_a_burst_of_one_conversation_is_neither_new_nor_a_cluster():
    burst = [answer(1400 + n, f"saver ticket refund deadline {n}", cluster="s:one") for n in range(30)]
    rest = [answer(n, "accessible wheelchair cabin") for n in range(40)]
    report = of([*burst, *rest])
    assert [cluster.n for cluster in report.clusters] == [40]
    assert report.clusters[0].new is None


def test_equal_questions_that_appear_are_new():
    report = of(
        [*(answer(n, "accessible wheelchair cabin") for n in range(60)), *(answer(1000 + n) for n in range(20))]
    )
    new = next(cluster for cluster in report.clusters if cluster.new)
    assert (new.n, new.new.is_first, new.new.since) == (20, True, SINCE + 60_000.0)
    assert (new.new.before, new.new.now) == (0.0, 1.0)


def test_what_differs_is_compared_with_good_answers_to_like_questions():
    old, new = (("prompt", "2-old"),), (("prompt", "2-new"),)
    bad = [answer(n, traits=new) for n in range(30)]
    good = [answer(100 + n, is_bad=False, traits=old if n % 10 else new) for n in range(40)]
    others = [answer(200 + n, "wheelchair cabin", is_bad=False, traits=new) for n in range(200)]
    (cluster,) = of([*bad, *good, *others]).clusters
    (found,) = cluster.differs
    assert (found.field, found.value, found.like_questions) == ("prompt", "2-new", True)
    assert (found.in_cluster, found.in_others) == (1.0, 0.1)
    (cluster,) = of([*bad, *others]).clusters
    assert not cluster.differs  # the new prompt is everywhere: it does not differ
    assert cluster.no_good_answer.ratio == 0.0


def test_shares_count_conversations():
    alone = [(answer(n), n < 30) for n in range(100)]
    share = share_by_conversation(alone)
    assert (share.ratio, share.n) == (0.3, 100)
    assert (share.ci_low, share.ci_high) == pytest.approx(wilson(30, 100), abs=1e-6)
    together = [(answer(n, cluster=f"s:{n // 10}"), n < 30) for n in range(100)]
    assert share_by_conversation(together).ci_high == pytest.approx(wilson(3, 10)[1], abs=1e-6)
    every = share_by_conversation([(answer(n, cluster="s:1"), True) for n in range(50)])
    assert every.ci_low == pytest.approx(wilson(1, 1)[0], abs=1e-6)


def test_weights_of_sampled_answers_count():
    share = share_by_conversation([(answer(1, rate=0.1), True), (answer(2), False)])
    assert share.ratio == pytest.approx(10 / 11, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_evidence_is_that_of_the_other_contrasts(seed):
    rng = np.random.default_rng(seed)
    n, marked, drawn = 80, int(rng.integers(3, 40)), int(rng.integers(3, 70))
    both = int(rng.integers(max(0, marked + drawn - n), min(marked, drawn) + 1))
    have = [at < both or drawn <= at < drawn + marked - both for at in range(n)]
    answers = [ScoredAnswer(str(at), float(at >= drawn), 1.0, [0] if have[at] else []) for at in range(n)]
    assert contrast(retrievals_of(answers, [0])).log_e[0] == pytest.approx(log_e_overlap(n, marked, drawn, both))


def test_the_mean_e_value_of_random_draws_is_one():
    rng = np.random.default_rng(1)
    values = [np.exp(log_e_overlap(60, 9, 20, int(rng.hypergeometric(9, 51, 20)))) for _ in range(4000)]
    assert 0.5 < np.mean(values) < 1.1


@pytest.mark.parametrize(
    "texts", [[""], ["the and of"], ["saver refund"], ["退款", "退款期限"], ["\ud800 \x00 refund"]]
)
def test_texts_without_words_equal_texts_and_other_scripts_are_no_trouble(texts):
    report = of([answer(n, texts[n % len(texts)]) for n in range(30)])
    assert len(report.clusters) <= 2
    assert all(cluster.share.ratio <= 1.0 for cluster in report.clusters)


def test_no_answers_and_only_good_ones_give_no_clusters():
    assert of([]).clusters == ()
    assert of([answer(n, is_bad=False) for n in range(20)]).clusters == ()


def test_at_most_twenty_clusters_and_five_examples():
    subjects = ["".join(chr(97 + (n * 7 + k * k) % 26) for k in range(6)) for n in range(30)]
    report = of([answer(n, f"{subjects[n % 30]} zz{subjects[n % 30]}") for n in range(300)])
    assert len(report.clusters) == MAX_CLUSTERS
    assert all(len(cluster.examples) == 5 for cluster in report.clusters)


@pytest.mark.full
def test_in_worlds_without_change_nothing_is_called_new_more_often_than_promised():
    wrong = 0
    for seed in range(200):
        world = World(30_000 + seed)
        wrong += any(cluster.new for cluster in of(world.answers(planted(world), 50)).clusters)
    assert wrong <= 18  # 5 % of 200, and 2.6 standard errors


def alerts_answers(world, share_of_kind, n=300, bad=80):
    """Answers since an onset; of the bad ones, this share is about the first planted kind, of the good ones a tenth."""
    found = []
    for number in range(n):
        is_bad = number < bad
        about_kind = world.rng.random() < (share_of_kind if is_bad else 0.1)
        subject = world.kinds[0] if about_kind else world.subjects[int(world.rng.integers(len(world.subjects)))]
        found.append(answer(number, world.text(subject), is_bad=is_bad))
    return found


def test_what_the_bad_answers_of_an_alert_are_about():
    found = bad_subjects(alerts_answers(World(4), 0.7), SCOPE)
    assert found[0].share.ratio == pytest.approx(0.7, abs=0.2)
    assert found[0].share.ci_low > found[0].in_good.ci_high
    assert found[0].bad < found[0].n
    assert set(found[0].keywords) & set(World(4).kinds[0][1])
    assert len(found) <= 2


@pytest.mark.parametrize("seed", range(10))
def test_what_is_as_common_among_good_answers_is_not_said(seed):
    assert bad_subjects(alerts_answers(World(seed), 0.1), SCOPE) == ()


def test_a_share_that_is_hardly_known_is_not_said():
    few = [*(answer(n) for n in range(7)), *(answer(10 + n, "wheelchair cabin", is_bad=n < 3) for n in range(40))]
    assert bad_subjects(few, SCOPE) == ()
    assert bad_subjects([answer(n) for n in range(50)], SCOPE) == ()
    assert bad_subjects([], SCOPE) == ()

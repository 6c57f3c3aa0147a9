"""Verdicts of trials: what ships, what does not, what stays, what stops a ship, slices, ratios, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monitors.analysis.ab_compare import look_sizes
from monitors.analysis.trial_result import MOST_SLICES, Pair, TrialRules, trial_result

RULES = TrialRules(primary="faithfulness")


def pairs_of(live, candidate, *, rates=None, clusters=None, facets=None):
    """Pairs of one conversation each unless `clusters` says otherwise, one a second."""
    n = len(live)
    return [
        Pair(
            exchange=str(i),
            at=float(i + 1),
            live=float(live[i]),
            candidate=float(candidate[i]),
            rate=1.0 if rates is None else float(rates[i]),
            cluster=f"s:{i} k:1" if clusters is None else clusters[i],
            facets={} if facets is None else facets[i],
        )
        for i in range(n)
    ]


def drawn(rng, n, live, loss, agree=0.8):
    """Pass or fail; a share `agree` of the pairs is decided together, and the candidate fails a share `loss` more."""
    u = rng.random(n)
    other = np.where(rng.random(n) < agree, u, rng.random(n))
    return (u < live).astype(float), (other < live - loss).astype(float)


def result(pairs, rules=RULES, **others):
    return trial_result({rules.primary: pairs, **others}, rules)


def primary(found):
    return next(row for row in found.metrics if row.role == "primary")


def test_an_equal_candidate_ships_and_is_equal_within_the_margin_in_the_end():
    pairs = pairs_of(*drawn(np.random.default_rng(1), 1_200, 0.9, 0.0, agree=0.95))
    found = result(pairs)
    row = primary(found)
    assert (found.verdict, found.decided_by, found.superior, str(found)) == ("ship", "faithfulness", False, "ship")
    assert found.equal == (row.low > -0.02 and row.high < 0.02) or found.equal
    assert row.low > -0.02
    assert row.n == row.clusters == 1_200
    assert row.saved > 0.8  # most answers agree
    assert row.difference == pytest.approx(row.candidate - row.live)
    assert row.low < row.difference < row.high


def test_a_better_candidate_is_superior():
    found = result(pairs_of(*drawn(np.random.default_rng(2), 500, 0.7, -0.2)))
    assert (found.verdict, found.superior, found.equal) == ("ship", True, False)


def test_a_worse_candidate_does_not_ship_and_soon():
    found = result(pairs_of(*drawn(np.random.default_rng(3), 500, 0.9, 0.2)))
    assert (found.verdict, found.decided_by, found.more) == ("do not ship", "faithfulness", None)
    assert found.decided_at <= 200.0
    assert primary(found).decision == "worse"
    assert primary(found).high < -0.02


def test_before_the_verdict_it_says_how_many_more_and_that_number_is_about_right():
    live, candidate = drawn(np.random.default_rng(4), 4_000, 0.9, 0.0)
    first = result(pairs_of(live[:300], candidate[:300]))
    assert (first.verdict, first.metrics[0].decision) == ("not yet", "not yet")
    assert str(first) == f"not yet: about {first.more:,} more needed"
    decided = result(pairs_of(live, candidate)).decided_at
    assert 0.3 * decided < 300 + first.metrics[0].more_if_equal < 3.0 * decided


def test_nothing_is_said_of_few_pairs():
    found = result(pairs_of([1.0] * 9, [0.0] * 9), other=[])
    assert (found.verdict, found.more, found.slices) == ("not yet", None, ())
    assert (found.metrics[0].low, found.metrics[0].difference) == (None, -1.0)
    assert (found.metrics[1].n, found.metrics[1].live) == (0, None)


def test_a_verdict_once_reached_stays_whatever_comes_later_and_at_the_same_time():
    rng = np.random.default_rng(5)
    pairs = pairs_of(*drawn(rng, 600, 0.85, -0.1))
    reached = result(pairs)
    assert reached.verdict == "ship"
    fails = pairs_of(np.ones(700), np.zeros(700))
    later = [pair._replace(exchange=f"x{i}", at=601.0 + i, cluster=f"s:x{i}") for i, pair in enumerate(fails)]
    for more in (3, 17, 400, 700):
        found = result(pairs + later[:more])
        assert (found.verdict, found.decided_at) == ("ship", reached.decided_at)
    assert primary(found).high < -0.02  # today's interval, though, says what came later


def test_each_number_of_pairs_gives_the_verdict_of_the_longer_trial_up_to_there():
    pairs = pairs_of(*drawn(np.random.default_rng(6), 400, 0.9, 0.12))
    at = result(pairs).decided_at
    assert at % 10 == 0
    for n in range(int(at) - 15, int(at) + 15, 5):
        assert (result(pairs[:n]).verdict == "do not ship") == (n >= at)


def test_the_interval_at_a_look_says_what_is_decided():
    pairs = pairs_of(*drawn(np.random.default_rng(7), 700, 0.9, 0.0, agree=0.95))
    at = int(result(pairs).decided_at)
    *_, before, last = [end for end in look_sizes(at) if end <= at]
    assert last == at
    assert primary(result(pairs[:before])).low <= -0.02 < primary(result(pairs[:at])).low


@pytest.mark.parametrize("also", [0.0, 0.01])
def test_rare_failures_of_exactly_the_margin_hardly_ever_ship(also):
    """.025 of the runs are allowed; nothing shows that the candidate fails until it does."""
    rng, verdicts = np.random.default_rng(8), []
    for _ in range(100):
        u = rng.random(240)
        verdicts.append(result(pairs_of(u > also, u > also + 0.02)).verdict)
    assert verdicts.count("ship") <= 6
    assert verdicts.count("do not ship") <= 2


def test_whole_conversations_are_one_observation():
    same = np.ones(600)
    alone, in_thirties = (
        result(pairs_of(same, same, clusters=[f"s:{i // size}" for i in range(600)])) for size in (1, 20)
    )
    assert alone.verdict == "ship"
    assert (in_thirties.verdict, primary(in_thirties).clusters) == ("not yet", 30)
    assert primary(in_thirties).low < -0.1 < -0.02 < primary(alone).low


def test_with_few_known_conversations_it_waits():
    found = result(pairs_of(np.ones(600), np.zeros(600), clusters=[f"s:{i % 5}" for i in range(600)]))
    assert (found.verdict, primary(found).low) == ("not yet", None)


def test_conversations_that_nothing_names_are_seen_by_the_order():
    rng = np.random.default_rng(9)
    apart = np.repeat(rng.random(60) < 0.5, 20).astype(float)  # each twenty fail or pass together
    live = np.full(1_200, 0.5)
    named, unnamed, taken_as_alone = (
        primary(result(pairs_of(live, apart, clusters=clusters)))
        for clusters in ([f"s:{i // 20}" for i in range(1_200)], [None] * 1_200, [f"s:{i}" for i in range(1_200)])
    )
    widths = [row.high - row.low for row in (named, unnamed, taken_as_alone)]
    assert min(widths[:2]) > 2.0 * widths[2]


def test_a_worse_secondary_metric_stops_the_ship():
    rng = np.random.default_rng(10)
    better = pairs_of(*drawn(rng, 900, 0.9, 0.0, agree=0.95))
    worse = pairs_of(*drawn(rng, 900, 0.9, 0.2))
    found = result(better, relevance=worse)
    assert (found.verdict, found.decided_by) == ("do not ship", "relevance")
    assert found.metrics[0].decision == "not worse"
    late = [pair._replace(at=pair.at + 5_000.0) for pair in worse]
    assert result(better, relevance=late).verdict == "ship"  # it had shipped before


def test_a_better_secondary_metric_ships_nothing():
    rng = np.random.default_rng(11)
    found = result(pairs_of(*drawn(rng, 60, 0.9, 0.0)), relevance=pairs_of(*drawn(rng, 600, 0.6, -0.3)))
    assert (found.verdict, found.metrics[1].decision, found.metrics[1].superior) == ("not yet", "not worse", True)


def test_the_error_rate_is_divided_among_directions_metrics_and_arms():
    pairs = pairs_of(*drawn(np.random.default_rng(12), 40, 0.9, 0.0))
    rules = TrialRules(primary="faithfulness", arms=2, ratios=frozenset({"cost"}))
    found = result(pairs, rules, a=pairs, b=pairs, contexts_per_answer=pairs, cost=pairs)
    levels = {row.metric: row.end_alpha for row in found.metrics}
    assert levels["faithfulness"] == pytest.approx(0.05 / 2 / 2)
    assert levels["a"] == levels["b"] == pytest.approx(0.05 / 2 / 2 / 2)
    assert sum(levels[name] for name in ("faithfulness", "a", "b")) * rules.arms == pytest.approx(0.05)


def test_several_arms_need_more_evidence():
    pairs = pairs_of(*drawn(np.random.default_rng(13), 800, 0.9, 0.12))
    one, ten = (result(pairs, TrialRules(primary="faithfulness", arms=arms)) for arms in (1, 10))
    assert one.verdict == ten.verdict == "do not ship"
    assert one.decided_at < ten.decided_at


def test_where_less_is_better_signs_and_ends_are_those_of_the_metric():
    live, candidate = drawn(np.random.default_rng(14), 400, 0.9, 0.15)
    as_it_is = primary(result(pairs_of(live, candidate)))
    rules = TrialRules(primary="toxicity", lower_is_better=frozenset({"toxicity"}))
    found = result(pairs_of(1.0 - live, 1.0 - candidate), rules)
    row = primary(found)
    assert found.verdict == "do not ship"
    assert (row.difference, row.low, row.high) == pytest.approx((-as_it_is.difference, -as_it_is.high, -as_it_is.low))
    assert row.live == pytest.approx(1.0 - as_it_is.live)


def test_signals_without_a_better_direction_do_not_decide():
    same, worse = pairs_of([1.0] * 400, [1.0] * 400), pairs_of([1.0] * 400, [0.0] * 400)
    found = result(same, contexts_per_answer=worse)
    row = found.metrics[1]
    assert (found.verdict, row.role, row.decision, row.superior, row.more) == (
        "ship",
        "reported",
        "not yet",
        False,
        None,
    )
    assert row.high < -0.9


def test_exchanges_that_were_chosen_more_often_count_less():
    rng = np.random.default_rng(15)
    live, candidate = drawn(rng, 6_000, 0.9, 0.0, agree=0.9)
    losses = np.where(candidate < live, 0.8, 0.1)
    kept = rng.random(6_000) < losses
    weighted = primary(result(pairs_of(live[kept], candidate[kept], rates=losses[kept])))
    plain = primary(result(pairs_of(live[kept], candidate[kept])))
    assert (weighted.decision, plain.decision) == ("not yet", "worse")
    assert abs(weighted.difference) < 0.02


def test_ratios_are_reported_with_their_interval_and_decide_nothing():
    rng = np.random.default_rng(16)
    cost = rng.lognormal(0.0, 0.5, 900)
    rules = TrialRules(primary="faithfulness", ratios=frozenset({"cost"}))
    twice = pairs_of(cost, cost * rng.lognormal(math.log(2.0), 0.2, 900))
    found = result(pairs_of([1.0] * 900, [1.0] * 900), rules, cost=twice)
    row = found.metrics[1]
    assert (found.verdict, row.role, row.decision) == ("ship", "reported", "not yet")
    assert row.low < row.ratio < row.high
    assert row.ratio == pytest.approx(2.04, abs=0.06)
    assert row.high - row.low < 0.2
    assert row.saved > 0.5


@pytest.mark.parametrize("scores", [[], [0.0] * 50, [5.0] * 20])
def test_a_ratio_of_nothing_has_no_interval(scores):
    rules = TrialRules(primary="faithfulness", ratios=frozenset({"cost"}))
    row = result([], rules, cost=pairs_of(scores, scores)).metrics[1]
    assert (row.low, row.high) == (None, None)


def test_a_ratio_is_hardly_ever_outside_its_interval():
    rng, outside = np.random.default_rng(17), 0
    rules = TrialRules(primary="faithfulness", ratios=frozenset({"cost"}))
    for _ in range(60):
        live, candidate = rng.lognormal(0.0, 0.7, (2, 500))
        pairs, missed = pairs_of(live, candidate), False
        for n in range(50, 501, 50):
            row = result([], rules, cost=pairs[:n]).metrics[1]
            missed = missed or not row.low <= 1.0 <= row.high
        outside += missed
    assert outside <= 6  # both ends: .05


def sliced(rng, n, *, bad="", loss=0.6):
    live, candidate = drawn(rng, n, 0.9, 0.0)
    topics = [f"t{i % 8}" for i in range(n)]
    candidate = np.where((np.array(topics) == bad) & (rng.random(n) < loss), 0.0, candidate)
    return pairs_of(live, candidate, facets=[{"topic": topic, "app": "a"} for topic in topics])


def test_the_slice_in_which_the_candidate_is_worse_is_listed():
    found = result(sliced(np.random.default_rng(18), 800, bad="t3"))
    (worse,) = found.slices
    assert (worse.facet, worse.value, worse.n, found.slices_tested) == ("topic", "t3", 100, 8)
    assert worse.low < worse.difference < worse.high < 0.0
    assert worse.difference == pytest.approx(worse.candidate - worse.live)


def test_slices_hardly_ever_name_a_part_that_is_not_worse():
    rng = np.random.default_rng(19)
    wrong = [bool(result(sliced(rng, 400)).slices) for _ in range(60)]
    assert sum(wrong) <= 5


def test_at_most_twenty_slices_are_listed_the_clearest_first():
    rng = np.random.default_rng(20)
    live, candidate = np.ones(3_000), (rng.random(3_000) < 0.2).astype(float)
    found = result(pairs_of(live, candidate, facets=[{"topic": f"t{i % 30}"} for i in range(3_000)]))
    assert (len(found.slices), found.slices_tested) == (MOST_SLICES, 30)
    differences = [part.difference for part in found.slices]
    assert np.corrcoef(differences, range(MOST_SLICES))[0, 1] > 0.9
    assert all(part.high < 0.0 for part in found.slices)


@pytest.mark.parametrize(
    ("rules", "scores", "said"),
    [
        (TrialRules(primary="other"), [], "the primary metric"),
        (TrialRules(primary="cost", ratios=frozenset({"cost"})), [], "the primary metric"),
        (TrialRules(primary="contexts_per_answer"), [], "the primary metric"),
        (TrialRules(primary="cost", alpha=1.0), [], "alpha"),
        (TrialRules(primary="cost", arms=0), [], "alpha"),
        (TrialRules(primary="cost", margin=1.0), [], "margin"),
        (TrialRules(primary="cost"), [0.5, 1.1], "scores lie"),
        (TrialRules(primary="cost"), [0.5, math.nan], "scores lie"),
    ],
)
def test_what_cannot_be_decided_is_refused(rules, scores, said):
    with pytest.raises(ValueError, match=said):
        trial_result({"cost": pairs_of(scores, scores), "contexts_per_answer": []}, rules)

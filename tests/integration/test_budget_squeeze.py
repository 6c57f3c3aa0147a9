"""A tight budget for a while, then enough: the drop that follows is found, explained and over as if it had not been."""

import itertools
import time

from tests.integration.test_alert_causes import EASY, causes
from tests.integration.test_alert_judge import QUIET
from tests.support.scenario import Ask, lab

SQUEEZE_S = 15.0
PER_S = 40.0
BUDGET = """
budget_usd_per_day = 40.0
price_in = 1.0
price_out = 1.0
"""
RULES = [(["shop"], 0.9)]
METRICS = QUIET.replace("[metrics.context_relevancy]\nenabled = false", "[metrics.context_relevancy]\nrate = 1.0")


def rounds(size, **about):
    topics = itertools.cycle(EASY)
    return lambda: [Ask(app="shop", topic=next(topics), **about) for _ in range(size)]


def rates(running):
    """The rates of all judged scores so far."""
    found = running.get("/api/exchanges?app=shop&metric=faithfulness&limit=1000")
    return [one["rate"] for one in found if one["outcome"] == "score"]


def test_a_squeezed_budget_makes_the_next_alarm_neither_late_nor_long_nor_wrong(tmp_path):
    with lab(tmp_path, rules=RULES, judge=BUDGET, metrics=METRICS) as tight:
        tight.ask(rounds(int(SQUEEZE_S * PER_S))(), per_s=PER_S)
        tight.settle()
        squeezed = rates(tight.running)
        assert min(squeezed) < 0.1
        assert tight.told("shop") == []
    with lab(tmp_path, rules=RULES, metrics=METRICS) as ample:
        next(itertools.islice(ample.numbers, 99_999, None))  # other questions than before
        # The squeezed scores count hundredfold: with few others the effective number before the drop is below 10.
        ample.ask(rounds(1_500)(), per_s=2 * PER_S)
        ample.settle()
        assert ample.told("shop") == []
        broken_at = time.time()
        ample.ask_until(rounds(8, retrieval=False), lambda: ample.told("shop"))
        alarm_s = time.time() - broken_at
        scores = ample.took("shop", broken_at)
        ample.ask_until(rounds(8, retrieval=False), lambda: "retrieval" in causes(ample, "shop"))
        repaired_at = time.time()
        ample.ask_until(rounds(8), lambda: ample.told("shop", "resolved"))
        over_s = time.time() - repaired_at
        ended_at = next(one["ended_at"] for one in ample.running.get("/api/alerts") if one["app"] == "shop")
        back = ample.between("shop", repaired_at, ended_at)
        print(  # noqa: T201
            f"rates {min(squeezed):.3f} to {max(squeezed):.3f} ({len(squeezed)} scores); alarm {alarm_s:.1f} s and "
            f"{scores} scores after the fault, over {over_s:.1f} s and {back} scores after the repair"
        )
        assert scores < 100
        assert back < 300
        assert set(causes(ample, "shop")) <= {"retrieval", "unknown"}

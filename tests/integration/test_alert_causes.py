"""Real traffic through the whole product: who is paged by Alertmanager, what is named as the cause, and who sleeps.

Every promise is a fixed mean (`slo`), so that nothing has to be learned first. One second stands for ten minutes, and
the budget is the default one bucket by bucket: one false alarm in 43,200 buckets, over all apps of a test together.
"""

import itertools
import time

import pytest

from tests.support.scenario import BUCKET_S, HARD, ROAM, TOPICS, WATERMARK_S, Ask, anchors, lab

EASY = [topic for topic in TOPICS if topic != HARD]
BEFORE = 160
APPS = ["shop", "bank", "clinic", "museum", "library", "hotel"]
MIXED = ["with-tags", "without-tags"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One product for all drops; each test has apps of its own."""
    with lab(tmp_path_factory.mktemp("drops"), rules=[(APPS, 0.9), (MIXED, 0.85)]) as running:
        yield running


def rounds(app, size=16, **about):
    """So many questions of an app a round, topic by topic."""
    topics = itertools.cycle(EASY)
    return lambda: [Ask(app=app, **{"topic": next(topics), **about}) for _ in range(size)]


def causes(lab, app):
    """What was named, in the order of telling, each time that it changed."""
    named = [one["annotations"]["likely_cause"] for one in lab.told(app)]
    return [cause for cause, _ in itertools.groupby(named)]


def last(lab, app):
    return lab.told(app)[-1]["annotations"]


def test_a_drop_of_a_tenth_pages_for_its_app_only(shared):
    apps = ("shop", "bank", "clinic")
    shared.ask([Ask(app=app) for _ in range(BEFORE) for app in apps])
    shared.settle()
    assert shared.told("shop") == []
    changed_at = time.time()
    shared.script.means["shop"] = 0.8

    def measured():  # a first notification need not wait for the means
        return [one for one in shared.told("shop") if "insufficient" not in one["annotations"]["mean_since"]]

    shared.ask_until(lambda: [Ask(app=app) for _ in range(6) for app in apps], measured)
    first = measured()[0]
    assert first["labels"] == {
        "alertname": "GaugewayQualityDrop",
        "app": "shop",
        "metric": "faithfulness",
        "rule": "answers-0",
        "severity": "page",
    }
    drop = float(first["annotations"]["mean_before"]) - float(first["annotations"]["mean_since"])
    assert 0.04 < drop < 0.25
    assert abs(shared.onset("shop") - changed_at) < 60 * BUCKET_S
    assert shared.took("shop", changed_at) < 400
    assert not shared.told("bank")
    assert not shared.told("clinic")
    assert {one["labels"]["app"] for one in shared.alertmanager.amtool()} == {"shop"}


def test_the_alert_is_over_at_alertmanager_when_quality_is_back(shared):
    shared.ask(rounds("museum", 40)())
    changed_at = time.time()
    shared.script.means["museum"] = 0.5
    shared.ask_until(rounds("museum"), lambda: shared.told("museum"))
    shared.took("museum", changed_at)
    assert shared.active("museum")
    shared.script.means["museum"] = 0.97
    back_at = time.time()
    shared.ask_until(rounds("museum", 32), lambda: shared.told("museum", "resolved"))
    (fired, over) = shared.told("museum")[0], shared.told("museum", "resolved")[0]
    assert over["fingerprint"] == fired["fingerprint"]
    assert over["endsAt"] > over["startsAt"]
    shared.running.until(lambda: not shared.active("museum"), 60, what="nothing is active at Alertmanager")
    ended_at = next(one["ended_at"] for one in shared.running.get("/api/alerts") if one["app"] == "museum")
    back = shared.between("museum", back_at, ended_at)
    print(f"museum: over after {back} scores")  # noqa: T201
    assert back < 500
    assert "recovered" in over["annotations"]["summary"]


def test_passages_of_other_topics_are_the_retrieval(shared):
    shared.ask(rounds("library", BEFORE)())
    changed_at = time.time()
    broken = itertools.cycle([False, True, True])

    def some():
        return [Ask(app="library", topic=topic, retrieval=next(broken)) for topic in EASY * 4]

    shared.ask_until(some, lambda: "retrieval" in causes(shared, "library"))
    shared.took("library", changed_at)
    assert set(causes(shared, "library")) <= {"retrieval", "unknown"}
    assert "context_relevancy" in last(shared, "library")["cause_detail"]


def test_a_prompt_that_lets_the_model_roam_is_the_generation_and_its_version_is_named(shared):
    shared.ask(rounds("hotel", BEFORE)())
    changed_at = time.time()

    def is_told():  # the slice may need some more scores than the cause
        return "generation" in causes(shared, "hotel") and "affected_slices" in last(shared, "hotel")

    shared.ask_until(rounds("hotel", system=ROAM), is_told)
    shared.took("hotel", changed_at)
    assert set(causes(shared, "hotel")) <= {"generation", "unknown"}
    told = last(shared, "hotel")
    new = f"prompt={shared.prompt('hotel')}"
    assert told["affected_slices"] == new
    assert f"{new} appeared with the onset" in told["cause_detail"]


@pytest.mark.parametrize("app", MIXED)
def test_a_doubled_share_of_a_hard_topic_is_the_traffic(shared, app):
    shared.script.means |= {HARD: 0.5, app: 0.98}
    numbers = itertools.count()

    def mixed(one_in):
        """Every second or fourth question is a hard one, the others are about the other topics in turn."""
        for number in numbers:
            topic = HARD if number % one_in == 0 else EASY[number % 7 % 4]
            tags = ("topic=hard" if topic == HARD else "topic=easy") if app == MIXED[0] else ""
            yield Ask(app=app, topic=topic, tags=tags)

    before, since = mixed(4), mixed(2)
    shared.ask([next(before) for _ in range(2 * BEFORE)])
    changed_at = time.time()
    shared.ask_until(
        lambda: [next(since) for _ in range(16)], lambda: "traffic_mix" in causes(shared, app), at_most=560
    )
    shared.took(app, changed_at)
    assert set(causes(shared, app)) <= {"traffic_mix", "unknown"}
    found, more = last(shared, app)["cause_detail"].split("as before it would be ")[1].split(" went from ")
    assert ("tag:topic=hard" if app == MIXED[0] else HARD) in found
    assert float(found[:4]) > 0.8, "with the old shares nothing fell"
    assert "of the exchanges" in more


@pytest.mark.parametrize("count", [40, 240], ids=["judged-before", "first-round-still-going-on"])
def test_a_judge_that_becomes_stricter_under_its_old_name_is_the_judge(tmp_path, count):
    (tmp_path / "anchors.jsonl").write_text(anchors(count), "utf-8")
    with lab(tmp_path, rules=[(["shop"], 0.9)], judge=f'anchors = "{tmp_path / "anchors.jsonl"}"') as one:
        one.script.delay_s = 0.03  # the anchors take longer than the alert is in coming
        one.ask(rounds("shop", BEFORE)(), per_s=60)
        one.settle()
        changed_at = time.time()
        one.script.strict = 0.15
        one.ask_until(rounds("shop"), lambda: "judge" in causes(one, "shop"))
        one.took("shop", changed_at)
        assert set(causes(one, "shop")) <= {"judge", "unknown"}, "it looks like a broken retrieval"
        assert f"of {count} anchors" in last(one, "shop")["cause_detail"]


NIGHT_H = 4.0
QUIET = """
[queue]
target_age_s = inf

[metrics.context_relevancy]
enabled = false

[metrics.answer_relevancy]
enabled = false

[metrics.hallucination]
enabled = false
"""
NAIVE = """
[[alerts.rules]]
name = "naive"
metric = "faithfulness"
apps = ["shop"]
slo = 0.85
severity = "compared"
detector = "threshold"
options = {n = 20}
"""


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A product that judges faithfulness alone; the naive rule beside it takes half of the budget and pages nobody."""
    judge = "max_retries = 0\nblind_s = 1"
    with lab(tmp_path_factory.mktemp("calm"), rules=[(["shop"], 0.9)], judge=judge, metrics=QUIET, more=NAIVE) as one:
        yield one


def test_a_quiet_night_pages_nobody(calm):
    """Four hours at exactly the promised mean: with the default budget that is 4/720 = .006 false alarms at most.

    So that it says something that nobody is paged, a mean of the last 20 scores is held against .05 less beside it.
    """
    night_s = NIGHT_H * 3600 * BUCKET_S / 60
    calm.ask(rounds("shop", int(night_s * 86))(), per_s=86)
    calm.settle()
    assert calm.scored("shop") > 1800  # of 2,064; on a busy machine a call to the judge may time out
    assert abs(calm.mean("shop") - 0.9) < 0.015
    time.sleep(2 * WATERMARK_S)
    rules = [one["rule"] for one in calm.running.get("/api/alerts") if one["state"] != "pending"]
    assert set(rules) == {"naive"}
    print(f"{calm.scored('shop'):.0f} scores, mean {calm.mean('shop'):.3f}; the naive rule fired {len(rules)} times")  # noqa: T201
    assert calm.hook.bodies == []
    assert calm.alertmanager.alerts() == []


def test_a_judge_that_is_out_is_told_as_such_until_it_answers_again(calm):
    calm.ask(rounds("shop", 100)())
    calm.settle()
    calm.script.failing = 500
    calm.ask_until(rounds("shop"), lambda: calm.told("*"))
    assert calm.told("*")[0]["labels"]["alertname"] == "GaugewayJudgeBlind"
    calm.script.failing = 0
    calm.ask_until(rounds("shop"), lambda: calm.told("*", "resolved"))
    calm.running.until(lambda: not calm.alertmanager.alerts(), 60, what="nothing is active at Alertmanager")
    names = {alert["labels"]["alertname"] for body in calm.hook.bodies for alert in body["alerts"]}
    assert names == {"GaugewayJudgeBlind"}

"""Compare: the two latest versions by themselves, a verdict in words and signs, none where there is no basis."""

from __future__ import annotations

import asyncio
import random
import re
import time

from dashboards.web.prompt_diff import MAX_LINE, MAX_LINES
from dashboards.web.templating import assets
from dashboards.web.templating import templates as page_templates
from dashboards.web.views import compare as view
from dashboards.web.views.compare import (
    CompareForm,
    Comparisons,
    dots,
    further,
    parse_form,
    start,
    wait_s,
)
from gaugeway.records import CaptureInfo, PromptPart
from gaugeway.storage.stores import Point
from monitors.alerting.changes import Version
from monitors.analysis.ab_compare import Arm, Compared
from tests.support.pages import EVIL, JUDGED, SCRIPTS, world


def version(value, first_seen, kind="model", app="shop"):
    return Version(app=app, kind=kind, value=value, first_seen=first_seen, exchanges=30)


async def two(
    w, old, new, *, n=300, metric="faithfulness", app="shop", kind="model", names=("old", "new"), over_s=7200
):
    """Scores of two versions, the new one later; the engine looks."""
    draw, now = random.Random(1), time.time()
    for index in range(2 * n):
        later = index >= n
        value = min(1.0, max(0.0, draw.gauss(new if later else old, 0.05)))
        about = {kind: names[later]} if kind != "tag" else {"tags": {"release": names[later]}}
        at = now - over_s + over_s / 2 * index / n
        await w.add(value, at=at, metric=metric, app=app, question=f"Question {index}?", cluster=f"s:{index}", **about)
    await w.look()


def chosen(page):
    """What the menus of the form have selected, but for the app's."""
    return [one["value"] for one in page.all("option") if "selected" in one]


async def test_the_two_latest_versions_are_compared_by_themselves(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6)
        page = await w.page("/compare")
    assert "✗ Model new looks worse than old cause not proven faithfulness \N{MINUS SIGN}0.3" in page.words
    assert "Roll back new." in page.words
    assert "✗ worse" in page.words
    assert "300" in page.words
    assert "They hardly ran at the same time (0 % of one version's scores)" in page.words
    risk, *_ = [one["title"] for one in page.all("button") if one.get("class") == "tip"]
    assert "Differences between the periods in which they served count as differences of the versions." in risk
    assert "old → new · model · all apps · 7 days · margin 0.02 Change" in page.words
    (chart,) = [one["aria-label"] for one in page.all("svg") if one.get("class") == "chart"]
    assert re.match(r"faithfulness of shop over time\. A \(old\) from 0\.(?:89|9)", chart)
    assert {"line k1", "line k2"} <= {one.get("class") for one in page.all("polyline")}
    assert chosen(page) == ["model", "old", "new", "7d"]


async def test_a_better_version_may_be_shipped(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.6, 0.9, kind="tag")
        assert (
            "✓ Release new is not worse than old Not worse by more than the margin of 0.02"
            in (await w.page("/compare?by=tag:release&a=old&b=new")).words
        )


async def test_a_metric_whose_best_value_is_0_is_judged_the_other_way_round(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.6, 0.2, metric="hallucination")
        words = (await w.page("/compare?by=model&a=old&b=new")).words
    assert "✓ Model new is not worse than old" in words
    assert "0 is best" in words


async def test_few_scores_give_no_verdict_but_how_many_more_it_takes(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.82, n=60)
        words = (await w.page("/compare")).words
    assert "○ Undecided" in words
    assert re.search(
        r"Next: faithfulness, after about [\d,]+ more scores\.",
        words,
    )
    assert re.search(r"○ undecided about [\d,]+ more", words)
    assert "too few for an interval" not in words


async def test_with_one_version_there_is_nothing_to_compare(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        one, none = await w.page("/compare"), await w.page("/compare?app=nowhere")
    assert "Only one version has been seen, by model." in one.words
    assert "of nowhere" in none.words


async def test_a_version_without_a_score_is_named_with_those_that_are_there(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.9, n=30)
        assert (
            "no scores for model 'newest' in this period; available: new, old"
            in (await w.page("/compare?by=model&a=old&b=newest")).words
        )


async def test_what_cannot_be_compared_is_refused_in_words(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.9, n=30)
        pages = [
            await w.page(f"/compare?{fields}", 400)
            for fields in (
                "by=colour&a=x&b=y",
                "by=model&a=old&b=old",
                "delta=2",
                "since=never",
                "since=1970-01-01",
                "since=9999d",
            )
        ]
    for page in pages:
        assert "These versions cannot be compared." in page.words


async def test_nothing_of_the_data_becomes_markup(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, n=120, app=EVIL, names=(EVIL, EVIL + "2"))
        pages = [await w.page("/compare"), await w.page(f"/compare?by={EVIL}", 400)]
    assert "looks worse" in pages[0].words
    for page in pages:
        assert [one.get("src", "").split("?")[0] for one in page.all("script")] == SCRIPTS
        assert not page.all("img")
        assert not [one for _, one in page.elements if "onerror" in one]


async def test_many_who_look_at_the_same_have_it_compared_once(tmp_path, monkeypatch):
    reads = []
    original = view.compare_versions

    async def counted(*args, **settings):
        reads.append(args)
        return await original(*args, **settings)

    monkeypatch.setattr(view, "compare_versions", counted)

    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, n=60)
        one, now = Comparisons(w.store, w.site.is_best_at_0), time.time()
        wanted = CompareForm(by="model", a="old", b="new", app="", since="7d", margin=0.02)
        await asyncio.gather(*(one.of(wanted, now) for _ in range(5)))
        assert len(reads) == 1
        await one.of(wanted, now + 61)
        assert len(reads) == 2


async def test_more_scores_than_are_read_one_by_one_are_counted_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "MOST_QUESTIONS", 10)

    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, n=450, over_s=14_400)
        page = await w.page("/compare")
    assert "✗ Model new looks worse than old" in page.words
    assert "450" in page.words
    (chart,) = [one["aria-label"] for one in page.all("svg") if one.get("class") == "chart"]
    assert re.match(r"faithfulness of shop over time\. A \(old\) from 0\.(?:89|9)", chart)
    assert "part of the scores" not in page.words


async def test_a_verdict_about_some_of_the_scores_says_so_until_all_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "WITHIN_S", -1.0)
    monkeypatch.setattr(view, "PARTIAL_S", -1.0)

    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, n=450, over_s=14_400)
        await two(w, 0.9, 0.6, n=30, over_s=600)  # of hours that are not over, which are read, not counted
        some = await w.page("/compare")
        monkeypatch.setattr(view, "WITHIN_S", 60.0)
        all_of_them = await w.page("/compare")
    assert "Only part of the scores in this period has been read." in some.words
    assert "part of the scores" not in all_of_them.words
    assert "✗ Model new looks worse than old" in all_of_them.words


def test_what_changed_last_tells_the_versions_apart():
    seen = [version("m1", 1.0), version("m2", 5.0), version("p1", 1.0, "prompt"), version("p2", 9.0, "prompt")]
    assert start(seen).by == "prompt"
    found = start(seen, by="model")
    assert (found.a, found.b) == ("m1", "m2")
    other = start([*seen, version("m3", 7.0, app="help")], by="model", app="help")
    assert (other.a, other.b, other.values) == ("", "", ("m3",))
    assert start([]).by == "model"


def test_the_form_is_read_leniently():
    assert parse_form({}) == CompareForm(by="", a="", b="", app="", since="7d", margin=0.02)
    assert parse_form({"delta": "nan"}).problems
    assert parse_form({"by": "tag:release"}).problems == ()


def test_what_is_missing_is_known_by_the_difference_so_far_or_by_what_a_decision_takes():
    about = {"app": "a", "metric": "x", "decision": "not enough data"}
    about |= {"champion": Arm(n=1000, mean=0.9), "challenger": Arm(n=200, mean=0.9)}
    assert further(Compared(more=500, needed=3000, **about)) == 500
    assert further(Compared(needed=1500, **about)) == 1800
    assert further(Compared(needed=100, **about)) is None
    assert further(Compared(**about)) is None
    row = Compared(more=600, overlap=0.9, **about)
    assert wait_s(row, {"a": 7200.0}) == 3600.0
    assert wait_s(row, {"b": 7200.0}) is None
    assert wait_s(Compared(overlap=0.9, **about), {"a": 7200.0}) is None
    assert wait_s(Compared(more=600, overlap=0.1, **about), {"a": 7200.0}) is None
    assert further(Compared(needed=1500, **about | {"decision": "within the margin"})) is None


def test_when_all_are_decided_is_said_only_when_all_can_tell():
    arm = Arm(n=30, mean=0.9)
    about = {"app": "a", "champion": arm, "challenger": arm, "decision": "not enough data"}
    known = [Compared(metric="x", more=500, **about), Compared(metric="y", more=2000, **about)]
    macros = page_templates(assets()).instance.engine.get_template("compare_verdict.html").module

    def words(rows):
        more = (0.02, 3, [], [row for row in rows if further(row)], further, lambda _: None)
        return macros.basis(rows, "not enough data", "a", "b", "model", *more)

    assert "Next: x, after about 500 more scores; all of them after about 2,000 more" in words(known)
    assert "all of them" not in words([*known, Compared(metric="z", **about)])


def test_times_with_few_scores_have_no_dot():
    def point(at, value):
        fields = {"app": "a", "model": "m", "metric": "x", "outcome": "score", "reason": "", "rate": 1.0}
        return Point(sample_id=f"{at}", started_at=at, value=value, **fields)

    points = [point(float(n), 0.5 if n % 2 else 0.7) for n in range(150)] + [point(400.0 + n, 0.1) for n in range(4)]
    (one,) = dots(points, 0.0, 200.0)
    assert (one.at, one.n, round(one.mean, 2)) == (100.0, 150, 0.6)
    assert one.low is not None
    assert one.high is not None
    assert one.low < 0.6 < one.high


async def paired(w, *, better=30, worse=10, same=20):
    """The same questions answered by both versions."""
    now, gains = time.time(), [0.3] * better + [-0.3] * worse + [0.0] * same
    random.Random(2).shuffle(gains)
    for index, gain in enumerate(gains):
        for name, value, later in (("old", 0.5, 0), ("new", 0.5 + gain, 1)):
            at = now - 7200.0 + 60.0 * index + later
            await w.add(value, at=at, model=name, question=f"Question {index}?", app="shop")
    await w.look()


async def test_a_difference_has_its_interval_and_a_plot_on_a_common_scale(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6)
        await two(w, 0.9, 0.9, metric="answer_relevancy", n=30)
        page = await w.page("/compare?by=model&a=old&b=new")
    labels = [one["aria-label"] for one in page.all("svg") if "forest" in one.get("class", "")]
    assert re.match(r"Scale from -0\.50 to \+0\.\d\d; band: margin 0\.02", labels[0])
    assert len(labels) == 4
    ends = re.search(r"B - A -0.3\d+, interval (\S+) to ([^ ;]+); 95 % interval (\S+) to (\S+)", " ".join(labels))
    low, high, *inner = ends.groups()
    assert float(low) < float(inner[0]) < -0.3 < float(inner[1]) < float(high) < -0.2
    assert f"{low} to {high}".replace("-", "\N{MINUS SIGN}") in page.words
    assert "-0.000 " not in page.words
    assert "+0.000 " not in page.words


async def test_the_verdict_counts_the_outcomes(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.6, 0.9)
        await two(w, 0.9, 0.88, metric="answer_relevancy", n=25)
        words = (await w.page("/compare?by=model&a=old&b=new")).words
    assert "○ Undecided on 1 of 2 metrics" in words
    assert "Settled: faithfulness (not worse by more than 0.02)." in words
    assert "Roll back" not in words


async def test_of_the_same_questions_it_says_how_many_got_a_better_answer(tmp_path):
    async with world(tmp_path) as w:
        await paired(w)
        page = await w.page("/compare?by=model&a=old&b=new")
    assert "B better 30, worse 10, same 20" in page.words
    assert "hardly ran" not in page.words
    assert "+0.10" in page.words


async def test_two_periods_are_compared_whatever_the_version(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, over_s=7200)
        found, overlapping, wrong, empty, begin = (
            await w.page("/compare?by=period&a=2h..1h&b=1h..now"),
            await w.page("/compare?by=period&a=2h..1h&b=2h..now", 400),
            await w.page("/compare?by=period&a=2h&b=1h..now", 400),
            await w.page("/compare?by=period&a=90d..80d&b=1h..now"),
            await w.page("/compare?by=period"),
        )
    assert "✗ Worse in the last hour cause not proven faithfulness \N{MINUS SIGN}0.3" in found.words
    assert "Roll back" not in found.words
    assert "hardly ran" not in found.words
    assert "in which they served" not in found.words
    assert "the two periods overlap" in overlapping.words
    assert "a period has the form SINCE..UNTIL, for example 14d..7d or 7d..now, not '2h'" in wrong.words
    assert "no scores for period 90d..80d" in empty.words
    assert [one["value"] for one in begin.all("input") if one["name"] in ("a", "b")] == ["14d..7d", "7d..now"]


async def test_a_chart_of_counted_scores_begins_when_traffic_does(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "MOST_QUESTIONS", 10)

    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, over_s=2400)
        page = await w.page("/compare")
    lines = {one["class"]: one["points"].split() for one in page.all("polyline") if "line" in one.get("class", "")}
    assert len(lines["line k1"]) >= 5
    assert len(lines["line k2"]) >= 5
    first = float(lines["line k1"][0].split(",")[0])
    last = float(lines["line k2"][-1].split(",")[0])
    assert last - first > 300  # of 950: the traffic, not the hours around it, fills most of the width


async def test_charts_are_folded(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.9)
        page = await w.page("/compare")
    assert page.all("details") == [{"class": "box asked"}, {"class": "charts"}, {}]  # none is open


async def test_a_signal_without_a_better_direction_differs_and_decides_nothing(tmp_path):
    """More passages are neither better nor worse: the difference is shown, and only the metric is decided."""

    async with world(tmp_path) as w:
        await two(w, 0.5, 0.9, metric="contexts_per_answer")
        await two(w, 0.9, 0.9)
        page = await w.page("/compare?by=model&a=old&b=new")
    assert re.search(
        r"contexts_per_answer no better direction ≠ differs .{0,60}\+0\.\d+ .{0,40}counts neither for nor against B",
        page.words,
    )
    assert page.words.count("✓ not worse") + page.words.count("○ undecided") == 1
    assert "neither more nor less is better" in page.words


async def test_the_reason_is_given_where_questions_are_not_compared(tmp_path, monkeypatch):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, n=30)
        few = await w.page("/compare?by=model&a=old&b=new")
        monkeypatch.setattr(view, "MOST_QUESTIONS", 10)
        many = await w.page("/compare?by=model&a=old&b=new&delta=0.03")
    assert "no question was answered by both" in few.words
    why = " ".join(one["title"] for one in many.all("button") if one.get("class") == "tip")
    assert "in comparisons of up to 10 scores" in why
    assert "gaugeway compare --pair-by question" in why


async def test_of_two_prompts_the_lines_that_changed_are_shown(tmp_path):
    rules = ["Answer from the passages only.", "Cite them.", "Be brief."]

    def capture(lines, title):
        texts = (("\n".join(lines), None), (title, 0))
        parts = [PromptPart(role="user", kind="instructions", start=0, end=9, text=t, passage=p) for t, p in texts]
        return CaptureInfo(source="structure", parts=tuple(parts))

    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, kind="prompt", names=("2-a", "2-b"))
        bare = await w.page("/compare?by=prompt&a=2-a&b=2-b&since=24h")
        await w.add(0.9, prompt="2-a", capture=capture(rules, "[1] fares.md"))
        await w.add(0.6, prompt="2-b", capture=capture(["Answer as you like.", *rules[1:]], "[1] <b>other.md"))
        page, models = await w.page("/compare?by=prompt&a=2-a&b=2-b"), await w.page("/compare?by=model")
    assert "are not stored" in bare.words
    assert "\N{MINUS SIGN} Answer from the passages only." in page.words
    assert "+ Answer as you like." in page.words
    assert "Cite them." in page.words
    assert "fares.md" not in page.text
    assert "other.md" not in page.text
    assert "instructions" not in models.words


async def test_a_diff_of_long_prompts_is_bounded(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, kind="prompt", names=("2-a", "2-b"))
        for name in ("2-a", "2-b"):
            lines = "\n".join(f"{name} {number} {'x' * 2000}" for number in range(2000))
            parts = (PromptPart(role="user", kind="instructions", start=0, end=9, text=lines),)
            await w.add(0.9, prompt=name, capture=CaptureInfo(source="structure", parts=parts))
        assert len((await w.page("/compare?by=prompt&a=2-a&b=2-b")).text) < 3 * MAX_LINES * MAX_LINE


async def test_it_says_how_far_two_judgements_of_the_same_answer_differ(tmp_path):
    async with world(tmp_path, config=JUDGED) as w:
        await paired(w)
        assert "judged twice" not in (await w.page("/compare?by=model&a=old&b=new")).words
        w.judged_twice(120)
        shown = (await w.page("/compare?by=model&a=old&b=new")).words
        assert "faithfulness by j: same answer, judged twice: ± 0.20 (sd 0.100, 0.082 to 0.170)" in shown


async def test_what_came_at_the_same_time_and_the_alert_stand_beside_the_verdict(tmp_path):
    async with world(tmp_path) as w:
        for index in range(400):
            later = index >= 200
            at = time.time() - 3600.0 + 9.0 * index
            about = {"model": "m-b" if later else "m-a", "tags": {"release": "8.2" if later else "8.1"}}
            await w.add(0.6 if later else 0.9, at=at, app="shop", cluster=f"s:{index}", **about)
        await w.look()
        page, other = await w.page("/compare?by=model&a=m-a&b=m-b"), await w.page("/compare?by=model&a=m-b&b=m-a")
    assert "m-b and release 8.2 came at the same time: read the worst answers" in page.words
    assert "came at the same time" not in other.words


async def test_a_roll_back_leads_to_the_alert_of_its_metric(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        (alert,) = [alert for alert in w.engine.alerts() if alert.state == "firing"]
        page = await w.page("/compare?by=period&a=2d..45m&b=45m..now")
        whole = await w.page("/compare?by=period&a=2d..119m&b=119m..100m")
    links = [one["href"] for one in page.all("a")]
    assert "Worse in the last 45 minutes" in page.words
    assert f"/alerts/{alert.fingerprint}" in links
    assert "Worst answers" not in whole.words


async def test_another_kind_of_version_begins_with_its_own_latest_values(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.9, n=40, kind="tag")
        await two(w, 0.9, 0.9, n=40)
        page = await w.page("/compare?of=model&by=tag%3Arelease&a=m-1&b=m-2")
        same = await w.page("/compare?of=model&by=model&a=m-1&b=new")
    assert chosen(page) == ["tag:release", "old", "new", "7d"]
    assert chosen(same) == ["model", "m-1", "new", "7d"]


async def test_counted_scores_of_versions_that_ran_one_after_the_other_are_apart(tmp_path, monkeypatch):
    """In bins of an hour both would seem to have run together."""
    monkeypatch.setattr(view, "MOST_QUESTIONS", 10)

    async with world(tmp_path) as w:
        await two(w, 0.9, 0.6, over_s=2400)
        page = await w.page("/compare")
    (share,) = re.findall(r"They hardly ran at the same time \((\d+) % of one version's scores\)", page.words)
    assert int(share) < 30  # the bin in which one took over from the other


async def test_a_reason_stands_once_only_if_it_is_that_of_every_undecided_metric(tmp_path, monkeypatch):
    why = "needs 400 scores of each version, as conversations are not read one by one"

    async with world(tmp_path) as w:
        for metric in ("faithfulness", "answer_relevancy"):
            await two(w, 0.9, 0.6, n=60, metric=metric)
        named = await w.page("/compare?by=model&a=old&b=new")
        monkeypatch.setattr(view, "MOST_QUESTIONS", 10)
        counted = await w.page("/compare?by=model&a=old&b=new&delta=0.03")
    assert "400" not in named.words
    assert f"Each undecided metric {why}." in counted.words
    assert counted.words.count(why) == 1


async def test_where_there_are_two_versions_it_asks_for_both(tmp_path):
    async with world(tmp_path) as w:
        await two(w, 0.9, 0.9, n=30)
        page = await w.page("/compare?by=model&a=&b=new")
    assert "Choose A and B." in page.words
    assert "Only one version" not in page.words

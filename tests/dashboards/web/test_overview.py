"""The first view: a row per app, a mean per metric, honest about what it does not know."""

from __future__ import annotations

import re

import pytest

from dashboards.web.charts import Dot, Line, Mark, bars, scale, sparkline, ticks, time_ticks, timeline
from dashboards.web.quality_matrix import Read, Trend, Watches, cell, dots_of, rows_of, trend_of
from gaugeway.settings.shared import Alerts, Rule
from gaugeway.storage.stores import Summary
from monitors.alerting.engine import StreamStatus
from monitors.analysis.quality import Quality
from tests.support.pages import EVIL, world


def watched(state="quiet", m0=0.9, **changes):
    about = {"rule": "r", "metric": "m", "app": "a", "evidence_log10": -3.0, "closed_until": 0.0}
    return StreamStatus(**about | {"state": state, "m0": m0} | changes)


def sums(value, n=100, failed=0, app="a", metric="m"):
    return Summary(
        app=app, metric=metric, n=n, failed=failed, w=n, wx=n * value, w2=n, w2x=n * value, w2x2=n * value**2
    )


async def whole(w):
    """The overview once all hours are read."""
    await w.plane.estimate()
    page = await w.page("/")
    while any("data-incomplete" in attributes for _, attributes in page.elements):
        page = await w.page("/")
    return page


async def test_without_anything_stored_it_says_so_and_where_to_begin(tmp_path):
    async with world(tmp_path) as w:
        unread, unread_sources, page, sources = (
            await w.page("/"),
            await w.page("/sources"),
            await whole(w),
            await w.page("/sources"),
        )
    assert "No scores" not in unread.words
    assert "The scores of the last 24 hours are being read." in unread.words
    assert "No app has scores yet" not in unread_sources.words
    assert "No app has scores yet" in sources.words
    assert "No scores in the last 24 hours" in page.words
    assert {"href": "/welcome", "class": "button"} in page.all("a")


async def test_a_mean_has_its_interval_and_few_scores_have_none(tmp_path):
    async with world(tmp_path) as w:
        for n in range(150):
            await w.add(0.8 + 0.1 * (n % 2))
        for _ in range(7):
            await w.add(0.5, app="tiny")
        await w.look()
        page = await w.page("/")
    assert "7 of 10 scores" in page.words
    assert "shop" in page.words
    assert re.search(r"0\.85, 95 % interval 0\.8[0-4] to 0\.8[678]; 150 scores in 1 h", page.words), page.words
    assert "No scores in" not in page.words


async def test_what_fires_is_in_the_banner_and_comes_first(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        await w.drop(good=320, bad=0, app="bank")
        page = await w.page("/")
        alerts = w.engine.alerts()
    firing = [one for one in alerts if one.state == "firing"]
    assert firing
    assert f"{len(firing)} alert" in page.words
    assert f"/alerts/{firing[0].fingerprint}" in [one.get("href") for one in page.all("a")]
    assert page.words.index("shop ■ firing") < page.words.index("bank ")


async def test_an_app_whose_prompt_is_not_recognised_is_the_first_thing_one_sees(tmp_path):
    async with world(tmp_path) as w:
        w.answered(5, app="new")
        page, runbook = await whole(w), await w.page("/runbook")
    assert page.words.index("No passages were found in any of 5 answers of app new in the last 1 d") < page.words.index(
        "No scores in the last"
    )
    assert {"href": "/runbook#capture"} in page.all("a")
    assert "capture" in [one.get("id") for one in runbook.all("h2")]


async def test_what_is_scored_and_what_is_captured_are_told_apart(tmp_path):
    async with world(tmp_path) as w:
        for _ in range(3):
            await w.add(0.9)
        w.answered(2, source="tools")
        w.answered(46)
        w.answered(2, source="tools", question=None)
        w.answered(40, app="whole", source="tools")
        w.answered(1, app="whole")
        w.answered(2, app="tiny")
        await w.look()
        page = await w.page("/")
        answer = (await w.client.get("/api/capture")).json()
        answer = {one["app"]: one for one in answer}
    assert "4 % of 50" in page.words
    assert "of the answers scored" not in page.words  # all were
    assert "92 % of app shop's answers have no passages" in page.words
    assert "4 % of app shop's answers have no question" in page.words
    assert "50 answers in the last 1 h" in page.words
    assert "No alert is firing on captured traffic." in page.words
    assert page.words.count("of app") == 2  # nothing is said about the others
    assert (answer["shop"]["ratio"], answer["whole"]["captured"], answer["tiny"]["answers"]) == (0.04, 40, 2)


async def test_when_everything_is_captured_no_note_is_shown_and_with_many_low_apps_five_are_named(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.9)
        w.answered(50, source="tools")
        calm = await w.page("/")
        for number in range(8):
            w.answered(10 + number, app=f"low-{number}{EVIL}")
        page = await w.page("/")
    assert "No alert is firing." in calm.words
    assert "captured traffic" not in calm.words
    assert page.words.count("No passages were found") == 5
    assert "3 more apps" in page.words
    assert page.text.index("low-7") < page.text.index("low-3")
    assert "low-2" not in page.text
    assert not page.all("img")


async def test_a_slice_is_shown_on_demand(tmp_path):
    async with world(tmp_path) as w:
        for n in range(240):
            await w.add(0.9 if n % 2 else 0.5, model=f"m-{n % 2}")
        await w.look()
        plain, cut, none = await w.page("/"), await w.page("/?by=model"), await w.page("/?by=tag:none")
    assert "By model" not in plain.words
    assert "faithfulness shop m-0 0.50" in cut.words
    assert "120 1 h" in cut.words
    assert "No score in the window has a value for tag:none" in none.words


async def test_names_that_clients_choose_are_text_and_nothing_else(tmp_path):
    async with world(tmp_path) as w:
        for _ in range(3):
            await w.add(0.9, app=EVIL, model=EVIL, tags={EVIL: EVIL})
        await w.look()
        pages = [await w.page(path) for path in ("/", "/?by=model", f"/?by=tag:{EVIL}")]
    for page in pages:
        assert all("src" in one for one in page.all("script"))
        assert not page.all("img")
        assert EVIL in page.text


def test_the_worst_state_of_an_apps_rules_counts_and_slices_do_not():
    streams = [watched(), watched("firing", rule="other"), watched("firing", app="b"), watched("pending", slice="x=y")]
    assert Watches(streams).of("a", "m").state == "firing"
    assert Watches([watched(), watched("pending", slice="x=y")]).of("a", "m").state == "quiet"
    assert Watches([watched(m0=None, learned=3, needed=9)]).of("a", "m").state == "learning"
    assert Watches([watched(app="*")]).of("a", "m").state == "quiet"
    assert Watches([watched()]).of("a", "other").state == "unwatched"
    assert Watches([watched()], lambda metric, app: True).of("a", "other").state == "waiting"


def test_an_app_that_is_silent_now_is_still_there_today():
    (row,) = rows_of([], Watches([]), {("a", "m"): [(0.0, sums(0.9, 50))]})
    assert (row.app, row.qualities["m"].mean) == ("a", None)


def test_a_change_is_said_when_the_intervals_are_apart_and_in_the_metrics_own_sense():
    hours = [(3600.0 * h, sums(0.9 if h < 18 else 0.5, 100)) for h in range(24)]
    now = 24 * 3600.0
    found = trend_of(hours, now, lower_is_better=False)
    assert (found.direction, found.period) == ("worse", "24 h")
    assert (found.before, found.since, found.change) == pytest.approx((0.9, 0.5, -0.4))
    assert trend_of(hours, now, lower_is_better=True).direction == "better"
    assert trend_of(hours, now, lower_is_better=None).direction == "changed"
    assert trend_of(hours, now, lower_is_better=False, effect=100.0).direction == "unknown"
    steady = [(start, sums(0.9, 100)) for start, _ in hours]
    assert trend_of(steady, now, lower_is_better=False).direction == "unclear"
    assert trend_of(hours[-1:], now, lower_is_better=False).before is None
    assert trend_of((), now, lower_is_better=False) == Trend()


def test_a_dot_begins_at_ten_effective_scores_and_has_an_interval():
    now = 24 * 3600.0 - 1.0
    assert dots_of([(23 * 3600.0, sums(0.9, 9))], now)[0] == []
    assert dots_of([(23 * 3600.0, sums(0.9, 19))], now, effect=2.0)[0] == []
    ((found,), seconds) = dots_of([(23 * 3600.0, sums(0.9, 10))], now)
    assert (found.at, found.mean, found.n, seconds) == (23.5 * 3600.0, pytest.approx(0.9), 10, 3600.0)
    assert found.low < 0.9 < found.high


def test_an_app_with_little_traffic_has_a_chart_of_longer_periods():
    now = 1000 * 3600.0 + 1800.0
    busy, wide = dots_of([(3600.0 * (977 + h), sums(0.9, 40)) for h in range(24)], now)
    quiet, wider = dots_of([(3600.0 * (977 + h), sums(0.9, 3)) for h in range(24)], now)
    none, widest = dots_of([(3600.0 * 990, sums(0.9, 3))], now)
    assert (len(busy), wide) == (24, 3600.0)
    assert (len(quiet), wider) == (4, 6 * 3600.0)
    assert (none, widest) == ([], 12 * 3600.0)
    assert all(one.n == 18 for one in quiet)
    assert busy[0].at == 3600.0 * 977.5
    assert busy[-1].at <= 1001 * 3600.0


KNOWN = Quality(app="a", metric="m", n=200, n_eff=200.0, coverage_ratio=1.0, mean=0.8, ci_low=0.7, ci_high=0.9)


def test_a_cells_chart_says_in_words_what_it_shows():
    hours = [(3600.0 * h, sums(0.9 - h / 100, 200)) for h in range(24)]
    (row,) = rows_of([KNOWN], Watches([watched()]))
    found = cell(row, "m", 24 * 3600.0, read=Read(hours={("a", "m"): hours}), lower_is_better=())
    assert "m of a, last 24 h by 1 h: from 0.90 to 0.67, baseline 0.90" in found.chart
    assert 'class="baseline"' in found.chart
    assert 'class="band k1"' in found.chart
    assert 'class="line k1"' in found.chart
    assert found.trend.direction == "worse"
    assert found.is_notable
    assert cell(row, "other", 0.0, read=Read(), lower_is_better=()) is None


def test_ten_minutes_after_the_first_score_there_is_a_line_and_a_trend():
    now = 100 * 3600.0 + 900.0
    young = {("a", "m"): [(now - 900.0 + 300.0 * step, sums(0.9 if step < 2 else 0.2, 60)) for step in range(3)]}
    hours = {("a", "m"): [(100 * 3600.0, sums(0.7, 180))]}
    (row,) = rows_of([KNOWN], Watches([watched()]))
    found = cell(row, "m", now, read=Read(hours=hours, young=young), lower_is_better=())
    assert "m of a, last 15 min by 5 min: from 0.90 to 0.20" in found.chart
    assert 'class="line k1"' in found.chart
    assert (found.trend.direction, found.trend.period) == ("worse", "15 min")
    old = {("a", "m"): [(96 * 3600.0, sums(0.7, 180)), *hours["a", "m"]]}
    assert "last 24 h" in cell(row, "m", now, read=Read(hours=old, young=young), lower_is_better=()).chart


def test_charts_escape_what_they_are_told():
    dots = [Dot(at=float(n), mean=0.5, low=0.4, high=0.6) for n in range(3)]
    line = Line(dots=dots)
    drawn = [
        sparkline(dots, title=EVIL, desc=EVIL, since=0, until=3, gap_s=9.0),
        timeline([line], title=EVIL, desc=EVIL, since=0, until=3, marks=[Mark(at=1.0, label=EVIL)]),
        sparkline(dots, title=EVIL, since=0, until=3, baseline=0.4, gap_s=9.0),
        bars([1, 2], title=EVIL, edges=[EVIL, EVIL, EVIL]),
    ]
    for one in drawn:
        assert "<script>" not in one
        assert "<img" not in one


def test_a_line_is_not_drawn_across_a_gap():
    dots = [Dot(at=at, mean=0.5) for at in (0.0, 1.0, 9.0, 10.0)]
    drawings = [sparkline(dots, title="t", desc="d", since=0.0, until=10.0, gap_s=gap_s) for gap_s in (2.0, 8.0)]
    assert [drawing.count("<polyline") for drawing in drawings] == [2, 1]


def test_axes_have_round_numbers_and_hold_every_value():
    low, high = scale([[Dot(at=0.0, mean=0.5, low=0.1, high=0.93)]], [0.95])
    assert low < 0.1
    assert high > 0.95
    assert all(low <= one <= high for one in ticks(low, high))
    assert 3 <= len(time_ticks(0.0, 86_400.0)) <= 7
    assert time_ticks(10.0, 10.0) == []


@pytest.mark.parametrize(
    ("alerts", "state", "told"),
    [
        (
            Alerts(rules=(Rule(metric="faithfulness", slo=0.85, name="answers"),)),
            "waiting for scores",
            "answers SLO 0.85",
        ),
        (Alerts(rules=()), "no rule", "rules none: no alert watches a metric"),
        (
            Alerts(rules=(Rule(metric="faithfulness", slo=0.85),), default_rules=True),
            "waiting for scores",
            "default rules one for every enabled metric and signal",
        ),
    ],
)
async def test_overview_and_settings_agree_on_what_is_watched(tmp_path, alerts, state, told):
    async with world(tmp_path, alerts=alerts) as w:
        for _ in range(20):
            await w.add(0.9)
        await w.plane.estimate()
        overview, setup = await w.page("/"), await w.page("/settings")
    assert state in overview.words
    assert [one for one in ("no rule", "waiting for scores") if one in overview.words] == [state]
    assert told in setup.words


def test_a_histogram_names_both_ends_of_its_scale_and_of_each_bar():
    drawn = bars([1] * 20, title="t", edges=[f"{index / 20:.2f}" for index in range(21)])
    assert "<title>0.95 to 1.00: 1</title>" in drawn
    assert [one.split("<")[0] for one in drawn.split("<text")[1:]] != []
    assert [text.split(">")[1].split("<")[0] for text in drawn.split("<text ")[1:]] == [
        *("0.00", "0.25", "0.50", "0.75", "1.00")
    ]

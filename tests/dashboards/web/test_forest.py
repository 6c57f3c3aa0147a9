"""The forest plot: to the right is better, whatever the metric; everything lies on one scale."""

from __future__ import annotations

import re

from dashboards.web.charts import Effect, effect_of, forest_axis, forest_row, reach
from tests.support.pages import EVIL


def x_of(drawn, kind):
    return float(re.search(rf'class="{kind}" (?:x1|cx)="([^"]+)"', drawn)[1])


def test_to_the_right_is_better_also_where_0_is_best():
    more = forest_row(effect_of(0.05, 0.01, 0.09, lower_is_better=False), reach=0.1, margin=0.02, title="t")
    less = forest_row(effect_of(-0.05, -0.09, -0.01, lower_is_better=True), reach=0.1, margin=0.02, title="t")
    assert more == less
    assert x_of(more, "margin") < x_of(more, "axis") < x_of(more, "point")


def test_an_interval_below_the_margin_is_marked_and_one_beyond_the_scale_has_an_arrow():
    worse = forest_row(Effect(gain=-0.2, low=-0.3, high=-0.1), reach=0.5, margin=0.02, title="t")
    open_ = forest_row(Effect(gain=-0.2, low=-0.3, high=0.0), reach=0.5, margin=0.02, title="t")
    assert 'circle class="worse"' in worse
    assert 'circle class="point"' in open_
    assert "polyline" not in worse
    assert "polyline" in forest_row(Effect(gain=0.0, low=-0.9, high=0.1), reach=0.5, margin=0.02, title="t")


def test_a_scale_holds_every_effect_and_the_margin_and_one_wide_interval_does_not_flatten_the_others():
    small = [Effect(gain=0.01, low=-0.01, high=0.03) for _ in range(9)]
    assert reach([*small, Effect(gain=0.0, low=-1.0, high=1.0)], 0.02) == 0.05
    assert reach([*small, Effect(gain=0.4)], 0.02) == 0.5
    assert reach([], 0.3) == 0.5


def test_its_title_is_text():
    assert EVIL not in forest_row(Effect(gain=0.0), reach=0.1, margin=0.0, title=EVIL)
    assert "-0.10" in forest_axis(0.1, 0.02)

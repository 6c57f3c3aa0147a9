"""The forest plot: to the right is better, whatever the metric; everything lies on one scale."""

from __future__ import annotations

import re

from dashboards.web.charts import Effect, Scale, effect_of, forest_axis, forest_row, scale_of
from tests.support.pages import EVIL

SCALE = Scale(-0.1, 0.1)


def x_of(drawn, tag):
    return float(re.search(rf'<{tag} (?:class="\w+" )?(?:x1|cx|x)="([^"]+)%"', drawn)[1])


def test_to_the_right_is_better_also_where_0_is_best():
    more = forest_row(effect_of(0.05, 0.01, 0.09, lower_is_better=False), scale=SCALE, margin=0.02, title="t")
    less = forest_row(effect_of(-0.05, -0.09, -0.01, lower_is_better=True), scale=SCALE, margin=0.02, title="t")
    assert more == less
    assert x_of(more, "rect") < x_of(more, "circle")


def kind_of(low, high):
    effect = Effect(gain=(low + high) / 2, low=low, high=high)
    return re.search(r'class="forest (\w+)"', forest_row(effect, scale=SCALE, margin=0.02, title="t"))[1]


def test_the_colour_says_on_which_side_of_the_margin_the_interval_lies():
    assert kind_of(-0.3, -0.1) == "worse"
    assert kind_of(-0.3, 0.0) == kind_of(-0.3, -0.02) == "open"
    assert kind_of(-0.01, 0.3) == "good"
    assert 'class="forest open"' in forest_row(Effect(gain=-0.2), scale=SCALE, margin=0.02, title="t")


def test_an_interval_beyond_the_scale_has_an_arrow():
    ends = [
        forest_row(Effect(gain=0.0, low=low, high=0.1), scale=SCALE, margin=0.02, title="t") for low in (-0.1, -0.9)
    ]
    assert ["polyline" in drawn for drawn in ends] == [False, True]


def test_a_scale_holds_every_effect_and_the_margin_and_one_wide_interval_does_not_flatten_the_others():
    small = [Effect(gain=0.01, low=-0.01, high=0.03) for _ in range(9)]
    assert scale_of([*small, Effect(gain=0.0, low=-1.0, high=1.0)], 0.02) == Scale(-0.03, 0.03)
    assert scale_of([*small, Effect(gain=0.4)], 0.02) == Scale(-0.03, 0.5)
    assert scale_of([], 0.3) == Scale(-0.5, 0.5)


def test_its_title_is_text():
    assert EVIL not in forest_row(Effect(gain=0.0), scale=SCALE, margin=0.0, title=EVIL)
    assert "\N{MINUS SIGN}0.10" in forest_axis(SCALE, 0.02)

"""Forest plot: differences with their intervals and the margin, one small SVG per table row on a common scale. Pure.

To the right is always better for B. The drawings have a fixed size and no text that would shrink on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from dashboards.web.charts import drawn

_MIDDLE, _HALF_WIDTH = 120.0, 110.0
"""Of the scale, in pixels."""
_ROUND = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A gain of B over A, positive if B is better, with its interval if there is one."""

    gain: float
    low: float | None = None
    high: float | None = None


def effect_of(difference: float, low: float | None, high: float | None, *, lower_is_better: bool) -> Effect:
    """The effect of a difference B - A on the metric's own scale.

    >>> effect_of(0.1, 0.05, 0.2, lower_is_better=True)
    Effect(gain=-0.1, low=-0.2, high=-0.05)
    """
    if not lower_is_better:
        return Effect(gain=difference, low=low, high=high)
    return Effect(gain=-difference, low=None if high is None else -high, high=None if low is None else -low)


def reach(effects: Iterable[Effect], margin: float) -> float:
    """Half the width of the common scale: all effects, most of their intervals, and the margin lie within.

    >>> reach([Effect(gain=0.01, low=-0.02, high=0.04)], 0.02), reach([], 0.0)
    (0.05, 0.01)
    """
    found = list(effects)
    ends = sorted(
        max(abs(effect.low), abs(effect.high)) for effect in found if effect.low is not None and effect.high is not None
    )
    most = ends[math.ceil(0.75 * len(ends)) - 1] if ends else 0.0
    wanted = max([most, 1.5 * margin, *(abs(effect.gain) for effect in found)])
    return next((bound for bound in _ROUND if bound >= wanted), _ROUND[-1])


def forest_row(effect: Effect, *, reach: float, margin: float, title: str) -> Markup:
    """The plot of one row: a line at no difference, one at the margin, the interval, the effect.

    An interval that goes beyond the scale ends in an arrow.
    """
    x = partial(_x, reach=reach)
    return drawn("forest_row", effect=effect, reach=reach, margin=margin, title=title, x=x)


def forest_axis(reach: float, margin: float) -> Markup:
    """The scale, to stand above the rows."""
    return drawn("forest_axis", reach=reach, margin=margin)


def _x(value: float, reach: float) -> float:
    return round(_MIDDLE + min(1.0, max(-1.0, value / reach)) * _HALF_WIDTH, 1)

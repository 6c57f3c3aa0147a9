"""Forest plot: differences with their intervals and the margin, one small SVG per table row on a common scale. Pure.

To the right is always better for B. The drawings have a fixed size and no text that would shrink on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 240.0, 26.0
_EDGE = 10.0
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
    parts = [_vertical("axis", _x(0.0, reach)), _vertical("margin", _x(-margin, reach))] if margin else []
    if not parts:
        parts = [_vertical("axis", _x(0.0, reach))]
    middle = HEIGHT / 2.0
    if effect.low is not None and effect.high is not None:
        left, right = _x(effect.low, reach), _x(effect.high, reach)
        line = Markup('<line class="range" x1="{}" y1="{}" x2="{}" y2="{}"/>')
        parts.append(line.format(left, middle, max(right, left + 1.0), middle))
        for value, x, way in ((effect.low, left, 1.0), (effect.high, right, -1.0)):
            parts.append(_arrow(x, way) if abs(value) > reach else _tick(x))
    kind = "worse" if effect.high is not None and effect.high < -margin else "point"
    parts.append(Markup('<circle class="{}" cx="{}" cy="{}" r="4"/>').format(kind, _x(effect.gain, reach), middle))
    return _drawn(parts, title)


def forest_axis(reach: float, margin: float) -> Markup:
    """The scale, to stand above the rows."""
    parts = [Markup('<line class="axis" x1="{}" y1="24" x2="{}" y2="24"/>').format(_EDGE, WIDTH - _EDGE)]
    texts: Sequence[tuple[float, str]] = [(-reach, "start"), (0.0, "mid"), (reach, "end")]
    for value, side in texts:
        text = f"{value:+.2f}" if value else "0"
        x = {"start": 0.0, "mid": _x(0.0, reach), "end": WIDTH}[side]
        parts.append(Markup('<text class="{}" x="{}" y="16">{}</text>').format(side, x, text))
    return _drawn(parts, f"Scale from {-reach:+.2f} to {reach:+.2f}; dashed line: margin {-margin:+.2f}")


def _x(value: float, reach: float) -> float:
    inside = min(1.0, max(-1.0, value / reach))
    return round(WIDTH / 2.0 + inside * (WIDTH / 2.0 - _EDGE), 1)


def _vertical(kind: str, x: float) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="0" x2="{}" y2="{}"/>').format(kind, x, x, HEIGHT)


def _tick(x: float) -> Markup:
    return Markup('<line class="range" x1="{}" y1="8" x2="{}" y2="18"/>').format(x, x)


def _arrow(x: float, way: float) -> Markup:
    """An arrowhead at `x`; `way` 1 points to the left, -1 to the right."""
    return Markup('<polyline class="range" points="{},8 {},13 {},18"/>').format(x + 5.0 * way, x, x + 5.0 * way)


def _drawn(parts: Iterable[Markup], title: str) -> Markup:
    svg = Markup('<svg class="forest" viewBox="0 0 240 26" width="240" height="26" role="img" aria-label="{}">{}</svg>')
    return svg.format(title, Markup("").join(parts))

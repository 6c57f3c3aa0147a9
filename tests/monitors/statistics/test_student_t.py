"""Student's quantiles against those of scipy."""

from __future__ import annotations

import pytest

from monitors.statistics.confidence_sequence import student


@pytest.mark.parametrize(
    ("degrees", "value"),
    [
        (1, 12.7062047364),
        (2, 4.3026527297),
        (5, 2.5705818356),
        (8, 2.3060041352),
        (28, 2.0484071418),
        (39, 2.0226909117),
        (40, 2.0210753829),
        (48, 2.0106347576),
        (98, 1.9844674545),
        (1000, 1.9623390808),
    ],
)
def test_students_quantiles_are_those_of_scipy(degrees, value):
    assert student(0.05, degrees) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(("alpha", "degrees"), [(0.0, 5), (1.0, 5), (0.05, 0)])
def test_without_a_degree_of_freedom_or_a_level_there_is_none(alpha, degrees):
    with pytest.raises(ValueError, match="degree of freedom"):
        student(alpha, degrees)

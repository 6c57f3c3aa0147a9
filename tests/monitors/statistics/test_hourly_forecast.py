"""Forecasts of hourly means: what they learn of days, weekdays and hours, and what they do not follow."""

from __future__ import annotations

import numpy as np
import pytest

from monitors.statistics.hourly_forecast import HourlyForecast, Variation

METRIC = Variation(season=0.015, weekday=0.015, hour=0.015)
SIGNAL = Variation(season=0.2, weekday=0.1, hour=0.05)
SD, ERROR = 0.27, 0.015
"""Of a score, and the standard error of an hour's mean: about 320 scores an hour."""
DAY, WEEK = 24, 7 * 24


def fresh(variation: Variation = METRIC) -> HourlyForecast:
    return HourlyForecast(variation, mean=0.8, sd=SD)


def learned(means: list[float], variation: Variation = METRIC, error: float = ERROR, seed: int = 1) -> HourlyForecast:
    """A forecast after hours with these true means, each measured with a standard error."""
    rng, forecast = np.random.default_rng(seed), fresh(variation)
    for hour, mean in enumerate(means):
        forecast.update(hour, mean + error * rng.standard_normal(), error * error)
    return forecast


def test_a_daily_season_and_a_weekend_are_learned_within_two_weeks() -> None:
    def mean(hour: int) -> float:
        return 0.8 + 0.03 * np.cos(2 * np.pi * hour / DAY) - (0.04 if hour // DAY % 7 in (2, 3) else 0.0)

    forecast = learned([mean(hour) for hour in range(2 * WEEK)])
    errors = [forecast.at(hour).mean - mean(hour) for hour in range(2 * WEEK, 3 * WEEK)]
    assert np.sqrt(np.mean(np.square(errors))) < 0.01
    assert max(map(abs, errors)) < 0.025


@pytest.mark.parametrize("variation", [METRIC, SIGNAL])
def test_the_variance_is_that_of_the_errors_from_the_second_day_on(variation: Variation) -> None:
    # hours drawn from the model: the forecasts' standardized errors have variance 1
    squares = []
    for seed in range(8):
        rng, forecast, effect = np.random.default_rng(seed), fresh(variation), 0.0
        season = SD * variation.season * rng.standard_normal(2)
        weekday = SD * variation.weekday * rng.standard_normal(7)
        for hour in range(4 * WEEK):
            effect = 0.6 * effect + 0.8 * SD * variation.hour * rng.standard_normal()
            angle = 2 * np.pi * hour / DAY
            mean = 0.8 + season @ (np.cos(angle), np.sin(angle)) + weekday[hour // DAY % 7] + effect
            if hour >= DAY:
                ahead = forecast.at(hour)
                squares.append((mean - ahead.mean) ** 2 / ahead.variance)
            forecast.update(hour, mean + ERROR * rng.standard_normal(), ERROR * ERROR)
    assert 0.7 < np.mean(squares) < 1.3


def test_a_drop_is_not_followed_at_once_and_after_days_it_is() -> None:
    before = [0.8] * (2 * WEEK)
    for hours, most in ((1, 0.01), (6, 0.03)):
        lowered = learned(before + [0.7] * hours).at(2 * WEEK + hours).mean
        assert 0.8 - most < lowered <= 0.805
    assert learned(before + [0.7] * 6 * WEEK).at(8 * WEEK).mean < 0.74


def test_an_improvement_is_taken_over_after_three_days_and_a_drop_of_the_same_size_is_not() -> None:
    before, later = [0.8] * (2 * WEEK), 2 * WEEK + 4 * DAY
    better, worse = (learned(before + [0.8 + change] * 4 * DAY).at(later + 12).mean for change in (0.1, -0.1))
    assert better > 0.88
    assert worse > 0.71
    neither = learned(before)
    for hour in range(2 * WEEK, later):
        neither.update(hour, 0.9, 0.01**2, improves=False)
    assert neither.at(later + 12).mean < 0.89


@pytest.mark.parametrize("hours", [1, 6, 24, 48])
def test_a_good_night_or_weekend_is_no_improvement(hours: int) -> None:
    after = learned([0.8] * (2 * WEEK) + [0.95] * hours + [0.8] * 6).at(2 * WEEK + hours + 6)
    assert after.mean < 0.83
    assert after.variance < 0.01**2


@pytest.mark.parametrize("every", [DAY, WEEK])
@pytest.mark.parametrize("change", [-0.3, 0.15])
def test_an_hour_that_is_always_different_is_known_after_its_second_time(every: int, change: float) -> None:
    def mean(hour: int) -> float:
        return 0.8 + (change if hour % every == 3 else 0.0)

    first, known = (learned([mean(hour) for hour in range(hours)]) for hours in (4, 2 * WEEK + 4))
    again = 2 * WEEK + 3 + every
    assert first.at(3 + every).mean == pytest.approx(0.8, abs=0.04)
    assert known.at(again).mean == pytest.approx(0.8 + min(0.0, change), abs=0.03)
    assert known.at(again + 4).mean == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("hours", [48, 60, 71])
def test_days_that_are_worse_throughout_are_a_shift_and_no_habit(hours: int) -> None:
    quiet, noted = learned([0.8] * (2 * WEEK)), learned([0.8] * (2 * WEEK))
    rng = np.random.default_rng(7)
    for hour in range(2 * WEEK, 2 * WEEK + hours):
        noted.note(hour, 0.6 + ERROR * rng.standard_normal())
    for hour in range(2 * WEEK + hours, 2 * WEEK + hours + 3 * DAY):
        assert noted.at(hour).mean == pytest.approx(quiet.at(hour).mean, abs=1e-9)


def test_a_habit_that_ends_is_forgotten_in_a_week() -> None:
    nightly = learned([0.5 if hour % DAY == 3 else 0.8 for hour in range(2 * WEEK)] + [0.8] * 8 * DAY)
    never = learned([0.8] * (2 * WEEK + 8 * DAY))
    for hour in range(2 * WEEK + 8 * DAY, 2 * WEEK + 9 * DAY):
        assert nightly.at(hour).mean == pytest.approx(never.at(hour).mean, abs=0.02)


def test_neighbouring_hours_that_are_alike_are_learned_and_a_lone_hour_is_not_followed() -> None:
    rng, effect, means = np.random.default_rng(3), 0.0, []
    for _ in range(4 * WEEK):
        effect = 0.8 * effect + 0.6 * 0.03 * rng.standard_normal()
        means.append(0.8 + effect)
    alike = learned(means, error=0.005)
    alone = learned((0.8 + 0.03 * rng.standard_normal(4 * WEEK)).tolist(), error=0.005)
    assert 0.6 < alike.phi <= 0.95
    assert alone.phi < 0.3
    assert np.sqrt(alike.tau2) == pytest.approx(0.03, rel=0.3)
    assert np.sqrt(alone.tau2) == pytest.approx(0.03, rel=0.3)
    for forecast, least, most in ((alike, 0.02, 0.05), (alone, -0.005, 0.015)):
        other = HourlyForecast.restored(forecast.state)
        forecast.update(4 * WEEK, 0.85, 0.005**2)
        other.update(4 * WEEK, 0.80, 0.005**2)
        assert least < forecast.at(4 * WEEK + 1).mean - other.at(4 * WEEK + 1).mean < most


def test_the_hours_effects_are_never_taken_to_vanish() -> None:
    steady = learned([0.8] * (6 * WEEK), error=0.001)
    assert steady.tau2 == pytest.approx(0.1 * (0.015 * SD) ** 2)


def test_hours_without_a_mean_leave_the_forecast_less_sure() -> None:
    forecast = learned([0.8] * (2 * WEEK))
    soon, in_a_month = forecast.at(2 * WEEK), forecast.at(2 * WEEK + 4 * WEEK)
    assert in_a_month.variance > soon.variance
    assert in_a_month.mean == pytest.approx(soon.mean, abs=0.02)


def test_a_state_written_and_read_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    through, again = fresh(), HourlyForecast.restored(fresh().state)
    for hour in range(2 * WEEK):
        mean = 0.8 + 0.03 * rng.standard_normal()
        through.update(hour, mean, 1e-4)
        again.update(hour, mean, 1e-4)
        again = HourlyForecast.restored(again.state)
        assert again.at(hour + 1) == through.at(hour + 1)
    assert again.state == through.state
    assert len(again.state) < 1000


def test_a_state_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        HourlyForecast.restored(fresh().state[:-1])

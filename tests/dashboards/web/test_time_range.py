"""The time range of a view, read from its URL."""

import pytest
from litestar.exceptions import HTTPException

from dashboards.web.toolbar import address, between, time_range

NOW = 1_000_000.0


def test_without_parameters_a_range_is_the_default_and_ends_now():
    found = time_range({}, NOW, "6h")
    assert (found.since, found.until, found.live) == (NOW - 21_600, NOW, True)
    assert found.params == {"since": "6h"}


def test_a_fixed_range_is_not_live_and_its_parameters_give_it_again():
    found = time_range({"since": "1970-01-05", "until": "1970-01-06T12:00:00Z"}, NOW)
    assert (found.since, found.until, found.live) == (345_600.0, 475_200.0, False)
    assert time_range(found.params, NOW + 99) == found


def test_the_previous_period_ends_where_the_range_begins():
    found = between(5000.0, 6000.0).previous()
    assert (found.since, found.until) == (4000.0, 5000.0)
    assert time_range(found.params, NOW).since == 4000.0


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"since": "yesterday"}, "since"),
        ({"until": "x" * 500}, "until"),
        ({"since": "9" * 39 + "d"}, "since"),
        ({"since": "99999d"}, "since"),
        ({"since": "0001-01-01"}, "since"),
        ({"until": "0001-01-01"}, "until"),
    ],
)
def test_an_invalid_range_is_refused_by_its_field(params, field):
    with pytest.raises(HTTPException) as caught:
        time_range(params, NOW)
    assert caught.value.status_code == 400
    assert caught.value.detail.startswith(f"{field}:")


@pytest.mark.parametrize("params", [{"since": "1h", "until": "2h"}, {"since": "2999-01-01"}])
def test_a_range_that_ends_before_it_begins_is_refused_in_words(params):
    with pytest.raises(HTTPException) as caught:
        time_range(params, NOW)
    assert caught.value.detail == "The start of the time range must be before its end."


def test_a_range_has_at_most_ten_years_and_so_has_the_previous_one():
    now = 1_790_000_000.0
    found = time_range({"since": "3660d"}, now)
    assert time_range(found.previous().params, now).seconds == pytest.approx(found.seconds, abs=1.0)
    with pytest.raises(HTTPException, match=r"since: a time range has at most 3,660 days \(10 years\)"):
        time_range({"since": "3661d"}, now)
    first = time_range({"since": "1970-01-01", "until": "1970-01-02"}, now).previous()
    assert time_range(first.params, now).since == 0.0


def test_an_address_keeps_other_parameters_and_leaves_the_page_of_a_list():
    params = [("app", "a b"), ("tag", "x=1"), ("after", "9~1~"), ("since", "1h"), ("done", "saved")]
    assert address("/explore", params, since="7d", until="") == "/explore?app=a+b&tag=x%3D1&since=7d"
    assert address("/explore", [("since", "1h")], since="") == "/explore"

"""Reading `Retry-After`."""

from email.utils import formatdate

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.runtime.retry import retry_after_s


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"Retry-After-Ms": "1500", "Retry-After": "9"}, 1.5),
        ({"retry-after-ms": "soon", "Retry-After": "9"}, 9.0),
        ({"retry-after": formatdate(1_000_010, usegmt=True)}, 10.0),
        ({"retry-after": formatdate(999_000, usegmt=True)}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": ""}, None),
        ({"x-retry-after": "1"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers, wait):
    assert retry_after_s(httpx.Headers(headers), 1_000_000.0) == wait


@given(st.text(max_size=60))
def test_no_retry_after_is_too_odd_to_be_read(value):
    wait = retry_after_s({"retry-after": value}, 0.0)
    assert wait is None or wait >= 0.0

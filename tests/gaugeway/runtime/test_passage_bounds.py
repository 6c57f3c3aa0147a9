"""The passages within the bounds: the same whether they are looked at one by one or fit at a glance."""

import pytest

from gaugeway.records import Context
from gaugeway.settings.bounds import MAX_BYTES, MAX_PASSAGES, passages

WIDE = "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("some", "cut"),
    [
        ((), False),
        ((Context(text="a", id="1", source="s"),) * MAX_PASSAGES, False),
        ((Context(text="a"),) * (MAX_PASSAGES + 1), True),
        ((Context(text=WIDE * (MAX_BYTES // 4 - 1)),), False),
        ((Context(text=WIDE * (MAX_BYTES // 4)),), False),
        ((Context(text=WIDE * (MAX_BYTES // 4)), Context(text="")), True),
        ((Context(text=WIDE * (MAX_BYTES // 4 + 1)),), True),
        ((Context(text="a" * MAX_BYTES),), False),
        ((Context(text="a" * (MAX_BYTES - 1), source="s"),), False),
        ((Context(text="a" * MAX_BYTES, source="s"),), True),
    ],
)
def test_a_tuple_gives_what_its_passages_give_one_by_one(some, cut):
    found = passages(some)
    assert found == passages(iter(some))
    assert found.cut is cut

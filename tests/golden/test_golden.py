"""What the product computes stays what it was; `python -m tests.golden.record` accepts what was changed on purpose."""

from __future__ import annotations

import json

import pytest

from tests.golden.record import KINDS, computed, stored

SHOWN = 20


def differences(name, before, now):
    """What differs between two values, field by field."""
    if isinstance(before, dict) and isinstance(now, dict):
        for field in before | now:
            yield from differences(f"{name}, {field}", before.get(field), now.get(field))
    elif before != now:
        yield f"{name}: was {json.dumps(before)[:300]}, is {json.dumps(now)[:300]}"


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_computed_stays_what_it_was(kind):
    before, now = json.loads(stored(kind).read_text("utf-8")), json.loads(computed(kind))
    found = list(differences(kind, before, now))
    assert not found, f"{len(found)} values differ, the first ones:\n" + "\n".join(found[:SHOWN])


def test_a_difference_is_named_with_both_values():
    before, now = {"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"x": 1, "y": 3}, "d": [4]}
    assert list(differences("k", before, now)) == [
        "k, a, y: was 2, is 3",
        "k, b: was 1, is null",
        "k, d: was null, is [4]",
    ]

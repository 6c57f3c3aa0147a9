"""`removed_keys.toml`: each key in it is refused with its own words; a spelling mistake is still named as one."""

import pytest

from gateway.config import Config
from gaugeway.data_files import table
from gaugeway.settings import ConfigError, convert

REFUSED = [
    (where, key, words)
    for where, keys in table("gaugeway.settings", "removed_keys.toml").items()
    for key, words in keys.items()
]
LISTS = ("alerts.rules", "notifiers", "sinks")


def problems_of(where, keys):
    value = [keys] if where in LISTS else keys
    for name in reversed(where.split(".")):
        value = {name: value}
    with pytest.raises(ConfigError) as caught:
        convert(value, Config)
    return caught.value.problems


@pytest.mark.parametrize(("where", "key", "words"), REFUSED)
def test_a_removed_key_is_refused_with_what_replaces_it(where, key, words):
    place = f"{where}[0]" if where in LISTS else where
    assert f"{place}.{key}: {words}" in problems_of(where, {key: 1})


def test_a_removed_key_and_a_misspelt_one_are_named_together():
    assert problems_of("queue", {"drain_per_s": 50, "lease": 60}) == [
        "queue.drain_per_s: removed; it is fixed at 50",
        "queue.lease: unknown key; did you mean 'lease_s'?",
    ]


def test_a_key_of_the_same_name_in_another_table_is_read():
    assert convert({"judge": {"timeout_s": 5}}, Config).judge.timeout_s == 5.0

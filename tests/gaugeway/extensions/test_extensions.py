"""Extensions written before modules moved still find what they import, and are told where it is."""

from importlib import import_module

import pytest

MOVED = {
    "gateway.contexts": ("gaugeway.prompts", "Extraction"),
    "gateway.exchange": ("gaugeway.exchange", "Request"),
    "monitors.config": ("gaugeway.settings.shared", "Judge"),
    "monitors.records": ("gaugeway.records", "Sample"),
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_import_path_gives_the_same_class_and_a_warning(old):
    new, name = MOVED[old]
    with pytest.warns(DeprecationWarning, match=f"{old} moved: import {name} from {new}"):
        found = getattr(import_module(old), name)
    assert found is getattr(import_module(new), name)


def test_a_name_that_never_was_there_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = import_module("monitors.records").Nonsense

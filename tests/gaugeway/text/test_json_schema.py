"""Schemas that a client wrote are applied within bounded work."""

import logging

import pytest

from gaugeway.runtime.logs import RateLimitedWarnings
from gaugeway.text import json_schema as module
from gaugeway.text.json_schema import fits

NESTED = {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}}}


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {}),
        (NESTED, nested(30)),
        ({"$ref": "https://example.com/schema.json"}, {}),
        ({"$ref": "#/nowhere"}, {}),
        ({"type": "no type"}, {}),
        ({"properties": 7}, {"a": 1}),
        ({"patternProperties": {"(a+)+$": {}}}, {"a" * 40 + "b": 1}),
        ({"enum": ["x" * 40_000]}, {}),
        ({"type": "object"}, {"a": list(range(10_000))}),
        ({"minimum": float("nan")}, nested(3000)),
    ],
)
def test_a_hostile_schema_is_not_validated(schema, arguments):
    assert fits(schema, arguments) in (None, True)


@pytest.mark.parametrize(
    ("factor", "value", "fit"),
    [
        *((0.01, 19.99, True), (0.1, 0.3, True), (0.01, 19.995, False), (0.1, 0.35, False), (0.0001, 3.1415, True)),
        *((5, 15, True), (5, 16, False), (0.5, 7, True), (2, 3.0, False), (1, 4.0, True), (1e-300, 1e300, True)),
        *((0.01, "a", True), (0, 4, None), (-1, 4, None)),
    ],
)
def test_multiples_are_of_the_numbers_as_written(factor, value, fit):
    assert fits({"properties": {"price": {"multipleOf": factor}}}, {"price": value}) is fit


def test_a_slow_pattern_is_not_applied():
    assert fits({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 60 + "b"}) is True


def test_what_a_schema_raises_is_logged_once_and_what_is_only_invalid_is_not(caplog, monkeypatch):
    monkeypatch.setattr(module, "_warnings", RateLimitedWarnings(logging.getLogger("gaugeway")))
    for _ in range(2):
        assert fits({"$ref": "#/$defs/nowhere"}, {}) is None
        assert fits({"required": "n"}, {}) is None
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("a schema of a request is not applied: it raises ")
    assert "nowhere" not in said

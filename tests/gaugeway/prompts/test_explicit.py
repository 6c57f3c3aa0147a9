import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.exchange import Explicit
from gaugeway.prompts.explicit import ExplicitError, from_body_key, from_headers, merge
from gaugeway.records import Context


def test_the_body_key_is_read_whole():
    key = {
        "question": "Q",
        "contexts": ["a", {"text": "b", "id": 7, "score": 0.5, "source": "s"}],
        "reference": "R",
        "app": "shop",
        "session": "s1",
        "tags": {"prompt": "v7"},
        "capture": False,
    }
    assert from_body_key(json.dumps(key).encode()) == Explicit(
        question="Q",
        contexts=(Context(text="a"), Context(text="b", id="7", score=0.5, source="s")),
        reference="R",
        app="shop",
        session="s1",
        tags={"prompt": "v7"},
        capture=False,
    )


@pytest.mark.parametrize(
    ("key", "field", "problem"),
    [
        ('{"contexts": "text"}', "gaugeway.contexts", "expected an array, got a string"),
        ('{"contexts": [1]}', "gaugeway.contexts[0]", "expected a string or an object, got a number"),
        ('{"contexts": ["a", {"text": "x", "txt": "x"}]}', "gaugeway.contexts[1].txt", "unknown field"),
        ('{"contexts": [{}]}', "gaugeway.contexts[0].text", "required, but missing"),
        ('{"contexts": [{"text": null}]}', "gaugeway.contexts[0].text", "expected a string, got null"),
        (
            '{"contexts": [{"text": "", "id": 1.5}]}',
            "gaugeway.contexts[0].id",
            "expected an integer or a string, got a fraction",
        ),
        ('{"tags": {"a": 1}}', "gaugeway.tags.a", "expected a string, got a number"),
        ('{"tags": {"a": "b", "c.d": null, "e": 1}}', "gaugeway.tags.c.d", "expected a string, got null"),
        ('{"tags": {"a": 1, "a": "b"}}', "gaugeway.tags", "expected a string, got a number"),
        ('{"tags": {"%s": 1}}' % ("n" * 200), f"gaugeway.tags.{'n' * 100}", "expected a string, got a number"),
        ('{"tags": {"a": 1, "b": "%s"}}' % ("x" * 70_000), "gaugeway.tags", "expected a string, got a number"),
        ('{"question": 1}', "gaugeway.question", "expected a string, got a number"),
        ('{"capture": "off"}', "gaugeway.capture", "expected true or false, got a string"),
        ('{"foo": 1}', "gaugeway.foo", "unknown field"),
        ("7", "gaugeway", "expected an object, got a number"),
        ("{", "gaugeway", "input data was truncated"),
        ('{"app": "\\x"}', "gaugeway", "JSON is malformed: invalid escape character in string (byte 11)"),
    ],
)
def test_a_mistake_in_the_body_key_is_named_in_words_of_json(key, field, problem):
    with pytest.raises(ExplicitError) as caught:
        from_body_key(key.encode())
    assert (caught.value.field, str(caught.value)) == (field, problem)


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=9) | st.integers(), min_size=1, max_size=30))
def test_the_first_wrong_member_of_a_mapping_is_named(tags):
    wrong = [name for name, value in tags.items() if not isinstance(value, str)]
    if not wrong:
        return
    with pytest.raises(ExplicitError) as caught:
        from_body_key(json.dumps({"tags": tags}).encode())
    assert caught.value.field == f"gaugeway.tags.{wrong[0]}"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b'"text"', "expected a JSON array, plain or base64url-encoded"),
        (b'{"text": "a"}', "expected a JSON array, plain or base64url-encoded"),
        (b"InRleHQi", "expected a JSON array, plain or base64url-encoded"),
        (b"!", "expected a JSON array, plain or base64url-encoded"),
        (b'["a", 1]', "[1]: expected a string or an object, got a number"),
        (b'[{"txt": "a"}]', "[0].txt: unknown field"),
    ],
)
def test_contexts_in_a_header_that_are_no_array_are_told_so(value, problem):
    with pytest.raises(ExplicitError) as caught:
        from_headers([(b"x-gaugeway-contexts", value)])
    assert (caught.value.field, str(caught.value)) == ("x-gaugeway-contexts", problem)


def test_headers_are_read_with_json_base64url_and_percent_encoding():
    passages = json.dumps(["über", {"text": "b"}]).encode()
    for contexts in (passages, base64.urlsafe_b64encode(passages).rstrip(b"=")):
        said = from_headers(
            [
                (b"x-gaugeway-app", b"shop"),
                (b"x-gaugeway-question", b"Wie%20weit%3F"),
                (b"x-gaugeway-contexts", contexts),
                (b"x-gaugeway-tags", b"prompt=v7, region=eu"),
                (b"x-gaugeway-capture", b"off"),
                (b"authorization", b"secret"),
            ]
        )
        assert said == Explicit(
            question="Wie weit?",
            contexts=(Context(text="über"), Context(text="b")),
            app="shop",
            tags={"prompt": "v7", "region": "eu"},
            capture=False,
        )
    assert from_headers([(b"authorization", b"x")]) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("contexts", b"[1]"),
        ("contexts", b"%%%"),
        ("tags", b"novalue"),
        ("question", b"%ff"),
        ("capture", b"no thanks"),
        ("capturing", b"off"),
    ],
)
def test_a_mistake_in_a_header_is_named(name, value):
    with pytest.raises(ExplicitError) as caught:
        from_headers([(b"x-gaugeway-" + name.encode(), value)])
    assert caught.value.field == f"x-gaugeway-{name}"


def test_where_both_channels_speak_the_body_counts_and_either_switches_capture_off():
    merged = merge(
        Explicit(app="body", tags={"a": "1"}),
        Explicit(app="head", session="s", tags={"a": "2", "b": "3"}, capture=False),
    )
    assert merged == Explicit(app="body", session="s", tags={"a": "1", "b": "3"}, capture=False)

import base64
import json

import pytest

from gateway.contexts.explicit import ExplicitError, from_body_key, from_headers, merge
from gateway.exchange import Explicit
from monitors.records import Context


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
    ("key", "field"),
    [
        ('{"contexts": "text"}', "gaugeway.contexts"),
        ('{"contexts": [{"txt": "x"}]}', "gaugeway.contexts[0]"),
        ('{"tags": {"a": 1}}', "gaugeway.tags[...]"),
        ('{"context": []}', "gaugeway"),
        ("7", "gaugeway"),
    ],
)
def test_a_mistake_in_the_body_key_is_named(key, field):
    with pytest.raises(ExplicitError) as caught:
        from_body_key(key.encode())
    assert caught.value.field == field


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

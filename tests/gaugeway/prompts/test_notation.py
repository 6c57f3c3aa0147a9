"""Values in Python's notation, and texts in other frameworks' layouts, that tools return."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.prompts.notation import LONGEST, decoded, printed
from gaugeway.prompts.parse import read
from gaugeway.prompts.retrieval_rule import retrieved
from gaugeway.records import Context
from tests.support.work import calls

_plain = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
_texts = _plain | st.sampled_from(
    ["None", "True", "'", '"', "\\", "\\n", "\n", "', '", "{'a': 1}", "\x00", "\U0001f600"]
)
_values = st.recursive(
    _texts
    | st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(_values, max_size=4) | st.dictionaries(_texts, _values, max_size=4))
def test_what_python_prints_is_read_back_unless_it_is_json_anyway(value):
    text = str(value)
    assert printed(text) == (value if "'" in text else None)


@given(st.text(max_size=60), st.sampled_from(["[]", "{}", "['']", "{'':}"]))
def test_any_text_between_brackets_is_read_or_left(inner, brackets):
    middle = len(brackets) // 2
    printed(brackets[:middle] + inner + brackets[middle:])


@pytest.mark.parametrize(
    "text",
    [
        *("['a", "['a'", "'a'", "['a' 'b']", "[b'a']", "[print('a')]", "['a', nun]", "{'a', 'b'}", "['a', 1 + 1]"),
        *(r"['\d']", r"['\ud800']", r"['\U00110000']", "['\ud800']", "[u'a']", "[x for x in 'ab']", "['a'] ['b']", ""),
    ],
)
def test_what_is_no_printed_list_is_left_alone(text):
    assert printed(text) is None


@pytest.mark.parametrize("unit", ["'", "'a'", "'a',", "\\'", "'\\", "['a',", "{'a':", '"\'"', "None'", "[", "0,", "-'"])
@pytest.mark.parametrize("closing", ["]", "'0']"])
def test_reading_takes_work_in_proportion_to_the_length(unit, closing):
    few, many = (
        calls(partial(printed, "['" + unit * ((length - 9) // len(unit)) + closing))
        for length in (LONGEST // 4, LONGEST)
    )
    assert many < 6 * few


def test_a_list_that_is_too_long_stays_the_text_it_is():
    text = str(["a" * LONGEST])
    assert printed(text) is None
    assert [one.context.text for one in read(text)] == [text]


def test_a_list_that_a_tool_printed_is_its_passages():
    rows = [{"id": "d1", "text": "It's open\nuntil six."}, {"id": "d2", "text": "Closed on Sunday."}]
    assert retrieved("search", str(rows)) == (
        Context(text="It's open\nuntil six.", id="d1"),
        Context(text="Closed on Sunday.", id="d2"),
    )
    assert retrieved("search", str(["It's open.", "Closed."])) == (Context(text="It's open."), Context(text="Closed."))
    assert retrieved("check", str({"ok": True, "state": "done"})) is None


def test_metadata_that_a_tool_printed_gives_source_and_id():
    metadata = [{"page": 3, "source": "a b/it's.md", "id": "d1"}, {"title": "Rules", "page": None}, {"page": 1}]
    text = "\n\n".join(f"Source: {one}\nContent: Text.\n\nEnd." for one in metadata)
    assert retrieved("look", text) == (
        Context(text="Text.\n\nEnd.", id="d1", source="a b/it's.md"),
        Context(text="Text.\n\nEnd.", source="Rules"),
        Context(text="Text.\n\nEnd.", source="{'page': 1}"),
    )
    odd = "{'at': datetime.date(2026, 1, 2), 'source': 'a.md'}"
    assert retrieved("look", f"Source: {odd}\nContent: Text.") == (Context(text="Text.", source="a.md"),)
    assert retrieved("look", "Source: a.md\nContent: Text.") == (Context(text="Text.", source="a.md"),)


def test_sections_of_a_documentation_are_passages_with_their_address():
    texts = ["One.\n\n# Its end\n\nEnd.", "Two.\n"]
    text = "\n\n".join(f"# Title\nDocumentation URL:docs/{index}\n\n{one}\n" for index, one in enumerate(texts))
    assert retrieved("look", text) == (
        Context(text="One.\n\n# Its end\n\nEnd.", source="docs/0"),
        Context(text="Two.", source="docs/1"),
    )
    other = "# Title\nDocumentation of another kind\n\nText."
    assert [one.context.text for one in read(other)] == [other]


def test_objects_that_python_prints_one_a_line_are_decoded_like_json_lines():
    assert decoded("{'text': \"It's open.\", 'page': 1}\n\n{'text': 'Closed.', 'page': None}\n") == [
        {"text": "It's open.", "page": 1},
        {"text": "Closed.", "page": None},
    ]
    assert decoded("{'text': 'Open.'}\nand then {'text': 'closed.'}") is None

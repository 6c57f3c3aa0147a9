"""How the form of a text divides it into passages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.prompts.form.divisions import NAMES, divided_as, divisions, without_metadata

OAK = "Oaks grow slowly and live for several hundred years."
ELM = "Elms were felled by a disease that beetles carry."
ASH = "Ash wood is tough, and handles of tools are made of it."


def texts(region):
    found = next(divisions(region), None)
    return None if found is None else [one.text for one in found.items]


@pytest.mark.parametrize(
    ("region", "name"),
    [
        (f'[{{"text": "{OAK}"}}, {{"text": "{ELM}"}}]', "data"),
        (f"<doc>{OAK}</doc>\n<doc>{ELM}</doc>", "tag:doc"),
        (f"[1] {OAK}\n[2] {ELM}", "numbered:[#]"),
        (f"1. {OAK}\n2. {ELM}", "numbered:#."),
        (f"Document 1:\n{OAK}\n\nDocument 2:\n{ELM}", "numbered:document #:"),
        (f"【1】{OAK}\n【2】{ELM}", "numbered:【#】"),
        (f"### Passage 1\n{OAK}\n### Passage 2\n{ELM}", "numbered:### passage #"),
        (f"Title: Oak\nContent: {OAK}\n\nTitle: Elm\nContent: {ELM}", "records:title:"),
        (f"{OAK}\n---\n{ELM}", "rule"),
        (f"- {OAK}\n- {ELM}", "records:item -"),
        (f"{OAK}\n\n{ELM}", "blank-line"),
        (f"{OAK}\n{ELM}", "lines"),
    ],
)
def test_every_form_gives_its_passages_and_divides_the_next_text_alike(region, name):
    found = next(divisions(region))
    assert ([one.text for one in found.items], found.name) == ([OAK, ELM], name)
    other = region.replace(OAK, ASH)
    assert [one.text for one in divided_as(other, name).items] == [ASH, ELM]


@pytest.mark.parametrize("blank", ["", "\n", " \n\t\n"])
def test_a_text_without_words_has_no_division(blank):
    assert list(divisions(blank)) == []


def test_only_the_next_number_opens_the_next_passage():
    listing = f"{OAK}\n[7] of the register.\n[1] again."
    assert texts(f"[1] {listing}\n[2] {ELM}") == [listing, ELM]


def test_a_passage_may_have_blank_lines_between_rules():
    found = divided_as(f"{OAK}\n\n{ASH}\n---\n{ELM}", "rule")
    assert [one.text for one in found.items] == [f"{OAK}\n\n{ASH}", ELM]


def test_a_title_stays_with_the_paragraph_it_names():
    found = divided_as(f"{OAK}\n\nElms\n\n{ELM}\n\n{ASH}", "blank-line")
    assert [one.text for one in found.items] == [OAK, f"Elms\n\n{ELM}", ASH]


def test_records_keep_what_they_say_of_their_source():
    found = next(
        divisions(f"Source: oak.md\nScore: 0.82\nContent: {OAK}\n\nSource: elm.md\nScore: 0.5\nContent: {ELM}")
    )
    assert [(one.text, one.source, one.score) for one in found.items] == [(OAK, "oak.md", 0.82), (ELM, "elm.md", 0.5)]


def test_attributes_of_a_tag_are_the_passages_own():
    found = next(divisions(f'<doc id="a" source="oak.md">{OAK}</doc><doc id="b" source="elm.md">{ELM}</doc>'))
    assert [(one.id, one.source) for one in found.items] == [("a", "oak.md"), ("b", "elm.md")]


def test_what_stands_beside_all_passages_is_taken_off():
    found = without_metadata([f"Source: oak.md\n{OAK}", f"Source: elm.md\n{ELM}"])
    assert [(one.text, one.source) for one in found] == [(OAK, "oak.md"), (ELM, "elm.md")]
    assert [one.text for one in without_metadata([OAK, ELM])] == [OAK, ELM]


@given(st.text(alphabet="ab \n\"'[]{}<>/=1234.:#|-*", max_size=300))
def test_any_text_is_divided_under_known_names_into_texts_that_say_something(region):
    for one in divisions(region):
        assert one.items
        assert all(context.text.strip() for context in one.items)
        assert one.name.partition(":")[0] in NAMES

"""A block of passages cut into passages: every notation, and what is taken off a passage."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.contexts.structure import passages
from gateway.contexts.structure.passage_metadata import clean, unquoted
from gateway.contexts.structure.passages import readings, split

OAK = "The oak by the gate is three hundred years old."
ELM = "The elm behind the barn was cut down last winter."
ASH = "Two ash trees were planted where it stood."


def texts(region):
    return [one.text for one in split(region).items]


@pytest.mark.parametrize(
    ("region", "how"),
    [
        (f'["{OAK}", "{ELM}"]', "data"),
        (f'[{{"text": "{OAK}", "id": 1}}, {{"text": "{ELM}", "id": 2}}]', "data"),
        (f'{{"text": "{OAK}"}}\n{{"text": "{ELM}"}}', "data"),
        (f"['{OAK}', '{ELM}']", "data"),
        (f"[Document(page_content='{OAK}', metadata={{'page': 3}}), Document(page_content='{ELM}')]", "objects"),
        (f"<doc>{OAK}</doc>\n<doc>{ELM}</doc>", "tag:doc"),
        (f"<doc1>{OAK}</doc1>\n<doc2>{ELM}</doc2>", "tag:doc"),
        (f"<all><note id='1'>{OAK}</note><note id='2'>{ELM}</note></all>", "tag:note"),
        (f"<r><title>t</title><text>{OAK}</text></r><r><title>u</title><text>{ELM}</text></r>", "tag:r"),
        (f"<d><![CDATA[{OAK}]]></d>\n<d><![CDATA[{ELM}]]></d>", "tag:d"),
        (f"[page 1 begin]{OAK}[page 1 end]\n[page 2 begin]{ELM}[page 2 end]", "pairs"),
        (f"[DOC 1]\n{OAK}\n[END DOC 1]\n[DOC 2]\n{ELM}\n[END DOC 2]", "pairs"),
        (f"--- BEGIN NOTE ---\n{OAK}\n--- END NOTE ---\n--- BEGIN NOTE ---\n{ELM}\n--- END NOTE ---", "pairs"),
        (f"==== [File: oak.md]:\n{OAK}\n==== [File: elm.md]:\n{ELM}", "headed"),
        (f"[1] {OAK}\n[2] {ELM}", "numbered:[n]"),
        (f"1. {OAK}\n2. {ELM}", "numbered:n."),
        (f"Document 1:\n{OAK}\n\nDocument 2:\n{ELM}", "numbered:Documentn:"),
        (f"【1】{OAK}\n【2】{ELM}", "numbered:【n】"),
        (f"### Passage 1\n{OAK}\n### Passage 2\n{ELM}", "numbered:### Passagen"),
        (f"Title: Oak\nContent: {OAK}\n\nTitle: Elm\nContent: {ELM}", "records:title"),
        (f"{OAK}\n---\n{ELM}", "rule:---"),
        (f"{OAK}\n* * *\n{ELM}", "rule:***"),
        (f"oak.md: {OAK}\nelm.md#p=2: {ELM}", "named"),
        (f"{OAK} | {ELM}", "inline:|"),
        (f"- {OAK}\n- {ELM}", "bullets"),
        (f"• {OAK}\n• {ELM}", "bullets"),
        (f"{OAK}\n\n{ELM}", "blank-line"),
        (f"{OAK}\n{ELM}", "lines"),
    ],
)
def test_every_notation_gives_its_passages(region, how):
    found = split(region)
    assert [one.text for one in found.items] == [OAK, ELM]
    assert found.name == how


def test_a_single_text_is_one_passage():
    assert [split(OAK).name, texts(OAK)] == ["whole", [OAK]]


@pytest.mark.parametrize("blank", ["", "\n", " \n\t\n"])
def test_a_block_without_text_has_no_reading(blank):
    assert split(blank) is None
    assert list(readings(blank)) == []


def test_only_the_next_number_opens_the_next_passage():
    listing = f"{OAK}\n[7] of the register.\n[1] again."
    assert texts(f"[1] {listing}\n[2] {ELM}") == [listing, ELM]


def test_a_passage_may_have_blank_lines_between_rules():
    assert texts(f"{OAK}\n\n{ASH}\n---\n{ELM}") == [f"{OAK}\n\n{ASH}", ELM]


def test_what_stands_in_several_readings_is_told_apart_by_the_most_explicit_first():
    names = [one.name for one in readings(f"[1] {OAK}\n\n[2] {ELM}")]
    assert names[0] == "numbered:[n]"
    assert "blank-line" in names


def test_records_keep_what_they_say_of_their_source():
    found = split(f"Source: oak.md\nScore: 0.82\nContent: {OAK}\n\nSource: elm.md\nScore: 0.5\nContent: {ELM}").items
    assert [(one.source, one.score) for one in found] == [("oak.md", 0.82), ("elm.md", 0.5)]


def test_attributes_of_a_tag_are_the_passages_own():
    found = split(f'<doc id="a" source="oak.md" score="0.5">{OAK}</doc><doc id="b">{ELM}</doc>').items
    assert [(one.id, one.source, one.score) for one in found] == [("a", "oak.md", 0.5), ("b", None, None)]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (f"source: oak.md\n{OAK}", "oak.md"),
        (f"{OAK}\nSource: oak.md", "oak.md"),
        (f"(source: oak.md) {OAK}", "oak.md"),
        (f"{OAK} [source: oak.md]", "oak.md"),
        (f"**Titel:** oak.md\n**Text:** {OAK}", "oak.md"),
        (f"来源：oak.md\n内容：{OAK}", "oak.md"),
        (f'"""\n{OAK}\n"""', None),
        (f"---\n{OAK}\n---", None),
        (f"“{OAK}”", None),
    ],
)
def test_what_stands_beside_a_passage_is_taken_off(text, source):
    one = clean(text)
    assert (one.text, one.source) == (OAK, source)


def test_quotes_inside_a_text_stay():
    assert unquoted(f'"{OAK}"') == OAK
    assert unquoted('"Oak" and "elm"') == '"Oak" and "elm"'


@given(st.text(max_size=300))
def test_no_reading_of_any_text_raises_or_gives_a_blank_passage(region):
    for one in readings(region):
        assert one.items
        assert all(context.text.strip() for context in one.items)


LINES = (
    "The mill turns twelve times a minute.",
    "Grease the shaft each spring, and check the bolts.",
    "Source: manual.pdf",
    "A note: never stop the stone by hand.",
    "[7] The sieve is changed once a year.",
    "- The hoist lifts four sacks.",
    "# The chute",
    "Doc 3: The chute is swept on Fridays.",
    "The chute is swept on Fridays (source: rules.md)",
    "See https://example.com/mill for more.",
    "The weight is limited. weight=40",
    "Content: the stone is two tons.",
    '"The stone is two tons."',
    "**Stone**",
    "Two lines about the stone,\nwhich is two tons.",
    "url=https://example.com/a",
    "水车每分钟转十二圈。",
    "Clause 8.4 Valuables are kept in the safe.",
    "   An indented line of the manual.   ",
    "---",
    "Q: Why? A: Because.",
    "{'a': 1}",
    "<b>Bold words about the mill.</b>",
)


@pytest.mark.full
@pytest.mark.parametrize("reading", ["blank-line", "lines", "whole", "rule:---", "bullets"])
def test_lines_without_signs_of_metadata_are_read_as_by_comparing_them(reading, monkeypatch):
    between = {"lines": "\n", "rule:---": "\n---\n", "bullets": "\n- "}.get(reading, "\n\n")
    first = "- " if reading == "bullets" else ""
    blocks = [first + between.join(some) for count in (1, 2, 3) for some in product(LINES, repeat=count)]
    quickly = [passages.read_as(block, reading) for block in blocks]
    monkeypatch.setattr(passages, "plain_passages", lambda texts: None)
    assert quickly == [passages.read_as(block, reading) for block in blocks]
    assert sum(one is not None for one in quickly) > 20


@given(st.text("a\n \t\r\u2003\x1c", max_size=30))
@example("a\n\nb\n\n")
@example("a\n\n\u2003b")
@example("a\n\n" * (passages.MOST_ITEMS + 2))
def test_paragraphs_are_cut_at_blank_lines_as_the_pattern_does(text: str) -> None:
    paragraphs, pattern = passages._paragraphs, passages._PARAGRAPH  # noqa: SLF001 - one is a faster form of the other
    assert paragraphs(text) == pattern.split(text, passages.MOST_ITEMS)

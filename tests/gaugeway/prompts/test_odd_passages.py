"""Passages that look like parts of a prompt, and what a prompt may look like that has none."""

import pytest

from gaugeway.prompts.form import records
from gaugeway.prompts.form.reader import Turn, read
from gaugeway.prompts.learning.model import Split, split

ORDER = "Answer only from the sources."


def prompt(text):
    return read([Turn("user", (text,))])


def texts(reading):
    return [one.text for one in reading.contexts]


@pytest.mark.parametrize(
    "passages",
    [
        [
            "Slow leaks are excluded from cover after two weeks (section 4)",
            "Other leaks are covered for as long as the contract runs.",
            "The contract runs for a year and is renewed in writing.",
        ],
        [
            "Leaks are covered for as long as the contract runs.",
            "Context: the audit of 2019 was partly effective.",
            "The contract runs for a year and is renewed in writing.",
        ],
    ],
)
def test_what_only_some_passages_have_is_theirs(passages):
    listed = "\n".join(f"[{number}] {one}" for number, one in enumerate(passages, 1))
    assert texts(prompt(f"{ORDER}\n\nSources:\n{listed}\n\nQuestion: Is a leak covered?")) == passages


def test_what_all_passages_have_is_the_prompts():
    listed = "[1] Leaks are covered. (page 4)\n[2] Floods are not. (page 9)"
    found = texts(prompt(f"{ORDER}\n\nSources:\n{listed}\n\nQuestion: Is a leak covered?"))
    assert found == ["Leaks are covered.", "Floods are not."]


def test_a_long_line_is_never_cut():
    passage = "If the answer is not in the context, the court answers the question from the record. " * 60
    for rule in ("===", "---"):
        text = (
            f"{ORDER}\n\nSOURCES:\n{passage.strip()}\n{rule}\nA short one.\n{rule}\n{passage.strip()}\n\nQUESTION: Who?"
        )
        found = prompt(text)
        assert found is None or texts(found) == [passage.strip(), "A short one.", passage.strip()]


PAPERS = """Documents:
1. Passport
2. Visa form
3. Bank statement of three months

Question: is this enough for a visa?"""
COMPARED = """Compare these two paragraphs:

Paragraph 1: Heat pumps are efficient at low temperatures.

Paragraph 2: Boilers are cheap to install but cost more to run.

Which is better written?"""
ABOVE = """CONTEXT START
Question: Can I return worn shoes?
Answer: Only within 14 days.
CONTEXT END

With the context above in mind (and nothing else), respond to this: is a slow leak covered by my policy?"""


@pytest.mark.parametrize("text", [PAPERS, COMPARED, ABOVE])
def test_nothing_is_better_than_wrong_passages(text):
    assert prompt(text) is None


COUNTED = Split(kind="marker", words="\n\x05. ", counted=True)


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("One.\n2. Two.\n3. Three.", ["One.", "Two.", "Three."]),
        ("One.", ["One."]),
        ("To install:\n1. Unpack.\n2. Connect.\n2. Two.", None),
        ("One.\n2. To install:\n1. Unpack.\n2. Connect.", None),
        ("One.\n3. Three.", None),
    ],
)
def test_passages_that_hold_lists_of_their_own_are_not_split_by_a_learned_number(region, expected):
    found = split(COUNTED, region, 1)
    assert (None if found is None else [one.text for one in found]) == expected


def test_lines_with_labels_that_one_record_alone_begins_with_are_its_text():
    prices = "Starter: 9 EUR\nTeam: 29 EUR, 5 seats\n\nPrices are per month and workspace."
    others = ["Rooms are booked through the calendar.", "A rollback is the same procedure with the build before."]
    raw = "".join(f"[{n}] {text}\n\n" for n, text in enumerate((others[0], prices, others[1]), 1)).rstrip()
    spans = [(raw.index(f"[{n}]"), raw.index(f"[{n + 1}]") if n < len(others) + 1 else len(raw)) for n in (1, 2, 3)]
    assert [raw[one.start : one.end] for one in records.passages(raw, spans, (4, 4, 4))] == [
        others[0],
        prices,
        others[1],
    ]


def test_quotes_around_all_passages_are_no_part_of_the_first_and_the_last():
    raw = '"""\nThe pool opens at nine.\n***\nLockers take a coin.\n"""'
    spans = [(0, raw.index("***")), (raw.index("***") + 3, len(raw))]
    assert [raw[one.start : one.end] for one in records.passages(raw, spans, (0, 0))] == [
        "The pool opens at nine.",
        "Lockers take a coin.",
    ]


def test_a_line_that_mirrors_the_opening_one_ends_the_block():
    said = [
        "The pool opens at nine and closes at dusk. In May it is cleaned for a week.",
        "Lockers take a coin of two crowns, which comes back when you return the key.",
        "Children under six swim free, but need somebody who is sixteen or older with them.",
    ]
    body = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(said, 1))
    text = f"{ORDER}\n\nStart of the knowledge base\n\n{body}\nEnd of the knowledge base"
    reading = read([Turn("system", (text,)), Turn("user", ("What do the lockers take?",))])
    assert texts(reading) == said

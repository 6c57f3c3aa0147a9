"""What the comparison knows of numbers, dates, names and scripts."""

from __future__ import annotations

import doctest
import importlib
import random
import re
from itertools import chain
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaugeway.text.lexical import dates
from gaugeway.text.lexical.languages import LANGUAGES, language_of
from gaugeway.text.lexical.matching import Source, compare
from gaugeway.text.lexical.passages import PassageCache
from gaugeway.text.lexical.sentences import Allowance, parse, sentences
from gaugeway.text.lexical.vocabulary import shipped


def compared(said, given):
    passages = PassageCache(shipped())
    passage = passages.get(given, Allowance())
    _, (one,) = compare(sentences(said), Source([(0, given, passage)], passages.vocabulary))
    return one


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("12 %", "12%"),
        ("12 %", "12 percent"),
        ("12 Prozent", "12 per cent"),
        ("12 pour cent", "12\u202f%"),
        ("$3.4bn", "3.4 billion dollars"),
        ("3,4 Mrd. Euro", "\u20ac3.4bn"),
        ("USD 5m", "$5 million"),
        ("5m", "5 metres"),
        ("5m", "5 million"),
        ("3.5k", "3,500"),
        ("1 234", "1,234"),
        ("12 345 678", "12.345.678"),
        ("1 234,5 km", "1234.5 km"),
        ("1.5 km", "1500 m"),
        ("250 g", "0.25 kg"),
        ("15 years", "15-year-old"),
        ("12", "12 %"),
        ("12 kg", "weight (kg) 12"),
        ("3 to 4 billion", "3-4 billion"),
        ("3 billion", "3\u20134 billion"),
        ("$3\u20134bn", "between 3 billion and 4 billion dollars"),
        ("between 3 and 4 million", "between 3 million and 4 million"),
        ("3 million and 4 million", "3 and 4 million"),
        ("3 to 4 million", "3 million to 4 million"),
        ("20 \u00b0C", "20 degrees Celsius"),
        ("68 degrees Fahrenheit", "68 \u00b0F"),
        ("10 kg", "10 to 12 kg"),
        ("21", "twenty-one"),
        ("3,000", "three thousand"),
        ("200", "two hundred"),
        ("three", "3"),
        ("3rd", "3"),
        ("-5 \u00b0C", "\u22125\u2103"),
        ("3.4万", "34,000"),
        ("2億", "200 million"),
        ("\u0661\u0662", "12"),
        ("1'234.50 CHF", "CHF 1234.5"),
    ],
)
def test_the_same_number_in_another_form_is_supported(said, given):
    assert compared(f"The total of it was {said} here", f"The total of it was {given} here").numbers == ()


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("12 %", "12 kg"),
        ("20 degrees Celsius", "20 \u00b0F"),
        ("3 million", "3 men and 4 million"),
        ("5 days", "5 weeks"),
        ("\u20ac79", "$79"),
        ("1.5 km", "1.5 m"),
        ("3.4bn", "3.4 million"),
        ("-5 \u00b0C", "5 \u00b0C"),
        ("10-13 kg", "10-12 kg"),
        ("twenty-two", "twenty-one"),
        ("1 234", "1 235"),
        ("three men", "two men"),
        ("1234567", "1234568"),
    ],
)
def test_another_number_or_unit_is_not(said, given):
    (found,) = compared(f"The total of it was {said} here", f"The total of it was {given} here").numbers
    assert found.rstrip(" men") in said


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("6 May 2024", "2024-05-06"),
        ("May 6, 2024", "06.05.2024"),
        ("May 6th, 2024", "6. Mai 2024"),
        ("6 de mayo de 2024", "le 6 mai 2024"),
        ("2024年5月6日", "6 May 2024"),
        ("6/5/2024", "6 May 2024"),
        ("5/6/2024", "6 May 2024"),
        ("6 May", "6 May 2024"),
        ("May 2024", "2024/05/06"),
        ("2024", "on 6 May 2024"),
        ("6 May 2024", "in 2024, the contract of 6 May"),
        ("the 6th", "6 May"),
        ("9:45 p.m.", "21:45"),
        ("21.45 Uhr", "21:45"),
        ("9 pm", "21:00"),
        ("9:45", "9:45 pm"),
        ("Jan. 3", "3 January"),
    ],
)
def test_the_same_date_in_another_form_is_supported(said, given):
    assert compared(f"It all began on {said} there", f"It all began on {given} there").numbers == ()


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("6 May 2024", "6 June 2024"),
        ("6 May 2024", "6 May 2023"),
        ("6 May 2024", "7 May 2024"),
        ("May 2024", "6 May 2023"),
        ("9:45 p.m.", "9:45 a.m."),
        ("21:45", "21:30"),
        ("2024-05-06", "2024-06-05"),
    ],
)
def test_another_date_is_named(said, given):
    (found,) = compared(f"It all began on {said} there", f"It all began on {given} there").numbers
    assert found == said


@pytest.mark.parametrize("said", ["version 1.2.3 is out", "call 555-0199 now", "the 1990s were loud", "see 10.0.0.1"])
def test_what_only_looks_like_a_date_or_a_unit_is_compared_as_it_stands(said):
    assert compared(said, said).numbers == ()


@pytest.mark.parametrize(
    ("said", "given", "missing"),
    [
        ("the plan of Sarah Ode was good", "Sarah Ode had a plan", ()),
        ("the plan of Sarah Ode was good", "SARAH ODE had a plan", ()),
        ("the plan of Sarah Ode was good", "sarah ode 's plan", ()),
        (
            "the plan of Sarah Ode was good",
            "Sarah Lee had a plan. Then it rained. Then it snowed. Then it hailed. Karl Ode did not",
            ("Sarah Ode",),
        ),
        ("Sarah Ode\u2019s plan was good", "the plan of Ms Ode and of Sarah", ()),
        ("it belongs to the Bank of Tessaro now", "a bank in Ghent", ("Bank of Tessaro",)),
        ("Mount Kalo erupted again", "a mount", ("Mount Kalo",)),
        ("In Ghent nobody knew", "a town", ("Ghent",)),
        ("they met at the WHO yesterday", "the World Health Organization met", ()),
        ("they met at the WTO yesterday", "the World Health Organization met", ("WTO",)),
        ("Ada's Paris is large and loud", "paris and ada", ()),
        ("Note: Batteries are not included there", "no", ()),
        ("Key Features And Other Benefits", "no", ()),
        ("it said \u201cPlease wait\u201d to us", "no", ()),
        ("Die Lampe ist eine Erfindung der Firma", "no", ()),
        ("Die Lampe wird in Brügge von Karl Tessaro gebaut", "Die Lampe", ("Brügge", "Karl Tessaro")),
        ("I'm sure I will pay 5 EUR", "5 EUR", ()),
    ],
)
def test_names_are_found_whole(said, given, missing):
    assert compared(said, given).names == missing


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The lamp is in the box and it was not open", "en"),
        ("Die Lampe ist in der Kiste und wurde nicht geöffnet", "de"),
        ("La lampe est dans la boîte et elle n'est pas ouverte", "fr"),
        ("La lámpara está en la caja y no se abre por la noche", "es"),
    ],
)
def test_the_language_is_told_by_its_words(text, name):
    assert language_of(text.casefold().replace("'", " ").split()) is LANGUAGES[name]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("東京は大きい", ("東京", "京は", "は大", "大き", "きい")),
        ("กรุงเทพ", ("กรุ", "รุง", "ุงเ", "งเท", "เทพ")),
        ("iPhone用ケース", ("iphone", "用ケ", "ケー", "ース")),
        ("2024年5月6日に", ("6", "may", "2024", "に")),
        ("12% of $5", ("12", "percent", "of", "5", "usd")),
    ],
)
def test_words_of_all_scripts(text, tokens):
    assert parse(text).tokens == tokens


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("He came on 6. Mai 2024 with Dr. Ode. Then he left the town again.", 2),
        ("It costs 79. The battery is not included in that.", 2),
        ("1. Take the lamp out.\n2. Put the battery in.", 2),
        ("12. Mai 2024 war der Tag der Wahl.", 1),
        ("ร้านเปิดเก้าโมง ลูกค้าคนแรกมาแล้ว", 2),
        ("यह दीपक है और नया है। वह कल आया था।", 2),
    ],
)
def test_sentences_end_where_they_should(text, count):
    assert len(sentences(text)) == count


@pytest.mark.parametrize("name", ["languages", "sentences"])
def test_the_examples_in_the_docstrings_hold(name):
    results = doctest.testmod(importlib.import_module(f"gaugeway.text.lexical.{name}"))
    assert (results.attempted > 0, results.failed) == (True, 0)


PIECES = [
    "0",
    "1",
    "2",
    "5",
    "9",
    "12",
    "31",
    "20",
    "2024",
    "99",
    "-",
    "/",
    ".",
    ":",
    ",",
    "h",
    "H",
    "am",
    "p.m.",
    "PM",
    "uhr",
    "st",
    "th",
    "er",
    "º",
    "of",
    "de",
    "may",
    "Mai",
    "年",
    "月",
    "日",
    "년",
    "%",
    "x",
]


@pytest.mark.full
@settings(max_examples=20 * settings.default.max_examples)
@given(st.lists(st.sampled_from([*PIECES, " ", " "]), min_size=1, max_size=7).map("".join))
def test_no_date_is_missed_by_the_quick_look(text):
    with (
        mock.patch.object(dates, "_BEGINS", re.compile("(?P<any>)")),
        mock.patch.object(dates, "FORMS", {"any": tuple(chain.from_iterable(dates.FORMS.values()))}),
    ):
        every = [dates.date_at(text, at) for at in range(len(text)) if text[at].isdecimal()]
    assert [dates.date_at(text, at) for at in range(len(text)) if text[at].isdecimal()] == every


@pytest.mark.parametrize("date", ["06.05.2024", "6/5/2024", "2024-05-06", "6. Mai 2024", "6 May 2024"])
def test_a_date_ends_with_its_sentence(date):
    assert compared("It began on 6 May 2024.", f"It began on {date}.").numbers == ()
    assert compared(f"It began on {date}.", "It began on 6 May 2024.").numbers == ()
    assert compared(f"It began on {date}.", "It began on 7 May 2024.").numbers != ()


def test_an_address_is_no_date():
    assert compared("It is at 10.4.20.7 now.", "It is at 10.4.20.8 now.").numbers == ("10.4.20.7",)


@pytest.mark.parametrize("said", ["BoE", "BOE", "BE"])
def test_an_abbreviation_stands_for_a_name_with_or_without_its_small_words(said):
    assert compared(f"Then the {said} agreed.", "Then the Bank of England agreed.").names == ()
    assert compared(f"Then the {said} agreed.", "Then the Bank of Ghent agreed.").names == (said,)


@pytest.mark.full
def test_a_plain_number_is_read_like_any_other():
    draw = random.Random(3)
    words = [
        *(
            "the refund",
            "Ada Ode",
            "In May",
            "mai",
            "usd",
            "EUR",
            "twenty",
            "one",
            "two",
            "days",
            "km",
            "million",
            "of",
        ),
        *("5", "007", "2,024", "1999", "12.50", "$7", "$ 8", "-3", "(9)", "31", "p.m.", "per cent", "a", "It's", "x_y"),
        *(
            "6.",
            "6. Mai",
            "and",
            "to",
            "-",
            "Bank of England",
            "ECB",
            "[1]",
            "4)",
            "10;",
            "st",
            "Uhr",
            "BUT NOT",
            "...",
        ),
    ]
    marks = ["", ".", ",", "?", ":", ")", "!", " "]
    texts = [
        "".join(f"{draw.choice(words)}{draw.choice(marks)} " for _ in range(draw.randint(1, 6))) for _ in range(4_000)
    ]
    texts += [one.strip() for one in texts]
    found = [parse(text, language) for text in texts for language in (None, LANGUAGES["de"])]
    with mock.patch("gaugeway.text.lexical.sentences._LONE_NUMBER", re.compile(r"(?!)")):
        assert found == [parse(text, language) for text in texts for language in (None, LANGUAGES["de"])]
    with mock.patch("gaugeway.text.lexical.sentences._Reading", side_effect=AssertionError):
        assert parse("In 1999, Ada Ode sold the refund.").tokens == (
            "in",
            "1999",
            "ada",
            "ode",
            "sold",
            "the",
            "refund",
        )

"""The checks that spare most texts a search never change what is found."""

import random
import sys

import pytest

from gaugeway.redaction import FINDERS
from gaugeway.redaction.phones import may_hold_a_number
from gaugeway.redaction.pii import may_hold_a_card, may_hold_an_iban
from gaugeway.redaction.secrets import has_long_word
from tests.gaugeway.redaction.test_redaction import SECRETS

CHECKS = {
    "card": (
        "gaugeway.redaction.pii:may_hold_a_card",
        ["4111 1111 1111 1111", "5500-0000-0000-0004", "378282246310005"],
    ),
    "iban": ("gaugeway.redaction.pii:may_hold_an_iban", ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"]),
    "phone": (
        "gaugeway.redaction.phones:may_hold_a_number",
        ["+49 30 23125 123", "(202) 555-0123", "01 99 00 12 34", "07700 900123", "phone 555 019", "0049 (0)30 1234567"],
    ),
    "secret": ("gaugeway.redaction.secrets:has_long_word", [*SECRETS.values(), "token AbCdEfGh12345678"]),
}
BLANKS = [" ", "\u00a0", "\u202f", "\u2011", "-", ".", "\n", "\u2003"]
AROUND = ["", " ", "é", "中", "a", "7", "\ud800", "( ", ", "]


@pytest.mark.parametrize("kind", CHECKS)
def test_a_search_finds_the_same_without_its_check(kind, monkeypatch):
    (module, _, check), values = CHECKS[kind][0].partition(":"), CHECKS[kind][1]
    rng = random.Random(7)
    texts = []
    for _ in range(4_000):
        said = "".join(rng.choice(BLANKS) if one in " -" and rng.random() < 0.5 else one for one in rng.choice(values))
        texts.append(f"{rng.choice(AROUND)}{said[: rng.choice([None, None, -1, -3])]}{rng.choice(AROUND)}")
    found = [list(FINDERS[kind](text)) for text in texts]
    monkeypatch.setattr(sys.modules[module], check, lambda _: True)

    assert found == [list(FINDERS[kind](text)) for text in texts]
    assert sum(map(bool, found)) > 100


def test_ordinary_text_is_spared():
    text = "In 1998 the mill (the old one) ground 400 sacks - 3.5 a day. Its keeper lived to be 91."

    assert not may_hold_a_card(text)
    assert not may_hold_an_iban(text)
    assert not may_hold_a_number(text)
    assert not has_long_word(text)

"""The language of a text, from its script and its most frequent words; None where a text does not show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat

from gaugeway.data_files import table

EXAMINED = 400
"""Characters of a text that are looked at."""
_REQUEST = 4_000
_LEAST_WORDS, _LEAST_LETTERS, _LEAD = 3, 8, 2
"""Frequent words, or letters of a script, that a text needs; and how many times those of the next language."""
_WORD = re.compile(r"[^\W\d_]+")
_ASCII_WORDS = bytes(code | 32 if chr(code).isalpha() and chr(code).isascii() else 32 for code in range(256))
"""Makes letters lower case and all others blanks."""
_KANA = re.compile(r"[\u3041-\u30ff]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_SCRIPTS = {
    "ko": re.compile(r"[\uac00-\ud7a3]"),
    "hi": re.compile(r"[\u0904-\u0939]"),
    "ar": re.compile(r"[\u0621-\u064a]"),
    "ru": re.compile(r"[\u0410-\u044f]"),
}
_OF_A_SCRIPT = re.compile(r"[\u0410-\ud7a3]")
"""All of them, and more."""
_TABLE = table("gaugeway.text", "language.toml")
_FREQUENT: dict[str, str] = _TABLE["frequent"]
FREQUENT = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}
"""The most frequent words of each language that has a list."""
NEGATIONS = frozenset(" ".join(_TABLE["negations"].values()).split())
_BITS, _WORDS_READ = 8, 255
_SPOKEN: dict[str | bytes, int] = {}
"""The votes of a word: one number with a byte for each language, so that those of a text are a sum.

No byte overflows: `EXAMINED` characters have at most 200 words.
"""
for _place, _words in enumerate(_FREQUENT.values()):
    for _one in _words.split():
        _SPOKEN[_one] = _SPOKEN.get(_one, 0) | 1 << _BITS * _place
_SPOKEN |= {_one.encode(): _votes for _one, _votes in _SPOKEN.items() if isinstance(_one, str)}
_NAMED = (
    "english|french|german|spanish|italian|portuguese|dutch|turkish|russian|hindi|arabic|chinese|mandarin|japanese|korean"
    "|polish|swedish|danish|norwegian|englisch|französisch|deutsch|spanisch|italienisch|portugiesisch|niederländisch"
    "|türkisch|russisch|anglais|français|allemand|espagnol|italien|portugais|inglés|francés|alemán|español|italiano"
    "|portugués|inglese|francese|tedesco|spagnolo|portoghese|inglês|francês|alemão|espanhol|português|engels|frans|duits"
    "|spaans|english|ingilizce|fransızca|almanca|ispanyolca|английск|немецк|французск|испанск"
)
_OTHER_LANGUAGE = re.compile(
    rf"\btranslat|übersetz|\btradu[ciz]|\btradui|\btradurre|\bvertaal|\bvertalen|\bçevir|перев[её]д|перевод|अनुवाद|ترجم|翻译|翻譯"
    rf"|翻訳|번역|\b(?:in|into|to|auf|ins|en|em|por|naar|het|на) (?:{_NAMED})|用(?:英|法|德|西班牙|日|中)[语文]|[英仏独]語で|영어로|한국어로"
)
_STEM = 4
_STEMS = frozenset(
    word[:_STEM].encode() for word in (*_NAMED.split("|"), "translate", "traduci", "vertaal") if word.isascii()
)
"""How words begin without one of which a question in ASCII asks for no other language."""
_NAMES = tuple(_FREQUENT)
LANGUAGES = (*_NAMES, *_SCRIPTS, "zh", "ja")
"""The languages that are distinguished. Others in the same scripts show none, or in Cyrillic and Arabic these."""


def language_of(text: str) -> str | None:
    """Return the language of the beginning of `text`, one of `LANGUAGES`; None if it is too short or shows none.

    >>> language_of("Wie kann ich mein Passwort ändern?"), language_of("Passwort ändern"), language_of("返品の期限は何日ですか")
    ('de', None, 'ja')
    """
    return _language_of(text[:EXAMINED])


def asks_for_another_language(question: str) -> bool:
    """Return whether a question asks for a translation, or for an answer in a language that it names.

    >>> asks_for_another_language("How do I say thank you in French?"), asks_for_another_language("Who is French?")
    (True, False)
    """
    asked = question[:_REQUEST]
    if asked.isascii() and _STEMS.isdisjoint([word[:_STEM] for word in _ascii_words(asked)]):
        return False
    return _OTHER_LANGUAGE.search(asked.lower()) is not None


@lru_cache(maxsize=64)  # an answer is looked at for two signals
def _language_of(text: str) -> str | None:
    if text.isascii():
        words: Sequence[str | bytes] = _ascii_words(text)
    else:
        if _OF_A_SCRIPT.search(text) is not None and (found := _by_script(text)) is not None:
            return found
        words = _WORD.findall(text.lower())[:_WORDS_READ]  # lower case may be longer
    votes = sum(map(_SPOKEN.get, words, repeat(0))).to_bytes(len(_NAMES), "little")
    second, most = sorted(votes)[-2:]
    return _NAMES[votes.index(most)] if most >= _LEAST_WORDS and most >= _LEAD * second else None


def _ascii_words(text: str) -> list[bytes]:
    """Return the runs of letters of a text in ASCII, in lower case; several times as fast as by a pattern."""
    return text.encode().translate(_ASCII_WORDS).split()


def _by_script(text: str) -> str | None:
    """Return the language of a script that most letters are of."""
    letters = sum(map(len, _WORD.findall(text)))
    kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
    counts = {name: len(script.findall(text)) for name, script in _SCRIPTS.items()}
    counts["ja" if kana > (kana + han) / 10 else "zh"] = kana + han
    name = max(counts, key=counts.__getitem__)
    least = _LEAST_LETTERS // 2 if name in ("ja", "zh") else _LEAST_LETTERS
    return name if counts[name] >= least and counts[name] > letters / 2 else None

"""Words, numbers, names and negations of a text in any script, for comparing texts without a model."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

# Combining marks belong to the word they stand in; `\w` alone would cut Hindi, Hebrew or Arabic words at them.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff"
# Written without spaces, or (Hangul) with particles glued on: compared by pairs of characters.
_UNSPACED = (
    "\u0e00-\u0e4e\u0e80-\u0ece\u1000-\u103f\u1780-\u17d3\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_TOKEN = re.compile(
    rf"(?P<number>\d+(?:[.,'\u2019]\d+)*)|(?P<unspaced>[{_UNSPACED}]+)"
    rf"|(?P<word>(?:(?![{_UNSPACED}])[^\W\d_]|[{_MARKS}])+(?:['\u2019](?:s|t|re|ve|ll|d|m)(?![^\W_]))?)",
    re.IGNORECASE,
)
_PAIR = re.compile(f"[{_UNSPACED}]")
_THIN_SPACES = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_GROUPED = re.compile(r"[1-9]\d{0,2}([.,'])\d{3}(?:\1\d{3})*")
_NOT_STATED = re.compile(r"\[\d+(?:\s*,\s*\d+)*\]|^[ \t]*(?:\d{1,2}[.)]|[-*\u2022])[ \t]+", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026])[\"'\u201d\u2019)\]]*\s+(?![a-z])|(?<=[\u3002\uff01\uff1f\u061f])|\n+")
_SHORT_WORD = 5
_PREFIX = 6
_FEW = 3

_SCALES = {"thousand": 3, "k": 3, "million": 6, "mn": 6, "billion": 9, "bn": 9, "trillion": 12}
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(_COUNTED.split())}
_NEGATION_WORDS = (
    "no not never none neither nor without cannot nobody nothing nicht kein keine keinen keinem keiner nie ohne ne pas "
    "jamais aucun aucune sans nunca sin ningún ninguna non mai senza não nem sem niet geen nooit не нет ни без "
    "नहीं ليس لا لم لن değil yok"
)
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
_NEGATION_UNSPACED = re.compile("[不没沒未]|ない|ません|なかった|않|없")


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written, and every value the writing may stand for: "1.234" is 1234 or 1.234."""

    text: str
    readings: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence taken apart.

    `tokens` are what overlaps are counted in; `names` are the capitalised words but the first.
    """

    text: str
    tokens: tuple[str, ...]
    numbers: tuple[Number, ...]
    names: tuple[str, ...]
    negated: bool


def sentences(text: str) -> list[Sentence]:
    """Take `text` apart. Fragments shorter than three tokens ("Dr.") join the next; list marks and [1] are dropped."""
    result: list[Sentence] = []
    fragments: list[str] = []
    found = 0
    for piece in filter(None, map(str.strip, _SENTENCE_END.split(_NOT_STATED.sub(" ", text)))):
        fragments.append(piece)
        found += len((sentence := parse(piece)).tokens)
        if found >= _FEW:
            result.append(sentence if len(fragments) == 1 else parse(" ".join(fragments)))
            fragments, found = [], 0
    return [*result, parse(" ".join(fragments))] if found else result


def parse(text: str) -> Sentence:
    """Take one sentence apart.

    >>> parse("In Ghent, Ms Ode sold 1,234.50 kg.").tokens
    ('in', 'ghent', 'ms', 'ode', 'sold', '1234.5', 'kg')
    >>> parse("東京は").tokens
    ('東京', '京は')
    """
    tokens: list[str] = []
    numbers: list[Number] = []
    names: list[str] = []
    negated = False
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", _THIN_SPACES.sub("", text))):
        found = match[0]
        if match.lastgroup == "number":
            numbers.append(Number(found, _readings(found)))
            tokens.append(_plain(found))
        elif match.lastgroup == "unspaced":
            negated |= _NEGATION_UNSPACED.search(found) is not None
            tokens.extend([found] if len(found) == 1 else map("".join, pairwise(found)))
        else:
            word = fold(found)
            negated |= word in _NEGATIONS or word.endswith("n't")
            if numbers and word in _SCALES and tokens[-1] == _plain(numbers[-1].text):
                numbers[-1] = _scaled(numbers[-1], found)
            elif tokens and found[0].isupper() and len(found) > 1:
                names.append(found)
            tokens.append(word)
    return Sentence(text.strip(), tuple(tokens), tuple(numbers), tuple(names), negated)


def fold(word: str) -> str:
    """A word without case, curly apostrophe and English possessive."""
    return word.casefold().replace("\u2019", "'").removesuffix("'s")


def stem(token: str) -> str:
    """The first six characters: a stemmer that is poor in every language alike."""
    return token[:_PREFIX]


def stated_numbers(sentence: Sentence) -> set[str]:
    """Every value a sentence may be said to state, small English number words included."""
    values = {value for number in sentence.numbers for value in number.readings}
    return values | {_NUMBER_WORDS[token] for token in sentence.tokens if token in _NUMBER_WORDS}


def weight_of_length(token: str) -> float:
    """Short words carry less: they are mostly grammar. Numbers and pairs of characters count full."""
    if token[0].isdecimal() or _PAIR.match(token):
        return 1.0
    return min(1.0, len(token) / _SHORT_WORD)


def _readings(text: str) -> frozenset[str]:
    text = _ascii(text)
    plain = text.replace(",", ".").replace("'", "")
    if _GROUPED.fullmatch(text):
        whole = re.sub("[.,']", "", text)
        one_separator = len(text) - len(whole) == 1 and "'" not in text
        return frozenset({_tidy(whole), _tidy(plain)}) if one_separator else frozenset({_tidy(whole)})
    if plain.count(".") <= 1:
        return frozenset({_tidy(plain)})
    head, mark, tail = re.split(r"([.,])(?=\d+$)", text.replace("'", ""), maxsplit=1)
    if _GROUPED.fullmatch(head) and mark not in head:
        return frozenset({_tidy(f"{re.sub('[.,]', '', head)}.{tail}")})
    return frozenset({text})


def _plain(text: str) -> str:
    """The reading used as a token: the one with grouping, where there are two."""
    return min(_readings(text), key=lambda reading: ("." in reading, -len(reading), reading))


def _scaled(number: Number, scale: str) -> Number:
    """The number times a thousand, a million ... as the word after it says."""
    shift = _SCALES[fold(scale)]
    scaled = set()
    for reading in number.readings:
        whole, _, decimals = reading.partition(".")
        scaled.add(_tidy(f"{whole}{decimals[:shift].ljust(shift, '0')}.{decimals[shift:]}"))
    return Number(f"{number.text} {scale}", frozenset(scaled))


def _tidy(number: str) -> str:
    whole, _, decimals = number.partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{decimals}" if decimals else "")


def _ascii(text: str) -> str:
    """Digits of any script as 0-9, one kind of apostrophe."""
    if text.isascii():
        return text
    return "".join(
        str(unicodedata.decimal(char)) if char.isdecimal() else "'" if char == "\u2019" else char for char in text
    )

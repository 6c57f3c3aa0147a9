"""Sentence analysis: the sentences of a text, and each sentence's words, numbers and names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from gaugeway.text.lexical import names
from gaugeway.text.lexical.dates import MONTH, MONTHS, date_at, date_from_month
from gaugeway.text.lexical.languages import Language, language_of
from gaugeway.text.lexical.names import Name, Word
from gaugeway.text.lexical.numbers import NUMBER, Number, Quantity, plain, quantity, spelled
from gaugeway.text.normalising import nfkc

# Combining marks belong to the word they stand in; `\w` alone would cut Hindi, Hebrew or Arabic words at them.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff"
# Alphabets of some forty letters written without spaces: three characters say what two do in Chinese.
_THAI = "\u0e00-\u0e4e\u0e80-\u0ece\u1000-\u103f\u1780-\u17d3"
# Written without spaces, or (Hangul) with particles glued on: compared by pairs of characters.
_UNSPACED = (
    f"{_THAI}\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
# A redacted value stands for itself: no name, and the digits in it no number.
_PLACEHOLDER = r"\[[A-Z][A-Z0-9_]{0,31}_[0-9a-f]{6}\]"
# Latin letters first: it is the fast way for most texts. Nothing is given back (`++`), so no text takes long.
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
_WORD = re.compile(
    rf"(?:[{_LATIN}]++|(?![{_UNSPACED}])[^\W\d_]|[{_MARKS}])++"
    r"(?:['\u2019](?:[sStTdDmM]|[rR][eE]|[vV][eE]|[lL]{2})(?![^\W_]))?"
)
# Every other token. Some marks are digits too: they begin no number.
_NO_WORD = re.compile(
    rf"(?P<placeholder>{_PLACEHOLDER})|(?![{_MARKS}])(?P<number>{NUMBER})|(?P<unspaced>[{_UNSPACED}]+)"
)
# Found fast: each has such a character, a number after at most four others ("-$ .5").
_IN_NO_WORD = re.compile(rf"[\d\[{_UNSPACED}]")
_BEFORE_DIGITS = 4
# The words of a sentence of ASCII without digits and brackets, which most are.
_PLAIN = re.compile(r"[A-Za-z]++(?:'(?:[sStTdDmM]|[rR][eE]|[vV][eE]|[lL]{2})(?![A-Za-z]))?")
# Such a sentence with one number at its end or before a punctuation mark, so that neither sign nor unit belongs to it.
_LONE_NUMBER = re.compile(
    r"(?P<before>(?:[^\d\['$]*\s)?)(?P<number>\d{1,15})(?P<after>(?:[.,;:!?)]+(?:\s[^\d\['$]*)?)?)"
)
# In lower case, with 0 for digits and brackets, and a space for all but letters and apostrophes.
_LETTERS = bytes(
    ord("0") if chr(code) in "0123456789[" else code if chr(code).isalpha() or code == ord("'") else ord(" ")
    for code in bytes(range(128)).lower()
).ljust(256)
_THREES = re.compile(f"[{_THAI}]")
_CHARACTERS = re.compile(f"[{_UNSPACED}]")
_THIN_SPACES = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
# These begin with one set of characters, which the engine looks for fast.
_NOT_STATED = re.compile(
    r"[\[\n](?:(?<=\[)\d++(?:\s*+,\s*+\d++)*+\]"
    rf"|(?<=(\n))[ \t]*(?:\d{{1,2}}[.)](?![ \t]+{MONTH})|[-*\u2022])[ \t]+)",
    re.IGNORECASE,
)
# What is between two sentences is group 1.
_SENTENCE_END = re.compile(
    r"[.!?\u2026\u3002\uff01\uff1f\u061f\u0964\n]"
    r"(?:(?<=[.!?\u2026])([\"'\u201d\u2019)\]]*\s+)(?![a-z])|(?<=[\u3002\uff01\uff1f\u061f\u0964])()|(?<=\n))"
)
_THAI_SENTENCE_END = re.compile(f"(?<=[{_THAI}]) +(?=[{_THAI}])")
_ABBREVIATIONS = (
    "mr mrs ms dr prof st no nr vs bzw ca approx inc gen mio mrd tsd jan feb apr aug sep sept oct okt nov dec dez sen "
    "rev hon sr sra mme"
)
_ABBREVIATED = re.compile(
    rf"(?:^|[\s(])(?:[^\W\d_]|{_ABBREVIATIONS.replace(' ', '|')}|z\.\s?b|e\.g|i\.e|d\.h|p\.\s?ej)\.$", re.IGNORECASE
)
_ENDS_OF_ABBREVIATED = frozenset((*_ABBREVIATIONS.split(), *"abcdefghijklmnopqrstuvwxyz", "ej"))
_DAY = re.compile(r"(?:^|\D)\d{1,2}\.$")
_BEGINS_WITH_MONTH = re.compile(MONTH, re.IGNORECASE)
_SHORT_WORD = 5
_PREFIX = 6
_FEW = 3
_VOTERS = 100
_CURRENCIES = frozenset(("usd", "eur", "gbp", "jpy", "inr", "krw", "chf"))
_GAP = re.compile(r"[\s-]?")
_TEN = 10
_NUMBER_TOKENS = 8
"""Cost of a number in tokens, since all its readings, scales and units are stored."""


class Sentence(NamedTuple):
    """A sentence taken apart. `tokens` are what overlaps are counted in."""

    text: str
    tokens: tuple[str, ...]
    numbers: tuple[Number, ...]
    names: tuple[Name, ...]


class TooLongError(ValueError):
    """The text has more tokens than may be read."""


class Allowance:
    """How many tokens may still be read; a number counts as 8, and fragments that are joined count twice."""

    def __init__(self, tokens: float = math.inf) -> None:
        self._left = tokens

    def use(self, tokens: int) -> None:
        """Raise TooLongError when so many tokens are not left."""
        self._left -= tokens
        if self._left < 0:
            raise TooLongError("too many tokens")


def sentences(text: str, allowance: Allowance | None = None, *, with_names: bool = True) -> list[Sentence]:
    """Take `text` apart. Fragments shorter than three tokens join the next; list marks and [1] are dropped.

    Raises TooLongError when there are more tokens than the allowance has left.
    """
    language = guess(text)
    result: list[Sentence] = []
    fragments: list[str] = []
    found = 0
    for piece in _pieces(text):
        fragments.append(piece)
        found += len((sentence := parse(piece, language, allowance, with_names=with_names)).tokens)
        if found >= _FEW:
            if len(fragments) > 1:
                sentence = parse(" ".join(fragments), language, allowance, with_names=with_names)
            result.append(sentence)
            fragments, found = [], 0
    return [*result, parse(" ".join(fragments), language, allowance, with_names=with_names)] if found else result


def sentence_places(text: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences in `text` as (start, end), cut by the same rules; short fragments join the next.

    >>> text = "1. Dr. Ode came at noon. She left at four! Why?"
    >>> [text[start:end] for start, end in sentence_places(text)]
    ['1. Dr. Ode came at noon.', 'She left at four!', 'Why?']
    """
    language = guess(text)
    begin, last, found = -1, 0, 0
    for start, end in _piece_places(text):
        begin, last = (start if begin < 0 else begin), end
        found += len(parse(text[start:end], language, with_names=False).tokens)
        if found >= _FEW:
            yield begin, end
            begin, found = -1, 0
    if begin >= 0 and found:
        yield begin, last


def _piece_places(text: str) -> Iterator[tuple[int, int]]:
    """The places of the pieces between ends of sentences, without the white space around them."""
    kept: tuple[int, int] | None = None
    for start, end in _cut_places(text):
        piece = text[start:end]
        begin = start + len(piece) - len(piece.lstrip())
        end = begin + len(piece.strip())  # noqa: PLW2901 - the same place, narrowed
        if begin == end:
            continue
        if kept is not None and not _goes_on(text[slice(*kept)], text[begin:end]):
            yield kept
            kept = None
        kept = (begin if kept is None else kept[0], end)
    if kept is not None:
        yield kept


def _cut_places(text: str) -> Iterator[tuple[int, int]]:
    """The places between the characters that may end a sentence."""
    begin = 0
    for end in _SENTENCE_END.finditer(text):
        yield from _thai_places(text, begin, end.start(end.lastindex) if end.lastindex else end.start())
        begin = end.end()
    yield from _thai_places(text, begin, len(text))


def _thai_places(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    if not text.isascii():
        for space in _THAI_SENTENCE_END.finditer(text, begin, end):
            yield begin, space.start()
            begin = space.end()
    yield begin, end


def guess(text: str) -> Language:
    """The language of a text, by the words it begins with."""
    begin = text[: 8 * _VOTERS]
    if begin.isascii():
        words = _letters(begin).replace("'", " ").replace("0", " ").split()
    else:
        words = re.findall(r"[^\W\d_]+", begin.casefold())
    return language_of(words[:_VOTERS])


def _pieces(text: str) -> Iterator[str]:
    """The text cut at the ends of sentences, but not after "Dr." or within "6. Mai"."""
    kept: list[str] = []
    stated = _NOT_STATED.sub(r"\1 ", f"\n{text}")[1:]
    for piece in filter(None, map(str.strip, _cut(stated))):
        if kept and not _goes_on(kept[-1], piece):
            yield " ".join(kept)
            kept = []
        kept.append(piece)
    if kept:
        yield " ".join(kept)


def _cut(text: str) -> list[str]:
    """The text cut after the characters that may end a sentence."""
    pieces, begin = [], 0
    for end in _SENTENCE_END.finditer(text):
        pieces.append(text[begin : end.start(end.lastindex or 0)])
        begin = end.end()
    pieces.append(text[begin:])
    return pieces if text.isascii() else [part for piece in pieces for part in _THAI_SENTENCE_END.split(piece)]


def _goes_on(before: str, piece: str) -> bool:
    """Whether the dot at the end of `before` ends no sentence."""
    if not before.endswith("."):
        return False
    word = before[before.rfind(" ") + 1 : -1]
    if word.isalpha() and word.isascii() and word.lower() not in _ENDS_OF_ABBREVIATED:
        return False  # of what follows this is the fast way
    if not word[-1:].isdecimal() and (found := _ABBREVIATED.search(before[-12:])) is not None:
        word = found[0].strip(" (.")
        return len(word) == 1 or not word.isupper()  # "CA." is a state, "ca." is about
    return _DAY.search(before[-4:]) is not None and _BEGINS_WITH_MONTH.match(piece) is not None


def parse(
    text: str, language: Language | None = None, allowance: Allowance | None = None, *, with_names: bool = True
) -> Sentence:
    """Take one sentence apart. Raises TooLongError when there are more tokens than the allowance has left.

    >>> parse("In Ghent, Ms Ode sold 1,234.50 kg.").tokens
    ('in', 'ghent', 'ms', 'ode', 'sold', '1234.5', 'kg')
    >>> parse("東京は").tokens
    ('東京', '京は')
    """
    language = language or guess(text)
    if text.isascii() and "0" not in (letters := _letters(text)):
        words = letters.split() if "'" not in letters else list(map(fold, _PLAIN.findall(text)))
        if language.counts.keys().isdisjoint(words):
            if allowance is not None:
                allowance.use(len(words))
            return Sentence(text.strip(), tuple(words), (), _names(text, language) if with_names else ())
    elif text.isascii() and (found := _LONE_NUMBER.fullmatch(text)) is not None:
        sentence = _with_number(found, language, allowance, with_names=with_names)
        if sentence is not None:
            return sentence
    normal = text if text.isascii() else nfkc(_THIN_SPACES.sub("", text))
    with_names = with_names and not (normal[:1].isalpha() and normal[1:].islower())
    read = _Reading(normal, language, allowance, with_names=with_names)
    tokens, numbers = read.result()
    return Sentence(
        text=text.strip(),
        tokens=tuple(tokens),
        numbers=tuple(numbers),
        names=names.find(normal, read.words, language) if with_names else (),
    )


def _with_number(
    found: re.Match[str], language: Language, allowance: Allowance | None, *, with_names: bool
) -> Sentence | None:
    """The sentence of a match of _LONE_NUMBER; None where a word may be a number, or the currency or month of this one.

    It says what `_Reading` does, in a third of the time: most numbers are years and counts.
    """
    text, words, after = found.string, _letters(found["before"]).split(), _letters(found["after"]).split()
    for numbers in (MONTHS.keys(), language.counts.keys()):
        if not (numbers.isdisjoint(words) and numbers.isdisjoint(after)):
            return None
    if words and words[-1] in _CURRENCIES:
        return None
    if allowance is not None:
        allowance.use(len(words) + _NUMBER_TOKENS + len(after))
    number = plain(found["number"], found.end("number"))
    with_names = with_names and not (text[:1].isalpha() and text[1:].islower())
    named = names.find(text, _places(text), language) if with_names else ()
    return Sentence(text.strip(), (*words, *number.tokens, *after), (number,), named)


def _plain_words(text: str) -> list[str] | None:
    """The words of a piece of ASCII without apostrophes, digits and brackets; None for any other."""
    if not text.isascii() or "'" in (letters := _letters(text)) or "0" in letters:
        return None
    return letters.split()


def _letters(text: str) -> str:
    return text.encode().translate(_LETTERS).decode()


def _names(text: str, language: Language) -> tuple[Name, ...]:
    """The names of a plain sentence; most have none, which the capitals tell."""
    if text[1:].islower() or not any(word[0] < "a" for word in _PLAIN.findall(text)[1:]):
        return ()
    return names.find(text, _places(text), language)


def _places(text: str) -> list[Word]:
    return [Word(match[0], fold(match[0]), match.start(), match.end()) for match in _PLAIN.finditer(text)]


def fold(word: str) -> str:
    """A word without case, curly apostrophe and English possessive."""
    word = word.casefold()
    return word if word.isalpha() else word.replace("\u2019", "'").removesuffix("'s")


def stem(token: str) -> str:
    """The first six characters of a word: a stemmer that is poor in every language alike. Numbers stay whole."""
    return token[:_PREFIX] if token[0].isalpha() else token


def weight_of_length(token: str) -> float:
    """Short words carry less: they are mostly grammar. Numbers and pieces of unspaced text count full."""
    if not token[0].isalpha() or _CHARACTERS.match(token):
        return 1.0
    return min(1.0, len(token) / _SHORT_WORD)


class _Reading:
    """One pass over a sentence: what was found, in order."""

    def __init__(self, text: str, language: Language, allowance: Allowance | None, *, with_names: bool) -> None:
        self._text = text
        self._with_names = with_names
        self._allowance = allowance or Allowance()
        self._language = language
        self.words: list[Word] = []
        self._found: list[str | Quantity | Number] = []
        self._tens = False
        self._all()

    def _all(self) -> None:
        text, position = self._text, 0
        while (sign := _IN_NO_WORD.search(text, position)) is not None:
            match = _NO_WORD.search(text, max(position, sign.start() - _BEFORE_DIGITS))
            if match is None:
                break
            position = self._words(position, match.start())
            if position <= match.start():
                position = self._read(match)
        self._words(position, len(text))

    def _words(self, position: int, end: int) -> int:
        """Take the words between two places, and the numbers and dates that begin with them; return where they end."""
        counts = self._language.counts
        words = _plain_words(self._text[position:end])
        end += 1  # the next character decides whether an "'s" before it belongs to the word
        if words is None:
            words = [fold(word) for word in _WORD.findall(self._text, position, end)]
        if MONTHS.keys().isdisjoint(words) and counts.keys().isdisjoint(words) and "one" not in words:
            self._allowance.use(len(words))
            self._found += words
            if self._with_names:
                places = _WORD.finditer(self._text, position, end)
                self.words += [Word(place[0], word, *place.span()) for place, word in zip(places, words, strict=True)]
            return position
        found: Iterator[tuple[re.Match[str], str]] = zip(_WORD.finditer(self._text, position, end), words, strict=True)
        while (found_word := next(found, None)) is not None:
            match, word = found_word
            if match.start() < position:
                if match.end() > position:  # what was taken ends within this word
                    found = ((other, fold(other[0])) for other in _WORD.finditer(self._text, position, end))
            elif word in MONTHS or word in counts or word == "one":
                position = self._word(word, match)
            else:
                self._plain(word, match)
        return position

    def _plain(self, word: str, match: re.Match[str]) -> None:
        self._allowance.use(1)
        self._found.append(word)
        if self._with_names:
            self.words.append(Word(match[0], word, match.start(), match.end()))

    def result(self) -> tuple[list[str], list[Number]]:
        """The tokens of all that was found, and the numbers."""
        tokens: list[str] = []
        numbers: list[Number] = []
        for found in self._found:
            if isinstance(found, str):
                tokens.append(found)
            else:
                numbers.append(found.number(self._text) if isinstance(found, Quantity) else found)
                tokens += numbers[-1].tokens
        return tokens, numbers

    def _read(self, match: re.Match[str]) -> int:
        """Take what is no word, and what belongs to it, and return where it ends."""
        if match.lastgroup == "number":
            self._allowance.use(_NUMBER_TOKENS)
            return self._number(match)
        if match.lastgroup == "unspaced":
            self._allowance.use(match.end() - match.start())
            self._unspaced(match[0])
        else:
            self._found.append(match[0].casefold())
        return match.end()

    def _number(self, match: re.Match[str]) -> int:
        date = date_at(self._text, match.start()) if match[0][0].isdecimal() else None
        if date is not None:
            self._found.append(date)
            return date.end
        before = self._found[-1] if self._found else ""
        unit = before if isinstance(before, str) and before in _CURRENCIES else ""
        if unit:
            self._found.pop()
        return self._quantity(quantity(self._text, match, unit))

    def _quantity(self, number: Quantity) -> int:
        # The other number of a range stands before it, or before one word: "3-4 million", "3 and 4 million".
        for place in range(-1, -1 - min(2, len(self._found)), -1):
            if isinstance(first := self._found[place], Quantity):
                self._found[place], number = first.in_range_with(self._text, number)
                break
        self._found.append(number)
        self._tens = False
        return number.end

    def _word(self, word: str, match: re.Match[str]) -> int:
        """Take a word that may begin a number or a date, and return where that ends."""
        start, end = match.span()
        if word in MONTHS and (date := date_from_month(self._text, start, end)) is not None:
            self._allowance.use(1)
            self._found.append(date)
            return date.end
        value = "1" if self._tens and word == "one" else self._language.counts.get(word)
        if value is not None:
            self._allowance.use(1)
            return self._spelled(word, value, start, end)
        self._plain(word, match)
        return end

    def _spelled(self, word: str, value: str, start: int, end: int) -> int:
        """A number word; "twenty-one" is one."""
        tens = self._found[-1] if self._tens and self._found else None
        if isinstance(tens, Quantity) and int(value) < _TEN and _GAP.fullmatch(self._text, tens.end, start):
            self._found.pop()
            (ten,) = tens.readings
            return self._quantity(spelled(self._text, tens.start, end, str(int(ten) + int(value))))
        end = self._quantity(spelled(self._text, start, end, value))
        self._tens = word in self._language.tens
        return end

    def _unspaced(self, run: str) -> None:
        """Characters written without spaces: all pairs, or all threes, of neighbours."""
        size = 3 if _THREES.match(run) else 2
        if len(run) <= size:
            self._found.append(run)
        else:
            self._found.extend(run[at : at + size] for at in range(len(run) - size + 1))

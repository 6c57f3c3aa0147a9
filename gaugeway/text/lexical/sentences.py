"""The sentences of a text and their words, in any script."""

from __future__ import annotations

import re
from typing import NamedTuple

from gaugeway.data_files import table
from gaugeway.text.normalising import nfkc

# Combining marks belong to the word they stand in; `\w` alone would cut Hindi, Hebrew or Arabic words at them.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff"
# Alphabets of some forty letters written without spaces: three characters say what two do in Chinese.
_THAI = "\u0e00-\u0e4e\u0e80-\u0ece\u1000-\u103f\u1780-\u17d3"
# Written without spaces, or (Hangul) with particles glued on: compared by pairs of characters.
_UNSPACED = (
    f"{_THAI}\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[\w{_MARKS}{_UNSPACED}]+")
_THREES, _CHARACTERS = re.compile(f"[{_THAI}]"), re.compile(f"[{_UNSPACED}]")
_BY_SCRIPT = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
# Make blanks of all ASCII but letters and digits; the second one makes it lower case, too.
_WRITTEN = bytes(code if chr(code).isalnum() else 32 for code in range(128)).ljust(256)
_LETTERS = _WRITTEN.lower()
_NUMBERS = bytes(code if chr(code) in "0123456789.,'" else 32 for code in range(128)).ljust(256)
_MONTH = f"(?:{'|'.join(' '.join(table('gaugeway.text.lexical', 'months.toml')['months']).split())})(?![^\\W_])"
# List marks and citations: these begin with one set of characters, which the engine looks for fast.
_NOT_STATED = re.compile(
    r"[\[\n](?:(?<=\[)\d++(?:\s*+,\s*+\d++)*+\]"
    rf"|(?<=(\n))[ \t]*(?:\d{{1,2}}[.)](?![ \t]+{_MONTH})|[-*\u2022])[ \t]+)",
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
_BEGINS_WITH_MONTH = re.compile(_MONTH, re.IGNORECASE)
_SHORT_WORD = 5
PREFIX = 6
_FEW = 3
_LOOK_BACK = 64
"""Characters of a piece that decide whether its dot ends it."""


class Sentence(NamedTuple):
    """A sentence: from where to where it stands in its text, and its words, of which there is one at least."""

    start: int
    end: int
    words: list[str]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; of what is written without spaces all pairs (or threes) of characters.

    >>> words("In Ghent, Ms Ode didn't sell 1,234.5 kg to [EMAIL_7f3ac1].")[3:]
    ['ode', 'didn', 't', 'sell', '1', '234', '5', 'kg', 'to', 'email', '7f3ac1']
    >>> words("iPhone用ケース")
    ['iphone', '用ケ', 'ケー', 'ース']
    """
    if text.isascii():
        return text.encode().translate(_LETTERS).decode().split()
    found: list[str] = _WORD.findall(nfkc(text).casefold().replace("_", " "))
    if _CHARACTERS.search(text) is None:
        return found
    return [part for word in found for run in _BY_SCRIPT.findall(word) for part in _parts(run)]


def capitalised(sentence: str) -> list[str]:
    """Return the words of a sentence that begin with a capital; neither its first word nor single letters.

    >>> capitalised("Ask I. Ode: lamps from Ghent cost less than NATO's.")
    ['Ode', 'Ghent', 'NATO']
    """
    plain = sentence.isascii()
    found = sentence.encode().translate(_WRITTEN).decode().split() if plain else _WORD.findall(nfkc(sentence))
    return [word for word in found[1:] if word[0].isupper() and len(word) > 1]


def numbers(text: str) -> list[str]:
    """Return the numbers of a text as they are written: runs of digits with dots, commas or apostrophes inside.

    >>> numbers("In 2024, 1,234.50 of 'em.")
    ['2024', '1,234.50']
    """
    found = text.encode(errors="surrogatepass").translate(_NUMBERS).decode().split()
    return [number for piece in found if (number := piece.strip(".,'"))]


def _parts(run: str) -> list[str]:
    if _CHARACTERS.match(run) is None:
        return [run]
    size = 3 if _THREES.match(run) else 2
    return [run[at : at + size] for at in range(max(1, len(run) - size + 1))]


def stem(word: str) -> str:
    """The first six characters: a stemmer that is poor in every language alike."""
    return word[:PREFIX]


def weight_of_length(word: str) -> float:
    """Short words carry less: they are mostly grammar. Numbers and pieces of unspaced text count full."""
    return 1.0 if not word[0].isalpha() or _CHARACTERS.match(word) else min(1.0, len(word) / _SHORT_WORD)


def without_marks(text: str) -> str:
    """Return a text without marks of lists and citations such as [1]."""
    return _NOT_STATED.sub(r"\1 ", f"\n{text}")[1:]


def sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text that have words; fragments of fewer than three words join the next.

    >>> text = "1. Dr. Ode came at noon. She left at four! Why?"
    >>> [text[start:end] for start, end, _ in sentences(text)]
    ['1. Dr. Ode came at noon.', 'She left at four!', 'Why?']
    """
    result: list[Sentence] = []
    begin, last = -1, 0
    found: list[str] = []
    letters = text.encode().translate(_LETTERS).decode() if text.isascii() else None
    for start, end in _pieces(text):
        begin, last = (start if begin < 0 else begin), end
        found = found + (words(text[start:end]) if letters is None else letters[start:end].split())
        if len(found) >= _FEW:
            result.append(Sentence(begin, end, found))
            begin, found = -1, []
    return [*result, Sentence(begin, last, found)] if found else result


def _pieces(text: str) -> list[tuple[int, int]]:
    """The places of the pieces between ends of sentences, without the white space around them."""
    result: list[tuple[int, int]] = []
    start, begin, last = 0, -1, -1
    for end, after in _ends(text):
        if piece := text[start:end].strip():
            if len(piece) < end - start:
                start = text.index(piece[0], start)
            if begin >= 0 and not (
                text[last - 1] == "." and _goes_on(text[max(begin, last - _LOOK_BACK) : last], piece)
            ):
                result.append((begin, last))
                begin = -1
            begin, last = (start if begin < 0 else begin), start + len(piece)
        start = after
    return [*result, (begin, last)] if begin >= 0 else result


def _ends(text: str) -> list[tuple[int, int]]:
    """Where a sentence, or a phrase of Thai, may end and the next one begin; the last pair is the end of the text."""
    ends = [(end.start(end.lastindex or 0), end.end()) for end in _SENTENCE_END.finditer(text)]
    if not text.isascii():
        ends = sorted([*ends, *(space.span() for space in _THAI_SENTENCE_END.finditer(text))])
    return [*ends, (len(text), len(text))]


def _goes_on(before: str, piece: str) -> bool:
    """Whether the dot at the end of `before` ends no sentence: after "Dr." or within "6. Mai"."""
    word = before[before.rfind(" ") + 1 : -1]
    if word.isalpha() and word.isascii() and word.lower() not in _ENDS_OF_ABBREVIATED:
        return False  # of what follows this is the fast way
    if not word[-1:].isdecimal() and (found := _ABBREVIATED.search(before[-12:])) is not None:
        word = found[0].strip(" (.")
        return len(word) == 1 or not word.isupper()  # "CA." is a state, "ca." is about
    return _DAY.search(before[-4:]) is not None and _BEGINS_WITH_MONTH.match(piece) is not None

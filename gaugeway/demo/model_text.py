"""Sentences, stemmed content words, names and numbers of a text: what the scripted model sees in it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from gaugeway.data_files import table

_SENTENCE_END = re.compile(r"(?<!\b[A-Z]\.)(?<!\b[DMS][rst]\.)(?<=[.!?])[\"')\]]*\s+|\n+")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?")
_SUFFIXES = ("ies", "iest", "est", "ing", "ed", "es", "ly", "s", "y", "e")
_SHORTEST_STEM = 3
_NUMERALS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_NUMERALS, start=2)}
_NEGATIONS = frozenset({"not", "no", "never", "none", "cannot", "without", "neither", "nor", "nobody", "nothing"})
_WORDS = table("gaugeway.demo", "words.toml")
_STOPWORDS = frozenset(_WORDS["stop"].split())
_AUXILIARIES = frozenset({"do", "does", "did", "is", "are", "was", "were", "has", "have", "had"})
_QUESTION_ONLY = frozenset(_WORDS["only_in_questions"].split())


def sentences(text: str) -> list[str]:
    r"""Split a text into sentences; a line's end ends one too.

    >>> sentences("Mars is red. Is it far?\nIt has 2.5 of them.")
    ['Mars is red.', 'Is it far?', 'It has 2.5 of them.']
    """
    parts = (part.strip(" \t*-#") for part in _SENTENCE_END.split(text))
    return [part for part in parts if part]


def stem(word: str) -> str:
    """Cut the commonest English endings off; enough to match 'orbits' with 'orbiting'.

    >>> [stem(word) for word in ("orbits", "orbiting", "largest", "large", "Mars")]
    ['orbit', 'orbit', 'larg', 'larg', 'mar']
    """
    word = word.lower().removesuffix("'s").removesuffix("\u2019s")
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            word = word.removesuffix(suffix)
            break
    return word[:-1] if len(word) > _SHORTEST_STEM and word[-1] == word[-2] else word


def content_words(text: str) -> list[str]:
    """Stems of the words that carry meaning: neither stop words nor negations nor numbers."""
    return [
        stem(word)
        for word in _WORD.findall(text)
        if word.lower() not in _STOPWORDS and word.lower() not in _NEGATIONS and word.lower() not in _NUMBER_WORDS
    ]


def question_words(question: str) -> list[str]:
    """Stems of what a question is about, without the words that only ask."""
    plain = [word for word in _WORD.findall(question) if word.lower() not in _QUESTION_ONLY]
    return content_words(" ".join(plain)) or content_words(question)


def topic(question: str) -> str:
    """What a question is about in its own words.

    >>> topic("What is the main cause of ocean tides?"), topic("How many moons does Mercury have?")
    ('main cause of ocean tides', 'moons Mercury')
    """
    words = [word for word in re.findall(r"[^\W_]+", question) if word.lower() not in _AUXILIARIES]
    asking = _STOPWORDS | _QUESTION_ONLY
    while words and words[0].lower() in asking:
        words.pop(0)
    while words and words[-1].lower() in _STOPWORDS:
        words.pop()
    return " ".join(words) or "this"


def names(text: str) -> set[str]:
    """Stems of the capitalised words, except stop words: proper names, and what a sentence begins with."""
    return {
        stem(word)
        for word in _WORD.findall(text)
        if word[0].isupper() and word.lower() not in _STOPWORDS | _NEGATIONS | _QUESTION_ONLY | _NUMBER_WORDS.keys()
    }


def numbers(text: str) -> set[str]:
    """Return the numbers of a text, in digits or as small words, in one spelling.

    >>> sorted(numbers("Two moons, 384,400 km, 27.30 days and CO2"))
    ['2', '27.3', '384400']
    """
    digits = {_plain(match) for match in _NUMBER.findall(text)}
    return digits | {_NUMBER_WORDS[word] for word in map(str.lower, _WORD.findall(text)) if word in _NUMBER_WORDS}


def negated(text: str) -> bool:
    """Say whether a sentence denies something."""
    words = [word.lower().replace("\u2019", "'") for word in _WORD.findall(text)]
    return len([word for word in words if word in _NEGATIONS or word.endswith("n't")]) % 2 == 1


def coverage(wanted: Iterable[str], present: Iterable[str]) -> float:
    """Return the share of the distinct wanted words that are present; 0 when nothing is wanted."""
    want = set(wanted)
    return len(want & set(present)) / len(want) if want else 0.0


def rarity(texts: Iterable[str]) -> dict[str, float]:
    """Inverse document frequency of every content word of these texts."""
    bags = [set(content_words(text)) for text in texts]
    counts = Counter(word for bag in bags for word in bag)
    return {word: math.log(1.0 + len(bags) / count) for word, count in counts.items()}


def about(question: str, text: str) -> float:
    """How much of what the question is about occurs in the text, 0 to 1; a name counts twice."""
    named = names(question)
    weights = {word: 2.0 if word in named else 1.0 for word in question_words(question)}
    present = set(content_words(text))
    return sum(weight for word, weight in weights.items() if word in present) / (sum(weights.values()) or 1.0)


def _plain(number: str) -> str:
    whole, _, fraction = number.replace(",", "").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole

"""Numbers in text: separators, units, scales, signs and ranges, and which numbers support which."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from gaugeway.data_files import table

_TABLE = table("gaugeway.text.lexical", "units.toml")
SCALES: dict[str, int] = {word: int(power) for power, words in _TABLE["scales"].items() for word in words.split()}
UNITS: dict[str, tuple[str, int, str]] = {
    alias: (base, int(shift), aliases.split()[0])
    for base, by_shift in _TABLE["units"].items()
    for shift, aliases in by_shift.items()
    for alias in aliases.split()
}
"""What a unit may be called -> the unit compared, its power of ten, and what it counts as among the words."""


_SIGNS = "$\u20ac\u00a3\u00a5\u20b9\u20a9"
NUMBER = (
    rf"(?:(?<![\w)\]])[-\u2212](?=[\d{_SIGNS}]))?(?:[{_SIGNS}]\s?(?=\d))?"
    r"(?:[1-9]\d{0,2}(?: \d{3})+(?!\d)(?:[.,]\d+)?|(?:(?<![\w.,])\.(?=\d))?\d++(?:[.,'\u2019]\d++)*+)"
)
_SPLIT = re.compile(rf"(-?)([{_SIGNS}]?)\s?(.*)", re.DOTALL)
_GROUPED = re.compile(r"[1-9]\d{0,2}([.,'])\d{3}(?:\1\d{3})*")
_NEXT = re.compile(
    rf"[ \u00a0-]?(?:(?P<sign>[%\u2030{_SIGNS}]|\u00b0 ?[CFcf]?\b)|(?P<word>[^\W\d_]+(?:/[a-z]+)?)(?![^\W_])\.?)"
)
_ORDINAL = re.compile(r"(?:st|nd|rd|th|er|re|[e\u00e8]me|[\u00ba\u00aa])(?![^\W_])", re.IGNORECASE)
_PER_CENT = re.compile(r" (?:per|pour|por) ?(?:cent|ciento)\b", re.IGNORECASE)
_RANGE = re.compile(r" ?(?:[-\u2013\u2014~]|to|bis|\u00e0|a|and|und|et|y|or|oder|ou|o) ?", re.IGNORECASE)
_SCALE_CHARACTERS = frozenset(word for word in SCALES if len(word) == 1 and not word.isascii())
_SUFFIXES = 2
_DEGREES = ("celsius", "fahrenheit")
"""What "degrees" may be of."""
_REMEMBERED = 1_024
_NOTHING = frozenset[str]()
_AFTER_ALL = frozenset(("", *".,;:!?)"))
"""What ends a number: neither a scale nor a unit nor a suffix begins so."""


class Number(NamedTuple):
    """A number or a date as written in `text`, which ends at `end`.

    As a claim it is supported when everything in one of `asks` is stated; in a context it states `states`: "1.234" asks
    for 1234 or for 1.234, and states both. `tokens` is what it counts as among the words.
    """

    text: str
    asks: tuple[frozenset[str], ...]
    states: frozenset[str]
    tokens: tuple[str, ...]
    end: int

    def supported_by(self, stated: AbstractSet[str]) -> bool:
        """Whether contexts that state this support the number."""
        return any(ask <= stated for ask in self.asks)


class Quantity(NamedTuple):
    """A number being read: every value the digits may stand for, and the scale and the unit found around them.

    `parts` are the numbers it would be if a space between digits were just a space.
    """

    start: int
    end: int
    readings: frozenset[str]
    parts: frozenset[str] = frozenset()
    scale: int = 0
    unit: str = ""

    def in_range_with(self, text: str, second: Quantity) -> tuple[Quantity, Quantity]:
        """Share what only one of the two has if they are a range: "3-4 billion", "$3-4bn"."""
        if _RANGE.fullmatch(text, self.end, second.start) is None:
            return self, second
        readings = self.readings
        if second.scale and not self.scale:
            readings |= {_shifted(reading, second.scale) for reading in readings}
        first = self._replace(readings=readings, unit=self.unit or second.unit)
        return first, second._replace(unit=second.unit or (self.unit if self.unit in _SIGNS else ""))

    def number(self, text: str) -> Number:
        """What it asks for and states."""
        asks, states, tokens = _meaning(self.readings, self.parts, self.scale, self.unit)
        return Number(text[self.start : self.end].strip(" ."), asks, states, tokens, self.end)


@lru_cache(_REMEMBERED)
def _meaning(
    readings: frozenset[str], parts: frozenset[str], scale: int, unit: str
) -> tuple[tuple[frozenset[str], ...], frozenset[str], tuple[str, ...]]:
    """What a quantity asks for, states and counts as. A unit is compared where both sides have one."""
    values = frozenset(_shifted(reading, scale) for reading in readings)
    tokens: tuple[str, ...] = (min(values, key=lambda value: ("." in value, -len(value), value)),)
    unitless = frozenset(f"{value}|" for value in values)
    if unit:
        base, shift, name = UNITS[unit]
        with_unit = frozenset(f"{_shifted(value, shift)}|{base}" for value in values)
        asked, states = with_unit | unitless, values | with_unit
        tokens = (*tokens, name)
    else:
        asked, states = values, values | unitless
    asks = tuple(frozenset({key}) for key in sorted(asked))
    if parts:
        asks, states = (*asks, parts), states | parts | {f"{part}|" for part in parts}
    return asks, states, tokens


def quantity(text: str, written: re.Match[str], unit: str = "") -> Quantity:
    """The number that `written` (a match of NUMBER) begins, with what follows it; `unit` is a currency before it."""
    minus, currency, digits = "", "", _ascii(written[0])
    if not digits[0].isdecimal() and (split := _SPLIT.fullmatch(digits)) is not None:
        minus, currency, digits = split.groups()
    readings, parts, end = _readings(digits.replace(" ", "")), _NOTHING, written.end()
    if " " in digits:
        parts = frozenset(reading for part in digits.split() for reading in _readings(part))
    if minus:
        readings = frozenset(f"-{reading}" for reading in readings)
    if text[end : end + 1] in _AFTER_ALL:
        return Quantity(written.start(), end, readings, parts, 0, currency or unit)
    if (ordinal := _ORDINAL.match(text, end)) is not None:
        end = ordinal.end()
    return _with_suffix(text, Quantity(written.start(), end, readings, parts, unit=currency or unit))


def plain(digits: str, end: int) -> Number:
    """The number of a run of digits that ends at `end` and that nothing belongs to."""
    return Number(digits, *_meaning(_readings(digits), _NOTHING, 0, ""), end)


def spelled(text: str, start: int, end: int, value: str) -> Quantity:
    """The number that a number word stands for, with the scale and the unit after it."""
    return _with_suffix(text, Quantity(start, end, frozenset({value})))


def _ascii(text: str) -> str:
    """Digits of any script as 0-9, one kind of apostrophe and of minus."""
    if text.isascii():
        return text
    text = text.replace("\u2019", "'").replace("\u2212", "-")
    return "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)


def _with_suffix(text: str, number: Quantity) -> Quantity:
    """The number with the scale, then the unit, that follow it."""
    for _ in range(_SUFFIXES):
        if not number.unit and (per_cent := _PER_CENT.match(text, number.end)) is not None:
            return number._replace(end=per_cent.end(), unit="percent")
        if not number.scale and (character := text[number.end : number.end + 1]) in _SCALE_CHARACTERS:
            number = number._replace(end=number.end + 1, scale=SCALES[character])
        elif (following := _NEXT.match(text, number.end)) is None or (longer := _longer(number, following)) is number:
            break
        else:
            number = longer
    return number


def _longer(number: Quantity, following: re.Match[str]) -> Quantity:
    """The number with the word or sign that follows, if that is a scale or a unit."""
    word = (following["sign"] or following["word"]).casefold().replace(" ", "")
    if word not in SCALES and word not in UNITS:
        return number
    attached, end = following.start() in (following.start("word"), following.start("sign")), following.end()
    if word == "m" and not number.scale and (attached or number.unit):
        # "$5m" are millions; "5m" may be metres: then both are asked for.
        millions = frozenset(_shifted(reading, SCALES["million"]) for reading in number.readings)
        return number._replace(end=end, readings=millions if number.unit else millions | number.readings)
    if word in SCALES and not number.scale and (len(word) > 1 or attached or number.unit):
        return number._replace(end=end, scale=SCALES[word])
    if word in UNITS and (not number.unit or (UNITS[number.unit][0] == "degree" and UNITS[word][0] in _DEGREES)):
        return number._replace(end=end, unit=word)
    return number


@lru_cache(_REMEMBERED)
def _readings(text: str) -> frozenset[str]:
    """Every value a run of digits and separators may stand for."""
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


def _shifted(value: str, power: int) -> str:
    """A decimal number times ten to the power, exactly; what is no plain decimal ("1.2.3") stays as it is."""
    if power == 0 or value.count(".") > 1 or "," in value:
        return value
    sign, digits = ("-", value[1:]) if value.startswith("-") else ("", value)
    whole, _, decimals = digits.partition(".")
    if power > 0:
        return sign + _tidy(f"{whole}{decimals[:power].ljust(power, '0')}.{decimals[power:]}")
    whole = whole.rjust(1 - power, "0")
    return sign + _tidy(f"{whole[:power]}.{whole[power:]}{decimals}")


def _tidy(number: str) -> str:
    whole, _, decimals = number.partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{decimals}" if decimals else "")

"""Dates and times of day: parses the usual forms into one."""

from __future__ import annotations

import re

from gaugeway.data_files import table
from gaugeway.text.lexical.numbers import Number

_NAMES = table("gaugeway.text.lexical", "dates.toml")["months"]
MONTHS = {name: month for month, names in enumerate(_NAMES, 1) for name in names.split()}
MONTH = "(?:" + "|".join(sorted(MONTHS, key=len, reverse=True)) + r")(?![^\W_])"
_WORDS = [names.split()[0] for names in _NAMES]

_ISO = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?!\d)")
_SLASHED = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})(?!\d|\.\d)")
_DAY_FIRST = re.compile(
    rf"(\d{{1,2}})(?:st|nd|rd|th|er|[ºª.])?\s+(?:of\s+|de\s+)?({MONTH})\.?(?:,?\s+(?:del?\s+)?(\d{{4}})(?!\d))?",
    re.IGNORECASE,
)
_UNSPACED = re.compile(r"(?:(\d{4})\s?[年년]\s?)?(\d{1,2})\s?[月월](?:\s?(\d{1,2})\s?[日일号號])?")
_TIME = re.compile(r"(\d{1,2})(?:([:.h])([0-5]\d))?(?::[0-5]\d)?(?:\s?([ap])\.?m\b\.?|\s?(uhr\b))?", re.IGNORECASE)
_AFTER_MONTH = re.compile(
    r"\.?\s+(?:(\d{1,2})(?:st|nd|rd|th)?(?![\d%]|[.,:]\d)(?:,?\s+(\d{4})(?!\d))?|,?(?:del?\s+|of\s+)?(\d{4})(?!\d))",
    re.IGNORECASE,
)
# What follows the first digits decides which forms are possible; of most numbers it rules out all.
_BEGINS = re.compile(
    r"\d{1,4}(?:(?P<separated>[-/.:h]\d)|(?P<unspaced>\s?[年년月월])|(?P<clock>\s?(?:[ap]\.?m\b|uhr\b))"
    rf"|(?P<month>(?:st|nd|rd|th|er|[ºª.])?\s+(?:of\s+|de\s+)?{MONTH}))",
    re.IGNORECASE,
)
_NOON, _HOURS, _DAYS, _YEARS = 12, 24, 31, 100
_THIS_CENTURY = 50


def date_at(text: str, start: int) -> Number | None:
    """The date or time of day that begins with the digits at `start`."""
    if (begin := _BEGINS.match(text, start)) is None or begin.lastgroup is None:
        return None
    for form, read in FORMS[begin.lastgroup]:
        if (found := form.match(text, start)) is not None and (number := read(found)) is not None:
            return number
    return None


def date_from_month(text: str, start: int, end: int) -> Number | None:
    """The date that begins with the month that stands from `start` to `end`: "May 6, 2024", "May 2024"."""
    month = MONTHS.get(text[start:end].casefold())
    found = _AFTER_MONTH.match(text, end) if month is not None else None
    if month is None or found is None:
        return None
    day, year = _number(found[1]), _number(found[2] or found[3])
    return _date(text[start : found.end()], found.end(), [(year, month, day)])


def _iso(found: re.Match[str]) -> Number | None:
    return _date(found[0], found.end(), [(_number(found[1]), _number(found[3]), _number(found[4]))])


def _slashed(found: re.Match[str]) -> Number | None:
    """Day and month in either order; with dots the day comes first."""
    first, second, year = _number(found[1]), _number(found[3]), _number(found[4])
    if year is not None and year < _YEARS:
        year += 2000 if year < _THIS_CENTURY else 1900
    orders = [(year, second, first)] + ([(year, first, second)] if found[2] != "." else [])
    return _date(found[0], found.end(), orders)


def _day_first(found: re.Match[str]) -> Number | None:
    return _date(found[0], found.end(), [(_number(found[3]), MONTHS[found[2].casefold()], _number(found[1]))])


def _unspaced(found: re.Match[str]) -> Number | None:
    return _date(found[0], found.end(), [(_number(found[1]), _number(found[2]), _number(found[3]))])


def _time(found: re.Match[str]) -> Number | None:
    """A time of day. Without a.m. or p.m. a small hour may be of either half of the day."""
    hour, minute, half = int(found[1]), int(found[3] or 0), (found[4] or "").casefold()
    if hour > _HOURS or not (found[2] or half or found[5]) or (found[2] == "." and not (half or found[5])):
        return None
    if half:
        hours = [hour % _NOON + (_NOON if half == "p" else 0)] if hour <= _NOON else [hour]
    else:
        hours = [hour, hour + _NOON] if 0 < hour < _NOON and not found[1].startswith("0") else [hour % _HOURS]
    keys = [f"{h:02}:{minute:02}" for h in hours]
    stated = {*keys, str(hour)}
    if found[2] is None and not found[0].endswith(("m.", "hr", "HR")):
        keys.append(str(hour))  # "um 5 am Montag" is no morning
    tokens = (keys[0],)
    return Number(found[0].strip(), tuple(frozenset({key}) for key in keys), frozenset(stated), tokens, found.end())


FORMS = {
    "separated": ((_ISO, _iso), (_SLASHED, _slashed), (_TIME, _time)),
    "unspaced": ((_UNSPACED, _unspaced),),
    "clock": ((_TIME, _time),),
    "month": ((_DAY_FIRST, _day_first),),
}


def _date(text: str, end: int, orders: list[tuple[int | None, int | None, int | None]]) -> Number | None:
    """A date read in one or two orders; None where none of them is a date.

    A full date is also supported by its day without a year, if that year is stated somewhere else.
    """
    asks: list[frozenset[str]] = []
    states: set[str] = set()
    tokens: tuple[str, ...] = ()
    for year, month, day in orders:
        if month is None or not 1 <= month <= len(_NAMES) or (day is not None and not 1 <= day <= _DAYS):
            continue
        in_year, in_month = f"{year}-{month:02}", f"--{month:02}-{day:02}" if day is not None else ""
        if year is not None and day is not None:
            asks += [frozenset({f"{in_year}-{day:02}"}), frozenset({f"?{in_month}", str(year)})]
            states |= {f"{in_year}-{day:02}", in_year, in_month, str(year), str(day)}
        elif day is not None:
            asks.append(frozenset({in_month}))
            states |= {in_month, f"?{in_month}", str(day)}
        elif year is not None:
            asks.append(frozenset({in_year}))
            states |= {in_year, str(year)}
        else:
            return None
        tokens = tokens or tuple(str(part) for part in (day, _WORDS[month - 1], year) if part is not None)
    return Number(text.strip(), tuple(asks), frozenset(states), tokens, end) if asks else None


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)

"""Detects telephone numbers: international ones, and national ones in distinctive formats.

What the patterns propose, libphonenumber's rules confirm. That takes some 20 microseconds for one: when a text holds
more than `MAX_CHECKS` different proposals the rest is taken by its shape alone, so that the time stays bounded and
nothing gets out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import phonenumbers
from phonenumbers import PhoneNumber, ValidationResult

from gaugeway.redaction.spans import Span, holds

MAX_CHECKS = 2000
_BETWEEN = r" ().\-/\u00a0\u202f\u2011"
_RUN = re.compile(rf"[0-9+(][0-9{_BETWEEN}]{{5,}}+")
may_hold_a_number = holds("0" * 6, " ().-/\u00a0\u202f\u2011")
_GROUP = re.compile(r"[0-9]+")
_DASH = r"[-. \u00a0\u202f\u2011]"
_AMERICAN = rf"(?:1{_DASH})?(?:\([2-9][0-9]{{2}}\) ?|[2-9][0-9]{{2}}{_DASH})[2-9][0-9]{{2}}{_DASH}[0-9]{{4}}"
# Five pairs are French, 07xxx xxxxxx is a British mobile: the ranges kept for films are not in the library's books.
_KNOWN_SHAPE = rf"0[1-9](?:{_DASH}[0-9]{{2}}){{4}}(?!{_DASH}[0-9])|07[0-9]{{3}} [0-9]{{3}} ?[0-9]{{3}}"
_TRUNK = rf"\(?0[1-9][0-9]{{0,4}}\)?(?:[{_BETWEEN}]{{1,3}}[0-9]{{2,8}}){{1,5}}"
_SHAPES = re.compile(
    r"(?<![0-9./\u2011-])"
    rf"(?:(?P<american>{_AMERICAN})|(?<![0-9] )(?:(?P<known>{_KNOWN_SHAPE})|(?P<trunk>{_TRUNK})))(?![0-9]|[-./][0-9])"
)
_DATE = re.compile(r"\(?[0-9]{1,4}([./-])[0-9]{1,2}\1[0-9]{1,4}(?![0-9])")
_ANNOUNCED = re.compile(
    r"(?:\b(?:tele?phone|phone|tel|mobile|cell|fax|call|whatsapp|sms|dial|hotline|telefon|handy|mobil|tél|téléphone"
    r"|portable|teléfono|móvil|telefono|contact (?:number|no))\b)"
    r"(?:[\s.]{0,2}(?:numbers?|no|nr|is|at|us|me|on|line|back|or)\b){0,3}[\s.:=#\"'(+]{0,4}\Z",
    re.IGNORECASE,
)
# Country codes where a national number begins with a 0 that is left out from abroad.
_TRUNK_COUNTRIES = (44, 49, 33, 43, 41, 31, 32, 353, 46, 61, 64, 81, 27)
_ITALY = 39
_LOOK_BACK = 32
# internal bound: a number of the format or formula
_FEWEST, _FEWEST_ABROAD, _FEWEST_WITH_TRUNK, _TRUNK_MOST, _ANNOUNCED_MOST, _MOST = 6, 8, 9, 12, 13, 15


def phones(text: str) -> Iterator[Span]:
    """Telephone numbers; the value is the number within its country, so that +44 20 ... and 020 ... are the same."""
    if not may_hold_a_number(text):
        return
    checks = _Checks()
    for run in _RUN.finditer(text):
        start, end = run.span()
        before = text[max(0, start - _LOOK_BACK) : start]
        if before[-1:].isalnum() or before[-1:] in ("_", ".", "$", "€", "£"):
            continue
        if (span := _abroad(text, start, end, checks)) is None and before and _ANNOUNCED.search(before):
            span = _announced(text, start, end)
        if span is not None:
            yield span
            start = span.end
        yield from _national(text, start, end, checks)


class _Checks:
    """Asks the library, as long as there are checks left; the same number costs one."""

    def __init__(self) -> None:
        self._known: dict[str, str | None] = {}

    def __call__(self, number: str) -> str | None:
        """Return the number within its country, or None when it is none.

        `number` is the digits, after a "+" with the country's code, after a "1" for North America, else with the 0.
        """
        if number not in self._known:
            if len(self._known) >= MAX_CHECKS:
                return number.lstrip("+0")
            self._known[number] = _confirmed(number)
        return self._known[number]


def _confirmed(number: str) -> str | None:
    if number.startswith("+"):
        try:
            parsed = phonenumbers.parse(number)
        except phonenumbers.NumberParseException:
            return None
        possible = phonenumbers.is_possible_number_with_reason(parsed) == ValidationResult.IS_POSSIBLE
        return str(parsed.national_number) if possible else None
    if number.startswith("1"):
        american = PhoneNumber(country_code=1, national_number=int(number[1:]))
        return number[1:] if phonenumbers.is_valid_number(american) else None
    candidates = [PhoneNumber(country_code=code, national_number=int(number)) for code in _TRUNK_COUNTRIES]
    candidates.append(PhoneNumber(country_code=_ITALY, national_number=int(number), italian_leading_zero=True))
    return number.lstrip("0") if any(map(phonenumbers.is_valid_number, candidates)) else None


def _groups(text: str, start: int, end: int) -> list[tuple[int, int]]:
    return [group.span() for group in islice(_GROUP.finditer(text, start, end), _MOST)]


def _abroad(text: str, start: int, end: int, checks: _Checks) -> Span | None:
    """Read +49 30 ... or 0049 30 ... at the start of a run; what is too long loses groups from its end."""
    plus = text[start] == "+"
    if not plus and not re.match(r"00 ?[1-9]", text[start : start + 4]):
        return None
    for _, last in reversed(_groups(text, start, end)):
        digits = _digits(text[start:last].replace("(0)", ""))
        digits = digits if plus else digits[2:]
        if len(digits) < _FEWEST_ABROAD:
            return None
        if len(digits) <= _MOST and (value := checks("+" + digits)):
            return Span(start, last, "phone", value)
    return None


def _announced(text: str, start: int, end: int) -> Span | None:
    """Take what follows a word such as "phone": the groups that make no more digits than a number has."""
    if not (groups := _groups(text, start, end)) or _DATE.match(text, start, end):
        return None
    last, count = groups[0][0], 0
    for first, stop in groups:
        count += stop - first
        if count > _ANNOUNCED_MOST:
            break
        last = stop
    if len(digits := _digits(text[start:last])) < _FEWEST:
        return None
    if len(digits) == 11 and digits.startswith("1"):  # noqa: PLR2004 - North America's own code
        digits = digits[1:]
    return Span(start, last, "phone", digits.lstrip("0"))


def _national(text: str, start: int, end: int, checks: _Checks) -> Iterator[Span]:
    """Read every (202) 555-0123, 01 99 00 12 34 and 030 23125 123 of a run."""
    while end - start > _FEWEST and (found := _SHAPES.search(text, start, end)) is not None:
        span = None
        digits = _digits(found[0])
        if found["american"]:
            value = checks(digits if digits.startswith("1") else "1" + digits)
            span = Span(*found.span(), "phone", value) if value else None
        elif found["known"]:
            span = Span(*found.span(), "phone", digits.lstrip("0"))
        elif not _DATE.match(text, found.start(), end):
            span = _with_trunk(text, found.start(), found.end(), checks)
        if span is not None:
            yield span
            start = span.end
        else:
            first = _GROUP.search(text, found.start(), end)
            start = first.end() if first else found.end()


def _with_trunk(text: str, start: int, end: int, checks: _Checks) -> Span | None:
    """Read a number behind a trunk 0; what is too long loses groups from its end."""
    for _, last in reversed(_groups(text, start, end)[1:]):
        digits = _digits(text[start:last])
        if _FEWEST_WITH_TRUNK <= len(digits) <= _TRUNK_MOST and (value := checks(digits)):
            return Span(start, last, "phone", value)
    return None


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))

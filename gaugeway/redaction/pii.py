"""Detects e-mail addresses, payment cards, IBANs and IP addresses: by a rare anchor, then by checks.

Every pattern is bounded or cannot backtrack, so the time grows with the length of the text only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from stdnum import iban as iban_numbers
from stdnum import luhn

from gaugeway.data_files import table
from gaugeway.redaction.spans import Span, holds

_SPACE = " \u00a0\u202f"

_DOMAIN = re.compile(r"(?:@|%40)((?:[^\W_][\w-]{0,62}\.){1,8}[^\W\d_]{2,24})(?![\w@])")
_LOCAL_REVERSED = re.compile(r"[\w.+'-]{1,64}")
_FILE_ENDINGS = frozenset({"png", "jpg", "jpeg", "gif", "webp", "svg", "css", "js", "ts", "json", "html", "py", "md"})

_CARD = re.compile(
    rf"[2-6][0-9]{{3}}(?:([{_SPACE}-])(?:[0-9]{{4}}\1[0-9]{{4}}\1[0-9]{{1,4}}(?:\1[0-9]{{3}})?|[0-9]{{6}}\1[0-9]{{4,5}})"
    r"|[0-9]{10,15})(?![\w]|[.-][0-9])"
)
may_hold_a_card = holds("0" * 12, f"{_SPACE}-")
_ISSUERS = re.compile(
    r"4[0-9]{15}(?:[0-9]{3})?"
    r"|5[1-5][0-9]{14}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}"
    r"|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[689][0-9])[0-9]{11}"
    r"|6(?:011|5[0-9]{2}|4[4-9][0-9])[0-9]{12}"
    r"|35(?:2[89]|[3-8][0-9])[0-9]{12}"
    r"|62[0-9]{14,17}"
    r"|(?:50|5[6-9]|63|67)[0-9]{14,17}"
)

# It begins with its check digits, which are rarer than letters: looking for two letters takes four times as long.
_IBAN_REST = re.compile(rf"[0-9](?<=[A-Za-z]{{2}}[0-9])[0-9](?:[{_SPACE}-]?[A-Za-z0-9]){{11,30}}")
may_hold_an_iban = holds("aa00")
_COUNTRY = 2
_IBAN_LENGTHS: dict[str, int] = table("gaugeway.redaction", "formats.toml")["ibans"]

_DOTTED = re.compile(r"\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})(?![\w%]|\.[0-9])")
_NOT_BEFORE = re.compile(
    r"(?:[\w.:]|[^\W\d]-|[A-Za-z]/"  # a longer number, a name with a version
    r"|(?:\b(?:v|ver|versions?|releases?|build|firmware|sections?|chapters?|clauses?|figure|table|articles?|oid)|§)"
    r"[\s.:#=\"']{0,5})\Z",
    re.IGNORECASE,
)
_LIST_WORDS = frozenset({"to", "and", "or", ",", "-", "\u2013", "/"})
_LISTED = 6
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:")
_V6_REVERSED = re.compile(r"[0-9A-Fa-f:]{0,38}")
_V6_REST = re.compile(r"[0-9A-Fa-f:]{1,39}(?:(?:\.[0-9]{1,3}){3})?")
_HEX_DIGITS = 4
_V4_DIGITS, _LOOK_BACK = 3, 24


def emails(text: str) -> Iterator[Span]:
    """Addresses; a user's password in a URL (`://user:password@host`) and a file name (`logo@2x.png`) are none."""
    if "@" not in text and ("%" not in text or "%40" not in text):
        return
    done = 0
    for found in _DOMAIN.finditer(text):
        at = found.start()
        if (local := _LOCAL_REVERSED.match(text[max(done, at - 64) : at][::-1])) is None:
            continue
        name = local[0][::-1].lstrip(".'-+")
        start = at - len(name)
        domain = found[1].casefold()
        if not name or domain.rsplit(".", 1)[1] in _FILE_ENDINGS or _is_password(text, start):
            continue
        if name == "git" and text[found.end() : found.end() + 1] in (":", "/"):
            continue
        done = found.end()
        yield Span(start, done, "email", f"{name.casefold()}@{domain}")


def _is_password(text: str, start: int) -> bool:
    """Whether what starts here follows `scheme://user:`."""
    before = text[max(0, start - 100) : start]
    _, scheme, user = before.rpartition("://")
    return (
        bool(scheme) and user.endswith(":") and not any(character.isspace() or character in "/@" for character in user)
    )


def cards(text: str) -> Iterator[Span]:
    """Payment cards: an issuer's prefix and length, grouped as cards are, and a right check digit."""
    for found in _CARD.finditer(text) if may_hold_a_card(text) else ():
        digits = "".join(filter(str.isdigit, found[0]))
        if not _ISSUERS.fullmatch(digits) or not _starts_apart(text, found.start()):
            continue
        if luhn.is_valid(digits) and len(set(digits)) > 1:
            yield Span(found.start(), found.end(), "card", digits)


def ibans(text: str) -> Iterator[Span]:
    """IBANs with the length their country prescribes and a right checksum, in groups or not."""
    if not may_hold_an_iban(text):
        return
    position = 0
    while (found := _IBAN_REST.search(text, position)) is not None:
        position = found.start() + 1
        start = found.start() - _COUNTRY
        length = _IBAN_LENGTHS.get(text[start : found.start()].upper())
        if length is None or not _starts_apart(text, start):
            continue
        end = _end_of(text, start, length)
        number = "".join(filter(str.isalnum, text[start:end])).upper()
        whole = end <= found.end() and not text[end : end + 1].isalnum()
        if whole and iban_numbers.is_valid(number, check_country=False):
            yield Span(start, end, "iban", number)
            position = end


def _end_of(text: str, start: int, length: int) -> int:
    """Find the end of `length` letters and digits, ignoring other characters between them."""
    end = start
    while length and end < len(text):
        length -= text[end].isalnum()
        end += 1
    return end


def addresses(text: str) -> Iterator[Span]:
    """IPv4 and IPv6 addresses, but for those that name no machine (loopback, unspecified, netmasks) and versions."""
    version_end = -1
    for found in _DOTTED.finditer(text):
        dot = found.start()
        start = dot
        while start > 0 and dot - start < _V4_DIGITS and text[start - 1] in "0123456789":
            start -= 1
        before = text[max(0, start - _LOOK_BACK) : start]
        listed = 0 <= start - version_end <= _LISTED and text[version_end:start].strip().lower() in _LIST_WORDS
        if start == dot or listed or _NOT_BEFORE.search(before):
            version_end = found.end()
            continue
        yield from _address(text[start : found.end()], start)
    done = 0
    for colons in _COLONS.finditer(text):
        if colons.start() < done:
            continue
        head = _V6_REVERSED.match(text[max(done, colons.start() - 38) : colons.start()][::-1])
        start = colons.start() - (len(head[0]) if head else 0)
        rest = _V6_REST.match(text, start)
        done = rest.end() if rest else colons.end()
        if start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_:."):
            continue
        if done < len(text) and (text[done].isalnum() or text[done] in "_:"):
            continue
        candidate = text[start:done]
        if candidate.endswith(":") and not candidate.endswith("::"):
            candidate = candidate[:-1]  # "at fe80::1: unreachable"
        figures = [character for character in candidate if character not in ":."]
        if len(figures) >= _HEX_DIGITS and any(character.isdigit() for character in figures):
            yield from _address(candidate, start)


def _address(candidate: str, start: int) -> Iterator[Span]:
    try:
        address = ipaddress.ip_address(candidate)
    except ValueError:
        return
    if address.is_loopback or address.is_unspecified or candidate.startswith("255."):
        return
    yield Span(start, start + len(candidate), "ip", str(address))


def _starts_apart(text: str, start: int) -> bool:
    """Whether no letter, digit or decimal point stands right before `start`."""
    before = text[max(0, start - 2) : start]
    if before[-1:].isalnum() or before[-1:] in ("_", "."):
        return False
    return not (before[1:] == "-" and before[0].isdigit())

"""Detects secrets: vendor-prefixed keys, tokens, private keys, passwords in URLs and assignments."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from gaugeway.data_files import table
from gaugeway.redaction.spans import Span

# What to look for first -> the whole key. The first part decides whether the pattern runs at all.
_VENDORS = [
    (needle, re.compile(pattern)) for needle, pattern in table("gaugeway.redaction", "formats.toml")["keys"].items()
]
_SHORTEST = 15
_WORDS = bytes(b" x"[byte not in b"\t\n\v\f\r\x1c\x1d\x1e\x1f "] for byte in range(256))
_LONG_WORD = b"x" * _SHORTEST
_BEARER = re.compile(r"\b(?:bearer|token)[ \t]{1,3}([\w.~+/-]{16,}+=*)", re.IGNORECASE)
_BASIC = re.compile(r"\bbasic[ \t]{1,3}([A-Za-z0-9+/]{8,1024}={0,2})(?![\w/+])", re.IGNORECASE)
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BREAK = r"(?:\\[nr]|\s){1,4}"
_KEY_BODY = re.compile(
    rf"(?:{_BREAK}[A-Za-z-]{{1,20}}: [^\n\\]{{0,80}})*+(?:{_BREAK}[A-Za-z0-9+/=]{{24,}}+)++"
    rf"(?:{_BREAK}[A-Za-z0-9+/=]{{1,23}})?"
)
_LONGEST_KEY = 32_768
_URL_PASSWORD = re.compile(r"://[^\s:@/?#\[\]\"'<>]{0,64}:([^\s@/\"'<>]{1,256})@")
_SIGN = re.compile(r"[:=]")
_NOT_IN_VALUE = r"\s\"'`\\,;()<>{}\[\]&|"
_VALUE = re.compile(rf"""[:=]>?[ \t]{{0,3}}\\?["'`]?([^={_NOT_IN_VALUE}]{{6,256}}+)""")
_REST = re.compile(rf"[^{_NOT_IN_VALUE}]*+")
_NAME = re.compile(
    r"(?:(?P<word>passw(?:or)?d|passphrase|passcode|pwd|\bpw|passwort|kennwort|contraseña|mot de passe)"
    r"|(?:api|access|account|private|signing|encryption|master|service|shared|auth|secret)[_ -]?key|apikey|secret|token"
    r"|credential)[\w.-]{0,20}\\?[\"'`]?\]?[ \t]{0,3}\Z",
    re.IGNORECASE,
)
_HINTS = ("key", "secret", "token", "pass", "pw", "kennw", "contras", "credential")
# Without a sign between: "password is ...", "password ...", "set api_key ...", "curl -u user:...".
_SAID = re.compile(
    rf"\b(?:password|passphrase|passcode)[ \t]{{1,3}}(is |was )?[ \t]{{0,2}}[\"'`]?([^{_NOT_IN_VALUE}]{{6,}}+)",
    re.IGNORECASE,
)
_SET = re.compile(rf"_(?:key|token|secret)[ \t]{{1,3}}[\"']?([^{_NOT_IN_VALUE}]{{16,}}+)", re.IGNORECASE)
_CURL_USER = re.compile(rf" (?:-u|--user)[ =][\"']?[\w.@-]{{1,64}}:([^{_NOT_IN_VALUE}]+)")
_COOKIES = re.compile(r"\b(?:set-)?cookie: *([^\r\n]{8,8192}+)", re.IGNORECASE)
_COOKIE_VALUE = re.compile(r"=([^;\s\"']{8,}+)")
_RUN, _MIXED_RUN = re.compile(r"[A-Za-z0-9]{12,}"), re.compile(r"[A-Za-z0-9+/]{20,}")
_SYMBOLS = "!@#$%^*+=?"
_LOOK_BACK = 48


def secrets(text: str) -> Iterator[Span]:
    """Credentials of every sort; the value is the secret as it stands."""
    # Looking for one character takes a twentieth of the time of looking for several.
    small = text.lower()
    if has_long_word(text):
        yield from _keys(text)
        yield from _bearers(text)
    if "asic" in small:
        yield from _basic(text)
    if "-" in text:
        yield from _private_keys(text)
    if ":" in text and "://" in text:
        for found in _URL_PASSWORD.finditer(text):
            if not _is_stand_in(found[1]):
                yield _span(text, *found.span(1))
    if (":" in text or "=" in text) and any(hint in small for hint in _HINTS):
        yield from _assignments(text)
    yield from _without_sign(text, small)


def has_long_word(text: str) -> bool:
    """Whether there may be a word as long as a key; most texts have none.

    Never misses one: characters outside ASCII count with their bytes of UTF-8, and as letters.
    """
    return _LONG_WORD in text.encode("utf-8", "surrogatepass").translate(_WORDS)


def _keys(text: str) -> Iterator[Span]:
    """Keys of known vendors; the needles are looked for in long words only."""
    long = " ".join([word for word in text.split() if len(word) >= _SHORTEST])
    for needle, pattern in _VENDORS:
        if needle in long:
            for found in pattern.finditer(text):
                alone = not found.start() or not text[found.start() - 1].isalnum()
                if alone and any(character.isdigit() for character in found[0]):
                    yield _span(text, found.start(), found.end())


def _span(text: str, start: int, end: int) -> Span:
    return Span(start, end, "secret", text[start:end])


def _bearers(text: str) -> Iterator[Span]:
    if any(hint in text for hint in ("earer", "oken ", "EARER", "OKEN ")):
        for found in _BEARER.finditer(text):
            if looks_random(found[1]):
                yield _span(text, *found.span(1))


def _basic(text: str) -> Iterator[Span]:
    if "asic" in text or "ASIC" in text:
        for found in _BASIC.finditer(text):
            try:
                plain = base64.b64decode(found[1], validate=True)
            except binascii.Error:
                continue
            if b":" in plain and plain.isascii():
                yield _span(text, *found.span(1))


def _private_keys(text: str) -> Iterator[Span]:
    """PEM and PGP blocks, whole; one without an end goes as far as its lines do. A bare first line is no key."""
    if "PRIVATE KEY" not in text:
        return
    position = end = 0
    closing: re.Match[str] | None = None
    while (begin := _KEY_BEGIN.search(text, position)) is not None:
        position = begin.end()
        if end >= 0 and end < begin.end():  # look for the next end once only, however many beginnings there are
            closing = _KEY_END.search(text, begin.end())
            end = closing.start() if closing else -1
        if closing is not None and end - begin.end() <= _LONGEST_KEY:
            position = closing.end()
        elif (body := _KEY_BODY.match(text, begin.end())) is not None:
            position = body.end()
        else:
            continue
        yield _span(text, begin.start(), position)


def _assignments(text: str) -> Iterator[Span]:
    done = 0
    for sign in _SIGN.finditer(text):
        if (start := sign.start()) < done:
            continue
        before = text[max(done, start - _LOOK_BACK) : start]
        small = before.lower()
        if not any(hint in small for hint in _HINTS):
            continue
        if (name := _NAME.search(before)) is None or (found := _VALUE.match(text, start)) is None:
            continue
        first = found.start(1)
        if _looks_chosen(found[1].rstrip(".")) if name["word"] else looks_random(found[1]):
            rest = _REST.match(text, found.end())  # only what is a secret is read to its end, however long it is
            done = rest.end() if rest else found.end()
            yield _span(text, first, first + len(text[first:done].rstrip(".")))


def _without_sign(text: str, small: str) -> Iterator[Span]:
    if "pass" in small:
        for found in _SAID.finditer(text):
            value = found[2].rstrip(".")
            if _looks_chosen(value) and (
                found[1] or looks_random(value) or any(character in _SYMBOLS for character in value)
            ):
                yield _span(text, found.start(2), found.start(2) + len(value))
    if "_" in small and any(word in small for word in ("_key ", "_token ", "_secret ")):
        yield from (_span(text, *found.span(1)) for found in _SET.finditer(text) if looks_random(found[1]))
    if "-" in text and (" -u" in text or " --user" in text):
        yield from (_span(text, *found.span(1)) for found in _CURL_USER.finditer(text) if not _is_stand_in(found[1]))
    if ":" in small and "cookie:" in small:
        for line in _COOKIES.finditer(text):
            values = _COOKIE_VALUE.finditer(text, *line.span(1))
            yield from (_span(text, *found.span(1)) for found in values if looks_random(found[1]))


def _looks_chosen(value: str) -> bool:
    """Whether this looks like a human-chosen password, not a path, a link or an ordinary word."""
    if len(value) < 6 or "//" in value or value[0] in "/~.$%*" or _is_stand_in(value):  # noqa: PLR2004
        return False
    return any(character.isdigit() for character in value) or (
        any(character in _SYMBOLS for character in value) and value[-1] != "="
    )


def looks_random(value: str) -> bool:
    """Whether this was made by a machine: a long run of letters and digits, as words and versions do not have."""
    if "://" in value:
        return False
    for run in _RUN.findall(value):
        if not run.isdigit() and not run.isalpha():
            return True
    return any(
        any(character.islower() for character in run)
        and any(character.isupper() for character in run)
        and any(character.isdigit() for character in run)
        for run in _MIXED_RUN.findall(value)
    )


def _is_stand_in(value: str) -> bool:
    """Whether something else was put where a password stood: ***, <password>, ${PASSWORD}, our own placeholder."""
    return value[0] in "<{[$%*" or set(value) <= set("*.xX•-") or value.casefold() in ("password", "pass", "secret")

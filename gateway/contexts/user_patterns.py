"""Finds passages with patterns from the configuration (`[[capture.templates]]`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import regex

from gateway.contexts import Extraction, UserTemplate, extraction, last_user_text, system_texts, user_texts
from gateway.contexts.form.divisions import NAMES, without_metadata
from gateway.contexts.learning.model import Split, split
from gateway.exchange import Request, Response
from monitors.records import Context

TIMEOUT_S = 0.05
"""Time limit of one pattern on one message; after it the pattern counts as no match."""

_GROUPS = frozenset({"question", "contexts"})
_DEFAULT_SEPARATOR = "\n\n"
_SEPARATOR_GROUPS = frozenset({"id", "source", "title", "score"})
_LONGEST = 10_000
_PIECES = 1_000
_LEAST_S = 0.001
_PROBE = 1_000
_PROBE_S = 0.25
"""Time limit of a probe: twenty times that of usual patterns, too little for catastrophic backtracking."""

READINGS = (
    *NAMES,
    *("objects", "pairs", "headed", "named", "bullets"),  # as earlier versions exported them
)
"""Allowed prefixes of `read_as`."""

_ORDINARY = ("", "Hello, how are you?")
_CUTS = 24
_RUNS = ("a", "A", "0", " ", "\n", "-", "<", ".", "a ", "a\n", "a,", " \n")
_SAMPLES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "S": "a", "d": "0", "D": "a", "w": "a", "W": " ", "h": " "}
_SKIPPED = frozenset("()|*+?{}^$")


class PatternExtractor:
    """Tries the configured templates, in order, on the last user turn and then the system messages."""

    def __init__(self, templates: Sequence[UserTemplate] = (), *, timeout_s: float = TIMEOUT_S) -> None:
        """Raise ValueError for a template that `check` refuses."""
        self._templates = [(one, check(one), check_separator(one)) for one in templates]
        self._timeout_s = timeout_s

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        if not self._templates:
            return None
        texts = [*user_texts(request)[:1], *system_texts(request)]
        for template, pattern, between in self._templates:
            try:
                for text in texts:
                    if (match := pattern.search(text, timeout=self._timeout_s)) is not None:
                        question = match.groupdict().get("question") or last_user_text(request)
                        pieces = match.captures("contexts")
                        if template.read_as is not None:
                            found = _read_as(pieces, template.read_as)
                        else:
                            found = (
                                self._split_at(pieces, between)
                                if between
                                else _split(pieces, template.separator.replace("\r\n", "\n"))
                            )
                        found = _cleaned(found) if template.clean else found
                        return extraction(question, found, source="patterns", marker=template.name)
            except (TimeoutError, MemoryError, RecursionError):
                continue
        return None

    def _split_at(self, pieces: Sequence[str], between: regex.Pattern[str]) -> Iterator[Context]:
        """Raises TimeoutError when the pattern takes too long; all pieces share the limit of the message."""
        kept = pieces[:_PIECES]
        for piece in kept:
            # A header that begins the text has no line break in front of it, as the others have.
            text = piece if piece.startswith("\n") else f"\n{piece}"
            said: dict[str, str] = {}
            position = 0
            matches = between.finditer(text, timeout=max(self._timeout_s / len(kept), _LEAST_S))
            for match in islice(matches, _PIECES):
                yield from _passage(text[position : match.start()], said)
                position, said = match.end(), {key: value for key, value in match.groupdict().items() if value}
            yield from _passage(text[position:], said)


def check(template: UserTemplate) -> regex.Pattern[str]:
    """Return the compiled pattern. Raises ValueError naming what is wrong with the template."""
    name = f"template {template.name!r}"
    if not template.name.strip():
        raise ValueError("a template needs a name")
    if not template.separator:
        raise ValueError(f"{name}: the separator is empty")
    pattern = _compiled(name, template.pattern, regex.DOTALL, _GROUPS)
    if "contexts" not in pattern.groupindex:
        raise ValueError(f"{name}: the pattern has no group (?P<contexts>...)")
    _probe(name, template.pattern, pattern)
    if any(pattern.search(text, timeout=_PROBE_S) is not None for text in _ORDINARY):
        raise ValueError(f"{name}: the pattern matches any message, even {_ORDINARY[-1]!r}")
    return pattern


def check_separator(template: UserTemplate) -> regex.Pattern[str] | None:
    """Return the compiled pattern between passages, if the template has one. Raises ValueError as `check` does."""
    if template.read_as is not None:
        if template.read_as.partition(":")[0] not in READINGS:
            known = ", ".join(READINGS)
            raise ValueError(f"template {template.name!r}, read_as: {template.read_as!r} is none of {known}")
        if template.separator_pattern is not None or template.separator != _DEFAULT_SEPARATOR:
            raise ValueError(f"template {template.name!r}, read_as and a separator exclude each other")
    if template.separator_pattern is None:
        return None
    name = f"template {template.name!r}, separator_pattern"
    if template.separator != _DEFAULT_SEPARATOR:
        raise ValueError(f"{name}: there is a separator as well; give one of the two")
    pattern = _compiled(name, template.separator_pattern, regex.MULTILINE, _SEPARATOR_GROUPS)
    if pattern.search("", timeout=_PROBE_S) is not None:
        raise ValueError(f"{name}: the pattern matches the empty text")
    _probe(name, template.separator_pattern, pattern)
    return pattern


def _compiled(name: str, source: str, flags: int, groups: frozenset[str]) -> regex.Pattern[str]:
    if len(source) > _LONGEST:
        raise ValueError(f"{name}: the pattern is longer than {_LONGEST} characters")
    try:
        pattern = regex.compile(source, flags)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name}: the pattern is no regular expression: {error}") from error
    if unknown := sorted(set(pattern.groupindex) - groups):
        raise ValueError(f"{name}: unknown group {unknown[0]!r}; known: {', '.join(sorted(groups))}")
    return pattern


def _probe(name: str, source: str, pattern: regex.Pattern[str]) -> None:
    """Search texts that provoke backtracking: a matching beginning, then a long run without a matching end."""
    try:
        for text in _probes(_skeleton(source)):
            pattern.search(text, timeout=_PROBE_S)
    except TimeoutError:
        raise ValueError(
            f"{name}: the pattern is too slow: it takes over {_PROBE_S:g} s for a text of {_PROBE} characters. Nested "
            "repetitions such as (a+)+ are the usual cause; possessive ones such as a++ cannot run away"
        ) from None
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"{name}: the pattern needs too much memory") from error


def _probes(skeleton: str) -> Iterator[str]:
    cuts = range(len(skeleton) + 1) if len(skeleton) < _CUTS else range(0, len(skeleton) + 1, len(skeleton) // _CUTS)
    for cut in cuts:
        prefix = skeleton[:cut]
        runs = {*_RUNS, prefix[-1:], prefix[-8:], prefix} - {""}
        for run in sorted(runs):
            yield prefix + run * (_PROBE // len(run)) + "\0"


def _skeleton(source: str) -> str:
    """Return the pattern's literals and one member of each class, in order: an approximate match."""
    text: list[str] = []
    index = 0
    while index < len(source):
        character = source[index]
        if character == "\\" and index + 1 < len(source):
            index += 1
            text.append(_SAMPLES.get(source[index], source[index]))
        elif character == "[":
            end = source.find("]", index + 2)
            members = source[index + 1 : end if end > 0 else len(source)].lstrip("^")
            text.append(_SAMPLES.get(members[1:2], members[1:2]) if members[:1] == "\\" else members[:1])
            index = end if end > 0 else len(source)
        elif source.startswith("(?", index):
            index = _behind_the_opening(source, index)
        elif character not in _SKIPPED:
            text.append("a" if character == "." else character)
        index += 1
    return "".join(text)


def _behind_the_opening(source: str, index: int) -> int:
    """Return where the opening of a special group ends: `(?P<name>`, `(?:`, `(?s)` ..."""
    position = index + 2
    if source.startswith(("P<", "<"), position) and (end := source.find(">", position)) > 0:
        return end
    while position < len(source) and source[position] not in ":)=!>":
        position += 1
    return position


def _passage(text: str, said: dict[str, str]) -> Iterator[Context]:
    """Yield a passage with the metadata of the separator before it; nothing for a blank one. Strips line breaks."""
    if (text := text.strip("\r\n")) and not text.isspace():
        yield Context(
            text=text,
            id=said.get("id"),
            source=said.get("source") or said.get("title"),
            score=_score(said.get("score")),
        )


def _score(said: str | None) -> float | None:
    try:
        value = float(said or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _cleaned(passages: Iterable[Context]) -> Iterator[Context]:
    yield from without_metadata([text for one in passages if (text := one.text.strip())])


def _read_as(pieces: Sequence[str], name: str) -> Iterator[Context]:
    how = Split(kind="reading", words=name)
    for piece in pieces[:_PIECES]:
        yield from split(how, piece) or ()


def _split(pieces: Sequence[str], separator: str) -> Iterator[Context]:
    for piece in pieces:
        for chunk in piece.split(separator, _PIECES):
            if chunk and not chunk.isspace():
                yield Context(text=chunk)

"""Passages in prompts that the user described with a pattern of their own (`[[capture.templates]]`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import regex

from gateway.contexts import Extraction, last_user_text, system_texts, user_texts
from gateway.contexts.bounds import extraction
from gateway.exchange import Request, Response
from monitors.records import Context

TIMEOUT_S = 0.05
"""For one pattern on one message. A pattern that takes longer has not matched."""

_GROUPS = frozenset({"question", "contexts"})
_LONGEST = 10_000
_PIECES = 1_000
_PROBE = 1_000
_PROBE_S = 0.25
"""Twenty times what usual patterns take for so short a text, too little for one that explodes."""

_ORDINARY = ("", "Hello, how are you?")
_CUTS = 24
_RUNS = ("a", "A", "0", " ", "\n", "-", "<", ".", "a ", "a\n", "a,", " \n")
_SAMPLES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "S": "a", "d": "0", "D": "a", "w": "a", "W": " ", "h": " "}
_SKIPPED = frozenset("()|*+?{}^$")


class UserTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt of the user's app. `pattern` has a group `contexts` and maybe one `question`; a dot matches line breaks.

    A group `contexts` that matches repeatedly gives one piece each time; every piece is split at `separator`.
    """

    name: str
    pattern: str
    separator: str = "\n\n"


class PatternExtractor:
    """The user's templates, in order, on the last user turn and then the system messages."""

    def __init__(self, templates: Sequence[UserTemplate] = (), *, timeout_s: float = TIMEOUT_S) -> None:
        """Raise ValueError for a template that `check` refuses."""
        self._templates = [(template, check(template)) for template in templates]
        self._timeout_s = timeout_s

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        if not self._templates:
            return None
        texts = [*user_texts(request)[:1], *system_texts(request)]
        for template, pattern in self._templates:
            try:
                for text in texts:
                    if (match := pattern.search(text, timeout=self._timeout_s)) is not None:
                        question = match.groupdict().get("question") or last_user_text(request)
                        pieces = match.captures("contexts")
                        return extraction(
                            question, _split(pieces, template.separator), source="patterns", marker=template.name
                        )
            except (TimeoutError, MemoryError, RecursionError):
                continue
        return None


def check(template: UserTemplate) -> regex.Pattern[str]:
    """Return the compiled pattern. Raises ValueError that says what is wrong with the template."""
    name = f"template {template.name!r}"
    if not template.name.strip():
        raise ValueError("a template needs a name")
    if not template.separator:
        raise ValueError(f"{name}: the separator is empty")
    if len(template.pattern) > _LONGEST:
        raise ValueError(f"{name}: the pattern is longer than {_LONGEST} characters")
    try:
        pattern = regex.compile(template.pattern, regex.DOTALL)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name}: the pattern is no regular expression: {error}") from error
    if "contexts" not in pattern.groupindex:
        raise ValueError(f"{name}: the pattern has no group (?P<contexts>...)")
    if unknown := sorted(set(pattern.groupindex) - _GROUPS):
        raise ValueError(f"{name}: unknown group {unknown[0]!r}; known: contexts, question")
    _probe(name, template.pattern, pattern)
    return pattern


def _probe(name: str, source: str, pattern: regex.Pattern[str]) -> None:
    """Search texts made to lead the pattern astray: beginnings of what it wants, then a long run, then no end."""
    try:
        if any(pattern.search(text, timeout=_PROBE_S) is not None for text in _ORDINARY):
            raise ValueError(f"{name}: the pattern matches any message, even {_ORDINARY[-1]!r}")
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
    """Return the pattern's literals and one member of each class, in order: roughly what it is looking for."""
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


def _split(pieces: Sequence[str], separator: str) -> Iterator[Context]:
    for piece in pieces:
        for chunk in piece.split(separator, _PIECES):
            if chunk and not chunk.isspace():
                yield Context(text=chunk)

r"""Finds passages with patterns from the configuration (`[[capture.templates]]`), and writes learned ones as such.

A pattern is applied to one message, and its passages stand where one separator does. What a learned template knows
beyond that cannot be said in it; the entry's notes name it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice

import msgspec
import regex

from gaugeway.exchange import Request, Response
from gaugeway.prompts import (
    MOST_PIECES,
    Evidence,
    Extraction,
    UserTemplate,
    extraction,
    last_user_text,
    system_texts,
    user_texts,
)
from gaugeway.prompts.form.divisions import NAMES, divisions, without_metadata
from gaugeway.prompts.learning.frames import END, MASK, PART, SYSTEM, USER
from gaugeway.prompts.learning.model import MOST_VARYING, LearnedTemplate, Split, split
from gaugeway.prompts.sizes import CROWD, FEW, WORD
from gaugeway.records import Context

TIMEOUT_S = 0.05
"""Time limit of one pattern on one message; after it the pattern counts as no match."""

_GROUPS = frozenset({"question", "contexts"})
_DEFAULT_SEPARATOR = "\n\n"
_SEPARATOR_GROUPS = frozenset({"id", "source", "title", "score"})
_LONGEST = 10_000
_LEAST_S = 0.001
_PROBE = 1_000
_PROBE_S = 0.25
"""Time limit of a probe: twenty times that of usual patterns, too little for catastrophic backtracking."""

_ORDINARY = ("", "Hello, how are you?")
_CUTS = 2 * WORD
_RUNS = ("a", "A", "0", " ", "\n", "-", "<", ".", "a ", "a\n", "a,", " \n")
_SAMPLES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "S": "a", "d": "0", "D": "a", "w": "a", "W": " ", "h": " "}
_SKIPPED = frozenset("()|*+?{}^$")
MESSAGES = {SYSTEM: "system", USER: "user"}
_MARKS = re.compile(f"([{SYSTEM}{USER}{END}])")
_ANY = "(?s:.*?)"
_ON_THE_LINE = rf"[^\n]{{0,{MOST_VARYING}}}?"
_ROW_START, _NUMBER = r"\A\n", r"\d+"
_BLANK_LINE, _LINE = r"\n[ \t]*\n\s*", r"\n"
_MOST_LINES = CROWD
_LABEL_ENDS = ":\uff1a>"
_FIRST_PRINTABLE, _DELETE = 0x20, 0x7F


class PatternExtractor:
    """Tries the configured templates, in order, on the last user turn and then the system messages."""

    evidence: Evidence = "configured pattern"

    def __init__(self, templates: Sequence[UserTemplate] = (), *, timeout_s: float = TIMEOUT_S) -> None:
        """Raise ValueError for a template that `check` refuses."""
        self._templates = [(template, check(template), check_separator(template)) for template in templates]
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
        kept = pieces[:MOST_PIECES]
        for piece in kept:
            # A header that begins the text has no line break in front of it, as the others have.
            text = piece if piece.startswith("\n") else f"\n{piece}"
            said: dict[str, str] = {}
            position = 0
            matches = between.finditer(text, timeout=max(self._timeout_s / len(kept), _LEAST_S))
            for match in islice(matches, MOST_PIECES):
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
        if template.read_as.partition(":")[0] not in NAMES:
            known = ", ".join(NAMES)
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
    yield from without_metadata([text for passage in passages if (text := passage.text.strip())])


def _read_as(pieces: Sequence[str], name: str) -> Iterator[Context]:
    how = Split(kind="reading", words=name)
    for piece in pieces[:MOST_PIECES]:
        yield from split(how, piece) or ()


def _split(pieces: Sequence[str], separator: str) -> Iterator[Context]:
    for piece in pieces:
        for chunk in piece.split(separator, MOST_PIECES):
            if chunk and not chunk.isspace():
                yield Context(text=chunk)


class Described(msgspec.Struct, frozen=True):
    """A configuration entry, and notes on what of the learned template it cannot express."""

    entry: UserTemplate
    notes: tuple[str, ...] = ()


class Piece(msgspec.Struct, frozen=True):
    """A constant text of a message, or a slot named `slot`."""

    text: str
    slot: str | None = None


def messages(template: LearnedTemplate) -> list[tuple[str, list[Piece]]]:
    """Return the messages of a template: role and pieces of each."""
    found: list[tuple[str, list[Piece]]] = []
    for index, literal in enumerate(template.literals):
        for part in _MARKS.split(literal):
            if part in MESSAGES:
                found.append((MESSAGES[part], []))
            elif part and part != END and found:
                found[-1][1].append(Piece(part.replace(PART, "\n")))
        if index < len(template.slots) and found:
            found[-1][1].append(Piece("", template.slots[index]))
    return found


def describe(template: LearnedTemplate) -> Described:
    """Return the entry equivalent to the template. Raises ValueError when its pattern is too slow."""
    whose = messages(template)
    at = next(index for index, (_, pieces) in enumerate(whose) if any(piece.slot == "passages" for piece in pieces))
    notes = []
    asked = next((pair for pair in whose if any(piece.slot == "question" for piece in pair[1])), None)
    if asked is not None and asked != whose[at] and (asked[0] != "user" or len(asked[1]) > 1):
        notes.append("the question is the whole text of the last user message: a pattern reads one message")
    how = template.split
    name = f"{template.app} {template.version}"
    if how.kind == "part":
        notes.append("content parts are separated by line breaks")
    entry = UserTemplate(name=name, pattern=_pattern(whose[at][1]), clean=False)
    if how.kind == "reading":
        entry = msgspec.structs.replace(entry, read_as=how.words)
    else:
        entry = msgspec.structs.replace(entry, separator_pattern=_separator(how))
    check(entry)
    check_separator(entry)
    return Described(entry, tuple(notes))


def toml(described: Described) -> str:
    """Return the entry as TOML for gaugeway.toml, preceded by the notes as comments."""
    entry = described.entry
    lines = [*(f"# {note}" for note in described.notes), "[[capture.templates]]"]
    lines += [f"name = {_quoted(entry.name)}", f"pattern = {_quoted(entry.pattern)}"]
    if entry.separator_pattern is not None:
        lines.append(f"separator_pattern = {_quoted(entry.separator_pattern)}")
    elif entry.separator != UserTemplate("", "").separator:
        lines.append(f"separator = {_quoted(entry.separator)}")
    if entry.read_as is not None:
        lines.append(f"read_as = {_quoted(entry.read_as)}")
    lines += ["clean = true"] if entry.clean else []
    return "\n".join(lines) + "\n"


def _pattern(pieces: list[Piece]) -> str:
    """Match constant texts lazily before the passages and greedily after them: passages may contain any of them."""
    behind = False
    named = set()
    parts = [r"\A"]
    for piece in pieces:
        if piece.slot is None:
            parts.append(_escaped(piece.text))
            continue
        group = {"passages": "contexts", "question": "question"}.get(piece.slot)
        behind = behind or group == "contexts"
        many = ".*" if behind else ".*?"
        parts.append(f"(?P<{group}>{many})" if group and group not in named else many)
        named.add(group)
    return "".join([*parts, r"\Z"])


def _separator(how: Split) -> str:
    r"""Return a pattern of the separator between passages, including constant text at their edges."""
    if how.kind == "separator":
        between, head = (_ON_THE_LINE.join(map(_masked, pieces)) for pieces in (how.trailer, how.header))
        return f"{between}|{_ROW_START}{_ON_THE_LINE}{head.removeprefix(_LINE)}" if head else between
    if how.kind == "marker":
        # Spaces behind it belong to it as well: what is learned begins and ends without.
        between = _masked(how.words.rstrip() or how.words) + (r"\s*" if how.words.strip() else "")
    else:
        between = _BLANK_LINE if how.kind == "paragraphs" else _LINE
    first = [f"(?P<source>{_ANY})", *[_ANY] * len(how.header)]
    header = "".join(f"{slot}{_masked(text)}" for slot, text in zip(first, how.header, strict=False))
    trailer = "".join(f"{_masked(text)}{_ANY}" for text in how.trailer)
    ends = [f"{trailer}{between}{header}"] if trailer or not header else [f"(?:{between}|{_ROW_START}){header}"]
    if trailer and header:
        ends.insert(0, f"{_ROW_START}{header}")
    if trailer or how.closing:
        ends.append(f"{trailer}{_masked(how.closing)}\\s*\\Z")
    return "|".join(ends)


def _masked(text: str) -> str:
    return _NUMBER.join(map(_escaped, text.split(MASK)))


def _escaped(text: str) -> str:
    """Escape for a readable regular expression, without `${`, which the configuration would substitute."""
    return "".join(_sign(sign) for sign in text)


def _sign(sign: str) -> str:
    if sign in "\n\t\r":
        return {"\n": r"\n", "\t": r"\t", "\r": r"\r"}[sign]
    if sign.isalnum() or sign in " \"'<>/:;,=_%@!":
        return sign
    return f"\\x{ord(sign):02x}" if ord(sign) < _FIRST_PRINTABLE or ord(sign) == _DELETE else re.escape(sign)


def _quoted(text: str) -> str:
    """Write a TOML string: literal where possible, else with escapes."""
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def guess(name: str, texts: Sequence[str]) -> UserTemplate:
    """Return a first draft of an entry from sample prompts: the lines that they share are constant.

    With one prompt those are its first and its last. The longest gap is taken for the passages, and the last of the
    others for the question.
    """
    gaps, shared = _gaps([text.split("\n")[:_MOST_LINES] for text in texts])
    longest = max(range(len(gaps)), key=lambda index: max(map(len, gaps[index])))
    passages, asked = _without_last_line(gaps[longest])
    pieces: list[Piece] = []
    for index, some in enumerate(gaps):
        if index == longest:
            pieces += _slot(passages, "passages") + (_slot(asked, "question") if asked else [])
        elif len(set(some)) == 1 and (len(texts) > 1 or not some[0].strip()):
            pieces.append(Piece(some[0]))
        else:
            pieces += _slot(some, "other")
        pieces += [Piece(shared[index])] if index < len(shared) else []
    others = [index for index, one in enumerate(pieces) if one.slot == "other"]
    if others and not asked:
        pieces[others[-1]] = Piece("", "question")
    found = next(divisions(passages[0]), None)
    read_as = found.name if found is not None and found.name != "whole" else None
    return UserTemplate(
        name=name, pattern=_pattern([piece for piece in pieces if piece.text or piece.slot]), read_as=read_as
    )


def _gaps(lines: Sequence[list[str]]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the texts before, between and after the lines that all texts share; and these lines.

    A line that comes again within a text is none of them: it may stand between passages.
    """
    if len(lines) == 1:
        whole = lines[0]
        shared = [whole[0], whole[-1]] if len(whole) >= FEW and whole[0] != whole[-1] else []
        places = [[0, len(whole) - 1] if shared else []]
    else:
        shared = [line for line in lines[0] if all(own.count(line) == 1 for own in lines)]
        for other in lines[1:]:
            blocks = SequenceMatcher(None, shared, other, autojunk=False).get_matching_blocks()
            shared = [line for block in blocks for line in shared[block.a : block.a + block.size]]
        places = [[own.index(line) for line in shared] for own in lines]
    found = []
    for index in range(len(shared) + 1):
        some = []
        for own, at in zip(lines, places, strict=True):
            start, end = at[index - 1] + 1 if index else 0, at[index] if index < len(shared) else len(own)
            between = own[start:end]
            if index < len(shared):
                some.append(("\n" if index else "") + "".join(f"{line}\n" for line in between))
            else:
                some.append(("\n" if index and between else "") + "\n".join(between))
        found.append(tuple(some))
    return found, shared


def _without_last_line(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split off the last line of each text when all begin with the same label, such as `Question: `."""
    cuts = [text.rstrip("\n").rfind("\n") + 1 for text in texts]
    last = tuple(text[cut:] for text, cut in zip(texts, cuts, strict=True))
    if len(texts) > 1 and len(set(last)) > 1 and all(cuts) and _common(last)[0].strip():
        return tuple(text[:cut] for text, cut in zip(texts, cuts, strict=True)), last
    return texts, ()


def _slot(texts: tuple[str, ...], slot: str) -> list[Piece]:
    before, after = _common(texts)
    return [Piece(before), Piece("", slot), Piece(after)]


def _common(texts: tuple[str, ...]) -> tuple[str, str]:
    """Return the common start (line breaks, a label such as `Question: `) and end (line breaks) of some texts."""
    leading = min(len(text) - len(text.lstrip("\n")) for text in texts)
    trailing = min(len(text) - len(text.rstrip("\n")) for text in texts)
    if len(texts) > 1 and not any("\n" in text.strip("\n") for text in texts):
        least = min(map(len, texts))
        size = next((at for at in range(least) if len({text[at] for text in texts}) > 1), least)
        label = max(texts[0].rfind(sign, 0, size) for sign in _LABEL_ENDS) + 1
        leading = max(leading, label + (texts[0][label:size].startswith(" ") if label else 0))
    return texts[0][:leading], "\n" * trailing

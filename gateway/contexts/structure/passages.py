"""Splits a block into passages by its own notation: data, tags, headers, rules, blank lines.

Each `Splitting` names its notation (`name`) and the confidence in it. `split` returns the first one that fits;
`readings` yields all, for callers with more evidence than one block, such as the traffic of an app.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gateway.contexts.structure import markdown, markers
from gateway.contexts.structure.common_metadata import (
    has_leftover_metadata,
    plain_passages,
    strip_bracketed_names,
    strip_common_metadata,
)
from gateway.contexts.structure.passage_metadata import SENTENCE_END, CleanedPassage, clean, data, unquoted
from gateway.contexts.structure.word_index import IndexedText
from monitors.records import Context

_RULE_LINE = re.compile(r"\n[ \t]*(?:[-=*_#~]{3,}|`{3}|\"{3})[ \t]*(?:\n|\Z)")
_SECTION = re.compile(
    r"[ \t]*(?:[-=<#*_~]{2,}|[\[【]|[^\n]{1,60}[:：][ \t]*(?:\n|\Z)|[^\W\d_][^\n:.!?]{1,40}:[ \t]|"
    r"[^\W\d_a-z][A-Z ]{3,40}\n)"
)
"""Start of a prompt section that is no passage: a rule, a heading, a label."""
_ENDING = 16
_FIRST_RULE_WITHIN = 32_768
MOST_ITEMS = 400
"""Most pieces read of one block; the limits of an extraction keep fewer."""

_RULE = (
    r"[ \t]{0,8}(?P<rule>[-=*_#~+%]{2,120}|(?:[-*_=•] ?){3,60}|"
    r"<\|?sep(?:arator)?\|?>|\[SEP\]|§{1,3}|•{3,})[ \t]*$"
)
_RULES = re.compile("^" + _RULE, re.MULTILINE | re.IGNORECASE)
_NEXT_RULE = re.compile(r"\n" + _RULE, re.MULTILINE | re.IGNORECASE)
_INLINE = (" | ", " || ", " ||| ", " /// ", " -- ", " *** ", " --- ", " ### ", " • ", " <sep> ", "\t")
_NAMES_A_SOURCE = re.compile(r"[:：=#]|\.\w{2,4}\b|//")
_BULLET = re.compile(r"^(?P<indent>[ \t]{0,8})(?P<bullet>[-*•‣–►◦])[ \t]{1,4}(?=\S)", re.MULTILINE)
_SHORT_LINE = 25
_OF_PARTS = 0.9
_BEHIND = 400
_FENCE_SIGNS = ("`", '"')
_TITLED = ("numbered", "headed", "sections", "parts")
"""Notations whose marker may be followed by a title."""

_TWO = 2
_WIDE = 0x2E80
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class Splitting:
    """Passages in order. `name` is the notation, `certain` in (0, 1] the confidence; `odd`: text of the app is left in.

    `tail`: odd only because the last passage has more paragraphs than the others, which may be none of it.
    `titled`: metadata stood in front of each passage.
    """

    name: str
    items: tuple[Context, ...]
    certain: float
    odd: bool = False
    tail: bool = False
    titled: bool = False


def of_parts(parts: Sequence[str]) -> Splitting | None:
    """Return the content parts of a message as passages, without the titles that all of them begin with."""
    return _cleaned("parts", [(None, one) for one in parts], _OF_PARTS)


def split(region: str) -> Splitting | None:
    """Return the first reading of a block; None for one without text."""
    return next(readings(region), None)


def readings(region: str) -> Iterator[Splitting]:
    """Yield each way to split the block, the most explicit notation first."""
    text = region.strip("\n")
    if not text.strip():
        return
    if text.lstrip()[0] in "\"“«'" and (inner := unquoted(text)) != text.strip():
        text = inner
    for reader in _READERS:
        if (found := reader(text)) is not None and found.items:
            yield found


def read_as(region: str, name: str) -> Splitting | None:
    """Split the block with the notation `name` of an earlier block; None when it does not fit."""
    text = region.strip("\n")
    reader = _READER_OF.get(name.partition(":")[0])
    found = reader(text) if reader is not None and text.strip() else None
    return found if found is not None and found.items and found.name == name else None


def _as_data(text: str) -> Splitting | None:
    found = data(text)
    if found is not None:
        return Splitting("data", tuple(found[:MOST_ITEMS]), 1.0)
    if texts := markers.printed_objects(text):
        return Splitting("objects", tuple(Context(text=one) for one in texts[:MOST_ITEMS]), 1.0)
    return None


def _as_elements(text: str) -> Splitting | None:
    found = markers.elements(text)
    if found is None:
        return None
    tag, contexts = found
    return Splitting(
        f"tag:{tag}",
        tuple(contexts[:MOST_ITEMS]),
        1.0,
        len(contexts) > 1 and has_leftover_metadata([one.text for one in contexts], closed=True),
    )


def _as_pairs(text: str) -> Splitting | None:
    pieces = markers.paired(text)
    if pieces is None:
        return None
    return _cleaned("pairs", pieces, 1.0)


def _as_numbered(text: str) -> Splitting | None:
    found = markers.numbered(text)
    if found is None:
        return None
    name, pieces, again = found
    splitting = _cleaned(f"numbered:{name}", pieces, 1.0 if len(pieces) > 1 else 0.8)
    return splitting if splitting is None or not again else replace(splitting, odd=True)


def _as_records(text: str) -> Splitting | None:
    found = markers.records(text)
    if found is None:
        return None
    key, pieces = found
    return _cleaned(f"records:{key}", [(None, one) for one in pieces], 1.0)


def _as_headed(text: str) -> Splitting | None:
    found = markers.headed(text)
    if found is None:
        return None
    return _cleaned("headed", found, 0.9)


def _has_rule(text: str) -> bool:
    """Whether there is a rule near the beginning. Searching for a line break is faster than a multi-line `^`."""
    if _RULES.match(text) is not None:
        return True
    start = text.find("\n", 0, _FIRST_RULE_WITHIN)
    return start >= 0 and _NEXT_RULE.search(text, start, _FIRST_RULE_WITHIN) is not None


def _as_ruled(text: str) -> Splitting | None:
    """Split at lines that are a rule only; of several kinds of rule the most frequent separates."""
    if not _has_rule(text):
        return None
    counts: dict[str, int] = {}
    found = []
    for rule in _RULES.finditer(text):
        said = rule["rule"].replace(" ", "")
        found.append((rule.start(), rule.end(), said))
        counts[said] = counts.get(said, 0) + 1
        if len(found) > MOST_ITEMS:
            break
    if not counts:
        return None
    best = max(counts, key=counts.__getitem__)
    pieces, position = [], 0
    for start, end, said in found:
        if said == best:
            pieces.append(text[position:start])
            position = end
    pieces.append(text[position:])
    kept: list[tuple[str | None, str]] = [(None, one) for one in pieces if one.strip()]
    if len(kept) < 2:  # noqa: PLR2004 - a rule around one passage cuts nothing
        return None
    return _cleaned(f"rule:{best[:12]}", kept, 0.95)


def _as_inline(text: str) -> Splitting | None:
    if "\n" in text.strip():
        return None
    for separator in _INLINE:
        pieces = [one for one in text.split(separator, MOST_ITEMS) if one.strip()]
        if len(pieces) > 1 and all(SENTENCE_END.search(one.strip()[-_ENDING:]) for one in pieces[:-1]):
            return _cleaned(f"inline:{separator.strip() or 'tab'}", [(None, one) for one in pieces], 0.85)
    return None


def _as_bullets(text: str) -> Splitting | None:
    if _BULLET.match(text) is None:
        return None
    bullets = list(islice(_BULLET.finditer(text), MOST_ITEMS + 1))
    if len(bullets) < 2:  # noqa: PLR2004 - one bullet is no list
        return None
    first = bullets[0]
    indents = {one["indent"] for one in bullets[1:]}
    level = (
        first["indent"] if first["indent"] or len(indents) != 1 else next(iter(indents))
    )  # a block's first line lost its own
    bullets = [one for one in bullets if one["bullet"] == first["bullet"] and (one is first or one["indent"] == level)]
    ends = [one.start() for one in bullets[1:]] + [len(text)]
    pieces: list[tuple[str | None, str]] = [
        (None, text[one.end() : end]) for one, end in zip(bullets, ends, strict=True)
    ]
    return _cleaned("bullets", pieces, 0.85) if len(pieces) > 1 else None


def _as_named_lines(text: str) -> Splitting | None:
    """Split before lines that begin with a file name, such as `guide.pdf#page=2: ...`."""
    starts = markers.named(text)
    if not starts or starts[0] != 0:
        return None
    ends = [*starts[1:], len(text)]
    return _cleaned("named", [(None, text[start:end]) for start, end in zip(starts, ends, strict=True)], 0.95)


def _as_paragraphs(text: str) -> Splitting | None:
    pieces = [one for one in _paragraphs(text) if one.strip()]
    if len(pieces) < 2:  # noqa: PLR2004 - one paragraph is not cut by blank lines
        return None
    if len(pieces) <= MOST_ITEMS and (plain := plain_passages(pieces)):  # without metadata to join
        return Splitting("blank-line", plain, 0.7)
    pieces = _metadata_joined(pieces)
    return _cleaned("blank-line", [(None, one) for one in pieces], 0.7)


def _paragraphs(text: str) -> list[str]:
    """Split at blank lines, `MOST_ITEMS` times at most; most texts have nothing but single lines between them.

    Looking for line breaks takes a fraction of the time of searching with a pattern.
    """
    pieces: list[str] = []
    at = 0
    while (end := text.find("\n", at)) >= 0 and len(pieces) < MOST_ITEMS:
        behind = text[end + 1 : end + 3]
        if behind[:1] != "\n" or behind[1:].isspace():
            return _PARAGRAPH.split(text, MOST_ITEMS)
        pieces.append(text[at:end])
        at = end + 2
    return [*pieces, text[at:]]


def _as_fenced(text: str) -> Splitting | None:
    """Consecutive fences, each after at most one short line."""
    pieces = markdown.fenced(text)
    return None if pieces is None else _cleaned("fenced", [(None, one) for one in pieces], 1.0)


def _as_table(text: str) -> Splitting | None:
    """Rows of a table with a constant number of cells, one of which holds the text."""
    texts = markdown.rows(text)
    return None if texts is None else Splitting("table", tuple(Context(text=one) for one in texts), 1.0)


def _as_sections(text: str) -> Splitting | None:
    """Split before headings of one level; each is a passage's title."""
    pieces = markdown.sections(text)
    return None if pieces is None else _cleaned("sections", [(None, one) for one in pieces], 0.85)


def _as_lettered(text: str) -> Splitting | None:
    pieces = markdown.lettered(text)
    return None if pieces is None else _cleaned("lettered", pieces, 1.0)


def _as_lines(text: str) -> Splitting | None:
    lines = [one.strip() for one in text.split("\n", MOST_ITEMS) if one.strip()]
    if len(lines) < 2:  # noqa: PLR2004 - one line is one passage
        return None
    if not all(SENTENCE_END.search(_unclosed(line)) and _weight(line) >= _SHORT_LINE for line in lines):
        return None
    return _cleaned("lines", [(None, one) for one in lines], 0.6)


def _unclosed(line: str) -> str:
    """Return the end of a line without a closing quote after a space, as in French."""
    return line[-_ENDING:].removesuffix(" »")


def _as_whole(text: str) -> Splitting | None:
    return _cleaned("whole", [(None, text)], 0.5)


_READERS: Sequence[Callable[[str], Splitting | None]] = (
    _as_data,
    _as_elements,
    _as_pairs,
    _as_fenced,
    _as_table,
    _as_headed,
    _as_numbered,
    _as_lettered,
    _as_records,
    _as_ruled,
    _as_named_lines,
    _as_inline,
    _as_sections,
    _as_bullets,
    _as_paragraphs,
    _as_lines,
    _as_whole,
)


_READER_OF: Mapping[str, Callable[[str], Splitting | None]] = {
    "data": _as_data,
    "objects": _as_data,
    "tag": _as_elements,
    "pairs": _as_pairs,
    "fenced": _as_fenced,
    "table": _as_table,
    "lettered": _as_lettered,
    "sections": _as_sections,
    "headed": _as_headed,
    "numbered": _as_numbered,
    "records": _as_records,
    "rule": _as_ruled,
    "named": _as_named_lines,
    "inline": _as_inline,
    "bullets": _as_bullets,
    "blank-line": _as_paragraphs,
    "lines": _as_lines,
    "whole": _as_whole,
}
"""Reader by the part of a splitting's name before the colon."""


def _cleaned(name: str, pieces: Sequence[tuple[str | None, str]], certain: float) -> Splitting | None:
    """Strip metadata from each piece, and what all pieces have in common."""
    raw = [(number, text) for number, text in pieces[:MOST_ITEMS] if text and not text.isspace()]
    if raw and not any(number for number, _ in raw) and (plain := plain_passages([text for _, text in raw])):
        return Splitting(name, plain, certain)
    extra = False
    if len(raw) > 1 and not name.startswith(("blank-line", "lines", "whole", "pairs", "fenced", "parts")):
        raw[-1], extra = _without_tail(raw)
    cleaned = _each_cleaned(raw)
    if not cleaned:
        return None
    if len({one.leading > 0 for one in cleaned}) > 1:
        named = strip_bracketed_names([text for _, text in raw])
        if named is not None:  # names of which only some look like a file's
            cleaned = _each_cleaned([(number, text) for (number, _), text in zip(raw, named, strict=True)])
    # A label or an aside that only some pieces have belongs to the passage.
    label, aside = len({bool(one.label) for one in cleaned}) > 1, len({bool(one.aside) for one in cleaned}) > 1
    aside = aside or (len(cleaned) == 1 and not _NAMES_A_SOURCE.search(cleaned[0].aside))
    for one in cleaned:
        one.put_back(label=label, aside=aside)
    odd = len(cleaned) > 1 and len({one.leading > 0 for one in cleaned}) > 1
    titled = name.startswith(_TITLED) and not all(one.leading for one in cleaned)
    for _ in range(0 if name == "fenced" else 3):
        before = [one.source for one in cleaned]
        if not strip_common_metadata(cleaned, titled=titled):
            break
        titled = titled and [one.source for one in cleaned] == before  # a second title is the passage's own heading
    odd = odd or has_leftover_metadata(
        [one.text for one in cleaned], closed=name in ("pairs", "fenced") or _are_records(name, cleaned)
    )
    described = all(one.leading for one in cleaned)
    return Splitting(name, tuple(one.context() for one in cleaned), certain, odd or extra, extra and not odd, described)


def _are_records(name: str, cleaned: Sequence[CleanedPassage]) -> bool:
    """Whether metadata lines were stripped from each passage: a remaining first line is content."""
    return name.startswith(("records", "headed")) and all(one.leading for one in cleaned)


def _each_cleaned(raw: Sequence[tuple[str | None, str]]) -> list[CleanedPassage]:
    return [one for number, text in raw if (one := clean(text, number=number)).text.strip()]


def _is_foreign(text: str) -> bool:
    """Whether the text after a rule is empty or addresses the model."""
    said = IndexedText(text[:_BEHIND])
    return not text or said.is_meta(0, _BEHIND) or said.addresses(0, _BEHIND) or _SECTION.match(text) is not None


def _closes_a_fence(text: str, rule: str) -> bool:
    """Whether a line closes a fence that was opened in the same passage."""
    return rule[:1] in _FENCE_SIGNS and text.count(rule) % _TWO == 0


def _without_tail(raw: Sequence[tuple[str | None, str]]) -> tuple[tuple[str | None, str], bool]:
    """Return the last piece without trailing text that no other piece has, and whether such text is left in it.

    Text after the passages ends up in the last one when nothing marks their end.
    """
    number, text = raw[-1]
    inner = [len(_PARAGRAPH.split(one.strip())) for _, one in raw[:-1]]
    if (
        (rule := _RULE_LINE.search(text)) is not None
        and text[: rule.start()].strip()
        and not _closes_a_fence(text, rule[0].strip())
        and not any(_RULE_LINE.search(one.strip()) for _, one in raw[:-1])
    ):
        if not _is_foreign(text[rule.end() :].strip()):
            return (number, text), True
        text = text[: rule.start()]
    parts = _PARAGRAPH.split(text.strip())
    usual = max(inner)
    if len(parts) <= usual:
        return (number, text), False
    for index in range(usual, len(parts)):
        if _SECTION.match(parts[index]):
            return (number, "\n\n".join(parts[:index])), index > usual
    return (number, text), True


def _metadata_joined(pieces: Sequence[str]) -> list[str]:
    """Join a paragraph that is metadata only with the paragraph after it."""
    joined: list[str] = []
    held = ""
    for piece in pieces:
        text = f"{held}\n{piece}" if held else piece
        if markers.is_metadata(piece):
            held = text
        else:
            joined.append(text)
            held = ""
    return joined


def _weight(line: str) -> int:
    """Length in letters, where a syllable or a word (Chinese, Japanese, Korean) counts for three."""
    return sum(3 if ord(character) >= _WIDE else 1 for character in line[:200])

"""A block of passages, cut into its passages by what the block itself shows: data, tags, headers, rules, blank lines.

Each reading of a block names how it cuts (`name`) and how sure it is. The first that fits is `split`'s; the others are
for who has more evidence than one block, as the traffic of an app.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gateway.contexts.structure import markers
from gateway.contexts.structure.cleaning import Cleaned, all_quoted, clean, data, unquoted
from monitors.records import Context

_T = TypeVar("_T")

MOST_ITEMS = 400
"""Pieces of one block that are looked at; the bounds of an extraction keep fewer."""

_SENTENCE_END = re.compile(r"[.!?。！？…؟।][\"'”’»)\]」』]{0,3}\s*\Z|[。！？]\s*\Z")
_RULES = re.compile(
    r"^[ \t]{0,8}(?P<rule>[-=*_#~+%]{2,120}|\"{3}|(?:[-*_=•] ?){3,60}|"
    r"<\|?sep(?:arator)?\|?>|\[SEP\]|§{1,3}|•{3,})[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_INLINE = (" | ", " || ", " ||| ", " /// ", " -- ", " *** ", " --- ", " ### ", " • ", " <sep> ", "\t")
_BULLET = re.compile(r"^(?P<indent>[ \t]{0,8})(?P<bullet>[-*•‣–►◦])[ \t]{1,4}(?=\S)", re.MULTILINE)
_SHORT_LINE = 25
_TITLE = 80
_LEFT_TAG = re.compile(r"</[A-Za-z][\w-]{0,40}>\s*\Z|\[/[A-Za-z]")
_PREFIX = re.compile(r"[^.!?\n。！？]{0,60}(?::[ \t]|：|:(?=[^\W\d_]))")
_NAMED = re.compile(r"[^\W\d_a-z][^.!?\n:]{1,40}: ")
_BRACKET = re.compile(
    r"[ \t]*(?:[-*•][ \t]+)?[\[【](?P<name>[^\[\]【】\n]{1,150})[\]】][ \t]*(?::|：|[-–—](?=[ \t]))?[ \t]*(?=\S|\n)"
)
_KEYED = re.compile(r"[^.!?\n:：]{1,40}[:：][ \t]?.{0,200}\Z")
_HEADING = re.compile(
    r"^[ \t]*(?:【[^】\n]{1,60}】[ \t]*$|#{1,6} .{1,80}$|\*\*[^*\n]{1,60}\*\*:?[ \t]*$|=+ .{1,60} =+[ \t]*$)",
    re.MULTILINE,
)
_MARKDOWN = re.compile(r"^#{1,6} \S", re.MULTILINE)
_LONG_TITLE = 160
_RULE_LINE = re.compile(r"\n[ \t]*(?:[-=*_#~]{3,}|`{3}|\"{3})[ \t]*(?:\n|\Z)")
_WORD_AND_ID = re.compile(
    r"[ \t]*(?P<word>[^\W\d_]{2,20})[ \t]?[#№]?[\w-]{0,40}\d[\w-]{0,40}[ \t]?[.:)\]：][ \t]*(?=\S)"
)
_INLINE_TAIL = re.compile(r"[ \t\n](?P<key>[^\W\d_]{2,20})[ \t]?[:：=][ \t]?[^\s:]{1,60}[ \t]*\Z")
_LINE_KEY = re.compile(r"[ \t]*[-*#>]{0,3}[ \t]*\**(?P<key>[^\W\d_][^\n:：.!?]{0,30})\**[:：]")
_PLACE = re.compile(
    r"https?://|(?<![\w.])[\w/-]{1,80}\.(?:md|mdx|pdf|txt|html?|docx?|csv|json|xlsx?|pptx?)\b", re.IGNORECASE
)
_REMARK = re.compile(r"[.!?。][\"'”]?\s*[\[(【][^\[\]()【】\n]{2,120}[\])】]\s*\Z")
_SECTION = re.compile(
    r"[ \t]*(?:[-=<#*_~]{2,}|[\[【]|[^\n]{1,60}[:：][ \t]*(?:\n|\Z)|[^\W\d_][^\n:.!?]{1,40}:[ \t]|[^\W\d_a-z][A-Z ]{3,40}\n)"
)
"""How a section of the prompt begins that is no passage: a rule, a heading, a label."""

_TWO = 2
_WIDE = 0x2E80
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class Splitting:
    """Passages in order. `name` says how the block was cut, `certain` in (0, 1] how surely; `odd`: with leftovers."""

    name: str
    items: tuple[Context, ...]
    certain: float
    odd: bool = False


def split(region: str) -> Splitting | None:
    """Return the first reading of a block; None for one without text."""
    return next(readings(region), None)


def readings(region: str) -> Iterator[Splitting]:
    """Yield what the block may be, the most explicit first."""
    text = region.strip("\n")
    if not text.strip():
        return
    if text.lstrip()[0] in "\"“«'" and (inner := unquoted(text)) != text.strip():
        text = inner
    for reader in _READERS:
        if (found := reader(text)) is not None and found.items:
            yield found


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
        len(contexts) > 1 and _has_remains([one.text for one in contexts], closed=True),
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
    name, pieces = found
    return _cleaned(f"numbered:{name}", pieces, 1.0 if len(pieces) > 1 else 0.8)


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


def _as_ruled(text: str) -> Splitting | None:
    """Between lines that are nothing but a rule. Of several kinds the one that stands most often cuts."""
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
    best = max(counts, key=lambda one: (one[0] not in "\"'`", counts[one]))
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
        if len(pieces) > 1 and all(_SENTENCE_END.search(one.strip()) for one in pieces[:-1]):
            return _cleaned(f"inline:{separator.strip() or 'tab'}", [(None, one) for one in pieces], 0.85)
    return None


def _as_bullets(text: str) -> Splitting | None:
    bullets = list(_BULLET.finditer(text))[: MOST_ITEMS + 1]
    if len(bullets) < 2 or text[: bullets[0].start()].strip():  # noqa: PLR2004 - one bullet is no list
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
    """Lines or blocks that each begin with a file's name, as `guide.pdf#page=2: ...`."""
    starts = markers.named(text)
    if not starts or starts[0] != 0:
        return None
    ends = [*starts[1:], len(text)]
    return _cleaned("named", [(None, text[start:end]) for start, end in zip(starts, ends, strict=True)], 0.95)


def _as_paragraphs(text: str) -> Splitting | None:
    pieces = [one for one in _PARAGRAPH.split(text, MOST_ITEMS) if one.strip()]
    if len(pieces) < 2:  # noqa: PLR2004 - one paragraph is not cut by blank lines
        return None
    pieces = _metadata_joined(pieces)
    return _cleaned("blank-line", [(None, one) for one in pieces], 0.7)


def _as_lines(text: str) -> Splitting | None:
    lines = [one.strip() for one in text.split("\n", MOST_ITEMS) if one.strip()]
    if len(lines) < 2:  # noqa: PLR2004 - one line is one passage
        return None
    if not all(_SENTENCE_END.search(line) and _weight(line) >= _SHORT_LINE for line in lines):
        return None
    return _cleaned("lines", [(None, one) for one in lines], 0.6)


def _as_whole(text: str) -> Splitting | None:
    return _cleaned("whole", [(None, text)], 0.5)


_READERS: Sequence[Callable[[str], Splitting | None]] = (
    _as_data,
    _as_elements,
    _as_pairs,
    _as_headed,
    _as_numbered,
    _as_records,
    _as_ruled,
    _as_named_lines,
    _as_inline,
    _as_bullets,
    _as_paragraphs,
    _as_lines,
    _as_whole,
)


def _cleaned(name: str, pieces: Sequence[tuple[str | None, str]], certain: float) -> Splitting | None:
    """Clean each piece; quotes come off where all pieces have them, so that a passage that is a quote stays one."""
    cleaned: list[Cleaned] = []
    raw = [(number, text) for number, text in pieces[:MOST_ITEMS] if text.strip()]
    extra = False
    if len(raw) > 1 and not name.startswith(("blank-line", "lines", "whole")):
        raw[-1], extra = _without_tail(raw)
    for number, text in raw:
        one = clean(text, number=number)
        if one.text.strip():
            cleaned.append(one)
    if not cleaned:
        return None
    odd = len(cleaned) > 1 and len({one.leading > 0 for one in cleaned}) > 1
    for _ in range(3):
        if not _without_common(cleaned, titled=name.startswith(("numbered", "headed"))):
            break
    odd = odd or extra or _has_remains([one.text for one in cleaned], closed=name == "pairs")
    return Splitting(name, tuple(one.context() for one in cleaned), certain, odd)


def _without_tail(raw: Sequence[tuple[str | None, str]]) -> tuple[tuple[str | None, str], bool]:
    """Return the last piece without what only it has behind a blank line, and whether such text is left in it.

    What follows the passages ends up in the last of them when nothing marks their end.
    """
    number, text = raw[-1]
    inner = [len(_PARAGRAPH.split(one.strip())) for _, one in raw[:-1]]
    if (
        (rule := _RULE_LINE.search(text)) is not None
        and text[: rule.start()].strip()
        and not any(_RULE_LINE.search(one.strip()) for _, one in raw[:-1])
    ):
        text = text[: rule.start()]
    parts = _PARAGRAPH.split(text.strip())
    usual = max(inner)
    if len(parts) <= usual:
        return (number, text), False
    for index in range(usual, len(parts)):
        if _SECTION.match(parts[index]):
            return (number, "\n\n".join(parts[:index])), index > usual
    return (number, text), True


def _without_common(cleaned: Sequence[Cleaned], *, titled: bool) -> bool:
    """Take off what all passages begin or end with in one form: `[name]`, `Key: value`, a title, a link.

    Say whether something was taken off.
    """
    if len(cleaned) < 2:  # noqa: PLR2004 - one passage shows no form
        return False
    texts = [one.text for one in cleaned]
    brackets = [_BRACKET.match(one) for one in texts]
    if all(one is not None and text[one.end() :].strip() for one, text in zip(brackets, texts, strict=True)):
        _take(cleaned, [(one["name"], one.end()) for one in brackets if one is not None])
        return True
    words = [_WORD_AND_ID.match(one) for one in texts]
    if len({one["word"] if one is not None else "" for one in words}) == 1 and words[0] is not None:
        _take(cleaned, [(one[0].strip(" .:)]\t"), one.end()) for one in words if one is not None])
        return True
    tails = [_INLINE_TAIL.search(one[-100:]) for one in texts]
    if len({one["key"] if one is not None else "" for one in tails}) == 1 and tails[0] is not None:
        for one, tail in zip(cleaned, tails, strict=True):
            one.text = one.text[: -len(tail[0])].rstrip() if tail is not None else one.text
        return True
    firsts = [one.partition("\n")[0] for one in texts]
    if not all("\n" in one and one.partition("\n")[2].strip() for one in texts):
        return False
    keys = {one.partition(":")[0].partition("：")[0].strip() for one in firsts}
    keyed = len(keys) == 1 and all(_KEYED.match(one) for one in firsts)
    headings = all(len(one) <= _TITLE and one.rstrip()[-1:] in ":：" for one in firsts)
    ends = sum(_SENTENCE_END.search(one) is not None for one in firsts)
    titles = (
        titled
        and all(len(one) <= _LONG_TITLE for one in firsts)
        and (not ends or (3 * ends <= len(firsts) and max(map(len, firsts)) <= _TITLE))
    )
    if keyed or headings or titles:
        _take(cleaned, [(one.partition(": ")[2] if keyed else one.strip(" :：#*"), len(one)) for one in firsts])
        return True
    lasts = [one.rstrip().rpartition("\n")[2] for one in texts]
    if len({one.strip()[:3] for one in lasts}) == 1 and all("http" in one or _LEFT_TAG.search(one) for one in lasts):
        for one, last in zip(cleaned, lasts, strict=True):
            one.text = one.text.rstrip()[: -len(last)].rstrip()
        return True
    return False


def _take(cleaned: Sequence[Cleaned], said: Sequence[tuple[str, int]]) -> None:
    for one, (name, end) in zip(cleaned, said, strict=True):
        one.source = one.source or name.strip() or None
        one.meta += 1
        one.text = unquoted(clean(one.text[end:]).text.lstrip(":： \t"))


def _has_remains(texts: Sequence[str], *, closed: bool = False) -> bool:
    """Whether something of the app's own is left in all passages: a prefix, a title, a last line of one form, a tag."""
    if any(map(_begins_with_keys, texts)):
        return True
    if len(texts) < _TWO:
        return _MARKDOWN.search(texts[0], 1) is not None or texts[0].lstrip()[:1] in ("<", "{", "[")
    if not closed and _HEADING.search(texts[-1]) and not any(_HEADING.search(one) for one in texts[:-1]):
        return True
    rows = [one.strip().split("\n") for one in texts]
    return (
        _begin_alike(texts)
        or _have_lines_alike(rows, closed=closed)
        or _share_a_key(rows)
        or _mostly(_names_a_place, texts)
        or _mostly(_is_titled, rows)
    )


def _begins_with_keys(text: str) -> bool:
    lines = [line for line in text.split("\n", 4)[:3] if line.strip()]
    return len(lines) > _TWO and all(_PREFIX.match(line) for line in lines[:2])


def _begin_alike(texts: Sequence[str]) -> bool:
    """Whether all begin with one sign of notation or with a prefix each, or end with a tag."""
    heads = [one.lstrip()[:80] for one in texts]
    alike = len({one[:1] for one in heads}) == 1 and heads[0][:1] in (*"[(<{#*|=@",)
    if alike or any(_LEFT_TAG.search(one[-60:]) for one in texts) or all(map(_PREFIX.match, heads)):
        return True
    return 2 * sum(_NAMED.match(one) is not None for one in heads) > len(heads)


def _have_lines_alike(rows: Sequence[Sequence[str]], *, closed: bool) -> bool:
    """Whether all begin with a title or end with a line of one form, or only the last has lines."""
    if not all(len(one) > 1 for one in rows):
        return not closed and len(rows) > 1 and len(rows[-1]) > 1 and _only_last_has_lines(rows)
    titled = all(len(one[0]) <= _TITLE and not _SENTENCE_END.search(one[0]) for one in rows)
    return titled or len({one[-1].strip()[:3] for one in rows}) == 1


def _share_a_key(rows: Sequence[Sequence[str]]) -> bool:
    """Whether lines of two passages begin with the same `Key:`: what an app writes beside each, not what they say."""
    seen: set[str] = set()
    for lines in rows:
        keys = {key["key"] for line in (*lines[:4], *lines[-3:]) if (key := _LINE_KEY.match(line)) is not None}
        if seen & keys:
            return True
        seen |= keys
    return False


def _mostly(holds: Callable[[_T], object], among: Sequence[_T]) -> bool:
    """Whether it holds for more than half."""
    return 2 * sum(1 for one in among if holds(one)) > len(among)


def _names_a_place(text: str) -> bool:
    """Whether an address, a file or a remark in brackets stands at one end of a passage."""
    return (
        _PLACE.search(text[:120]) is not None
        or _PLACE.search(text[-120:]) is not None
        or _REMARK.search(text[-160:]) is not None
    )


def _is_titled(lines: Sequence[str]) -> bool:
    """Whether the first or the last of several lines is short and no sentence."""
    ends = (lines[0], lines[-1]) if len(lines) > 1 else ()
    return any(len(one) <= _TITLE and not _SENTENCE_END.search(one) for one in ends)


def _only_last_has_lines(rows: Sequence[Sequence[str]]) -> bool:
    return all(len(one) == 1 for one in rows[:-1])


def _metadata_joined(pieces: Sequence[str]) -> list[str]:
    """Put a paragraph that is nothing but metadata before the one it speaks of."""
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


__all__ = ["MOST_ITEMS", "Splitting", "all_quoted", "readings", "split", "unquoted"]

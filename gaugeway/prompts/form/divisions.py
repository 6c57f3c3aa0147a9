"""How a text that holds passages and nothing else divides into them: a region of a prompt, a tool's result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from gaugeway.prompts import MOST_PIECES
from gaugeway.prompts.form.candidates import contexts, divisions_of, framed, siblings
from gaugeway.prompts.form.records import passages
from gaugeway.prompts.form.text import MOST_RECORDS, Block, Frame, Text, ends_a_sentence, frames_of, weight
from gaugeway.prompts.notation import WIDE
from gaugeway.prompts.sizes import HALF, LABEL, LINE, MOSTLY, NEARLY_ALL, PARAGRAPH, WORD
from gaugeway.records import Context

NAMES = ("data", "tag", "fence", "numbered", "records", "rule", "blank-line", "lines", "inline", "whole")
"""The ways to divide a text, as a configuration may name them."""
_CERTAIN = {"data": 1.0, "tag": 1.0, "fence": 1.0, "numbered": NEARLY_ALL, "blank-line": HALF, "lines": HALF}
_SAID = {"counted": "numbered", "blank": "blank-line"}
_ITSELF = ("data", "part", "fence", "rule", "blank", "lines", "whole")
_RECORDS = ("records", "numbered")
_INLINE = re.compile(r"(?<=\S) (?:[|/*#•~+-]{1,3}|<sep>) (?=\S)")
_NAME = re.compile(r"\s*<([\w:.-]{1,40})")
_GAP = "\n\n"
_TAGS = re.compile(r"(?:\s*</?[^\W\d][^<>\n]{0,200}>)*\s*")
_CDATA = re.compile(r"<!\[CDATA\[(?P<text>.*)\]\]>", re.DOTALL)
_MARKUP_STARTS = ("<", "{", "[{", "import ", "#include")
_HTML = re.compile(
    r"html|head|body|div|span|p|a|ul|ol|li|table|tr|td|th|thead|tbody|section|main|nav|header|footer|h[1-6]|img|script|"
    r"style|meta|link|br|form|input|button|label|svg|video|audio|iframe|pre|code|blockquote|em|strong|b|i|rss|channel|"
    r"feed|urlset|project|configuration|plist",
    re.IGNORECASE,
)
_SURE = ("counted", "tag")
_NUMBER = re.compile(r"\d+")
_BARE = ("#.", "#)", "item -", "item *", "item •", "~#")
_RULE = re.compile(r"^[ \t]{0,8}(?:-{3,80}|={3,80}|\*{3,80}|_{3,80}|#{3,80}|~{3,80})[ \t]*$", re.MULTILINE)
_BLANK = re.compile(r"\n[ \t]*\n\s*")
_GOES_ON = re.compile(r"[-*+\u2022] |1[.)] |\|")


class Division(NamedTuple):
    """Passages in order, the way they were separated, and how certain that is, in (0, 1]."""

    name: str
    items: tuple[Context, ...]
    certain: float


def divisions(region: str) -> Iterator[Division]:
    """Yield each way to divide a text of passages and nothing else, the most explicit form first."""
    text = Text.of(region.strip("\n"))
    if "\n" not in text.raw:
        for sign, _ in Counter(_INLINE.findall(text.raw)).most_common(1):
            items = tuple(Context(text=item.strip()) for item in text.raw.split(sign, MOST_RECORDS) if item.strip())
            yield Division(f"inline:{sign}", items, MOSTLY)
    for block in divisions_of(text):
        if found := tuple(contexts(text, block)):
            name = _name_of(text, block)
            yield Division(name, found, _CERTAIN.get(name.partition(":")[0], MOSTLY))


def divided_as(region: str, name: str) -> Division | None:
    """Divide a text as an earlier one was, or as the configuration says; None where it has not that form."""
    text = Text.of(region.strip("\n"))
    kind, _, key = name.partition(":")
    if kind == "inline":
        items = tuple(Context(text=item.strip()) for item in text.raw.split(key or " | ", MOST_RECORDS) if item.strip())
        return Division(name, items, 1.0) if items else None
    for block in divisions_of(text, key if kind in ("numbered", "records") else ""):
        said = _name_of(text, block)
        same = said == name or said.partition(":")[0] == name or (kind == "rule" and block.split == "rule")
        if (same or (block.frame is not None and kind in _RECORDS)) and (found := tuple(contexts(text, block))):
            return Division(name, found, 1.0)
    return None


def without_metadata(texts: Sequence[str]) -> list[Context]:
    """Return passages without the titles, sources and fields that all of them begin or end with."""
    ends = list(accumulate(len(text) + len(_GAP) for text in texts))
    spans = [(end - len(_GAP) - len(one), end - len(_GAP)) for one, end in zip(texts, ends, strict=True)]
    raw = _GAP.join(texts)
    return [record.context(raw) for record in passages(raw, spans, (0,) * len(spans))]


def _name_of(text: Text, block: Block) -> str:
    if block.split in _ITSELF:
        return _SAID.get(block.split, block.split)
    if block.split == "tag":
        found = _NAME.match(text.raw, block.start)
        return f"tag:{found[1]}" if found is not None else "tag"
    key = "" if block.frame is None else block.frame.key
    return f"{'numbered' if block.split == 'counted' else 'records'}:{key}"


def elements_in(text: str) -> list[Context]:
    """Return the passages of a text that consists of elements only; [] for markup such as a page."""
    read = Text.of(text)
    if not read.elements or _HTML.fullmatch(read.elements[0].name):
        return []
    for block in (*siblings(read), *siblings(read, least=1)):
        if _is_all(read, block):
            found = [_of_data(passage) for passage in contexts(read, block)]
            if len(found) == len(block.spans) and all(_is_passage(passage, alone=len(found) == 1) for passage in found):
                return found
    return []


def _is_all(text: Text, block: Block) -> bool:
    """Whether nothing but tags stands before, between and behind the elements."""
    raw = text.raw
    name = next(element.name for element in text.elements if element.start == block.start)
    if _HTML.fullmatch(name):
        return False
    return _TAGS.fullmatch(raw, 0, block.start) is not None and _TAGS.fullmatch(raw, block.end) is not None


def _of_data(one: Context) -> Context:
    data = _CDATA.fullmatch(one.text)
    return replace(one, text=data["text"]) if data else one


def _is_passage(one: Context, *, alone: bool) -> bool:
    """Whether an element holds a text: more than a word; a lone one says what it is about, too."""
    said = one.text
    if said.startswith(_MARKUP_STARTS) or not (len(said.split(None, 2)) > 1 or ord(said[:1]) >= WIDE):
        return False
    return not alone or one.id is not None or one.source is not None


def records_in(text: str, *, plain: bool = True) -> list[Context] | None:
    """Return the passages of two or more records that the whole text consists of, after a line at most; else None.

    Of several frames the counted one that begins first is taken. `plain`: also of a list with mere numbers (`1.`),
    which the steps of a manual have as well; behind a line only if that names how many there are.
    """
    read = Text.of(text.strip())
    raw = read.raw
    best: tuple[tuple[bool, int], list[Context]] | None = None
    for block in _blocks(read):
        said = raw[: block.start].strip()
        if len(said) > PARAGRAPH or "\n" in said:
            continue
        if block.frame is not None and block.frame.key in _BARE and not (plain and _is_told(block, said)):
            continue
        if block.split not in _SURE and not _is_even(raw, block, said):
            continue
        rank = (block.split in _SURE, -block.start)
        if best is not None and rank <= best[0]:
            continue
        found = contexts(read, block)
        if len(found) == len(block.spans) and min(len(passage.text) for passage in found) >= WORD:
            best = rank, found
    return None if best is None else best[1]


def _is_told(block: Block, said: str) -> bool:
    """Whether nothing stands before a plain list but how many entries it has."""
    return not said or str(len(block.spans)) in _NUMBER.findall(said)


def _is_even(raw: str, block: Block, said: str) -> bool:
    """Whether uncounted records are all there is: nothing stands before them, the last one has no more paragraphs."""
    gaps = [raw.count("\n\n", start, end) for start, end in block.spans]
    return (not said or said.endswith((":", "："))) and gaps[-1] <= max(gaps[:-1])


def _is_only(frame: Frame, text: Text) -> bool:
    """Whether a plain list has no list inside: a manual's steps have the same numbers."""
    return sum(frame.key in line.keys for line in text.lines) == len(frame.lines)


def _blocks(text: Text) -> list[Block]:
    found = [block for block in siblings(text) if not text.raw[block.end :].strip()]
    for frame in frames_of(text.lines):
        bare = frame.key in _BARE
        if len(frame.lines) <= 1 or frame.key.strip("#") == "":
            continue  # a heading stays with its text
        if not bare or (frame.counted and frame.lines[0] <= 1 and _is_only(frame, text)):
            found.append(framed(text, text.lines, frame, len(text.raw), None))
    return found


def paragraphs(text: str) -> list[Context]:
    """Split at rules, else at blank lines; a heading stays with the text after it.

    Returns [] for one passage, and where most pieces are no running text: a table, code, a list of links.
    """
    if "```" in text:
        return []
    ruled = _RULE.split(text, MOST_PIECES)
    pieces = _BLANK.split(text, MOST_PIECES) if len(ruled) == 1 else ruled
    found = [Context(text=piece) for piece in _with_their_headings(pieces)]
    running = sum(weight(passage.text) >= LABEL or ends_a_sentence(passage.text) for passage in found)
    return [] if len(found) <= 1 or 2 * running < len(found) else found


def _with_their_headings(pieces: list[str]) -> Iterator[str]:
    """Join what a passage with blank lines was cut into: a heading and its text, a sentence and its list or table."""
    held = ""
    goes_on = False
    for piece in pieces:
        if not (said := piece.strip()):
            continue
        if held and not (goes_on or (_GOES_ON.match(said) and not _GOES_ON.match(held.rpartition("\n")[2]))):
            yield held
            held = ""
        held = f"{held}\n\n{said}" if held else said
        heading = said.startswith("#") or (len(said) <= LINE and not ends_a_sentence(said))
        goes_on = said.endswith((":", "\uff1a")) or ("\n" not in said and heading)
    if held:
        yield held

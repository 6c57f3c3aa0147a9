"""Every block of a text that its form allows to hold the passages, and how its form divides it."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from gaugeway.prompts.form.lines import Line, behind_label, key_of, mark_length
from gaugeway.prompts.form.records import Record, Span, passages
from gaugeway.prompts.form.text import GENERIC, MOST_RECORDS, Block, Element, Frame, Text, frames_of
from gaugeway.prompts.notation import decoded
from gaugeway.prompts.parse import read
from gaugeway.prompts.sizes import CROWD, FEW, LABEL, LINE, MANY, PARAGRAPH, SEVERAL, WORD
from gaugeway.records import Context

MOST_OPENERS = SEVERAL
MOST_CLOSERS = 7
MOST_CANDIDATES = 120
_OPENS = ("label", "title", "heading", "bracket", "bold", "rule")
_HEADS = ("title", "heading", "bracket", "bold", "label", "rule")
_CLOSES = ("label", "title", "heading", "bracket", "bold", "rule", "open", "close", "field")
MOST_DATA = SEVERAL
MIRRORED = 0.7
"""Share of letters that the lines before and behind a block have in common, where one mirrors the other."""
_ATTRIBUTE = re.compile(r"(?P<key>[\w:-]{1,40})=[\"'](?P<value>[^\"'<>]{0,300})[\"']")
_CHILD = re.compile(r"<(?P<key>[\w:-]{1,40})>(?P<inside>[^<>]{1,300})</(?P=key)>")
_TAGS = re.compile(r"</?[^\W\d][^<>]{0,300}>")
_IDS = ("id", "index", "number")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})[ \t]*(?P<named>[^`\n]{0,80})")
_NEXT = re.compile(r",?[ \t]*\n\s*\{")
_JSON = json.JSONDecoder()
_CODE = re.compile(r"^```(?:xml|html)\b.*?(?:^```|\Z)", re.MULTILINE | re.DOTALL)
"""Markup that a user shows: a prompt writes its passages in no fence of this kind."""


def blocks_of(text: Text, opens: Callable[[Line], float] = lambda _: 0.0) -> list[Block]:
    """Return the candidates, at most `MOST_CANDIDATES`; frames and tags come first.

    `opens` says how much a line looks like the one before the passages: those that do are tried first.
    """
    found: dict[tuple[int, int, str, int], Block] = {}
    for block in _candidates(text, opens):
        if len(found) >= MOST_CANDIDATES:
            break
        if block.spans:
            found.setdefault((block.start, block.end, block.split, len(block.spans)), block)
    return list(found.values())


def _candidates(text: Text, opens: Callable[[Line], float]) -> Iterator[Block]:
    yield from _parts(text)
    yield from _elements(text)
    yield from _data(text)
    yield from _fenced(text)
    for frame in [*frames_of(text.lines), *_cited(text)]:
        yield from _framed(text, frame)
    yield from _opened(text, opens)


def _parts(text: Text) -> Iterator[Block]:
    """Yield the content parts of a message, all or without the first or the last one."""
    for first, last in ((0, -1), (1, -1), (0, None), (1, None)):
        if len(some := text.parts[first:last]) > 1:
            start, end = some[0][0], some[-1][1]
            opener, closer = _line_before(text, start), text.line_from(end)
            yield Block(start, end, opener, closer, "part", some, (0,) * len(some))


def contexts(text: Text, block: Block) -> list[Context]:
    """Return the block's passages."""
    if block.data:
        return list(block.data)
    raw = text.raw
    if block.split == "fence":  # what stands inside is whole
        found = [Record(start, end) for start, end in block.spans]
        for record in found:
            record.strip(raw)
    else:
        found = passages(raw, block.spans, block.marks)
        if block.opener is not None and found:
            _cut_closing_line(raw, raw[block.opener.start : block.opener.end], found[-1])
    if len(found) == len(block.attributes):
        for one, said in zip(found, block.attributes, strict=True):
            one.fields += [(match["key"], match["value"]) for match in _ATTRIBUTE.finditer(said)]
            one.fields += [(match["key"], match["inside"]) for match in _CHILD.finditer(said)]
            one.id = next((value for key, value in one.fields if key.lower() in _IDS), None)
    read = [record.context(raw) for record in found]
    return [] if any(passage.text[:1] == "<" and not _says(passage.text) for passage in read) else read


def _cut_closing_line(raw: str, opener: str, last: Record) -> None:
    """Cut the last line where it is much like the opening one: `Start of context`, `End of context`."""
    start = raw.rfind("\n", last.start, last.end)
    if start < 0 or last.said is not None or max(last.end - start, len(opener)) > LINE // 2:
        return
    if SequenceMatcher(None, opener.lower(), raw[start + 1 : last.end].lower()).ratio() > MIRRORED:
        last.end = start
        last.strip(raw)


def _says(text: str) -> bool:
    """Whether a text is more than tags."""
    return any(map(str.isalnum, _TAGS.sub("", text[:PARAGRAPH])))


# --- tags -------------------------------------------------------------------------------------------------------------


def _elements(text: Text) -> Iterator[Block]:
    for (_, parent), group in _groups(text).items():
        if len(group) > 1 or parent >= 0:
            yield _siblings(text, group, text.elements[parent] if parent >= 0 else None)
        for element in group[:FEW] if len(group) > 1 else group:
            if element.inner_end - element.inner >= WORD:
                yield from _inside(text, element)


def siblings(text: Text, least: int = 2) -> Iterator[Block]:
    """Yield the blocks of two or more elements of one name inside one element."""
    for (_, parent), group in _groups(text).items():
        if len(group) >= least:
            yield _siblings(text, group, text.elements[parent] if parent >= 0 else None)


def _groups(text: Text) -> dict[tuple[str, int], list[Element]]:
    groups: dict[tuple[str, int], list[Element]] = defaultdict(list)
    code = [found.span() for found in _CODE.finditer(text.raw)]
    for one, parent in zip(text.elements, text.parents, strict=True):
        if any(start < one.start < end for start, end in code):
            continue
        if any(map(str.isalnum, text.raw[one.inner : min(one.inner_end, one.inner + PARAGRAPH)])):
            groups[one.name, parent].append(one)
    return groups


def _siblings(text: Text, group: Sequence[Element], parent: Element | None) -> Block:
    spans = tuple(_body(text, element) for element in group)
    said = tuple(text.raw[one.start : start] for one, (start, _) in zip(group, spans, strict=True))
    before = _line_before(text, group[0].start) if parent is None or parent.inner < group[0].start - LINE // 2 else None
    if before is None and parent is not None:
        before = _line_of(text, parent.start)
    after = text.line_from(group[-1].end)
    return Block(
        group[0].start,
        group[-1].end,
        before,
        after,
        "tag",
        spans,
        (0,) * len(spans),
        inside=parent is not None,
        attributes=said,
    )


def _body(text: Text, one: Element) -> Span:
    """Return the part of an element that holds its text: the child that is most of it, if there is one."""
    start, end = one.inner, one.inner_end
    first = bisect_left(text.elements, start, key=lambda each: each.start)
    inner = [child for child in text.elements[first : first + MANY] if child.end <= end]
    for _ in range(FEW):
        longest = max(inner, key=lambda child: child.inner_end - child.inner, default=None)
        if longest is None:
            break
        at, gaps = start, []
        for child in inner:
            if child.start >= at:
                gaps.append((at, child.start))
                at = child.end
        beside = [(low, high) for low, high in [*gaps, (at, end)] if any(map(str.isalnum, text.raw[low:high]))]
        if len(beside) == 1 and longest.end - longest.start < min(LINE, beside[0][1] - beside[0][0] + LINE):
            return beside[0]
        if beside:
            break
        start, end = longest.inner, longest.inner_end
        inner = [child for child in inner if start <= child.start and child.end <= end and child is not longest]
    return start, end


def _inside(text: Text, one: Element) -> Iterator[Block]:
    lines = text.lines[text.line_at(one.inner) : text.line_at(one.inner_end)]
    opener = _line_of(text, one.start)
    closer = text.line_from(one.end)
    for split, spans, marks, frame in _splits(text, one.inner, one.inner_end, lines):
        yield Block(one.inner, one.inner_end, opener, closer, split, spans, marks, frame, inside=True)


def divisions_of(text: Text, key: str = "") -> Iterator[Block]:
    """Yield every way to divide a text that holds passages only; `key`: by a frame with this mark only."""
    raw = text.raw
    if not raw.strip():
        return
    if key:
        marked = tuple(index for index, line in enumerate(text.lines) if key in line.keys)
        if marked and not raw[: text.lines[marked[0]].start].strip():
            counted = len(marked) == 1 or text.lines[marked[0]].number is not None
            frames = [frame for frame in frames_of(text.lines) if frame.key == key] or [
                Frame(text.lines[marked[0]].kind, key, marked[:1], counted=counted)
            ]
            yield framed(text, text.lines, frames[0], len(raw), None)
        return
    for block in (*_data(text), *siblings(text, 1), *_fenced(text)):
        if not raw[: block.start].strip(" `\n") and not raw[block.end :].strip(" `\n"):
            yield block
    found = [Block(0, len(raw), None, None, *division) for division in _splits(text, 0, len(raw), text.lines)]
    framed_first = sorted(found, key=lambda one: one.split != "counted")  # stable: the rest as it stands
    yield from (block for block in framed_first if block.frame is None or not raw[: block.spans[0][0]].strip())


def _line_of(text: Text, at: int) -> Line | None:
    index = bisect_right(text.lines, at, key=lambda line: line.start)
    return text.lines[index - 1] if index else None


def _line_before(text: Text, at: int) -> Line | None:
    index = text.line_at(at)
    while index and text.lines[index - 1].end > at:
        index -= 1
    return text.lines[index - 1] if index else None


def _data(text: Text) -> Iterator[Block]:
    """Yield the lists of JSON or printed objects that begin with a line."""
    raw, lines = text.raw, text.lines
    until = tried = 0
    for index, line in enumerate(lines):
        at = line.start
        if raw[at] not in "[{":
            at = next(
                (at + 1 + place for place in range(min(line.end - at - 1, LABEL)) if raw[at + 1 + place] in "[{"), -1
            )
        inside = raw[at + 1 : at + LABEL].lstrip()[:1]
        if at < until or tried >= MOST_DATA or inside not in ("{", '"', "'", "["):
            continue
        tried += 1
        end, value = _decoded(raw, at)
        if value is None:
            continue
        closer = text.line_from(end)
        until = end
        found = tuple(item.context for item in read(value))
        if found:
            before = index - 1 if index and raw.startswith("```", lines[index - 1].start) else index
            if before < index and closer is not None and raw.startswith("```", closer.start):
                closer = text.line_from(closer.end)
            opener = line if at > line.start else lines[before - 1] if before else None
            yield Block(at, end, opener, closer, "data", ((at, end),), (0,), data=found)


def _decoded(raw: str, at: int) -> tuple[int, object]:
    """Return the JSON value or printed object that begins at an offset, and where it ends; None for neither."""
    try:
        value, end = _JSON.raw_decode(raw, at)
    except (ValueError, RecursionError):
        end = len(raw)
        for _ in range(SEVERAL):
            end = raw.rfind("]" if raw[at] == "[" else "}", at, end) + 1
            if end <= at:
                break
            if (value := decoded(raw[at:end])) is not None:
                return end, value
            end -= 1
        return at, None
    values = [value]
    while len(values) < MOST_RECORDS and raw[at] == "{" and (following := _NEXT.match(raw, end)) is not None:
        try:
            value, end = _JSON.raw_decode(raw, following.end() - 1)
        except (ValueError, RecursionError):
            break
        values.append(value)  # JSON lines
    return end, values if len(values) > 1 else values[0]


# --- frames of lines --------------------------------------------------------------------------------------------------


def _framed(text: Text, frame: Frame) -> Iterator[Block]:
    lines, last = text.lines, frame.lines[-1]
    if len(frame.lines) == 1 and frame.counted and (frame.key.startswith("~") or (lines[last].number or 0) > 1):
        return
    inner = {key for line in lines[frame.lines[0] : last] for key in line.keys}
    if frame.counted:
        inner -= GENERIC
    for end, closer in _closers(text, last, inner):
        yield framed(text, lines, frame, end, closer)
    for part in _sections(lines, frame):
        for end, closer in _closers(text, part.lines[-1]):
            yield framed(text, lines, part, end, closer)
    if not frame.counted and len(frame.lines) >= FEW:  # the last mark may be of the prompt
        fewer = frame._replace(lines=frame.lines[:-1])
        yield framed(text, lines, fewer, lines[last - 1].end, lines[last])


def _sections(lines: Sequence[Line], frame: Frame) -> Iterator[Frame]:
    """Yield the parts of a frame between which a few headings stand: lists of their own."""
    cuts = [
        number
        for number, (here, then) in enumerate(pairwise(frame.lines), 1)
        if any(line.kind in _HEADS for line in lines[here + 1 : then])
    ]
    if not 0 < 2 * len(cuts) < len(frame.lines):
        return
    for low, high in pairwise((0, *cuts, len(frame.lines))):
        if high - low > 1:
            yield frame._replace(lines=frame.lines[low:high])


def _cited(text: Text) -> Iterator[Frame]:
    """Yield the only record whose key the prompt cites again."""
    keyed = []
    for index, line in enumerate(text.lines):
        masked = next((mask for mask in line.keys if "#" in mask and not mask.strip("[](){}<>*#:：")), None)
        if masked is not None and (key := key_of(text.raw[line.start : line.end])) is not None:
            keyed.append((index, masked, key))
    if len(keyed) == 1 and text.raw.find(keyed[0][2], text.lines[keyed[0][0]].end) >= 0:
        yield Frame("field", keyed[0][1], (keyed[0][0],), counted=False)


def _fenced(text: Text) -> Iterator[Block]:
    """Yield the block of two or more fences with little between them; what stands behind a fence's opening names it."""
    pairs: list[tuple[Line, Line]] = []
    opening: Line | None = None
    for line in text.lines:
        if (fence := _FENCE.match(text.raw, line.start, line.end)) is None:
            continue
        if opening is None:
            opening = line
        elif text.raw.startswith(fence_of(text, opening), line.start) and not fence["named"]:
            pairs.append((opening, line))
            opening = None
    if len(pairs) <= 1 or opening is not None:
        return
    if any(b.start - a.end > LINE for (_, a), (b, _) in pairwise(pairs)):
        return
    spans = tuple((opening.end, closing.start) for opening, closing in pairs)
    said = tuple(f'name="{text.raw[one.start : one.end].strip("`~ ")}"' for one, _ in pairs)
    start, end = pairs[0][0].start, pairs[-1][1].end
    opener, closer = _line_before(text, start), text.line_from(end)
    yield Block(start, end, opener, closer, "fence", spans, (0,) * len(spans), attributes=said)


def fence_of(text: Text, line: Line) -> str:
    """Return the backticks or tildes that a fence begins with: as many end it."""
    match = _FENCE.match(text.raw, line.start)
    return match["fence"] if match is not None else ""


def framed(text: Text, lines: Sequence[Line], frame: Frame, end: int, closer: Line | None) -> Block:
    """Return the block of a frame among lines, up to an offset."""
    starts = [lines[index].start for index in frame.lines]
    opener = lines[frame.lines[0] - 1] if frame.lines[0] else None
    kind = "counted" if frame.counted else frame.kind
    spans = tuple(zip(starts, [*starts[1:], end], strict=True))
    marks = tuple(mark_length(frame.key, text.raw[start : start + LINE]) for start in starts)
    return Block(starts[0], end, opener, closer, kind, spans, marks, frame)


def _closers(text: Text, at: int, inner: set[str] | None = None) -> Iterator[tuple[int, Line | None]]:
    """Yield where what begins at a line may end: before lines of another form, at blank lines, at the end."""
    lines, count = text.lines, 0
    for index in range(at + 1, len(lines)):
        line = lines[index]
        marked = line.kind in _CLOSES and (inner is None or inner.isdisjoint(line.keys))
        if marked or line.after_blank:
            yield lines[index - 1].end, line
            count += 1
            if count >= MOST_CLOSERS:
                break
    if count >= MOST_CLOSERS and len(lines) > at + 2:
        for index in range(len(lines) - 1, at + 1, -1):
            if lines[index].after_blank or lines[index].kind in _CLOSES:
                yield lines[index - 1].end, lines[index]
                count += 1
                if count >= MOST_CLOSERS + FEW:
                    break
    if len(lines) > at + 2 and not lines[-1].after_blank:  # a question that nothing parts from the passages
        yield lines[-2].end, lines[-1]
    yield len(text.raw), None


# --- blocks behind an opening line ------------------------------------------------------------------------------------


def _opened(text: Text, opens: Callable[[Line], float]) -> Iterator[Block]:
    for index, start, opener in _openers(text, opens):
        field = opener is not None and opener.kind == "field"
        for end, closer in _closers(text, index + 1 if field else max(index, 0)):
            if end - start < WORD:
                continue
            lines = text.lines[text.line_at(start) : text.line_at(end)]
            if field and opener is not None:
                lines.insert(0, opener._replace(start=start))
            ruled = opener is not None and opener.kind == "rule" and any(line.keys == opener.keys for line in lines)
            for split, spans, marks, frame in _splits(text, start, end, lines, frames=False):
                if split == "rule" and ruled:
                    continue  # the opening rule is one of those that divide: the first part stands before it
                yield Block(start, end, opener, closer, split, spans, marks, frame)


def _openers(text: Text, opens: Callable[[Line], float]) -> list[tuple[int, int, Line | None]]:
    """Return the index of each line that may open a block, where the block then begins, and the line, best first."""
    found: list[tuple[int, int, Line]] = []
    sentences = 0
    for index, line in enumerate(text.lines):
        if line.kind == "field":
            found.append((index - 1, behind_label(text.raw, line), line))
        elif line.kind in _OPENS and line.end < len(text.raw):
            found.append((index, line.end + 1, line))
        elif line.kind == "text" and sentences <= 1 and text.is_before_blank(index):
            sentences += 1  # it may announce what follows
            found.append((index, line.end + 1, line))
        if len(found) >= CROWD:
            break
    found.sort(key=lambda one: -opens(one[2]))
    return [(-1, 0, None), *found[:MOST_OPENERS]]


def _splits(
    text: Text, start: int, end: int, lines: Sequence[Line], *, frames: bool = True
) -> Iterator[tuple[str, tuple[Span, ...], tuple[int, ...], Frame | None]]:
    raw = text.raw
    if frames:
        for frame in frames_of(lines):
            if raw.count("\n\n", start, lines[frame.lines[0]].start) <= 1:
                block = framed(text, lines, frame, end, None)
                yield block.split, block.spans, block.marks, frame
    rules = [line for line in lines if line.kind == "rule" and raw[line.start] not in "`\"'"]
    if rules:
        kinds: dict[str, list[Line]] = defaultdict(list)
        for line in rules:
            kinds[line.keys[0]].append(line)
        best = max(kinds.values(), key=len)[:MOST_RECORDS]
        ends = [*(line.start for line in best), end]
        begins = [start, *(line.end for line in best)]
        spans = tuple((a, b) for a, b in zip(begins, ends, strict=True) if raw[a:b].strip())
        yield "rule", spans, (0,) * len(spans), None
    first = lines[0].start if lines else end
    gaps = text.gaps[bisect_right(text.gaps, first) : bisect_left(text.gaps, end)]
    if 0 < len(gaps) <= MOST_RECORDS:
        begins = [start, *gaps]
        spans = tuple((a, b) for a, b in zip(begins, [*begins[1:], end], strict=True) if raw[a:b].strip())
        if len(spans) > 1:
            yield "blank", spans, (0,) * len(spans), None
    if 1 < len(lines) <= MOST_RECORDS:
        begins = [start, *(line.start for line in lines[1:])]
        spans = tuple((a, b) for a, b in zip(begins, [*begins[1:], end], strict=True) if raw[a:b].strip())
        if len(spans) > 1 and all(b - a > LABEL for a, b in spans):
            yield "lines", spans, (0,) * len(spans), None
    yield "whole", ((start, end),), (0,), None

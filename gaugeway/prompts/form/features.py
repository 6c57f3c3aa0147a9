"""What speaks for a block holding the passages and for how it is divided, as numbers: the fitted model weighs them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from gaugeway.prompts.form.lines import Line, behind_label, key_of, lines_of
from gaugeway.prompts.form.text import Block, Element, Seen
from gaugeway.prompts.form.word_index import Kind
from gaugeway.prompts.sizes import FEW, LABEL, LINE, PAGE, PARAGRAPH, SEVERAL, WORD
from gaugeway.records import Context

_ASKS = re.compile(r"[?？؟;][\s\"'”’»)*_`\]]*\Z")
_QUOTED = re.compile(r"[\"“«「`](?P<text>[^\"”»」`\n]{4,600})[\"”»」`]")
_INLINE = re.compile(r"[:：]\**[ \t]{0,4}(?P<text>[^\n]{3,2000})\Z")
_BEHIND = re.compile(
    r"(?<=[.!?。！？:：])[ \t]*(?P<label>[^\W\d_][^\n:：.!?]{0,30})[:：]\**[ \t]*(?P<text>[^\n]{3,2000})\Z"
)
_WRAPS = (
    *(("```", "```"), ('"""', '"""'), ('"', '"'), ("'", "'"), ("“", "”")),
    *(("«", "»"), ("「", "」"), ("`", "`"), ("**", "**"), ("<<", ">>")),
)
MOST_ASKED = 6_000
_LABELS_BELOW = ("label", "title", "heading", "bracket", "bold", "rule", "open", "close")
_SIGNED = re.compile(r"[^\w\s\"'(\[-]{1,6}[ \t]+(?=\S)")
_ORDERED = re.compile(r"[?？؟]\s+(?=\S)")
"""A question with an order behind it: "How long? Answer briefly."."""
_HELD: tuple[Kind, ...] = ("context", "task", "answer", "question", "request")
_NAMED: tuple[Kind, ...] = ("question", "context", "answer", "instruction", "history", "task")
SAID: tuple[Kind, ...] = (
    *("context", "pasted", "weak", "question", "answer", "instruction"),
    *("history", "below", "task", "address", "equipment"),
)
_SENTENCE_END = re.compile(r"[.!?。！？…][\"'”’»)\]*_`]*\s*\Z")
_BY_SPLIT = (
    *("sentences", "shortest", "longest", "log records", "meta passages", "meta last", "addressed", "share"),
    *("context before", "context inside", "titled", "left over", "last has more", "last has much more"),
)
"""Features that mean something else for each way to divide a block."""
_LABELS = ("label", "title", "field", "heading", "bracket", "bold", "open", "close")


class Asked(NamedTuple):
    """A stretch of the text that may be the question; `how` names where it was found, for users."""

    text: str
    how: str
    values: Mapping[str, float]


class _Beside(NamedTuple):
    """One side of a block: the lines there, where they end, and how the side is called."""

    seen: Seen
    block: Block
    name: str
    stop: int


def asked_of(seen: Seen, block: Block) -> Iterator[Asked]:
    """Yield what may be the question outside of a block."""
    lines = seen.text.lines
    before = [line for line in lines if line.end <= block.start]
    behind = [line for line in lines if line.start >= block.end]
    for part, name, stop in ((behind, "behind", len(seen.text.raw)), (before, "before", block.start)):
        chosen = part if len(part) <= 2 * SEVERAL else part[:SEVERAL] + part[-SEVERAL:]
        side = _Beside(seen, block, name, stop)
        for index, line in enumerate(chosen):
            yield from _at(side, line, chosen[index + 1 :])
        beside = (
            element
            for element in seen.text.elements
            if _is_beside(element, block, name) and element.inner_end - element.inner < MOST_ASKED
        )
        for element in islice(beside, SEVERAL):
            yield _made(side, element.inner, element.inner_end, "element", _line_at(seen, element.start))


def _is_beside(element: Element, block: Block, name: str) -> bool:
    return element.start >= block.end if name == "behind" else element.end <= block.start


def _line_at(seen: Seen, at: int) -> Line:
    """Return what stands at an offset as if a line began there."""
    return lines_of(seen.text.raw, at, at + LINE)[0]


def _at(side: _Beside, line: Line, following: list[Line]) -> Iterator[Asked]:
    """Yield what may be the question at a line: under it as a label, in it, or all of it."""
    raw, end = side.seen.text.raw, min(line.end, side.stop)
    if line.kind in ("label", "title", "heading", "bracket", "bold"):
        yield from _under(side, line, following)
    elif line.kind == "open":
        close = raw.find("</", line.start, side.stop)
        inner = raw.find(">", line.start, end) + 1
        if inner and close > inner:
            yield _made(side, inner, close, "tag", line)
    elif line.kind == "field":
        at = behind_label(raw, line)
        yield from _with_its_question(side, at, end, "field", line)
        if (last := _paragraph_end(following, end)) > end:
            yield from _with_its_question(side, at, last, "field on", line)
        if (section := _section_end(following, end)) > last:
            yield _made(side, at, min(section, side.stop), "field section", line)
    if line.kind in ("text", "title", "item", "field"):
        yield from _in_line(side, line, following, end)


def _in_line(side: _Beside, line: Line, following: list[Line], end: int) -> Iterator[Asked]:
    raw = side.seen.text.raw
    if line.after_blank:
        yield from _with_its_question(side, line.start, _paragraph_end(following, end), "paragraph", None)
    else:
        yield from _with_its_question(side, line.start, end, "line", None)
    if (inline := _BEHIND.search(raw, line.start, end)) is not None:
        yield _made(side, inline.start("text"), end, "inline", line, label_at=inline.start("label"))
    elif line.kind == "text" and (inline := _INLINE.search(raw, line.start, end)) is not None:
        yield _made(side, inline.start("text"), end, "inline", line)
    elif (signed := _SIGNED.match(raw, line.start, end)) is not None:
        yield from _with_its_question(side, signed.end(), end, "signed", line)
    for quoted in islice(_QUOTED.finditer(raw, line.start, end), 2):
        yield _made(side, quoted.start("text"), quoted.end("text"), "quoted", line)


def _under(side: _Beside, line: Line, following: list[Line]) -> Iterator[Asked]:
    """Yield what stands under a label: up to the next line of a label's form, and its first paragraph."""
    last = first = None
    for index, one in enumerate(following):
        if one.kind in _LABELS_BELOW or (one.kind == "field" and (one.after_blank or index > 0)):
            break
        if one.after_blank and index and first is None:
            first = last
        last = one.end
    if last is None:
        return
    start = following[0].start
    yield from _with_its_question(side, start, min(last, side.stop), "label", line)
    if first is not None and first != last:
        yield from _with_its_question(side, start, min(first, side.stop), "label, first paragraph", line)


def _paragraph_end(following: list[Line], end: int) -> int:
    for line in following:
        if line.after_blank or line.kind not in ("text", "title", "item", "field"):
            break
        end = line.end
    return end


def _section_end(following: list[Line], end: int) -> int:
    """Return where several paragraphs end: before the next label."""
    for line in following:
        if line.kind in _LABELS_BELOW or (line.kind == "field" and line.after_blank):
            break
        end = line.end
    return end


def _with_its_question(side: _Beside, start: int, end: int, how: str, label: Line | None) -> Iterator[Asked]:
    """Yield a stretch, and what it asks first where more follows: "How long? Answer briefly."."""
    yield _made(side, start, end, how, label)
    asked = _ORDERED.search(side.seen.text.raw, start, min(end, start + MOST_ASKED))
    if asked is not None and asked.end() < end:
        one = _made(side, start, asked.start() + 1, how, label)
        words = side.seen.words
        rest = {"q first question": 1.0, "q ordered": float(words.addresses(asked.end(), end))}
        rest["q ordered to answer"] = float(words.has("answer", asked.end(), end))
        yield one._replace(values={**one.values, **rest})


def _made(side: _Beside, start: int, end: int, how: str, label: Line | None, *, label_at: int = -1) -> Asked:
    raw, words, block = side.seen.text.raw, side.seen.words, side.block
    text, wrapped = _unwrapped(raw[start : min(end, start + MOST_ASKED)].strip())
    values = {f"q {side.name} {how}": 1.0, "q wrapped": float(wrapped)}
    values["q asks"] = float(_ASKS.search(text[-WORD:]) is not None)
    values["q length"] = math.log(1 + len(text))
    values["q long"] = float(len(text) > PARAGRAPH)
    values["q lines"] = math.log(1 + text.count("\n"))
    values["q meta"] = float(words.is_meta(start, end))
    values["q addresses"] = float(words.addresses(start, end))
    values["q empty"] = float(len(text) <= 1 or not any(map(str.isalnum, text)))
    values["q ends with colon"] = float(text[-1:] in ":：")
    values["q last"] = float(not raw[end:].strip())
    values["q beside block"] = float(not raw[block.end : start].strip() or not raw[end : block.start].strip())
    for kind in _HELD:
        values[f"q holds {kind}"] = float(words.has(kind, start, end))
    if label is not None:
        _labelled(values, side, label, label.start if label_at < 0 else label_at, start)
    return Asked(text, f"{side.name} {how}", values)


def _labelled(values: dict[str, float], side: _Beside, label: Line, at: int, start: int) -> None:
    for kind in _NAMED:
        if side.seen.words.has(kind, at, min(start, at + LINE)):
            values[f"q labelled {kind}"] = 1.0
    if (opener := side.block.opener) is not None:
        raw = side.seen.text.raw
        values["q same form"] = float(label.kind == opener.kind)
        values["q same mark"] = float(raw[label.start] == raw[opener.start] and raw[label.start] in "#*[=<【-")


def _unwrapped(text: str) -> tuple[str, bool]:
    for opening, closing in _WRAPS:
        if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            inner = text[len(opening) : -len(closing)].strip()
            if closing not in inner:
                return inner, True
    return text, False


def of_line(name: str, line: Line | None, seen: Seen) -> dict[str, float]:
    """Return the features of the line before a block (`name` "opener") or behind it ("closer")."""
    if line is None:
        return {f"{name} none": 1.0}
    values = {f"{name} {line.kind}": 1.0, f"{name} blank": float(line.after_blank)}
    end = min(line.end, line.start + 2 * LINE)
    if line.kind == "field":
        end = min(end, line.start + len(line.keys[0]) + 2)
    said = [kind for kind in SAID if seen.words.has(kind, line.start, end)]
    for kind in said:
        values[f"{name} says {kind}"] = 1.0
        if line.kind in _LABELS:
            values[f"{name} named {kind}"] = 1.0
    values[f"{name} {line.kind} says nothing"] = float(not said)
    values[f"{name} long"] = float(end - line.start > 2 * LABEL)
    return values


def of_place(seen: Seen, block: Block) -> dict[str, float]:
    """Return the features that need no passages: how the block is divided, its size, what its lines have in common."""
    count = len(block.data) or len(block.spans)
    values = {f"split {block.split}": 1.0, "inside": float(block.inside), "own": float(seen.own)}
    if count > 1:
        values[f"split {block.split} many"] = 1.0
    values["fenced off"] = float(seen.text.raw.count("```", 0, block.start) % 2 and block.split != "fence")
    values["system"] = float(seen.role in ("system", "developer"))
    values["records"] = math.log(count)
    values["block"] = (block.end - block.start) / max(1, len(seen.text.raw))
    values["span"] = math.log(1 + (block.end - block.start) / count)
    values |= {f"split {block.split} {name}": values[name] for name in ("records", "block", "span")}
    if block.frame is not None and block.frame.counted:
        values["from one"] = float(_number(block, seen) in (0, 1))
        values["sure count"] = float(not block.frame.key.startswith("~"))
    if block.opener is not None and block.opener.keys:
        again = _earlier_of_its_form(seen, block.opener)
        values["opener again"] = values[f"opener again {block.opener.kind}"] = float(again)
        values[f"opener again {block.split}"] = float(again)
    if block.opener is not None and block.closer is not None:
        values["same form"] = float(block.opener.kind == block.closer.kind)
        values["same shape"] = float(not set(block.opener.keys).isdisjoint(block.closer.keys))
    if block.frame is not None:
        if block.closer is not None:
            values["closer is mark"] = float(block.frame.key in block.closer.keys)
        _cited(values, seen, block)
    if len(block.spans) > 1:
        raw = seen.text.raw
        inner = [raw.count("\n\n", start, end - 2) for start, end in block.spans[:SEVERAL]]
        start, end = block.spans[-1]
        more = raw.count("\n\n", start, end) - max(inner)
        values["tail longer"] = float(more > 0)
        values["tail shorter"] = float(more < 0 and min(inner) > 0)
    return values


def _earlier_of_its_form(seen: Seen, line: Line) -> bool:
    """Whether a line of the same form stands before: then this one may part two records."""
    return seen.text.first_of.get(line.keys[0], line.start) < line.start


def nested(block: Block, others: Iterable[tuple[Block, object]]) -> dict[str, float]:
    """Whether a block begins inside a record of another one, by how that one is divided."""
    values: dict[str, float] = {}
    for other, _ in others:
        if len(other.spans) <= 1 or other.start > block.start or other.split == block.split:
            continue
        if any(start + FEW < block.start < end for start, end in other.spans):
            values["nested"] = values[f"nested {other.split}"] = 1.0
    return values


def _cited(values: dict[str, float], seen: Seen, block: Block) -> None:
    """How many records begin with a key, how many keys the prompt says again, and where."""
    raw = seen.text.raw
    keys = [key_of(raw[start : start + 2 * LINE]) for start, _ in block.spans[:SEVERAL]]
    if len(known := {key for key in keys if key is not None}) < len(keys):
        return
    values["keyed"] = 1.0
    values["keys cited"] = sum(raw.find(key, block.end) >= 0 for key in known) / len(known)
    values["keys cited inside"] = sum(raw.count(key, block.start, block.end) > 1 for key in known) / len(known)
    if block.closer is not None:
        said = raw[block.closer.start : block.closer.end]
        values["closer cites"] = sum(key in said for key in known) / len(known)


def of_block(seen: Seen, block: Block, found: Sequence[Context]) -> dict[str, float]:
    """Return the features of a block with its passages, beyond those of its place and its lines."""
    raw, words = seen.text.raw, seen.words
    count = len(found)
    lengths = [len(passage.text) for passage in found]
    values = {"shortest": math.log(1 + min(lengths)), "longest": math.log(1 + max(lengths))}
    values["length"] = math.log(1 + sum(lengths) / count)
    total = max(1, len(raw.strip()))
    values["share"] = sum(lengths) / total
    values["sentences"] = sum(_SENTENCE_END.search(passage.text[-WORD:]) is not None for passage in found) / count
    meta = [seen.is_meta(start, min(end, start + PAGE)) for start, end in block.spans]
    values["meta passages"] = sum(meta) / len(meta)
    values["meta last"] = float(meta[-1] and not any(meta[:-1])) if len(meta) > 1 else 0.0
    addressed = [words.addresses(start, end) for start, end in block.spans]
    values["addressed"] = sum(addressed) / len(addressed)
    _last_record(values, block, seen)
    values["meta before"] = float(seen.is_meta(max(0, block.start - PARAGRAPH), block.start)) if block.start else 0.0
    values["meta behind"] = float(seen.is_meta(block.end, block.end + PARAGRAPH))
    values["context before"] = float(words.any(("context", "pasted"), max(0, block.start - PARAGRAPH), block.start))
    values["context anywhere"] = float(
        words.any(("context", "pasted"), 0, block.start) or seen.beside.any(("context", "pasted"), 0, PAGE)
    )
    values["context inside"] = float(words.any(("context", "pasted"), block.start, block.end))
    values["titled"] = sum(passage.source is not None for passage in found) / count
    values["left over"] = _left_over(block, seen) / total
    values["log records"] = math.log(count)
    values |= {f"{block.split}: {name}": values[name] for name in _BY_SPLIT if name in values}
    return values


def of_question(asked: Asked | None, points: float, *, own: bool) -> dict[str, float]:
    """Return the features of the question that was found beside the passages, with its own points.

    Whether the passages answer it is no feature: a retrieval that fails must be read as well as one that succeeds.
    """
    if asked is None:
        return {"no question": 1.0, "no question own": float(own)}
    values = {"asked points": max(-10.0, min(points, 20.0)) if own else 0.0, "asked own": float(own)}
    values["asked question"] = asked.values.get("q asks", 0.0)
    values["asked labelled"] = asked.values.get("q labelled question", 0.0)
    values["asked meta"] = asked.values.get("q meta", 0.0)
    values["asked length"] = math.log(1 + len(asked.text))
    return values


def _number(block: Block, seen: Seen) -> int | None:
    line = seen.text.line_from(block.spans[0][0])
    return None if line is None else line.number


def _last_record(values: dict[str, float], block: Block, seen: Seen) -> None:
    """Whether the last record has what no other has: then the block may have ended before."""
    if len(block.spans) <= 1:
        start, end = block.spans[-1]
        values["alone paragraphs"] = math.log(1 + seen.text.raw.count("\n\n", start, end))
        return
    raw = seen.text.raw
    paragraphs = [raw[start:end].strip().count("\n\n") for start, end in block.spans]
    more = paragraphs[-1] - max(paragraphs[:-1])
    values["last has more"] = float(more > 0)
    values["last has much more"] = math.log(1 + max(more, 0))
    values["last has less"] = float(paragraphs[-1] < min(paragraphs[:-1]))
    kinds: list[set[str]] = []
    at = 0
    lines = seen.text.lines
    for start, end in block.spans:
        own: set[str] = set()
        while at < len(lines) and lines[at].start < end:
            if lines[at].start > start:
                own |= {lines[at].kind}
            at += 1
        kinds.append(own)
    others = set().union(*kinds[:-1])
    for kind in ("label", "heading", "bracket", "bold", "rule", "open", "close", "field"):
        if kind in kinds[-1] and kind not in others:
            values[f"last has {kind}"] = 1.0
    start, end = block.spans[-1]
    first = raw.find("\n", start, end)
    if first > 0:
        for kind in ("question", "answer", "instruction", "address"):
            if seen.words.has(kind, first, end) and not seen.words.has(kind, block.start, start):  # type: ignore[arg-type]
                values[f"last says {kind}"] = 1.0


def _left_over(block: Block, seen: Seen) -> int:
    """Characters of text outside the block that do not read like instructions or labels: in paragraphs."""
    raw, count = seen.text.raw, 0
    for start, end in ((0, block.start), (block.end, len(raw))):
        at = start
        while at < end:
            stop = raw.find("\n\n", at, end)
            stop = end if stop < 0 else stop
            if stop - at > LINE // 2 and not seen.is_meta(at, stop) and not seen.words.addresses(at, stop):
                count += stop - at
            at = stop + 2
    return count

"""Finds the user's question beside a block of passages: every stretch that may be it, and what speaks for each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from gateway.contexts.form.lines import Line
from gateway.contexts.form.text import Block, Seen
from gateway.contexts.form.word_index import Kind

_ASKS = re.compile(r"[?？؟;][\s\"'”’»)*_`\]]*\Z")
_QUOTED = re.compile(r"[\"“«「`](?P<text>[^\"”»」`\n]{4,600})[\"”»」`]")
_INLINE = re.compile(r"[:：]\**[ \t]{0,4}(?P<text>[^\n]{3,2000})\Z")
_BEHIND = re.compile(
    r"(?<=[.!?。！？:：])[ \t]*(?P<label>[^\W\d_][^\n:：.!?]{0,30})[:：]\**[ \t]*(?P<text>[^\n]{3,2000})\Z"
)
_WRAPS = (
    ("```", "```"),
    ('"""', '"""'),
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
    ("«", "»"),
    ("「", "」"),
    ("`", "`"),
    ("**", "**"),
    ("<<", ">>"),
)
_LEAST = 2
MOST = 6_000
_NEAR = 12
"""Lines read at the beginning and at the end of the text before and behind the block."""
_QUOTES = 2
_ENDS = ("label", "heading", "bracket", "bold", "rule", "open", "close")
_HELD: tuple[Kind, ...] = ("context", "task", "answer", "question", "request")
_NAMED: tuple[Kind, ...] = ("question", "context", "answer", "instruction", "history", "task")
_WORD = re.compile(r"\w{4,}|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


class Asked(NamedTuple):
    """A stretch of the text that may be the question; `how` names where it was found, for users."""

    text: str
    how: str
    values: Mapping[str, float]


class _Beside(NamedTuple):
    """One side of a block: the lines there, where they end, and how the side is called."""

    seen: Seen
    block: Block
    said: str
    name: str
    stop: int


def asked_of(seen: Seen, block: Block, said: str) -> Iterator[Asked]:
    """Yield what may be the question outside of a block whose passages are `said`."""
    lines = seen.text.lines
    before = [line for line in lines if line.end <= block.start]
    behind = [line for line in lines if line.start >= block.end]
    for part, name, stop in ((behind, "behind", len(seen.text.raw)), (before, "before", block.start)):
        chosen = part if len(part) <= 2 * _NEAR else part[:_NEAR] + part[-_NEAR:]
        side = _Beside(seen, block, said, name, stop)
        for index, line in enumerate(chosen):
            yield from _at(side, line, chosen[index + 1 :])


def _at(side: _Beside, line: Line, following: list[Line]) -> Iterator[Asked]:
    """Yield what may be the question at a line: under it as a label, in it, or all of it."""
    raw, end = side.seen.text.raw, min(line.end, side.stop)
    if line.kind in ("label", "heading", "bracket", "bold"):
        yield from _under(side, line, following)
    elif line.kind == "open":
        close = raw.find("</", line.start, side.stop)
        inner = raw.find(">", line.start, end) + 1
        if inner and close > inner:
            yield _made(side, inner, close, "tag", line)
    elif line.kind == "field":
        at = next((place + 1 for place in range(line.start, end) if raw[place] in ":："), end)
        yield _made(side, at, end, "field", line)
        if (last := _paragraph_end(following, end)) > end:
            yield _made(side, at, last, "field on", line)
    if line.kind in ("text", "item", "field"):
        yield from _in_line(side, line, following, end)


def _in_line(side: _Beside, line: Line, following: list[Line], end: int) -> Iterator[Asked]:
    raw = side.seen.text.raw
    if line.after_blank:
        yield _made(side, line.start, _paragraph_end(following, end), "paragraph", None)
    else:
        yield _made(side, line.start, end, "line", None)
    if (inline := _BEHIND.search(raw, line.start, end)) is not None:
        yield _made(side, inline.start("text"), end, "inline", line, label_at=inline.start("label"))
    elif line.kind == "text" and (inline := _INLINE.search(raw, line.start, end)) is not None:
        yield _made(side, inline.start("text"), end, "inline", line)
    for quoted in islice(_QUOTED.finditer(raw, line.start, end), _QUOTES):
        yield _made(side, quoted.start("text"), quoted.end("text"), "quoted", line)


def _under(side: _Beside, line: Line, following: list[Line]) -> Iterator[Asked]:
    """Yield what stands under a label: up to the next line of a label's form, and its first paragraph."""
    last = first = None
    for index, one in enumerate(following):
        if one.kind in _ENDS or (one.kind == "field" and (one.after_blank or index > 0)):
            break
        if one.after_blank and index and first is None:
            first = last
        last = one.end
    if last is None:
        return
    start = following[0].start
    yield _made(side, start, min(last, side.stop), "label", line)
    if first is not None and first != last:
        yield _made(side, start, min(first, side.stop), "label, first paragraph", line)


def _paragraph_end(following: list[Line], end: int) -> int:
    for one in following:
        if one.after_blank or one.kind not in ("text", "item", "field"):
            break
        end = one.end
    return end


def _made(side: _Beside, start: int, end: int, how: str, label: Line | None, *, label_at: int = -1) -> Asked:
    raw, words, block = side.seen.text.raw, side.seen.words, side.block
    text, wrapped = _unwrapped(raw[start : min(end, start + MOST)].strip())
    values = {f"q {side.name} {how}": 1.0, "q wrapped": float(wrapped)}
    values["q asks"] = float(_ASKS.search(text[-20:]) is not None)
    values["q length"] = math.log(1 + len(text))
    values["q long"] = float(len(text) > 400)  # noqa: PLR2004 - longer than most questions
    values["q lines"] = math.log(1 + text.count("\n"))
    values["q meta"] = float(words.is_meta(start, end))
    values["q addresses"] = float(words.addresses(start, end))
    values["q empty"] = float(len(text) < _LEAST or not any(map(str.isalnum, text)))
    values["q ends with colon"] = float(text[-1:] in ":：")
    values["q last"] = float(not raw[end:].strip())
    values["q beside block"] = float(not raw[block.end : start].strip() or not raw[end : block.start].strip())
    for kind in _HELD:
        values[f"q holds {kind}"] = float(words.has(kind, start, end))
    if label is not None:
        _labelled(values, side, label, label.start if label_at < 0 else label_at, start)
    terms = {one.lower()[:6] for one in _WORD.findall(text[:600])}
    values["q overlap"] = sum(term in side.said for term in terms) / max(1, len(terms))
    return Asked(text, f"{side.name} {how}", values)


def _labelled(values: dict[str, float], side: _Beside, label: Line, at: int, start: int) -> None:
    for kind in _NAMED:
        if side.seen.words.has(kind, at, min(start, at + 120)):
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

"""Finds the user's question in the text around the passages: by a tag, a label, or as the text left over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from gateway.contexts.structure.labels import Mark, find_marks, kind_of
from gateway.contexts.structure.passage_metadata import unquoted
from gateway.contexts.structure.transcript import find_transcript
from gateway.contexts.structure.word_index import IndexedText

_OPENING = re.compile(r"<(?P<tag>[^\W\d][\w-]{1,40})(?:\s[^<>\n]{0,80})?>")
_USERS = ("user", "human", "customer")
_INLINE = re.compile(r"[:：]\**[ \t]{0,4}(?P<text>[^\n:：]{4,2000})\Z")
_QUOTED = re.compile(r"[\"“«「`'](?P<text>[^\"”»」`\n]{4,600})[\"”»」`']")
_ASKS = re.compile(r"[?？؟;][\s\"'”’»)*_]*\Z")
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_FENCES = re.compile(
    r"\A(?:[-=*_#~]{3,}|\"{3}|'{3}|`{3}\w{0,20})[ \t]*\n|\n[ \t]*(?:[-=*_#~]{3,}|\"{3}|'{3}|`{3})[ \t]*\Z"
)
_KEY = re.compile(r"[ \t]*[^\W\d_][^\n:：?]{1,30}[:：]")
_SHORT_RULE = re.compile(r"[ \t]*[-=*_~#]{2,}[ \t]*(?:\n|\Z)")
_SWITCH = re.compile(r"/no_?think\Z")
_LAST_LABEL = re.compile(r"(?<=[?？])\s{1,40}[^\W\d_]{2,20}(?: [^\W\d_]{2,20})?[:：]\Z")
_LABEL_WITHIN = 90
_PREFIX = re.compile(r"\A\W{0,4}[^\W\d_]{2,16}(?: [^\W\d_]{2,16})?[:：]\**[ \t]")
"""One or two words and a colon in front of a question: a label that `words` does not list."""

_MOST_TEXT = 12_000
LAST_TURN = "last user turn"
_SHORT = 600
_HEADING = 60
_MOST_TAGS = 100


class FoundQuestion(NamedTuple):
    """A question, the confidence in it (0 to 1), and what identified it."""

    text: str
    sure: float
    how: str


def is_question(text: str) -> bool:
    """Say whether a text ends with a question mark of any script."""
    return _ASKS.search(text[-20:]) is not None


def find_question(text: IndexedText, segments: Sequence[tuple[int, int]]) -> FoundQuestion | None:
    """Find the question in the segments around the passages, in the given order; the end of each segment is read."""
    texts = [text.part(max(start, end - _MOST_TEXT), end) for start, end in segments if text.text[start:end].strip()]
    for one in texts:
        if (tagged := _tagged(one)) is not None:
            return tagged
    if texts and (spoken := find_transcript(texts[0].text)) is not None:
        return FoundQuestion(spoken.question, 1.0, f"turn of {spoken.asker!r}")
    outlines = []
    for one in texts:
        outlines.append(find_marks(one))
        if (labelled := _labelled(one, outlines[-1])) is not None:
            return labelled
    for one in texts:
        if (inline := _inline(one)) is not None:
            return inline
    for one, found in zip(texts, outlines, strict=True):
        if (ordered := _ordered(one, found)) is not None:
            return ordered
    return _left_over(texts)


def question_of_turn(said: str) -> FoundQuestion | None:
    """Return the question of a user turn without passages: usually the whole turn."""
    if not said.strip():
        return None
    text = IndexedText(said[-_MOST_TEXT:])
    if (tagged := _tagged(text)) is not None:
        return tagged
    found = find_marks(text)
    if any(mark.kind == "question" for mark in found) and (labelled := _labelled(text, found)) is not None:
        return labelled
    return FoundQuestion(said.strip(), 1.0, LAST_TURN)


def trimmed(text: str) -> str:
    """Strip fences, quotes and a full stop after the question mark."""
    said = _SWITCH.sub("", unquoted(_FENCES.sub("", text.strip()).strip())).rstrip()
    if said.endswith((":", "：")) and (label := _LAST_LABEL.search(said[-_LABEL_WITHIN:])) is not None:
        said = said[: len(said) - len(label[0])].rstrip()
    if said.endswith(".") and said[:-1].rstrip(" \t").endswith(("?", "？")):
        said = said[:-1].rstrip(" \t")
    return said.removesuffix("**" if said.endswith("**") else "__").strip()


def _tagged(text: IndexedText) -> FoundQuestion | None:
    best = None
    raw = text.text
    for opening in islice(_OPENING.finditer(raw), _MOST_TAGS):
        kind = kind_of(opening["tag"].replace("_", " "))
        if (kind is None or kind[0] != "question") and opening["tag"].lower() not in _USERS:
            continue
        closing = raw.find(f"</{opening['tag']}>", opening.end())
        if closing >= 0 and raw[opening.end() : closing].strip():
            best = FoundQuestion(trimmed(raw[opening.end() : closing]), 1.0, f"<{opening['tag']}>")
    return best


def _labelled(text: IndexedText, found: Sequence[Mark]) -> FoundQuestion | None:
    raw = text.text
    questions = [index for index, mark in enumerate(found) if mark.kind == "question"]
    for index in reversed(questions):
        mark = found[index]
        end = next((other.start for other in found[index + 1 :] if _ends_question(other, raw, mark)), len(raw))
        body = _without_instructions(text, mark.body, end, inline=mark.inline)
        said = trimmed(body)
        if said and any(one.isalnum() for one in said) and "{" not in said[:2]:
            return FoundQuestion(said, 1.0, f"label {mark.phrase!r}")
    return None


def _ordered(text: IndexedText, found: Sequence[Mark]) -> FoundQuestion | None:
    """Find a question under an instruction's label, the format of fine-tuning data sets."""
    for mark in reversed(found):
        if mark.kind == "instruction":
            body = text.text[mark.body :].strip()
            return (
                FoundQuestion(trimmed(body), 0.8, f"label {mark.phrase!r}")
                if is_question(body) and "\n\n" not in body and len(body) <= _SHORT
                else None
            )
    return None


def _ends_question(mark: Mark, raw: str, question: Mark) -> bool:
    if mark.kind == "rule":
        # A fence that opens the question does not end it.
        return bool(raw[question.body : mark.start].strip())
    return mark.kind in ("answer", "instruction", "context", "history", "question")


def _without_instructions(text: IndexedText, start: int, end: int, *, inline: bool) -> str:
    """Return the paragraphs before the first one that instructs the model; the first always belongs to the question."""
    raw = text.text
    stop = end
    position = start
    while position < end and raw[position] in " \t\n":
        position += 1
    for gap in _PARAGRAPH.finditer(raw, position, end):
        # A question that ends with a question mark is complete: what follows is addressed to the model.
        if is_question(raw[position : gap.start()]) or text.is_meta(gap.end(), end) or text.addresses(gap.end(), end):
            stop = gap.start()
            break
    if inline:
        line = raw.find("\n", position, stop)
        while line >= 0:
            if (
                text.addresses(line + 1, stop)
                or text.is_meta(line + 1, stop)
                or (
                    is_question(raw[position:line])
                    and (_KEY.match(raw, line + 1, stop) or _SHORT_RULE.match(raw, line + 1, stop))
                )
            ):
                stop = line
                break
            line = raw.find("\n", line + 1, stop)
    return raw[position:stop]


def _inline(text: IndexedText) -> FoundQuestion | None:
    """Find a question that a sentence introduces (`Now answer this question: ...`) or quotes."""
    raw = text.text
    end = len(raw.rstrip())
    for _ in range(6):
        start = raw.rfind("\n", 0, end) + 1
        line = raw[start:end]
        if line.strip() and len(line) <= 4 * _SHORT and _leads_over(text, start, end):
            found = _INLINE.search(line)
            if found is not None and _leads_over(text, start, start + found.start()):
                said = trimmed(found["text"])
                if is_question(said):
                    return FoundQuestion(said, 0.9, "sentence")
            quoted = [one["text"] for one in _QUOTED.finditer(line) if is_question(one["text"])]
            if quoted:
                return FoundQuestion(quoted[-1].strip(), 0.9, "quoted")
        if start == 0:
            break
        end = start - 1
    return None


def _leads_over(text: IndexedText, start: int, end: int) -> bool:
    return text.any(("question", "answer"), start, end) or (
        text.any(("context", "pasted", "weak"), start, end) and text.any(("points", "below"), start, end)
    )


def _left_over(texts: Sequence[IndexedText]) -> FoundQuestion | None:
    """Find the question among the paragraphs that are no instructions: one with a question mark, or the only one."""
    plain: list[str] = []
    for text in texts:
        remaining: list[tuple[int, int]] = []
        for start, end in _paragraphs(text.text):
            if not text.is_meta(start, end) and not _is_mark(text, start, end):
                remaining.append((start, end))
        asking = [text.text[start:end] for start, end in remaining if is_question(text.text[start:end])]
        if asking:
            return FoundQuestion(trimmed(_PREFIX.sub("", asking[-1])), 0.8, "remaining text")
        plain += [
            text.text[start:end]
            for start, end in remaining
            if not text.addresses(start, end) and not text.has("task", start, end)
        ]
    if len(plain) == 1 and len(plain[0]) <= _SHORT:
        return FoundQuestion(trimmed(plain[0]), 0.4, "remaining text")
    return None


def _paragraphs(raw: str) -> list[tuple[int, int]]:
    spans, position = [], 0
    for gap in _PARAGRAPH.finditer(raw):
        spans.append((position, gap.start()))
        position = gap.end()
    spans.append((position, len(raw)))
    return [(start, end) for start, end in spans if raw[start:end].strip()]


def _is_mark(text: IndexedText, start: int, end: int) -> bool:
    """Whether a paragraph is only a heading, a rule, or a sentence that introduces something."""
    said = text.text[start:end].strip()
    if said.endswith((":", "：")) or not any(one.isalnum() for one in said):
        return True
    short = "\n" not in said and len(said) < _HEADING and not is_question(said)
    return short and text.any(("context", "pasted", "weak"), start, end)

"""Finds the blocks of a text that may hold passages: after a label, between tags, after an introducing sentence."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gateway.contexts.structure.labels import LOOSE, SPEAKERS, Mark, find_marks, is_answered, kind_of, label_kind
from gateway.contexts.structure.markdown import fences_in, first_header, is_fenced, is_in_code
from gateway.contexts.structure.transcript import find_transcript
from gateway.contexts.structure.word_index import HEAD, IndexedText
from gateway.contexts.structure.words import last_words, vocabulary

_MOST_TAGS = 60
_TRIMS = 16
_TAIL = 2_000
_TAG = re.compile(r"<(?P<tag>[A-Za-z][\w.-]{0,40})(?P<attributes>(?:\s[^<>\n]{0,600})?)>")
_HTML = frozenset(
    vocabulary(
        """html head body div span p a ul ol li table tr td th thead tbody script style link meta img br hr form input
        button label nav footer main h1 h2 h3 h4 h5 h6 video audio svg path code pre em strong b i u select option
        iframe canvas figure"""
    )
)
_NO_PASSAGES = frozenset(
    vocabulary(
        """example examples instructions instruction rules rule guidelines task role format output output_format
        thinking answer response user_info env tool tools function functions parameters system policy persona tone
        style constraints goal environment_details user_rules communication"""
    )
)
_COLON = re.compile(r"[:：]")
_INLINE_LABEL = re.compile(
    r"(?:(?<=[.!?。！？\n] )|(?<=[.!?。！？\n])|(?<=\A))(?P<phrase>[^\W\d_][^\n:：.!?\"'\[{]{2,30})\Z"
)
_INLINE_BODY = re.compile(r"[:：][ \t]*(?=[\[{\"\w])")
_LABEL_WITHIN = 32
_INLINE_LABELS = 12
_QUESTION_LABEL = re.compile(r"(?<=[.!?。！？;] )(?P<phrase>[^\W\d_][^\n:：.!?]{2,24})[:：]")
_PARAGRAPH_START = re.compile(r"\n[ \t]*\n[^\S\n]*(?=\S)")
_RULE_LINE = re.compile(
    r"[ \t]{0,8}(?:([-=*_#~+·•─═—])\1{2,200}|\"{3}|'{3}|`{3}\w{0,20}|(?:[-*_=] ){2,60}[-*_=])[ \t]*"
)
_CLOSING = re.compile(r"[ \t]*</(?P<tag>[A-Za-z][\w.-]{0,40})>[ \t]*")
_JOINTS = re.compile(r"[_.-]|(?<=[a-z])(?=[A-Z])")
"""Separators between the words of a tag name."""
_WEAK_SURE = 0.5
_PAIR = 2
_RULED = 0.55
_CLEARLY = 0.7
_SOME_TEXT = 40
_ANNOUNCED = 0.85
_ANSWER_TAIL = 60
_FENCE_SIGNS = ("`", "~", '"', "'")
_SURE = 0.9
_ORDER_LENGTH = 120
HEADERS = "header lines"


class Block(NamedTuple):
    """A candidate block of passages, offsets in characters. `outer_*` include its header and its closing line.

    `header` describes what introduced it, for users; `sure` in [0, 1] is how clearly it did. `several`: the text has
    other such blocks, so this one may not hold all passages.
    """

    start: int
    end: int
    outer_start: int
    outer_end: int
    header: str
    sure: float
    several: bool = False


def candidates(text: IndexedText) -> list[Block]:
    """Return the candidate blocks of a text, the one with the clearest header first."""
    found = find_marks(text)
    stop = _answer_label(text, found)
    blocks = [*_tagged(text, stop), *_labelled(text, found, stop)]
    if not any(block.sure >= _SURE for block in blocks):
        blocks += _announced(text, found, stop)
    if not blocks:
        blocks += _inline(text, found, stop)
    if not blocks:
        blocks += _under_headers(text, found, stop)
    if not blocks:
        blocks += _between_rules(text, found, stop)
    if not blocks:
        blocks += _before_question(text, found, stop)
    blocks = [block for block in blocks if text.text[block.start : block.end].strip()]
    blocks = [block for block in blocks if not _is_within_a_passage(text.text, block, blocks)]
    blocks = [block._replace(several=True) if _goes_on(text, block, blocks) else block for block in blocks]
    return sorted(blocks, key=lambda block: -block.sure)


def _is_within_a_passage(raw: str, block: Block, blocks: Sequence[Block]) -> bool:
    """Whether an inline label lies inside another block with a clearer header."""
    if "\n" in raw[block.outer_start : block.start] or block.start == block.outer_start:
        return False
    return any(
        other.sure >= _SURE
        and other.sure > block.sure
        and other.start < block.outer_start < other.end
        and len(raw[other.start : block.outer_start].strip()) > _SOME_TEXT
        for other in blocks
    )


def _goes_on(text: IndexedText, block: Block, blocks: Sequence[Block]) -> bool:
    """Whether another block with a clear header lies before or after this one."""
    return any(
        other.sure >= _CLEARLY
        and (other.outer_start >= block.outer_end or other.outer_end <= block.outer_start)
        and not text.addresses(other.start, other.end)
        and len(text.text[other.start : other.end].strip()) > _SOME_TEXT
        for other in blocks
        if other is not block
    )


def _answer_label(text: IndexedText, found: Sequence[Mark]) -> int:
    """Return where the text ends, not counting a trailing label for the model's answer."""
    last = next((mark for mark in reversed(found) if mark.kind != "rule"), None)
    if (
        last is not None
        and last.kind == "answer"
        and len(text.text[last.body :].strip()) <= _ANSWER_TAIL
        and not is_answered(text, last, len(text.text))
    ):
        return last.start
    return len(text.text)


def _tagged(text: IndexedText, stop: int) -> Iterator[Block]:
    raw = text.text
    seen: set[str] = set()
    covered = 0
    fences: list[tuple[int, bool]] | None = None
    for opening in islice(_TAG.finditer(raw, 0, min(HEAD, stop)), _MOST_TAGS):
        tag = opening["tag"]
        base = tag.rstrip("0123456789")
        if (
            opening.start() < covered
            or base in seen
            or base.lower() in _HTML
            or base.lower() in _NO_PASSAGES
            or not _begins_a_line(raw, opening.start())
        ):
            continue
        fences = fences_in(raw) if fences is None else fences
        if is_in_code(fences, opening.start()):
            continue
        closings = [f"</{tag}>", f"<{tag}/>", f"<{tag} />"] if base == tag else [f"</{base}"]
        end = max(_last_closing(raw, one, opening.end(), stop) for one in closings)
        seen.add(base)
        if end < 0:
            continue
        sure = _tag_sure(base)
        again = raw.find(f"<{base}", opening.end(), end) if base else -1
        siblings = again >= 0 and _begins_a_line(raw, again) and not raw[again + len(base) + 1].isalpha()
        if not sure and not siblings:
            continue
        if 0 < sure < _SURE and raw.find(f"<{tag}>", end + 1) >= 0:
            sure += 0.25  # the instructions name the tag
        outer_end = raw.find(">", end) + 1 or len(raw)
        header = f"<{tag}>"
        covered = outer_end
        if siblings or (opening["attributes"].strip() and not raw[opening.end() : end].lstrip().startswith("<")):
            yield Block(opening.start(), outer_end, opening.start(), outer_end, header, 0.98 * sure if sure else 0.45)
        else:
            yield Block(opening.end(), end, opening.start(), outer_end, header, sure)


def _last_closing(raw: str, closing: str, start: int, stop: int) -> int:
    """Return the offset of the last closing tag at the end of a line, else of the last one; -1 for none."""
    last = at = raw.rfind(closing, start, stop)
    begins = -1
    for _ in range(8):
        if at < 0:
            break
        line_start = max(raw.rfind("\n", start, at) + 1, start)
        line_end = raw.find("\n", at)
        line = raw[line_start : line_end if line_end >= 0 else len(raw)].strip()
        plain = closing.replace("/", "") not in line or line.startswith("<")
        if plain and (line.endswith(closing) or (closing[-1] != ">" and line.endswith(">"))):
            return at
        if line.startswith(closing) and begins < 0:
            begins = raw.find(closing, line_start)
        at = raw.rfind(closing, start, line_start)
    return begins if begins >= 0 else last


def _begins_a_line(raw: str, at: int) -> bool:
    """Whether only blanks, a tag or a short label precede it on its line: a tag within a sentence opens no block."""
    line = raw[max(raw.rfind("\n", max(at - 400, 0), at) + 1, at - 200) : at].rstrip()
    return not line or line[-1] in ">:："


def _tag_sure(name: str) -> float:
    kind = kind_of(_JOINTS.sub(" ", name))
    return kind[1] if kind is not None and kind[0] == "context" else 0.0


def _labelled(text: IndexedText, found: Sequence[Mark], stop: int) -> Iterator[Block]:
    raw = text.text
    labels = [
        mark
        for mark in found
        if mark.kind == "context"
        and not (raw[mark.start : mark.body].lstrip().startswith("<") and " " not in mark.phrase)
    ]
    covered, covering = -1, ""
    last_of = {mark.phrase: mark for mark in labels}
    turns = [mark.start for mark in found if mark.kind in ("answer", "question")]
    for index, mark in enumerate(labels[:40]):
        if (
            mark.start < covered
            and (mark.inline or any(one.isdigit() for one in mark.phrase) or mark.phrase == covering)
        ) or mark.body >= stop:
            continue
        following = labels[index + 1] if index + 1 < len(labels) else None
        if (again := last_of[mark.phrase]).start > mark.start and _is_apart(turns, mark, again):
            continue  # a worked example: the block that counts comes after its question and answer
        item = _is_item(raw, mark, following, again=again.start > mark.start)
        start = mark.start if item else mark.body
        end = _end(text, found, start, stop, form=mark.form)
        if item:
            covered, covering = end, mark.phrase
        outer = end
        start, end = _unruled(raw, start, end)
        yield Block(start, end, mark.start, outer, f"label {mark.phrase!r}", (0.85 if item else 0.95) * mark.sure)


def _is_item(raw: str, mark: Mark, following: Mark | None, *, again: bool) -> bool:
    """Whether a label belongs to one passage: it is numbered, repeated, or begins a record of several keys."""
    if any(one.isdigit() for one in mark.phrase):
        return True
    if again:
        return mark.inline or following is None or following.phrase != mark.phrase or not following.inline
    if following is None:
        return False
    return (mark.inline and following.phrase == mark.phrase) or (
        mark.inline and raw.count("\n", mark.start, following.start) == 1
    )


def _is_apart(turns: Sequence[int], mark: Mark, other: Mark) -> bool:
    """Whether a question or an answer separates two labels: the first then belongs to an example."""
    index = bisect(turns, mark.start)
    return index < len(turns) and turns[index] < other.start


def _announced(text: IndexedText, found: Sequence[Mark], stop: int) -> Iterator[Block]:
    raw = text.text
    last = max((one.start for one in found if one.kind == "question"), default=-1)
    for mark in [one for one in found if one.kind == "intro"][:6]:
        start = mark.body
        if mark.phrase == LOOSE and last < start:
            continue  # only the question behind says that something stands in between
        for _ in range(_TRIMS):
            close = raw.find("\n\n", start)
            line = raw[start : start + 200].lstrip().partition("\n")[0]
            if close < 0 or (
                raw[start:close].strip() and (_RULE_LINE.fullmatch(line) or not text.is_meta(_skip(raw, start), close))
            ):
                break
            start = close + 2
        if start >= stop:
            continue
        end = _end(text, found, start, stop)
        outer = end
        start, end = _unruled(raw, start, end)
        yield Block(start, end, mark.start, outer, f"sentence {last_words(mark.phrase)!r}", 0.85 * mark.sure)


def _skip(raw: str, start: int) -> int:
    while start < len(raw) and raw[start] in " \t\n":
        start += 1
    return start


def _inline(text: IndexedText, found: Sequence[Mark], stop: int) -> Iterator[Block]:
    """Find a label in the middle of a line, as in `Answer from the context. Context: ["...", "..."]`."""
    for phrase_at, stop_at, body in islice(_inline_labels(text.text, min(HEAD, stop)), _INLINE_LABELS):
        kind = label_kind(text, phrase_at, stop_at)
        if kind is not None and kind[0] == "context" and kind[1] > _WEAK_SURE:
            end = _end(text, found, body, stop)
            start, end = _unruled(text.text, body, end)
            phrase = text.text[phrase_at:stop_at].casefold()
            yield Block(start, end, phrase_at, end, f"label {phrase!r}", _ANNOUNCED * kind[1])


def _inline_labels(raw: str, limit: int) -> Iterator[tuple[int, int, int]]:
    """Yield start and end of a few words between a sentence end and a colon, and where the text after it begins."""
    covered = 0
    for colon in _COLON.finditer(raw, 0, limit):
        if colon.start() < covered or (body := _INLINE_BODY.match(raw, colon.start(), limit)) is None:
            continue
        label = _INLINE_LABEL.search(raw, max(covered, colon.start() - _LABEL_WITHIN), colon.start())
        if label is not None:
            covered = body.end()
            yield label.start("phrase"), label.end("phrase"), covered


def _under_headers(text: IndexedText, found: Sequence[Mark], stop: int) -> Iterator[Block]:
    """Find header lines of one form, such as `==== a.md ====`, when nothing else introduces the passages."""
    first = first_header(text.text, min(HEAD, stop))
    if first is not None:
        end = _end(text, found, first, stop)
        yield Block(first, end, first, end, HEADERS, _RULED)


def _between_rules(text: IndexedText, found: Sequence[Mark], stop: int) -> Iterator[Block]:
    """Find text between two rules of one kind that follow the question."""
    rules = [mark for mark in found if mark.kind == "rule" and mark.start < stop]
    question = next((mark for mark in found if mark.kind == "question"), None)
    if len(rules) < _PAIR or question is None or question.start >= rules[0].start:
        return
    if rules[0].phrase == rules[-1].phrase and not text.text[rules[-1].body : stop].strip():
        yield Block(rules[0].body, rules[-1].start, rules[0].start, rules[-1].body, "rules", _RULED)


def _before_question(text: IndexedText, found: Sequence[Mark], stop: int) -> Iterator[Block]:
    """Find passages at the beginning of a text that ends with the labelled question."""
    questions = [mark for mark in found if mark.kind == "question"]
    if questions and questions[-1].start > 0:
        end = _end(text, found, 0, stop)
        start, end = _unruled(text.text, 0, end)
        yield Block(start, end, 0, end, "", 0.0)


def _end(text: IndexedText, found: Sequence[Mark], start: int, stop: int, *, form: str = "") -> int:
    """Return where a block that begins at `start` ends: at the question, else at the instructions that close the text.

    The last mark counts: a passage may contain lines that look like one.
    """
    later = [mark for mark in found if start <= mark.start < stop]
    questions = [mark for mark in later if mark.kind == "question"]
    if (spoken := find_transcript(text.text)) is not None and start < spoken.start < stop:
        return _without_last_paragraph(text, start, spoken.start)
    end = _first_speaker(later, questions[-1]).start if questions else _inline_question(text, start, stop)
    heading = next(
        (mark for mark in later if form and mark.form == form and mark.kind in ("instruction", "history", "answer")),
        None,
    )
    if heading is not None and start < heading.start < end:
        end = heading.start
    closings = [mark for mark in later if mark.phrase.startswith("end ") and start < mark.start < end]
    if closings and len({_unnumbered(mark.phrase) for mark in closings}) == len(closings):
        end = closings[0].start
    for _ in range(_TRIMS):
        before = end
        mark = next(
            (one for one in reversed(later) if one.start < end and one.kind in ("instruction", "history", "answer")),
            None,
        )
        if mark is not None and mark.start > start and _speaks(text, mark, end):
            end = mark.start
            continue
        end = _without_last_paragraph(text, start, end)
        if end == before:
            break
    return _at_closing_rule(text.text, later, start, end)


def _inline_question(text: IndexedText, start: int, stop: int) -> int:
    """Return the offset of a question label in the middle of the last line, else `stop`."""
    line = max(text.text.rfind("\n", start, len(text.text[:stop].rstrip())), start, stop - _TAIL)
    for label in reversed(list(_QUESTION_LABEL.finditer(text.text, line, stop))[-4:]):
        kind = label_kind(text, label.start("phrase"), label.end("phrase"))
        if kind is not None and kind[0] == "question":
            return label.start("phrase")
    return stop


def _first_speaker(later: Sequence[Mark], last: Mark) -> Mark:
    """Return the first speaker of a conversation after the passages, else the last question."""
    if last.phrase not in SPEAKERS:
        return last
    return next((one for one in later if one.phrase in SPEAKERS), last)


def _speaks(text: IndexedText, mark: Mark, end: int) -> bool:
    """Whether the text after a label of instructions, a history or an answer is what the label names."""
    if mark.phrase.startswith("end "):
        return False
    if mark.kind == "history" or not text.text[mark.body : end].strip():
        return True
    if mark.kind == "answer" and is_answered(text, mark, end):
        return False  # that of an entry of an FAQ
    body = _skip(text.text, mark.body)
    if mark.kind == "instruction" and not mark.inline and text.any(("context", "question"), body, end):
        return True
    return text.is_meta(body, end) or text.addresses(body, end) or text.is_meta(mark.start, end)


def _unnumbered(phrase: str) -> str:
    return re.sub(r"\d+", "", phrase)


def _without_last_paragraph(text: IndexedText, start: int, end: int) -> int:
    """Return `end` without the last paragraph, or its last lines, when they address the model."""
    raw = text.text
    while end > start and raw[end - 1] in " \t\n":
        end -= 1
    window = max(start, end - _TAIL)
    begins = [one.end() for one in _PARAGRAPH_START.finditer(raw, window, end)]
    at = begins[-1] if begins else window
    cut = _first_instruction(text, at, end)
    return end if cut is None else cut


def _first_instruction(text: IndexedText, start: int, end: int) -> int | None:
    """Return the offset of the line from which a paragraph addresses the model up to its end; None for none."""
    raw = text.text
    cut: int | None = None
    held = 0
    line_end = end
    for _ in range(40):
        line_start = max(raw.rfind("\n", start, line_end) + 1, start)
        if line_start == start and start and raw[start - 1] != "\n":
            break  # the line began before what is looked at: it is longer than any instruction
        line = raw[line_start:line_end]
        addresses = text.addresses(line_start, line_end)
        if line.lstrip()[:1] in ("[", "{", "<") and line.strip():
            break
        if (
            text.is_meta(line_start, line_end)
            or (addresses and text.is_meta(line_start, end))
            or (addresses and _orders_an_answer(text, line_start, line_end))
            or (_RULE_LINE.fullmatch(line) and not held and line.lstrip()[:1] not in _FENCE_SIGNS)
        ):
            cut, held = line_start, 0
        elif held >= 3 or (line.rstrip()[-1:] in (*".!?。！？",) and not addresses and held == 0 and cut is not None):  # noqa: PLR2004 - wrapped lines
            break
        else:
            held += 1
        if line_start <= start:
            break
        line_end = line_start - 1
    return cut


def _orders_an_answer(text: IndexedText, start: int, end: int) -> bool:
    """Whether a short instruction says how to answer."""
    return end - start <= _ORDER_LENGTH and text.any(("answer",), start, end)


def _at_closing_rule(raw: str, later: Sequence[Mark], start: int, end: int) -> int:
    """Return `end` before the closing rule of a block that opens with a rule of the same kind."""
    rules = [mark for mark in later if mark.kind == "rule" and mark.start < end]
    if is_fenced(raw[start:end]):
        return end
    if len(rules) > 1 and not raw[start : rules[0].start].strip():
        last = next((mark for mark in reversed(rules) if mark.phrase == rules[0].phrase), None)
        if last is not None and last is not rules[0] and not raw[last.body : end].strip():
            return last.start
    return end


def _unruled(raw: str, start: int, end: int) -> tuple[int, int]:
    """Strip rules and blanks at both ends of a block; fences around each passage are kept."""
    opened = ""
    if is_fenced(raw[start:end]):
        return start, end
    for _ in range(4):
        while start < end and raw[start] in " \t\n":
            start += 1
        while end > start and raw[end - 1] in " \t\n":
            end -= 1
        line_end = raw.find("\n", start, end)
        if line_end > 0 and _RULE_LINE.fullmatch(raw, start, line_end):
            opened = opened or raw[start:line_end].lstrip()[:1]
            start = line_end + 1
            continue
        line_start = raw.rfind("\n", start, end)
        if line_start > 0 and (
            _is_closing_rule(raw, line_start + 1, end, opened=opened)
            or _is_foreign_closing(raw, start, line_start + 1, end)
        ):
            end = line_start
            continue
        break
    return start, end


def _is_closing_rule(raw: str, line: int, end: int, *, opened: str) -> bool:
    """Whether the last line is a rule; a fence counts only when one of its kind opened the block."""
    sign = raw[line:end].lstrip()[:1]
    return _RULE_LINE.fullmatch(raw, line, end) is not None and (sign == opened or sign not in _FENCE_SIGNS)


def _is_foreign_closing(raw: str, start: int, line: int, end: int) -> bool:
    """Whether the last line closes an element that was opened before the block."""
    closing = _CLOSING.fullmatch(raw, line, end)
    return closing is not None and raw.find(f"<{closing['tag']}", start, line) < 0

"""Plans that one request suggests: the slot of the passages and how they are split. Evidence selects one later."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gaugeway.prompts.form.divisions import divisions
from gaugeway.prompts.form.text import SENTENCE_ENDS, ends_a_sentence
from gaugeway.prompts.learning.frames import END, MASK, PART, SYSTEM, USER
from gaugeway.prompts.learning.model import (
    DIGITS,
    LearnedTemplate,
    SlotName,
    Split,
    are_cut_open,
    pattern,
    split,
    version_of,
)
from gaugeway.prompts.learning.outline import Outline, Span, has_letter, head, is_rule, masked
from gaugeway.prompts.passage_records import shared_length
from gaugeway.prompts.sizes import (
    FEW,
    LABEL,
    LINE,
    MANY,
    MOSTLY,
    NEARLY_ALL,
    PARAGRAPH,
    QUARTER,
    REMEMBERED,
    SEVERAL,
    TENTH,
    WORD,
)
from gaugeway.records import Context

_CORES = FEW
_SHORTEST = LABEL
_SHORTEST_ITEM = WORD
"""Least average length of a passage: below it the marker is text within sentences."""
_QUESTION_LENGTH = PARAGRAPH
_LINES = REMEMBERED
_OPENER = PARAGRAPH
_GLUE = PARAGRAPH
_DATA = PARAGRAPH
_OPENINGS = SEVERAL
_CLOSED = re.compile(rf"(?:\s*</[\w:-]+>)*[^\w>{re.escape(SENTENCE_ENDS)}]*\Z")
_TOKEN_START = re.compile(r"(?<![^\W_])[^\W_]|[^\w]|_")
_COLONS = (":", "：", "=", "/", "|")
_BULLETS = "-*•–#>+◦▪"
_LABELS = re.compile(rf"[^\w\s.,;!?'’{MASK}]|\n[ \t]*{MASK}")
_LABEL = re.compile(r"^[ \t]*([^\W\d_]{2,20}(?: [^\W\d_]{2,20})?)[ \t]*[:：]", re.MULTILINE)
_BESIDE = LINE
_COMPARED = MANY
_WORDS = re.compile(r"(?<![^\W_])[^\W\d_]")
_TEXT_MARK = re.compile(f"[{SYSTEM}{USER}{END}]")


_PLAIN = ((Split(kind="lines"), TENTH), (Split(kind="paragraphs"), QUARTER))


class Plan(Struct, frozen=True):
    """A candidate template: literals, the index of the slot with the passages, and how it is split."""

    literals: tuple[str, ...]
    passages: int
    split: Split
    contexts: tuple[Context, ...]
    certain: float
    """Prior weight of the split: 1.0 for marked items, little for blank lines."""
    partial: bool = False
    """Whether a literal next to the slot stands elsewhere as well: then the slot next to it may be part of an item."""


def template_of(name: tuple[str, str], plan: Plan, question: int | None, *, seen: int, at: float) -> LearnedTemplate:
    """Return the template of a plan: of an app and kind, with the slot that holds the question, if one does."""
    slots: tuple[SlotName, ...] = tuple(
        "passages" if index == plan.passages else "question" if index == question else "other"
        for index in range(len(plan.literals) - 1)
    )
    return LearnedTemplate(
        app=name[0],
        kind=name[1],
        version=version_of(plan.literals, slots, plan.split),
        literals=plan.literals,
        slots=slots,
        split=plan.split,
        seen=seen,
        learned_at=at,
    )


def has_remains_of_the_prompt(plan: Plan) -> bool:
    """Whether the passages have text of the prompt left in them: tags, a header of one form, the label beside the slot.

    With such a label, as in the entries of an FAQ, it is uncertain where the slot begins and ends.
    """
    texts = [passage.text for passage in plan.contexts[:_COMPARED]]
    if len(texts) > 1 and plan.split.kind in ("lines", "paragraphs") and _are_of_two_kinds(texts):
        return True
    before, behind = plan.literals[plan.passages][-_BESIDE:], plan.literals[plan.passages + 1][:_BESIDE]
    if are_cut_open(before, plan.split.words, behind, plan.contexts):
        return True
    labels = {label.casefold() for literal in (before, behind) for label in _LABEL.findall(literal)}
    return any(label.casefold() in labels for text in texts for label in _LABEL.findall(text))


def _are_of_two_kinds(texts: list[str]) -> bool:
    """Whether sentences alternate with other lines: lines of the prompt between the passages."""
    sentences = sum(ends_a_sentence(text) for text in texts)
    return FEW * min(sentences, len(texts) - sentences) >= len(texts)


def proposals(seen: Outline) -> Iterator[Plan]:
    """Yield the plans that the request suggests, for its longest slots and what they extend to.

    A question that a blank line alone parts from the passages, at the end or the beginning, has a slot of its own too.
    """
    for outline in (seen, *_parted(seen)):
        yield from _of(outline)


def _parted(seen: Outline) -> Iterator[Outline]:
    start, end = seen.slots[-1]
    text = seen.text
    if (at := text.rfind("\n\n", start, end)) > start and _asks(text[at:end]):
        yield Outline(text, (*seen.literals[:-1], (at, at + 2), seen.literals[-1]))
    start, end = next((slot for slot in seen.slots if text[slot[0] - 1] == USER), (0, 0))
    if 0 < start < (at := text.find("\n\n", start, end)) and _asks(text[start:at]):
        index = seen.slots.index((start, end)) + 1
        yield Outline(text, (*seen.literals[:index], (at, at + 2), *seen.literals[index:]))


def _asks(text: str) -> bool:
    said = text.strip()
    return 0 < len(said) <= _QUESTION_LENGTH and said[-1] in "?？؟"


def _of(seen: Outline) -> Iterator[Plan]:
    slots = seen.slots
    longest = sorted(range(len(slots)), key=lambda index: slots[index][0] - slots[index][1])[:_CORES]
    tried = set()
    for core in longest:
        if slots[core][1] - slots[core][0] < _SHORTEST:
            continue
        for low, high in (*_alone(seen, core), _extended(seen, core), _over_rules(seen, core)):
            if (low, high) not in tried:
                tried.add((low, high))
                partial = _is_partial(seen, low, high)
                for plan in _plans(seen, low, high):
                    yield replace(plan, partial=True) if partial else plan


def _extended(seen: Outline, core: int) -> tuple[int, int]:
    """Return the slots that belong to a row of items together with `core`: what stands between them comes again."""
    words = seen.words()
    masks = [masked(word) for word in words]
    count = Counter(masks[1:-1])
    start, end = seen.slots[core]
    inside = masked(seen.text[start:end])
    low = high = core

    def recurs(index: int) -> bool:
        literal = masks[index]
        return (
            0 < index < len(masks) - 1 and not _TEXT_MARK.search(literal) and (count[literal] > 1 or literal in inside)
        )

    while recurs(low):
        low -= 1
    while (
        before := next(
            (at for at in range(low - 1, max(low - FEW, 0) - 1, -1) if _opens_like(masks[low], masks[at])), None
        )
    ) is not None:
        low = before
    while high + 1 < len(masks) - 1 and (recurs(high + 1) or _opens_like(masks[high + 1], masks[low])):
        high += 1
    return low, high


def _is_partial(seen: Outline, low: int, high: int) -> bool:
    inside = masked(seen.text[seen.literals[low][1] : seen.literals[high + 1][0]])
    around = [masked(seen.literal(at)) for at in (low, high + 1) if 0 < at < len(seen.literals) - 1]
    others = [masked(seen.literal(at)) for at in range(1, len(seen.literals) - 1) if not low <= at <= high + 1]
    return any(has_letter(word) and (word in inside or word in others) for word in around)


def _alone(seen: Outline, core: int) -> list[tuple[int, int]]:
    """Return the slot alone, unless the same words part it from others as part these from each other."""
    inner = Counter(masked(word) for word in seen.words()[1:-1])
    around = [masked(seen.literal(at)) for at in (core, core + 1)]
    return [] if any(has_letter(word) and inner[word] > 1 for word in around) else [(core, core)]


def _over_rules(seen: Outline, core: int) -> tuple[int, int]:
    """Return the slots around `core` that lines of signs alone part from it: two passages may be parted by one."""
    low = high = core
    slots = seen.slots
    while low > 0 and is_rule(seen.literal(low)) and slots[low - 1][1] - slots[low - 1][0] >= _SHORTEST:
        low -= 1
    while (
        high + 1 < len(slots)
        and is_rule(seen.literal(high + 1))
        and slots[high + 1][1] - slots[high + 1][0] >= _SHORTEST
    ):
        high += 1
    return low, high


def _opens_like(literal: str, opening: str) -> bool:
    """Whether a literal ends as the one in front of the first item does: it opens the next item."""
    common = shared_length(literal[::-1], opening[::-1])
    rest = len(literal) - common
    return _WORDS.search(literal[rest:]) is not None and not has_letter(literal[:rest])


def _plans(seen: Outline, low: int, high: int) -> Iterator[Plan]:
    """Yield the plans in which the passages are in the slots from `low` to `high`."""
    start, end = seen.literals[low][1], seen.literals[high + 1][0]
    region = seen.text[start:end]
    words = seen.words()
    around = [words[at] for at in (low, high + 1) if 0 < at < len(words) - 1]
    if _TEXT_MARK.search(region) or any(is_rule(word) and (word.strip() or PART) in region for word in around):
        return
    literals = words[: low + 1] + words[high + 1 :]
    if PART in region:
        if PART not in around:
            yield from _split(literals, low, region, Split(kind="part"), 1.0)
        return
    opening = _opener(words[low], region)
    # Where a marker is all that stands next to the slot, the slot next to this one is an item too.
    parted = {masked(word) for word in around}
    for how, certain in (*_markers(seen, low, high, opening), *_repeated_lines(region), *_PLAIN):
        if how.words not in parted:
            yield from _split(literals, low, region, how, certain)
    yield from _with_data(seen, literals, low, (start, end))
    yield from _read(literals, low, region)


def _split(literals: tuple[str, ...], low: int, region: str, how: Split, certain: float) -> Iterator[Plan]:
    contexts = split(how, region)
    if contexts and sum(len(passage.text) for passage in contexts) >= _SHORTEST_ITEM * len(contexts):
        yield Plan(literals, low, how, contexts, certain)


def _read(literals: tuple[str, ...], low: int, region: str) -> Iterator[Plan]:
    for reading in divisions(region):
        if reading.name != "whole":
            how = Split(kind="reading", words=reading.name)
            yield Plan(literals, low, how, reading.items, reading.certain - 0.05)


def _repeated_lines(region: str) -> Iterator[tuple[Split, float]]:
    """Yield a line that stands between items: it comes more than once, which passages do not."""
    lines = Counter(masked(line.strip()) for line in region.split("\n")[:_LINES])
    for line, count in lines.most_common(FEW):
        if count > 1 and len(line) > 1 and not line.isspace():
            yield Split(kind="marker", words=f"\n{line}\n", counted=line.count(MASK) == 1), NEARLY_ALL


def _with_data(seen: Outline, literals: tuple[str, ...], low: int, slot: Span) -> Iterator[Plan]:
    """Yield the plan in which the region is a JSON value, or a printed one, that begins in the literal before."""
    before, behind = literals[low], literals[low + 1]
    start, end = slot
    tail = range(max(0, len(before) - _DATA), len(before))
    for opening in islice((at for at in tail if _opens_data(before, at)), _OPENINGS):
        if (length := _closing(seen.text, start - len(before) + opening, end, len(behind))) is not None:
            break
    else:
        return
    region = before[opening:] + seen.text[start:end] + behind[:length]
    for reading in divisions(region):
        if reading.name == "data":
            inner = (*literals[:low], before[:opening], behind[length:], *literals[low + 2 :])
            if inner[low] and inner[low + 1]:
                yield Plan(inner, low, Split(kind="reading", words=reading.name), reading.items, 1.1)


def _opens_data(text: str, at: int) -> bool:
    return text[at] in "[{" and text[at + 1 :].lstrip()[:1] in ("", "{", "[", '"', "'", "(", "D", "N", "T")


def _closing(text: str, start: int, end: int, most: int) -> int | None:
    """Return how much of the text behind `end` the value that begins at `start` takes."""
    try:
        _, stop = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        close = {"[": "]", "{": "}"}[text[start]]
        stop = text.find(close, end, end + min(most, _DATA)) + 1
        try:
            ast.parse(text[start:stop], mode="eval")
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return stop - end if 0 <= stop - end < most else None


class Opening(NamedTuple):
    """What opens an item, with numbers masked: `marker` with what is between, which ends in `closing`."""

    marker: str
    closing: str
    counted: bool


def _markers(seen: Outline, low: int, high: int, opening: Opening | None) -> Iterator[tuple[Split, float]]:
    """Yield the markers that stand between items: what opens the first one again, or what stands there as often."""
    words = seen.words()
    between = [masked(word) for word in words[low + 1 : high + 1]]
    if opening is not None:
        closing = opening.closing.strip() if opening.closing != opening.marker else ""
        closing = "" if has_letter(closing) or MASK in closing else closing
        yield Split(kind="marker", words=opening.marker, counted=opening.counted, closing=closing), 1.0
    for literal, count in Counter(between).most_common(1):
        if count > 1 or len(between) == 1:
            yield Split(kind="marker", words=literal, counted=literal.count(MASK) == 1), MOSTLY


def _opener(before: str, region: str) -> Opening | None:
    """Return the longest end of the literal before the region that stands in it as well, and what is around."""
    said, inside = masked(before[-_OPENER:]), masked(region)
    best = None
    for match in reversed(list(_TOKEN_START.finditer(said))):
        if said[match.start() :] not in inside:
            break
        best = match.start()
    if best is None or not _is_marker(opener := said[best:]):
        return None
    first = pattern(opener).search(before, max(0, len(before) - _OPENER))
    places, counted = _places(opener, first, region)
    if not places or first is None:
        return None
    between = [region[previous:start] for previous, start in places]
    glue = masked(between[0])[-_GLUE:]
    for word in between[1:]:
        glue = glue[len(glue) - shared_length(glue[::-1], masked(word)[::-1]) :]
    if len(between) == 1:
        last = masked(between[0][-_GLUE:])
        closed = _CLOSED.search(last)
        glue = last[closed.start() :] if closed else ""
    marker = glue + opener
    marker = marker[head(marker) :] or opener
    return Opening(marker, marker.removesuffix(opener), counted and marker.count(MASK) == 1)


def _is_marker(opener: str) -> bool:
    signs = opener.strip()
    if signs in _BULLETS:
        return opener[-1] == " "
    return has_letter(signs) or (_LABELS.search(opener) is not None and signs not in _COLONS)


def _places(opener: str, first: re.Match[str] | None, region: str) -> tuple[list[tuple[int, int]], bool]:
    """Return (where the passage before begins, where the opener does) of each opener that counts on."""
    matches = list(pattern(opener).finditer(region))
    counted = opener.count(MASK) == 1 and first is not None
    if counted and first is not None:
        number = int(first[1][:DIGITS])
        chain = []
        for match in matches:
            if int(match[1][:DIGITS]) == number + 1:
                number += 1
                chain.append(match)
        counted = bool(chain)
        matches = chain or matches
    starts = [0, *(match.end() for match in matches)]
    return [(start, match.start()) for start, match in zip(starts, matches, strict=False)], counted

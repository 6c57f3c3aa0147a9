"""Scores one block: adds up the evidence for and against it holding passages, and finds its question."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gateway.contexts.structure.blocks import HEADERS, Block
from gateway.contexts.structure.common_metadata import are_questions_with_answers
from gateway.contexts.structure.labels import MODELS, SPEAKERS
from gateway.contexts.structure.passage_metadata import SENTENCE_END
from gateway.contexts.structure.passages import Splitting, read_as, split
from gateway.contexts.structure.question import FoundQuestion, find_question, is_question, question_of_turn
from gateway.contexts.structure.word_index import IndexedText
from gateway.contexts.structure.words import PERSON

SHORT_INSTRUCTIONS = 4_000
"""Length up to which a system prompt describes how to answer; longer ones describe an agent's work."""

_HEADER = 2.1
"""Points for a block with an unambiguous header."""
_UNMISTAKABLE = 0.3
_ORDER = 1.5
_PARTLY_ORDERED = 0.6
_WORDS_ONLY = 0.8
_WORTH = {"data": 1.0, "bullets": 0.5, "blank-line": 0.6, "lines": 0.4, "whole": 0.0, "headed": 1.0}
"""Points for a notation that separates passages; all others have a marker of their own (`_MARKED`)."""
_MARKED = 1.2
_SINGLE = 0.4
_WHOLE = ("tag", "data", "objects", "pairs", "fenced")
"""Notations that identify even a single passage."""
_LOOSE = ("blank-line", "lines", "whole", "inline", "bullets")
_QUESTION = 1.3
_QUESTION_TURN = 0.9
_LONG_QUESTION_TURN = 0.2
_NO_QUESTION = -1.6
_LEFT_OVER = 0.7
_LEFT_OVER_UNSURE = -0.8
_SURELY_ASKED = 0.8
_CANNOT_BE = 5.0
_UNLIKELY = 2.0
_TASK = 2.5
_NO_WORDS = 1.5
_WEAKER = 1.0
_UNGROUNDED = 0.8
_LOOSE_LIST = 0.6

_NEAR = 900
_REST = 600
_FAR_IN = 1.5
_CLEAR_BLOCK = 0.9
_OWN_TAG = 0.99
_LETTERS = 0.7
_TAGGED = 0.7
_WIDE = 0x2E80
_FEW = 70
_QUESTION_LENGTH = 600
_LONG_TURN = 2_000
_LOOKED_AT = 20
_SAMPLED = 8
_SAMPLE = 300
_CODE_SAMPLE = 2_000
_FEWEST_LETTERS = 20
_FEWEST_LETTERS_ANNOUNCED = 3
_LINES_JUDGED = 40
_META_SHARE = 0.3
_ADDRESSED_SHARE = 0.5
_FIRST_WORDS = 30
_SHORTEST_PIECE = 12
_TASK_WITHIN = 400
_ROUNDING = 1e-9
_TWO = 2
TURNS = (
    SPEAKERS
    | MODELS
    | {"note", "important", "remember", "rules", "chat history", "history", "constraints", "question", "answer", "q"}
)
_FENCES = ("```", '"""', "---", "===", "***", "###")
_GROUNDED = "instructions to answer from sources"

_PLACEHOLDER = re.compile(r"[\[{<(][^\n]{0,300}[\]}>)]|\.{3}|…")
_REQUEST = re.compile(r"(?:ください|下さい|なさい|하세요|해주세요|주세요|십시오)[。.]?\Z")
_REQUEST_LENGTH = 10
_CODE = re.compile(
    r"^\s{0,20}(?:def |class |import |from \w+ import|function |const |let |var |public |private |#include|#define |"
    r"SELECT |<\?|[{}][;,]?\s*$|diff --git|@@ |\+\+\+ |commit |return\b|module |require |package |"
    r"fn |func |end\s*$|//|/\*|- [\w-]{1,30}: ?|"
    r"[a-z][\w-]{0,30}:\s*(?:$|[\w./-]+$))",
    re.MULTILINE,
)
_PROGRAM = re.compile(
    r"^[ \t]*(?:(?:async )?def \w+\(|class \w+[:({]|import \w|from [\w.]+ import |#include|@\w+|return\b[^.]*;?$|"
    r"(?:export )?(?:async )?function \w*\(|(?:export )?(?:const|let|var) \w+ =|"
    r"(?:public|private|protected|static|func|fn) \w|[\w.]+ = [\w.]+\(|"
    r"(?:if|for|while|with|elif|try|else)\b[^.\n]*:$|(?:if|for|while|switch) ?\([^\n]*\{$)",
    re.MULTILINE,
)
"""Lines of a program: text after several of them is code too, regardless of its label."""
_LINES_OF_CODE = 4
_NAME = 60
_NAME_WORDS = 7
_SENTENCE = re.compile(r"[^\n.!?。]+[\n.!?。]?")
_LABEL_LENGTH = 80
_WAS_RETRIEVED = 0.4
_RETRIEVED = re.compile(
    r"\b(?:relevant|retrieved|found|matching|search|top|nearest|gefunden|relevante|pertinent|encontrad|recuperad|"
    r"récupéré|rilevant|найден|релевант)"
)
"""Words of a label that show that its passages were retrieved."""
_OF_ONE_TEXT = ("rule:---", "rule:***", "rule:___", "blank-line", "lines", "bullets")
_ONE_DOCUMENT = re.compile(
    r"label '(?:[^']{0,40} )?(?:page|document|article|webpage|file|text)(?: contents?| text)?'\Z"
)
_CLOSING_TAG = re.compile(r"</(?P<tag>[A-Za-z][\w.-]{0,40})>")
_FIRST_WORD = re.compile(r"[\w'’]+")
_ASCII_LETTERS = string.ascii_letters.encode()


class Place(NamedTuple):
    """The message a block is in. `own`: the user turn with the question; `beside` is then the system prompt's start."""

    text: IndexedText
    own: bool
    question_turn: str
    beside: IndexedText


class ScoredBlock(NamedTuple):
    """A block with its passages, its question, its score in points and the evidence behind it."""

    points: float
    asked: FoundQuestion | None
    splitting: Splitting
    block: Block
    signs: list[str]


def score_block(place: Place, block: Block, least: float = -math.inf) -> ScoredBlock | None:
    """Score a block; None when it contains no text or cannot reach `least` points."""
    least -= _ROUNDING
    signs = [block.header or "no header"]
    points = _announced(place, block, signs) - _against_block(place, block, signs)
    if points + _QUESTION + _MARKED < least:
        return None
    text = place.text
    region = text.text[block.start : block.end]
    around = ((block.outer_end, len(text.text)), (0, block.outer_start))
    asked = (
        find_question(text, around)
        if place.own
        else question_of_turn(place.question_turn) or find_question(text, around)
    )
    if place.own and asked is None and (ending := _asked_at_the_end(region)) is not None:
        asked, region = ending
    points += _asked(asked, signs, own=place.own) - _task(place, block, asked, signs)
    if points + _MARKED < least or (splitting := _passages(region, block)) is None:
        return None
    kind = _kind(splitting)
    many = len(splitting.items) > 1 or kind in _WHOLE
    points += _WORTH.get(kind, _MARKED) if many else min(_WORTH.get(kind, _SINGLE), _SINGLE)
    signs.insert(1, f"{len(splitting.items)} by {splitting.name}")
    if splitting.tail and _goes_before_the_question(text.text[block.outer_end :], asked):
        splitting = replace(splitting, odd=False)
    points -= _against_passages(place, block, splitting, signs)
    return ScoredBlock(points, asked, splitting, block, signs)


def _goes_before_the_question(behind: str, asked: FoundQuestion | None) -> bool:
    """Whether only the question's label separates the block from the question."""
    return asked is not None and 0 <= behind[: _LABEL_LENGTH + _SAMPLE].find(asked.text[:_SAMPLE]) <= _LABEL_LENGTH


def _passages(region: str, block: Block) -> Splitting | None:
    """Split a block into passages. If its label names one document, paragraphs and rules belong to that document."""
    splitting = split(region)
    if splitting is not None and splitting.name in _OF_ONE_TEXT and _ONE_DOCUMENT.search(block.header) is not None:
        return read_as(region, "whole")
    return splitting


def _kind(splitting: Splitting) -> str:
    return splitting.name.partition(":")[0]


def _announced(place: Place, block: Block, signs: list[str]) -> float:
    points = _HEADER * block.sure + _UNMISTAKABLE * (block.sure == 1.0)
    points += _WAS_RETRIEVED * (_RETRIEVED.search(block.header) is not None)
    grounding = max(_grounding(place.text, block), _orders(place.beside, 0, len(place.beside.text)))
    if grounding:
        signs.append(_GROUNDED)
    elif block.header.startswith(("sentence", HEADERS)) or (
        not place.own and 0 < block.sure < _CLEAR_BLOCK and not block.header.startswith("<")
    ):
        signs.append("nothing says to answer from it")
        return points - _UNGROUNDED
    return points + grounding


def _asked_at_the_end(region: str) -> tuple[FoundQuestion, str] | None:
    """Find an unlabelled question after the last passage: a short last paragraph that ends with a question mark."""
    before, _, last = region.rstrip().rpartition("\n\n")
    if before.strip() and len(last) <= _QUESTION_LENGTH and "\n" not in last.strip() and is_question(last.strip()):
        inner = find_question(IndexedText(last), [(0, len(last))])
        return FoundQuestion(inner.text if inner is not None else last.strip(), 0.7, "last paragraph"), before
    return None


def _grounding(text: IndexedText, block: Block) -> float:
    """Score the instructions near the block: an order to answer from the sources, or at least words for sources."""
    found = 0.0
    for start, end in (
        (max(block.outer_start - _NEAR, 0), block.start),
        (block.outer_end, min(block.outer_end + _NEAR, len(text.text))),
        (0, min(_NEAR, block.start)),
    ):
        found = max(found, _orders(text, start, end))
        if found >= _ORDER:
            break
    return found


def _orders(text: IndexedText, start: int, end: int) -> float:
    """Return 1.5 for an order to answer from the given sources, less for a sentence that only mentions them."""
    found = 0.0
    if not text.any(("context", "pasted", "weak"), start, end):
        return found
    for sentence in _SENTENCE.finditer(text.text, start, end):
        low, high = sentence.span()
        if not text.any(("context", "pasted", "weak"), low, high):
            continue
        points, addressed = text.any(("points", "below"), low, high), text.addresses(low, high)
        answers = text.any(("answer", "question"), low, high)
        if ((points or addressed) and answers) or (points and addressed and text.has("context", low, high)):
            return _ORDER
        if points and addressed:
            found = _PARTLY_ORDERED
    if text.any(("context", "pasted"), start, end) and text.any(("question", "answer"), start, end):
        found = max(found, _WORDS_ONLY)
    return found


def _asked(asked: FoundQuestion | None, signs: list[str], *, own: bool) -> float:
    if asked is None or not asked.text:
        signs.append("no question")
        return _NO_QUESTION
    signs.append(f"question by {asked.how}")
    if not own:
        return _QUESTION_TURN if len(asked.text) < _LONG_TURN else _LONG_QUESTION_TURN
    if asked.how != "remaining text":
        return _QUESTION * asked.sure
    return _LEFT_OVER if asked.sure >= _SURELY_ASKED else _LEFT_OVER_UNSURE


def _task(place: Place, block: Block, asked: FoundQuestion | None, signs: list[str]) -> float:
    """Return the penalty for a task on a text the user gave (translate, summarize). A labelled question is none."""
    text, own = place.text, place.own
    announced = own and text.has("task", block.outer_start, block.start)
    if asked is not None and asked.how not in ("remaining text", "last paragraph") and own and not announced:
        return 0.0
    around = announced or (
        own and (text.has("task", 0, block.outer_start) or text.has("task", block.outer_end, len(text.text)))
    )
    system = place.beside if own else text
    orders = system.has("task", 0, min(len(system.text), SHORT_INSTRUCTIONS)) and not system.has(
        "question", 0, SHORT_INSTRUCTIONS
    )
    if (
        around
        or orders
        or IndexedText(asked.text[:_TASK_WITHIN] if asked is not None else "").has("task", 0, _TASK_WITHIN)
    ):
        signs.append("a task on the text")
        return _TASK
    return 0.0


def _against_block(place: Place, block: Block, signs: list[str]) -> float:
    """Return the penalty for a block that does not depend on how it is split."""
    text = place.text
    points = 0.0
    if block.several and block.sure < _OWN_TAG:
        points += _CANNOT_BE
        signs.append("one of several blocks")
    if not block.header and text.addresses(block.start, block.end):
        points += _CANNOT_BE
        signs.append("begins with instructions")
    if not place.own and block.sure < _CLEAR_BLOCK:
        # A long system prompt has sentences of every kind.
        points += _WEAKER * (len(text.text) - block.outer_end > _REST)
        points += _FAR_IN * (block.outer_start > SHORT_INSTRUCTIONS)
        fenced = any(one in text.text[block.outer_start : block.start] for one in _FENCES)
        if (
            block.header.startswith("sentence")
            and not fenced
            and not text.has("context", block.outer_start, block.start)
        ):
            points += _UNLIKELY
    if _instructs(text, block):
        points += _CANNOT_BE
        signs.append("reads like instructions")
    if not block.header.startswith("<") and _is_inside_an_element(text.text, block):
        points += _CANNOT_BE
        signs.append("inside an element")
    before = text.text[max(block.outer_start - _CODE_SAMPLE, 0) : block.outer_start]
    if len(_PROGRAM.findall(before)) >= _LINES_OF_CODE:
        points += _CANNOT_BE
        signs.append("in the middle of code")
    return points


def _is_inside_an_element(raw: str, block: Block) -> bool:
    """Whether the block ends an element or a fence that begins before it: it is then part of a passage."""
    fence = raw[block.start : block.end].rstrip().rpartition("\n")[2].strip()
    if fence in _FENCES and raw.count(fence, block.start, block.end) % 2 and raw.count(fence, 0, block.outer_start) % 2:
        return True
    at = raw.rfind("</", block.start, block.end)
    closing = _CLOSING_TAG.match(raw, at) if at >= 0 else None
    return (
        closing is not None
        and raw.find(f"<{closing['tag']}", block.start, at) < 0
        and raw.find(f"<{closing['tag']}", 0, block.outer_start) >= 0
    )


def _against_passages(place: Place, block: Block, splitting: Splitting, signs: list[str]) -> float:
    text = place.text
    kind = _kind(splitting)
    texts = [one.text for one in splitting.items][:_LOOKED_AT]
    region = text.text[block.start : block.end]
    sampled = texts[:_SAMPLED]
    least = _FEWEST_LETTERS_ANNOUNCED if block.sure >= _TAGGED and kind != "whole" else _FEWEST_LETTERS
    found: list[tuple[float, str]] = []
    if 2 * sum(_reads(one, least) for one in sampled) < len(sampled):
        found.append((_NO_WORDS, "does not read like text"))
    if _says_nothing(texts) or (place.own and _GROUNDED not in signs and _are_names(block, texts)):
        found.append((_CANNOT_BE, "names or placeholders only"))
    if kind not in (*_WHOLE, "numbered") and not splitting.titled and len(_CODE.findall(region[:_CODE_SAMPLE])) > 1:
        found.append((_UNLIKELY, "code"))
    if kind in ("whole", "lines", "blank-line", "records") and len(region) < _FEW and not block.header.startswith("<"):
        found.append((_WEAKER, "hardly any text"))
    if (
        len(texts) <= _TWO
        and "reads like instructions" not in signs
        and IndexedText(texts[0][:_SAMPLE]).is_meta(0, _SAMPLE)
    ):
        found.append((_CANNOT_BE, "reads like instructions"))
    if kind == "tag" and _GROUNDED not in signs and len(_CODE.findall(texts[0][:_CODE_SAMPLE])) > 1:
        found.append((_UNLIKELY, "code"))
    if not place.own:
        found += _against_a_system_prompt(block, kind, signs)
    if (
        place.own
        and _GROUNDED not in signs
        and (_FIRST_WORD.findall(texts[0][:_FIRST_WORDS].lower()) or [""])[0] in PERSON
    ):
        found.append((_UNLIKELY, "in the first person"))
    if splitting.odd or _differ(text, block, kind, texts):
        found.append((_CANNOT_BE, "passages differ in form"))
    signs += [sign for _, sign in found]
    return sum(points for points, _ in found)


def _against_a_system_prompt(block: Block, kind: str, signs: Sequence[str]) -> list[tuple[float, str]]:
    """Return penalties for what system prompts without retrieval contain: one introduced text, a list of facts."""
    if block.header.startswith("sentence") and kind == "whole":
        return [(_UNGROUNDED, "one text behind a sentence")]
    return [(_LOOSE_LIST, "a list")] if _GROUNDED not in signs and kind == "bullets" else []


def _differ(text: IndexedText, block: Block, kind: str, texts: Sequence[str]) -> bool:
    """Whether some passages look like something else: instructions, a conversation turn, a heading."""
    if (kind in _LOOSE or "\n" in texts[-1]) and _differs_at_the_end(texts):
        return True
    if kind in _LOOSE and (_speaks_of_itself(text, block) or _speaks_in_turns(texts)):
        return True
    return kind in ("blank-line", "lines") and any(
        len(one) < _SHORTEST_PIECE or one.rstrip()[-1] in ":：" for one in texts
    )


def _speaks_in_turns(texts: Sequence[str]) -> bool:
    """Whether a passage begins like a conversation turn or a note to the model."""
    return not are_questions_with_answers(texts) and any(
        one[:24].partition(":")[0].strip(" *[").lower() in TURNS for one in texts
    )


def _are_names(block: Block, texts: Sequence[str]) -> bool:
    """Whether an untagged list has only a few words per line and no sentence."""
    return (
        len(texts) > 1
        and not block.header.startswith("<")
        and all(len(one) <= _NAME and len(one.split()) <= _NAME_WORDS and not SENTENCE_END.search(one) for one in texts)
    )


def _says_nothing(texts: Sequence[str]) -> bool:
    """Whether the passages are single words or template placeholders only."""
    if not any(" " in one.strip() or ord(one.strip()[:1] or " ") >= _WIDE for one in texts):
        return True
    return all(_PLACEHOLDER.fullmatch(one.strip()) for one in texts)


def _differs_at_the_end(texts: Sequence[str]) -> bool:
    """Whether only the last passage is a request: it may be an instruction after the passages."""
    if len(texts) < _TWO:
        return False
    return _requests(texts[-1]) and not any(map(_requests, texts[:-1]))


def _requests(text: str) -> bool:
    return _REQUEST.search(text.rstrip()[-_REQUEST_LENGTH:]) is not None


def _speaks_of_itself(text: IndexedText, block: Block) -> bool:
    """Whether the first or last line of a block uses words that a prompt uses for its own parts."""
    raw = text.text
    start = block.start
    while start < block.end and raw[start] in " \t\n":
        start += 1
    head = raw.find("\n", start, block.end)
    tail = raw.rfind("\n", block.start, block.end)
    return head >= 0 and (text.has("itself", start, head) or text.has("itself", tail, block.end))


def _reads(text: str, least: int) -> bool:
    """Whether the beginning of a text is words rather than numbers, symbols or code."""
    sample = text[:_SAMPLE]
    letters, visible = _letters(sample), len("".join(sample.split()))
    return letters >= least and letters >= _LETTERS * visible and not _CODE.match(sample)


def _letters(sample: str) -> int:
    if sample.isascii():
        return len(sample) - len(sample.encode().translate(None, _ASCII_LETTERS))
    return sum(map(str.isalpha, sample))


def _instructs(text: IndexedText, block: Block) -> bool:
    """Whether the lines of the block instruct the model."""
    raw = text.text
    addressed = meta = lines = 0
    position = block.start
    while position < block.end and lines < _LINES_JUDGED:
        end = raw.find("\n", position, block.end)
        end = block.end if end < 0 else end
        if raw[position:end].strip():
            lines += 1
            addressed += text.addresses(position, end)
            meta += text.is_meta(position, end)
        position = end + 1
    least = _ADDRESSED_SHARE * lines + (raw[block.start : block.end].lstrip()[:1] in ("[", "{", "<"))
    return lines > 0 and (meta > _META_SHARE * lines or addressed >= least)

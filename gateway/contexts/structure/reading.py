"""The decision: of the blocks a prompt may have, the one that the signs speak for, with a confidence and a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.contexts.passages import decoded
from gateway.contexts.passages import read as listed
from gateway.contexts.retrieval import reads_like_a_passage
from gateway.contexts.structure.asking import Asked, ask, ask_turn, asks
from gateway.contexts.structure.blocks import Block, candidates
from gateway.contexts.structure.items import Splitting, split
from gateway.contexts.structure.outline import label_kind
from gateway.contexts.structure.scan import Text
from gateway.contexts.structure.words import PERSON
from monitors.records import Context

THRESHOLD = 3.0
"""Points from which a block counts as passages; the confidence there is one half."""

_SLOPE = 1.1
_TRIED = 3
_TURNS = 20
_NEAR = 900
_SHORT_INSTRUCTIONS = 4_000
_ORDER = 1.5
_REST = 600
_LETTERS = 0.7
_CLEAR = 5.0
_HEADER = 2.1
_TAGGED = 0.7
_FENCES = ("```", '"""', "---", "===", "***", "###")
_WIDE = 0x2E80
_PLACEHOLDER = re.compile(r"[\[{<(][^\n]{0,300}[\]}>)]|\.{3}|…")
_FEW = 70
_LONGEST_QUESTION = 600
_LONG_TURN = 2_000
_WORTH = {"data": 1.0, "bullets": 0.5, "blank-line": 0.6, "lines": 0.4, "whole": 0.0, "headed": 1.0}
_WHOLE = ("tag", "data", "objects", "pairs")
_REQUEST = re.compile(r"(?:ください|下さい|なさい|하세요|해주세요|주세요|십시오)[。.]?\s*\Z")
_CODE = re.compile(
    r"^\s{0,20}(?:def |class |import |from \w+ import|function |const |let |var |public |private |#include|#define |SELECT |<\?|[{}][;,]?\s*$|diff --git|@@ |\+\+\+ |commit |return\b|module |require |package |fn |func |end\s*$|//|/\*|- [\w-]{1,30}: ?|[a-z][\w-]{0,30}:\s*(?:$|[\w./-]+$))",
    re.MULTILINE,
)
_SENTENCE = re.compile(r"[^\n.!?。]+[\n.!?。]?")


class Turn(NamedTuple):
    """What one message says, part by part."""

    role: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it; a blank line between two parts."""
        return "\n\n".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Question and passages of a prompt. `confidence` lies in (0, 1); `how` and `reason` are for people."""

    question: str | None
    contexts: tuple[Context, ...]
    confidence: float
    how: str
    reason: str


class _Judged(NamedTuple):
    points: float
    asked: Asked | None
    splitting: Splitting
    block: Block
    signs: list[str]


def read(turns: Sequence[Turn]) -> Reading | None:
    """Return the best reading whose points reach the threshold; None when nothing speaks for passages clearly enough."""
    best: _Judged | None = None
    for judged in _all(turns):
        if best is None or judged.points > best.points:
            best = judged
            if judged.points >= _CLEAR:
                break
    if best is None or best.points < THRESHOLD:
        return None
    return Reading(
        question=best.asked.text if best.asked is not None else None,
        contexts=best.splitting.items,
        confidence=1 / (1 + math.exp(-_SLOPE * (best.points - THRESHOLD))),
        how=f"{best.block.header or 'passages before the question'}, {best.splitting.name}",
        reason="; ".join(best.signs),
    )


def is_prompt(said: str) -> bool:
    """Say whether a user's turn is a whole prompt rather than a question: it announces passages and gives orders."""
    text = Text(said)
    if not candidates(text):
        return False
    position = 0
    for _ in range(60):
        end = said.find("\n", position)
        if text.is_meta(position, end if end >= 0 else len(said)):
            return True
        if end < 0:
            return False
        position = end + 1
    return False


def _all(turns: Sequence[Turn]) -> Iterator[_Judged]:
    last = next(
        (index for index in reversed(range(len(turns))) if turns[index].role == "user" and turns[index].text.strip()),
        None,
    )
    systems = [index for index, turn in enumerate(turns) if turn.role in ("system", "developer")]
    instructions = "\n".join(turns[index].text for index in systems[:4])[:_SHORT_INSTRUCTIONS]
    acknowledged = _acknowledged(turns, last)
    order = ([last] if last is not None else []) + list(reversed(systems[-8:])) + acknowledged
    question_turn = turns[last].text if last is not None else ""
    if last is not None and len(turns[last].parts) > 2 and (parts := _parts(turns[last], instructions)) is not None:  # noqa: PLR2004
        yield parts
    if last is not None:
        order += [
            index
            for index in reversed(range(max(last - _TURNS, 0), last))
            if turns[index].role == "user" and index not in order
        ]
        order += [
            index for index in (last - 1, last + 1) if 0 <= index < len(turns) and turns[index].role == "assistant"
        ]
    if (told := _json_prompt(question_turn)) is not None:
        yield told
    for index in order:
        said = turns[index].text
        if len(said) < 40:  # noqa: PLR2004 - no room for a passage
            continue
        text = Text(said)
        own = index == last
        beside = Text(instructions if own else "")
        for block in candidates(text)[:_TRIED]:
            if (
                not own
                and turns[index].role not in ("system", "developer")
                and index not in acknowledged
                and block.sure < 0.7
            ):  # noqa: PLR2004
                continue  # what was said before is no context unless it says so
            judged = _judge(text, block, own=own, question_turn=question_turn, beside=beside)
            if judged is not None:
                yield judged


def _json_prompt(said: str) -> _Judged | None:
    """A user's turn that is one JSON object: a question under its name, passages under theirs."""
    if said.strip()[:1] != "{" or not isinstance(value := decoded(said), dict) or len(value) > 40:  # noqa: PLR2004 - an app's few fields
        return None
    asked = passages = None
    for name, one in value.items():
        label = Text(str(name).replace("_", " ")[:60])
        kind = label_kind(label, 0, len(label.text))
        if kind is None:
            continue
        if kind[0] == "question" and isinstance(one, str) and asked is None:
            asked = Asked(one.strip(), 1.0, f"field {name!r}")
        elif kind[0] == "context" and isinstance(one, str | list | dict) and passages is None:
            passages = (
                name,
                split(one)
                if isinstance(one, str)
                else Splitting("data", tuple(found.context for found in listed(one)), 1.0),
            )
    if asked is None or passages is None or passages[1] is None or not passages[1].items or passages[1].odd:
        return None
    name, splitting = passages
    return _Judged(
        THRESHOLD + 1.5,
        asked,
        splitting,
        Block(0, 0, 0, 0, f"field {name!r}", 1.0),
        ["a JSON object with a question and passages"],
    )


def _acknowledged(turns: Sequence[Turn], last: int | None) -> list[int]:
    """Return earlier turns of the user that an assistant only acknowledged: excerpts come like that."""
    if last is None:
        return []
    return [
        index
        for index in range(max(last - 6, 0), last)
        if turns[index].role == "user"
        and turns[index + 1].role == "user"
        and index + 1 == last
        or turns[index].role == "user"
        and turns[index + 1].role == "assistant"
        and len(turns[index + 1].text) <= 200
        and not asks(turns[index].text)  # noqa: PLR2004
    ][-2:]


def _parts(turn: Turn, instructions: str) -> _Judged | None:
    """A part for each passage, and the question in the last one."""
    parts = [one for one in turn.parts if one.strip()]
    said, first = Text(instructions), Text(parts[0][:300])
    if len(parts) < 3 or not (
        said.any(("context", "pasted"), 0, len(instructions)) or first.any(("context", "pasted"), 0, 200)
    ):  # noqa: PLR2004
        return None
    asked = ask_turn(parts[-1])
    body = parts[:-1]
    if len(parts[0]) < 200 and (first.is_meta(0, 300) or parts[0].rstrip().endswith(":")):  # noqa: PLR2004 - a sentence in front
        body = body[1:]
    texts = [Text(one) for one in body]
    if (
        asked is None
        or not body
        or not all(reads_like_a_passage(one) or len(one) > 60 for one in body)
        or any(one.is_meta(0, len(one.text)) for one in texts)
    ):  # noqa: PLR2004
        return None
    found = [one for part in body if (one := split(part)) is not None]
    single = all(len(one.items) == 1 for one in found)
    contexts = tuple(one.items[0] for one in found) if single else tuple(Context(text=one.strip()) for one in body)
    return _Judged(
        THRESHOLD + 1.5,
        asked,
        Splitting("parts", contexts, 0.9),
        Block(0, 0, 0, 0, "content parts", 0.8),
        ["a content part for each passage"],
    )


def _judge(text: Text, block: Block, *, own: bool, question_turn: str, beside: Text) -> _Judged | None:
    """Add up the signs for and against one block; None when it holds nothing to read."""
    raw = text.text
    region = raw[block.start : block.end]
    around = ((block.outer_end, len(raw)), (0, block.outer_start))
    asked = ask(text, around) if own else ask_turn(question_turn) or ask(text, around)
    if own and asked is None and (ending := _asked_at_the_end(region)) is not None:
        asked, region = ending
    splitting = split(region)
    if splitting is None:
        return None
    points, signs = _HEADER * block.sure + 0.3 * (block.sure == 1.0), [block.header or "no header"]
    grounding = max(_grounding(text, block), _orders(beside, 0, len(beside.text)))
    if grounding:
        points += grounding
        signs.append("instructions to answer from sources")
    kind = splitting.name.partition(":")[0]
    many = len(splitting.items) > 1 or kind in _WHOLE
    points += _WORTH.get(kind, 1.2) if many else min(_WORTH.get(kind, 0.4), 0.4)
    signs.append(f"{len(splitting.items)} by {splitting.name}")
    points += _question_points(asked, own=own, signs=signs)
    points -= _against(text, block, splitting, asked, beside, own=own, grounding=grounding, signs=signs)
    return _Judged(points, asked, splitting, block, signs)


def _asked_at_the_end(region: str) -> tuple[Asked, str] | None:
    """A question without a label behind the last passage: its last paragraph, short and with a question mark."""
    before, _, last = region.rstrip().rpartition("\n\n")
    if before.strip() and len(last) <= _LONGEST_QUESTION and "\n" not in last.strip() and asks(last.strip()):
        said = Text(last)
        inner = ask(said, [(0, len(last))])
        return Asked(inner.text if inner is not None else last.strip(), 0.7, "last paragraph"), before
    return None


def _grounding(text: Text, block: Block) -> float:
    """Weigh what the instructions near the block say: to answer from what is given, or at least the words for it."""
    found = 0.0
    length = len(text.text)
    for start, end in (
        (max(block.outer_start - _NEAR, 0), block.start),
        (block.outer_end, min(block.outer_end + _NEAR, length)),
        (0, min(_NEAR, block.start)),
    ):
        found = max(found, _orders(text, start, end))
        if found >= _ORDER:
            break
    return found


def _orders(text: Text, start: int, end: int) -> float:
    """1.5 for a sentence that orders to answer from sources at hand, less for one that only speaks of them."""
    found = 0.0
    if not text.any(("context", "pasted", "weak"), start, end):
        return found
    for sentence in _SENTENCE.finditer(text.text, start, end):
        low, high = sentence.span()
        if not text.any(("context", "pasted", "weak"), low, high):
            continue
        points, addressed = text.any(("points", "below"), low, high), text.addresses(low, high)
        answers = text.any(("answer", "question"), low, high)
        if (points or addressed) and answers or (points and addressed and text.has("context", low, high)):
            return _ORDER
        if points and addressed:
            found = 0.6
    if text.any(("context", "pasted"), start, end) and text.any(("question", "answer"), start, end):
        found = max(found, 0.8)
    return found


def _question_points(asked: Asked | None, *, own: bool, signs: list[str]) -> float:
    if asked is None or not asked.text:
        signs.append("no question")
        return -1.6
    signs.append(f"question by {asked.how}")
    if not own:
        return 0.9 if len(asked.text) < _LONG_TURN else 0.2
    if asked.how != "remaining text":
        return 1.3 * asked.sure
    return 0.7 if asked.sure >= 0.8 else -0.8  # noqa: PLR2004 - with a question mark


def _against(
    text: Text, block: Block, splitting: Splitting, asked: Asked | None, beside: Text, *, own: bool, grounding: float, signs: list[str]
) -> float:
    points = 0.0
    region = text.text[block.start : block.end]
    kind = splitting.name.partition(":")[0]
    texts = [one.text for one in splitting.items][:20]
    if sum(_reads(one, 3 if block.sure >= _TAGGED and kind != "whole" else 20) for one in texts[:8]) < 0.5 * len(
        texts[:8]
    ):  # noqa: PLR2004
        points += 1.5
        signs.append("does not read like text")
    if not any(" " in one.strip() or ord(one.strip()[:1] or " ") >= _WIDE for one in texts) or all(
        _PLACEHOLDER.fullmatch(one.strip()) for one in texts
    ):
        points += 3.0
        signs.append("names or placeholders only")
    if len(_CODE.findall(region[:2_000])) > 1 and kind not in (*_WHOLE, "numbered"):
        points += 2.0
        signs.append("code")
    if kind in ("whole", "lines", "blank-line", "records") and len(region) < _FEW and not block.header.startswith("<"):
        points += 1.0
        signs.append("hardly any text")
    if _instructs(text, block, texts):
        points += 3.0
        signs.append("reads like instructions")
    if not block.header and text.addresses(block.start, block.end):
        points += 3.0
        signs.append("begins with instructions")
    if (re.findall(r"[\w'’]+", texts[0][:30].lower()) or [""])[0] in PERSON and own:
        points += 2.0
        signs.append("in the first person")
    if not own and block.sure < 0.9:  # noqa: PLR2004 - a long system prompt has sentences of every kind
        points += 1.0 * (len(text.text) - block.outer_end > _REST) + 1.5 * (block.outer_start > _SHORT_INSTRUCTIONS)
        fenced = any(one in text.text[block.outer_start : block.start] for one in _FENCES)
        if block.header.startswith("sentence") and not fenced and not text.has("context", block.outer_start, block.start):
            points += 2.0
        points += 0.8 * (block.header.startswith("sentence") and kind == "whole")
    points += _is_task(text, block, asked, beside, own=own, signs=signs)
    loose = kind in ("blank-line", "lines", "whole", "inline", "bullets")
    if not grounding and (block.header.startswith("sentence") or (not own and 0 < block.sure < 0.9)):  # noqa: PLR2004
        points += 0.8
        signs.append("nothing says to answer from it")
    if not grounding and not own and kind == "bullets":
        points += 0.6
    if kind == "tag" and len(_CODE.findall(texts[0][:1_500])) > 1:
        points += 2.0
        signs.append("code")
    if block.several and block.sure < 0.99:  # noqa: PLR2004 - tags of their own are clear
        points += 3.0
        signs.append("one of several blocks")
    if (
        splitting.odd
        or (loose and _speaks_of_itself(text, block))
        or _differs_at_the_end(texts)
        or (kind in ("blank-line", "lines") and any(len(one) < 12 or one.rstrip()[-1] in ":：" for one in texts))
    ):  # noqa: PLR2004
        points += 3.0
        signs.append("passages differ in form")
    return points


def _differs_at_the_end(texts: Sequence[str]) -> bool:
    """Whether only the last passage makes a request: it may be an instruction behind the passages."""
    if len(texts) < 2:  # noqa: PLR2004 - nothing to compare with
        return False
    return _REQUEST.search(texts[-1]) is not None and not any(_REQUEST.search(one) for one in texts[:-1])


def _speaks_of_itself(text: Text, block: Block) -> bool:
    """Whether the first or the last lines of a block use words that only a prompt uses, of itself."""
    raw = text.text
    start = block.start
    while start < block.end and raw[start] in " \t\n":
        start += 1
    head = raw.find("\n", start, block.end)
    tail = raw.rfind("\n", block.start, block.end)
    return head >= 0 and (text.has("itself", start, head) or text.has("itself", tail, block.end))


def _reads(text: str, least: int) -> bool:
    """Whether a text is words rather than figures, symbols or code, by its beginning."""
    sample = text[:300]
    letters, blanks = sum(map(str.isalpha, sample)), sum(map(str.isspace, sample))
    return letters >= least and letters >= _LETTERS * (len(sample) - blanks) and not _CODE.match(sample)


def _instructs(text: Text, block: Block, texts: Sequence[str]) -> bool:
    """Whether the block tells the model what to do: by the beginnings of its lines, and its first passage's."""
    raw = text.text
    addressed = meta = lines = 0
    position = block.start
    while position < block.end and lines < 40:  # noqa: PLR2004 - enough to tell
        end = raw.find("\n", position, block.end)
        end = block.end if end < 0 else end
        if raw[position:end].strip():
            lines += 1
            addressed += text.addresses(position, end)
            meta += text.is_meta(position, end)
        position = end + 1
    first = Text(texts[0][:300])
    return lines > 0 and (meta > 0.3 * lines or addressed >= 0.5 * lines or (first.is_meta(0, 300) and len(texts) < 3))  # noqa: PLR2004


def _is_task(text: Text, block: Block, asked: Asked | None, beside: Text, *, own: bool, signs: list[str]) -> float:
    """A task on a text that the user gave: translate, summarize. A question that stands by its label is none."""
    if asked is not None and asked.how != "remaining text" and own:
        return 0.0
    said = Text(asked.text[:400] if asked is not None else "")
    around = (
        text.has("task", 0, block.outer_start) or text.has("task", block.outer_end, len(text.text)) if own else False
    )
    system = beside if own else text
    orders = system.has("task", 0, min(len(system.text), _SHORT_INSTRUCTIONS)) and not system.has(
        "question", 0, _SHORT_INSTRUCTIONS
    )
    if around or said.has("task", 0, 400) or orders:
        signs.append("a task on the text")
        return 2.5
    return 0.0

"""Reads question and passages of a prompt: the candidate the fitted model finds likeliest, or nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

from msgspec import Struct

from gaugeway.data_files import table
from gaugeway.exchange import Request
from gaugeway.prompts import messages_of, text_parts
from gaugeway.prompts.form.candidates import blocks_of, contexts
from gaugeway.prompts.form.features import Asked, asked_of, nested, of_block, of_line, of_place, of_question
from gaugeway.prompts.form.lines import Line, behind_label, lines_of
from gaugeway.prompts.form.text import Block, Seen, Text, weight
from gaugeway.prompts.form.word_index import IndexedText
from gaugeway.prompts.notation import decoded
from gaugeway.prompts.parse import with_ends
from gaugeway.prompts.sizes import BOOK, FEW, HALF, LABEL, MANY, PAGE, QUARTER, SEVERAL, TENTH
from gaugeway.records import Context

MOST_TURNS = 200
"""Messages read of a longer conversation: the first `SEVERAL`, which describe the app, and the last ones."""
_BREAKS = dict.fromkeys(map(ord, "\x0b\x0c\x85\u2028\u2029"), "\n")
_OPENING_OF_TURN = re.compile(
    r"<\|(?:im_start|start_header_id|start_of_role)\|>(?P<marked>\w{1,20})(?:<\|(?:end_header_id|end_of_role)\|>)?\n*"
    r"|(?:<\||<start_of_turn>)(?P<plain>system|user|assistant|documents?|context|model)(?:\|>)?\n*",
    re.IGNORECASE,
)
_TOKENS = re.compile(
    r"<\|(?:im_start|start_header_id)\|>(?:system|user|assistant)\b|<start_of_turn>(?:user|model)\b|"
    r"<(?:\|[^|<>\n]{1,30}\|>|/?s>|</?SYS>>|(?:start|end)_of_turn>|(?:bos|eos)>)|\[/?INST\]"
)
"""Tokens that chat templates put between turns, including the role."""
_TOKEN_ENDS = ("|>", "s>", "INST]", "SYS>>", "_of_turn>")
_TURN_ENDS = re.compile(r"<\|[^|<>\n]{1,30}\|>|</?s>|<end_of_turn>")
FINALISTS = 6
_SYSTEM = ("system", "developer")
_MARKED = ("label", "heading", "bracket", "bold", "open", "close", "rule")
MOST_TEXT = BOOK
"""Characters of a message that is read by its form; the most also of all messages of a request together."""
THRESHOLD = HALF
_FAR, _LEAD = 30.0, 6.0
_used: dict[str, Any] = {}


class Turn(NamedTuple):
    """One message: its role and the texts of its content parts."""

    role: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole text; parts are separated by a blank line."""
        return "\n\n".join(self.parts)


class Reading(Struct, frozen=True, kw_only=True):
    """Question and passages of a prompt. `confidence` is in (0, 1); `how` and `reason` are shown to users."""

    question: str | None
    contexts: tuple[Context, ...]
    confidence: float
    how: str
    reason: str


def turns_of(request: Request) -> list[Turn]:
    """Return the messages of a request with their texts, part by part."""
    turns = [Turn(_role_in(message), _parts_of(message)) for message in messages_of(request)]
    if len(turns) == 1 and len(turns[0].parts) == 1 and "<" in turns[0].text:
        turns = _by_tokens(turns[0]) or turns
    turns = _joined([_without_tokens(turn) for turn in turns])
    if turns and turns[-1].text.lstrip()[:1] == "{":
        turns[-1] = _by_members(turns[-1])
    return turns if len(turns) <= MOST_TURNS else turns[:SEVERAL] + turns[SEVERAL - MOST_TURNS :]


def _parts_of(message: dict[str, Any]) -> tuple[str, ...]:
    """Return the texts of a message; every character that breaks a line is a line break."""
    return tuple(part if part.isascii() else part.translate(_BREAKS) for part in text_parts(message.get("content")))


def _without_tokens(turn: Turn) -> Turn:
    """Return a message without the tokens of a chat template."""
    if not any(end in part for part in turn.parts for end in _TOKEN_ENDS):
        return turn
    return Turn(turn.role, tuple(_TOKENS.sub("", part) for part in turn.parts))


def _joined(turns: list[Turn]) -> list[Turn]:
    """Join the messages of a user at the end into one, a part each: some apps send a message for each passage."""
    first = len(turns)
    while first and turns[first - 1].role == "user" and len(turns) - first <= MANY:
        first -= 1
    if not FEW <= len(turns) - first <= MANY:
        return turns
    return [*turns[:first], Turn("user", tuple(part for turn in turns[first:] for part in turn.parts))]


def _by_members(turn: Turn) -> Turn:
    """Return a message that is one JSON object as text, with a label for each member."""
    value = decoded(turn.text) if len(turn.text) <= BOOK else None
    if not isinstance(value, dict) or not 1 < len(value) <= MANY:
        return turn
    said = [(key, one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) for key, one in value.items()]
    return Turn(turn.role, ("\n\n".join(f"{str(key).replace('_', ' ')}:\n{one}" for key, one in said),))


def _by_tokens(turn: Turn) -> list[Turn]:
    """Return the turns of a conversation rendered with a chat template's tokens; [] when there are no such tokens."""
    text = turn.text
    openings = list(islice(_OPENING_OF_TURN.finditer(text), MOST_TURNS))
    if not any(_role_of(opening) == "user" for opening in openings):
        return []
    return [
        Turn(_role_of(opening), (_TURN_ENDS.sub("", text[opening.end() : end]).strip(),))
        for opening, end in with_ends(openings, len(text))
    ]


def _role_of(opening: re.Match[str]) -> str:
    role = (opening["marked"] or opening["plain"]).lower()
    return role if role in ("user", "assistant") else "assistant" if role == "model" else "system"


def _role_in(message: dict[str, Any]) -> str:
    role = message.get("role")
    return role if isinstance(role, str) else ""


class Candidate(NamedTuple):
    """A block with its passages, question and features."""

    block: Block
    contexts: list[Context]
    asked: Asked | None
    values: dict[str, float]


def finalists(turns: Sequence[Turn], most: int) -> Iterator[tuple[Seen, Block, list[Context]]]:
    """Yield the blocks of each message that their place speaks for most, with their passages."""
    for seen in _messages(turns):
        for block, _ in _likeliest(seen, most):
            if found := contexts(seen.text, block):
                yield seen, block, found


def candidates(turns: Sequence[Turn], most: int = FINALISTS) -> Iterator[Candidate]:
    """Yield the likeliest candidates of each message with all of their features."""
    whole = next((turn.text.strip() for turn in reversed(turns) if turn.role == "user" and turn.text.strip()), "")
    asking = Asked(_behind_its_label(whole), "last user turn", {"q asks": float(whole[-1:] in "?？")})
    rank = weights_of("rank")
    for seen in _messages(turns):
        scored: list[tuple[float, int, Block, list[Context], dict[str, float]]] = []
        likeliest = _likeliest(seen, most)
        for block, place in likeliest:
            if found := contexts(seen.text, block):
                values = place | of_block(seen, block, found) | nested(block, likeliest)
                scored.append((score(rank, values), -len(scored), block, found, values))
        scored.sort(key=lambda one: one[:2], reverse=True)
        for _, _, block, found, values in scored[: max(FEW, most // 2)]:
            points, asked = _asked(seen, block, found) if seen.own else (0.0, asking)
            if asked is not None and len(found) == 1 and found[0].text.strip() == asked.text:
                continue  # the arguments of a search, not what it found
            yield Candidate(block, found, asked, values | of_question(asked, points, own=seen.own))


def _messages(turns: Sequence[Turn]) -> Iterator[Seen]:
    """Yield the messages that may hold passages: the user's last one and some before it, and the system's."""
    last = next((i for i in reversed(range(len(turns))) if turns[i].role == "user" and turns[i].text.strip()), None)
    if last is None:
        return
    system = "\n".join(turn.text for turn in turns if turn.role in _SYSTEM)[:PAGE]
    beside, nothing = IndexedText(system), IndexedText("")
    others = [i for i in reversed(range(len(turns))) if i != last and _may_hold(turns[i], i, last)]
    left = MOST_TEXT
    for index in (last, *others):
        turn, own = turns[index], index == last
        if LABEL <= len(turn.text) <= left:
            left -= len(turn.text)
            read = Text.of(turn.text)
            if len(turn.parts) >= FEW:
                starts = accumulate((len(part) + 2 for part in turn.parts[:-1]), initial=0)
                read.parts = tuple((at, at + len(part)) for at, part in zip(starts, turn.parts, strict=True))
            yield Seen(read, IndexedText(turn.text), own, turn.role, beside if own else nothing)


def _may_hold(turn: Turn, index: int, last: int) -> bool:
    return turn.role in _SYSTEM or (turn.role == "user" and last - FEW <= index < last)


def _behind_its_label(text: str) -> str:
    """Return a turn without the label of the question in front of it."""
    first = next(iter(lines_of(text, 0, min(len(text), PAGE))), None)
    if first is None or first.kind != "field":
        return text
    at = behind_label(text, first)
    return text[at:].strip() if IndexedText(text[:at]).has("question", 0, at) else text


def question_in(text: str) -> str | None:
    """Return the question in a prompt whose passages are elsewhere; None where the text is no prompt.

    A prompt labels the question; or it has lines of several forms (labels, headings, tags), and what may be the
    question is a small part of it.
    """
    if len(text) > MOST_TEXT:
        return None
    seen = Seen(Text.of(text), IndexedText(text), own=True, role="user", beside=IndexedText(""))
    weights = weights_of("question")
    every = [
        (score(weights, asked.values), asked) for asked in asked_of(seen, Block(0, 0, None, None, "whole", (), ()))
    ]
    points, asked = max(every, key=lambda one: one[0], default=(0.0, None))
    if asked is None or sum(math.exp(other - points) for other, said in every if said.text != asked.text) > TENTH:
        return None
    labelled = bool(asked.values.get("q labelled question")) and seen.words.has("context", 0, len(text))
    marked = sum(line.kind in _MARKED for line in seen.text.lines) >= FEW and len(asked.text) < QUARTER * len(text)
    return asked.text if (labelled or marked) and asked.text else None


def may_be_asked(seen: Seen, block: Block, found: Sequence[Context]) -> list[Asked]:
    """Return the stretches beside a block that may be the question."""
    last = seen.text.raw.rfind(found[-1].text, block.start, block.end)
    if last >= 0 and not block.inside:  # what the last record does not keep may be the question
        block = block._replace(end=last + len(found[-1].text))
    return list(asked_of(seen, block))


def _asked(seen: Seen, block: Block, found: Sequence[Context]) -> tuple[float, Asked | None]:
    """Return the likeliest question beside a block, with its points."""
    weights = weights_of("question")
    every = [(score(weights, asked.values), asked) for asked in may_be_asked(seen, block, found)]
    return max(every, key=lambda one: one[0], default=(0.0, None))


def _likeliest(seen: Seen, most: int) -> list[tuple[Block, dict[str, float]]]:
    """Return the blocks that their place speaks for most, with those features."""
    first = weights_of("place")
    lines: dict[tuple[str, int], tuple[float, dict[str, float]]] = {}

    def of(name: str, line: Line | None) -> tuple[float, dict[str, float]]:
        key = name, -1 if line is None else line.start
        if key not in lines:
            values = of_line(name, line, seen)
            lines[key] = score(first, values), values
        return lines[key]

    scored = []
    for number, block in enumerate(blocks_of(seen.text, lambda line: of("opener", line)[0])):
        values = of_place(seen, block)
        points = score(first, values)
        for name, line in (("opener", block.opener), ("closer", block.closer), *_first_lines(seen.text, block)):
            more, said = of(name, line)
            points += more
            values |= said
        scored.append((points, -number, block, values))
    scored.sort(key=lambda one: one[:2], reverse=True)
    return [(block, values) for _, _, block, values in scored[:most]]


def _first_lines(text: Text, block: Block) -> Iterator[tuple[str, Line]]:
    """Yield the first line of the first and of the last record: one with a label may be the prompt's own."""
    if block.frame is None and not block.data and block.split != "tag":
        for name, (start, _) in zip(("first", "final"), dict.fromkeys((block.spans[0], block.spans[-1])), strict=False):
            line = text.line_from(start)
            if line is not None and not text.raw[start : line.start].strip():
                yield name, line


def use(weights: dict[str, Any]) -> None:
    """Read with these weights from now on; for the script that fits them."""
    _used.clear()
    _used.update(weights, fitted={})


def weights_of(name: str) -> dict[str, Any]:
    """Return the weights of one of the linear models, by feature, or the trees of `accept`."""
    if not _used:
        _used.update(table("gaugeway.prompts.form", "weights.json"))
        _used["accept"] = table("gaugeway.prompts.form", "trees.json")
    found: dict[str, Any] = _used.get(name, {})
    return found


def score(weights: Mapping[str, float], values: Mapping[str, float]) -> float:
    """Return the points of a candidate."""
    get = weights.get
    return sum([get(name, 0.0) * value for name, value in values.items()])


def log_odds(values: Mapping[str, float]) -> float:
    """Return the log-odds that a reading is right: the sum of decision trees (gradient boosting, Friedman 2001).

    A node of a tree is [feature, border, branch up to the border, branch above it], a leaf a number.
    """
    model = weights_of("accept")
    row = [values.get(name, 0.0) for name in model["features"]]
    odds = model["base"]
    for tree in model["trees"]:
        node = tree
        while isinstance(node, list):
            feature, border, up_to, above = node
            node = up_to if row[feature] <= border else above
        odds += node
    return float(odds)


def chosen(every: Sequence[Candidate], weights: Mapping[str, float]) -> tuple[Candidate, dict[str, float]] | None:
    """Return the candidate with the most points, and by how much it leads those with other passages."""
    scored = sorted(((score(weights, one.values), -number) for number, one in enumerate(every)), reverse=True)
    if not scored:
        return None
    points, first = scored[0][0], every[-scored[0][1]]
    texts = [passage.text for passage in first.contexts]
    others = [other for other, number in scored[1:] if [passage.text for passage in every[-number].contexts] != texts]
    lead = min(_LEAD, points - others[0]) if others else _LEAD
    share = 1.0 / (1.0 + sum(math.exp(max(-_FAR, other - points)) for other in others))
    return first, {"_lead": lead, "_share": share, "_alone": float(not others)}


def read(turns: Sequence[Turn]) -> Reading | None:
    """Return the likeliest reading; None where it is likelier that nothing was retrieved, or that it is wrong."""
    found = chosen(list(candidates(turns)), weights_of("rank"))
    if found is None:
        return None
    one, choice = found
    if len(one.contexts) == 1 and weight(one.contexts[0].text) < LABEL:
        return None
    odds = log_odds(one.values | choice)
    sure = 1.0 / (1.0 + math.exp(-max(-_FAR, min(odds, _FAR))))
    if sure < THRESHOLD:
        return None
    opener = one.block.opener
    raw = next((turn.text for turn in turns if opener and turn.text[opener.start : opener.end]), "")
    header = raw[opener.start : min(opener.end, opener.start + LABEL)].strip() if opener else "no line before them"
    division = f"{len(one.contexts)} by {one.block.split}"
    asked = f"question by {one.asked.how}" if one.asked else "no question"
    return Reading(
        question=one.asked.text if one.asked else None,
        contexts=tuple(one.contexts),
        confidence=sure,
        how=f"{header}, {one.block.split}",
        reason=f"{header}; {division}; {asked}",
    )

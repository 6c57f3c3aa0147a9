"""Changes a captured request as a candidate wants it: its instructions, or fewer of its passages. Pure.

A prompt is changed exactly or not at all: what the app itself would have sent must follow from the text. Otherwise
NotExactError says why, and the exchange is left out of a comparison rather than compared with something else.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

from gaugeway.exchange import Request
from gaugeway.prompts import Extraction, messages_of, text_of
from gaugeway.prompts.passage_records import shared_length
from gaugeway.prompts.prompt_parts import locate
from gaugeway.records import Context

_PROMPT_KEYS = ("system", "instructions", "messages", "input", "prompt")
_NUMBER = re.compile(r"(?<![\d.,])\d{1,4}(?![\d.,]*\d)")
"""A number that may count records: no decimal, no year and day."""
_MARKS = re.compile(r"[\W_]*")
_VALUE = re.compile(r"\d|\w\W{0,3}[:=\uff1a]\s*\S")
"""In a line beside the records: it may be a field of the one next to it."""
_DIGITS = re.compile(r"\d{1,4}")
_SHORTEST_NAME = 4
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
_PLACE = "\0"
"""Stands in a record's head where its number does."""


class NotExactError(ValueError):
    """The request cannot be changed exactly; the message is a short snake_case word, a label."""


class _Block(NamedTuple):
    """The passages of a request as they stand in one of its texts, that of a `message`.

    `before[i]` is what stands before passage i and after the one before it, or the record's head before the first.
    `rest` is the text before the records and behind them.
    """

    message: int
    text: str
    question: str
    before: list[str]
    passages: list[str]
    tail: str
    rest: tuple[str, str]

    @property
    def whole(self) -> str:
        return "".join(map("".join, zip(self.before, self.passages, strict=True))) + self.tail

    def itself(self, _: int | None) -> _Block:
        return self

    def shared(self, first: int | None) -> _Block:
        """Return the block with the edges that agree with what is between passages: whole lines at the end."""
        last, (above, below) = len(self.passages) - 1, self.rest
        above, below = above + self.before[0], self.tail + below
        form = _numbered(self.before[-1], last - 1, last, first)
        tail = form[: shared_length(form, below)].rpartition("\n")[0]
        form = _numbered(self.before[min(last, 1)], 1, 0, first).removeprefix(_numbered(tail, last, 0, first))
        head = form[len(form) - shared_length(form[::-1], above[::-1]) :]
        rest = above[: len(above) - len(head)], below[len(tail) :]
        return self._replace(before=[head, *self.before[1:]], tail=tail, rest=rest)


class _Records(NamedTuple):
    """What the records of all passages have in common, and their heads; numbers count from `first`, if they do."""

    heads: list[str]
    separator: str
    tail: str
    first: int | None

    def written(self, passages: Sequence[tuple[int, str]]) -> str:
        """Return the records of these passages, each with its old place, with the numbers of the new ones."""
        last, first = len(self.heads) - 1, self.first or 0
        return self.separator.join(
            self.heads[old].replace(_PLACE, str(new + first)) + text + _numbered(self.tail, last, new, self.first)
            for new, (old, text) in enumerate(passages)
        )


def without_passages(
    route: str, body: dict[str, Any], question: str | None, contexts: Sequence[Context], keeps: Callable[[int], bool]
) -> tuple[dict[str, Any], tuple[Context, ...]]:
    r"""Return the body with only the passages whose index `keeps`, and these. Raises NotExactError.

    >>> body = {"messages": [{"role": "user", "content": "Sources:\n[1] Ships sink.\n[2] Tides turn.\n\nWhy?"}]}
    >>> passages = [Context(text="Ships sink."), Context(text="Tides turn.")]
    >>> without_passages("chat_completions", body, "Why?", passages, lambda index: index == 1)[0]["messages"][0]
    {'role': 'user', 'content': 'Sources:\n[1] Tides turn.\n\nWhy?'}
    """
    left = [index for index in range(len(contexts)) if keeps(index)]
    if not left:
        raise NotExactError("no_passages_left" if contexts else "no_passages")
    if len(left) == len(contexts):
        raise NotExactError("unchanged")
    block, records = _records(_block(route, body, question, contexts), contexts, (_Block.itself, _Block.shared))
    _check_rest(block, left, contexts)
    new = records.written([(index, block.passages[index]) for index in left])
    return _replaced(route, body, (block.message, block.text), block.whole, new), tuple(
        contexts[index] for index in left
    )


def with_instructions(
    route: str, body: dict[str, Any], question: str | None, contexts: Sequence[Context], instructions: str
) -> dict[str, Any]:
    """Return the body with other instructions; `{context}` and `{question}` are filled in. Raises NotExactError."""
    if "{context}" in instructions:
        if len(contexts) == 1:
            raise NotExactError("one_passage")  # nothing shows where its record begins and ends
        block, _ = _records(_block(route, body, question, contexts), contexts, (_Block.itself,))
        _check_rest(block, (), contexts)
        if "{question}" not in instructions and block.question:
            raise NotExactError("question_in_prompt")
        filled = {"{context}": block.whole, "{question}": block.question or (question or "")}
        new = re.sub(r"\{(?:context|question)\}", lambda match: filled[match[0]], instructions)
        return _replaced(route, body, (block.message, block.text), block.text, new)
    request = Request(route=route, headers={}, body=body)
    found = [message for message in locate(request, _extraction(question, contexts)).now if message.role == "system"]
    texts = [message for message in found if message.text.strip()]
    if not texts:
        return _with_system(route, body, instructions)
    if len(texts) > 1:
        raise NotExactError("several_system_prompts")
    if texts[0].records or any(passage is not None for _, _, passage in texts[0].found):
        raise NotExactError("passages_in_system_prompt")
    return _replaced(route, body, (texts[0].index, texts[0].text), texts[0].text, instructions)


def _with_system(route: str, body: dict[str, Any], instructions: str) -> dict[str, Any]:
    """Add instructions to a request without any."""
    if route in ("messages", "responses"):
        return {**body, {"messages": "system", "responses": "instructions"}[route]: instructions}
    if route != "chat_completions" or not isinstance(body.get("messages"), list):
        raise NotExactError("no_system_prompt")
    return {**body, "messages": [{"role": "system", "content": instructions}, *body["messages"]]}


def _extraction(question: str | None, contexts: Sequence[Context]) -> Extraction:
    return Extraction(question=question, contexts=tuple(contexts), source="trial")


def _block(route: str, body: dict[str, Any], question: str | None, contexts: Sequence[Context]) -> _Block:
    """Find all passages in one text, one behind the other, with nothing but their records between them."""
    located = locate(Request(route=route, headers={}, body=body), _extraction(question, contexts))
    holders = [
        message for message in (*located.now, *located.earlier) if any(p is not None for _, _, p in message.found)
    ]
    if len(holders) != 1 or holders[0].role == "tool":
        raise NotExactError("passages_not_together")
    message = holders[0]
    places = [(start, end, passage) for start, end, passage in message.found if passage is not None]
    if [passage for _, _, passage in places] != list(range(len(contexts))) or len(message.records) != 1:
        raise NotExactError("passages_not_found")
    first, last = message.records[0]
    asked = [message.text[start:end] for start, end, passage in message.found if passage is None]
    inside = any(first <= start < last for start, _, passage in message.found if passage is None)
    if len({*asked}) > 1 or inside:
        raise NotExactError("question_among_passages")
    text = message.text
    between = [text[end:start] for (_, end, _), (start, _, _) in pairwise(places)]
    before = [text[first : places[0][0]], *between]
    return _Block(
        message.index,
        text,
        asked[0] if asked else "",
        before,
        [text[start:end] for start, end, _ in places],
        text[places[-1][1] : last],
        (text[:first], text[last:]),
    )


def _records(
    block: _Block, contexts: Sequence[Context], ways: Sequence[Callable[[_Block, int | None], _Block]]
) -> tuple[_Block, _Records]:
    """Take apart what stands between passages: the end of a record, a separator, the head of the next record.

    Ends, separators and heads must be the same but for their numbers. Where heads hold more, it must be the passage's
    own, its source or id: else it might belong to the record before, or to the place. Raises NotExactError.
    """
    for first, edges in product((1, 0, None), ways):
        at = edges(block, first)
        if (records := _alike(at, first)) is None:
            continue
        numbers = [[int(number) for number in _DIGITS.findall(head)] for head in records.heads]
        if all(numbers) and (
            all(len(contexts) in said for said in numbers)
            or any(_counts([said[place % len(said)] for said in numbers], None) for place in (0, 1, -1))
        ):
            raise NotExactError("records_differ")  # numbers of a kind that we do not understand
        bare = [_without_names(head, context) for head, context in zip(records.heads, contexts, strict=True)]
        if len({*bare}) == 1:
            return at, records
    raise NotExactError("records_differ")


def _alike(block: _Block, first: int | None) -> _Records | None:
    """Return the records if they have one form, with numbers from `first` on, or without any."""
    last = len(block.passages) - 1
    ends = [_numbered(block.tail, last, index, first) for index in range(last)]
    if not all(map(str.startswith, block.before[1:], ends)):
        return None
    rests = [text[len(end) :] for text, end in zip(block.before[1:], ends, strict=True)]
    lead, *runs = ["".join(_MARKS.findall(text)[:1]) for text in (block.before[0], *rests)]
    separators = {run.removesuffix(lead) if run.endswith(lead) else None for run in runs}
    separator = separators.pop() if separators else ""
    if separators or separator is None:
        return None
    heads = [block.before[0], *(rest[len(separator) :] for rest in rests)]
    if len({(head.count("\n"), head == lead) for head in heads}) > 1:
        return None
    if first is None:
        return _Records(heads, separator, block.tail, None)
    for place in (0, -1):
        found = [[*_NUMBER.finditer(head)][place:][:1] for head in heads]
        if all(found) and _counts([int(number[0]) for (number,) in found], first):
            cut = [(head[: at.start()], head[at.end() :]) for head, (at,) in zip(heads, found, strict=True)]
            if len({(start, end)[place] for start, end in cut}) == 1:
                return _Records([f"{start}{_PLACE}{end}" for start, end in cut], separator, block.tail, first)
    return _Records(heads, separator, block.tail, first) if ends != [block.tail] * last else None


def _counts(numbers: Sequence[int], first: int | None) -> bool:
    """Whether numbers count up from `first`; without it, up or down from any."""
    if first is not None:
        return list(numbers) == list(range(first, first + len(numbers)))
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    return steps in ({1}, {-1})


def _numbered(text: str, old: int, new: int, first: int | None) -> str:
    """Return the end of the record at `old` as that of the record at `new`."""
    if first is None:
        return text
    return _NUMBER.sub(lambda number: str(new + first) if int(number[0]) == old + first else number[0], text)


def _without_names(head: str, context: Context) -> str:
    """Return a head without what is the passage's own, and without figures where that was."""
    lines = []
    for line in head.split("\n"):
        bare = line
        for name in _names_of(context):
            bare = bare.replace(name, "")
        lines.append(bare if bare == line else _FIGURE.sub("", bare))
    return "\n".join(lines)


def _names_of(context: Context) -> list[str]:
    """Return what identifies a passage: a shorter id may be a number of any kind, which belongs to a place."""
    return [name for name in (context.source, context.id) if name and len(name) >= _SHORTEST_NAME]


def _check_rest(block: _Block, left: Sequence[int], contexts: Sequence[Context]) -> None:
    """Raise NotExactError where the rest of a prompt counts the passages, or says something of a dropped one."""
    dropped = [index for index in range(len(contexts)) if index not in left]
    above, below = (text.replace(block.question, "") if block.question else text for text in block.rest)
    beside = [above.removesuffix("\n").split("\n")[-1]] * (0 in dropped)
    beside += [below.removeprefix("\n").split("\n")[0]] * (len(contexts) - 1 in dropped)
    cut = any(map(str.isalnum, block.tail)) and below[:1] not in ("", "\n")
    if cut or any(map(_VALUE.search, beside)):
        raise NotExactError("value_beside_passages")
    rest = f"{above}\n{below}"
    names = [name for index in dropped for name in (*_names_of(contexts[index]), contexts[index].text)]
    if str(len(contexts)) in _NUMBER.findall(rest) or any(name in rest for name in names):
        raise NotExactError("passages_named_elsewhere")


def _replaced(route: str, body: dict[str, Any], message: tuple[int, str], old: str, new: str) -> dict[str, Any]:
    """Replace a text that stands exactly once in the prompt, in that message. Raises NotExactError."""
    changed, places = copy.deepcopy(body), [0]

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            places[0] += value.count(old)
            return value.replace(old, new)
        if isinstance(value, list):
            return [walk(item) for item in value]
        return {key: walk(item) for key, item in value.items()} if isinstance(value, dict) else value

    for key in _PROMPT_KEYS:
        if key in changed:
            changed[key] = walk(changed[key])
    if places[0] != 1:
        raise NotExactError("text_not_unique")
    before, after = (
        [text_of(said.get("content")) for said in messages_of(Request(route=route, headers={}, body=one))]
        for one in (body, changed)
    )
    before[message[0]] = message[1].replace(old, new)
    if after != before:
        raise NotExactError("text_not_unique")
    return changed

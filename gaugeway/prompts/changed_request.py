"""Changes a captured request as a candidate wants it: its instructions, or fewer of its passages. Pure.

A prompt is changed exactly or not at all: what the app itself would have sent must follow from the text. Otherwise
NotExactError says why, and the exchange is left out of a comparison rather than compared with something else.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from gaugeway.exchange import Request
from gaugeway.prompts import Extraction
from gaugeway.prompts.prompt_parts import locate
from gaugeway.records import Context

_PROMPT_KEYS = ("system", "instructions", "messages", "input", "prompt")
_NUMBER = re.compile(r"\d+")


class NotExactError(ValueError):
    """The request cannot be changed exactly; the message is a short snake_case word, a label."""


class _Block(NamedTuple):
    """The passages of a request as they stand in one of its texts.

    `before[i]` is what stands before passage i and after the one before it, or the record's head before the first.
    """

    text: str
    question: str
    before: list[str]
    passages: list[str]
    tail: str

    @property
    def whole(self) -> str:
        return "".join(map("".join, zip(self.before, self.passages, strict=True))) + self.tail


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
    block = _block(route, body, question, contexts)
    before = [block.before[index] for index in left]
    if left != list(range(len(left))):
        if left[0] != 0:
            before[0] = _head(block, left[0])
        before = _renumbered(block, left, before)
    new = "".join(map("".join, zip(before, (block.passages[index] for index in left), strict=True))) + block.tail
    return _replaced(body, block.whole, new), tuple(contexts[index] for index in left)


def with_instructions(
    route: str, body: dict[str, Any], question: str | None, contexts: Sequence[Context], instructions: str
) -> dict[str, Any]:
    """Return the body with other instructions; `{context}` and `{question}` are filled in. Raises NotExactError."""
    if "{context}" in instructions:
        block = _block(route, body, question, contexts)
        if "{question}" not in instructions and block.question:
            raise NotExactError("question_in_prompt")
        filled = {"{context}": block.whole, "{question}": block.question or (question or "")}
        new = re.sub(r"\{(?:context|question)\}", lambda match: filled[match[0]], instructions)
        return _replaced(body, block.text, new)
    request = Request(route=route, headers={}, body=body)
    found = [message for message in locate(request, _extraction(question, contexts)).now if message.role == "system"]
    texts = [message for message in found if message.text.strip()]
    if not texts:
        return _with_system(route, body, instructions)
    if len(texts) > 1:
        raise NotExactError("several_system_prompts")
    if texts[0].records or any(passage is not None for _, _, passage in texts[0].found):
        raise NotExactError("passages_in_system_prompt")
    return _replaced(body, texts[0].text, instructions)


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
        text,
        asked[0] if asked else "",
        before,
        [text[start:end] for start, end, _ in places],
        text[places[-1][1] : last],
    )


def _head(block: _Block, index: int) -> str:
    """Return the head of a passage's record: what stands before it without the end of the record before."""
    between, first = block.before[index], block.before[0]
    if not between.startswith(block.tail):
        raise NotExactError("records_differ")
    rest = between[len(block.tail) :]
    at = rest.find(first[0]) if first else len(rest)
    if at < 0 or any(map(str.isalnum, rest[:at])):
        raise NotExactError("records_differ")
    return rest[at:]


def _renumbered(block: _Block, left: Sequence[int], before: Sequence[str]) -> list[str]:
    """Number the records anew where they are numbered."""
    counted = [[int(number) for number in _NUMBER.findall(head) if len(number) < 5] for head in block.before]  # noqa: PLR2004 - a year at most
    for first in (0, 1):
        if all(numbers.count(index + first) == 1 for index, numbers in enumerate(counted)):
            return [
                re.sub(rf"(?<!\d){old + first}(?!\d)", str(new + first), head)
                for new, (old, head) in enumerate(zip(left, before, strict=True))
            ]
    if all(counted):
        raise NotExactError("records_differ")  # numbers of a kind that we do not understand
    return list(before)


def _replaced(body: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Replace a text that stands exactly once in the prompt."""
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
    return changed

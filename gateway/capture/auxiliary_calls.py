"""Auxiliary calls, which are not answers to a user: question rewriting, titles, tags, keywords, tool calls.

Apps make several calls around each answer; scored as answers, they would distort every mean. They are recognised by a
turn that only calls tools; by the output that the request demands and gets; by words at the beginning or end of an
instruction, where retrieved passages cannot put them: phrases of the products' prompts and, last, anybody's; and by a
structured answer without prose. When in doubt, a call is an answer.

LlamaIndex and LangChain refine an answer passage by passage. A refine call contains only one of the passages that its
text is based on, so it counts as auxiliary unless the answer before is known (`gateway.capture.intermediate_steps`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, Literal

import msgspec

from gateway.capture.demanded_output import begins_with_a_demand, by_demand, choices_in, json_in, speaks_of_output
from gateway.capture.instructions import (
    DIRECTIVES,
    ENDINGS,
    PRODUCTS,
    Role,
    asked_for,
    is_a_programs,
    is_transcript,
    restricts,
    wants_an_answer,
)
from gateway.capture.output_fields import Field, by_schema, holds_prose, is_answer, table, verdict_of
from gaugeway.exchange import DECISION_ROUTES, Request, Response
from gaugeway.prompts import messages_as_sent, messages_of, text_of
from gaugeway.prompts.parse import leaves
from gaugeway.prompts.written_steps import label_of_call
from gaugeway.text.phrases import Phrases

MAX_INSTRUCTION = 3_000
"""Characters of an instruction in which labels, scales and fields are looked for, half of them at either end."""
_DATA, _COMPARED = 60_000, 4_000
_LABEL, _TITLE, _QUESTION = 32, 80, 500
_LEAST_QUESTIONS = 3
_ITEMS, _SENTENCES, _MOST_LEAVES = 24, 100, 2_000
_ADDITION = 18
"""Characters of a sentence that only adds to the one before: "One word."."""
_PROSE_WORDS, _SENTENCE_WORDS = 12, 4
_FULL_STOPS, _QUESTION_MARKS = (".", "!", "\u3002"), ("?", "\uff1f")
_COLONS = (":", "\uff1a")
_FIRST_WIDE = "\u0e00"
_NUMBER = re.compile(r"\d{1,3}(?:[.,]\d{1,3})?")
_SCALE = re.compile(
    r"(?<![\w.,\[(])([01])(?:\s?\([^()\d\n]{1,40}\))?\s?(?:[-\u2013\u2014~/\uff5e]|[^\W\d]{1,4})\s?(\d{1,3})(?![\w\])])"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|[\n\u3002\uff01\uff1f]+")
_WORD, _CHOICES = re.compile(r"[^\W_]{4,}"), re.compile(r"[^\W_]+")
_ITEM = re.compile(r"\A(?:[-*\u2022]|\d{1,2}[.)\u3001])\s*")
_SPEAKER = re.compile(
    r"^[ \t]*([^\W\d_][^\n:\uff1a.?!]{0,20}?)[ \t]?(?::(?=[ \t]|[^\x00-\x7f])|\uff1a)[ \t]*(?=\S)", re.MULTILINE
)
_MARKS = " \t\r\n.\u3002!\"'`*"


def by_form(systems: list[str], user: list[str], sent: list[str], response: str) -> str | None:
    """Return the kind of call; `sent` is the user's text as it was, empty where passages were found. Linear time."""
    said = response.rpartition("</think>")[2].strip()
    role: Role = "system" if any(map(str.strip, systems)) else "user"
    instruction = "\n".join(systems if role == "system" else user)
    if len(instruction) > MAX_INSTRUCTION:
        instruction = f"{instruction[: MAX_INSTRUCTION // 2]}\n{instruction[-MAX_INSTRUCTION // 2 :]}"
    kind = _of_output(instruction, said) or _of_data("\n".join(sent)[-_DATA:].strip(), said, alone=role == "user")
    return kind if kind is not None and instruction.strip() and is_a_programs(instruction, role) else None


def is_data(value: Any) -> bool:
    """Whether a JSON answer is pure data: no field named like an answer, and no prose."""
    for name, leaf in islice(leaves(value), _MOST_LEAVES):
        words = len(leaf.split(None, _PROSE_WORDS))
        if (
            words >= _PROSE_WORDS
            or (words >= _SENTENCE_WORDS and leaf.rstrip()[-1:] in _FULL_STOPS)
            or (words > 1 and holds_prose(name))
        ):
            return False
    return value is not None


def _of_output(instruction: str, said: str) -> str | None:
    """Return the kind of an output that the instruction names: a label, a number of a scale, fields."""
    if isinstance(fields := json_in(said), dict) and fields:
        if any(key not in instruction or is_answer(key) for key in fields) or not is_data(fields):
            return None
        verdict = verdict_of(Field(key, isinstance(value, str)) for key, value in fields.items())
        demanded = "json" in instruction.lower() or instruction.endswith("}")
        if not (demanded or speaks_of_output(instruction, instruction.find(next(iter(fields))))):
            return None
        return "extraction" if verdict is None else None if verdict.by_response else verdict.kind
    if _NUMBER.fullmatch(bare := said.strip(_MARKS)):
        value = float(bare.replace(",", "."))
        scales = islice(_SCALE.finditer(instruction), _ITEMS)
        return "grading" if any(float(scale[1]) <= value <= float(scale[2]) for scale in scales) else None
    if bare and len(bare) <= _LABEL and "\n" not in bare:
        return "routing" if _is_a_choice(instruction, bare.lower()) else None
    return None


def _is_a_choice(instruction: str, label: str) -> bool:
    """Whether the instruction demands one of some labels: in its sentence, or in a short one behind it."""
    whole = re.compile(rf"\b{re.escape(label)}\b" if label < _FIRST_WIDE else re.escape(label))
    if any(label in options for options in choices_in(instruction)):
        return True
    for sentence, following in pairwise([*_SENTENCE.split(instruction.lower())[:_SENTENCES], ""]):
        if whole.search(sentence) is None:
            continue
        if label in table().values and not table().values.isdisjoint(set(_CHOICES.findall(sentence)) - {label}):
            return True
        listed = _ITEM.sub("", sentence).startswith(label) and _ITEM.match(sentence) is not None
        near = instruction.lower() if listed else f"{sentence} {following if len(following) <= _ADDITION else ''}"
        if restricts(near) or begins_with_a_demand(sentence):
            return True
    return False


def _of_data(data: str, said: str, *, alone: bool) -> str | None:
    """Return the kind of an output that answers no user: a conversation is only quoted, or a question only repeated."""
    items = _items(said)
    asks = bool(items) and all(item.endswith(_QUESTION_MARKS) for item in items)
    labels = list(islice(_SPEAKER.finditer(data), _SENTENCES))
    speakers = [label[1] for label in labels]
    is_quoted = (is_transcript(data) and len(speakers) > 1) or len(set(speakers)) < len(speakers)
    label = data.rpartition("\n")[2].strip(" #*")
    begins = label.endswith(_COLONS) and label[:-1] not in speakers if alone else _SPEAKER.match(data) is not None
    if is_quoted and speakers[-1] != speakers[0] and begins and (asks or not _ends_with_a_question(data, labels)):
        short = len(said) <= _TITLE and "\n" not in said and not said.endswith((*_FULL_STOPS, ","))
        return "follow_ups" if asks else "tags" if len(items) > 1 else "title" if short else "summary"
    if not asks:
        return None
    words, own = _words(data), list(map(_words, items))
    if len(items) == 1:
        return "standalone_question" if is_quoted and 2 * len(words & own[0]) >= len(own[0]) else None
    repeats = all(words & one for one in own) and 3 * sum(len(words & one) for one in own) >= sum(map(len, own))
    is_a_question = len(data) <= _QUESTION and any(mark in data for mark in _QUESTION_MARKS)
    return "multi_query" if len(items) >= _LEAST_QUESTIONS and is_a_question and repeats else None


def _ends_with_a_question(data: str, labels: list[re.Match[str]]) -> bool:
    """Whether behind a conversation something is asked under a label of its own: "New question: ..."."""
    last = labels[-1]
    once = sum(label[1] == last[1] for label in labels) == 1 < len(labels) - 1
    return once and any(mark in data[last.end() :] for mark in _QUESTION_MARKS)


def _items(said: str) -> list[str]:
    """Return the entries of a JSON list, or the lines of a text without their numbers."""
    value = json_in(said)
    lines = said.split("\n", _ITEMS) if value is None else [leaf for _, leaf in islice(leaves(value), _ITEMS)]
    return [_ITEM.sub("", line.strip()) for line in lines if line.strip()]


def _words(text: str) -> set[str]:
    """Return the beginnings of the words of a text, or its pairs of characters where there are no blanks."""
    if max((text := text[-_COMPARED:].lower()), default="") >= _FIRST_WIDE:
        return {f"{first}{second}" for first, second in pairwise(text) if first.isalnum() and second.isalnum()}
    return {word[:5] for word in _WORD.findall(text)}


_HEAD, _TAIL = 1500, 320
MOST_REMEMBERED = 1_000
"""System messages whose verdict is kept: `_HEAD` and `_TAIL` characters of each. An app has a few."""


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `words`, in lower case, occur at the beginning of an instruction, and all of `ends` at its end.

    `role` is the role of the message.
    """

    kind: str
    words: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    role: Literal["system", "user", "any"] = "any"


_RULES = msgspec.convert(PRODUCTS, tuple[_Rule, ...])
DECISION = "decision"
KINDS = {rule.kind for rule in _RULES} | {directive.kind for directive in DIRECTIVES} | {DECISION}
"""All values that `auxiliary` may return."""

_ENDINGS = tuple(ENDINGS)
_PHRASES = Phrases(phrase for rule in _RULES for phrase in (*rule.words, *rule.ends))
_MARKUP = "*_`#> \n\t"


def auxiliary(request: Request, response: Response, without: Sequence[str] = ()) -> str | None:
    """Return the kind of auxiliary call, one of `KINDS`; None for an answer. Linear time, never raises.

    The texts `without` do not count as instructions: passages and a question that were found in the messages.
    """
    if request.route in DECISION_ROUTES:
        return DECISION
    if response.by_tool:
        return None
    if only_calls_tools(response) or _calls_in_words(request, response):
        return "tool_call"
    if (schema := by_schema(request.body, request.route)) == "answer":
        return None
    if (kind := schema or _by_texts(request, response, without)) is not None:
        return kind
    return "extraction" if _asks_for_json(request) and is_data(json_in(response.text)) else None


def _by_texts(request: Request, response: Response, without: Sequence[str]) -> str | None:
    """Return the kind that the system messages and the last user's text say."""
    if request.explicit is not None and request.explicit.contexts:
        return None
    messages = list(messages_as_sent(request))
    systems = [text_of(said.get("content")) for said in messages if said.get("role") in ("system", "developer")]
    user = [text_of(said.get("content")) for said in messages if said.get("role") == "user"][-1:]
    sent = [] if without else user
    for said in sorted(without, key=len, reverse=True):  # one may stand in another
        systems = [text.replace(said, " ") for text in systems]
        user = [text.replace(said, " ") for text in user]
    if (demanded := by_demand(systems, user, response.text)) is not None and demanded != "answer":
        return demanded
    if _brings_results(messages_of(request)):
        return None
    # Words do not make a call auxiliary that gave the answer which was demanded, nor an agent's.
    any_words = demanded is None and not request.body.get("tools")
    instructions: list[tuple[str, Role]] = [*((text, "system") for text in systems), *((text, "user") for text in user)]
    answers = any(wants_an_answer(text[:_HEAD].lower()) for text in systems)
    for text, role in instructions:
        # Under a message that asks to answer, the words of a user's turn are data.
        if (kind := _by_instruction(text, role, any_words=any_words and not (answers and role == "user"))) is not None:
            return kind
    return by_form(systems, user, sent, response.text) if any_words else None


def _calls_in_words(request: Request, response: Response) -> bool:
    """Whether a response is an agent's call, written as the request says: `Action: ...`, `Action Input: ...`."""
    if (label := label_of_call(response.text)) is None:
        return False
    texts = (text_of(said.get("content")) for said in messages_as_sent(request))
    return any(label in text for text in texts)


def only_calls_tools(response: Response) -> bool:
    """Whether a response asks for tools instead of answering."""
    if response.by_tool:
        return False
    asks = response.finish_reason in ("tool_calls", "function_call")
    return asks or (response.tool_calls > 0 and not response.text.strip())


def _brings_results(messages: list[dict[str, Any]]) -> bool:
    """Whether tools gave passages: what is said about them is no template of a product."""
    for message in reversed(messages):
        if message.get("role") in ("tool", "function") or message.get("type") == "function_call_output":
            return True
        if message.get("role") == "user":
            return False
    return False


def _by_instruction(text: str, role: Role, *, any_words: bool) -> str | None:
    """Return the kind of call a message asks for. Verdicts on system messages are cached: they recur."""
    seen = text if len(text) <= _HEAD + _TAIL else text[:_HEAD] + text[-_TAIL:]
    return _remembered(seen, any_words) if role == "system" else _verdict(seen, role, any_words=any_words)


@lru_cache(maxsize=MOST_REMEMBERED)
def _remembered(text: str, any_words: bool) -> str | None:  # noqa: FBT001 - a key of the cache
    return _verdict(text, "system", any_words=any_words)


def _verdict(text: str, role: Role, *, any_words: bool) -> str | None:
    """Classify an instruction; `text` holds only the first and last characters of a long one."""
    said, ending = _PHRASES.found_in(_plain(text[:_HEAD])), _plain(text[-_TAIL:])
    ends = _PHRASES.found_in(ending)
    for rule in _RULES:
        if rule.role in ("any", role) and said.issuperset(rule.words) and ends.issuperset(rule.ends):
            return rule.kind
    if ending.rstrip(_MARKUP).endswith(_ENDINGS):
        return "standalone_question"
    return asked_for(text, role) if any_words else None


def _plain(text: str) -> str:
    """Normalise a prompt: lower case, single spaces, straight apostrophes, no bold."""
    return " ".join(text.lower().replace("\u2019", "'").replace("**", "").split())


def _asks_for_json(request: Request) -> bool:
    wanted = request.body.get("response_format")
    if request.route == "responses":
        text = request.body.get("text")
        wanted = text.get("format") if isinstance(text, dict) else None
    return isinstance(wanted, dict) and wanted.get("type") in ("json_schema", "json_object")

"""Auxiliary calls, which are not answers to a user: question rewriting, titles, tags, keywords, tool calls.

Apps make several calls around each answer; scored as answers, they would distort every mean. They are recognised by a
turn that only calls tools; by the output that the request demands and gets; by words at the beginning or end of an
instruction, where retrieved passages cannot put them: phrases of the products' prompts and, last, anybody's; and by a
structured answer without prose. When in doubt, a call is an answer.

LlamaIndex and LangChain refine an answer passage by passage. A refine call contains only one of the passages that its
text is based on, so it counts as auxiliary unless the answer before is known (`gateway.capture.intermediate_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from gateway.capture.demanded_output import by_demand, json_in
from gateway.capture.instructions import (
    DIRECTIVES,
    ENDINGS,
    LENGTH_OF_START,
    PRODUCTS,
    Role,
    WordStarts,
    asked_for,
    wants_an_answer,
)
from gateway.capture.output_fields import by_schema
from gateway.capture.output_forms import by_form, is_data
from gaugeway.exchange import Request, Response
from gaugeway.prompts import messages_as_sent, messages_of, text_of
from gaugeway.prompts.written_steps import label_of_call
from gaugeway.text.cache import TextCache

_HEAD, _TAIL = 1500, 320
_LEAD = 40
MOST_REMEMBERED = 1_000
"""System messages whose verdict is kept: `_HEAD` and `_TAIL` characters of each. An app has a few."""


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `words`, in lower case, occur at the beginning of an instruction (or at its end, if `tail`).

    `role` is the role of the message.
    """

    kind: str
    words: tuple[str, ...]
    role: Literal["system", "user", "any"] = "any"
    tail: bool = False


_RULES = msgspec.convert(PRODUCTS, tuple[_Rule, ...])
KINDS = {rule.kind for rule in _RULES} | {directive.kind for directive in DIRECTIVES}
"""All values that `auxiliary` may return."""

_REFINES = "given the new context, refine the original answer"
_ENDS = tuple(ENDINGS)
_MARKUP = "*_`#> \n\t"


_COMMON = frozenset(["following", "question", "questions", "context", "document", "documents", "answer"])


def _rarest(rule: _Rule) -> str:
    """A word without which the rule cannot fit, roughly the longest one."""
    words = (word for words in rule.words for word in words.split())
    return max(words, key=lambda word: (word not in _COMMON, len(word)))


_TAIL_RULES = tuple(rule for rule in _RULES if rule.tail)
_RULES_AT: dict[str, list[tuple[int, str, _Rule]]] = {}
for _index, _rule in enumerate(_RULES):
    if not _rule.tail:
        _RULES_AT.setdefault(_rarest(_rule)[:LENGTH_OF_START], []).append((_index, _rarest(_rule), _rule))
_rule_starts = WordStarts(frozenset(_RULES_AT))


class _Head(NamedTuple):
    """The beginning of an instruction in lower case, and the rules of which it has the rarest word, in order."""

    low: str
    rules: tuple[_Rule, ...]


_heads: TextCache[_Head] = TextCache()
"""Of long texts: instructions recur, and so do the passages behind them."""


def auxiliary(request: Request, response: Response, without: Sequence[str] = ()) -> str | None:
    """Return the kind of auxiliary call, one of `KINDS`; None for an answer. Linear time, never raises.

    The texts `without` do not count as instructions: passages and a question that were found in the messages.
    """
    if response.by_tool:
        return None
    if only_calls_tools(response) or _calls_in_words(request, response):
        return "tool_call"
    schema = by_schema(request.body, request.route)
    if schema == "answer":
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
    demanded = by_demand(systems, user, response.text)
    if demanded is not None and demanded != "answer":
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
    if user and _refines(messages, user[0]):
        return "refine"
    return by_form(systems, user, sent, response.text) if any_words else None


def _calls_in_words(request: Request, response: Response) -> bool:
    """Whether a response is an agent's call, written as the request says: `Action: ...`, `Action Input: ...`."""
    label = label_of_call(response.text)
    if label is None:
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
    head, low_tail = _head_of(text[:_HEAD]), text[-_TAIL:].lower()
    low_head = head.low
    if (rule := _fixed_words(head, low_tail, role)) is not None:
        return rule.kind
    ending = low_tail.rstrip()
    if ending.endswith("<standalone question>") or ending.rstrip(_MARKUP).endswith(_ENDS):
        return "standalone_question"
    if ending.endswith("new answer:") and "new context:" in _plain(low_head):
        return "refine"
    return asked_for(text, role) if any_words else None


def _head_of(text: str) -> _Head:
    if (known := _heads.get(text)) is not None:
        return known
    low = text.lower()
    tried = sorted(entry for start in _rule_starts.of_lines(low) for entry in _RULES_AT[start])
    rules = tuple(rule for _, word, rule in tried if word in low)
    head = _Head(low, rules)
    if len(text) == _HEAD:
        _heads.put(text, head)
    return head


def _fixed_words(head: _Head, low_tail: str, role: Role) -> _Rule | None:
    rules = [rule for rule in head.rules if rule.role in ("any", role)]
    if rules:
        plain = _plain(head.low)
        for rule in rules:
            if rule.words[0] in plain and all(word in plain for word in rule.words[1:]):
                return rule
    ends = [rule for rule in _TAIL_RULES if rule.words[0][: _LEAD // 2] in low_tail]
    return next((rule for rule in _TAIL_RULES if ends and all(word in _plain(low_tail) for word in rule.words)), None)


def _refines(messages: list[dict[str, Any]], text: str) -> bool:
    """Whether the call refines an answer that the prompt quotes, or (LangChain, chat) that is the previous turn."""
    tail = text[-_TAIL:].lower()
    if ("refine" not in tail and "**" not in tail) or _REFINES not in _plain(tail):
        return False
    head = _plain(text[:_HEAD])
    if "we have provided an existing answer" in head:
        return True
    answered = [one.get("role") for one in messages[-3:]] == ["user", "assistant", "user"]
    return answered and head.startswith("we have the opportunity to refine the existing answer")


def _plain(text: str) -> str:
    """Normalise a prompt: lower case, single spaces, straight apostrophes, no bold."""
    return " ".join(text.lower().replace("\u2019", "'").replace("**", "").split())


def _asks_for_json(request: Request) -> bool:
    wanted = request.body.get("response_format")
    if request.route == "responses":
        text = request.body.get("text")
        wanted = text.get("format") if isinstance(text, dict) else None
    return isinstance(wanted, dict) and wanted.get("type") in ("json_schema", "json_object")

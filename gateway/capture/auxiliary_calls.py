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
from typing import Any, Literal

import msgspec

from gateway.capture.demanded_output import by_demand, json_in
from gateway.capture.instructions import DIRECTIVES, ENDINGS, PRODUCTS, Role, asked_for, wants_an_answer
from gateway.capture.output_fields import by_schema
from gateway.capture.output_forms import by_form, is_data
from gaugeway.exchange import DECISION_ROUTES, Request, Response
from gaugeway.prompts import messages_as_sent, messages_of, text_of
from gaugeway.prompts.written_steps import label_of_call
from gaugeway.text.phrases import Phrases

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

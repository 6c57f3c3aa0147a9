"""Auxiliary calls, which are not answers to a user: question rewriting, titles, tags, keywords, tool calls.

Apps make several calls around each answer; scored as answers, they would distort every mean. They are recognised by
fixed phrases of the products' prompts at the beginning or end of an instruction, where retrieved passages cannot put
them; by a turn that only calls tools; and by a structured answer without prose. When in doubt, a call is an answer.

LlamaIndex and LangChain refine an answer passage by passage, and no call shows whether it is the last one. All refine
calls count as auxiliary: each contains only one of the passages that its text is based on, so it cannot be judged by
that passage. The call before them, the first answer from the first passages, is judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from gateway.capture.demanded_output import Demand, by_schema, choice_of, demands_of, meets
from gateway.capture.instructions import Role, WordStarts, asked_for, is_a_programs, wants_an_answer
from gateway.capture.instructions.directives import LENGTH_OF_START, Kind
from gateway.capture.output_fields import holds_prose
from gateway.contexts import messages_of, text_of
from gateway.exchange import Request, Response
from monitors.text_cache import TextCache

KINDS: frozenset[str] = frozenset(get_args(Kind))
"""All values that `auxiliary` may return."""

_HEAD, _TAIL = 1500, 320
_BEGINNING, _END = 2400, 1200
"""Characters of an instruction at either end in which the output may be demanded."""
_LEAD = 40
MOST_REMEMBERED = 1_000
"""System messages of which is kept what they say: `_BEGINNING` and `_END` characters of each. An app has a few."""

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class _Rule:
    """All of `words`, in lower case, occur at the beginning of an instruction (or at its end, if `tail`).

    `role` is the role of the message. A user writes "user" messages, so their phrases must be ones no user would type.
    """

    kind: Kind
    words: tuple[str, ...]
    role: Literal["system", "user", "any"] = "any"
    tail: bool = False


_RULES = (
    # LangChain, Flowise, LlamaIndex: condense a follow-up with the conversation.
    _Rule("standalone_question", ("follow up", "rephrase the follow up", "standalone question")),
    _Rule("standalone_question", ("follow-up", "rephrase the follow-up", "standalone question")),
    _Rule("standalone_question", ("rewrite the message to be a standalone question",)),
    _Rule("standalone_question", ("formulate a standalone question", "chat history"), "system"),
    _Rule("standalone_question", ("do not answer the question", "reformulate it", "chat history"), "system"),
    _Rule("standalone_question", ("you are an ai question rephraser",)),
    _Rule("standalone_question", ("generate a full user question that would follow the conversation",)),  # RAGFlow
    # Several questions out of one.
    _Rule("multi_query", ("different versions of the given user", "vector")),
    _Rule("multi_query", ("generates multiple search queries", "single input query")),
    _Rule("multi_query", ("search queries, one on each line",)),
    _Rule("multi_query", ("generates multiple sub-questions related to an input question",)),
    # What to look for.
    _Rule("query_generation", ("given the above conversation", "generate a search query")),
    _Rule("query_generation", ("given the above chat history", "generate a search query")),
    _Rule("query_generation", ("given a user question, and a list of tools", "sub-questions")),
    _Rule("query_generation", ("paraphrase a question to a more generic step-back question",)),
    _Rule("query_generation", ("structure the user's query to match the request schema",)),
    _Rule("query_generation", ("## task", "questions about a given piece of text content")),
    _Rule("hypothetical_document", ("please write a passage to answer the question",)),
    _Rule("keywords", ("keywords/phrases of a given piece of text content",)),
    _Rule("keywords", ("given the question, extract up to", "keywords from the text")),
    _Rule("keywords", ("extract up to", "keywords from the text", "avoid stopwords")),
    _Rule("translation", ("## role", "a streamlined multilingual translator")),
    # About the conversation.
    _Rule("title", ("word-or-less title for the conversation",)),
    _Rule("title", ("analyze this conversation and provide", "title in the detected language")),
    _Rule("title", ("generate a concise title (max 40 characters)", "conversation that starts with")),
    _Rule("title", ("you need to decompose the user's input into", '"intention"')),
    _Rule("title", ("chat title by decomposing the user's input",)),
    _Rule("title", ("summarize the intent of what the human said and provide a title",), tail=True),
    _Rule("title", ("generate a short title based on the first message",)),
    _Rule("title", ("you are a title generator",), "system"),
    _Rule("tags", ("## task", "add tags (labels) to a given piece of text content")),
    _Rule("follow_ups", ("predict the three most likely questions",)),
    _Rule("follow_ups", ("predict the three most likely questions",), tail=True),
    _Rule("follow_ups", ("please help me predict", "questions that human would ask")),
    _Rule("follow_ups", ("related questions", "based on a user's original query")),
    _Rule("emoji", ("reflect the speaker's likely facial expression through a fitting emoji",)),
    _Rule("summary", ("progressively summarize the lines of conversation",)),
    _Rule("summary", ("generate a short summary of the following conversation",)),
    # About passages.
    _Rule("refine", ("we have provided an existing answer", "refine the existing answer")),
    _Rule("refine", ("strictly operates in two modes when refining existing answers",)),
    _Rule("refine", ("we have provided an existing answer", "refine the original answer")),
    _Rule("rerank", ("a list of documents is shown below", "respond with the numbers of the documents")),
    _Rule("grading", ("you are a grader assessing",)),
    _Rule("grading", ("return yes if the context is relevant to the question and no if it isn't",)),
    _Rule("extraction", ("extract any part of the context *as is* that is relevant to answer the question",)),
    _Rule("extraction", ("use the following portion of a long document to see if any of the text is relevant",)),
    _Rule("routing", ("some choices are given below", "numbered list", "corresponds to a summary")),
    _Rule("tool_call", ("choose and return the correct tool(s) from the list of available tools",)),
)

# Open WebUI's tasks share one frame and differ in the first words of the task.
_WEBUI_TASKS: tuple[tuple[str, Kind], ...] = (
    ("title", "title"),
    ("tags", "tags"),
    ("follow-up", "follow_ups"),
    ("search queries", "query_generation"),
    ("autocompletion system", "autocomplete"),
    ("image generation", "image_prompt"),
)
_WEBUI_WORDS = 400

# Common phrasings of custom apps.
_TITLE = re.compile(
    r"\b(?:generate|create|write|provide|produce|suggest|make)\W+(?:[\w'-]+\W+){0,8}?"
    r"titles?\W+(?:[\w'-]+\W+){0,12}?(?:conversation|chat|dialogue|dialog)\b"
)
_REWRITE = re.compile(
    r"\b(?:rephrase|rewrite|reformulate|turn|condense|convert)\b[^.\n]{0,160}?"
    r"\b(?:standalone|stand-alone|self-contained)\W+(?:[\w'-]+\W+){0,3}?(?:question|query|message|request)\b"
)
_IN_ANY_WORDS = ("title", "alone", "self-contained")
_ANSWERS_TOO = re.compile(r"\b(?:then|and|finally|before you|to) answer\b")
_REFINES = "given the new context, refine the original answer"
_ENDS = (
    "standalone question:",
    "standalone query:",
    "<standalone question>",
    "rephrased question:",
    "rewritten query:",
)
_MARKUP = "*_`#> \n\t"
_COLONS = (":", "\uff1a")

_PROSE_WORDS, _SENTENCE_WORDS = 12, 4
_FULL_STOPS = (".", "!", "\u3002")
_DEEPEST, _MOST_LEAVES = 6, 2000


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
    """The beginning of an instruction in lower case, and the rules of which it has the rarest word, in order.

    `telling`: it has one of `_IN_ANY_WORDS`.
    """

    low: str
    rules: tuple[_Rule, ...]
    telling: bool


_heads: TextCache[_Head] = TextCache()
"""Of long texts: instructions recur, and so do the passages behind them."""


class _Reading(NamedTuple):
    """What an instruction says: the kind of a product's prompt, the output it demands, and what its words ask for."""

    fixed: Kind | None
    demands: tuple[Demand, ...] = ()
    choice: Demand | None = None
    asked: Kind | None = None


def auxiliary(request: Request, response: Response) -> str | None:
    """Return the kind of auxiliary call, one of `KINDS`; None for an answer. Linear time, never raises."""
    if response.by_tool:
        return None
    if only_calls_tools(response):
        return "tool_call"
    if (demanded := by_schema(request.body, request.route)) is not None and demanded.kind == "answer":
        return None
    messages = messages_of(request)
    if not _brings_contexts(request, messages):
        if demanded is not None:
            return demanded.kind
        systems = [text_of(one.get("content")) for one in messages if one.get("role") in ("system", "developer")]
        users = [text_of(one.get("content")) for one in messages if one.get("role") == "user"]
        agent = bool(request.body.get("tools"))
        readings = [_reading(text, "system", response, agent=agent) for text in systems]
        readings += [_reading(text, "user", response, agent=agent) for text in users[-1:]]
        kind = _kind_of(readings, response, agent=agent)
        if kind is not None:
            return None if kind == "answer" else kind
        if users and _refines(messages, users[-1]):
            return "refine"
    return "extraction" if _asks_for_json(request) and _is_data(response.text) else None


def only_calls_tools(response: Response) -> bool:
    """Whether a response asks for tools instead of answering."""
    if response.by_tool:
        return False
    asks = response.finish_reason in ("tool_calls", "function_call")
    return asks or (response.tool_calls > 0 and not response.text.strip())


def _kind_of(readings: list[_Reading], response: Response, *, agent: bool) -> str | None:
    """Return the kind that the instructions of a request say, "answer" among them; None where they say none."""
    for reading in readings:
        if reading.fixed is not None:
            return reading.fixed
    for reading in reversed(readings):
        for demand in reading.demands:
            if meets(demand, response.text):
                return demand.verdict.kind
        choice = reading.choice
        if choice is not None and not agent and (choice.ends or meets(choice, response.text)):
            return choice.verdict.kind
    return next((reading.asked for reading in readings if reading.asked is not None), None)


def _brings_contexts(request: Request, messages: list[dict[str, Any]]) -> bool:
    """Whether the client gave passages apart from the text: what it says about them is no template of a product."""
    if request.explicit is not None and request.explicit.contexts:
        return True
    for message in reversed(messages):
        if message.get("role") in ("tool", "function") or message.get("type") == "function_call_output":
            return True
        if message.get("role") == "user":
            return False
    return False


def _reading(text: str, role: Role, response: Response, *, agent: bool) -> _Reading:
    """Return what a message says. What system messages say is cached: they recur."""
    if text[:_LEAD].lstrip()[:3] == "###" and (task := _webui_task(text)) is not None:
        return _Reading(task)
    seen = text if len(text) <= _BEGINNING + _END else text[:_BEGINNING] + text[-_END:]
    if role == "system":
        return _remembered(seen, agent)
    choosing = len(response.text) < _LEAD or seen.rstrip(_MARKUP)[-1:] in _COLONS
    return _read(seen, role, agent=agent, choosing=choosing)


@lru_cache(maxsize=MOST_REMEMBERED)
def _remembered(text: str, agent: bool) -> _Reading:  # noqa: FBT001 - a key of the cache
    return _read(text, "system", agent=agent, choosing=True)


def _read(text: str, role: Role, *, agent: bool, choosing: bool) -> _Reading:
    """Read an instruction; `text` holds only the first and last characters of a long one."""
    if (kind := _in_known_words(text, role)) is not None:
        return _Reading(kind)
    choice = choice_of(text) if choosing else None
    if choice is not None and not is_a_programs(text, role):
        choice = None
    return _Reading(None, demands_of(text), choice, None if agent else asked_for(text, role))


def _in_known_words(text: str, role: Role) -> Kind | None:
    """Return the kind of an instruction in the words of a product, or in words that nearly all use."""
    head, low_tail = _head_of(text[:_HEAD]), text[-_TAIL:].lower()
    low_head = head.low
    if (rule := _fixed_words(head, low_tail, role)) is not None:
        return rule.kind
    ending = low_tail.rstrip()
    if ending.endswith("<standalone question>") or ending.rstrip(_MARKUP).endswith(_ENDS):
        return "standalone_question"
    if ending.endswith("new answer:") and "new context:" in _plain(low_head):
        return "refine"
    # In everybody's words: from a user without a conversation to work on, this would be the question itself, and in a
    # long list of an assistant's duties it is but one of them.
    if head.telling:
        alone = len(text) <= _HEAD if role == "system" else _holds_a_transcript(text[:_HEAD])
        return _in_any_words(_plain(low_head)) if alone else None
    return None


def _head_of(text: str) -> _Head:
    if (known := _heads.get(text)) is not None:
        return known
    low = text.lower()
    tried = sorted(entry for start in _rule_starts.of_lines(low) for entry in _RULES_AT[start])
    rules = tuple(rule for _, word, rule in tried if word in low)
    head = _Head(low, rules, any(word in low for word in _IN_ANY_WORDS))
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


def _webui_task(text: str) -> Kind | None:
    head = _plain(text[:_HEAD])
    if not head.startswith("### task:") or ("<chat_history>" not in text and "### Chat History" not in text):
        return None
    return next((kind for words, kind in _WEBUI_TASKS if words in head[:_WEBUI_WORDS]), None)


def _in_any_words(head: str) -> Kind | None:
    if wants_an_answer(head):
        return None
    if _TITLE.search(head):
        return "title"
    return "standalone_question" if _REWRITE.search(head) and not _ANSWERS_TOO.search(head) else None


def _plain(text: str) -> str:
    """Normalise a prompt: lower case, single spaces, straight apostrophes, no bold."""
    return " ".join(text.lower().replace("\u2019", "'").replace("**", "").split())


def _holds_a_transcript(text: str) -> bool:
    lines = [line.lstrip("*-> ").lower() for line in text.split("\n")]
    asked = any(line.startswith(("user:", "human:", "question:")) for line in lines)
    return asked and any(line.startswith(("assistant:", "ai:", "bot:", "answer:")) for line in lines)


def _asks_for_json(request: Request) -> bool:
    wanted = request.body.get("response_format")
    if request.route == "responses":
        text = request.body.get("text")
        wanted = text.get("format") if isinstance(text, dict) else None
    return isinstance(wanted, dict) and wanted.get("type") in ("json_schema", "json_object")


def _is_data(text: str) -> bool:
    """Whether a JSON answer is pure data: no field named like an answer, and no prose."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "["):
        return False
    try:
        value = _decode(stripped.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    for name, leaf in islice(_leaves(value, "", 0), _MOST_LEAVES):
        words = len(leaf.split(None, _PROSE_WORDS))
        if (
            words >= _PROSE_WORDS
            or (words >= _SENTENCE_WORDS and leaf.rstrip()[-1:] in _FULL_STOPS)
            or (words > 1 and holds_prose(name))
        ):
            return False
    return True


def _leaves(value: Any, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield every string with the name of its field."""
    if isinstance(value, str):
        yield name, value
    elif depth < _DEEPEST:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from _leaves(inner, key, depth + 1)
        elif isinstance(value, list):
            for inner in value:
                yield from _leaves(inner, name, depth + 1)

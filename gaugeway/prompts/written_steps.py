"""Reads the steps of an agent that are written as text: an action, its result, the next action.

An agent that does not use an API for tools writes them with labels: `Action: search`, `Observation: ...`. They stand
in one text, or the action in the assistant's message and its result in the user's. They are returned as the messages
that such an API would have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from gaugeway.data_files import table
from gaugeway.prompts.form.word_index import IndexedText
from gaugeway.prompts.notation import printed
from gaugeway.prompts.parse import with_ends
from gaugeway.prompts.sizes import BOOK, CROWD, FEW, LABEL, PAGE

MOST_STEPS = CROWD
"""Labels of steps read in one text."""
MOST_TEXT = BOOK
"""Characters of a message up to which it is read for steps."""
WRITTEN = "gaugeway_written"
"""Key set on a tool's message that was written as text: instructions may follow the last one."""
WRITTEN_ID = "written-"
"""Begins the id of such a call; the message's number follows, and that of the step where the text has several."""
ASKED = "gaugeway_asked"
"""Key set on a user's message with steps in its text: the text from the question's label on."""
_KINDS_OF_STEPS = FEW
"""A step in one text has a call, its result, and a thought or arguments: a text about tools has not."""
_TAG, _TIMES, _ENCLOSING = LABEL, FEW, FEW
_CALL = PAGE
"""Characters of a call that are read for the tool's name and its arguments."""


def _pattern(labels: dict[str, list[str]]) -> re.Pattern[str]:
    words = sorted((word for listed in labels.values() for word in listed), key=len, reverse=True)
    return re.compile(
        r"\n[ \t]*(?P<open>[\[<({#*=_|-]{0,6}(?: ?## )?[ \t]?)"
        r"(?:(?:tool|function) [`\"']?(?P<tool>[a-z_][\w.-]{1,60})[`\"']? (?:returned|result|output|response)"
        rf"|(?P<word>{'|'.join(map(re.escape, words))})(?:[ _#-]?\d{{1,3}})?"
        r"(?:[ \t](?:(?:of|from|for)[ \t]|(?=[(`\"'])|(?=[a-z]+_))"
        r"[(`\"']{0,2}(?P<named>[a-z][\w.-]{1,60})[)`\"']{0,2})?)"
        r"(?P<close>[ \t]?(?:## ?)?[\])}>#*=_|-]{0,6})(?P<colon>[ \t]?[:\uff1a]\**)?(?=(?P<rest>[^\n]?))",
        re.IGNORECASE,
    )


_LABELS: dict[str, list[str]] = table("gaugeway.prompts", "step_labels.json")
_KINDS = {word: kind for kind, words in _LABELS.items() for word in words}
_LABEL = _pattern(_LABELS)
_OF_TOOLS = frozenset(word for word in _LABELS["result"] if " " in word or "_" in word or not word.isascii())
_BEGINS = re.compile(r"\n[ \t]*(?:[\[<({#*=_|-]{1,6}(?: ?## )?[ \t]?)?(?P<first>[^\W\d]{1,20})")
_FIRST = {word.split()[0].split("'")[0] for word in _KINDS} | {"tool", "function"}
"""First words of labels: most lines begin with none of them."""
_CLOSING = re.compile(r"</[\w:-]{1,40}>\Z")
_CLOSES = re.compile(r"</(?P<name>[^\W\d][\w:-]{0,40})>")
_NAME = re.compile(
    r"[`\"'*\[]{0,3}(?P<name>[^\W\d][\w.:-]{0,60})[`\"'*\]]{0,3}\s*(?P<inside>[\[(].*[\])])?\s*\Z", re.DOTALL
)
_NAMED_LINE = re.compile(r"^[^\w\n]{0,6}(?P<name>[^\W\d_][^\n:\uff1a.?!]{0,40})[:\uff1a]", re.MULTILINE)
_RULE = re.compile(r"[-=~*_]{3,}(?=\n)")
_NAMES = ("name", "action", "tool", "tool_name", "recipient_name", "command")
_INPUTS = ("arguments", "action_input", "args", "input", "tool_input", "parameters", "action_variables")


def apart(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield messages with the steps that are written in them as messages of their own."""
    before = ""
    for number, message in enumerate(messages):
        said, role = _text(message), message.get("role")
        sent = None
        if said is not None and role in ("user", "assistant") and not message.get("tool_calls"):
            answering = role == "user" and before
            sent = (_answering(said, before, number) if answering else None) or _in_text(said, message, number)
        yield from sent or (message,)
        before = (said or " ") if role == "assistant" else ""


def _text(message: dict[str, Any]) -> str | None:
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) and len(content) <= MOST_TEXT else None


def asked_in(said: str) -> str | None:
    """Return what stands behind a question's label (`Task:`) that a text begins with; None without one."""
    text = "\n" + said.lstrip()
    label = _LABEL.match(text)
    if label is None or not _is_label(label) or _kind(label) != "question":
        return None
    end = next((following.start() for following in _labels(text)[1:] if _kind(following) != "question"), len(text))
    if label["colon"] is None:
        form = rf"\n[ \t]*{re.escape(label['open'])}[^\n]{{1,60}}{re.escape(label['close'])}[ \t]*(?=\n|\Z)"
        following = re.compile(form).search(text, label.end())
        end = end if following is None else min(end, following.start())
    return _body(text, label, end) or None


def label_of_call(said: str) -> str | None:
    """Return the label of the call with arguments that an agent's text ends in; None for any other text."""
    labels = _labels("\n" + said.strip())
    kinds = [_kind(label) for label in labels]
    if not labels or "answer" in kinds or kinds[-1] not in ("call", "arguments"):
        return None
    name, arguments = _call(said.strip())
    return labels[-1]["word"] if name is not None and arguments else None


def _answering(said: str, before: str, number: int) -> list[dict[str, Any]] | None:
    """Return the messages of a user's turn that is the result of what the assistant called in the message before it."""
    text = "\n" + said.strip()
    label = _LABEL.match(text)
    if label is None or not _is_label(label) or _kind(label) != "result":
        return None
    name, arguments = _call(before)
    name = name or _named(label)
    program = "```" in before or "<code>" in before
    if not (name or program or label["open"].strip() or (label["word"] or "").lower() in _OF_TOOLS):
        return None  # people write of observations, too
    return _step(f"{WRITTEN_ID}{number}", name, arguments, _under(text, label))


def _under(text: str, label: re.Match[str]) -> str:
    """Return what stands under a label: up to the next one that a rule underlines, where this one is underlined."""
    body = _body(text, label, len(text))
    if (rule := _RULE.match(body)) is None:
        return body
    following = re.compile(rf"\n[^\n]{{1,60}}\n{re.escape(rule[0][:3])}").search(body)
    return body[rule.end() : following.start() if following is not None else len(body)].strip()


def _in_text(said: str, message: dict[str, Any], number: int) -> list[dict[str, Any]] | None:
    """Return the messages in a text with steps since its last question; None for one without a call and its result."""
    text = "\n" + said
    every = _labels(text)
    if every and (_kind(every[-1]) == "question" or _asks_under_a_label(text[every[-1].end() :])):
        return None  # the steps stand in a passage: an agent goes on behind them
    labels = _of_steps(every)
    asked = max((index for index, one in enumerate(labels) if _kind(one) == "question"), default=-1)
    steps, sent = labels[asked + 1 :], list[dict[str, Any]]()
    kinds = {_kind(step) for step in steps}
    if "result" not in kinds or len(kinds) < _KINDS_OF_STEPS:
        return None
    since = steps[0].start()
    for index, (one, end) in enumerate(with_ends(steps, len(text))):
        if _kind(one) == "answer" and sent and _body(text, one, end):
            return None  # they ended: an agent would not go on behind its answer
        if _kind(one) == "result":
            name, arguments = _call(text[since : one.start()])
            if name is not None:
                sent += _step(f"{WRITTEN_ID}{number}-{index}", name, arguments, _body(text, one, end))
            since = end
    if not sent or _stand_in_a_record(text, steps):
        return None
    head = text[: steps[0].start()].strip()
    if not head or message.get("role") != "user":
        return sent
    return [{**message, "content": head, ASKED: text[labels[max(asked, 0)].start() : steps[0].start()].strip()}, *sent]


def _stand_in_a_record(text: str, steps: list[re.Match[str]]) -> bool:
    """Whether an element that is one of several of its name, such as `<document>`, is open where the steps begin."""
    start, end = steps[0].start(), steps[-1].end()
    for name in {closing["name"] for closing in islice(_CLOSES.finditer(text, end), _ENCLOSING)}:
        opened = [match.start() for match in re.finditer(rf"<{re.escape(name)}[\s>]", text)]
        if len(opened) > 1 and sum(at < start for at in opened) > text.count(f"</{name}>", 0, start):
            return True
    return False


def _asks_under_a_label(text: str) -> bool:
    """Whether a line of a text begins with a label that names a question: `Customer's question: ...`."""
    labels = list(_NAMED_LINE.finditer(text))
    if not labels:
        return False
    words = IndexedText(text)
    return any(words.has("question", *label.span("name")) for label in labels)


def _labels(text: str) -> list[re.Match[str]]:
    begun = (start for start in _BEGINS.finditer(text) if start["first"].lower().rstrip("_") in _FIRST)
    labels = (_LABEL.match(text, start.start()) for start in islice(begun, _TIMES * MOST_STEPS))
    return list(islice((label for label in labels if label is not None and _is_label(label)), MOST_STEPS))


def _of_steps(labels: list[re.Match[str]]) -> list[re.Match[str]]:
    """Leave out labels within results: after a result a step begins again as one has begun before, or the answer."""
    kept: list[re.Match[str]] = []
    known: set[str] = set()
    for label in labels:
        inside = bool(kept) and _kind(kept[-1]) == "result"
        if (
            inside
            and (label["word"] or "").lower() not in known
            and _kind(label) not in ("thought", "answer", "result")
        ):
            continue
        if not inside and _kind(label) != "question":
            known.add((label["word"] or "").lower())
        kept.append(label)
    return kept


def _step(identity: str, name: str | None, arguments: str, result: str) -> list[dict[str, Any]]:
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
    answer = {"role": "tool", "tool_call_id": identity, "content": result, WRITTEN: True}
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, answer]


def _kind(label: re.Match[str]) -> str:
    return _KINDS[label["word"].lower()] if label["word"] else "result"


def _named(label: re.Match[str]) -> str | None:
    return (label["named"] or label["tool"] or "").strip("()`\"'") or None


def _body(text: str, label: re.Match[str], end: int) -> str:
    body = text[label.end() : end].strip()
    closing = _CLOSING.search(body, max(0, len(body) - _TAG))
    return body if closing is None else body[: closing.start()].rstrip()


def _is_label(one: re.Match[str]) -> bool:
    """Whether a line that begins with one of the words is a label: a colon follows, or marks stand on both sides."""
    marked = bool(one["open"].strip()) and (bool(one["close"].strip()) or one["open"].strip()[0] == "#")
    if one["colon"] is None and not marked:
        return False
    return one["rest"] in (" ", "\t", "\n", "", "\r") or one["close"].endswith((">", "]"))


def _call(said: str) -> tuple[str | None, str]:
    """Return the tool and the arguments of the last call in a text; (None, "") where there is none."""
    text = "\n" + said
    labels = _labels(text)
    last = max((index for index, one in enumerate(labels) if _kind(one) == "call"), default=-1)
    if last < 0:
        return None, ""
    following = [*labels[last + 1 : last + 3], None, None]
    ends = [label.start() if label is not None else len(text) for label in following]
    body, arguments = _body(text, labels[last], ends[0])[:_CALL], ""
    if following[0] is not None and _kind(following[0]) == "arguments":
        arguments = _body(text, following[0], ends[1])[:_CALL]
    if (value := _object(body)) is not None:
        name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
        given = next((value[key] for key in _INPUTS if key in value), arguments)
        return name, given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    named = _NAME.match(body)
    return (None, "") if named is None else (named["name"], arguments or (named["inside"] or "")[1:-1])


def _object(said: str) -> dict[str, Any] | None:
    """Return the JSON or printed object in a text, the first of a list."""
    said = said[min(at for at in (said.find("{"), said.find("["), len(said)) if at >= 0) :]
    said = said[: max(said.rfind("}"), said.rfind("]")) + 1]
    try:
        value = json.loads(said)
    except (ValueError, RecursionError):
        value = printed(said)
    value = value[0] if isinstance(value, list) and value else value
    value = value.get("function", value) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None

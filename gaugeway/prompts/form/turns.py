"""The messages of a request as the reader takes them, with a rendered chat template taken apart."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from gaugeway.exchange import Request
from gaugeway.prompts import messages_of, text_parts
from gaugeway.prompts.parse import decoded
from gaugeway.records import Context

MOST_TURNS = 200
"""Messages read of a longer conversation: the first `_FIRST`, which describe the app, and the last ones."""
_FIRST = 8
_FEWEST, _MESSAGES = 3, 50
_MEMBERS, _JSON = 40, 250_000
_BREAKS = str.maketrans("\x0b\x0c\x85\u2028\u2029", "\n" * 5)
_TURN = re.compile(
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
_ENDS = re.compile(r"<\|[^|<>\n]{1,30}\|>|</?s>|<end_of_turn>")


class Turn(NamedTuple):
    """One message: its role and the texts of its content parts."""

    role: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole text; parts are separated by a blank line."""
        return "\n\n".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Question and passages of a prompt. `confidence` is in (0, 1); `how` and `reason` are shown to users."""

    question: str | None
    contexts: tuple[Context, ...]
    confidence: float
    how: str
    reason: str


def turns_of(request: Request) -> list[Turn]:
    """Return the messages of a request with their texts, part by part."""
    turns = [Turn(_role(message), _parts_of(message)) for message in messages_of(request)]
    if len(turns) == 1 and len(turns[0].parts) == 1 and "<" in turns[0].text:
        turns = _by_tokens(turns[0]) or turns
    turns = _joined([_without_tokens(turn) for turn in turns])
    if turns and turns[-1].text.lstrip()[:1] == "{":
        turns[-1] = _by_members(turns[-1])
    return turns if len(turns) <= MOST_TURNS else turns[:_FIRST] + turns[_FIRST - MOST_TURNS :]


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
    while first and turns[first - 1].role == "user" and len(turns) - first <= _MESSAGES:
        first -= 1
    if not _FEWEST <= len(turns) - first <= _MESSAGES:
        return turns
    return [*turns[:first], Turn("user", tuple(part for turn in turns[first:] for part in turn.parts))]


def _by_members(turn: Turn) -> Turn:
    """Return a message that is one JSON object as text, with a label for each member."""
    value = decoded(turn.text) if len(turn.text) <= _JSON else None
    if not isinstance(value, dict) or not 1 < len(value) <= _MEMBERS:
        return turn
    said = [(key, one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) for key, one in value.items()]
    return Turn(turn.role, ("\n\n".join(f"{str(key).replace('_', ' ')}:\n{one}" for key, one in said),))


def _by_tokens(turn: Turn) -> list[Turn]:
    """Return the turns of a conversation rendered with a chat template's tokens; [] when there are no such tokens."""
    text = turn.text
    openings = list(islice(_TURN.finditer(text), MOST_TURNS))
    if not any(_role_of(one) == "user" for one in openings):
        return []
    ends = [one.start() for one in openings[1:]] + [len(text)]
    return [
        Turn(_role_of(one), (_ENDS.sub("", text[one.end() : end]).strip(),))
        for one, end in zip(openings, ends, strict=True)
    ]


def _role_of(opening: re.Match[str]) -> str:
    role = (opening["marked"] or opening["plain"]).lower()
    return role if role in ("user", "assistant") else "assistant" if role == "model" else "system"


def _role(message: dict[str, Any]) -> str:
    role = message.get("role")
    return role if isinstance(role, str) else ""

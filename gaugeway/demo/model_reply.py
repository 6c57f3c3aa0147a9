"""One request to the scripted model, read, and what the model replies: pure.

It answers from the passages in its prompt, or invents when they lack the answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from gaugeway.data_files import table
from gaugeway.demo import model_judge as judging
from gaugeway.demo import model_text as texts
from gaugeway.prompts import text_of

_PIECE = re.compile(r"\s*\S+\s*(?:\S+\s*){0,2}")
_TOKEN = re.compile(r"\s*\S+\s*")
ECHO = "Repeat after me:"
"""Prefix of a question that is answered with the rest of it, verbatim."""

ENOUGH = 0.55
"""The share of the question, weighted by rarity, that a sentence must contain to count as its answer."""

_SECOND = 0.75
"""A further sentence is added when it is at least this good, as a share of the best one."""

_LANGCHAIN = re.compile(r"\nQuestion: (?P<question>.*?) ?\nContext: (?P<contexts>.*?) ?\nAnswer:\s*\Z", re.DOTALL)
_LLAMAINDEX = re.compile(r"\n-{21}\n(?P<contexts>.*)\n-{21}\n.*?\nQuery: (?P<question>.*)\nAnswer:\s*\Z", re.DOTALL)
_OPENINGS = ("", "", "According to the passages, ", "In short, ")
_SYLLABLES = ("kor", "vel", "tan", "mir", "osk", "bel", "dra", "lun", "pah", "zet")
_INVENTIONS: list[str] = table("gaugeway.demo", "words.toml")["inventions"]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the model sees it: its messages by role and text."""

    model: str
    messages: tuple[tuple[str, str], ...]
    max_tokens: int | None = None
    fingerprint: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says. `cut`: not all of it, for the limit on tokens; `task` is the task of a judge's request."""

    text: str
    cut: bool = False
    task: str | None = None
    prompt_tokens: int = 0

    @property
    def completion_tokens(self) -> int:
        """The length of what was said, a word counted as a token."""
        return len(self.text.split())

    @property
    def finish_reason(self) -> str:
        """Why it ends."""
        return "length" if self.cut else "stop"


def read_chat(body: dict[str, Any]) -> Turn:
    """Read the body of `POST /v1/chat/completions`. Raises ValueError naming the field that is wrong."""
    if not isinstance(messages := body.get("messages"), list) or not messages:
        raise ValueError("messages")
    encoded = msgspec.json.encode(body, order="deterministic")
    return Turn(
        model=str(body.get("model") or "handbook-1"),
        messages=tuple(
            (str(role), text_of(message.get("content")))
            for message in messages
            if isinstance(message, dict) and (role := message.get("role"))
        ),
        max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
        fingerprint=hashlib.blake2b(encoded, digest_size=12).hexdigest(),
    )


def reply(turn: Turn, *, slips: bool = False) -> Reply:
    """Decide what the model says: a judge's verdicts, or an answer."""
    prompt_tokens = sum(len(text.split()) for _, text in turn.messages)
    if task := judging.task_of(turn.messages):
        text = msgspec.json.encode(judging.judge(task, turn.messages)).decode()
        return Reply(text=text, task=task, prompt_tokens=prompt_tokens)
    text = answer(read(turn.messages), slips=slips)
    tokens = _TOKEN.findall(text)
    if turn.max_tokens is not None and len(tokens) > turn.max_tokens:
        return Reply(text="".join(tokens[: turn.max_tokens]).rstrip(), cut=True, prompt_tokens=prompt_tokens)
    return Reply(text=text, prompt_tokens=prompt_tokens)


def pieces(text: str) -> list[str]:
    """Cut a text into streamable pieces of up to three words.

    >>> pieces("One two three four.")
    ['One two three ', 'four.']
    """
    return _PIECE.findall(text)


def _count(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class Prompt(msgspec.Struct, frozen=True):
    """What a conversation asks and the passages it offers."""

    question: str
    passages: tuple[str, ...]


def read(messages: Sequence[tuple[str, str]]) -> Prompt:
    r"""Find the question and the passages: in LangChain's or LlamaIndex's prompt, or in all the other messages.

    >>> read([("user", "Use it.\nQuestion: Who? \nContext: One.\n\nTwo. \nAnswer:")])
    Prompt(question='Who?', passages=('One.', 'Two.'))
    """
    last = next((position for position in reversed(range(len(messages))) if messages[position][0] == "user"), None)
    user = "" if last is None else messages[last][1]
    for pattern in (_LANGCHAIN, _LLAMAINDEX):
        if match := pattern.search(user):
            return Prompt(match["question"].strip(), _passages(match["contexts"]))
    others = [text for position, (role, text) in enumerate(messages) if position != last and role != "assistant"]
    return Prompt(user.strip(), tuple(passage for text in others for passage in _passages(text)))


def answer(prompt: Prompt, *, slips: bool = False) -> str:
    """Answer from the passages; without the answer in them, invent one.

    With `slips`, one question in twelve gets a remark on top that no passage contains, as models will.
    """
    if prompt.question.startswith(ECHO):
        return prompt.question.removeprefix(ECHO).strip()
    if not (found := _best_sentences(prompt)):
        return " ".join(_invention(prompt.question, turn) for turn in range(2))
    said = [_joined(_OPENINGS[_dice(prompt.question, "opening") % len(_OPENINGS)], found[0]), *found[1:]]
    if slips and _dice(prompt.question, "slip") % 12 == 0:
        said.append(_invention(prompt.question, 0))
    return " ".join(said)


def _best_sentences(prompt: Prompt) -> list[str]:
    """Return the sentence with the best overlap with the question, and a second one if it is nearly as good."""
    candidates = [sentence for passage in prompt.passages for sentence in texts.sentences(passage)]
    rarity = texts.rarity(candidates)
    unseen = max(rarity.values(), default=1.0)
    named = texts.names(prompt.question)
    weights = {
        word: rarity.get(word, unseen) * (2.0 if word in named else 1.0)
        for word in texts.question_words(prompt.question)
    }
    total = sum(weights.values()) or 1.0

    def share(sentence: str) -> float:
        present = set(texts.content_words(sentence))
        return sum(weight for word, weight in weights.items() if word in present) / total

    if not (ranked := sorted(dict.fromkeys(candidates), key=share, reverse=True)) or share(ranked[0]) < ENOUGH:
        return []
    return [
        ranked[0],
        *(candidate for candidate in ranked[1:2] if share(candidate) >= max(ENOUGH, _SECOND * share(ranked[0]))),
    ]


def _invention(question: str, turn: int) -> str:
    return _INVENTIONS[(_dice(question, "form") + turn) % len(_INVENTIONS)].format(
        topic=texts.topic(question),
        name=_name(question, turn),
        number=f"{1_000 + _dice(question, f'number{turn}') % 89_000:,}",
        year=1500 + _dice(question, f"year{turn}") % 400,
    )


def _name(question: str, turn: int) -> str:
    first, second = (_dice(question, f"{part}{turn}") % len(_SYLLABLES) for part in ("first", "second"))
    return (_SYLLABLES[first] + _SYLLABLES[second]).capitalize() + "en"


def _joined(opening: str, sentence: str) -> str:
    """Prefix a sentence with an opening; its first word becomes lower case unless it is a name."""
    head = sentence.partition(" ")[0]
    return opening + (sentence[0].lower() + sentence[1:] if opening and not texts.content_words(head) else sentence)


def _passages(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("\n\n") if part.strip())


def _dice(question: str, purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{purpose}\0{question}".encode(), digest_size=6).digest(), "big")

"""The latest answers of every app, by which a later request shows what became of them.

Kept in the memory of the process that makes the samples, apart for each app and each sender's key, for minutes.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from cachetools import LRUCache

from gateway.capture import Draft
from gaugeway.exchange import Exchange
from gaugeway.prompts.notation import json_value
from gaugeway.prompts.parse import leaves
from gaugeway.records import Context
from gaugeway.text.cache import TextCache

LEAST_PIECE = 10
"""Characters of a piece: a shorter one may be anybody's."""
MOST_LEAVES = 100
"""Texts read of an answer that is JSON."""
_ENDS = (*(f"{mark} " for mark in ".!?;:"), *'()[]{}|"')
_WIDE_ENDS = ("\u3002", "\uff01", "\uff1f", "\uff1b", "\uff1a", "\u201c", "\u201d", "\u300c", "\u300d")
_MARKS = " \t\r,.!?;:*_`#>-\u2022\uff0c"
_known: TextCache[tuple[int, ...]] = TextCache()
"""Of passages, which recur."""
AGE_S = 600.0
"""How long an answer is remembered: a step is used within minutes, what an app stores comes back later."""
MOST_ANSWERS = 2_000
MOST_CHARACTERS = 8_000_000
"""Of these answers and the requests that they are of."""
MOST_SCOPES = 500
MOST_PROMPTS = 64
"""Prompts of one app, and sender, whose steps are counted."""
MOST_PIECES = 24
LONGEST_ANSWER = 20_000
MOST_ALIKE = 16
"""Answers to one question that are compared."""
MOST_ASKED = 32
"""Lines of a text without passages that may be a question of a later request."""
_SKEW_S = 0.05


def pieces(text: str, most: int) -> list[str]:
    r"""Return the first `most` pieces of a text.

    >>> pieces("[1] Summary: The warranty ends  soon.\\n- It was for two years (p. 3).", 9)
    ['The warranty ends soon', 'It was for two years']
    """
    return list(islice(_pieces(text), most))


def hashes(texts: Iterable[str], most: int) -> set[int]:
    """Return the hashes of the pieces of several texts, of the first ones until there are `most` together."""
    found: set[int] = set()
    for text in texts:
        if (known := _known.get(text)) is None:
            known = tuple(map(hash, islice(_pieces(text), most)))
            _known.put(text, known)
        found.update(known)
        if len(found) >= most:
            break
    return found


def plain(text: str) -> str:
    """Return a text with single spaces, without the marks around it."""
    return " ".join(text.split()).strip(" \t,*_`#>-\"'")


def asked_in(text: str) -> tuple[int, ...]:
    """Return hashes of what a text without passages may ask: all of it, or what stands behind a label."""
    lines = text.split("\n", MOST_ASKED)[:MOST_ASKED] if len(text) <= LONGEST_ANSWER else []
    values = (plain(part).casefold() for line in lines for part in line.partition(":")[::2])
    return tuple({hash(value) for value in (plain(text).casefold(), *values) if len(value) >= LEAST_PIECE})


def said_in(text: str) -> str:
    """Return what an answer says: its texts if it is JSON, else itself; without reasoning before it."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    bare = text.strip().removeprefix("```json").strip("`\n ")
    value = json_value(bare) if bare[:1] in ("{", "[") else None
    return text if value is None else "\n".join(leaf for _, leaf in islice(leaves(value), MOST_LEAVES))


def _pieces(text: str) -> Iterator[str]:
    for mark in _ENDS if text.isascii() else (*_ENDS, *_WIDE_ENDS):
        if mark in text:
            text = text.replace(mark, "\n")
    for part in text.split("\n"):
        if len(part) >= LEAST_PIECE:
            if "  " in (piece := part.strip(_MARKS)):
                piece = " ".join(piece.split())
            if len(piece) >= LEAST_PIECE:
                yield piece


class Chain:
    """Answers each of which refines the one before. `length` counts them, `at` is the end of the last one.

    `root` is the prompt of the first one, if that is known.
    """

    __slots__ = ("at", "length", "root")

    def __init__(self, at: float, root: Prompt | None) -> None:
        self.at, self.length, self.root = at, 1, root


class Prompt:
    """What is known of a prompt's answers: how many were `made` and `used` as a step, halved together now and then.

    `links` counts different answers that came back, `users` the requests in which. `chains` are the latest chains that
    began with its answers.
    """

    __slots__ = ("chains", "is_step", "links", "made", "used", "users")

    def __init__(self) -> None:
        self.made = self.used = 0.0
        self.links = self.users = 0
        self.is_step = False
        self.chains: deque[Chain] = deque(maxlen=8)


class Turn(NamedTuple):
    """An exchange as it is compared: `question` is a hash, `own` are the texts of its request.

    `version` identifies its prompt, and `edges` do where that one contains what varies.
    """

    version: str | None
    edges: tuple[str, ...]
    question: int | None
    own: tuple[str, ...]
    contexts: tuple[Context, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """All that identifies the prompt."""
        return self.edges if self.version is None else (self.version, *self.edges)


def given_in(texts: Iterable[str]) -> str:
    """Return the texts of a request as one, with single spaces."""
    return " ".join(" ".join(texts).split())


class Answer:
    """An answer that may come back. `used`: what became of it is known; `step` is its place in its chain, if any."""

    __slots__ = (
        *("chain", "contexts", "draft", "ended_at", "keys", "own", "pieces"),
        *("asked", "question", "session", "size", "step", "used", "version"),
    )

    def __init__(self, exchange: Exchange, turn: Turn, draft: Draft, text: str) -> None:
        self.pieces = {hash(piece): piece for piece in pieces(text, MOST_PIECES)}
        self.version = turn.version
        self.keys, self.question, self.own, self.contexts = turn.keys, turn.question, turn.own, turn.contexts
        self.asked = () if turn.contexts else asked_in(turn.own[0])
        self.session = exchange.session
        self.ended_at = exchange.started_at + max(exchange.duration_s, 0.0)
        self.size = sum(map(len, turn.own)) + len(text)
        self.draft = weakref.ref(draft)
        self.used = False
        self.chain: Chain | None = None
        self.step = 1

    def may_be_in(self, exchange: Exchange) -> bool:
        """Whether it was there before an exchange began, and nothing says that that is another user's."""
        apart = self.session and exchange.session and self.session != exchange.session
        return not apart and self.ended_at - _SKEW_S <= exchange.started_at <= self.ended_at + AGE_S

    def of_another(self, turn: Turn) -> bool:
        """Whether its prompt is another one than that of an exchange."""
        same = self.version is not None and self.version == turn.version
        return not same and any(key not in turn.keys for key in self.keys)

    def comes_back(self, seen: set[int]) -> bool:
        """Whether most of its pieces are among those of a text, and most of them were not in its own prompt.

        A refined answer may be the one before, which its prompt holds.
        """
        found = [piece for key, piece in self.pieces.items() if key in seen]
        if 5 * len(found) < 3 * len(self.pieces) or not found:
            return False
        if self.step > 1:
            return True
        given = given_in(self.own)
        return 2 * sum(piece not in given for piece in found) >= len(self.pieces)


class Scope:
    """The answers of one app and sender, by what they are found by."""

    __slots__ = ("by_asked", "by_piece", "by_question", "by_text", "live", "prompts")

    def __init__(self) -> None:
        self.by_piece: dict[int, Answer | None] = {}
        self.by_text: dict[int, Answer] = {}
        self.by_question: dict[int, deque[Answer]] = {}
        self.by_asked: dict[int, deque[Answer]] = {}
        self.live: dict[tuple[str, ...], int] = {}
        self.prompts: LRUCache[str, Prompt] = LRUCache(MOST_PROMPTS)

    def prompt(self, key: str) -> Prompt:
        """Return what is known of a prompt, the least recently seen one of too many is forgotten."""
        if (found := self.prompts.get(key)) is None:
            found = self.prompts[key] = Prompt()
        return found

    def others(self, keys: tuple[str, ...]) -> bool:
        """Whether there are answers of other prompts."""
        return any(one != keys for one in self.live)

    def add(self, answer: Answer, text: int) -> None:
        """Make an answer findable. A piece that different answers have in common finds none of them."""
        twin = self.by_text.get(text)
        for key in answer.pieces:
            there = self.by_piece.get(key, answer)
            self.by_piece[key] = answer if there is answer or (twin is not None and there is twin) else None
        self.by_text[text] = answer
        for index, keys in self._indexes(answer):
            for key in keys:
                index.setdefault(key, deque(maxlen=MOST_ALIKE)).append(answer)
        self.live[answer.keys] = self.live.get(answer.keys, 0) + 1

    def _indexes(self, answer: Answer) -> Iterator[tuple[dict[int, deque[Answer]], Iterable[int]]]:
        yield self.by_asked, answer.asked
        if answer.question is not None:
            yield self.by_question, (answer.question,)

    def remove(self, answer: Answer, text: int) -> None:
        """Forget an answer that `add` got."""
        for key in answer.pieces:
            if self.by_piece.get(key) in (answer, None):
                self.by_piece.pop(key, None)
        if self.by_text.get(text) is answer:
            del self.by_text[text]
        for index, keys in self._indexes(answer):
            for key in keys:
                if (alike := index.get(key)) is not None and alike[0] is answer:
                    alike.popleft()
                if not alike:
                    index.pop(key, None)
        self.live[answer.keys] -= 1
        if not self.live[answer.keys]:
            del self.live[answer.keys]


class RememberedAnswers:
    """The latest answers of all apps, at most about `most`; the oldest is forgotten first."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._most = most
        self._scopes: LRUCache[str, Scope] = LRUCache(MOST_SCOPES)
        self._kept: deque[tuple[Answer, int, Scope]] = deque()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def scope(self, exchange: Exchange) -> Scope:
        """Return the answers that an exchange may show: those of its app that the same key asked for."""
        headers = exchange.request.headers
        sender = exchange.key_id or headers.get("authorization") or headers.get("api-key") or headers.get("x-api-key")
        name = f"{exchange.app}\n{hash(sender)}"
        if (found := self._scopes.get(name)) is None:
            found = self._scopes[name] = Scope()
        return found

    def keep(self, scope: Scope, exchange: Exchange, turn: Turn, draft: Draft) -> Answer | None:
        """Remember an answer; None for one that could not be found again."""
        if len(text := exchange.response.text) > LONGEST_ANSWER:
            return None
        text = said_in(text)
        answer, whole = Answer(exchange, turn, draft, text), hash(plain(text))
        if not (answer.pieces or answer.asked):
            return None
        scope.add(answer, whole)
        self._kept.append((answer, whole, scope))
        self._characters += answer.size
        return answer

    def forget(self, now: float) -> None:
        """Forget what is too old, or too much."""
        kept = self._kept
        while kept and (
            len(kept) >= self._most or self._characters > MOST_CHARACTERS or kept[0][0].ended_at < now - AGE_S
        ):
            answer, whole, scope = kept.popleft()
            scope.remove(answer, whole)
            self._characters -= answer.size

    def latest(self, scope: Scope, most: int) -> Iterator[Answer]:
        """Yield the latest answers of a scope among the last `most` of all."""
        for _, (answer, _, where) in zip(range(most), reversed(self._kept), strict=False):
            if where is scope:
                yield answer

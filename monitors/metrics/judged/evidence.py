"""Verified evidence: a claim must be in the text it is said to be from, and its quote in a passage that it names."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import msgspec

from gaugeway.records import Evaluation, Failed, Score
from gaugeway.text.language import FREQUENT, NEGATIONS, language_of
from gaugeway.text.lexical.sentences import sentences
from gaugeway.text.normalising import nfkc
from gaugeway.text.phrases import addresses_judge
from monitors.judges import JudgeError
from monitors.metrics.judged.prompts import load
from monitors.statistics.agreement import wilson

Fault: TypeAlias = Literal[
    "claim_not_in_answer",
    "example_repeated",
    "statement_not_in_passage",
    "passage_missing",
    "quote_missing",
    "quote_not_in_passage",
    "quote_addresses_judge",
    "stated_in_passage",
]
UNSUPPORTED = "unsupported_verdict"
CHECKED = "evidence1"
"""The version of these checks, part of that of every metric whose answers are checked."""
MAX_ANSWERS = 500
"""Answers, the latest, behind a judge's share of verified evidence."""
_LEAST, _LEAST_OF_EXAMPLE = 1 / 3, 0.75
"""Least share of a claim's words, or of as many as a short answer has, in the answer and what was asked; and of those
of an example that it repeats."""
_LEAST_QUOTED = 0.8
"""Least share of a long quote's words in the passage, in order: judges mend a word, or drop one."""
_LONG_QUOTE, _WORDS_COMPARED = 5, 200
_STEM, _SHORT, _BARE = 0.7, 4, 3
"""Share of a word's letters by which it is found; letters of the shortest one; words of an answer without any own."""
_WORD = re.compile(
    r"\d+(?:[.,:/]\d+)*|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|[^\W_]+"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_COMMON = frozenset().union(*FREQUENT.values()) - NEGATIONS
_LEFT_OUT = re.compile(r"\.{3,}|\u2026|\[[^\[\]]*\]")
_COUNTED = re.compile(r"(\d+) of (\d+) items of the judge's first answer cannot be verified \(([^)]*)\)")


class Checks(msgspec.Struct):
    """How many claims of a judge's first answer about a sample were checked, and those refused, by fault."""

    checked: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)

    def evidence(self, *, always: bool = False) -> tuple[dict[str, Any], ...]:
        """Return the piece of evidence of a score that says what was refused at first; none where nothing was."""
        return ({"checked": self.checked, "refused": dict(self.refused)},) if self.refused or always else ()

    def failure(self) -> JudgeError:
        """Return the error for an answer that could not be verified the second time either."""
        kinds, some = _counted(dict(self.refused.most_common())), f"{self.refused.total()} of {self.checked} items"
        what = f"{some} of the judge's first answer cannot be verified ({kinds}); nor can the second answer"
        return JudgeError(UNSUPPORTED, what)


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in kinds.items())


def checks_in(evaluation: Evaluation) -> Checks | None:
    """Return what was checked for an evaluation, as a score's evidence or a failure's detail says; None if nothing.

    A score that says nothing of it was given all its claims, or contexts with statements, at first.
    """
    outcome = evaluation.outcome
    if CHECKED not in evaluation.version:
        return None
    if isinstance(outcome, Score):
        for item in reversed(outcome.evidence):
            if isinstance(item.get("refused"), Mapping):
                return Checks(item["checked"], Counter(item["refused"]))
        claims = sum("claim" in item or "statements" in item for item in outcome.evidence)
        return Checks(claims) if claims else None
    if isinstance(outcome, Failed) and outcome.error == UNSUPPORTED and (found := _COUNTED.match(outcome.detail)):
        kinds = (part.rpartition(" ") for part in found[3].split(", "))
        return Checks(int(found[2]), Counter({kind: int(count) for kind, _, count in kinds}))
    return None


@dataclass(frozen=True, slots=True)
class VerifiedShare:
    """The share of a judge's evidence for a metric that its first answers got right, with a 95 % interval.

    `n` is the number of claims checked, in `answers` answers. The interval counts answers (Wilson 1927): at worst, all
    claims of one share their fate. `unscored` is the share of the answers that got no score for it: the mean over all
    of them lies up to `unscored` from the mean of the scores, as scores lie in [0, 1] (Manski 1989).
    """

    judge: str
    metric: str
    value: float
    low: float
    high: float
    n: int
    answers: int
    unscored: float
    faults: Mapping[str, int]

    def __str__(self) -> str:
        """Return the share in words, for people."""
        interval = f"{self.low:.1%} to {self.high:.1%}, {self.answers} answers"
        parts = [f"{self.value:.1%} of {self.n} claims verified ({interval})"]
        if self.unscored:
            off = f"so the mean may be off by up to {self.unscored:.3f}"
            parts.append(f"{self.unscored:.1%} of the answers unscored for it, {off}")
        return "; ".join([*parts, *([_counted(self.faults)] if self.faults else [])])


class EvidenceTally:
    """What was checked of each judge's last `MAX_ANSWERS` answers for each metric."""

    def __init__(self, most: int | None = MAX_ANSWERS) -> None:
        self._most = most
        self._seen: dict[tuple[str, str], deque[tuple[Checks, bool]]] = {}

    def add(self, evaluation: Evaluation) -> Checks | None:
        """Count an evaluation; return what was checked for it."""
        if evaluation.judge and (checks := checks_in(evaluation)) is not None and checks.checked:
            key = evaluation.judge, evaluation.metric
            unscored = isinstance(evaluation.outcome, Failed)
            self._seen.setdefault(key, deque(maxlen=self._most)).append((checks, unscored))
            return checks
        return None

    def share(self, judge: str, metric: str) -> VerifiedShare:
        """Return the share of a judge for a metric that was counted."""
        seen = self._seen[judge, metric]
        checked, answers = sum(checks.checked for checks, _ in seen), len(seen)
        refused = sum((checks.refused for checks, _ in seen), Counter[str]())
        share = max(0.0, 1.0 - refused.total() / checked)  # a claim may be refused for itself and for its quote
        low, high = wilson(share * answers, answers)
        unscored, faults = sum(failed for _, failed in seen) / answers, dict(refused.most_common())
        return VerifiedShare(
            judge, metric, share, low, high, n=checked, answers=answers, unscored=unscored, faults=faults
        )

    def shares(self) -> list[VerifiedShare]:
        """Return the share of each judge and metric."""
        return [self.share(*key) for key in sorted(self._seen)]


def fault_of_claim(task: str, claim: str, text: str, around: Iterable[str], given: Iterable[str] = ()) -> Fault | None:
    """Return what is wrong with a claim that an answer to `task` makes of `text`; None if it may be in it.

    `around` is what the text refers to, as the question does: "Yes." says what was asked. Words of `given`, the
    passages, may stand in an example of the prompt too.
    """
    around = list(around)
    repeated = any(_share_in(claim, example) >= _LEAST_OF_EXAMPLE for example in _examples(task))
    if repeated and _share_in(claim, " ".join([text, *around, *given])) < _LEAST_OF_EXAMPLE:
        return "example_repeated"
    return None if is_stated(claim, text, around) else "claim_not_in_answer"


def is_stated(claim: str, text: str, around: Iterable[str] = ()) -> bool:
    """Return whether a claim may be from a text: it shares a word with it, and a third with it and what is `around`.

    True for a claim in another language or script, of which only a quote can show that. A claim may take all words from
    around a text with hardly any of its own, and needs to share a third of no more words than the text has.

    >>> is_stated("The Orla lamp lasts 12 hours.", "It lasts twelve hours.", ["How long does the Orla last?"])
    True
    >>> is_stated("The Orla lamp is red.", "Refunds take 14 days.", ["How long does a refund take?"])
    False
    """
    words, near = _content(claim), " ".join([text, *around])
    if not words or _other_language(claim, near):
        return bool(words)
    own, all_near, length = _Pool(text), _Pool(near), len(_content(text))
    if not any(own.has(word) for word in words) and length > _BARE:
        return False
    numbers, others = set(filter(_is_number, words)), set(filter(_is_number, _words(near)))
    if numbers and numbers.isdisjoint(others) and any(map(_is_number, _words(text))):
        return False
    return sum(all_near.has(word) for word in words) >= max(1, int(_LEAST * min(len(words), max(_BARE, length))))


def fault_of_verdict(
    claim: str, verdict: str, contexts: Iterable[int], quote: str, passages: Mapping[int, str]
) -> Fault | None:
    """Return why a verdict on a claim has no evidence in the passages, by index; None if it has, or needs none.

    "not_mentioned" needs none, but is wrong of a claim that is a whole sentence of a passage: part of one, as after
    "whether", may state nothing.
    """
    if verdict == "not_mentioned":
        same = _squeezed(claim)
        near = [text for text in passages.values() if same and same in _squeezed(text)]
        stated = any(same == _squeezed(text[place.start : place.end]) for text in near for place in sentences(text))
        return "stated_in_passage" if stated else None
    named = [passages[index] for index in contexts if index in passages]
    if not named:
        return "passage_missing"
    said = _words(quote)
    letters = all(len(word) == 1 and word.isascii() and not word.isdigit() for word in said)
    if letters or (len(said) < _BARE and _COMMON.issuperset(said)):
        return "quote_missing"
    if not is_quoted(quote, named):
        return "quote_not_in_passage"
    return "quote_addresses_judge" if addresses_judge(quote) else None


def is_quoted(quote: str, passages: Iterable[str]) -> bool:
    """Return whether each part of a quote, between ellipses and words put in brackets, is in one of the passages.

    Case, white space, punctuation and markup do not matter; of a quote of five words or more, one in five may differ,
    but no number, and no word of negation may be left out.

    >>> is_quoted('"Within 30 days" ... by post', ["- Return it **within 30 days**, if you like by post."])
    True
    >>> is_quoted("legal in 5 states", ["It is illegal in 15 states."])
    False
    """
    joined = [_Joined(passage) for passage in passages]
    parts = [part for part in _LEFT_OUT.split(quote) if _squeezed(part)] or [quote]
    if len(parts) > 1 and quote.isascii() and max(len(_squeezed(part)) for part in parts) < _SHORT:
        return False
    return all(any(text.has(_squeezed(part)) or _nearly(part, text.words) for text in joined) for part in parts)


class _Joined:
    """The words of a text without what is between them."""

    def __init__(self, text: str) -> None:
        self.words = _words(text)
        self._text, self._bounds = "".join(self.words), frozenset(accumulate(map(len, self.words), initial=0))

    def has(self, part: str) -> bool:
        """Whether whole words of the text are this."""
        at = self._text.find(part)
        while at >= 0 and not {at, at + len(part)} <= self._bounds:
            at = self._text.find(part, at + 1)
        return at >= 0


def _nearly(part: str, passage: Sequence[str]) -> bool:
    if not _LONG_QUOTE <= len(words := _words(part)) <= _WORDS_COMPARED:
        return False
    blocks = SequenceMatcher(None, passage, words, autojunk=False).get_matching_blocks()[:-1]
    longest = max(blocks, key=lambda block: block.size, default=None)
    near = [block for block in blocks if longest is not None and abs(block.a - longest.a) <= 2 * len(words)]
    if sum(block.size for block in near) < _LEAST_QUOTED * len(words):
        return False
    same = Counter(word for block in near for word in passage[block.a : block.a + block.size])
    lost = Counter(passage[near[0].a : near[-1].a + near[-1].size]) - same
    return not any(_is_number(word) or word in NEGATIONS for word in lost + (Counter(words) - same))


@cache
def _examples(task: str) -> tuple[str, ...]:
    """Return what the examples in a prompt answer: the texts in their JSON objects."""
    answers = re.findall(r"^Answer: (\{.*\})$", load(task).text, re.MULTILINE)
    return tuple(text for answer in answers for text in _texts(json.loads(answer)))


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str) and len(_content(node)) > 1:
        yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _texts(child)


def _share_in(claim: str, text: str) -> float:
    words, pool = _content(claim), _Pool(text)
    return sum(pool.has(word) for word in words) / len(words) if words else 1.0


class _Pool:
    """The words of a text, among which others are looked for by their beginning."""

    def __init__(self, text: str) -> None:
        self._words = frozenset(_words(text))
        self._squeezed = _squeezed(text)

    def has(self, word: str) -> bool:
        if word in self._words:
            return True
        return len(word) >= _SHORT and word[: max(_SHORT - 1, round(_STEM * len(word)))] in self._squeezed


def _content(text: str) -> set[str]:
    """Return the words of a text that are not among the most frequent of a language; all words where there are none."""
    words = set(_words(text))
    return words.difference(*FREQUENT.values()) or words


def _words(text: str) -> list[str]:
    return _WORD.findall(_THOUSANDS.sub("", nfkc(text).casefold()))


def _is_number(word: str) -> bool:
    return word[0].isdigit()


def _squeezed(text: str) -> str:
    return "".join(_words(text))


def _other_language(claim: str, text: str) -> bool:
    said, spoken = language_of(claim), language_of(text)
    if said is not None and spoken is not None:
        return said != spoken
    # A short claim shows no language, but may have words of one of which the text has none.
    ours, theirs = _frequent(claim, 0.5), _frequent(text, 1.0)
    if ours and theirs and not ours.keys() & theirs.keys():
        return True
    return _latin(claim) != _latin(text)


def _frequent(text: str, share: float) -> dict[str, int]:
    """Return languages with their number of frequent words in a text: those with this `share` of the most, or more."""
    words = set(_words(text))
    counts = {language: len(words & frequent) for language, frequent in FREQUENT.items()}
    most = max(counts.values())
    return {language: count for language, count in counts.items() if count and count >= share * most}


def _latin(text: str) -> bool:
    """Whether most letters of a text are Latin."""
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter < "\u0250" for letter in letters) >= len(letters)

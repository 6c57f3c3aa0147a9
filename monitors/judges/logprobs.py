"""Probabilities from token log-probabilities: of each choice, and of a judge's verdicts."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from monitors.judges.openai_client import Token

_SLACK = 1e-3
"""By how much a log-probability may exceed 0, from rounding."""
_QUOTES = " \t\r\n\"'`*"
_VALUE = re.compile(r':\s*(?:"([^"\\]*)"|(true|false)\b)')


def choice_in(text: str, choices: Sequence[str]) -> tuple[int, str] | None:
    """Return the offset and name of the one choice that `text` states; None when it states none or several.

    The text is the choice alone (quotes aside), or the choice is the last value of a JSON object in it, or it is the
    only choice in it.

    >>> choice_in(' "4" ', ["1", "4"]), choice_in('{"score": 4}', ["1", "4"]), choice_in("1 or 4", ["1", "4"])
    ((2, '4'), (10, '4'), None)
    """
    bare = text.strip(_QUOTES + ".")
    if bare in choices:
        return text.index(bare), bare
    names = "|".join(re.escape(choice) for choice in sorted(choices, key=len, reverse=True))
    values = list(re.finditer(rf':\s*"?({names})"?\s*[,}}]', text))
    if values and "}" in text:
        return values[-1].start(1), values[-1][1]
    words = list(re.finditer(rf"(?<![\w.,-])({names})(?![\w%]|[.,]\d)", text))
    if len({word[1] for word in words}) == 1:
        return words[-1].start(1), words[-1][1]
    return None


def weights(tokens: Sequence[Token], choices: Sequence[str]) -> dict[str, float] | None:
    """Return the probabilities of the answer token's alternatives: all choices first, then tokens that are no choice.

    They are the model's own and sum to at most 1: the rest belongs to alternatives that the endpoint left out. For a
    choice of several tokens only the first counts, and its probability goes to the choice that was given. None when the
    tokens state no choice or have no usable probabilities. Raises ValueError for a probability of more than 1.
    """
    found = choice_in("".join(token.token for token in tokens), choices)
    if found is None:
        return None
    offset, given = found
    place = bisect_right(_ends(tokens), offset)
    odds = {alternative.token: alternative.logprob for alternative in tokens[place].top_logprobs}
    odds.setdefault(tokens[place].token, tokens[place].logprob)
    shares = dict.fromkeys(choices, 0.0)
    for token, logprob in odds.items():
        text = token.strip(_QUOTES)
        if token == tokens[place].token and text not in shares:
            text = given
        if logprob is not None and logprob > _SLACK:
            raise ValueError(f"log-probability {logprob:g} of {token[:20]!r} is positive")
        if (chance := _probability(logprob)) is not None:
            shares[text] = shares.get(text, 0.0) + chance
    return shares if any(shares[choice] for choice in choices) else None


def sureness(tokens: Sequence[Token], schema: Mapping[str, Any]) -> float | None:
    """Return the probability of the least likely verdict: the smallest product over the tokens of one enumerated value.

    None when the tokens have no probabilities or hold no verdict.
    """
    text = "".join(token.token for token in tokens)
    verdicts = set(_enumerated(schema))
    ends = _ends(tokens)
    least: float | None = None
    for match in _VALUE.finditer(text):
        group = 1 if match[1] is not None else 2
        if group == 1 and match[1] not in verdicts:
            continue
        chance = 1.0
        for place in range(bisect_right(ends, match.start(group)), bisect_right(ends, match.end(group) - 1) + 1):
            probability = _probability(tokens[place].logprob)
            if probability is None:
                return None
            chance *= probability
        least = chance if least is None else min(least, chance)
    return least


def _ends(tokens: Sequence[Token]) -> list[int]:
    """Return the end offset of each token; the first end beyond a character is that of the token that covers it."""
    return list(accumulate(len(token.token) for token in tokens))


def _probability(logprob: float | None) -> float | None:
    if logprob is None or math.isnan(logprob) or logprob > _SLACK:
        return None
    return math.exp(min(0.0, logprob))


def _enumerated(node: Any) -> Iterator[str]:
    """Yield every enumerated string in a JSON schema."""
    if isinstance(node, Mapping):
        yield from (value for value in node.get("enum", ()) if isinstance(value, str))
        for child in node.values():
            yield from _enumerated(child)
    elif isinstance(node, list):
        for child in node:
            yield from _enumerated(child)

"""What a directive is: a verb and what it asks for, with what has to be in a text before the pattern is tried.

Patterns are written with one blank between words, which stands for any run of blanks or one line break (`sentence`);
they run over tidied text in small letters and only when one of the directive's stems stands in it.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal[
    "standalone_question",
    "multi_query",
    "query_generation",
    "hypothetical_document",
    "keywords",
    "translation",
    "title",
    "tags",
    "follow_ups",
    "emoji",
    "autocomplete",
    "image_prompt",
    "summary",
    "refine",
    "rerank",
    "grading",
    "routing",
    "extraction",
    "chunk_context",
    "tool_call",
]


class Directive(NamedTuple):
    """A pattern that is tried at words that begin with one of `starts`, in texts with words of all groups of `stems`.

    With `roots` one of them has to be in the text, too.

    An imperative stands where a command may ("write ...", "your task is to write ...", not "how do I write ..."). `needs`
    has to stand somewhere in the instruction, too. Without `starts` the language has no blanks between words, and the
    pattern is looked for everywhere.
    """

    kind: Kind
    stems: tuple[frozenset[str], ...]
    starts: frozenset[str]
    pattern: re.Pattern[str]
    needs: re.Pattern[str] | None = None
    imperative: bool = True
    roots: tuple[str, ...] = ()


def sentence(pattern: str) -> str:
    r"""Let a blank stand for a blank or a line break.

    >>> sentence("search quer(?:y|ies)")
    'search\\squer(?:y|ies)'
    """
    return pattern.replace(" ", r"\s")


LENGTH_OF_START = 4
BEFORE_A_COMMAND = frozenset(
    [
        "please",
        "to",
        "and",
        "must",
        "should",
        "shall",
        "will",
        "then",
        "can",
        "now",
        "that",
        "which",
        "who",
        "also",
        "first",
        "next",
        "or",
        "just",
        "only",
        "you",
        "at",
        "in",
        "for",
        "by",
        "of",
        "with",
        "is",
        "generally",
        "immediately",
        "exchange",
        "conversation",
        "dialogue",
        "discussion",
        "automatically",
        "simply",
        "carefully",
    ]
)
"""What stands before an imperative, "that writes" or "at writing"."""


def _starts(words: str) -> frozenset[str]:
    return frozenset(word[:LENGTH_OF_START] for word in words.split())


def rule(
    kind: Kind,
    stems: str,
    starts: str,
    pattern: str,
    needs: str | None = None,
    *,
    imperative: bool = True,
    roots: str = "",
) -> Directive:
    """Make a directive: groups of stems are parted by ` & `, stems and roots by `|`, starts by blanks."""
    return Directive(
        kind,
        tuple(
            frozenset(stem[:LENGTH_OF_START] if starts else stem for stem in one.split("|"))
            for one in stems.split(" & ")
        ),
        _starts(starts),
        re.compile(sentence(pattern), re.MULTILINE),
        re.compile(sentence(needs)) if needs else None,
        imperative,
        tuple(roots.split("|")) if roots else (),
    )

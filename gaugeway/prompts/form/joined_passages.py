"""Splits a text in which a tool joined several passages without marks: by rules or blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gaugeway.prompts.prose import ends_a_sentence, weight
from gaugeway.records import Context

_PIECES = 1_000
_RULE = re.compile(r"^[ \t]{0,8}(?:-{3,80}|={3,80}|\*{3,80}|_{3,80}|#{3,80}|~{3,80})[ \t]*$", re.MULTILINE)
_BLANK = re.compile(r"\n[ \t]*\n\s*")
_GOES_ON = re.compile(r"[-*+\u2022] |1[.)] |\|")
_TITLE, _SHORT_PIECE = 80, 40


def paragraphs(text: str) -> list[Context]:
    """Split at rules, else at blank lines; a heading stays with the text after it.

    Returns [] for one passage, and where most pieces are no running text: a table, code, a list of links.
    """
    if "```" in text:
        return []
    ruled = _RULE.split(text, _PIECES)
    pieces = _BLANK.split(text, _PIECES) if len(ruled) == 1 else ruled
    found = [Context(text=piece) for piece in _with_their_headings(pieces)]
    running = sum(weight(one.text) >= _SHORT_PIECE or ends_a_sentence(one.text) for one in found)
    return [] if len(found) < 2 or 2 * running < len(found) else found  # noqa: PLR2004 - one piece is the text itself


def _with_their_headings(pieces: list[str]) -> Iterator[str]:
    """Join what a passage with blank lines was cut into: a heading and its text, a sentence and its list or table."""
    held = ""
    goes_on = False
    for piece in pieces:
        if not (said := piece.strip()):
            continue
        if held and not (goes_on or (_GOES_ON.match(said) and not _GOES_ON.match(held.rpartition("\n")[2]))):
            yield held
            held = ""
        held = f"{held}\n\n{said}" if held else said
        heading = said.startswith("#") or (len(said) <= _TITLE and not ends_a_sentence(said))
        goes_on = said.endswith((":", "\uff1a")) or ("\n" not in said and heading)
    if held:
        yield held

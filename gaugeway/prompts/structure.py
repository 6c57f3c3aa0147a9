"""Finds passages by the form of a prompt, whatever its wording: records that repeat, labels, tags, rules, data.

Without any their place may be empty, or what stands there was not recognised.
"""

from __future__ import annotations

from itertools import islice, pairwise

from gaugeway.exchange import Request, Response
from gaugeway.prompts import Evidence, Extraction, extraction
from gaugeway.prompts.form import reader
from gaugeway.prompts.form.lines import Line, lines_of
from gaugeway.prompts.form.reader import MOST_TEXT, turns_of
from gaugeway.prompts.form.word_index import IndexedText, Kind
from gaugeway.prompts.sizes import FEW, LINE, MANY, MOSTLY, PAGE

_DIGITS = FEW
EMPTY = MOSTLY
"""Confidence that nothing was retrieved when the label of the passages is followed directly by the question's."""
_LABELS = ("label", "field", "heading", "bracket", "bold", "open")
_LINES = MANY
_LABEL_LENGTH = LINE
_BEGINNING = 2 * PAGE


class StructureExtractor:
    """Reads the likeliest block of passages; finds nothing where none is likely enough."""

    evidence: Evidence = "structure"

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        turns = turns_of(request)
        if (found := reader.read(turns)) is not None:
            return extraction(
                found.question,
                found.contexts,
                source="structure",
                marker=found.how,
                confidence=round(found.confidence, _DIGITS),
                reason=found.reason,
            )
        asking = next((turn.text for turn in reversed(turns) if turn.role == "user" and turn.text.strip()), "")
        if (question := question_of_empty(asking)) is not None:
            reason = "the prompt's place for passages is empty"
            return Extraction(question=question, contexts=(), source="structure", confidence=EMPTY, reason=reason)
        if is_prompt(asking):
            reason = "the user's message is a prompt whose passages were not recognised"
            return Extraction(question=None, contexts=(), source="none", confidence=0.0, reason=reason)
        return None


def question_of_empty(text: str) -> str | None:
    """Return the question of a prompt in which the label of the passages is followed directly by the question's."""
    if len(text) > MOST_TEXT:
        return None
    lines, words = lines_of(text), IndexedText(text)
    asked = [line for line in lines if _is_named(words, line, "question")]
    if len(asked) > 1:
        return None  # one of them may be a passage's
    for line, following in pairwise(line for line in lines if line.kind != "close"):
        if following in asked and _is_named(words, line, "context") and not _says_something(text, line):
            return _asked_at(text, lines, following)
    return None


def _asked_at(text: str, lines: list[Line], label: Line) -> str | None:
    """Return what stands behind a label, or under it up to the next one."""
    if label.kind == "field":
        return text[label.start + len(label.keys[0]) : label.end].strip() or None
    below = lines[lines.index(label) + 1 :]
    end = next((line.start for line in below if line.kind in _LABELS or line.kind in ("close", "rule")), len(text))
    return text[label.end : end].strip() or None


def may_be_prompt(text: str) -> bool:
    """Return whether the lines of a text have the form of a prompt's parts: labels, headings, tags."""
    return sum(line.kind in _LABELS for line in lines_of(text, 0, min(len(text), _BEGINNING))) > 1


def is_prompt(text: str) -> bool:
    """Return whether a user's message is a whole prompt: it introduces passages and gives instructions."""
    words = IndexedText(text[:MOST_TEXT])
    lines = list(islice(lines_of(words.text), _LINES))
    if not any(_is_named(words, line, "context") for line in lines):
        return False
    return any(words.is_meta(line.start, line.end) for line in lines)


def _is_named(words: IndexedText, line: Line, kind: Kind) -> bool:
    """Whether a line is, or begins with, a label that says so."""
    if line.kind not in _LABELS or (line.kind != "field" and line.end - line.start > _LABEL_LENGTH):
        return False
    end = line.start + len(line.keys[0]) if line.kind == "field" else line.end
    return words.has(kind, line.start, end)


def _says_something(text: str, line: Line) -> bool:
    """Whether something stands behind a label on its line, such as the passage."""
    if line.kind != "field":
        return False
    return bool(text[line.start + len(line.keys[0]) : line.end].strip())

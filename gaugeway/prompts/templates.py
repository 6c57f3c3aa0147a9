"""Passages inside the prompts that known frameworks and apps build by default (`catalogue`)."""

from __future__ import annotations

from collections.abc import Sequence

import ahocorasick_rs

from gaugeway.exchange import Request, Response
from gaugeway.prompts import Extraction, system_texts, user_texts
from gaugeway.prompts.form.turns import turns_of
from gaugeway.prompts.known_prompts import TEMPLATES
from gaugeway.prompts.limits import extraction
from gaugeway.prompts.prompt_template import HEAD, Template

_TEMPLATES = [(one, one.opening, one.role == "user") for one in TEMPLATES]
_OPENINGS = sorted({opening for _, opening, _ in _TEMPLATES})
_SEARCH = ahocorasick_rs.AhoCorasick(_OPENINGS)


class TemplateExtractor:
    """Tries each known template on the messages it applies to: the last user turn, or the system messages."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        turns, said = user_texts(request), system_texts(request)
        if len(turns) == 1 and "<|" in turns[0]:  # a conversation rendered with a chat template's tokens
            every = turns_of(request)
            turns = [one.text for one in reversed(every) if one.role == "user" and one.text.strip()]
            said = [one.text for one in every if one.role == "system"]
        users = [(text, _openings_in(text)) for text in turns[:1]]
        systems = [(text, _openings_in(text)) for text in said]
        for template, opening, in_user_turn in _TEMPLATES:
            for text, openings in users if in_user_turn else systems:
                if opening in openings and (found := _found(template, text, turns)) is not None:
                    return found
        return None


def _openings_in(text: str) -> set[str]:
    """Return the openings of templates in a text, by one pass over it."""
    head = text[:HEAD]
    try:
        found = _SEARCH.find_matches_as_indexes(head, overlapping=True)
    except UnicodeEncodeError:  # half of a surrogate pair
        return {one for one in _OPENINGS if one in head}
    return {_OPENINGS[index] for index, _, _ in found}


def _found(template: Template, text: str, turns: Sequence[str]) -> Extraction | None:
    match = template.match(text)
    if match is None:
        return None
    question, passages = match
    if question is None or not question.strip():
        index = 0 if template.asked == "last" else 1
        question = turns[index] if index < len(turns) else None
    found = extraction(
        question, template.split(passages), source=template.product, marker=f"{template.product}: {template.name}"
    )
    # Words without a passage in them are another prompt than the one we know (or its texts stand elsewhere).
    return found if found.contexts or not passages.strip() else None

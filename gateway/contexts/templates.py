"""Passages inside the prompts that known frameworks and apps build by default (`catalogue`)."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.contexts import Extraction, system_texts, user_texts
from gateway.contexts.bounds import extraction
from gateway.contexts.catalogue import TEMPLATES
from gateway.contexts.shapes import Template
from gateway.exchange import Request, Response


class TemplateExtractor:
    """Known templates, each tried on the messages it is made for: the last user turn, or the system messages."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        turns, systems = user_texts(request), system_texts(request)
        for template in TEMPLATES:
            for text in turns[:1] if template.role == "user" else systems:
                if (found := _found(template, text, turns)) is not None:
                    return found
        return None


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

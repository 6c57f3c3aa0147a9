"""Passages inside the prompts that LangChain and LlamaIndex build by default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gateway.contexts import Extraction, last_user_text, messages_of, text_of
from gateway.exchange import Request, Response
from monitors.records import Context

_METADATA_LINE = re.compile(r"[a-z][a-z0-9_]*: .*")
_SOURCE_KEYS = ("source", "file_path", "file_name", "url", "title")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A prompt's shape, in literals: no pattern language, so the time to read a prompt grows with its length only.

    The passages lie between the last literal of `before`, which are looked for forwards one behind the other, and the
    last of `after`, which are looked for backwards from the end. So a template takes the first opening marker and the
    last closing one: passages are data and may contain either. The question lies between the last two of `before`
    ("before"), between the first two of `after` ("after"), in front of the first of `before` ("front"), or is the last
    user turn (None). With `ends` the first of `after` must end the message.
    """

    name: str
    role: Literal["user", "system"]
    before: tuple[str, ...]
    after: tuple[str, ...] = ()
    question: Literal["before", "after", "front"] | None = None
    ends: bool = False
    separator: str = "\n\n"

    def match(self, text: str) -> tuple[str | None, str] | None:
        """Return (question, passages) as they stand in `text`, or None when it is not of this shape."""
        openings: list[tuple[int, int]] = []
        position = 0
        for literal in self.before:
            start = text.find(literal, position)
            if start < 0:
                return None
            position = start + len(literal)
            openings.append((start, position))
        closings: list[tuple[int, int]] = []
        end = len(text)
        for literal in self.after:
            start = text.rfind(literal, position, end)
            if start < 0:
                return None
            closings.append((start, start + len(literal)))
            end = start
        if self.ends and text[closings[0][1] :].strip():
            return None
        question = None
        if self.question == "before":
            question = text[openings[-2][1] : openings[-1][0]]
        elif self.question == "after":
            question = text[closings[1][1] : closings[0][0]]
        elif self.question == "front":
            question = text[: openings[0][0]]
        return question, text[position:end]


_LONG, _SHORT, _CHAT = "-" * 21 + "\n", "-" * 20 + "\n", "-" * 16 + "\n"
_LLAMA_QA = ("\nAnswer:", "\nQuery: ", "\n" + _LONG)

TEMPLATES = (
    Template(
        name="langchain",
        role="user",
        before=("pieces of retrieved context to answer the question", "\nQuestion: ", "\nContext: "),
        after=("\nAnswer:",),
        question="before",
        ends=True,
    ),
    Template(
        name="langchain",
        role="system",
        before=("questions based solely on the context below", "<context>"),
        after=("</context>",),
    ),
    Template(
        name="langchain",
        role="user",
        before=("Use the following pieces of context to answer the question at the end.", "\n\n"),
        after=("\nHelpful Answer:", "\n\nQuestion: "),
        question="after",
        ends=True,
    ),
    Template(
        name="langchain",
        role="system",
        before=("Use the following pieces of context to answer the user's question.", "\n" + _CHAT),
    ),
    Template(name="langchain", role="system", before=("Use the following context in your response:\n\n",)),
    Template(
        name="langchain",
        role="user",
        before=("\n\nUse the following context to answer the query:\n",),
        question="front",
    ),
    Template(
        name="llamaindex",
        role="user",
        before=("Context information is below.\n" + _LONG,),
        after=_LLAMA_QA,
        question="after",
        ends=True,
    ),
    Template(
        name="llamaindex",
        role="user",
        before=("Context information from multiple sources is below.\n" + _LONG,),
        after=_LLAMA_QA,
        question="after",
        ends=True,
    ),
    Template(
        name="llamaindex",
        role="system",
        before=("Use the context information below to assist the user.\n" + _SHORT,),
        after=("\n" + _SHORT,),
    ),
    Template(
        name="llamaindex",
        role="system",
        before=("Here are the relevant documents for the context:",),
        after=("Instruction: Based on the above documents",),
    ),
)


class TemplateExtractor:
    """Known templates, each tried on the message it is made for."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        user = last_user_text(request)
        systems = [
            text_of(message.get("content"))
            for message in messages_of(request)
            if message.get("role") in ("system", "developer")
        ]
        for template in TEMPLATES:
            for text in [user or ""] if template.role == "user" else systems:
                if (found := template.match(text)) is not None:
                    question, passages = found
                    return Extraction(
                        question=((question if template.question else user) or "").strip() or None,
                        contexts=tuple(_passages(passages, template)),
                        source=template.name,
                    )
        return None


def _passages(text: str, template: Template) -> Iterator[Context]:
    """Split the passages; LlamaIndex writes a block of metadata lines before each, which becomes its source."""
    source: str | None = None
    chunks = [chunk.strip() for chunk in text.split(template.separator)]
    chunks = [chunk for chunk in chunks if chunk]
    for index, chunk in enumerate(chunks):
        if (
            template.name == "llamaindex"
            and index + 1 < len(chunks)
            and all(_METADATA_LINE.fullmatch(line.strip()) for line in chunk.split("\n"))
        ):
            pairs = dict(line.strip().split(": ", 1) for line in chunk.split("\n"))
            source = next((pairs[key] for key in _SOURCE_KEYS if key in pairs), None)
            continue
        yield Context(text=chunk, source=source)
        source = None

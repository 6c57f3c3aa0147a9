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
    """A prompt's shape. `marker` is a literal that must occur; `pattern` has the group `contexts`, maybe `question`.

    A pattern takes the first opening marker and the last closing one: passages are data and may contain either.
    """

    name: str
    role: Literal["user", "system"]
    marker: str
    pattern: re.Pattern[str]
    separator: str = "\n\n"


def _template(name: str, role: Literal["user", "system"], marker: str, pattern: str) -> Template:
    return Template(name=name, role=role, marker=marker, pattern=re.compile(pattern, re.DOTALL))


TEMPLATES = (
    _template(
        "langchain",
        "user",
        "pieces of retrieved context to answer the question",
        r"\nQuestion: (?P<question>.*?) ?\nContext: (?P<contexts>.*) ?\nAnswer:\s*\Z",
    ),
    _template(
        "langchain",
        "system",
        "questions based solely on the context below",
        r"<context>\n?(?P<contexts>.*)\n?</context>",
    ),
    _template(
        "langchain",
        "user",
        "Use the following pieces of context to answer the question at the end.",
        r"at the end\.[^\n]*\n\n(?P<contexts>.*)\n\nQuestion: (?P<question>.*)\nHelpful Answer:\s*\Z",
    ),
    _template(
        "langchain",
        "system",
        "Use the following pieces of context to answer the user's question.",
        r"user's question\..*?\n-{16}\n(?P<contexts>.*)\Z",
    ),
    _template(
        "langchain",
        "system",
        "Use the following context in your response:",
        r"Use the following context in your response:\n\n(?P<contexts>.*)\Z",
    ),
    _template(
        "langchain",
        "user",
        "Use the following context to answer the query:",
        r"\A(?P<question>.*?)\n\nUse the following context to answer the query:\n(?P<contexts>.*)\Z",
    ),
    _template(
        "llamaindex",
        "user",
        "Context information is below.",
        r"Context information is below\.\n-{21}\n(?P<contexts>.*)\n-{21}\n.*?\nQuery: (?P<question>.*)\nAnswer:\s*\Z",
    ),
    _template(
        "llamaindex",
        "user",
        "Context information from multiple sources is below.",
        r"multiple sources is below\.\n-{21}\n(?P<contexts>.*)\n-{21}\n.*?\nQuery: (?P<question>.*)\nAnswer:\s*\Z",
    ),
    _template(
        "llamaindex",
        "system",
        "Use the context information below to assist the user.",
        r"to assist the user\.\n-{20}\n(?P<contexts>.*)\n-{20}\n",
    ),
    _template(
        "llamaindex",
        "system",
        "Here are the relevant documents for the context:",
        r"for the context:\s*\n\n(?P<contexts>.*)\n\n\s*Instruction: Based on the above documents",
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
                if template.marker in text and (match := template.pattern.search(text)):
                    question = match.groupdict().get("question") or (user if template.role == "system" else None)
                    return Extraction(
                        question=question.strip() if question else None,
                        contexts=tuple(_passages(match["contexts"], template)),
                        source=template.name,
                    )
        return None


def _passages(text: str, template: Template) -> Iterator[Context]:
    """Split the passages; LlamaIndex writes a block of metadata lines before each, which becomes its source."""
    source: str | None = None
    chunks = [chunk.strip() for chunk in text.split(template.separator)]
    chunks = [chunk for chunk in chunks if chunk]
    for index, chunk in enumerate(chunks):
        lines = chunk.split("\n")
        if (
            template.name == "llamaindex"
            and index + 1 < len(chunks)
            and all(_METADATA_LINE.fullmatch(line.strip()) for line in lines)
        ):
            pairs = dict(line.strip().split(": ", 1) for line in lines)
            source = next((pairs[key] for key in _SOURCE_KEYS if key in pairs), None)
            continue
        yield Context(text=chunk, source=source)
        source = None

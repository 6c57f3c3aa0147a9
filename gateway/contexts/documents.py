"""Passages between document tags, in prompts of any make: `<documents>`, `<doc>`, `<source>`, `<context>`.

Tags are common in chats that retrieve nothing, so a tag alone is not enough: it begins a line outside of code fences
(a wrapper around numbered elements need not), it is closed, there is running text in it rather than markup or data, and

- `<document>`, `<doc>` and `<source>` stand in a wrapper, carry a number or a name, or the words around them speak of
  documents or sources (and not of XML);
- `<context>`, which people also use to say what they are up to, needs passages inside, or words around it that ask to
  answer from a context, documents or sources, or no other section of a structured prompt (`<task>` ...) beside it.

Also read: `documents` beside the messages (vLLM, Cohere) and Anthropic's document and search result blocks.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from gateway.contexts import Extraction, last_user_text, messages_of, system_texts, user_texts
from gateway.contexts.bounds import MAX_PASSAGES, extraction
from gateway.contexts.passages import read
from gateway.exchange import Request, Response
from monitors.records import Context


class DocumentExtractor:
    """Document blocks and fields, then tags in the system messages and the user's turns, the last turn first."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        question = last_user_text(request)
        if blocks := list(islice(_blocks(request), MAX_PASSAGES + 1)):
            return extraction(question, blocks, source="documents", marker="document blocks")
        turns = user_texts(request)
        for index, text in enumerate([*turns[:1], *system_texts(request), *turns[1:_TURNS]]):
            if (tagged := _tagged(text)) is not None:
                asked = (_question(tagged) if index == 0 and turns else None) or question
                return extraction(asked, tagged.contexts, source="documents", marker=f"<{tagged.tag}>")
        return None


_TURNS = 20
_ELEMENTS = 1_000
_TRIES = 8
_INDENT = 40
_AROUND = 4_000
"""How many turns, tags and tags in earnest are looked at; characters of a tag's indentation and of what is around."""

_OPENING = re.compile(
    r"<(?P<tag>documents|document|docs|doc|sources|source|contexts|context)(?P<attributes>(?: [^<>\n]*)?)>"
)
_INDEXED = re.compile(r"\s{0,40}<(?:document|doc|source) (?:index|id)=")
_FENCE = re.compile(r"^[ \t]{0,12}```", re.MULTILINE)
_SECTION = re.compile(
    r"^[ \t]{0,12}<(?:task|role|goal|instructions?|format|output_format|constraints?|examples?|persona|audience|tone|"
    r"requirements?|rules|style|background|code|input)>",
    re.MULTILINE | re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:context|documents?|docs?|sources?|passages?|excerpts?|Kontext|Dokumente?n?|Quellen?|contexte|documentos?|contexto|"
    r"fuentes)\b|上下文|文档|资料|文脈|コンテキスト|문맥",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:^|\n)[ \t#*]{0,8}(?:question|query|frage|pregunta|问题|質問|질문)\**[ \t]?[:\uff1a]\**", re.IGNORECASE
)
_QUESTION = re.compile(r"<(?P<tag>question|query|user_query|user_question)>(?P<text>.*)</(?P=tag)>", re.DOTALL)
_TAIL = re.compile(r"\n\s{0,20}(?:answer|antwort|respuesta|回答|答案)[ \t]?[:\uff1a]\s*\Z", re.IGNORECASE)
_ON_MARKUP = re.compile(r"\b(?:xml|html|xslt|xpath|xsd|json|yaml|parser?|parsing)\b", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"([A-Za-z_-]{1,40})=[\"']([^\"'\n]{0,500})[\"']")
_NAMED = frozenset({"id", "index", "name", "title", "number", "source", "url", "path", "file", "filename", "n"})
_CHILD = re.compile(r"\s*<(?P<tag>source|title|name|url|id)>(?P<text>[^<\n]{0,500})</(?P=tag)>")
_SOURCE_KEYS = ("source", "title", "name", "url", "path", "file", "filename")
_ID_KEYS = ("id", "index", "number", "n")
_CONTENT_TAGS = ("document_content", "document_contents", "content", "text", "page_content")
_WIDE = re.compile(r"[\u2e80-\uffef]")
_MARKUP_STARTS = ("<", "{", "[{", "import ", "#include")
_MARKUP_AROUND = ("<?xml", "<!doctype", "<html", "<rss", "<project", "<configuration")


class _Tagged(NamedTuple):
    """Passages between tags, and the text in front of and behind the block."""

    tag: str
    contexts: list[Context]
    before: str
    after: str


def _blocks(request: Request) -> Iterator[Context]:
    listed = request.body.get("documents")
    if isinstance(listed, list):
        yield from (one.context for one in read(listed))
    for message in messages_of(request):
        content = message.get("content")
        for block in content if isinstance(content, list) and message.get("role") == "user" else []:
            if isinstance(block, dict) and block.get("type") == "search_result":
                yield from (one.context for one in read(block))
            elif isinstance(block, dict) and block.get("type") == "document":
                yield from _document_block(block)


def _document_block(block: dict[str, Any]) -> Iterator[Context]:
    source, title = block.get("source"), block.get("title")
    said = source.get("data", source.get("content")) if isinstance(source, dict) else None
    if not isinstance(source, dict) or source.get("type") not in ("text", "content"):
        return
    for one in read({"content": said} if isinstance(said, list) else said):
        yield Context(text=one.context.text, source=title if isinstance(title, str) else None)


def _tagged(text: str) -> _Tagged | None:
    """Read the first tag of a text that holds passages; tags that turn out to be something else are passed over."""
    fences: list[int] | None = None
    tries = 0
    for opening in islice(_OPENING.finditer(text), _ELEMENTS):
        line = text.rfind("\n", max(opening.start() - _INDENT, 0), opening.start()) + 1
        begins = not text[line : opening.start()].strip() and (line > 0 or opening.start() <= _INDENT)
        if not (begins or _INDEXED.match(text, opening.end())):
            continue
        if fences is None:
            fences = [fence.start() for fence in _FENCE.finditer(text)]
        tries += 1
        if bisect(fences, opening.start()) % 2 == 0 and not _is_markup(text, opening.start()):
            tagged = _read_block(text, opening)
            if tagged is not None and tagged.contexts:
                return tagged
        if tries == _TRIES:
            break
    return None


def _is_markup(text: str, start: int) -> bool:
    head = text[max(start - _AROUND, 0) : start].lower()
    return any(sign in head for sign in _MARKUP_AROUND)


def _read_block(text: str, opening: re.Match[str]) -> _Tagged | None:
    tag = opening["tag"]
    closing = f"</{tag}>"
    end = text.rfind(closing, opening.end())
    if end < 0:
        return None
    before, after = text[: opening.start()], text[end + len(closing) :]
    inner = text[opening.end() : end]
    around = before[-_AROUND:] + "\n" + after[:_AROUND]
    if tag not in ("context", "contexts") and not opening["attributes"] and _ON_MARKUP.search(around):
        return None
    if tag in ("document", "doc", "source"):
        block = text[opening.start() : end + len(closing)]
        return _Tagged(tag, list(_elements(block, tag, wrapped=_ASKS.search(around) is not None)), before, after)
    contexts = [
        context
        for element in ("document", "doc", "source")
        if inner.lstrip().startswith(f"<{element}")
        for context in _elements(inner, element, wrapped=True)
    ]
    says = tag != "context" or _ASKS.search(around) or not _SECTION.search(around)
    if (
        not contexts
        and says
        and tag in ("context", "contexts", "documents")
        and not inner.lstrip().startswith(_MARKUP_STARTS)
    ):
        contexts = [Context(text=one) for one in inner.strip("\n").split("\n\n", _ELEMENTS) if one.strip()]
    return _Tagged(tag, contexts, before, after)


def _elements(block: str, tag: str, *, wrapped: bool) -> Iterator[Context]:
    """Read elements that follow one another; between two are a closing and an opening tag, blanks, maybe a line."""
    between = re.compile(rf"</{tag}>\s*(?:[-=*]{{2,80}}\s*)?<{tag}(?P<attributes>(?: [^<>\n]*)?)>")
    first = re.compile(rf"\s*<{tag}(?P<attributes>(?: [^<>\n]*)?)>").match(block)
    if first is None:
        return
    attributes, start = first["attributes"], first.end()
    body = block[: max(block.rfind(f"</{tag}>"), start)]
    for boundary in islice(between.finditer(body, start), _ELEMENTS):
        yield from _element(body[start : boundary.start()], attributes, wrapped=wrapped)
        attributes, start = boundary["attributes"], boundary.end()
    yield from _element(body[start:], attributes, wrapped=wrapped)


def _element(text: str, attributes: str, *, wrapped: bool) -> Iterator[Context]:
    said = dict(_ATTRIBUTE.findall(attributes))
    named = not _NAMED.isdisjoint(said)
    position = 0
    while (child := _CHILD.match(text, position)) is not None:
        said.setdefault(child["tag"], child["text"].strip())
        position = child.end()
    content = _content(text, position)
    passage = _unpadded(text[position:] if content is None else content)
    long_enough = (wrapped and named) or _is_text(passage)
    likely = content is not None or (long_enough and not passage.lstrip().startswith(_MARKUP_STARTS))
    if not (likely and (wrapped or named or position)):
        return
    if passage.strip():
        source = next((said[key] for key in _SOURCE_KEYS if said.get(key)), None)
        yield Context(text=passage, id=next((said[key] for key in _ID_KEYS if said.get(key)), None), source=source)


def _content(text: str, position: int) -> str | None:
    """Return what stands between content tags, when they come next."""
    for tag in _CONTENT_TAGS:
        opening = f"<{tag}>"
        start = text.find(opening, position, position + _INDENT + len(opening))
        if start >= 0 and not text[position:start].strip():
            end = text.rfind(f"</{tag}>", start)
            return text[start + len(opening) : end if end >= 0 else len(text)]
    return None


def _unpadded(body: str) -> str:
    """Take off the line breaks that keep tags on lines of their own, and the closing tag's indentation."""
    head, found, tail = body.rpartition("\n")
    if found and not tail.strip(" \t"):
        body = head
    return body.removeprefix("\n")


def _is_text(passage: str) -> bool:
    """Say whether there is more than a word or a path in it."""
    return len(passage.split(None, 2)) > 1 or len(_WIDE.findall(passage[:200])) >= 6  # noqa: PLR2004 - a short phrase


def _question(tagged: _Tagged) -> str | None:
    """Return what is asked around the block: behind it, else in front of it; after the last label, if there is one."""
    for text in (tagged.after, tagged.before):
        tail = text[-_AROUND:]
        labels = list(_LABEL.finditer(tail))
        if said := _TAIL.sub("", tail[labels[-1].end() :] if labels else tail).strip():
            if (inner := _QUESTION.search(said)) is not None:
                return inner["text"].strip() or said
            return said if labels or len(text) <= _AROUND else text.strip()
    return None

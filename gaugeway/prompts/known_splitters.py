"""Splitting a block of passages as the app joined them.

Where the join leaves no doubt a passage comes back to the letter. What a passage says about itself (its own closing
tag) is not believed: a boundary is a closing *and* the next opening, and the last passage ends with the last closing.
Patterns begin with a literal and run over a text once, whatever stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from gaugeway.prompts import MOST_PIECES
from gaugeway.prompts.form.divisions import divisions
from gaugeway.prompts.parse import with_ends
from gaugeway.records import Context

Splitter = Callable[[str], Iterator[Context]]

_PLAIN_TO_SEE = ("data", "tag", "numbered")

_HEADING = re.compile(r"\s{0,4}#{1,6} \w[^\n]{0,200}\s{0,4}")
_METADATA_LINE = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,60}: .*")
_KNOWN_METADATA = frozenset({"page_label", "file_path", "file_name", "file_type", "source", "url", "title", "filename"})
_SOURCE_KEYS = ("source", "file_path", "file_name", "filename", "url", "title")


def by(separator: str, *, strip: bool = False) -> Splitter:
    """Return a splitter at `separator`; `strip` is for prompts that indent or pad passages."""

    def split(text: str) -> Iterator[Context]:
        for chunk in text.split(separator, MOST_PIECES):
            if chunk and not chunk.isspace():
                yield Context(text=chunk.strip() if strip else chunk)

    return split


def _with_headings(chunks: list[str]) -> Iterator[Context]:
    """Yield the pieces between blank lines; a heading alone is no passage, but the beginning of one."""
    held: list[str] = []
    for chunk in chunks:
        if not chunk or chunk.isspace():
            continue
        held.append(chunk)
        if _HEADING.fullmatch(chunk) is None:
            yield Context(text="\n\n".join(held))
            held.clear()
    if held:
        yield Context(text="\n\n".join(held))


def paragraphs(text: str) -> Iterator[Context]:
    """Split by the block's own notation, else at blank lines."""
    found = next(divisions(text), None)
    if found is not None and found.name.startswith(_PLAIN_TO_SEE) and (len(found.items) > 1 or found.name == "data"):
        yield from found.items
    else:
        yield from _with_headings(text.split("\n\n", MOST_PIECES))


def padded(text: str) -> Iterator[Context]:
    """Like `paragraphs`, for prompts that indent or pad passages."""
    for paragraph in paragraphs(text):
        yield replace(paragraph, text=paragraph.text.strip())


def labelled(text: str) -> Iterator[Context]:
    """LangChain: the document prompt of `RetrievalQA.from_llm` puts a label before each; else between blank lines."""
    label = "Context:\n"
    chunks = text.removeprefix(label).split(f"\n\n{label}" if text.startswith(label) else "\n\n", MOST_PIECES)
    yield from _with_headings(chunks)


def nodes(text: str) -> Iterator[Context]:
    """LlamaIndex: nodes between blank lines, each perhaps behind a block of `key: value` lines, its metadata.

    When the first node has metadata all are taken to have some, and a node may then contain blank lines itself.
    """
    if (found := next(divisions(text), None)) is not None and found.name == "data":
        yield from found.items
        return
    chunks = [chunk.strip() for chunk in text.strip().split("\n\n", MOST_PIECES)]
    chunks = [chunk for chunk in chunks if chunk]
    kinds = [_metadata(chunk) for chunk in chunks[:-1]] + [None] if chunks else []
    if not kinds or kinds[0] is None:
        yield from _with_headings(chunks)
        return
    keys = kinds[0].keys()
    starts = [index for index, kind in enumerate(kinds) if kind is not None and kind.keys() & keys]
    for start, end in zip(starts, [*starts[1:], len(chunks)], strict=True):
        pairs = kinds[start] or {}
        source = next((pairs[key] for key in _SOURCE_KEYS if key in pairs), None)
        if body := "\n\n".join(chunks[start + 1 : end]):
            yield Context(text=body, source=source)


def _metadata(chunk: str) -> dict[str, str] | None:
    lines = chunk.split("\n")
    if not all(_METADATA_LINE.fullmatch(line) for line in lines):
        return None
    pairs = dict(line.split(": ", 1) for line in lines)
    return pairs if not _KNOWN_METADATA.isdisjoint(pairs) else None


def numbered(text: str) -> Iterator[Context]:
    """LlamaIndex's numbered sources, `Source 1:` and so on; only the next number opens the next one."""
    body = "\n\n" + text.strip()
    number, position = 1, body.find("\n\nSource 1:\n")
    while position >= 0:
        start = position + len(f"\n\nSource {number}:\n")
        position = body.find(f"\n\nSource {number + 1}:\n", start)
        if passage := (body[start:position] if position >= 0 else body[start:]).strip():
            yield Context(text=passage, id=str(number))
        number += 1


def with_sources(text: str) -> Iterator[Context]:
    """LangChain's question answering with sources: `Content: ...` and `Source: ...`, a blank line between two."""
    for chunk in text.removeprefix("Content: ").split("\n\nContent: ", MOST_PIECES):
        body, found, source = chunk.rpartition("\nSource: ")
        passage = body if found else chunk
        if passage.strip():
            yield Context(text=passage, source=source.strip() or None if found else None)


_HAYSTACK_GAP = re.compile(r"\n[ \t]*\n[ \t]*")
_HAYSTACK_HEADER = re.compile(
    r"(?:\A|\n[ \t]*\n)[ \t]*Document (?P<number>\d{1,6}):[ \t]*(?:\n[ \t]*Document name: (?P<name>[^\n]*))?(?=\n|\Z)"
)


def haystack(text: str) -> Iterator[Context]:
    """Haystack's loops leave a blank line and their own indentation around each document, and may number them.

    As with LlamaIndex only the next number opens the next one: a passage may have blank lines, and headers, in it.
    """
    body = text.strip()
    header = _HAYSTACK_HEADER.match(body)
    if header is None:
        yield from (Context(text=one) for chunk in _HAYSTACK_GAP.split(body, MOST_PIECES) if (one := chunk.strip()))
        return
    opened = [header]
    for other in islice(_HAYSTACK_HEADER.finditer(body, header.end()), MOST_PIECES):
        last = opened[-1]
        if int(other["number"]) == int(last["number"]) + 1 and (other["name"] is None) == (last["name"] is None):
            opened.append(other)
    for header, end in with_ends(opened, len(body)):
        if passage := body[header.end() : end].strip():
            yield Context(text=passage, source=header["name"])


_RAGFLOW_HEADER = re.compile(r"\nID: (?P<id>[^\n]{1,80})\n(?P<fields>(?:├── [^\n]*\n)*)└── Content:\n")
_RAGFLOW_FIELD = re.compile(r"├── (?:URL|Title): ([^\n]*)")
_RAGFLOW_RULE = "\n\n------\n\n"


def ragflow(text: str) -> Iterator[Context]:
    """RAGFlow's metadata trees; older versions only put a rule between chunks."""
    body = text.rstrip(" ").removesuffix("\n")
    headers = list(islice(_RAGFLOW_HEADER.finditer(body), MOST_PIECES))
    for header, end in with_ends(headers, len(body)):
        passage = body[header.end() : end]
        if end < len(body):
            passage = passage.removesuffix(_RAGFLOW_RULE)
        titles = _RAGFLOW_FIELD.findall(header["fields"])
        if passage.strip():
            yield Context(text=passage, id=header["id"], source=titles[0] if titles else None)
    if not headers and "\nID: " not in body:
        yield from by(_RAGFLOW_RULE, strip=True)(body.strip().removeprefix("------"))


def anythingllm(text: str) -> Iterator[Context]:
    """AnythingLLM's `[CONTEXT 0]` to `[END CONTEXT 0]`; `text` begins behind the first opening."""
    number, start = 0, 0
    while start >= 0:
        closing = f"\n[END CONTEXT {number}]"
        opening = f"{closing}\n\n[CONTEXT {number + 1}]:\n"
        end = text.find(opening, start)
        behind = end + len(opening) if end >= 0 else -1
        if end < 0:
            end = text.rfind(closing, start)
        passage, source = _document_metadata(text[start : end if end >= 0 else len(text)])
        if passage.strip():
            yield Context(text=passage, id=str(number), source=source)
        number, start = number + 1, behind


def _document_metadata(passage: str) -> tuple[str, str | None]:
    """Strip the header that AnythingLLM's splitter writes before a chunk."""
    header, found, body = passage.partition("\n</document_metadata>\n\n")
    if not (found and header.startswith("<document_metadata>\n")):
        return passage, None
    _, named, rest = header.partition("\nsourceDocument: ")
    return body, rest.split("\n", 1)[0].strip() or None if named else None


_DOC = re.compile(r"</doc>\n<doc id='(?P<id>[^'\n]{0,200})'>")
_DOC_OPENING = re.compile(r"\s*<doc id='(?P<id>[^'\n]{0,200})'>")


def docs(text: str) -> Iterator[Context]:
    """Flowise's `<doc id='0'>` elements, a line break between two."""
    opening = _DOC_OPENING.match(text)
    if opening is None:
        yield from by("\n\n")(text)
        return
    for tag, body in _elements(text, opening, _DOC, "</doc>"):
        yield Context(text=body, id=tag["id"] or None)


def _elements(
    text: str, opening: re.Match[str], boundary: re.Pattern[str], closing: str
) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the opening and the body of each element that is not blank; the last one ends with the last closing tag."""
    start = opening.end()
    body = text[: max(text.rfind(closing), start)]
    for following in [*boundary.finditer(body, start), None]:
        inside = body[start : None if following is None else following.start()]
        if inside.strip():
            yield opening, inside
        if following is not None:
            opening, start = following, following.end()


_SOURCE_OPENING = re.compile(r"\s*<source(?P<attributes>(?: [^<>\n]*)?)>")
_SOURCE = re.compile(r"</source>\n<source(?P<attributes>(?: [^<>\n]*)?)>")
_ATTRIBUTE = re.compile(r"([\w-]{1,40})=\"([^\"]*)\"")


def sources(text: str) -> Iterator[Context]:
    """Open WebUI's `<source id="1" name="..">` elements. A body may be empty: its text is in a tool's message."""
    opening = _SOURCE_OPENING.match(text)
    if opening is None:
        yield from by("\n\n", strip=True)(text)
        return
    for tag, body in _elements(text, opening, _SOURCE, "</source>"):
        said = dict(_ATTRIBUTE.findall(tag["attributes"]))
        yield Context(text=body, id=said.get("resource-id") or said.get("id"), source=said.get("name"))


_ITEM = re.compile(r"<contextItem>\s*<!\[CDATA\[")
_FILE = re.compile(r"<file>\s*<filename>(?P<name>[^<\n]{0,300})</filename>\s*<context>")


def librechat(text: str) -> Iterator[Context]:
    """LibreChat's files: either items in CDATA, or (full context) the file as it is."""
    items = list(islice(_ITEM.finditer(text), MOST_PIECES))
    files = list(islice(_FILE.finditer(text), MOST_PIECES))
    if not items:
        for opening, end in with_ends(files, len(text)):
            body = text[opening.end() : max(text.rfind("</context>", opening.end(), end), opening.end())]
            if body.strip():
                yield Context(text=body.strip(), source=opening["name"].strip() or None)
        return
    names = iter(files)
    following = next(names, None)
    name: str | None = None
    for opening, end in with_ends(items, len(text)):
        # A file named inside a passage stands between two items as well: only one right before an item counts.
        while following is not None and following.start() < opening.start():
            if not text[following.end() : opening.start()].strip():
                name = following["name"].strip() or None
            following = next(names, None)
        closing = text.rfind("]]>", opening.end(), end)
        passage = text[opening.end() : closing if closing >= 0 else end]
        if passage.strip():
            yield Context(text=passage, source=name)

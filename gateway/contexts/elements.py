"""Elements that hold one passage each: `<document index="1">`, `<item><source>a.md</source><text>...</text></item>`.

What an element says in attributes or in children beside its text (a source, a title, a score) is about the passage and
never the passage itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from monitors.records import Context

_ELEMENTS = 1_000
_INDENT = 40
"""Most elements of a block, and most characters of a tag's indentation."""

_ATTRIBUTE = re.compile(r"([A-Za-z_-]{1,40})=[\"']([^\"'\n]{0,500})[\"']")
_NAMED = frozenset({"id", "index", "name", "title", "number", "source", "url", "path", "file", "filename", "n"})
_CHILD = re.compile(r"\s*<(?P<tag>[A-Za-z][\w-]{0,40})>(?P<text>[^<\n]{0,500})</(?P=tag)>")
_ABOUT = frozenset({"source", "title", "name", "url", "id"})
_SOURCE_KEYS = ("source", "title", "name", "url", "path", "file", "filename", "link", "uri", "document", "doc")
_ID_KEYS = ("id", "index", "number", "n", "chunk_id", "doc_id", "document_id")
_SCORE_KEYS = ("score", "similarity", "relevance", "relevance_score")
_CONTENT_TAGS = (
    "document_content",
    "document_contents",
    "content",
    "contents",
    "text",
    "page_content",
    "passage",
    "chunk",
    "snippet",
    "excerpt",
    "body",
    "chunk_text",
    "document_text",
)
_OPENING = re.compile(r"\s*<(?P<tag>[A-Za-z][\w-]{0,40})(?P<attributes>(?: [^<>\n]*)?)>")
_HTML = frozenset(
    [
        "html",
        "head",
        "body",
        "div",
        "span",
        "p",
        "a",
        "ul",
        "ol",
        "li",
        "table",
        "tr",
        "td",
        "th",
        "thead",
        "tbody",
        "section",
        "article",
        "main",
        "nav",
        "header",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "img",
        "script",
        "style",
        "meta",
        "link",
        "br",
        "form",
        "input",
        "button",
        "label",
        "svg",
        "video",
        "audio",
        "iframe",
        "pre",
        "code",
        "blockquote",
        "em",
        "strong",
        "b",
        "i",
        "rss",
        "channel",
        "feed",
        "urlset",
        "project",
        "configuration",
        "plist",
    ]
)
_CDATA = re.compile(r"\s*<!\[CDATA\[(?P<text>.*?)\]\]>\s*\Z", re.DOTALL)
_WIDE = re.compile(r"[\u2e80-\uffef]")
MARKUP_STARTS = ("<", "{", "[{", "import ", "#include")


def items(text: str) -> list[Context]:
    """Return the passages of a text that consists of elements only, or of one wrapper around them; else []."""
    first = _OPENING.match(text)
    if first is None or first["tag"].lower() in _HTML or not text.rstrip().endswith(">"):
        return []
    found = list(elements(text, first["tag"], wrapped=True)) if _is_element(text, first) else []
    if found:
        return found
    end = text.rfind(f"</{first['tag']}>")
    inner = text[first.end() : end] if end > 0 else ""
    second = _OPENING.match(inner)
    if second is None or second["tag"].lower() in _HTML or not _is_element(inner, second):
        return []
    return list(elements(inner, second["tag"], wrapped=True))


def _is_element(text: str, opening: re.Match[str]) -> bool:
    """Whether the first tag is a passage's: it is repeated, has a name or number, or has a content child."""
    if text.count(f"</{opening['tag']}>", opening.end()) > 1:
        return True
    inner = text[opening.end() :]
    named = not _NAMED.isdisjoint(dict(_ATTRIBUTE.findall(opening["attributes"])))
    return (named and _OPENING.match(inner) is None) or _content(inner, _children(inner, {}, 0)) is not None


def elements(block: str, tag: str, *, wrapped: bool) -> Iterator[Context]:
    """Read consecutive elements; only blanks or one line may separate two."""
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
    position = _children(text, said, 0)
    content = _content(text, position)
    if content is None and position:
        position = _children(text, said, 0, only=_ABOUT)
    elif content is not None:
        _children(text, said, content[1])
    passage = _unpadded(text[position:] if content is None else content[0])
    long_enough = (wrapped and named) or _is_text(passage)
    likely = content is not None or (long_enough and not passage.lstrip().startswith(MARKUP_STARTS))
    if not (likely and (wrapped or named or position)):
        return
    if passage.strip():
        score = next((value for key in _SCORE_KEYS if (value := _number(said.get(key))) is not None), None)
        source = next((said[key] for key in _SOURCE_KEYS if said.get(key)), None)
        identity = next((said[key] for key in _ID_KEYS if said.get(key)), None)
        yield Context(text=passage, id=identity, score=score, source=source)


def _children(text: str, said: dict[str, str], position: int, only: frozenset[str] | None = None) -> int:
    """Collect the single-line children that follow, except the text; return their end."""
    while (child := _CHILD.match(text, position)) is not None:
        tag = child["tag"].lower()
        if tag in _CONTENT_TAGS or (only is not None and tag not in only):
            break
        said.setdefault(tag, child["text"].strip())
        position = child.end()
    return position


def _content(text: str, position: int) -> tuple[str, int] | None:
    """Return the content of the content tags, if they come next, and their end."""
    for tag in _CONTENT_TAGS:
        opening = f"<{tag}>"
        start = text.find(opening, position, position + _INDENT + len(opening))
        if start >= 0 and not text[position:start].strip():
            end = text.rfind(f"</{tag}>", start)
            inner = text[start + len(opening) : end if end >= 0 else len(text)]
            data = _CDATA.match(inner)
            return data["text"] if data else inner, end + len(tag) + 3 if end >= 0 else len(text)
    return None


def _unpadded(body: str) -> str:
    """Strip the line breaks next to tags, and the closing tag's indentation."""
    head, found, tail = body.rpartition("\n")
    if found and not tail.strip(" \t"):
        body = head
    return body.removeprefix("\n")


def _is_text(passage: str) -> bool:
    """Return whether a passage is more than a word or a path."""
    return len(passage.split(None, 2)) > 1 or len(_WIDE.findall(passage[:200])) >= 6  # noqa: PLR2004 - a short phrase


def _number(said: str | None) -> float | None:
    try:
        value = float(said or "")
    except ValueError:
        return None
    return value if abs(value) < 1e9 else None  # noqa: PLR2004 - no score; this leaves out infinity and NaN, too

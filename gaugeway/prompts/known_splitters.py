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

from msgspec import Struct

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
_ATTRIBUTE = re.compile(r"([\w-]{1,40})=\"([^\"]*)\"")
_NEVER = "\0\0"


def by(separator: str) -> Splitter:
    """Return a splitter at `separator`."""
    return lambda text: (Context(text=chunk) for chunk in text.split(separator, MOST_PIECES) if chunk.strip())


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


class Records(Struct):
    """How a product writes records: `opens` matches what stands in front of a passage, the first one behind `before`.

    Its groups `id` and `source` say it of the passage, `file` of the ones up to the next file, `attributes` are those
    of a tag. With a group `number` only the next number opens the next record: a passage may have such a line in it. A
    passage ends with the last `closes` in its record; what is behind may be its source. Where no record begins the
    text, it is split at `otherwise`. `strip` is for prompts that indent or pad passages.
    """

    opens: str
    before: str = ""
    closes: str = _NEVER
    source_behind: bool = False
    otherwise: str = ""
    strip: bool = False

    def split(self, text: str) -> Iterator[Context]:
        """Yield the passages of a text."""
        body = self.before + text
        openings: list[re.Match[str]] = []
        for opening in islice(re.compile(self.opens).finditer(body), MOST_PIECES):
            if not openings or _follows(opening.groupdict(), openings[-1].groupdict()):
                openings.append(opening)
        if not openings or (self.before and openings[0].start() >= len(self.before)):
            pieces = re.split(self.otherwise, text, maxsplit=MOST_PIECES) if self.otherwise else []
            yield from _with_headings([piece.strip() for piece in pieces] if self.strip else pieces)
            return
        file = ""
        for opening, end in with_ends(openings, len(body)):
            said = {name: value for name, value in opening.groupdict().items() if value}
            said |= dict(_ATTRIBUTE.findall(said.get("attributes", "")))
            passage, closed, behind = body[opening.end() : end].rpartition(self.closes)
            passage = passage if closed else behind
            file = said.get("file", file)
            source = said.get("source") or said.get("name") or (behind if closed and self.source_behind else file)
            if passage.strip():
                identity = said.get("resource-id") or said.get("id")
                passage = passage.strip() if self.strip else passage
                yield Context(text=passage, id=identity, source=source.strip() or None)


def _follows(said: dict[str, str | None], last: dict[str, str | None]) -> bool:
    """Whether a record has the next number, and a source if the last one has one; those without numbers all follow."""
    if (number := said.get("number")) is None:
        return True
    same = (said.get("source") is None) == (last.get("source") is None)
    return same and int(number) == int(last["number"] or 0) + 1

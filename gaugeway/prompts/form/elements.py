"""Reads a text that is nothing but elements of one name, such as `<document index="1">`, perhaps in one around them."""

from __future__ import annotations

import re
from dataclasses import replace

from gaugeway.prompts.form.candidates import contexts, siblings
from gaugeway.prompts.form.text import Block, Text
from gaugeway.records import Context

_TAGS = re.compile(r"(?:\s*</?[^\W\d][^<>\n]{0,200}>)*\s*")
_CDATA = re.compile(r"<!\[CDATA\[(?P<text>.*)\]\]>", re.DOTALL)
_MARKUP_STARTS = ("<", "{", "[{", "import ", "#include")
_HTML = re.compile(
    r"html|head|body|div|span|p|a|ul|ol|li|table|tr|td|th|thead|tbody|section|main|nav|header|footer|h[1-6]|img|script|"
    r"style|meta|link|br|form|input|button|label|svg|video|audio|iframe|pre|code|blockquote|em|strong|b|i|rss|channel|"
    r"feed|urlset|project|configuration|plist",
    re.IGNORECASE,
)
_LEAST_WORDS, _WIDE = 2, 0x2E80


def elements_in(text: str) -> list[Context]:
    """Return the passages of a text that consists of elements only; [] for markup such as a page."""
    read = Text.of(text)
    if not read.elements or _HTML.fullmatch(read.elements[0].name):
        return []
    for block in (*siblings(read), *siblings(read, least=1)):
        if _is_all(read, block):
            found = [_of_data(one) for one in contexts(read, block)]
            if len(found) == len(block.spans) and all(_is_passage(one, alone=len(found) == 1) for one in found):
                return found
    return []


def _is_all(text: Text, block: Block) -> bool:
    """Whether nothing but tags stands before, between and behind the elements."""
    raw = text.raw
    name = next(one.name for one in text.elements if one.start == block.start)
    if _HTML.fullmatch(name):
        return False
    return _TAGS.fullmatch(raw, 0, block.start) is not None and _TAGS.fullmatch(raw, block.end) is not None


def _of_data(one: Context) -> Context:
    data = _CDATA.fullmatch(one.text)
    return replace(one, text=data["text"]) if data else one


def _is_passage(one: Context, *, alone: bool) -> bool:
    """Whether an element holds a text: more than a word; a lone one says what it is about, too."""
    said = one.text
    if said.startswith(_MARKUP_STARTS) or not (len(said.split(None, 2)) >= _LEAST_WORDS or ord(said[:1]) >= _WIDE):
        return False
    return not alone or one.id is not None or one.source is not None

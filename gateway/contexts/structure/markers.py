"""Splits passages at markers: elements, begin and end lines, numbers, records of `Key: value` lines, headers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from gateway.contexts.structure.labels import label_kind
from gateway.contexts.structure.passage_metadata import META_LINE, NAME_ONLY, TEXT_LABEL, clean
from gateway.contexts.structure.word_index import IndexedText
from monitors.records import Context
from monitors.text_cache import TextCache

MOST_MARKERS = 400
_METADATA_LINES = 12
_PAIR = 2
_DEPTH = 3
_HEADER_LENGTH = 200
_OPENING = re.compile(
    r"\s{0,200}<(?P<tag>[A-Za-z][\w.-]{0,40}?)(?P<number>[_-]?\d{0,4})(?P<attributes>(?:\s[^<>\n]{0,600})?)>"
)
_ATTRIBUTE = re.compile(r"([A-Za-z_-]{1,40})\s?=\s?(?:\"([^\"\n]{0,500})\"|'([^'\n]{0,500})'|([^\s\"'>]{1,200}))")
_CHILD = re.compile(r"\s{0,200}<(?P<tag>[A-Za-z][\w.-]{0,40})(?:\s[^<>\n]{0,300})?>")
_SELF_CLOSED = re.compile(r"\s{0,200}<[A-Za-z][\w.-]{0,40}(?:\s[^<>\n]{0,300})?/>")
_TEXT_TAG = re.compile(
    r"(?:document_?|page_?|passage_?|chunk_?)?(?:content|contents|text|body|snippet|passage|excerpt|chunk|quote|extract|paragraph|page_content|summary)",
    re.IGNORECASE,
)
_NAME_TAG = re.compile(r"(?:source|title|name|url|uri|link|file|file_?name|path|document|file_?path)", re.IGNORECASE)
_ID_TAG = re.compile(r"(?:id|index|number|n|rank|doc_?id|document_?id|chunk_?id|i)", re.IGNORECASE)
_SCORE_TAG = re.compile(r"(?:score|similarity|relevance)", re.IGNORECASE)
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)
_GAP = r"\s*(?:[-=*#_]{2,80}\s*)?"


def elements(text: str, depth: int = 0) -> tuple[str, list[Context]] | None:
    """Read consecutive elements of one name, or the elements inside a single wrapper."""
    opening = _OPENING.match(text)
    if opening is None or depth > _DEPTH:
        return None
    tag = opening["tag"]
    closing = re.compile(rf"</{re.escape(tag)}(?:[_-]?\d{{0,4}})>\s*\Z", re.IGNORECASE).search(
        text, max(len(text) - 300, 0)
    )
    if closing is None:
        return None
    joint = re.compile(
        rf"</{re.escape(tag)}[_-]?\d{{0,4}}>{_GAP}<{re.escape(tag)}(?P<number>[_-]?\d{{0,4}})(?P<attributes>(?:\s[^<>\n]{{0,600}})?)>",
        re.IGNORECASE,
    )
    bodies: list[tuple[str, str, str]] = []
    start, attributes, number = opening.end(), opening["attributes"], opening["number"]
    for boundary in islice(joint.finditer(text, start), MOST_MARKERS):
        bodies.append((text[start : boundary.start()], attributes, number))
        start, attributes, number = boundary.end(), boundary["attributes"], boundary["number"]
    bodies.append((text[start : closing.start()], attributes, number))
    if len(bodies) == 1 and (inner := _inside(bodies[0][0], depth)) is not None:
        return inner
    contexts = [one for body, said, digits in bodies if (one := _element(body, said, digits)) is not None]
    return (tag.lower(), contexts) if contexts else None


def _inside(body: str, depth: int) -> tuple[str, list[Context]] | None:
    """Read the elements inside a wrapper; None when its children are the fields of one passage."""
    first = _CHILD.match(body)
    if first is None or _is_fields(body):
        return None
    if _TEXT_TAG.fullmatch(first["tag"]) and body.count(f"</{first['tag']}>") < _PAIR:
        return None  # one text tag is a part
    return elements(body.strip(), depth + 1)


def _is_fields(body: str) -> bool:
    """Return whether the children of an element are the fields of one passage: distinct names, one of them a text's."""
    names = [name for name, _ in islice(_children(body), 12)]
    return len(names) > 1 and len(set(names)) == len(names) and any(_TEXT_TAG.fullmatch(name) for name in names)


def _children(body: str) -> Iterator[tuple[str, str]]:
    position = 0
    while (child := _CHILD.match(body, position)) is not None:
        closing = f"</{child['tag']}>"
        end = body.find(closing, child.end())
        if end < 0:
            return
        following = _CHILD.match(body, end + len(closing))
        if following is None:
            # The last child ends at the last closing tag: a passage may contain that tag itself.
            end = max(end, body.rfind(closing))
        yield child["tag"], body[child.end() : end]
        position = end + len(closing)


def _element(body: str, attributes: str, digits: str) -> Context | None:
    """Read one element: its text child, or the text after its metadata children."""
    said = {name.lower(): one or two or three for name, one, two, three in _ATTRIBUTE.findall(attributes)}
    source = next((value for name, value in said.items() if _NAME_TAG.fullmatch(name)), None)
    identity = (
        next((value for name, value in said.items() if _ID_TAG.fullmatch(name)), None) or digits.strip("_-") or None
    )
    score = next((value for name, value in said.items() if _SCORE_TAG.fullmatch(name)), None)
    rest, texts, position = body, [], 0
    if _CHILD.match(body) is not None:
        for name, inner in islice(_children(body), 30):
            if _TEXT_TAG.fullmatch(name):
                texts.append(inner)
            elif _NAME_TAG.fullmatch(name) and source is None:
                source = inner.strip()
            elif _ID_TAG.fullmatch(name) and identity is None:
                identity = inner.strip()
            elif _SCORE_TAG.fullmatch(name) and score is None:
                score = inner.strip()
            position = body.find(inner, position) + len(inner) + len(name) + 3
        rest = body[position:] if not texts else texts[0]
    if (data := _CDATA.fullmatch(rest)) is not None:
        rest = data[1]
    one = clean(rest.strip("\n"))
    if not one.text.strip():
        return None
    return Context(text=one.text, id=identity or None, source=source or one.source, score=_score(score))


def _score(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


_BLANKS = " \t\n-=*#"
_END_LINE = re.compile(
    r"^[ \t]{0,40}(?:[^\w\n]{0,8}(?:(?:END|FIN|ENDE)(?: OF)?[ _:-]{1,3}|(?<=[\[{])/)"
    r"(?P<what>[^\W\d_][^\n]{0,60}?)[^\w\n]{0,8}|(?:[^\w\s]{2,8}|[\[(<]) ?END ?(?:[^\w\s]{2,8}|[\])>]))$",
    re.MULTILINE | re.IGNORECASE,
)
_BEGIN_WORD = re.compile(r"[ \t]*[^\w\n]{0,8}(?:BEGIN|START|BEGINNING)(?: OF)?[ _:-]{1,3}", re.IGNORECASE)


_DECORATED_LINE = re.compile(r"[ \t]{0,40}[^\w\s]{1,8} ?\w[^\n]{0,180}[^\w\s]{1,8}[ \t]*\Z")
_BEGIN_END = re.compile(r"\[(?P<what>[^\[\]\n]{1,60}?) (?:begin|start)\]", re.IGNORECASE)


def _between(text: str) -> list[tuple[str | None, str]] | None:
    """Return the texts between `[page 1 begin]` and `[page 1 end]`."""
    pieces: list[tuple[str | None, str]] = []
    position = 0
    while len(pieces) < MOST_MARKERS and (opening := _BEGIN_END.search(text, position)) is not None:
        closing = f"[{opening['what']} end]"
        end = text.find(closing, opening.end())
        if end < 0:
            break
        number = re.search(r"\d{1,6}", opening["what"])
        pieces.append((number[0] if number else None, text[opening.end() : end]))
        position = end + len(closing)
    return pieces or None


def paired(text: str) -> list[tuple[str | None, str]] | None:
    """Split at pairs such as `[DOC 1]` ... `[END DOC 1]`; None when other text follows the last end."""
    if (between := _between(text)) is not None:
        return between
    if _END_LINE.match(text.rstrip(_BLANKS).rpartition("\n")[2]) is None:
        return None
    ends = list(islice(_END_LINE.finditer(text), MOST_MARKERS))
    if not ends or text[ends[-1].end() :].strip(_BLANKS):
        return None
    pieces: list[tuple[str | None, str]] = []
    position = 0
    for end in ends:
        piece = text[position : end.start()].lstrip("\n")
        line, _, body = piece.partition("\n")
        what = re.split(r"[\W\d_]", end["what"] or "", maxsplit=1)[0].casefold()
        if not body.strip() or len(line) > _HEADER_LENGTH:
            return None
        opens = _DECORATED_LINE.match(line) if not what else what in line.casefold() or _BEGIN_WORD.match(line)
        if not opens:
            return None
        number = re.search(r"\d{1,6}", line)
        pieces.append((number[0] if number else None, body))
        position = end.end()
    return pieces


_NUMBER = re.compile(
    r"^(?P<head>[ \t]{0,8}(?:[#>*_=~|•+-]{1,10}[ \t]*)?(?:\[{1,2}|【|\(|<|《|「|〈|（)?[ \t]*"
    r"(?P<word>[^\W\d_]{1,24}(?:[ _][^\W\d_]{1,24}){0,2}[ \t]{0,2}[:#№_-]?[ \t]{0,2})?[\[(#]?)"
    r"(?P<n>\d{1,4})(?P<inside>[ \t]?[:：,;|–—-][ \t]?[^\n\[\]【】]{1,200}(?=[\]】]))?(?P<close>[\])】>》」〉）]{0,2})"
    r"(?P<aside>[ \t]*[\[(（][^\n\[\]()]{1,200}(?:\([^\n()]{0,60}\)[^\n\[\]()]{0,60})?[\])）])?"
    r"(?P<term>(?:[ \t]*(?::{1,3}|：|\.(?=[ \t\n])|、|[-–—](?=[ \t\n])|\)))?"
    r"(?:[*_=#~>-]{2,10}|\*)?[:：]?)(?P<blank>[ \t]*)",
    re.MULTILINE,
)
_HEADING = 90


def numbered(text: str) -> tuple[str, list[tuple[str | None, str]], bool] | None:
    """Split before markers that count up from 0 or 1: `[1]`, `2.`, `Source 1:`, `Document [1](Title: ...)`.

    Only the next number opens the next passage: a passage may itself contain numbers and lists.
    """
    first = _first_number(text)
    if first is None:
        return None
    head, close, word = first["head"], first["close"], (first["word"] or "").strip()
    anywhere = bool(word) and ":" in first["term"] and "\n" not in head
    pieces: list[tuple[str | None, str]] = []
    opened = first
    while True:
        number = int(opened["n"])
        following = _next_number(text, opened, head, close, number + 1, anywhere=anywhere)
        end = following.start("head") if following is not None else len(text)
        body = text[opened.end() : end]
        aside = (opened["aside"] or "").strip()
        inside = (opened["inside"] or "").strip(" :：,;|–—-\t")
        pieces.append(
            (opened["n"], f"{aside} {body}" if aside else f"source: {inside}\n{body.lstrip()}" if inside else body)
        )
        if following is None or len(pieces) == MOST_MARKERS:
            break
        opened = following
    if len(pieces) == 1 and f"\n{head}" in text:
        return None  # the numbers do not count up: names with figures in them
    if len(pieces) == 1 and not (label_kind(IndexedText(word), 0, len(word)) if word else _opens_alone(text, first)):
        return None
    name = re.sub(r"\s+", " ", f"{head.strip()}n{close}{first['term'].strip()}")
    again = not word and f"\n{head}{first['n']}{close}{first['term']}" in text[first.end() :]
    return name, pieces, again


def _opens_alone(text: str, first: re.Match[str]) -> bool:
    """Whether a bare number marks a single passage: it is in brackets, or precedes a single line."""
    return first["head"].strip() in ("[", "【", "[[") or (first.start() == 0 and "\n" not in text.strip())


def _first_number(text: str) -> re.Match[str] | None:
    for one in islice(_NUMBER.finditer(text[: 4 * _HEADING + 400]), 3):
        before = text[: one.start()].strip()
        if before and ("\n" in before or len(before) > _HEADING or before[-1] not in ":："):
            return None
        bracket = one["close"] or (one["term"].strip() and one["n"])
        if (
            int(one["n"]) <= 1
            and (bracket or one["word"])
            and (one["term"].strip() or one["close"] or one["aside"] or text[one.end() : one.end() + 1] == "\n")
        ):
            return one
    return None


def _next_number(
    text: str, opened: re.Match[str], head: str, close: str, number: int, *, anywhere: bool
) -> re.Match[str] | None:
    """Find the marker with the next number: at the start of a line, or after a passage that lost its line break."""
    inner = "" if opened["inside"] else close
    digits = f"{number:0{len(opened['n'])}d}" if opened["n"].startswith("0") and len(opened["n"]) > 1 else str(number)
    literal = f"{head}{digits}{inner}"
    position = opened.end()
    literal = literal.lstrip(" \t")
    while (at := text.find(literal, position)) >= 0:
        line = text.rfind("\n", position, at) + 1
        found = _NUMBER.match(text, line) if line and not text[line:at].strip() else None
        if (
            found is not None
            and found["n"] == digits
            and found["close"] == close
            and bool(found["term"].strip()) == bool(opened["term"].strip())
        ):
            return found
        position = at + 1
    if anywhere and (at := text.find(f"{literal}{opened['term']}", opened.end())) >= 0:
        return re.compile(_NUMBER.pattern.removeprefix("^")).match(text, at)
    return None


_KEY = re.compile(
    r"(?P<key>[ \t]{0,8}(?:[-*•][ \t]{1,3})?(?:\*{1,2}|_{1,2}|\[)?"
    r"(?P<name>[^\W\d_][\w ]{0,30}?)(?:\]|\*{1,2}|_{1,2})?[ \t]*[:：](?:\*{1,2})?)"
)


def records(text: str) -> tuple[str, list[str]] | None:
    """Split before each repetition of the key that begins the first record: `Title: ...`, `Content: ...`."""
    stripped = text.lstrip("\n")
    key = _KEY.match(stripped)
    if key is None:
        return None
    is_label = META_LINE.match(key["key"]) is None
    if is_label and TEXT_LABEL.match(key["key"]) is None and not _opens_paragraphs(stripped, key["key"]):
        return None
    literal = key["key"]
    starts = [0]
    position = 0
    while (at := stripped.find(f"\n{literal}", position)) >= 0 and len(starts) < MOST_MARKERS:
        starts.append(at + 1)
        position = at + 1
    if len(starts) == 1 and is_label:
        return None
    ends = [*starts[1:], len(stripped)]
    return key["name"].strip().lower(), [stripped[start:end] for start, end in zip(starts, ends, strict=True)]


def _opens_paragraphs(text: str, key: str) -> bool:
    """Whether an unknown key begins several paragraphs and no other lines."""
    lines = [line for line in text.split("\n", _LINES_READ)[:_LINES_READ] if line.startswith(key)]
    opens = text.count(f"\n\n{key}") + 1
    return opens > 1 and opens == text.count(f"\n{key}") + 1 and all(len(one) <= _KEYED_LINE for one in lines)


_HEADER = re.compile(
    r"[ \t]{0,8}(?P<prefix>[^\w\s]{1,12}[ \t]{0,2}(?:[\[({<]?[^\W\d_]{1,24}[ \t]{0,2}[:#=])?|"
    r"(?:[^\W\d_]{1,24}[ _]){0,3}[^\W\d_]{1,24}[ \t]{0,2}[:#])"
)
_HEADER_LINE = 220
_LINES_READ = 2_000
_KEYED_LINE = 80
_SOURCE_NAME = re.compile(
    r"[^\s:;,\[\](){}<>=]{1,120}\.(?:md|mdx|pdf|txt|html?|docx?|csv|json|xlsx?|pptx?|rst)\b|https?://[^\s\])>;,]{1,200}"
)


def headed(text: str) -> list[tuple[str | None, str]] | None:
    """Split before header lines of one form, such as `==== [File: a.md]:`, or a repeated label."""
    stripped = text.lstrip("\n")
    line, _, rest = stripped.partition("\n")
    if not rest.strip() or len(line) > _HEADER_LINE:
        return None
    form = _HEADER.match(line)
    if form is None:
        return None
    closing = re.search(r"[^\w\s]{0,6}[ \t]*\Z", line)
    suffix = closing[0] if closing else ""
    same = line in rest
    prefix = form[0]
    bare = prefix.strip()
    if not same and (
        not suffix.strip(" \t.!?,;。！？")
        or set(bare) <= set("#")
        or set(bare) <= set("*_")
        or bare in ("-", "•", "[", "(", '"', "'", "<", "“", "«", "{", "[{", ">")
    ):
        return None
    if (
        same
        and (key := _KEY.match(line)) is not None
        and stripped.count(f"\n{key['key']}") > stripped.count(f"\n{line}\n")
    ):
        return None  # records that name the same source twice
    starts = _lines_like(stripped, prefix, suffix) if suffix.strip(" \t.!?,;。！？") else []
    if same and len(alike := _lines_like(stripped, line, "", whole=True)) >= len(starts):
        starts = alike
    if len(starts) < _PAIR:
        return None
    ends = [start for start, _ in starts[1:]] + [len(stripped)]
    spans = [
        (stripped[start:line_end], stripped[line_end:end]) for (start, line_end), end in zip(starts, ends, strict=True)
    ]
    return _with_sources(spans, same=same)


def _with_sources(spans: Sequence[tuple[str, str]], *, same: bool) -> list[tuple[str | None, str]]:
    """Return the texts after the headers, each preceded by a source line if all headers name a file or URL."""
    names = [None if same else _SOURCE_NAME.search(header) for header, _ in spans]
    texts = [
        body if name is None or not all(names) else f"source: {name[0]}\n{body.lstrip()}"
        for (_, body), name in zip(spans, names, strict=True)
        if body.strip()
    ]
    return [(None, text) for text in texts]


def _lines_like(text: str, probe: str, suffix: str, *, whole: bool = False) -> list[tuple[int, int]]:
    """Return start and end of the lines that begin with `probe` and end with `suffix`, or (`whole`) equal `probe`."""
    starts: list[tuple[int, int]] = []
    position = 0
    while position >= 0 and len(starts) < MOST_MARKERS:
        if position == 0 or text[position - 1] == "\n":
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line = text[position:end]
            if len(line) <= _HEADER_LINE and (line == probe if whole else line.endswith(suffix)):
                starts.append((position, end))
        position = text.find(probe, position + 1)
    return starts


def named(text: str) -> list[int]:
    """Return the offsets of lines that begin with a file name or URL and a colon, or contain nothing else.

    Empty when the first line does not.
    """
    if NAME_ONLY.match(text) is None:
        return []
    starts: list[int] = []
    position = 0
    while position >= 0 and len(starts) < MOST_MARKERS:
        at = (
            position + (1 if position or text[:1] == "\n" else 0) if text[position : position + 1] == "\n" else position
        )
        found = NAME_ONLY.match(text, at)
        if found is not None and found["end"] in (":", "：", "\n"):
            starts.append(at)
        position = text.find("\n", at)
    return starts


_OBJECT = re.compile(
    r"\b(?P<field>page_content|chunk_text|page_text|text|content)\s?=\s?(?P<text>'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")",
    re.DOTALL,
)
_CALL = re.compile(r"\s*(?:\[\s*)?[A-Z]\w{2,40}\(")


def printed_objects(text: str) -> list[str]:
    """Return the texts of objects in Python's repr: `[Document(page_content='...', metadata={...})]`."""
    if _CALL.match(text) is None:
        return []
    found = list(islice(_OBJECT.finditer(text), MOST_MARKERS))
    fields = {one["field"] for one in found}
    wanted = next(
        (name for name in ("page_content", "chunk_text", "page_text", "text", "content") if name in fields), None
    )
    texts = []
    for one in found:
        if one["field"] == wanted:
            try:
                said = ast.literal_eval(one["text"].replace("\n", "\\n"))
            except (ValueError, SyntaxError, MemoryError):
                return []
            if isinstance(said, str) and said.strip():
                texts.append(said)
    return texts


_metadata: TextCache[bool] = TextCache()


def is_metadata(paragraph: str) -> bool:
    """Return whether each line of a paragraph is passage metadata, `Key: value`."""
    if (known := _metadata.get(paragraph)) is None:
        lines = paragraph.strip("\n").split("\n")
        known = len(lines) <= _METADATA_LINES and all(META_LINE.fullmatch(line) for line in lines)
        _metadata.put(paragraph, known)
    return known

"""Splits one text returned by a tool into passages: by numbers, labels, rules or blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from monitors.records import Context

_PIECES = 1_000
_LABELS = (
    r"document|doc|result|search result|source|passage|chunk|context|excerpt|snippet|hit|match|article|"
    r"dokument|quelle|treffer|"
    r"ergebnis|textstelle|résultat|extrait|resultado|fuente|fonte|fragmento|documento|risultato|文档|片段|来源|结果|資料|文書|結果|문서|결과"
)
_ITEM = re.compile(
    rf"^(?P<open>[ \t]{{0,3}}[-=*#>]{{0,6}}[ \t]?(?:\*\*)?[\[(<]{{0,2}}(?:(?:{_LABELS})[ \t]{{0,2}}(?:#|no\.? ?)?)?)"
    r"(?P<number>\d{1,3})(?P<close>[\])>.:\uff1a]{0,3}(?:\*\*)?:?[ \t]?[-=]{0,6})(?=\s|\(|\[)",
    re.MULTILINE | re.IGNORECASE,
)
_PLAIN = re.compile(r"\s*\Z")
_INTRODUCES = re.compile(
    r"[^\n]{0,160}\b(?:found|results?|documents?|passages?|sources?|excerpts?|chunks?|matches|hits|treffer|ergebnisse|"
    r"quellen|résultats|resultados|risultati)\b[^\n]{0,80}\s*\Z|[^\n]{0,60}(?:结果|文档|検索|文書|결과|문서)[^\n]{0,40}\s*\Z",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"[ \t]*(?:[-*] )?(?:\*\*)?(?P<key>source|title|url|link|uri|file|filename|file name|path|document|name|"
    r"id|doc id|score|similarity|relevance|distance|page|date|published|author|section|metadata|quelle|titel|datei|"
    r"seite|titre|título|fuente|来源|标题|出典)(?:\*\*)?[ \t]?[:\uff1a](?:\*\*)?[ \t]*(?P<value>[^\n]{0,999})(?:\n|\Z)",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"[ \t]*[\[(](?P<key>source|title|file|url|score|similarity|relevance|doc|page|id|quelle)[ \t]?[:=][ \t]*"
    r"(?P<value>[^\[\]()\n]{1,300})[\])][:\uff1a]?[ \t]*\n?",
    re.IGNORECASE,
)
_TEXT = re.compile(
    r"[ \t]*(?:\*\*)?(?:content|text|passage|snippet|excerpt|page content|body|summary|chunk|inhalt|auszug|"
    r"contenu|extrait|contenido|contenuto|conteúdo|内容|正文|本文|내용)(?:\*\*)?[ \t]?[:\uff1a](?:\*\*)?[ \t]*\n?",
    re.IGNORECASE,
)
_RULE = re.compile(r"^[ \t]{0,8}(?:-{3,80}|={3,80}|\*{3,80}|_{3,80}|#{3,80}|~{3,80})[ \t]*$", re.MULTILINE)
_BLANK = re.compile(r"\n[ \t]*\n\s*")
_GOES_ON = re.compile(r"[-*+\u2022] |1[.)] |\|")
_ENDS = re.compile(r"[.!?:;\u3002\uff01\uff1f\u2026][\"'\u201d\u00bb)\]*_]{0,3}\s*\Z")
_SOURCES = frozenset(
    [
        "source",
        "title",
        "url",
        "link",
        "uri",
        "file",
        "filename",
        "path",
        "document",
        "doc",
        "name",
        "quelle",
        "titel",
        "datei",
        "titre",
        "título",
        "fuente",
        "来源",
        "标题",
        "出典",
    ]
)
_SCORES = frozenset(["score", "similarity", "relevance"])
_TITLE, _TITLE_WORDS = 80, 9
_LINES_ABOUT = 10
_SHORT_ITEM, _SHORT_PIECE = 25, 40
_WIDE = 0x2E80
_LAST = 12
_INTRODUCTION, _RECORD = 400, 4_000


class Numbered(NamedTuple):
    """Passages of a numbered list. `bare`: plain list numbers (`1.`), which the steps of a manual have as well."""

    passages: list[Context]
    bare: bool


def numbered(text: str) -> Numbered | None:
    """Split a list with consecutive numbers in one style; None for any other text."""
    first = _ITEM.search(text, 0, _INTRODUCTION)
    if first is None or int(first["number"]) > 1 or not _introduces(text[: first.start()]):
        return None
    style = first["open"], first["close"]
    if not (style[0].strip() or style[1].strip()):
        return None
    written = rf"^{re.escape(style[0])}(?P<number>\d{{1,3}}){re.escape(style[1])}(?=\s|\(|\[)"
    alike = list(islice(re.compile(written, re.MULTILINE | re.IGNORECASE).finditer(text), _PIECES))
    if sum(one["number"] == first["number"] for one in alike) > 1:
        return None  # a list within the list: which number begins a passage is unknown
    starts, wanted = [], int(first["number"])
    for one in alike:
        if int(one["number"]) == wanted:
            starts.append(one)
            wanted += 1
    ends = [one.start() for one in starts[1:]] + [len(text)]
    passages = [
        passage
        for one, end in zip(starts, ends, strict=True)
        if (passage := cleaned(text[one.end() : end], number=one["number"], titled=True)) is not None
    ]
    if len(passages) < 2 or sum(_weight(one.text) for one in passages) < _SHORT_ITEM * len(passages):  # noqa: PLR2004
        return None
    return Numbered(passages, style[0].strip(" \t*#-") == "" and style[1].strip(" \t*:") in (".", ")"))


def records(text: str) -> list[Context]:
    """Split records that begin with the same label and have a `Content: ...` line; [] for any other text."""
    first = _ABOUT.match(text)
    if first is None or cleaned(text) is None or not _has_content(text):
        return []
    label = re.compile(rf"^{re.escape(first['key'])}[ \t]?[:\uff1a]", re.MULTILINE | re.IGNORECASE)
    starts = [
        one.start()
        for one in islice(label.finditer(text), _PIECES)
        if _has_content(text[one.start() : one.start() + _RECORD])
    ]
    if not starts or text[: starts[0]].strip():
        return []
    ends = [*starts[1:], len(text)]
    pieces = (_RULE.sub("", text[start:end]) for start, end in zip(starts, ends, strict=True))
    return [passage for piece in pieces if (passage := cleaned(piece)) is not None]


def paragraphs(text: str) -> list[Context]:
    """Split at rules, else at blank lines; a heading stays with the text after it.

    Returns [] for one passage, and where most pieces are no running text: a table, code, a list of links.
    """
    if "```" in text:
        return []
    ruled = _RULE.split(text, _PIECES)
    pieces = list(_with_their_headings(_BLANK.split(text, _PIECES) if len(ruled) == 1 else ruled))
    running = sum(_weight(piece) >= _SHORT_PIECE or _ends(piece) for piece in pieces)
    if len(pieces) < 2 or 2 * running < len(pieces):  # noqa: PLR2004 - one piece is the text itself
        return []
    return [passage for piece in pieces if (passage := cleaned(piece)) is not None]


def cleaned(text: str, *, number: str | None = None, titled: bool = False) -> Context | None:
    """Return a passage without its metadata lines; None when no text is left."""
    said: dict[str, str] = {}
    text = text.strip()
    for _ in range(_LINES_ABOUT):
        about = _ASIDE.match(text) or _ABOUT.match(text)
        if about is None and titled and not said and (title := _title_of(text)) is not None:
            said["title"] = title
            text = text[len(text.partition("\n")[0]) :].strip()
            continue
        if about is None or about.end() == len(text):
            break
        said.setdefault(about["key"].lower(), about["value"].strip())
        text = text[about.end() :].lstrip("\n")
    if said and (label := _TEXT.match(text)) is not None:
        text = text[label.end() :]
    if not (text := text.strip()):
        return None
    source = next((value for key, value in said.items() if key in _SOURCES and value), None)
    score = next((value for key in _SCORES if (value := _float(said.get(key))) is not None), None)
    return Context(text=text, id=said.get("id") or number, source=source, score=score)


def _introduces(text: str) -> bool:
    return _PLAIN.match(text) is not None or _INTRODUCES.match(text) is not None


def _title_of(text: str) -> str | None:
    """Return the first line if it is a title: short, no sentence, and followed by a new sentence."""
    line, _, rest = text.partition("\n")
    line, following = line.strip(" *#"), rest.lstrip()[:1]
    if not line or not following or len(line) > _TITLE or _ends(line) or ". " in line:
        return None
    return line if len(line.split()) <= _TITLE_WORDS and not following.islower() else None


def _has_content(text: str) -> bool:
    """Whether metadata lines are followed by the label of the text."""
    position = 0
    for _ in range(_LINES_ABOUT):
        about = _ABOUT.match(text, position)
        if about is None:
            break
        position = about.end()
    return position > 0 and _TEXT.match(text, position) is not None


def _with_their_headings(pieces: list[str]) -> Iterator[str]:
    """Join what a passage with blank lines was cut into: a heading and its text, a sentence and its list or table."""
    held = ""
    goes_on = False
    for piece in pieces:
        if not (said := piece.strip()):
            continue
        if held and not (goes_on or (_GOES_ON.match(said) and not _GOES_ON.match(held.rpartition("\n")[2]))):
            yield held
            held = ""
        held = f"{held}\n\n{said}" if held else said
        heading = said.startswith("#") or (len(said) <= _TITLE and not _ends(said))
        goes_on = said.endswith((":", "\uff1a")) or ("\n" not in said and heading)
    if held:
        yield held


def _ends(text: str) -> bool:
    """Whether a text ends like a sentence."""
    return _ENDS.search(text[-_LAST:]) is not None


def _weight(text: str) -> int:
    """Length in letters, where a syllable or a word (Chinese, Japanese, Korean) counts for three."""
    return sum(3 if ord(character) >= _WIDE else 1 for character in text[:200])


def _float(said: str | None) -> float | None:
    try:
        value = float((said or "").rstrip("%"))
    except ValueError:
        return None
    return value if abs(value) < 1e9 else None  # noqa: PLR2004 - no score; this leaves out infinity and NaN, too

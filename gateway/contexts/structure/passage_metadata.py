"""Separates the text of one passage from the metadata an app wrote beside it (title, source, score)."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from gateway.contexts.parse import decoded, read
from monitors.records import Context
from monitors.text_cache import TextCache

_META = (
    r"title|source|sources|url|uri|link|file|filename|file[ _]?name|file[ _]?path|path|document|doc|document[ _]name|"
    r"source[ _](?:file|name|document|url)|page|pages|page[ _](?:number|label|no)\.?|section|heading|chapter|header|"
    r"headers|"
    r"score|similarity|relevance|relevance[ _]score|similarity[ _]score|distance|confidence|rank|"
    r"date|published|publication[ _]date|updated|last[ _](?:updated|modified)|created(?:[ _]at)?|timestamp|author|"
    r"authors|"
    r"id|doc[ _]?id|document[ _]?id|chunk[ _]?id|chunk|index|number|no|collection|category|type|tags?|language|"
    r"metadata|"
    r"reference|citation|name|product|domain|site|site[ _]name|space|version|keywords|year|venue|journal|"
    r"titel|quelle|datei|seite|abschnitt|datum|autor|relevanz|titre|fichier|auteur|"
    r"título|titulo|fuente|archivo|página|fecha|fonte|arquivo|titolo|pagina|data|bron|bestand|pagina|"
    r"заголовок|источник|документ|файл|страница|дата|автор|название"
)
_META_WIDE = (
    "标题|来源|文件名|文件|页码|页|日期|作者|链接|相关度|相似度|得分|分数|编号|"
    "タイトル|出典|ソース|ファイル名|ページ|スコア|제목|출처|파일|페이지|점수"
)
_TEXT = (
    r"content|contents|text|excerpt|passage|snippet|chunk|body|extract|page[ _]content|document[ _]content|paragraph|"
    r"information|info|summary|abstract|quote|description|data|answer|context|"
    r"inhalt|auszug|textauszug|contenu|extrait|texte|contenido|texto|extracto|fragmento|conteúdo|trecho|contenuto|"
    r"testo|"
    r"estratto|inhoud|tekst|содержание|текст|фрагмент|содержимое"
)
_TEXT_WIDE = "内容|正文|片段|文本|原文|内容摘要|本文|抜粋|내용|본문"
_DECORATION = r"[ \t]*(?:[-*•├└│─>#]{1,4}[ \t]*)?(?:\*{1,2}|_{1,2})?[\[(<【]?"
META_LINE = re.compile(
    rf"{_DECORATION}(?:{_META}|{_META_WIDE})[\])>】]?(?:\*{{1,2}}|_{{1,2}})?"
    rf"(?:[ \t]*(?::|：|=)(?!//)|(?<=\])(?=[ \t]))(?:\*{{1,2}})?[ \t]*(?P<value>[^\n]{{0,400}})",
    re.IGNORECASE,
)
TEXT_LABEL = re.compile(
    rf"{_DECORATION}(?:{_TEXT}|{_TEXT_WIDE})[\])>】]?(?:\*{{1,2}}|_{{1,2}})?"
    rf"(?:[ \t]*(?::|：)|(?<=\])(?=[ \t\n]))(?:\*{{1,2}})?[ \t]*",
    re.IGNORECASE,
)
_SOURCE_NAMES = re.compile(
    r"(?:title|source|url|uri|link|file|path|document|doc|name|titel|quelle|datei|titre|fuente|fonte|título|来源|标题|"
    r"文件|出典|출처|источник)",
    re.IGNORECASE,
)
_SCORE_NAMES = re.compile(r"(?:score|similarity|relevance|distance|相关度|相似度|得分)", re.IGNORECASE)
_ASIDE = re.compile(
    r"[ \t]*[\[(【]\s{0,4}(?P<inside>[^\[\]()【】\n]{1,300}(?:\([^()\n]{0,80}\)[^\[\]()【】\n]{0,80})?)"
    r"[\])】][ \t]*(?::|"
    r"：|[-–—](?=[ \t\n]))?[ \t]*",
)
_ASIDE_SAYS = re.compile(
    rf"(?:{_META}|{_META_WIDE})\b[ \t]*(?::|：|=|#|[ \t]\d)|(?<!\S)\S{{1,80}}\.(?:md|pdf|txt|html?|docx?|csv|json|"
    rf"xlsx?|pptx?|rst|py)\b|https?://|\bp(?:p|age)?\.? ?\d",
    re.IGNORECASE,
)
NAME_ONLY = re.compile(
    r"[ \t]*(?:\*{1,2}|`|\")?(?P<name>(?:https?://[^\s]{1,300}|[^\s:：]{1,120}\.(?:md|mdx|pdf|txt|html?|docx?|csv|"
    r"json|xlsx?|pptx?|rst|py|ts|js)(?:[#?][^\s:：]{0,80})?(?::\d{1,6}(?:-\d{1,6})?)?))"
    r"(?:\*{1,2}|`|\")?(?:,? ?\(?p(?:p|age)?s?\.? ?\d{1,5}\)?)?[ \t]*(?P<end>:|：|[-–—]|\n|\Z)[ \t]*",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"\n[ \t]*[-*•–—]{0,2}[ \t]*[\[(【]?[^\n]{1,300}\Z")
_QUOTES = (
    ('"""', '"""'),
    ("'''", "'''"),
    ("```", "```"),
    ("«««", "»»»"),
    ("<<<", ">>>"),
    ('"', '"'),
    ("“", "”"),
    ("«", "»"),
    ("„", "“"),
    ("「", "」"),
    ("'", "'"),
    ("‘", "’"),
)
_OPENING_QUOTES = frozenset(opening[0] for opening, _ in _QUOTES)
_RULE = re.compile(r"(?:[ \t]*(?:[-=*_#~+]{3,}|\"{3}|'{3}|`{3}\w{0,20}|(?:[-*_] ){2,}[-*_])[ \t]*(?:\n|\Z))")
_LAST_RULE = re.compile(r"\n[ \t]*(?:[-=*_#~+]{3,}|\"{3}|'{3}|`{3}|(?:[-*_] ){2,}[-*_])[ \t]*\Z")
_OPENS, _CLOSES, _LONGEST_NAME = "<=-#*_~[", ">=-#*_~]", 60
"""Marks at the beginning and the end of a line that closes a passage, and the characters between them."""
_PAIR = 2
_FENCES = ("`", '"', "'")
_TEXT_NAME = re.compile(rf"(?:{_TEXT})", re.IGNORECASE)
_DEEPEST = 8
_VALUES_READ = 400
SENTENCE_END = re.compile(r"[.!?。！？…؟।][\"'”’»)\]」』]{0,3}\s*\Z|[。！？]\s*\Z")
_LINES_CLEANED = 12
_RULES_CLEANED = 4


class CleanedPassage:
    """A passage's text and the metadata stripped from it; `meta` and `leading` count metadata items."""

    __slots__ = ("aside", "fenced", "identity", "label", "leading", "meta", "odd", "score", "source", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.source: str | None = None
        self.identity: str | None = None
        self.score: float | None = None
        self.meta = 0
        self.leading = 0
        self.odd = False
        self.fenced = False
        self.label = ""
        self.aside = ""

    def copy(self) -> CleanedPassage:
        one = CleanedPassage(self.text)
        one.source, one.identity, one.score = self.source, self.identity, self.score
        one.meta, one.leading, one.odd, one.fenced = self.meta, self.leading, self.odd, self.fenced
        one.label, one.aside = self.label, self.aside
        return one

    def context(self) -> Context:
        return Context(text=self.text, id=self.identity, source=self.source, score=self.score)

    def put_back(self, *, label: bool, aside: bool) -> None:
        """Restore a stripped label or aside that belongs to the passage after all."""
        if label and self.label:
            self.text, self.label = self.label + self.text, ""
        if aside and self.aside:
            self.text, self.aside, self.meta = self.text + self.aside, "", self.meta - 1

    def note(self, line: str, value: str) -> None:
        """Store a metadata value as source or score, if it is one."""
        self.meta += 1
        value = value.strip().strip("*_`\"' ,;)]】")
        if self.source is None and value and _SOURCE_NAMES.search(line[: max(len(line) - len(value), 0)]):
            self.source = value
        elif self.score is None and _SCORE_NAMES.search(line[:60]):
            self.score = _number(value)


_known: TextCache[CleanedPassage] = TextCache()


def clean(text: str, *, number: str | None = None) -> CleanedPassage:
    """Strip rules, fences, leading and trailing metadata, the text's label and quotes around it."""
    if (known := _known.get(text)) is None:
        known = _cleaned(text)
        _known.put(text, known)
    one = known.copy()
    one.identity = number
    return one


def _cleaned(text: str) -> CleanedPassage:
    one = CleanedPassage(text)
    one.text = _unfenced(one.text)
    _leading(one)
    one.leading = one.meta
    _trailing(one)
    one.text = unquoted(_unfenced(_without_closing_line(one.text.rstrip())))
    one.fenced = text.rstrip().endswith("```") and not one.text.endswith("```")
    return one


def _without_closing_line(text: str) -> str:
    """Drop a last line such as `=== END 1 ===` or a rule. Only that line is read, and each of its ends once."""
    start = text.rfind("\n")
    line = text[start + 1 :].strip(" \t")
    opening, closing = len(line) - len(line.lstrip(_OPENS)), len(line) - len(line.rstrip(_CLOSES))
    is_closing = min(opening, closing) >= _PAIR and _PAIR * 2 <= len(line) <= opening + _LONGEST_NAME + closing
    return text[:start] if start >= 0 and is_closing else text


def _leading(one: CleanedPassage) -> None:
    """Strip leading metadata lines, asides in brackets and file names, and then the label of the text."""
    text = one.text
    for _ in range(_LINES_CLEANED):
        text = text.lstrip("\n") if text[:1] == "\n" else text
        if (label := TEXT_LABEL.match(text)) is not None and text[label.end() :].strip():
            one.label, text = label[0], text[label.end() :]
            break
        if (
            (aside := _ASIDE.match(text)) is not None
            and _ASIDE_SAYS.search(aside["inside"])
            and text[aside.end() :].strip()
        ):
            one.note(aside["inside"], aside["inside"].partition(":")[2] or aside["inside"])
            text = text[aside.end() :]
            continue
        if (line := META_LINE.match(text)) is not None:
            end = text.find("\n")
            if end < 0 or not text[end:].strip():
                break
            one.note(line[0], line["value"])
            text = text[end + 1 :]
            continue
        if (name := NAME_ONLY.match(text)) is not None and text[name.end() :].strip() and name["end"]:
            one.meta += 1
            one.source = one.source or name["name"]
            text = text[name.end() :]
            continue
        break
    one.text = text


def _trailing(one: CleanedPassage) -> None:
    """Strip trailing metadata lines, and an aside in brackets at the very end."""
    text = one.text.rstrip()
    for _ in range(_LINES_CLEANED):
        last = _TRAILING.search(text[-700:])
        if last is None:
            break
        start = len(text) - (min(len(text), 700) - last.start())
        line = last[0].lstrip("\n")
        said = META_LINE.fullmatch(line)
        aside = None if said else _ASIDE.fullmatch(line)
        if said is not None:
            one.note(line, said["value"])
        elif aside is not None and _ASIDE_SAYS.search(aside["inside"]):
            one.note(line, aside["inside"].partition(":")[2])
        else:
            break
        text = text[:start].rstrip()
        if not text:
            return
    tail = text[-320:]
    for opening, closing in (("(", ")"), ("[", "]"), ("【", "】")):
        if (
            tail.endswith(closing)
            and (at := tail.rfind(opening)) > 0
            and _ASIDE_SAYS.search(tail[at + 1 : -1])
            and tail[at - 1] in " \n\t"
        ):
            one.note(tail[at:], tail[at + 1 : -1].partition(":")[2] or tail[at + 1 : -1])
            kept = text[: len(text) - len(tail) + at].rstrip()
            one.aside, text = text[len(kept) :], kept
            break
    one.text = text


def _unfenced(text: str) -> str:
    """Strip rules on lines of their own at both ends, and a fence around the whole text."""
    for _ in range(_RULES_CLEANED):
        rule = _RULE.match(text)
        if rule is None or rule.end() >= len(text):
            break
        fence = rule[0].strip()[:3]
        if fence[:1] in _FENCES:
            # An unpaired fence belongs to code in the passage.
            if not text.rstrip().endswith(f"\n{fence}") or text.count(fence) > _PAIR:
                break
            text = text.rstrip()[: -len(fence)]
        text = text[rule.end() :].lstrip("\n")
    text = text.rstrip()
    for _ in range(_RULES_CLEANED):
        rule = _LAST_RULE.search(text[-200:])
        if rule is None or rule[0].strip()[:1] in _FENCES:
            break
        text = text[: len(text) - (min(len(text), 200) - rule.start())].rstrip()
    return text.strip("\n")


def unquoted(text: str) -> str:
    """Strip quotes around the whole text, and the indent of a block between them; quotes inside are kept."""
    stripped = text.strip()
    if stripped[:1] not in _OPENING_QUOTES:
        return stripped
    for opening, closing in _QUOTES:
        if len(stripped) > len(opening) + len(closing) and stripped.startswith(opening) and stripped.endswith(closing):
            inner = stripped[len(opening) : -len(closing)]
            if opening not in inner and closing not in inner:
                return dedent(inner).strip()
    return stripped


def data(text: str) -> list[Context] | None:
    """Read passages in JSON, JSON lines or Python reprs; None for anything else."""
    stripped = text.strip()
    if stripped[:1] not in ("[", "{"):
        return None
    value = decoded(stripped)
    if value is None:
        return None
    found = [one.context for one in read(value)]
    if len(found) == 1 and found[0].text.lstrip()[:1] in ("[", "{"):
        found = []
    return found or _texts(value) or None


def _texts(value: Any, depth: int = 0) -> list[Context]:
    """Collect the values of text fields at any depth up to `_DEEPEST`."""
    if depth > _DEEPEST:
        return []
    if isinstance(value, list):
        return [one for entry in value[:_VALUES_READ] for one in _texts(entry, depth + 1)]
    if not isinstance(value, dict):
        return []
    said = next(
        (
            one
            for name, one in value.items()
            if isinstance(one, str) and one.strip() and _TEXT_NAME.fullmatch(str(name))
        ),
        None,
    )
    if said is not None:
        source = next(
            (one for name, one in value.items() if isinstance(one, str) and _SOURCE_NAMES.fullmatch(str(name))), None
        )
        return [Context(text=said, source=source)]
    return [one for entry in list(value.values())[:_VALUES_READ] for one in _texts(entry, depth + 1)]


def _number(value: str) -> float | None:
    try:
        return float(value.rstrip("% "))
    except ValueError:
        return None

"""Finds the marks in a prompt: labels, sentences that introduce passages, and rules, each at the start of a line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

from gateway.contexts.structure.word_index import HEAD, TAIL, UNSPACED, IndexedText, Kind
from gateway.contexts.structure.words import FILLER, vocabulary

MarkKind = Literal["context", "question", "answer", "instruction", "history", "intro", "rule"]

MOST_MARKS = 600
_LABEL_WORDS = 7
_WIDE_LABEL = 14
_SENTENCE = 600
_LINE_LENGTH = 4 * _SENTENCE
_NAME_LENGTH = 80
_PLAIN = 40
_PHRASE = 80
_QUESTION_PHRASE = 60
_FEW_WORDS = 2
_HEADING_WORDS = 3
_COVERED = 0.95
_CAPITALS_COVERED = 0.5
LOOSE = "instructions that point at a context"
_INLINE = 300
_LABEL = re.compile(
    r"(?P<deco>[^\w\n]{0,14}(?:\d{1,2}[.)][ \t])?[*_]{0,3})(?P<phrase>[^\W_][^\n:：\])】」』》〉*=|"
    r"<>\"?.!{};]{0,70}?(?:[ ]?\([^\n()\"=]{1,30}\))?)"
    r"(?P<close>[\])】」』》〉>*_=#~|\-\s]{0,14})(?P<colon>(?::{1,3}|：)[*_]{0,3}|(?<=[】」』])|(?<=\]\])|$)(?P<rest>[^\n]*)"
)
_RULE = re.compile(
    r"[ \t]{0,8}(?P<rule>([-=*_#~+·•─═—])\2{2,200}|\"{3}|'{3}|`{3}\w{0,20}|(?:[-*_=] ){2,60}[-*_=])[ \t]*\Z"
)
_OPENS = re.compile(
    r"[ \t\n]{0,20}(?:<[A-Za-z][\w.-]{0,40}[ >]|\[{1,2}|[-=*_#~+]{3,}[ \t]*\n|\"{3}|'{3}|`{3}|"
    r"(?:[^\W\d_]{1,20} )?[#\[(]?\d{1,2}[.:)\]])"
)
"""Text that follows an introducing sentence when the first passage begins right after it."""

_DECORATION = "#>*_=~|+-[(<【「『《〈（•"
_CLOSES = re.compile(r"(?:end|fin|ende|fine|fim|einde|koniec|конец|结束)[ _:-]", re.IGNORECASE)
MODELS = frozenset(
    [
        "assistant",
        "ai",
        "bot",
        "chatbot",
        "model",
        "output",
        "asistente",
        "assistente",
        "assistent",
        "asystent",
        "ассистент",
        "asistan",
        "助手",
        "アシスタント",
        "어시스턴트",
    ]
)
SPEAKERS = frozenset(
    vocabulary(
        """user human customer utente usuario usuário benutzer nutzer utilisateur
        kullanıcı 用户 用戶 ユーザー 사용자 пользователь"""
    )
)
_DECORATED = frozenset("-=*_#~`\"'")
_BULLETS = ("-", "*", "•", "+", ">", "(", "~", "|", "_", "=")
_PARTICIPLE = re.compile(r"(?:ed|és?|ées?|[aio]d[oa]s?|[aiu]t[oiae]|ene?[rns]?|ten?|new|only|below|above)\Z")
_FENCE = "```"
_PROSE = ("", "text", "markdown", "md", "json", "xml", "plaintext", "txt")
"""Languages of a fence that is no code."""
_RULE_BEGINS = "-=*_#~+\"'`·•─═—"
_SPEAKING = SPEAKERS | MODELS | {"q", "a"}
_SPEAKER_BEGINS = frozenset(one[0] for one in _SPEAKING) | frozenset("*# ")
_KNOWN_SHARE = 0.4
"""Share of a label in a script without spaces that known words must cover."""

_CONNECTED = re.compile(
    r" (?:of|from|for|about|that|which|matching|regarding|concerning|relevant to|related to|du|des|de|d['’]|del|della|"
    r"dello|dell['’]|dei|degli|delle|dal|dalla|nel|nella|do|da|dos|das|aus|zum|zur|vom|von|uit|van|из|от|по|для|z|ze|od|dla)"
    r"(?: |(?<=['’]))"
)
"""Connectors between a noun and its complement: `Extraits du guide`, `Pages matching the query`."""
_INFLECTED = (
    *("pytani", "zapytani", "fragment", "źródł", "dokument", "tekst", "dotaz", "otázk", "zdroj"),
    *("вопрос", "запрос", "фрагмент", "выдержк", "контекст", "источник", "отрыв", "документ", "текст", "материал"),
)
"""Nouns of languages that mark the complement by case only: `Fragmenty regulaminu`."""
_OF_WORDS = 2

_DEFINES = re.compile(r"[ \t]*[-*+•][ \t]+[*_]{2}")
_DOING = re.compile(r"\w{2,20}ing (?:the|these|this|those|your|a|an|all|only|any|from)\b")
"""Start of an instruction with a participle: `Using the context`."""

_MAIN: tuple[Kind, ...] = ("context", "pasted", "weak", "question", "answer", "instruction", "history")
_HEADINGS = _MAIN[:5]


class Mark(NamedTuple):
    """A line that names what follows. `start` is its offset in the text, `body` that of the content it names.

    `inline`: the content begins on the same line. `form` is the decoration in front of the words: labels with the same
    form are headings of one prompt.
    """

    kind: MarkKind
    start: int
    body: int
    phrase: str
    sure: float
    inline: bool = False
    form: str = ""


def find_marks(text: IndexedText) -> list[Mark]:
    """Return the marks of a text in order; of a long text those of its beginning and its end."""
    length = len(text.text)
    if length <= HEAD + TAIL:
        return _without_answered(text, list(islice(_marks(text, 0, length), MOST_MARKS)))
    cut = text.text.find("\n", length - TAIL) + 1 or length
    found = [*islice(_marks(text, 0, HEAD), MOST_MARKS), *islice(_marks(text, cut, length), MOST_MARKS)]
    return _without_answered(text, found)


def _without_answered(text: IndexedText, found: list[Mark]) -> list[Mark]:
    """Drop questions that are followed by their answer: they belong to an FAQ passage.

    Questions of a worked example (another context label follows) and conversation turns are kept.
    """
    last = max((index for index, mark in enumerate(found) if mark.kind == "context"), default=-1)
    dropped: set[int] = set()
    for index in range(max(last, 0), len(found) - 1):
        asked, answered = found[index], found[index + 1]
        if asked.kind == "question" and answered.kind == "answer" and asked.phrase not in SPEAKERS:
            end = found[index + 2].start if index + 2 < len(found) else len(text.text)
            if is_answered(text, answered, end) and not text.text[asked.body : answered.start].strip().startswith("{"):
                dropped |= {index, index + 1}
    return [mark for index, mark in enumerate(found) if index not in dropped]


def is_answered(text: IndexedText, mark: Mark, end: int) -> bool:
    """Whether an answer follows its label, rather than a prefix or a format for the model to complete."""
    said = text.text[mark.body : end].strip()
    words = any(one.isalnum() for one in said)
    return words and said[0] not in "{<[(`" and not text.is_meta(mark.body, end)


def label_kind(text: IndexedText, start: int, end: int) -> tuple[MarkKind, float] | None:
    """Return what a short label names and the confidence (0 to 1): its last known word decides, and all words must fit.

    >>> said = "Wikipedia article section"
    >>> label_kind(IndexedText(said), 0, len(said)), label_kind(IndexedText("Knowledge cutoff"), 0, 16)
    (('context', 0.75), None)
    """
    hits = text.named(_MAIN, start, end)
    if not hits:
        return None
    if any(kind == "history" for _, _, kind in hits):
        return "history", 1.0
    end = _head(text, start, end, hits[0][1])
    hits = [one for one in hits if one[0] < end]
    last = max(hits, key=lambda hit: (hit[1], hit[1] - hit[0]))
    if not _fits(text, start, end, hits, last[1]):
        return None
    kind = last[2]
    if kind in ("context", "pasted", "weak"):
        named = {one for _, _, one in hits}
        if "question" in named and kind == "weak":
            return "question", 0.8
        return "context", 1.0 if "context" in named else 0.75 if "pasted" in named else 0.5
    return _SURE_OF.get(kind)


def _head(text: IndexedText, start: int, end: int, first: int) -> int:
    """Return the end of the label's noun phrase, before its complement (`of the guide`)."""
    said = text.lower
    if text.begins("address", start):
        return end  # an order is no label
    tied = _CONNECTED.search(said, first, end)
    if tied is not None and tied.end() < end:
        return tied.start()
    if said.startswith(_INFLECTED, start) and first < end and len(said[first:end].split()) <= _OF_WORDS:
        return first
    return end


_SURE_OF: dict[Kind, tuple[MarkKind, float]] = {
    "instruction": ("instruction", 0.8),
    "question": ("question", 1.0),
    "answer": ("answer", 1.0),
}


def _fits(text: IndexedText, start: int, end: int, hits: list[tuple[int, int, Kind]], last: int) -> bool:
    """Whether a label's other words fit those that name a part: `Knowledge cutoff` names no knowledge."""
    tail = [one for one in re.findall(r"[^\W\d_]+", text.lower[last:end]) if one not in FILLER]
    tail = [one for one in tail if not _PARTICIPLE.search(one)]
    if tail and not (text.any(("points", "below"), last, end) or ord(text.lower[last - 1]) >= UNSPACED):
        return False
    if ord(text.lower[start]) >= UNSPACED:
        covered = {index for at, stop, _ in hits for index in range(at, stop)}
        covered |= {
            index
            for kind in ("points", "below")
            for at, stop in text.found(kind, start, end)
            for index in range(at, stop)
        }
        return len(covered) >= _KNOWN_SHARE * (end - start)
    known = sum(len(text.lower[at:stop].split()) for at, stop, _ in hits)
    others = [one for one in re.findall(r"[^\W\d_]+", text.lower[start:end]) if one not in FILLER]
    if len(others) > known and (text.begins("address", start) or _DOING.match(text.lower, start)):
        return False
    return len(others) <= known + 3


def kind_of(name: str) -> tuple[MarkKind, float] | None:
    """Return what the name of a tag or a field names: see `label_kind`."""
    return _kind_of(name) if len(name) <= _NAME_LENGTH else None


@lru_cache(maxsize=1024)
def _kind_of(name: str) -> tuple[MarkKind, float] | None:
    return label_kind(IndexedText(name), 0, len(name))


def _marks(text: IndexedText, start: int, limit: int) -> Iterator[Mark]:
    raw = text.text
    length = len(raw)
    named = text.starts(_MAIN)
    following = bisect_left(named, start)
    code = False
    while start < limit:
        end = raw.find("\n", start)
        end = length if end < 0 else end
        while following < len(named) and named[following] < start:
            following += 1
        line = raw[start:end] if start < end <= start + _LINE_LENGTH else ""
        if stripped := line.lstrip():
            found = None
            if stripped[0] in _RULE_BEGINS and (rule := _RULE.match(line)) is not None:
                found = Mark("rule", start, min(end + 1, length), rule["rule"].strip()[:3], 1.0)
                if found.phrase == _FENCE:
                    code = not code and line.strip()[3:].strip().lower() not in _PROSE
            elif not code and (
                (following < len(named) and named[following] < end)
                or (stripped[0].lower() in _SPEAKER_BEGINS and _first_word(stripped) in _SPEAKING)
            ):
                found = _mark(text, line, stripped, start)
            if found is not None:
                yield found
        start = end + 1


def _first_word(stripped: str) -> str:
    return stripped[:12].lower().partition(":")[0].partition("：")[0].strip("*# ")


def _mark(text: IndexedText, line: str, stripped: str, start: int) -> Mark | None:
    end = start + len(line)
    colon = line.find(":", 0, 110) >= 0 or line.find("：", 0, 60) >= 0
    if (colon or stripped[0] in _DECORATION or len(stripped) <= _PLAIN) and (
        label := _label(text, line, start, end)
    ) is not None:
        if label.kind == "instruction" and label.inline:
            return _announces(text, line, start, end) or label
        return label
    if (inline := _announces_inline(text, line, start)) is not None:
        return inline
    return _announces(text, line, start, end) if len(line) <= _SENTENCE else None


def _announces_inline(text: IndexedText, line: str, start: int) -> Mark | None:
    """Find a sentence that introduces passages on the same line, such as `Use only this context: ...`."""
    colon = line.find(": ", 12, _INLINE)
    if colon < 0 or len(line) - colon < 20 or not text.has("context", start, start + colon):  # noqa: PLR2004 - some words of a passage
        return None
    end = start + colon
    if text.lower.find(" above", start, end) >= 0:
        return None  # what follows is the question
    if not text.any(("below", "points"), start, end) or not (
        text.any(("question", "answer"), start, end) or _addresses_last(text, line, start, colon)
    ):
        return None
    return Mark("intro", start, end + 2, line[:colon][-_PHRASE:].casefold(), 0.8, inline=True)


def _addresses_last(text: IndexedText, line: str, start: int, colon: int) -> bool:
    """Whether the last sentence before a colon begins with an instruction."""
    sentence = max(line.rfind(one, 0, colon) for one in (". ", "! ", "? "))
    return text.addresses(start + max(sentence + 2, 0) if sentence >= 0 else start, start + colon)


def _label(text: IndexedText, line: str, start: int, end: int) -> Mark | None:
    found = _LABEL.match(line)
    if found is None or "(" in found["deco"] or ("`" in found["deco"] and found["deco"].lstrip()[0] in _BULLETS):
        return None  # a bullet with a name of code: it describes the name
    phrase, form = found["phrase"].partition("(")[0].strip(), found["deco"].strip()
    if not phrase or "/" in phrase or "›" in phrase:
        return None  # a path names a source, not a part of the prompt
    following = min(end + 1, len(text.text))
    at = start + found.start("phrase")
    kind = _kind_of_label(text, phrase, at, colon=bool(found["colon"].strip()))
    if kind is None or _is_defined(found, kind[1]):
        return None
    if _CLOSES.match(phrase):
        return Mark("instruction", start, following, f"end {phrase.casefold()}", 1.0)
    bulleted = form in _BULLETS and not found["close"].strip()
    if not found["colon"] and (bulleted or (not form and not _is_heading(text, phrase, at, at + len(phrase)))):
        return None
    rest = found["rest"].strip()
    inline = bool(rest) and not set(rest) <= _DECORATED
    body = start + found.start("rest") + len(found["rest"]) - len(found["rest"].lstrip()) if inline else following
    kept = form if len(form) > 1 or form in ("#", "【") else ""
    return Mark(kind[0], start, body, phrase.casefold(), kind[1], inline, kept)


def _is_defined(found: re.Match[str], sure: float) -> bool:
    """Whether it is a list entry of a passage, such as `- **Manual**: ...`, rather than a label of the prompt."""
    return bool(found["rest"].strip()) and _DEFINES.match(found["deco"]) is not None and sure < 1.0


def _kind_of_label(text: IndexedText, phrase: str, at: int, *, colon: bool) -> tuple[MarkKind, float] | None:
    words = len(phrase.split())
    unspaced = ord(phrase[0]) >= UNSPACED
    if words > _LABEL_WORDS or (unspaced and len(phrase) > _WIDE_LABEL):
        return None
    if _CLOSES.match(phrase):
        return "instruction", 1.0
    kind = label_kind(text, at, at + len(phrase))
    if kind is None:
        return _speaker(phrase.lower()) if colon else None
    order = words > _FEW_WORDS and not unspaced and text.begins("address", at)
    return None if order and kind[0] not in ("instruction", "answer") else kind


def _speaker(phrase: str) -> tuple[MarkKind, float] | None:
    """A turn of a conversation that the prompt quotes: the user's is a question, the model's an answer."""
    if phrase in SPEAKERS or phrase == "q":
        return "question", 0.9
    return ("answer", 0.9) if phrase in MODELS or phrase == "a" else None


def _is_heading(text: IndexedText, phrase: str, start: int, end: int) -> bool:
    """Whether a line of plain words is a heading: it names a part and nothing else, as `CONTEXT` or `Sources`."""
    words = phrase.split()
    covered = sum(stop - at for at, stop, _ in text.named(_HEADINGS, start, end))
    share = _CAPITALS_COVERED if phrase.isupper() else _COVERED
    return len(words) <= _HEADING_WORDS and covered >= (end - start - len(words)) * share


def _names_the_question_last(text: IndexedText, start: int, end: int) -> bool:
    questions = text.found("question", start, end)
    sources = text.found("context", start, end) + text.found("pasted", start, end)
    near = questions[-1] if questions else (0, 0)
    return bool(questions) and (
        not sources or near[0] > max(sources)[0] or text.has("below", max(start, near[0] - 20), near[1] + 20)
    )


def _leads_to_the_end(raw: str, end: int) -> bool:
    """Whether a short last paragraph or a question follows."""
    rest = raw[end : end + 2 * _SENTENCE].strip()
    first = rest.partition("\n\n")[0].rstrip()
    if rest[:1] in ("[", "{", "<") or not 0 < len(first) <= _SENTENCE:
        return False
    return first[-1] in "?？؟" or (first == rest and len(raw) - end <= 2 * _SENTENCE)


def _announces(text: IndexedText, line: str, start: int, end: int) -> Mark | None:
    """Find a sentence that introduces the passages that follow: it mentions sources and points at them."""
    raw = text.text
    colon = line.rstrip()[-1] in ":："
    if colon and _names_the_question_last(text, start, end) and _leads_to_the_end(raw, end):
        return Mark("question", start, min(end + 1, len(raw)), line.rstrip()[-_QUESTION_PHRASE:].casefold(), 0.9)
    if not text.any(("context", "pasted", "weak"), start, end):
        return None
    signs = _signs(text, start, end, colon=colon)
    if not _points_at_sources(signs):
        return None
    body = min(end + 1, len(raw))
    if not (colon or signs.opens):
        # The paragraph may continue with more instructions: the passages begin after it.
        close = raw.find("\n\n", end, end + 2 * _SENTENCE + 1)
        if close < 0:
            return None
        body = min(close + 2, len(raw))
    if signs.loose and not signs.below and not signs.opens:
        return Mark("intro", start, body, LOOSE, 0.6)
    sure = 0.9 if colon and signs.strong else 0.75 if signs.strong or (colon and signs.medium) else 0.6
    return Mark("intro", start, body, line.rstrip()[-_PHRASE:].casefold(), sure)


class _Signs(NamedTuple):
    """How a sentence refers to sources. `opens`: something like a first passage follows it."""

    colon: bool
    strong: bool
    medium: bool
    weak: bool
    below: bool
    points: bool
    opens: bool
    answers: bool
    addresses: bool
    task: bool

    @property
    def loose(self) -> bool:
        """It points at a context, but not at the text that follows."""
        return self.points and not self.colon and self.strong


def _signs(text: IndexedText, start: int, end: int, *, colon: bool) -> _Signs:
    return _Signs(
        colon=colon,
        strong=text.has("context", start, end),
        medium=text.has("pasted", start, end),
        weak=text.has("weak", start, end),
        below=text.has("below", start, end),
        points=text.has("points", start, end),
        opens=not colon and _OPENS.match(text.text, min(end + 1, len(text.text))) is not None,
        answers=text.any(("question", "answer"), start, end),
        addresses=text.addresses(start, end),
        task=text.has("task", start, end),
    )


def _points_at_sources(one: _Signs) -> bool:
    named = one.strong or one.medium
    if not (named or (one.weak and one.colon)) or (one.task and not one.answers):
        return False
    speaks = one.answers or one.addresses
    pointed = one.points and (one.colon or one.opens)
    if not (one.below or one.loose or pointed or (one.colon and named and speaks)):
        return False
    ordered = one.strong and (one.colon or one.addresses or one.opens)
    return one.answers or ordered or (one.medium and one.below and (one.colon or one.addresses))

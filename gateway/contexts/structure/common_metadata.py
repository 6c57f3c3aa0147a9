"""Metadata that all passages of a block share (names, titles, links): stripped, or reported when some is left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gateway.contexts.structure.passage_metadata import (
    META_LINE,
    SENTENCE_END,
    TEXT_LABEL,
    CleanedPassage,
    clean,
    unquoted,
)
from monitors.records import Context
from monitors.text_cache import TextCache

_TWO = 2
_TAIL = 100
_COMPARED = 40
_BEGINNING = 2_000
"""Most passages compared, and characters of each that are searched for metadata of another passage."""

_BRACKET = re.compile(
    r"[ \t]*(?:[-*•][ \t]+)?[\[【](?P<name>[^\[\]【】\n]{1,150})[\]】][ \t]*(?::|：|[-–—](?=[ \t]))?[ \t]*(?=\S|\n)"
)
_WORD_AND_ID = re.compile(
    r"[ \t]*[\[(（]?(?P<word>[^\W\d_]{2,20})[ \t]?[#№]?[\w-]{0,40}\d[\w-]{0,40}"
    r"[ \t]?(?:[:)\]：）]{1,2}|\.(?=[ \t]))[ \t]*(?=\S)"
)
_INLINE_TAIL = re.compile(r"[ \t\n](?P<key>[^\W\d_]{2,20})[ \t]?[:：=][ \t]?[^\s:]{1,60}[ \t]*\Z")
# Nothing is given back (`+`): a line may be a million blanks.
_LINE_KEY = re.compile(r"[ \t]*+[-*#>]{0,3}+[ \t]*+\**+(?P<key>[^\W\d_][^\n:：.!?]{0,30})\**[:：]")
_MAYBE_PLACE = re.compile(r"://|\.(?:md|pdf|txt|htm|doc|csv|json|xls|ppt)", re.IGNORECASE)
"""Cheap pre-check: a text without this cannot match `_PLACE`."""
_PLACE = re.compile(
    r"https?://|(?<![\w.])[\w/-]{1,80}\.(?:md|mdx|pdf|txt|html?|docx?|csv|json|xlsx?|pptx?)\b", re.IGNORECASE
)
_KEYED = re.compile(r"[^.!?\n:：]{1,40}[:：][ \t]?.{0,200}\Z")
_HEADING = re.compile(
    r"^[ \t]*(?:【[^】\n]{1,60}】[ \t]*$|#{1,6} .{1,80}$|\*\*[^*\n]{1,60}\*\*:?[ \t]*$|=+ .{1,60} =+[ \t]*$)",
    re.MULTILINE,
)
_LETTERED = re.compile(r"^[^\W\d_]{3,20} [A-Z](?:[:.)]|$)", re.MULTILINE)
_YAML = re.compile(r"\w:[ \t]*[|>]-?[ \t]*\n|\A[|>]-?[ \t]*\n")
_ASKED_AND_ANSWERED = re.compile(
    r"\W{0,3}(?:q|f|p|d|в|问|question|frage|pregunta|domanda|pergunta|vraag|pytanie|soru|вопрос|问题|質問|질문)"
    r"[ ]?\d{0,3}"
    r"\W{0,3}[.:：)]\W{0,3}[^\n]{1,400}\n{1,2}"
    r"\W{0,3}(?:a|r|о|答|answer|antwort|respuesta|réponse|risposta|resposta|antwoord|odpowiedź|cevap|ответ|回答|답변)"
    r"[ ]?\d{0,3}\W{0,3}[.:：)]",
    re.IGNORECASE,
)
"""An FAQ entry: the question and the answer both belong to the passage."""
_SIGNS_OF_TITLES = "■●◆◇□○▼▶►§"
_TITLE_SIGNS = frozenset(_SIGNS_OF_TITLES)
_NUMBERS = re.compile(r"\d+")
_NAME_AND_NUMBER = re.compile(r"[ \t]*\W{0,4}(?P<word>[^\W\d_]{2,20})[ \t]?[#№§]?[ \t]?(?P<number>\d[\d.]{0,12})\b")
_MEASURED = re.compile(r"[ \t]*[^\W\d_][^\W\d_ ]{1,20}[ \t]?[:：=][ \t]?[\d.,]{1,12} ?%?[ \t]*\Z")
"""A line that gives a figure under a name, as `Similarity: 0.89`."""
_LONG_TITLE = 160
_TITLE = 80
_OWN_HEADINGS = frozenset(["heading", "bold", "lead"])
"""Markup of first lines that belong to a passage closed by tags: an app would put a title into the tag."""
_FORMS_OF_TITLES = frozenset(["", "heading", "bold"])
_LEFT_TAG = re.compile(r"</[A-Za-z][\w-]{0,40}>\s*\Z|\[/[A-Za-z]")
_PREFIX = re.compile(r"[^.!?\n。！？]{0,60}(?::[ \t]|：|:(?=[^\W\d_]))")
_NAMED = re.compile(r"[^\W\d_a-z][^.!?\n:]{1,40}: ")
_MARKDOWN = re.compile(r"^#{1,6} \S", re.MULTILINE)
_MARKUP = re.compile(
    r"(?P<heading>#{1,6} )|(?P<bold>\*\*[^*\n]{1,80}\*\*[ \t]*\Z)|(?P<list>[-*+•][ \t]|\d{1,3}[.)][ \t]|>)|"
    r"(?P<table>\|)|(?P<code>```|[ \t]{4}|\t|[^\n]{0,400}[{};,=(][ \t]*\Z)|(?P<lead>[^\n]{0,400}[:：][ \t]*\Z)"
)
"""Markup a passage may contain itself: headings, lists, tables, code."""
_SIGNS, _MARKDOWN_SIGNS = frozenset("[(<{#*|=@"), frozenset("#*|")
_REMARK_ENDS = frozenset("])】")
_REMARK = re.compile(r"[.!?。][\"'”]?\s*[\[(【][^\[\]()【】\n]{2,120}[\])】]\s*\Z")


def strip_common_metadata(cleaned: Sequence[CleanedPassage], *, titled: bool) -> bool:
    """Strip what all passages begin or end with in the same form: `[name]`, `Key: value`, a title, a link.

    `titled`: a first line may be a title, because a marker stands in front of it. Return whether anything was stripped.
    """
    if len(cleaned) < _TWO:
        return False
    texts = [one.text for one in cleaned]
    if are_questions_with_answers(texts):
        return False
    return (
        _without_brackets(cleaned, texts)
        or _without_words_and_ids(cleaned, texts)
        or _without_inline_tails(cleaned, texts)
        or (
            not any(one.fenced for one in cleaned)
            and all(one.partition("\n")[2].strip() for one in texts)
            and _without_lines(cleaned, texts, titled=titled)
        )
    )


def are_questions_with_answers(texts: Sequence[str]) -> bool:
    """Whether each text is an entry of an FAQ: a question and its answer, both with a label."""
    return all(map(_ASKED_AND_ANSWERED.match, texts))


def strip_bracketed_names(texts: Sequence[str]) -> list[str] | None:
    """Return what follows the name in brackets of each text; None when one of them begins otherwise."""
    found = _brackets(texts)
    if found is None or len(texts) < _TWO:
        return None
    return [text[one.end() :] for one, text in zip(found, texts, strict=True)]


def _without_brackets(cleaned: Sequence[CleanedPassage], texts: Sequence[str]) -> bool:
    found = _brackets(texts)
    if found is None or not all(text[one.end() :].strip() for one, text in zip(found, texts, strict=True)):
        return False
    _take(cleaned, [(one["name"], one.end()) for one in found])
    return True


def _brackets(texts: Sequence[str]) -> list[re.Match[str]] | None:
    """Match the name in brackets that each text begins with; None when one of them begins otherwise."""
    found = []
    for text in texts:
        if (one := _BRACKET.match(text)) is None:
            return None
        found.append(one)
    return found


def _without_words_and_ids(cleaned: Sequence[CleanedPassage], texts: Sequence[str]) -> bool:
    if _WORD_AND_ID.match(texts[0]) is None:
        return False
    found = [one for text in texts if (one := _WORD_AND_ID.match(text)) is not None]
    if len(found) < len(texts) or len({one["word"] for one in found}) > 1:
        return False
    _take(cleaned, [(one[0].strip(" .:()[]（）\t"), one.end()) for one in found])
    return True


def _without_inline_tails(cleaned: Sequence[CleanedPassage], texts: Sequence[str]) -> bool:
    ends = [text[-_TAIL:] for text in texts]
    if not all(":" in end or "=" in end or "：" in end for end in ends):
        return False
    found = [one for end in ends if (one := _INLINE_TAIL.search(end)) is not None]
    if len(found) < len(texts) or len({one["key"] for one in found}) > 1 or TEXT_LABEL.match(found[0][0].strip()):
        return False
    for passage, tail in zip(cleaned, found, strict=True):
        passage.text = passage.text[: -len(tail[0])].rstrip()
    return True


def _without_lines(cleaned: Sequence[CleanedPassage], texts: Sequence[str], *, titled: bool) -> bool:
    firsts = [one.partition("\n")[0] for one in texts]
    keys = {_NUMBERS.sub("", one.partition(":")[0].partition("：")[0]).strip() for one in firsts}
    keyed = len(keys) == 1 and all(_KEYED.match(one) for one in firsts)
    headings = all(len(one) <= _TITLE and one.rstrip()[-1:] in ":：" for one in firsts)
    if keyed or headings or (titled and _are_titles(firsts)):
        _take(cleaned, [(one.partition(": ")[2] if keyed else one.strip(" :：#*"), len(one)) for one in firsts])
        return True
    signs = {one.lstrip()[:1] for one in firsts}
    if _are_named_alike(firsts) or (len(signs) == 1 and signs <= _TITLE_SIGNS and _are_short(firsts, _LONG_TITLE)):
        _take(cleaned, [(one.strip(" \t" + _SIGNS_OF_TITLES), len(one)) for one in firsts])
        return True
    lasts = [one.rstrip().rpartition("\n")[2] for one in texts]
    if (
        len({one.strip()[:3] for one in lasts}) == 1 and all("http" in one or _LEFT_TAG.search(one) for one in lasts)
    ) or (len({one.partition(":")[0] for one in lasts}) == 1 and all(map(_MEASURED.match, lasts))):
        for one, last in zip(cleaned, lasts, strict=True):
            one.text = one.text.rstrip()[: -len(last)].rstrip()
        return True
    return False


def _are_named_alike(lines: Sequence[str]) -> bool:
    """Whether all are short, no sentence, and begin with one word and a number of their own: `Clause 8.4 Valuables`."""
    found = [one for line in lines if (one := _NAME_AND_NUMBER.match(line)) is not None]
    numbers = {one["number"] for one in found}
    return len({one["word"] for one in found}) == 1 and len(numbers) == len(lines) and _are_short(lines, _TITLE)


def _are_titles(lines: Sequence[str]) -> bool:
    """Whether all lines are short and of one form, and none is a sentence or a line of code."""
    forms = {_form(one) for one in lines}
    return forms <= _FORMS_OF_TITLES and len(forms) == 1 and _are_short(lines, _LONG_TITLE)


def _are_short(lines: Sequence[str], most: int) -> bool:
    return all(len(one) <= most and not SENTENCE_END.search(one) for one in lines)


def _form(line: str) -> str:
    """Return the markup group that a line matches; "" for none."""
    found = _MARKUP.match(line)
    return found.lastgroup or "" if found is not None else ""


def _take(cleaned: Sequence[CleanedPassage], said: Sequence[tuple[str, int]]) -> None:
    for one, (name, end) in zip(cleaned, said, strict=True):
        one.source = one.source or name.strip() or None
        one.meta += 1
        one.text = unquoted(clean(one.text[end:]).text.lstrip(":： \t"))


class _Signs:
    """What one passage's text has that may be text the app added; a function of the text alone."""

    __slots__ = (
        "form",
        "headed",
        "keys",
        "last",
        "last_form",
        "lines",
        "marked",
        "named",
        "place",
        "prefixed",
        "short",
        "sign",
        "tagged",
        "titled",
    )

    def __init__(self, text: str) -> None:
        head, lines = text.lstrip()[:80], text.strip().split("\n")
        first, last = lines[0], lines[-1].strip()
        self.marked = _begins_with_keys(text) or _at_a_line(_LETTERED, text) or _opens_yaml(text)
        self.headed = _at_a_line(_HEADING, text)
        self.sign = head[:1]
        self.tagged = _LEFT_TAG.search(text[-60:]) is not None
        self.prefixed = _PREFIX.match(head) is not None
        self.named = _NAMED.match(head) is not None
        self.lines = len(lines)
        self.form, self.short = _form(first), _are_short([first], _TITLE)
        self.last, self.last_form = last[:3], _form(last)
        near = (*lines[:4], *lines[-3:])
        self.keys = frozenset(key["key"] for line in near if (key := _LINE_KEY.match(line)) is not None)
        self.place = _names_a_place(text)
        self.titled = _is_titled(lines)


_signs: TextCache[_Signs] = TextCache()


def _signs_of(text: str) -> _Signs:
    if (known := _signs.get(text)) is None:
        known = _Signs(text)
        _signs.put(text, known)
    return known


_plain: TextCache[Context | Literal[False]] = TextCache()


def plain_passages(texts: Sequence[str]) -> tuple[Context, ...] | None:
    """Return the passages of texts without any sign of metadata; None when one of them has a sign.

    Where none has, there is nothing to strip, nothing that all have in common, and nothing left over.
    """
    found = []
    for text in texts:
        known = _plain.get(text)
        if known is None:
            known = _as_plain(text)
            _plain.put(text, known)
        if known is False:
            return None
        found.append(known)
    return tuple(found)


def _as_plain(text: str) -> Context | Literal[False]:
    """Return a line of text as a passage; False where any rule of this module could take it for more than that."""
    one, end = clean(text), text[-_TAIL:]
    if "\n" in text or not one.text or one.meta or one.label or one.aside or one.fenced:
        return False
    signs = _Signs(one.text)
    if signs.marked or signs.headed or signs.sign in _SIGNS or signs.tagged or signs.prefixed or signs.named:
        return False
    if signs.keys or signs.place or META_LINE.match(text) or _BRACKET.match(one.text) or _WORD_AND_ID.match(one.text):
        return False
    return False if ":" in end or "=" in end or "：" in end else one.context()


def has_leftover_metadata(texts: Sequence[str], *, closed: bool = False) -> bool:
    """Whether passages still contain text the app added: a prefix, a title, a last line of one form, a tag."""
    if len(texts) > _COMPARED:
        texts = [*texts[:_COMPARED], texts[-1]]
    if len(texts) > 1 and are_questions_with_answers(texts):
        return False
    found = list(map(_signs_of, texts))
    if any(one.marked for one in found):
        return True
    if len(texts) < _TWO:
        return _MARKDOWN.search(texts[0], 1) is not None or texts[0].lstrip()[:1] in ("<", "{", "[")
    if not closed and found[-1].headed and not any(one.headed for one in found[:-1]):
        return True
    return (
        _begin_alike(found, closed=closed)
        or _have_lines_alike(found, closed=closed)
        or _share_a_key(found)
        or _mostly([one.place for one in found])
        or _mostly([one.titled for one in found])
    )


def _opens_yaml(text: str) -> bool:
    return ("|" in text or ">" in text) and _YAML.search(text, 0, _BEGINNING) is not None


def begins_with_a_prefix(text: str) -> bool:
    """Whether a text begins with a few words and a colon."""
    return _PREFIX.match(text) is not None


def _at_a_line(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a line begins with the pattern; a single-line text needs one match only."""
    found = pattern.search(text, 0, _BEGINNING) if "\n" in text else pattern.match(text)
    return found is not None


def _begins_with_keys(text: str) -> bool:
    lines = [line for line in text.split("\n", 4)[:3] if line.strip()]
    return len(lines) > _TWO and all(_PREFIX.match(line) for line in lines[:2])


def _begin_alike(found: Sequence[_Signs], *, closed: bool) -> bool:
    """Whether all begin with the same punctuation or with a prefix each, or one ends with a tag."""
    signs = _SIGNS if not closed else _SIGNS - _MARKDOWN_SIGNS
    alike = len({one.sign for one in found}) == 1 and found[0].sign in signs
    if alike or any(one.tagged for one in found) or all(one.prefixed for one in found):
        return True
    return not closed and _mostly([one.named for one in found])


def _have_lines_alike(found: Sequence[_Signs], *, closed: bool) -> bool:
    """Whether all begin with a title or end with a line of the same form, or only the last has several lines."""
    if not all(one.lines > 1 for one in found):
        return not closed and found[-1].lines > 1 and all(one.lines == 1 for one in found[:-1])
    forms = {one.form for one in found}
    titled = len(forms) == 1 and all(one.short for one in found) and not (closed and forms & _OWN_HEADINGS)
    return titled or (len({one.last for one in found}) == 1 and not (closed and found[0].last_form))


def _share_a_key(found: Sequence[_Signs]) -> bool:
    """Whether lines of two passages begin with the same `Key:`, which is metadata rather than content."""
    seen: set[str] = set()
    for one in found:
        if seen & one.keys:
            return True
        seen |= one.keys
    return False


def _mostly(among: Sequence[bool]) -> bool:
    """Whether more than half are true."""
    return 2 * sum(among) > len(among)


def _names_a_place(text: str) -> bool:
    """Whether a passage begins or ends with a URL, a file name or a remark in brackets."""
    ends = (text[:120], text[-120:])
    return any(_MAYBE_PLACE.search(one) and _PLACE.search(one) for one in ends) or (
        text.rstrip()[-1:] in _REMARK_ENDS and _REMARK.search(text[-160:]) is not None
    )


def _is_titled(lines: Sequence[str]) -> bool:
    """Whether the first or the last of several lines looks like a title: short, no sentence, no markup."""
    ends = (lines[0], lines[-1]) if len(lines) > 1 else ()
    return any(len(one) <= _TITLE and not SENTENCE_END.search(one) and not _form(one) for one in ends)

"""The lines of a prompt by their shape: rules, tags, headings, labels, items, text. Words do not matter, marks do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from gaugeway.prompts.sizes import FEW, LABEL, LINE, REMEMBERED, SEVERAL

Kind = Literal["rule", "open", "close", "heading", "label", "title", "bracket", "bold", "field", "item", "text"]

MOST_LINES = 6_000
"""Lines read of one text."""

_RULE = re.compile(
    r"([-=_*~#+·•─═—.%])(?: ?\1){2,}\Z|[#=~+]{2}\Z|<\|?sep(?:arator)?\|?>\Z|\[SEP\]\Z|§{1,3}\Z"
    r"|`{3,}[^`\n]{0,80}\Z|\"{3}\Z|'{3}\Z",
    re.IGNORECASE,
)
_TAG = re.compile(r"<(?P<slash>/?)(?P<name>[^\W\d][\w.:-]{0,40})(?P<attributes>(?:\s[^<>\n]{0,600})?)>")
_HEADING = re.compile(r"(?P<level>#{1,6})(?=[ \w])")
_WRAPPED = re.compile(
    r"(?:={2,}|-{2,}|\*{3,}|<{2,}|[\[【「«])[^\n]{1,100}(?:={2,}|-{2,}|\*{3,}|>{2,}|[\]】」»])[:：]?\Z"
    r"|(?:<!--|[^\w\s\"'.,:;!?-]{2,6}) [^\n]{1,100} (?:-->|[^\w\s\"'.,:;!?-]{2,6})\Z"
)
_BOLD = re.compile(r"(\*{1,2}|__)[^*_\n]{1,80}\1[:：]?\Z")
_NUMBER = re.compile(
    r"[^\w\n]{0,6}(?:[^\W\d_]{1,20}[ _-]?){0,3}[^\w\s]{0,2}(?P<n>\d{1,4})(?![a-zA-Z])"
    r"(?P<end>[^\w\s]{0,4})(?=\s|\Z|[^\s,.%\d])"
)
_LABEL = re.compile(
    r"(?P<open>[^\w\s]{0,4})\s?(?P<words>[^\W\d_](?:[^\n:：=.!?。！？]{0,58}[^\n:：=.!?。！？\s])?)\s?"
    r"(?P<end>[^\w\s:：=.!?。]{0,3}(?:[:：]|(?<=\w) =|(?<=[^\W\d_])>(?=\s))[^\w\s]{0,2})(?=\s|\Z|[^\x00-\x7f/]|[\"\[(])"
)
_LABEL_END = re.compile(r"(?:[:：=]|(?<=\w)>)(?:\*{1,2}|__?)?")
_NAMED = re.compile(r"[\[(【][^\W\d_][^\n\[\]()【】.]{0,40}[\])】](?=\s+\S)")
_GROUP = re.compile(
    r"\[[^\[\]\n]{1,80}\]|\([^()\n]{1,80}\)|【[^【】\n]{1,60}】|「[^「」\n]{1,60}」|《[^《》\n]{1,60}》"
)
_ID = re.compile(r"[\w-]*\d[\w-]*")
_KEY = re.compile(
    r"[^\w\n]{0,4}(?:[^\W\d_]{1,20}[ ]){0,2}[\[(<{]?"
    r"(?P<key>(?=[\w-]{0,30}\d)(?=[\w-]{0,30}[a-zA-Z])[\w-]{4,40})(?=[\])}>*`]{0,3}(?:[:：]|\s|\Z)|[\])}>])"
)
_ID_LABEL = re.compile(r"(?=[\d-]{0,30}[a-zA-Z_])\d[\w-]{3,40}[:：](?=\s|\Z)")
_ID_MARK = re.compile(r"[\[(【{*`]{0,3}[\w-]*\d[\w-]*[\])】}*`]{0,3}[:：]?")
_LETTER = re.compile(r"[^\W\d_]")
_ITEM = re.compile(r"[-*•‣–►◦>][ \t]+(?=\S)|[-•‣–►◦](?=[^\W\d_])")
_DIGITS = re.compile(r"\d+")
_SIGN = re.compile(r"[^\w\s\"'“”‘’«»()\[\]【】「」《》.,:;!?…$€£`-]{1,6}(?=[\w\s\[({<\"])")
"""Signs that nobody writes before a sentence: `>>>`, `@@`, a pictogram."""
_STUCK = re.compile(r"[^\w\s]{0,3}[^\W\d_]{1,20}[#\[{<|@=~^]{1,2}(?=[\w\"])")
"""A word with a sign stuck to it: `chunk#`, `\\item[`."""
_DECIMAL = re.compile(r"[\[(]?\d{1,3}[.,]\d{1,6} ?%?[\])]?[:|]?(?=\s+\S)")
_FIRST_WORD = re.compile(r"[^\w\s]{1,8} ?(?P<word>[A-Z]{2,20}) +\S")
"""`--- BEGIN a.md ---` and `--- END a.md ---` are two shapes."""


_BRACKETS = "[(【「《"


class Line(NamedTuple):
    """A line that is not blank: where it begins (indented) and ends, its shapes, and whether a blank line precedes it.

    `keys` are the shapes under which it may recur, the most specific first. `number` is the number in the first one.
    """

    start: int
    end: int
    indent: int
    kind: Kind
    keys: tuple[str, ...]
    number: int | None
    after_blank: bool


def lines_of(text: str, low: int = 0, high: int | None = None) -> list[Line]:
    """Return the lines of a stretch of text, blank ones left out: `MOST_LINES` at most."""
    high = len(text) if high is None else high
    lines = list(_lines(text, low, high))
    ended = True
    for index, line in enumerate(lines[:-1]):
        said = text[line.start : min(line.end, line.start + LINE)].rstrip()
        if line.kind == "text" and (ended or line.after_blank) and _is_title(said, lines[index + 1]):
            lines[index] = line._replace(kind="title")
        ended = not text[line.end - 1].isalnum()
    return lines


def _is_title(said: str, following: Line) -> bool:
    """Whether a line is a label without marks: a few words in front of a longer line, no sentence."""
    few = len(said) < LABEL and said.count(" ") < SEVERAL // 2
    return few and said[-1].isalnum() and (len(said) < following.end - following.start or not following.after_blank)


def _lines(text: str, low: int, high: int) -> Iterator[Line]:
    at, blank, count = low, True, 0
    while at < high and count < MOST_LINES:
        end = text.find("\n", at, high)
        end = high if end < 0 else end
        said = text[at : min(end, at + FEW * LINE)]
        bare = said.lstrip(" \t\r\xa0\u3000")
        if not bare:
            blank = True
            at = end + 1
            continue
        indent = len(said) - len(bare)
        kind, keys, number = shape(bare.rstrip())
        yield Line(at + indent, end, indent, kind, keys, number, blank)
        blank = False
        count += 1
        at = end + 1


@lru_cache(maxsize=REMEMBERED)
def shape(said: str) -> tuple[Kind, tuple[str, ...], int | None]:
    """Return the kind of a line without its indent, its shapes, and the number in the first one."""
    if not (said[0].isalnum() or said[0] == '"') and (marked := _mark(said)) is not None:
        return marked
    head, kind = said[:LINE], _kind(said)
    keys: list[str] = []
    number = None
    sure = False
    if (numbered := _NUMBER.match(head)) is not None:
        sure = kind != "text" or _marks(said, numbered)
        number = int(numbered["n"])
        keys.append(("" if sure else "~") + _DIGITS.sub("#", head[: numbered.end()]).lower().rstrip())
    elif _DECIMAL.match(head):
        keys.append("sign #.#")
    label = _LABEL.match(head) or _ID_LABEL.match(head) or (_NAMED.match(head) if said[0] in _BRACKETS else None)
    if label is not None:
        keys.append(_ID.sub("#", label[0]).lower().strip())
        if kind == "text" and not sure:
            kind = "label" if label.end() == len(said) else "field"
    keys += _form(said, kind)
    if kind == "text" and _ITEM.match(said):
        kind = "item"
    if said[-1] in ":：" and kind in ("text", "label") and len(said) <= LINE:
        kind = "label"
        keys.append(f"{said.split(None, 1)[0].lower()}…:")
    return kind, tuple(dict.fromkeys(keys)), number


def _mark(said: str) -> tuple[Kind, tuple[str, ...], int | None] | None:
    """Return the shape of a rule or of a line that begins with a tag."""
    if len(said) <= LINE and _RULE.match(said):
        return "rule", (f"rule {said[0]}",), None
    tag = _TAG.match(said) if said[0] == "<" else None
    if tag is None:
        return None
    if tag["slash"]:
        return "close", (f"</{tag['name'].lower()}>",), None
    named = f"<{tag['name'].lower()}>"
    counted = _NUMBER.match(said[:LINE])
    if counted is None:
        return "open", (named,), None
    return "open", (_DIGITS.sub("#", said[: counted.end()]).lower(), named), int(counted["n"])


def _kind(said: str) -> Kind:
    """Return the kind of a line that its marks alone show."""
    if said[0] == "#" and _HEADING.match(said):
        return "heading"
    if len(said) > LINE or said[0].isalnum():
        return "text"
    if said[0] in "*_" and _BOLD.match(said):
        return "bold"
    return "bracket" if _WRAPPED.match(said) else "text"


def _form(said: str, kind: Kind) -> list[str]:
    """Return the shapes of a line by its marks: a heading's level, brackets, a bullet, a bracketed beginning."""
    keys = []
    if kind == "heading" and (heading := _HEADING.match(said)) is not None:
        keys.append(heading["level"])
    elif kind == "bold":
        keys.append(said[0])
    elif kind == "bracket":
        if (named := _FIRST_WORD.match(said)) is not None:
            keys.append(f"{said[0]}{named['word'].lower()}{said[-1]}")
        keys.append(f"{said[0]}{said[-1]}")
    elif _ITEM.match(said):
        keys.append(f"item {said[0]}")
    elif (sign := _SIGN.match(said) or _STUCK.match(said)) is not None:
        keys.append(f"sign {sign[0].lower()}")
    group = _GROUP.match(said[:LINE]) if said[0] in _BRACKETS else None
    if group is not None and group.end() < len(said):
        masked = _ID.sub("#", group[0])
        keys.append(masked if not _LETTER.search(masked) else f"{group[0][0]}…{group[0][-1]}")
    return keys


def _marks(said: str, numbered: re.Match[str]) -> bool:
    """Whether the number at the beginning of a line counts records, and is no number of a sentence."""
    if numbered["end"].strip(" ,.%'’") or numbered.end() == len(said):
        return True
    if said[-1] in ":：" and len(said) <= LINE:
        return True
    if numbered["end"][:1] == "." and said[: numbered.start("n")].strip(" -*#([") == "":
        return True
    return not said[0].isalnum() and said[0] not in "-*•$€£+\"'("


def behind_label(text: str, line: Line) -> int:
    """Return where what a label names begins, behind the signs that end the label: `Question: `, `**Question:** `."""
    label = _LABEL_END.search(text, line.start, min(line.end, line.start + LINE))
    return line.start if label is None else label.end()


def key_of(said: str) -> str | None:
    """Return the id at the beginning of a record by which a prompt may cite it: letters and digits, as `a3-7cfe`."""
    match = _KEY.match(said[:LINE])
    return None if match is None else match["key"]


def mark_length(key: str, said: str) -> int:
    """Return how many characters of a record are its mark: a number, a bullet, the signs of a heading."""
    match = None
    if key.startswith("item "):
        match = _ITEM.match(said)
    elif key == "sign #.#":
        match = _DECIMAL.match(said)
    elif key.startswith("sign "):
        match = _SIGN.match(said) or _STUCK.match(said)
    elif key.strip("#") == "":
        match = _HEADING.match(said)
    elif "#" in key:
        match = _NUMBER.match(said) or _ID_MARK.match(said)
        if match is not None and match[0][-1] in "\"'«“":
            return match.end() - 1  # the passage is quoted
    return match.end() if match is not None else 0

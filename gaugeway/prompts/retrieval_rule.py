"""Whether a tool's result is retrieval: the one rule for chat tools, MCP and the Responses API.

1. Empty, an error or "no results": no passages.
2. A tool whose name starts with the word of an action (`create_ticket`, `send_mail`, `run_sql`) retrieves nothing, nor
   does one that opens a file the model named (`read_file`, `view_file`): nothing was searched for.
3. A tool whose name says search (`web_search`, `get_docs`, `knowledge_base`, `rag`), or whose description begins by
   saying so: every text it returns is a passage, however short, and so is every record of a list without texts.
   Nothing returned: retrieval found nothing.
   A text that it joined from several passages is taken apart: numbered or labelled passages, and, when the tool returns
   several (`search`, `retrieve_docs`) and not one document (`fetch_page`, `read_file`, `get_article`), those between
   rules or blank lines. What one document holds stays one passage, however many paragraphs it has.
4. Any other tool: a result counts when it has the form of one (keys as `page_content`, `snippet`, `documents`, a score
   beside a text, `Source:`/`Content:` blocks) or when one of its texts reads like a passage: long enough, and words
   rather than figures or symbols. So `{"ok": true}`, a number, a status line, a log or a table of rows is no retrieval.
   For a tool that is just called `lookup`, its sentences count, however short.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gaugeway.data_files import table
from gaugeway.prompts import MOST_PIECES, text_of
from gaugeway.prompts.form.divisions import paragraphs, records_in
from gaugeway.prompts.notation import WIDE, decoded, runs_on
from gaugeway.prompts.parse import SAYING_KEYS, Found, read
from gaugeway.prompts.sizes import LABEL, LINE, MOSTLY, PAGE, SEVERAL
from gaugeway.records import Context

_NAMES: dict[str, dict[str, list[str]]] = table("gaugeway.prompts", "retrieval_words.toml")
_SEARCHES, _LOOKS_UP, _ACTS, _MEASURES, _SEVERAL, _OPENS, _OPENS_FILES, _FILES = (
    frozenset(_NAMES["tools"][name])
    for name in ("searches", "looks_up", "acts", "measures", "several", "opens", "opens_files", "files")
)
_ONE = _OPENS.union(_NAMES["tools"]["one"])
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_DESCRIBED_AS_ONE = re.compile(
    r"\b(?:fetch(?:es)?|reads?|opens?|loads?|visits?|scrapes?|crawls?|downloads?)\b"
    r"|\b(?:full|whole|complete|entire) (?:page|document|article|text|file|content)"
    r"|\bcontents? of (?:an?|the|one) (?:\w+ )?(?:page|document|article|file|url)\b",
    re.IGNORECASE,
)
_DESCRIBED = re.compile(
    r"\b(?:search(?:es)?|retrieves?|retriever|look(?:s|ing)? up|knowledge base|excerpts?|passages)\b", re.IGNORECASE
)
_NOTHING = re.compile(
    r"\W*(?:(?:no|0|zero|keine) (?:\w+ ){0,3}(?:results?|documents?|matches|passages|hits|articles|entries|treffer"
    r"|ergebnisse)(?: (?:was |were |could be )?(?:found|matched|matching|available|gefunden)\b|\W*\Z)"
    r"|nothing (?:was )?found\b|(?:none|null|n/a|empty)\W*\Z|error\b\W*(?::|\Z)|not found\b)",
    re.IGNORECASE,
)
_LETTERS, _SHARE, _SPACES, _READ = 2 * LABEL, MOSTLY, SEVERAL, PAGE
_EMPTY_KEYS = ("documents", "docs", "passages", "contexts", "chunks", "matches", "search_results")
_NAME = 2 * LINE
_SHORT = LINE
"""Longest text that may be a "no results" message."""


def retrieved(name: str | None, content: Any, description: str | None = None) -> tuple[Context, ...] | None:
    """Return the passages of a tool's result; None when the result is no retrieval, () when it found nothing."""
    words = [word.lower() for word in _WORDS.findall(name[:_NAME])] if name else []
    if words and (words[0] in _ACTS or (words[0] in _OPENS_FILES and not _FILES.isdisjoint(words))):
        return None
    searches = not _SEARCHES.isdisjoint(words) and words[:1] != ["list"]  # what there is to search is no passage
    if description and _MEASURES.isdisjoint(words):
        searches = searches or _DESCRIBED.search(description[:_NAME]) is not None
    value = _decoded(content)
    found = [text for text in read(content if value is None else value, by_form=True) if not _says_nothing(text)]
    if _only_looks_up(words):
        apart = _taken_apart(found, ["lookup"], description, searches=True)
        if apart and all(runs_on(text.context.text) for text in apart):
            return tuple(text.context for text in apart)
    found = _taken_apart(found, words, description, searches=searches)
    if searches:
        return tuple(text.context for text in found) or _records(value)
    if not _MEASURES.isdisjoint(words):
        found = [text for text in found if text.certain]
    if isinstance(value, dict) and len(value) == 1 and SAYING_KEYS.known.isdisjoint(value):
        found = [text for text in found if text.certain or text.context.text not in value.values()]  # {"error": "..."}
    if any(text.certain or _reads_like_a_passage(text.context.text) for text in found):
        return tuple(text.context for text in found)
    return () if _is_empty_list(value) else None


def _only_looks_up(words: list[str]) -> bool:
    """Whether a tool is called just `lookup` or `look_up`."""
    return _LOOKS_UP.issuperset(words) and ("lookup" in words or ("look" in words and "up" in words))


def _taken_apart(found: list[Found], words: list[str], description: str | None, *, searches: bool) -> list[Found]:
    """Split a text that is the whole result of a tool, if it is several passages."""
    if len(found) != 1 or found[0].certain or not _OPENS.isdisjoint(words[:1]):
        return found
    only = found[0].context
    if only != Context(text=only.text) or not (searches or _reads_like_a_passage(only.text)):
        return found
    if (framed := records_in(only.text, plain=searches)) is not None:
        return [Found(passage, certain=True) for passage in framed]
    if _returns_several(words, description):
        return [Found(passage, certain=True) for passage in paragraphs(only.text)] or found
    return found


def _returns_several(words: list[str], description: str | None) -> bool:
    """Whether a tool returns several passages, by its name, else by its description."""
    if not _SEVERAL.isdisjoint(words):
        return True
    said = (description or "")[:_NAME]
    if not _ONE.isdisjoint(words) or _DESCRIBED_AS_ONE.search(said):
        return False
    return _DESCRIBED.search(said) is not None and _MEASURES.isdisjoint(words)


def descriptions_of(body: dict[str, Any]) -> dict[str, str]:
    """Return the descriptions of the request's tools by name, for any API."""
    said: dict[str, str] = {}
    for key in ("tools", "functions"):
        listed = body.get(key)
        for tool in listed[:MOST_PIECES] if isinstance(listed, list) else []:
            inner = tool.get("function") if isinstance(tool, dict) else None
            known = inner if isinstance(inner, dict) else tool
            if isinstance(known, dict) and isinstance(known.get("name"), str):
                text = known.get("description")
                said[known["name"]] = text if isinstance(text, str) else ""
    return said


def _says_nothing(one: Found) -> bool:
    text = one.context.text
    return not one.certain and len(text) <= _SHORT and _NOTHING.match(text) is not None


def _decoded(content: Any) -> Any:
    """Return a result as JSON values: decoded, also out of a single content part; None when it is text."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = text_of(content) or content
    return decoded(content) if isinstance(content, str) else content


def _records(value: Any) -> tuple[Context, ...]:
    """Return the rows of a search result without texts, each as JSON."""
    if isinstance(value, dict) and value.get("isError") is not True:
        value = next((inner for inner in value.values() if isinstance(inner, list)), None)
    rows = [row for row in value if isinstance(row, dict) and row] if isinstance(value, list) else []
    return tuple(
        Context(text=msgspec.json.encode(row).decode()) for row in rows[:MOST_PIECES] if row.get("type") != "text"
    )


def _is_empty_list(value: Any) -> bool:
    """Return whether a result is a retriever's shape without entries, such as `{"documents": []}`."""
    return isinstance(value, dict) and any(value.get(key) == [] for key in _EMPTY_KEYS)


def _reads_like_a_passage(text: str) -> bool:
    """Tell running text from a status, a log, code or a table; looks at the beginning only.

    >>> _reads_like_a_passage("Ticket 4711 was created.")
    False
    """
    sample = text[:_READ]
    visible = letters = wide = 0
    for character in sample:
        if character.isspace():
            continue
        visible += 1
        if character.isalpha():
            letters += 1
            wide += ord(character) >= WIDE
    return letters + 2 * wide >= _LETTERS and letters >= _SHARE * visible and (wide > 0 or sample.count(" ") >= _SPACES)

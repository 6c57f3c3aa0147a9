"""Whether a tool's result is a list of passages by its form alone, for results whose tool is not named.

Lists of notes, messages and tasks have texts and ids as well. So every entry must have a text that runs on and say
where it is from (a source, a score, the id of a document), and may have nothing that is no property of a passage.
"""

from __future__ import annotations

import re
from typing import Any


def _vocabulary(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TEXTS = ("text", "content", "body")
_ORIGINS = _vocabulary(
    """source sources source_id source_name source_url url uri link href filename file_name file_path filepath file
    file_id path document_id doc_id chunk_id passage_id node_id document_name document_title doc_name score _score
    relevance_score relevance similarity distance certainty rank rerank_score confidence"""
)
_BESIDE = _vocabulary(
    """id _id id_ title name heading section chapter page page_number page_label chunk chunk_index index position start
    end offset metadata meta lang language category tags type kind document doc version date published updated
    last_modified updated_at published_at tokens"""
)
_IDS = ("id", "_id", "id_")
_DOCUMENT_ID = re.compile(
    r"(?:doc|document|chunk|passage|p|par|faq|kb|article|section|sec|page|ctx|snippet)[-_:. #]?\d[\w.:#-]*\Z"
    r"|[^\s]+\.(?:md|txt|pdf|html?|docx?|rst|adoc|csv)(?:[#:/?][^\s]*)?\Z",
    re.IGNORECASE,
)
_LISTS = ("results", "result", "items", "data", "records", "output", "response", "sources", "nodes", "points")
_AROUND = _vocabulary(
    """query question q total count total_results num_results took took_ms k top_k limit offset page has_more
    next_cursor object type status index namespace usage model"""
)
_LOOKED_AT = 200
_WORDS = 4
_WIDE, _CHARACTERS = 0x2E80, 12


def is_passage_list(value: Any) -> bool:
    """Return whether decoded JSON is a list of passages, or an object with one and what a search says about itself.

    >>> is_passage_list([{"text": "A refund takes five days.", "source": "refunds.md"}])
    True
    >>> is_passage_list([{"id": 7, "text": "Call the plumber about the sink."}])
    False
    """
    if isinstance(value, dict):
        inner = [key for key in value if key in _LISTS]
        if len(inner) != 1 or not value.keys() <= {inner[0], *_AROUND}:
            return False
        value = value[inner[0]]
    return isinstance(value, list) and bool(value) and all(map(_is_passage, value))


def _is_passage(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    texts = [key for key in _TEXTS if isinstance(entry.get(key), str)]
    if len(texts) != 1 or not _runs_on(entry[texts[0]]):
        return False
    beside = {key.lower() for key in entry if isinstance(key, str)} - {texts[0]}
    return beside <= _ORIGINS | _BESIDE and (_says_where(entry) or _is_document(entry))


def _says_where(entry: dict[str, Any]) -> bool:
    """Whether the entry or its metadata has a source or a score."""
    places = [entry, *(entry[key] for key in ("metadata", "meta") if isinstance(entry.get(key), dict))]
    return any(
        value not in (None, "") and isinstance(value, (str, int, float)) and not isinstance(value, bool)
        for place in places
        for key, value in place.items()
        if isinstance(key, str) and key.lower() in _ORIGINS
    )


def _is_document(entry: dict[str, Any]) -> bool:
    """Whether the id is one of documents or passages ("doc-7", "faq.md#2"), not a row's or a message's."""
    return any(isinstance(said := entry.get(key), str) and _DOCUMENT_ID.match(said) is not None for key in _IDS)


def _runs_on(text: str) -> bool:
    if len(text.split(None, _WORDS)) >= _WORDS:
        return True
    return sum(ord(character) >= _WIDE for character in text[:_LOOKED_AT]) >= _CHARACTERS

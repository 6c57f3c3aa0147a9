"""Finds passages in document fields and blocks: `documents` beside the messages, documents, search results.

vLLM and Cohere read `documents`; Anthropic's API has document and search result blocks in a user's message.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from gateway.contexts import Extraction, extraction, last_user_text, messages_of
from gateway.contexts.parse import read
from gateway.exchange import Request, Response
from monitors.records import Context
from monitors.runtime.bounds import MAX_PASSAGES


class DocumentExtractor:
    """Reads document blocks and fields."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        blocks = list(islice(_blocks(request), MAX_PASSAGES + 1))
        if not blocks:
            return None
        return extraction(last_user_text(request), blocks, source="documents", marker="document blocks")


def _blocks(request: Request) -> Iterator[Context]:
    listed = request.body.get("documents")
    if isinstance(listed, list):
        yield from (one.context for one in read(listed))
    for message in messages_of(request):
        content = message.get("content")
        for block in content if isinstance(content, list) and message.get("role") == "user" else []:
            if isinstance(block, dict) and block.get("type") == "search_result":
                yield from (one.context for one in read(block))
            elif isinstance(block, dict) and block.get("type") == "document":
                yield from _document_block(block)


def _document_block(block: dict[str, Any]) -> Iterator[Context]:
    source, title = block.get("source"), block.get("title")
    said = source.get("data", source.get("content")) if isinstance(source, dict) else None
    if not isinstance(source, dict) or source.get("type") not in ("text", "content"):
        return
    for one in read({"content": said} if isinstance(said, list) else said):
        yield Context(text=one.context.text, source=title if isinstance(title, str) else None)

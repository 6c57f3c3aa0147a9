"""Document tags and document blocks: what is read, and what is none of our business."""

from __future__ import annotations

from gaugeway.exchange import Request, Response
from gaugeway.prompts.tool_messages import DocumentExtractor
from gaugeway.records import Context

NOTHING = Response(status=200, body={})


def found(messages, route="chat_completions", **body):
    return DocumentExtractor().extract(Request(route=route, headers={}, body={"messages": messages, **body}), NOTHING)


def user(text):
    return [{"role": "user", "content": text}]


def texts(extraction):
    return None if extraction is None else [context.text for context in extraction.contexts]


def test_documents_beside_the_messages_are_read():
    extraction = found(
        user("How far?"), documents=[{"title": "T", "text": "one"}, {"id": "d", "content": "two"}, "three"]
    )
    assert extraction.contexts == (
        Context(text="one", source="T"),
        Context(text="two", id="d"),
        Context(text="three"),
    )
    assert extraction.question == "How far?"
    assert found(user("How far?"), documents=[]) is None


def test_anthropics_document_and_search_result_blocks_are_read():
    blocks = [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "one"}, "title": "T"},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "two"}]}},
        {"type": "document", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "search_result", "source": "u", "title": "t", "content": [{"type": "text", "text": "three"}]},
        {"type": "text", "text": "How far?"},
    ]
    extraction = found([{"role": "user", "content": blocks}], "messages")
    assert extraction.contexts == (
        Context(text="one", source="T"),
        Context(text="two"),
        Context(text="three", source="u"),
    )
    assert extraction.question == "How far?"

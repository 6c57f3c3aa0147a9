"""The modes under test, and what is known not to work: a test that this list is wrong about fails."""

from __future__ import annotations

MODES: dict[str, tuple[str, ...]] = {
    "langchain": (
        "rag-prompt",
        "stuff-documents-chain",
        "retrieval-chain-context-tag",
        "retrieval-qa-chat",
        "retrieval-qa-user",
        "retrieval-qa-completion",
        "retrieval-qa-from-llm",
        "refine",
        "map-reduce",
        "qa-with-sources",
        "conversational",
        "history-aware",
        "history-aware-own-words",
        "agent-tool",
        "agent-retriever-tool",
        "agent-json-tool",
        "agent-responses-api",
        "two-step-dynamic-prompt",
        "two-step-before-model",
        "streaming",
        "explicit",
    ),
    "llamaindex": (
        "compact",
        "refine",
        "tree-summarize",
        "chat-context",
        "chat-condense-plus-context",
        "chat-condense-question",
        "citation",
        "compact-with-metadata",
        "streaming",
        "agent-tool",
        "agent-json-tool",
        "explicit",
    ),
    "haystack": (
        "prompt-builder",
        "chat-prompt-builder",
        "named-documents",
        "system-prompt",
        "streaming",
        "agent-tool",
        "explicit",
    ),
    "openai_agents": ("responses", "chat-completions", "chat-json", "chat-python-list", "streaming", "explicit"),
    "pydantic_ai": ("chat", "chat-documentation", "responses", "streaming", "explicit"),
}

BLANK_LINES = "passages are joined by blank lines, and nothing tells those from blank lines inside a passage"
ONE_TEXT = "a tool's text without marks in it is one passage"
_BLANK_LINES = {
    "langchain": (
        "rag-prompt",
        "stuff-documents-chain",
        "retrieval-chain-context-tag",
        "retrieval-qa-chat",
        "retrieval-qa-user",
        "retrieval-qa-completion",
        "refine",
        "conversational",
        "history-aware",
        "history-aware-own-words",
        "two-step-dynamic-prompt",
        "two-step-before-model",
        "streaming",
    ),
    "llamaindex": (
        "compact",
        "refine",
        "tree-summarize",
        "chat-context",
        "chat-condense-plus-context",
        "chat-condense-question",
        "streaming",
    ),
    "haystack": ("prompt-builder", "chat-prompt-builder", "streaming"),
}
_BOTH = {
    ("langchain", "agent-retriever-tool"): ONE_TEXT,
    ("llamaindex", "agent-tool"): ONE_TEXT,
    ("openai_agents", "responses"): ONE_TEXT,
    ("openai_agents", "chat-completions"): ONE_TEXT,
}

GAPS: dict[str, dict[tuple[str, str], str]] = {
    "question": {},
    "passages": _BOTH,
    "paragraphs": _BOTH | {(name, mode): BLANK_LINES for name, modes in _BLANK_LINES.items() for mode in modes},
    "whole text": {},
    "other calls": {
        ("langchain", "history-aware-own-words"): "a prompt of one's own is not recognised",
    },
}
"""What is not recovered, by what is checked."""

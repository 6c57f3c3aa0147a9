"""Haystack: pipelines with a BM25 retriever and the prompts of its documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rag
from haystack import Document, Pipeline, component
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder, PromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

DOCUMENTS = """
    Given these documents, answer the question.
    Documents:
    {% for doc in documents %}
        {{ doc.content }}
    {% endfor %}

    Question: {{query}}
    Answer:
    """
NAMED = """
Given these documents, answer the question.
Documents:
{% for doc in documents %}
Document {{ loop.index }}:
Document name: {{ doc.meta['name'] }}
{{ doc.content }}
{% endfor %}

Question: {{query}}
Answer:
"""
SYSTEM = """Answer from the context only.

<context>
{% for doc in documents %}
<document id="{{ doc.id }}">{{ doc.content }}</document>
{% endfor %}
</context>
"""


def _retriever(run: rag.Run) -> InMemoryBM25Retriever:
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=one.id, content=one.text, meta={"name": one.source}) for one in run.documents])
    return InMemoryBM25Retriever(store, top_k=rag.TOP_K)


def _generator(run: rag.Run, **options: Any) -> OpenAIChatGenerator:
    return OpenAIChatGenerator(
        model=rag.MODEL,
        api_key=Secret.from_token("none"),
        api_base_url=run.base_url,
        max_retries=0,
        http_client_kwargs={"headers": run.headers},
        **options,
    )


def _pipeline(run: rag.Run, prompt: Any, found: Callable[[Document], rag.Passage], **options: Any) -> None:
    pipeline = Pipeline()
    pipeline.add_component("retriever", _retriever(run))
    pipeline.add_component("prompt", prompt)
    pipeline.add_component("llm", _generator(run, **options))
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("prompt", "llm")
    for question in rag.QUESTIONS:
        inputs = {"retriever": {"query": question}, "prompt": {"query": question}}
        result = pipeline.run(inputs, include_outputs_from={"retriever"})
        run.answer(question, [found(one) for one in result["retriever"]["documents"]])


def _text(document: Document) -> rag.Passage:
    return rag.Passage(document.content or "")


def _named(document: Document) -> rag.Passage:
    return rag.Passage(document.content or "", source=document.meta["name"])


def _with_id(document: Document) -> rag.Passage:
    return rag.Passage(document.content or "", id=document.id)


def prompt_builder(run: rag.Run) -> None:
    """PromptBuilder, text in: the generator makes a user's message of it."""
    _pipeline(run, PromptBuilder(DOCUMENTS, required_variables="*"), _text)


def _chat_prompt(template: str) -> ChatPromptBuilder:
    return ChatPromptBuilder([ChatMessage.from_user(template)], required_variables="*")


def streaming(run: rag.Run) -> None:
    """ChatPromptBuilder and a generator that streams."""
    pieces: list[Any] = []
    _pipeline(run, _chat_prompt(DOCUMENTS), _text, streaming_callback=pieces.append)
    assert len(pieces) > len(rag.QUESTIONS)


def system_prompt(run: rag.Run) -> None:
    """Passages between tags in the system message, the question in the user's."""
    messages = [ChatMessage.from_system(SYSTEM), ChatMessage.from_user("{{query}}")]
    _pipeline(run, ChatPromptBuilder(messages, required_variables="*"), _with_id)


def explicit(run: rag.Run) -> None:
    """A component between retriever and generator that hands the passages over with the call."""

    @component
    class Said:
        @component.output_types(generation_kwargs=dict[str, Any])
        def run(self, query: str, documents: list[Document]) -> dict[str, Any]:
            passages = [_named(one) for one in documents]
            return {"generation_kwargs": {"extra_body": run.said(query, passages)}}

    pipeline = Pipeline()
    pipeline.add_component("retriever", _retriever(run))
    pipeline.add_component("said", Said())
    template = rag.OWN_PROMPT.replace("{notes}", "{{ documents }}").replace("{question}", "{{ query }}")
    pipeline.add_component("prompt", _chat_prompt(template))
    pipeline.add_component("llm", _generator(run))
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("retriever.documents", "said.documents")
    pipeline.connect("said.generation_kwargs", "llm.generation_kwargs")
    pipeline.connect("prompt", "llm")
    for question in rag.QUESTIONS:
        inputs = {name: {"query": question} for name in ("retriever", "said", "prompt")}
        result = pipeline.run(inputs, include_outputs_from={"retriever"})
        run.answer(question, [_named(one) for one in result["retriever"]["documents"]])


def agent_tool(run: rag.Run) -> None:
    """An agent with a tool that gives a list of texts and ids."""
    retriever = _retriever(run)
    found: list[Document] = []

    def search_handbook(query: str) -> list[dict[str, str]]:
        """Find what the handbook says about a question."""
        found[:] = retriever.run(query=query)["documents"]
        return [{"id": one.id, "content": one.content or ""} for one in found]

    agent = Agent(chat_generator=_generator(run), tools=[create_tool_from_function(search_handbook)])
    for question in rag.QUESTIONS:
        agent.run(messages=[ChatMessage.from_user(question)])
        run.auxiliary()
        run.answer(question, [_with_id(one) for one in found])


MODES: dict[str, rag.Mode] = {
    "prompt-builder": prompt_builder,
    "chat-prompt-builder": lambda run: _pipeline(run, _chat_prompt(DOCUMENTS), _text),
    "named-documents": lambda run: _pipeline(run, _chat_prompt(NAMED), _named),
    "system-prompt": system_prompt,
    "streaming": streaming,
    "agent-tool": agent_tool,
    "explicit": explicit,
}

if __name__ == "__main__":
    rag.main(MODES)

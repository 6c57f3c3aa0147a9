"""LlamaIndex: query engines, chat engines and an agent, with their default prompts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import rag
from llama_index.core import VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import CondensePlusContextChatEngine, CondenseQuestionChatEngine, ContextChatEngine
from llama_index.core.query_engine import CitationQueryEngine, RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.llms.openai import OpenAI


class ToyEmbedding(BaseEmbedding):
    """The toy embedding behind the framework's interface."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return rag.embed(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return rag.embed(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return rag.embed(text)


class Logged(BaseRetriever):
    """The framework's vector retriever; what it was asked last is kept in `asked`, what it found in `found`."""

    def __init__(self, run: rag.Run, *, metadata: bool) -> None:
        super().__init__()
        nodes = [
            TextNode(id_=one.id, text=one.text, metadata={"file_name": one.source} if metadata else {})
            for one in run.documents
        ]
        self.index = VectorStoreIndex(nodes, embed_model=ToyEmbedding())
        self._inner = self.index.as_retriever(similarity_top_k=rag.TOP_K)
        self.asked = ""
        self.found: list[NodeWithScore] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked = query_bundle.query_str
        self.found = self._inner.retrieve(query_bundle)
        return self.found

    def passages(self, *, numbered: bool = False) -> list[rag.Passage]:
        """What was found last."""
        return [
            rag.Passage(one.node.text, id=str(number) if numbered else None, source=one.node.metadata.get("file_name"))
            for number, one in enumerate(self.found, start=1)
        ]


def _llm(run: rag.Run) -> OpenAI:
    return OpenAI(model=rag.MODEL, api_base=run.base_url, api_key="none", default_headers=run.headers, max_retries=0)


def _history() -> list[ChatMessage]:
    return [ChatMessage(role=role, content=text) for role, text in zip(("user", "assistant"), rag.EARLIER, strict=True)]


def _query_engine(run: rag.Run, retriever: Logged, **options: Any) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(retriever, llm=_llm(run), **options)


def query(run: rag.Run, *, metadata: bool = False, **options: Any) -> None:
    """A query engine whose synthesis is one call."""
    retriever = Logged(run, metadata=metadata)
    engine = _query_engine(run, retriever, **options)
    for question in rag.QUESTIONS:
        engine.query(question)
        run.answer(question, retriever.passages())


def streaming(run: rag.Run) -> None:
    """A query engine that streams."""
    retriever = Logged(run, metadata=False)
    engine = _query_engine(run, retriever, streaming=True)
    for question in rag.QUESTIONS:
        assert len(list(engine.query(question).response_gen)) > 1
        run.answer(question, retriever.passages())


def refine(run: rag.Run) -> None:
    """A query engine that goes through the passages one by one."""
    retriever = Logged(run, metadata=False)
    engine = _query_engine(run, retriever, response_mode="refine")
    for question in rag.QUESTIONS:
        engine.query(question)
        passages = retriever.passages()
        for step in range(1, len(passages) + 1):  # each step is judged with what the ones before retrieved
            run.answer(question, passages[:step][::-1])


def chat(run: rag.Run, kind: type[Any]) -> None:
    """A chat engine with a turn behind it."""
    retriever = Logged(run, metadata=False)
    for question in rag.QUESTIONS:
        if kind is CondenseQuestionChatEngine:
            engine = kind.from_defaults(_query_engine(run, retriever), llm=_llm(run), chat_history=_history())
        else:
            engine = kind.from_defaults(retriever, llm=_llm(run), chat_history=_history())
        engine.chat(question)
        if kind is not ContextChatEngine:
            run.auxiliary()
        # The condensing engines search with the rewritten question; only one of them also asks it.
        asked = retriever.asked if kind is CondenseQuestionChatEngine else question
        run.answer(asked, retriever.passages())


def citation(run: rag.Run) -> None:
    """CitationQueryEngine, which numbers the passages."""
    retriever = Logged(run, metadata=False)
    engine = CitationQueryEngine.from_args(retriever.index, llm=_llm(run), retriever=retriever)
    for question in rag.QUESTIONS:
        engine.query(question)
        run.answer(question, retriever.passages(numbered=True))


def agent_tool(run: rag.Run, *, as_json: bool = False) -> None:
    """An agent with a function that retrieves and gives the passages' texts, or JSON."""
    retriever = Logged(run, metadata=False)

    def search_handbook(query: str) -> str:
        """Find what the handbook says about a question."""
        texts = [one.node.text for one in retriever.retrieve(query)]
        return json.dumps([{"text": text} for text in texts]) if as_json else "\n\n".join(texts)

    async def ask(question: str) -> None:
        agent = FunctionAgent(tools=[search_handbook], llm=_llm(run), system_prompt="You look after a coffee kitchen.")
        await agent.run(question)

    for question in rag.QUESTIONS:
        asyncio.run(ask(question))
        run.auxiliary()
        run.answer(question, retriever.passages())


def explicit(run: rag.Run) -> None:
    """An app that hands its passages over with the call."""
    retriever, llm = Logged(run, metadata=True), _llm(run)
    for question in rag.QUESTIONS:
        notes = "\n\n".join(one.node.text for one in retriever.retrieve(question))
        prompt = rag.OWN_PROMPT.format(notes=notes, question=question)
        llm.chat([ChatMessage(content=prompt)], extra_body=run.said(question, retriever.passages()))
        run.answer(question, retriever.passages())


MODES: dict[str, rag.Mode] = {
    "compact": query,
    "refine": refine,
    "tree-summarize": lambda run: query(run, response_mode="tree_summarize"),
    "chat-context": lambda run: chat(run, ContextChatEngine),
    "chat-condense-plus-context": lambda run: chat(run, CondensePlusContextChatEngine),
    "chat-condense-question": lambda run: chat(run, CondenseQuestionChatEngine),
    "citation": citation,
    "compact-with-metadata": lambda run: query(run, metadata=True),
    "streaming": streaming,
    "agent-tool": agent_tool,
    "agent-json-tool": lambda run: agent_tool(run, as_json=True),
    "explicit": explicit,
}

if __name__ == "__main__":
    rag.main(MODES)

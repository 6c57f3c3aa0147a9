"""LangChain: the classic chains with their default prompts, and the pipelines of the 1.x documentation."""

from __future__ import annotations

import json
import warnings
from typing import Any

import rag
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, dynamic_prompt
from langchain.tools import tool
from langchain_classic.chains import (
    ConversationalRetrievalChain,
    RetrievalQA,
    RetrievalQAWithSourcesChain,
    create_history_aware_retriever,
    create_retrieval_chain,
)
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.chains.question_answering import load_qa_chain, stuff_prompt
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import Field

warnings.filterwarnings("ignore", message=".*deprecated.*")


class ToyEmbeddings(Embeddings):
    """The toy embedding behind the framework's interface."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [rag.embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return rag.embed(text)


class Logged(BaseRetriever):
    """The framework's in-memory store; what it found last is kept in `found`."""

    store: InMemoryVectorStore
    found: list[Document] = Field(default_factory=list)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        self.found = self.store.similarity_search(query, k=rag.TOP_K)
        return self.found

    def passages(self, *, sources: bool = False) -> list[rag.Passage]:
        """What was found last."""
        return [rag.Passage(one.page_content, source=one.metadata["source"] if sources else None) for one in self.found]


def _retriever(run: rag.Run) -> Logged:
    documents = [Document(one.text, metadata={"source": one.source}, id=one.id) for one in run.documents]
    return Logged(store=InMemoryVectorStore.from_documents(documents, ToyEmbeddings()))


def _chat(run: rag.Run, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=rag.MODEL, base_url=run.base_url, api_key="none", default_headers=run.headers, max_retries=0, **options
    )


def _words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def _joined(documents: list[Document]) -> str:
    return "\n\n".join(one.page_content for one in documents)


RAG_PROMPT = ChatPromptTemplate.from_template(
    "You look after a coffee kitchen. Use these pieces of retrieved context to answer the question, or say that you"
    " cannot. Be brief.\nQuestion: {question} \nContext: {context} \nAnswer:"
)
STUFF_SYSTEM = "Use these pieces of retrieved context to answer the question. Be brief.\n\n{context}"
TAG_SYSTEM = "Answer questions based solely on the context below:\n\n<context>\n{context}\n</context>"


def _with_system(system: str) -> ChatPromptTemplate:
    return ChatPromptTemplate.from_messages([("system", system), ("human", "{input}")])


def rag_prompt(run: rag.Run) -> None:
    """A runnable sequence around the usual RAG prompt."""
    retriever = _retriever(run)
    inputs = {"context": retriever | RunnableLambda(_joined), "question": RunnablePassthrough()}
    chain = inputs | RAG_PROMPT | _chat(run) | StrOutputParser()
    for question in rag.QUESTIONS:
        chain.invoke(question)
        run.answer(question, retriever.passages())


def _retrieval_chain(run: rag.Run, system: str, *, stream: bool = False) -> None:
    retriever = _retriever(run)
    chain = create_retrieval_chain(retriever, create_stuff_documents_chain(_chat(run), _with_system(system)))
    for question in rag.QUESTIONS:
        if stream:
            assert len([piece for piece in chain.stream({"input": question}) if "answer" in piece]) > 1
        else:
            chain.invoke({"input": question})
        run.answer(question, retriever.passages())


def retrieval_qa(run: rag.Run, **options: Any) -> None:
    """RetrievalQA over a chat model unless `options` say otherwise."""
    retriever = _retriever(run)
    chain = RetrievalQA.from_chain_type(**{"llm": _chat(run), **options}, retriever=retriever)
    for question in rag.QUESTIONS:
        chain.invoke({"query": question})
        run.answer(question, retriever.passages())


def retrieval_qa_completion(run: rag.Run) -> None:
    """RetrievalQA over the legacy completions API: the prompt that names the question itself."""
    legacy = OpenAI(
        model="gpt-3.5-turbo-instruct",
        base_url=run.base_url,
        api_key="none",
        default_headers=run.headers,
        max_retries=0,
    )
    retrieval_qa(run, llm=legacy)


def retrieval_qa_from_llm(run: rag.Run) -> None:
    """RetrievalQA.from_llm, whose document prompt puts a word before each passage."""
    retriever = _retriever(run)
    chain = RetrievalQA.from_llm(_chat(run), retriever=retriever)
    for question in rag.QUESTIONS:
        chain.invoke({"query": question})
        run.answer(question, retriever.passages())


def refine(run: rag.Run) -> None:
    """RetrievalQA, refine: one passage after the other."""
    retriever = _retriever(run)
    chain = RetrievalQA.from_chain_type(_chat(run), chain_type="refine", retriever=retriever)
    for question in rag.QUESTIONS:
        chain.invoke({"query": question})
        passages = retriever.passages()
        for step in range(1, len(passages) + 1):  # each step is judged with what the ones before retrieved
            run.answer(question, passages[:step][::-1])


def map_reduce(run: rag.Run) -> None:
    """The map_reduce chain: an extract of each passage, then an answer from the extracts."""
    retriever = _retriever(run)
    model = _chat(run, custom_get_token_ids=_words)  # the default tokenizer is downloaded at its first use
    chain = load_qa_chain(model, chain_type="map_reduce", return_intermediate_steps=True)
    for question in rag.QUESTIONS:
        result = chain.invoke({"input_documents": retriever.invoke(question), "question": question})
        extracts = result["intermediate_steps"]
        run.auxiliary(len(extracts))
        run.answer(question, [rag.Passage(extract) for extract in extracts])


def qa_with_sources(run: rag.Run) -> None:
    """RetrievalQAWithSourcesChain, stuff."""
    retriever = _retriever(run)
    chain = RetrievalQAWithSourcesChain.from_chain_type(_chat(run), retriever=retriever)
    for question in rag.QUESTIONS:
        chain.invoke({"question": question})
        run.answer(question, retriever.passages(sources=True))


def conversational(run: rag.Run) -> None:
    """ConversationalRetrievalChain: the question is rewritten first."""
    retriever = _retriever(run)
    chain = ConversationalRetrievalChain.from_llm(_chat(run), retriever, return_generated_question=True)
    for question in rag.QUESTIONS:
        result = chain.invoke({"question": question, "chat_history": [rag.EARLIER]})
        run.auxiliary()
        run.answer(result["generated_question"], retriever.passages())


REWRITE = "With the chat history and the last question, formulate a standalone question. Do not answer it."
REWRITE_IN_OWN_WORDS = "Rewrite the follow-up so that nobody needs the conversation to understand it."


def history_aware(run: rag.Run, system: str) -> None:
    """create_history_aware_retriever in front of a retrieval chain."""
    retriever, model = _retriever(run), _chat(run)
    rewrite = ChatPromptTemplate.from_messages(
        [("system", system), MessagesPlaceholder("chat_history"), ("human", "{input}")]
    )
    prompt = ChatPromptTemplate.from_messages(
        [("system", STUFF_SYSTEM), MessagesPlaceholder("chat_history"), ("human", "{input}")]
    )
    chain = create_retrieval_chain(
        create_history_aware_retriever(model, retriever, rewrite), create_stuff_documents_chain(model, prompt)
    )
    history = [("human", rag.EARLIER[0]), ("ai", rag.EARLIER[1])]
    for question in rag.QUESTIONS:
        chain.invoke({"input": question, "chat_history": history})
        run.auxiliary()
        run.answer(question, retriever.passages())


def _agent(run: rag.Run, retriever: Logged, tool_: Any, *, sources: bool = False, **options: Any) -> None:
    agent = create_agent(_chat(run, **options), [tool_], system_prompt="You have a tool that reads the handbook.")
    for question in rag.QUESTIONS:
        agent.invoke({"messages": [{"role": "user", "content": question}]})
        run.auxiliary()
        run.answer(question, retriever.passages(sources=sources))


def agent_tool(run: rag.Run, **options: Any) -> None:
    """An agent with a retrieval tool that says source and content, as the documentation shows."""
    retriever = _retriever(run)

    @tool(response_format="content_and_artifact")
    def retrieve_context(query: str) -> tuple[str, list[Document]]:
        """Find what the handbook says about a question."""
        documents = retriever.invoke(query)
        return "\n\n".join(f"Source: {one.metadata}\nContent: {one.page_content}" for one in documents), documents

    _agent(run, retriever, retrieve_context, sources=True, **options)


def agent_retriever_tool(run: rag.Run) -> None:
    """An agent with create_retriever_tool."""
    retriever = _retriever(run)
    _agent(run, retriever, create_retriever_tool(retriever, "search_handbook", "Search the coffee handbook."))


def agent_json_tool(run: rag.Run) -> None:
    """An agent whose tool gives JSON: each passage with its source, whatever stands in it."""
    retriever = _retriever(run)

    @tool
    def search_handbook(query: str) -> str:
        """Find what the handbook says about a question."""
        found = retriever.invoke(query)
        return json.dumps([{"text": one.page_content, "source": one.metadata["source"]} for one in found])

    _agent(run, retriever, search_handbook, sources=True)


def explicit(run: rag.Run) -> None:
    """An app that hands its passages over with the call."""
    retriever, model = _retriever(run), _chat(run)
    for question in rag.QUESTIONS:
        found = retriever.invoke(question)
        passages = retriever.passages(sources=True)
        prompt = rag.OWN_PROMPT.format(notes=_joined(found), question=question)
        model.invoke(prompt, extra_body=run.said(question, passages))
        run.answer(question, passages)


def two_step_dynamic_prompt(run: rag.Run) -> None:
    """One call: a dynamic prompt puts the passages into the system message."""
    retriever = _retriever(run)

    @dynamic_prompt
    def with_context(request: Any) -> str:
        found = _joined(retriever.invoke(request.state["messages"][-1].text))
        return f"You are a patient barista. Use the following context in your response:\n\n{found}"

    agent = create_agent(_chat(run), [], middleware=[with_context])
    for question in rag.QUESTIONS:
        agent.invoke({"messages": [{"role": "user", "content": question}]})
        run.answer(question, retriever.passages())


def two_step_before_model(run: rag.Run) -> None:
    """One call: middleware writes the passages behind the user's question."""
    retriever = _retriever(run)

    class WithContext(AgentMiddleware[Any]):
        def before_model(self, state: AgentState[Any], runtime: Any) -> dict[str, Any]:
            last = state["messages"][-1]
            found = _joined(retriever.invoke(last.text))
            content = f"{last.text}\n\nUse the following context to answer the query:\n{found}"
            return {"messages": [last.model_copy(update={"content": content})]}

    agent = create_agent(_chat(run), [], middleware=[WithContext()], system_prompt=SystemMessage("You are a barista."))
    for question in rag.QUESTIONS:
        agent.invoke({"messages": [{"role": "user", "content": question}]})
        run.answer(question, retriever.passages())


MODES: dict[str, rag.Mode] = {
    "rag-prompt": rag_prompt,
    "stuff-documents-chain": lambda run: _retrieval_chain(run, STUFF_SYSTEM),
    "retrieval-chain-context-tag": lambda run: _retrieval_chain(run, TAG_SYSTEM),
    "retrieval-qa-chat": retrieval_qa,
    "retrieval-qa-user": lambda run: retrieval_qa(run, chain_type_kwargs={"prompt": stuff_prompt.PROMPT}),
    "retrieval-qa-completion": retrieval_qa_completion,
    "retrieval-qa-from-llm": retrieval_qa_from_llm,
    "refine": refine,
    "map-reduce": map_reduce,
    "qa-with-sources": qa_with_sources,
    "conversational": conversational,
    "history-aware": lambda run: history_aware(run, REWRITE),
    "history-aware-own-words": lambda run: history_aware(run, REWRITE_IN_OWN_WORDS),
    "agent-tool": agent_tool,
    "agent-retriever-tool": agent_retriever_tool,
    "agent-json-tool": agent_json_tool,
    "agent-responses-api": lambda run: agent_tool(run, use_responses_api=True),
    "two-step-dynamic-prompt": two_step_dynamic_prompt,
    "two-step-before-model": two_step_before_model,
    "streaming": lambda run: _retrieval_chain(run, STUFF_SYSTEM, stream=True),
    "explicit": explicit,
}

if __name__ == "__main__":
    rag.main(MODES)
